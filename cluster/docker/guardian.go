package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/api/types/volume"
	"github.com/testcontainers/testcontainers-go"
)

// A guardian is a process that outlives this one, and sees that nothing of a run
// stays: it waits for the end of a pipe that only this process holds open.
type guardian struct{ pipe io.WriteCloser }

func startGuardian(id string, command func(args ...string) *exec.Cmd) (*guardian, error) {
	if command == nil {
		return nil, nil
	}
	cmd := command(id)
	detach(cmd)
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("start the guardian of the containers: %w", err)
	}
	go func() { _ = cmd.Wait() }() // it is its own master; this only keeps it from being a zombie
	return &guardian{pipe: in}, nil
}

// dismiss lets the guardian go: there is nothing left for it to do.
func (g *guardian) dismiss() {
	if g != nil {
		_, _ = io.WriteString(g.pipe, done)
		g.pipe.Close()
	}
}

// done is what a guardian reads when the run has removed everything itself.
const done = "done\n"

// guardFor is how long a guardian looks for what an engine may still be making.
const guardFor = 5 * time.Second

// Guard waits for the end of in and then removes what is left of a run. It comes
// back when nothing has been left for some seconds.
func Guard(ctx context.Context, in io.Reader, id string) error {
	b, _ := io.ReadAll(in) // an error is an end, too
	if string(b) == done {
		return nil
	}
	cli, err := connect(ctx)
	if err != nil {
		return err
	}
	defer cli.Close()
	var last error
	for clean := time.Now(); time.Since(clean) < guardFor; {
		n, err := sweep(ctx, cli, id)
		if n > 0 || err != nil {
			clean = time.Now()
		}
		if last = err; ctx.Err() != nil {
			break
		}
		time.Sleep(200 * time.Millisecond)
	}
	return last
}

// A Left is something of ours that an engine has.
type Left struct {
	Kind string `json:"kind"` // container, network or volume
	ID   string `json:"id"`
	Run  string `json:"run"`
	PID  int    `json:"pid"` // of the lockcheck that made it
}

// Abandoned reports whether the process that made it has ended.
func (l Left) Abandoned() bool { return !alive(l.PID) }

// Find lists everything of ours: of one run, or of every run if id is "".
func Find(ctx context.Context, id string) ([]Left, error) {
	cli, err := connect(ctx)
	if err != nil {
		return nil, err
	}
	defer cli.Close()
	return find(ctx, cli, id)
}

func find(ctx context.Context, cli *testcontainers.DockerClient, id string) ([]Left, error) {
	label := labelRun
	if id != "" {
		label += "=" + id
	}
	by := filters.NewArgs(filters.Arg("label", label))
	var all []Left
	add := func(kind, id string, labels map[string]string) {
		pid, _ := strconv.Atoi(labels[labelOwner]) // none is an owner that has ended
		all = append(all, Left{Kind: kind, ID: id, Run: labels[labelRun], PID: pid})
	}
	cs, err := cli.ContainerList(ctx, container.ListOptions{All: true, Filters: by})
	if err != nil {
		return nil, fmt.Errorf("list containers: %w", err)
	}
	for _, c := range cs {
		add("container", c.ID, c.Labels)
	}
	ns, err := cli.NetworkList(ctx, network.ListOptions{Filters: by})
	if err != nil {
		return nil, fmt.Errorf("list networks: %w", err)
	}
	for _, n := range ns {
		add("network", n.ID, n.Labels)
	}
	vs, err := cli.VolumeList(ctx, volume.ListOptions{Filters: by})
	if err != nil {
		return nil, fmt.Errorf("list volumes: %w", err)
	}
	for _, v := range vs.Volumes {
		add("volume", v.Name, v.Labels)
	}
	return all, nil
}

// Remove removes what Find has found: containers first, since the rest is in use
// by them.
func Remove(ctx context.Context, left []Left) error {
	cli, err := connect(ctx)
	if err != nil {
		return err
	}
	defer cli.Close()
	return remove(ctx, cli, left)
}

// sweep removes everything of a run, and says how much there was.
func sweep(ctx context.Context, cli *testcontainers.DockerClient, id string) (int, error) {
	left, err := find(ctx, cli, id)
	if err != nil {
		return 0, err
	}
	return len(left), remove(ctx, cli, left)
}

func remove(ctx context.Context, cli *testcontainers.DockerClient, left []Left) error {
	var errs []error
	for _, kind := range []string{"container", "network", "volume"} {
		n := 0
		ended := make(chan error)
		for _, l := range left {
			if l.Kind == kind {
				n++
				go func() { ended <- removeOne(ctx, cli, l) }()
			}
		}
		for range n {
			errs = append(errs, <-ended)
		}
	}
	return errors.Join(errs...)
}

func removeOne(ctx context.Context, cli *testcontainers.DockerClient, l Left) error {
	for {
		var err error
		switch l.Kind {
		case "container":
			err = cli.ContainerRemove(ctx, l.ID, container.RemoveOptions{Force: true, RemoveVolumes: true})
		case "network":
			err = cli.NetworkRemove(ctx, l.ID)
		case "volume":
			err = cli.VolumeRemove(ctx, l.ID, true)
		}
		switch {
		case err == nil, errdefs.IsNotFound(err):
			return nil
		case errdefs.IsConflict(err) && ctx.Err() == nil:
			// Somebody else is removing it: wait until it is gone.
			time.Sleep(50 * time.Millisecond)
			continue
		}
		return fmt.Errorf("remove %s %s: %w", l.Kind, l.ID, err)
	}
}

// alive reports whether a process runs.
func alive(pid int) bool {
	if pid <= 0 {
		return false
	}
	p, err := os.FindProcess(pid)
	return err == nil && signalled(p)
}

package local

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// probeLimit bounds a probe; one takes some ten milliseconds.
const probeLimit = 10 * time.Second

// probed is what the probing child reports; an empty Step means that all went
// well.
type probed struct {
	Step  string        `json:"step"`
	Error string        `json:"error"`
	Errno syscall.Errno `json:"errno"`
}

// Probe finds out whether this machine can run the lab, by doing once what the
// lab does: namespaces, /proc, a bridge with a veth on it, redirecting and
// dropping nftables rules. It leaves nothing behind. The error is an
// *Unavailable when the machine refuses.
func Probe(ctx context.Context) error {
	if !staged {
		return ErrNoStage
	}
	ctx, cancel := context.WithTimeout(ctx, probeLimit)
	defer cancel()
	out, err := probeChild(ctx)
	if err != nil {
		return err
	}
	var p probed
	if err := json.Unmarshal(out, &p); err != nil {
		return fmt.Errorf("probe lab: read report %q: %w", out, err)
	}
	if p.Step == "" {
		return nil
	}
	if p.Errno != 0 {
		return unavailable(p.Step, p.Errno)
	}
	return unavailable(p.Step, errors.New(p.Error))
}

// probeChild runs the probe stage and returns what it printed.
func probeChild(ctx context.Context) ([]byte, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("probe lab: %w", err)
	}
	defer r.Close()
	cmd, alive, err := startNamespaced(stageProbe, w)
	w.Close()
	if err != nil {
		return nil, err
	}
	defer alive.Close()
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	defer stop()
	var buf bytes.Buffer
	_, rerr := io.Copy(&buf, r)
	if err := cmd.Wait(); err != nil {
		return nil, fmt.Errorf("probe lab: %w", errors.Join(err, ctx.Err()))
	}
	return buf.Bytes(), rerr
}

// runProbe is the probing child.
func runProbe(out io.Writer) int {
	setComm("lockcheck-probe")
	var p probed
	if step, err := probeSteps(); err != nil {
		p = probed{Step: step, Error: err.Error(), Errno: errnoOf(err)}
	}
	if json.NewEncoder(out).Encode(p) != nil {
		return exitFailed
	}
	return 0
}

func probeSteps() (step string, err error) {
	if err := privateProc(); err != nil {
		u := err.(*Unavailable)
		return u.Step, u.Err
	}
	if err := loopbackUp(); err != nil {
		return "bring up loopback", err
	}
	n, err := newBridge()
	if err != nil {
		return "create bridge", err
	}
	h, err := n.addHost("probe", 11)
	if err != nil {
		return "create veth", err
	}
	to := redirect{ip: h.ip, port: 1, toIP: n.bridgeIP(), toPort: 1}
	if err := h.redirect([]redirect{to}); err != nil {
		return "add nftables redirect", err
	}
	if err := h.drop([]peer{{name: "bridge", ip: n.bridgeIP()}}); err != nil {
		return "add nftables drop rule", err
	}
	return "", nil
}

// unavailable wraps what the kernel said with what would mend it.
func unavailable(step string, err error) *Unavailable {
	return &Unavailable{Step: step, Err: err, Remedy: remedy(step, errnoOf(err))}
}

func remedy(step string, errno syscall.Errno) string {
	const docker = "in Docker, run the container with --security-opt seccomp=unconfined --security-opt systempaths=unconfined"
	// Ubuntu lets anybody make a user namespace, but gives no rights in it.
	if errno != 0 && readOwn("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == "1" {
		return "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0, as root"
	}
	switch step {
	case "create namespaces":
		return namespaceRemedy(errno, docker)
	case "mount /proc", "make mounts private":
		return "a part of /proc is covered, as in a container; " + docker
	case "create bridge":
		return "the kernel needs bridges: modprobe bridge"
	case "create veth":
		return "the kernel needs veth pairs: modprobe veth"
	case "add nftables redirect", "add nftables drop rule":
		return "the kernel needs nftables with NAT: modprobe nf_tables nft_chain_nat nft_nat nft_counter"
	}
	return "use --network loopback"
}

func namespaceRemedy(errno syscall.Errno, docker string) string {
	switch {
	case errno == unix.ENOSPC || errno == unix.EUSERS:
		return "the limit of user namespaces is reached or 0: sysctl -w user.max_user_namespaces=10000, as root"
	case errno == unix.EINVAL || errno == unix.ENOSYS:
		return "the kernel was built without user namespaces"
	case readOwn("/proc/sys/kernel/unprivileged_userns_clone") == "0":
		return "sysctl -w kernel.unprivileged_userns_clone=1, as root"
	}
	return "namespaces are forbidden, often by a seccomp filter; " + docker
}

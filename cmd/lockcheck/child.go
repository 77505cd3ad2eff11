package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"github.com/lockcheck/lockcheck/experiment"
)

// childWait is how long a run may take to end after it was told to.
const childWait = 45 * time.Second

// childArgs are the arguments with which lockcheck carries out a run by itself.
func childArgs(o experiment.Options) []string {
	args := []string{"run"}
	if o.Scenario != "" {
		args = []string{"scenario", o.Scenario}
	}
	add := func(name string, value any) { args = append(args, fmt.Sprintf("--%s=%v", name, value)) }
	add("backend", o.Backend)
	add("client", o.Client)
	add("ttl", o.TTL)
	add("store", o.Store)
	add("seed", o.Seed)
	add("out", o.Out)
	add("retry-delay", o.RetryDelay)
	add("persistence", o.Persistence)
	add("on-suspended", o.OnSuspended)
	add("network", o.Network)
	add("proxy", o.Proxy)
	if len(o.Require) > 0 {
		add("require", strings.Join(o.Require, ","))
	}
	if o.Scenario == "" {
		add("workers", o.Workers)
		add("keys", o.Keys)
		add("target", o.Target)
		add("interval", o.Interval)
		add("at-once", o.AtOnce)
		add("duration", o.Duration)
		add("hold", o.Hold)
		add("wait", o.Wait)
		add("rate", o.Rate)
		if len(o.Nemesis) > 0 {
			add("nemesis", strings.Join(o.Nemesis, ","))
		}
	}
	return append(args, "--json")
}

// childRun runs lockcheck with arguments that make it print one result as JSON.
func childRun(ctx context.Context, args []string) (res experiment.Result, err error) {
	// The kernel ends the child with the thread that began it, should this process
	// die without a word.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	self, err := os.Executable()
	if err != nil {
		return res, err
	}
	var out, said bytes.Buffer
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Args[0] = os.Args[0] // a test binary tells by it that it is to be lockcheck
	cmd.Stdout, cmd.Stderr = &out, &said
	cmd.SysProcAttr = childAttr()
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = childWait
	err = cmd.Run()
	if jerr := json.Unmarshal(out.Bytes(), &res); jerr != nil || res.Properties == nil {
		return experiment.Result{}, fmt.Errorf("lockcheck %s: %w", strings.Join(args, " "), failure(err, said.String()))
	}
	if code := cmd.ProcessState.ExitCode(); code == exitFailed {
		return res, failure(err, said.String())
	}
	return res, nil
}

// failure is an error with the last that was said.
func failure(err error, said string) error {
	lines := strings.Split(strings.TrimSpace(said), "\n")
	last := lines[len(lines)-1]
	if err == nil {
		return fmt.Errorf("no result: %s", last)
	}
	return fmt.Errorf("%w: %s", err, last)
}

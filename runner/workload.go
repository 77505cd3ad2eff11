package runner

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/lockcheck/lockcheck/clients/wire"
	"github.com/lockcheck/lockcheck/generator"
	"github.com/lockcheck/lockcheck/history"
	"github.com/lockcheck/lockcheck/internal/guard"
)

// suspendPoll is how often a paused worker looks whether its client is
// connected again.
const suspendPoll = 2 * time.Millisecond

// sessionRetry is the pause before another try to begin a session: the servers
// may be out of reach for as long as a fault lasts.
const sessionRetry = 100 * time.Millisecond

// Workload lets every worker contend until the duration is over or ctx ends. Then
// Config.Over has a look, and each worker releases what it holds and closes its
// session.
func (r *Runner) Workload(ctx context.Context, seed uint64, cfg generator.Config, duration time.Duration) {
	wctx, cancel := context.WithTimeout(ctx, duration)
	defer cancel()
	var wg sync.WaitGroup
	seen := make(chan struct{})
	wg.Go(guard.Wrap(func() {
		defer close(seen)
		<-wctx.Done()
		if r.cfg.Over != nil {
			r.cfg.Over(ctx)
		}
	}))
	for i, w := range r.workers {
		cfg := cfg
		cfg.Check = w.Can(wire.CanCheck)
		wg.Go(guard.Wrap(func() {
			g := generator.New(seed, i, cfg)
			d := &driver{w: w, gen: g, pause: r.cfg.OnSuspended == Pause}
			d.run(wctx)
			<-seen // a session that ends takes with it what stood for a lock
			d.leave(context.WithoutCancel(ctx))
		}))
	}
	wg.Wait()
}

// A driver carries out what the generator of one worker decides.
type driver struct {
	w     *Worker
	gen   *generator.Worker
	grant uint64 // of the present section
	key   string
	pause bool // rather than go on while the client is suspended
}

func (d *driver) run(ctx context.Context) {
	out := generator.Outcome{}
	for ctx.Err() == nil {
		if err := d.w.Session(ctx); err != nil {
			d.gen.Abort()
			if ctx.Err() == nil {
				d.w.r.cfg.Log.Info("no session", "error", err)
			}
			sleep(ctx, sessionRetry)
			continue
		}
		begun := time.Now()
		a := d.gen.Next(out)
		if !sleep(ctx, a.After) || !d.resumed(ctx) {
			return
		}
		done, err := d.step(a)
		switch {
		case err == nil:
			out = generator.Outcome{Type: done.Type, Error: done.Error, Value: done.Value, Took: time.Since(begun)}
		case errors.Is(err, ErrLost):
			// As the client's listener was told: the work is given up. A program
			// still unlocks on its way out, and a lock that then says ok is wrong.
			d.gen.Abort()
			d.release(context.Background())
			out = generator.Outcome{Type: history.Fail}
		default:
			d.gen.Abort()
			out = generator.Outcome{Type: history.Info}
		}
	}
}

// step carries out one action to its end: an operation that was begun is
// waited for even if the workload is over, within its time-out.
func (d *driver) step(a generator.Action) (Done, error) {
	c := Call{F: a.F, Key: a.Key, Value: a.Value, Wait: a.Wait}
	if a.F != history.Acquire {
		c.Grant = d.grant
		if d.w.Lost(d.grant) {
			return Done{}, ErrLost
		}
	}
	done, err := d.w.Do(context.Background(), c)
	if err == nil && a.F == history.Acquire && done.Type == history.OK {
		d.grant, d.key = done.Grant, a.Key
	}
	return done, err
}

// resumed waits while the client says that its connection is in doubt, if the
// worker is one that pauses its work then.
func (d *driver) resumed(ctx context.Context) bool {
	for d.pause && d.gen.Holding() && d.w.Suspended() && !d.w.Lost(d.grant) {
		if !sleep(ctx, suspendPoll) {
			return false
		}
	}
	return true
}

// leave releases what is held and closes the session.
func (d *driver) leave(ctx context.Context) {
	d.release(ctx)
	d.w.Do(ctx, Call{F: history.Close})
}

// release gives back what the worker was granted and has not given back.
func (d *driver) release(ctx context.Context) {
	if d.w.Has(d.grant) {
		d.w.Do(ctx, Call{F: history.Release, Key: d.key, Grant: d.grant})
	}
}

// sleep waits for d. It reports whether ctx still stands.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

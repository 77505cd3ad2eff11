package nemesis

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Boxes are servers in containers: they are stopped as a whole, and looked at from
// outside. What signals and /proc are to other servers, this is to them.
type Boxes interface {
	Freeze(ctx context.Context, node string) error
	Thaw(ctx context.Context, node string) error
	// Frozen and Running read back what is; how says who was asked.
	Frozen(ctx context.Context, node string) (is bool, how string, err error)
	Running(ctx context.Context, node string) (bool, error)
	// Detach takes a node off the network as a whole, for its clients too.
	Detach(ctx context.Context, node string) error
	Attach(ctx context.Context, node string) error
	Attached(ctx context.Context, node string) (bool, error)
}

// freezeBoxes stops servers in boxes and proves it.
func freezeBoxes(ctx context.Context, boxes Boxes, ts []Target, stop func(context.Context, string) error) (Evidence, Heal, error) {
	if stop == nil {
		stop = boxes.Freeze
	}
	begun := time.Now()
	heal := func(hctx context.Context) (Evidence, error) {
		lasted := time.Since(begun)
		var errs []error
		for _, t := range ts {
			if err := thawBox(hctx, boxes, t); err != nil {
				errs = append(errs, fmt.Errorf("continue %v: %w", t, err))
			}
		}
		return Evidence{"stopped_ms": lasted.Milliseconds()}, errors.Join(errs...)
	}
	told := map[string]string{}
	for _, t := range ts {
		err := stop(ctx, t.Node)
		if err == nil {
			err = poll(ctx, provedWithin, func() (bool, error) {
				is, how, err := boxes.Frozen(ctx, t.Node)
				told[t.Node] = how
				return is, err
			})
		}
		if err != nil {
			return nil, nil, undone(ctx, heal, provedWithin, fmt.Errorf("pause %v: %w", t, err))
		}
	}
	return Evidence{"state": "frozen", "told_by": told, "pids": pids(ts)}, heal, nil
}

func thawBox(ctx context.Context, boxes Boxes, t Target) error {
	if err := boxes.Thaw(ctx, t.Node); err != nil {
		return err
	}
	return poll(ctx, provedWithin, func() (bool, error) {
		runs, err := boxes.Running(ctx, t.Node)
		if err != nil || !runs {
			return !runs, err
		}
		is, _, err := boxes.Frozen(ctx, t.Node)
		return !is, err
	})
}

// ended waits until a server that was killed is gone: by its process, or, of one
// in a box, by the engine's word.
func ended(ctx context.Context, boxes Boxes, t Target) error {
	if boxes == nil {
		return gone(ctx, t.OS)
	}
	return poll(ctx, provedWithin, func() (bool, error) {
		runs, err := boxes.Running(ctx, t.Node)
		return !runs, err
	})
}

// Detached is a partition where packets cannot be dropped: one node is taken off
// the network as a whole, so that its clients lose it, too.
type Detached struct {
	Boxes Boxes
	// Detach replaces what takes a node off, for the test.
	Detach func(ctx context.Context, node string) error
}

// Name is that of the fault which it stands for.
func (Detached) Name() string { return partitionEntry.Name }

// Inject takes the targets off the network. The evidence is that the network does
// not list them any more.
func (d Detached) Inject(ctx context.Context, ts []Target) (Evidence, Heal, error) {
	detach := d.Detach
	if detach == nil {
		detach = d.Boxes.Detach
	}
	heal := func(hctx context.Context) (Evidence, error) {
		var errs []error
		for _, t := range ts {
			err := d.Boxes.Attach(hctx, t.Node)
			if err == nil {
				err = d.is(hctx, t, true)
			}
			errs = append(errs, err)
		}
		return nil, errors.Join(errs...)
	}
	var off []string
	for _, t := range ts {
		err := detach(ctx, t.Node)
		if err == nil {
			err = d.is(ctx, t, false)
		}
		if err != nil {
			return nil, nil, undone(ctx, heal, provedWithin, fmt.Errorf("partition by taking %v off the network: %w", t, err))
		}
		off = append(off, t.Node)
	}
	return Evidence{"off_the_network": off, "form": One, "way": Both}, heal, nil
}

func (d Detached) is(ctx context.Context, t Target, want bool) error {
	on, err := d.Boxes.Attached(ctx, t.Node)
	if err == nil && on != want {
		err = fmt.Errorf("%v on the network is %v", t, on)
	}
	return err
}

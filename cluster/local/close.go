package local

import (
	"context"
	"errors"
	"fmt"
	"net"
)

// Close implements cluster.Cluster. It ends the servers and waits for them, and
// ends whatever else runs in the workers' places; who started that must wait for
// it. Logs stay.
func (c *Cluster) Close(ctx context.Context) error {
	c.close.Do(func() {
		done := make(chan error, 1)
		go func() { done <- c.closeAll() }()
		select {
		case c.closed = <-done:
		case <-ctx.Done():
			c.closed = fmt.Errorf("close %s: %w", c.spec.Backend, ctx.Err())
		}
	})
	return c.closed
}

func (c *Cluster) closeAll() error {
	_ = each(c.members, func(m *member) error {
		m.kill()
		return nil
	})
	var errs []error
	if c.proxies != nil {
		errs = append(errs, c.proxies.close())
	}
	if c.store != nil {
		if err := c.store.Close(); !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	if c.undoData != nil {
		errs = append(errs, c.undoData())
	}
	errs = append(errs, c.net.close(), c.closeClocks())
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close %s: %w", c.spec.Backend, err)
	}
	return nil
}

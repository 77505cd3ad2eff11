package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockcheck/lockcheck/internal/guard"
	"github.com/lockcheck/lockcheck/serve"
)

func (a *app) serveCommand() *cobra.Command {
	var store, addr string
	c := &cobra.Command{
		Use:   "serve",
		Short: "A local web page over all runs",
		Long: `Shows the runs of a folder in a browser: a list to filter, reports, files, and each
run as a download. It only reads. It listens on this machine alone unless --listen
names another address; then everybody who reaches it can read the store.`,
		Example: `  lockcheck serve
  lockcheck serve --store store/matrix --listen 127.0.0.1:9000`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return a.serve(c.Context(), store, addr) },
	}
	c.Flags().StringVar(&store, "store", "store", "folder of runs")
	c.Flags().StringVar(&addr, "listen", "127.0.0.1:7070", "address; port 0 takes a free one")
	return c
}

// shutWithin is how long open downloads may go on after Ctrl-C.
const shutWithin = 2 * time.Second

func (a *app) serve(ctx context.Context, store, addr string) error {
	root, err := os.OpenRoot(store)
	if err != nil {
		return usage(fmt.Errorf("store: %w (--store names the folder of runs)", err))
	}
	defer root.Close()
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return usage(fmt.Errorf("listen: %w (--listen names another address)", err))
	}
	open := !serve.Loopback(ln.Addr().String())
	if open {
		fmt.Fprintf(a.err, "lockcheck: %v is not of this machine alone: whoever reaches it can read %s\n", ln.Addr(), store)
	}
	log := slog.New(slog.NewTextHandler(a.err, &slog.HandlerOptions{Level: slog.LevelWarn}))
	srv := &http.Server{Handler: serve.New(root, log, open), ReadHeaderTimeout: 10 * time.Second, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn)}
	fmt.Fprintf(a.out, "http://%v\n", ln.Addr())
	ended := make(chan error, 1)
	go guard.Wrap(func() { ended <- srv.Serve(ln) })()
	select {
	case err = <-ended:
	case <-ctx.Done():
		sctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutWithin)
		defer cancel()
		err = srv.Shutdown(sctx)
		if errors.Is(err, context.DeadlineExceeded) {
			err = srv.Close()
		}
	}
	if err != nil && !errors.Is(err, http.ErrServerClosed) {
		return exit{exitFailed, err}
	}
	return nil
}

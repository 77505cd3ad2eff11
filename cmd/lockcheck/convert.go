package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/spf13/cobra"

	"github.com/lockcheck/lockcheck/history"
)

func (a *app) convertCommand() *cobra.Command {
	var to string
	c := &cobra.Command{
		Use:   "convert [--to edn|jsonl] IN [OUT]",
		Short: "Write a history in another format",
		Long: `Writes a history as EDN, for the tools of Jepsen, or as JSON lines. Nothing is
lost: converted back, each event and the header are what they were. Without OUT,
and if it is -, the result goes to standard output; a name in .gz or .zst packs it.
Without --to the name of OUT tells the format, else it is the other one.`,
		Example: `  lockcheck convert store/latest/history.jsonl history.edn
  lockcheck convert jepsen/store/latest/history.edn history.jsonl.zst
  lockcheck convert --to edn - <history.jsonl`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 1 || len(args) > 2 {
				return usage(fmt.Errorf("convert takes a history and perhaps the file to write"))
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			out := "-"
			if len(args) == 2 {
				out = args[1]
			}
			return a.convert(history.Format(to), args[0], out)
		},
	}
	c.Flags().StringVar(&to, "to", "", "format to write: edn or jsonl")
	return c
}

func (a *app) convert(to history.Format, file, out string) error {
	switch to {
	case "", history.EDN, history.JSONL:
	default:
		return usage(fmt.Errorf("--to %s: a history can be written as edn or jsonl", to))
	}
	in, err := a.open(file)
	if err != nil {
		return usage(err)
	}
	defer in.Close()
	src, err := history.Open(in, file)
	if err != nil {
		return usage(err)
	}
	defer src.Close()
	if to == "" {
		to = formatFor(out, src.About().Format)
	}
	if out == "-" {
		_, err = history.Convert(a.out, src, to)
	} else {
		err = convertTo(out, src, to)
	}
	var bad *history.MalformedError
	switch {
	case errors.As(err, &bad):
		return usage(err)
	case err != nil:
		return exit{exitFailed, err}
	}
	if cut := src.About().Truncated; cut != "" {
		fmt.Fprintf(a.err, "lockcheck: %s\n", cut)
	}
	return nil
}

// formatFor tells what to write where nobody said it.
func formatFor(out string, from history.Format) history.Format {
	base := strings.TrimSuffix(strings.TrimSuffix(out, ".gz"), ".zst")
	switch filepath.Ext(base) {
	case ".edn":
		return history.EDN
	case ".jsonl", ".json":
		return history.JSONL
	}
	if from == history.JSONL {
		return history.EDN
	}
	return history.JSONL
}

// convertTo writes a file, which appears under its name only when it is whole.
func convertTo(out string, src history.Source, to history.Format) (err error) {
	f, err := os.CreateTemp(filepath.Dir(out), "."+filepath.Base(out)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(f.Name())
		}
	}()
	w, err := packer(out, f)
	if err != nil {
		return err
	}
	if _, err := history.Convert(w, src, to); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return fmt.Errorf("write %s: %w", out, err)
	}
	if err := f.Chmod(0o644); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("write %s: %w", out, err)
	}
	return os.Rename(f.Name(), out)
}

// packer compresses as the name asks.
func packer(name string, w io.Writer) (io.WriteCloser, error) {
	switch filepath.Ext(name) {
	case ".gz":
		return gzip.NewWriter(w), nil
	case ".zst":
		return zstd.NewWriter(w)
	}
	return plainWriter{w}, nil
}

type plainWriter struct{ io.Writer }

func (plainWriter) Close() error { return nil }

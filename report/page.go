package report

import "io"

func (d *drawing) page(w io.Writer) error { return nil }

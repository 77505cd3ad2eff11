package local

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
)

// respLimit bounds one string and one array in a reply; INFO has a few kilobytes.
const respLimit = 1 << 20

// errNil is Redis's "no such thing", e.g. a SET NX that found the key there.
var errNil = errors.New("nil reply")

// askRedis sends one command over a connection of its own and returns the reply:
// a string, an int64 or a []any of these. It is not a client library on purpose:
// those retry, pool and log, and a server that is only starting answers none of
// it well.
func askRedis(ctx context.Context, addr string, args ...string) (any, error) {
	conn, err := dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(a), a)
	}
	if _, err := io.WriteString(conn, b.String()); err != nil {
		return nil, fmt.Errorf("send %s to %s: %w", args[0], addr, err)
	}
	v, err := readReply(bufio.NewReader(conn))
	if err != nil {
		return nil, fmt.Errorf("%s at %s: %w", args[0], addr, err)
	}
	return v, nil
}

// dial connects with ctx's deadline on the connection as a whole.
func dial(ctx context.Context, addr string) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	if t, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(t); err != nil {
			conn.Close()
			return nil, err
		}
	}
	return conn, nil
}

func readReply(r *bufio.Reader) (any, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return nil, err
	}
	line = strings.TrimRight(line, "\r\n")
	if line == "" {
		return nil, errors.New("empty reply")
	}
	kind, rest := line[0], line[1:]
	switch kind {
	case '+':
		return rest, nil
	case '-':
		return nil, errors.New(rest)
	}
	n, err := strconv.ParseInt(rest, 10, 64)
	switch {
	case err != nil:
		return nil, fmt.Errorf("reply %q: %w", line, err)
	case kind == ':':
		return n, nil
	case n < 0:
		return nil, errNil
	case n > respLimit:
		return nil, fmt.Errorf("reply %q is too long", line)
	case kind == '$':
		b := make([]byte, n+2)
		if _, err := io.ReadFull(r, b); err != nil {
			return nil, err
		}
		return string(b[:n]), nil
	case kind == '*':
		return readArray(r, n)
	}
	return nil, fmt.Errorf("reply %q: unknown kind", line)
}

func readArray(r *bufio.Reader, n int64) (any, error) {
	var out []any
	for range n {
		v, err := readReply(r)
		if err != nil && !errors.Is(err, errNil) {
			return nil, err
		}
		out = append(out, v)
	}
	return out, nil
}

// fields reads a flat list of names and values, as the SENTINEL commands give.
func fields(v any) map[string]string {
	list, _ := v.([]any)
	m := make(map[string]string)
	for i := 0; i+1 < len(list); i += 2 {
		k, _ := list[i].(string)
		m[k], _ = list[i+1].(string)
	}
	return m
}

// infoFields reads the "name:value" lines of INFO.
func infoFields(v any) map[string]string {
	s, _ := v.(string)
	m := make(map[string]string)
	for l := range strings.Lines(s) {
		if k, val, ok := strings.Cut(strings.TrimSpace(l), ":"); ok {
			m[k] = val
		}
	}
	return m
}

package fencedstore

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/lockcheck/lockcheck/clients/wire"
)

func ptr[T any](v T) *T { return &v }

// The rows of the store's fence in the semantics.
func TestPolicies(t *testing.T) {
	type step struct {
		op    string
		token *uint64
		ok    bool
	}
	r, w := wire.Read, wire.Write
	for name, c := range map[string]struct {
		policy Policy
		steps  []step
	}{
		"none refuses nothing":                {None, []step{{w, ptr(uint64(9)), true}, {w, ptr(uint64(1)), true}}},
		"a write raises the fence":            {Monotonic, []step{{w, ptr(uint64(9)), true}, {w, ptr(uint64(8)), false}, {r, ptr(uint64(8)), false}, {w, ptr(uint64(9)), true}}},
		"a read raises the fence":             {Monotonic, []step{{w, ptr(uint64(1)), true}, {r, ptr(uint64(2)), true}, {w, ptr(uint64(1)), false}}},
		"a refused access raises nothing":     {Monotonic, []step{{w, ptr(uint64(5)), true}, {w, ptr(uint64(4)), false}, {w, ptr(uint64(5)), true}}},
		"without a token it passes":           {Monotonic, []step{{w, ptr(uint64(5)), true}, {w, nil, true}, {w, ptr(uint64(4)), false}}},
		"token zero is a token":               {Monotonic, []step{{w, ptr(uint64(0)), true}, {w, ptr(uint64(1)), true}, {w, ptr(uint64(0)), false}}},
		"above 2^53":                          {Monotonic, []step{{w, ptr(uint64(1<<53 + 1)), true}, {w, ptr(uint64(1 << 53)), false}}},
		"strict refuses the second write":     {Strict, []step{{w, ptr(uint64(5)), true}, {w, ptr(uint64(5)), false}, {w, ptr(uint64(6)), true}}},
		"strict lets reads pass":              {Strict, []step{{w, ptr(uint64(5)), true}, {r, ptr(uint64(1)), true}, {w, ptr(uint64(4)), false}}},
		"strict: a read raises no fence":      {Strict, []step{{w, ptr(uint64(5)), true}, {r, ptr(uint64(9)), true}, {w, ptr(uint64(6)), true}}},
		"strict without a token, and token 0": {Strict, []step{{w, nil, true}, {w, ptr(uint64(0)), true}, {w, ptr(uint64(0)), false}}},
	} {
		t.Run(name, func(t *testing.T) {
			s := New(c.policy, func(Entry) {})
			for i, st := range c.steps {
				e := s.Access(st.op, wire.StoreRequest{Key: "k", Token: st.token, Value: ptr(int64(i))})
				if e.Refused == st.ok || e.Seq != uint64(i+1) {
					t.Fatalf("step %d: %+v", i, e)
				}
			}
		})
	}
}

// What workers see over HTTP, and the total order under concurrency.
func TestHTTP(t *testing.T) {
	var order []Entry
	s := New(Monotonic, func(e Entry) { order = append(order, e) })
	srv := httptest.NewServer(s)
	defer srv.Close()
	c := wire.NewStoreClient(srv.URL)
	defer c.Close()
	ctx := context.Background()
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			key := []string{"a", `</script>"` + "\n"}[g%2]
			for i := range 20 {
				m := c.Do(ctx, wire.Command{Op: wire.Write, Key: key, Grant: uint64(g + 1), Value: ptr(int64(i))})
				if m.Type != wire.OK {
					t.Errorf("write: %+v", m)
				}
			}
		})
	}
	wg.Wait()
	for i, e := range order {
		if e.Seq != uint64(i+1) {
			t.Fatalf("entry %d has seq %d", i, e.Seq)
		}
	}
	if m := c.Do(ctx, wire.Command{Op: wire.Read, Key: "a", Token: ptr(uint64(3))}); m.Type != wire.OK || *m.Value != 19 {
		t.Errorf("read: %+v", m)
	}
	if m := c.Do(ctx, wire.Command{Op: wire.Write, Key: "a", Token: ptr(uint64(2)), Value: ptr(int64(1))}); m.Type != wire.Fail || m.Error != "fenced" {
		t.Errorf("stale write: %+v", m)
	}
	if m := c.Do(ctx, wire.Command{Op: wire.Write, Key: "a"}); m.Type != wire.Fail || m.Error != "a write without a value" {
		t.Errorf("write without a value: %+v", m)
	}
	for _, body := range []string{"", "{", "[]", strings.Repeat("x", maxBody+1)} {
		resp, err := http.Post(srv.URL+"/write", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusBadRequest {
			t.Errorf("body %.20q: %s", body, resp.Status)
		}
	}
}

// Only proof makes a failure definite.
func TestStoreGone(t *testing.T) {
	srv := httptest.NewServer(New(None, func(Entry) {}))
	c := wire.NewStoreClient(srv.URL)
	defer c.Close()
	srv.Close()
	m := c.Do(context.Background(), wire.Command{Op: wire.Write, Key: "k", Value: ptr(int64(1))})
	if m.Type != wire.Fail {
		t.Errorf("a write that was never sent: %+v", m)
	}
	hang := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, _, _ := w.(http.Hijacker).Hijack()
		conn.Close()
	}))
	defer hang.Close()
	c2 := wire.NewStoreClient(hang.URL)
	defer c2.Close()
	if m := c2.Do(context.Background(), wire.Command{Op: wire.Write, Key: "k", Value: ptr(int64(1))}); m.Type != wire.Info {
		t.Errorf("a write whose answer was lost: %+v", m)
	}
}

package generator

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockcheck/lockcheck/history"
	"pgregory.net/rapid"
)

func config(t interface{ Fatal(...any) }, keys string) Config {
	k, err := ParseKeys(keys)
	if err != nil {
		t.Fatal(err)
	}
	return Config{Workers: 5, Keys: k, TTL: time.Second, Hold: 2 * time.Millisecond, RetryDelay: 10 * time.Millisecond, Wait: time.Second, Writes: 2, LongHolds: 0.1, Check: true}
}

func script(w *Worker, n int) string {
	var b strings.Builder
	o := Outcome{}
	for i := range n {
		a := w.Next(o)
		fmt.Fprintf(&b, "%v %s %s %d\n", a.After, a.F, a.Key, a.Value)
		o = Outcome{Type: history.OK, Value: int64(i)}
		if i%7 == 3 {
			o = Outcome{Type: history.Fail, Error: history.ErrHeld, Took: time.Millisecond}
		}
	}
	return b.String()
}

// The same seed and the same answers give the same choices; another worker or
// another seed gives others.
func TestPure(t *testing.T) {
	cfg := config(t, "order")
	a := script(New(1, 0, cfg), 200)
	if a != script(New(1, 0, cfg), 200) {
		t.Error("the same seed gave other choices")
	}
	if a == script(New(1, 1, cfg), 200) || a == script(New(2, 0, cfg), 200) {
		t.Error("another worker or seed gave the same choices")
	}
}

// Whatever the answers are, a worker keeps to the protocol: it works only under
// a lock that it was granted, releases what it holds, and counts up from what
// it read.
func TestProtocol(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		cfg := config(rt, rapid.SampledFrom([]string{"coarse", "user", "order", "1", "7"}).Draw(rt, "keys"))
		cfg.Check, cfg.CanWait = rapid.Bool().Draw(rt, "check"), rapid.Bool().Draw(rt, "wait")
		w := New(rapid.Uint64().Draw(rt, "seed"), 3, cfg)
		holds, key, read := false, "", int64(-1)
		o := Outcome{}
		for range 100 {
			a := w.Next(o)
			if a.After < 0 || a.Key == "" {
				rt.Fatalf("action %+v", a)
			}
			switch a.F {
			case history.Acquire:
				key = a.Key
			default:
				if !holds || a.Key != key {
					rt.Fatalf("%s of %s while holding %v of %s", a.F, a.Key, holds, key)
				}
			}
			if a.F == history.Write {
				if a.Value != read+1 {
					rt.Fatalf("writes %d after %d", a.Value, read)
				}
				read = a.Value
			}
			o = Outcome{Type: rapid.SampledFrom([]history.Type{history.OK, history.OK, history.OK, history.Fail, history.Info}).Draw(rt, "type"), Value: 40}
			o.Error = rapid.SampledFrom([]string{history.ErrNotHeld, history.ErrFenced, "x"}).Draw(rt, "error")
			switch {
			case o.Type == history.Info, a.F == history.Release:
				holds = false
			case a.F == history.Acquire:
				holds = o.Type == history.OK
			case o.Type == history.Fail && o.Error == history.ErrNotHeld:
				holds = false
			case a.F == history.Read:
				read = 40
			}
			if holds != w.Holding() && a.F != history.Release && o.Type == history.OK && a.F != history.Acquire {
				rt.Fatalf("after %s: holding %v", a.F, w.Holding())
			}
		}
	})
}

func TestAbort(t *testing.T) {
	w := New(1, 0, config(t, "coarse"))
	w.Next(Outcome{})
	w.Next(Outcome{Type: history.OK})
	if !w.Holding() {
		t.Error("does not hold after a grant")
	}
	w.Abort()
	if a := w.Next(Outcome{Type: history.Fail}); w.Holding() || a.F != history.Acquire {
		t.Errorf("after an abort: %+v", a)
	}
}

func TestParseKeys(t *testing.T) {
	for _, s := range []string{"coarse", "user", "order", "1", "12"} {
		if k, err := ParseKeys(s); err != nil || k.String() != s {
			t.Errorf("%s: %v %v", s, k, err)
		}
	}
	for _, s := range []string{"", "0", "-1", "x"} {
		if _, err := ParseKeys(s); err == nil {
			t.Errorf("%q was taken", s)
		}
	}
}

// The rate is a limit on how often orders are begun.
func TestRate(t *testing.T) {
	cfg := config(t, "order")
	cfg.Rate, cfg.LongHolds, cfg.Hold = 50, 0, 0
	w := New(1, 0, cfg)
	var total time.Duration
	n := 0
	o := Outcome{}
	for n < 200 {
		a := w.Next(o)
		if a.F == history.Acquire {
			n++
		}
		total += a.After + time.Millisecond
		o = Outcome{Type: history.OK, Took: a.After + time.Millisecond}
	}
	if per := total / 200; per < 80*time.Millisecond || per > 130*time.Millisecond {
		t.Errorf("one worker of five took %v an order, want about 100 ms", per)
	}
}

// The orders are the same whatever the locks are and whatever becomes of them.
func TestSameOrders(t *testing.T) {
	fine, coarse := config(t, "order"), config(t, "user")
	taken := func(cfg Config, every int) []string {
		w := New(7, 2, cfg)
		var keys []string
		var o Outcome
		for n := 0; len(keys) < 50; n++ {
			if a := w.Next(o); w.tried == 0 && w.state == trying {
				keys = append(keys, a.Key)
			}
			o = Outcome{Type: history.OK}
			if n%every == 0 {
				o = Outcome{Type: history.Fail, Error: history.ErrHeld, Took: time.Millisecond}
			}
		}
		return keys
	}
	a, b := taken(fine, 3), taken(fine, 7)
	for i := range a {
		if a[i] != b[i] {
			t.Fatalf("order %d is %s and %s", i, a[i], b[i])
		}
	}
	for i, k := range taken(coarse, 5) {
		var order int
		if _, err := fmt.Sscanf(a[i], "orders/%d", &order); err != nil {
			t.Fatal(err)
		}
		if want := coarse.Keys.key(order - 90000); k != want {
			t.Fatalf("order %d is of %s and not of %s", i, k, want)
		}
	}
}

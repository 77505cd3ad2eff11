package hold

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockcheck/lockcheck/clients"
)

// A book is an observer that writes down the order of things.
type book struct {
	marks atomic.Uint64
	mu    sync.Mutex
	told  []clients.Event
}

func (b *book) Mark(ctx context.Context, _ string, _ uint64) (uint64, error) {
	return b.marks.Add(1), ctx.Err()
}

func (b *book) Tell(e clients.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.told = append(b.told, e)
}

func (b *book) read() []clients.Event {
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]clients.Event(nil), b.told...)
}

var grant = clients.Grant{Key: "k", ID: 7, Owner: "me"}

func TestRenewals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b book
		answers := make(chan error, 5)
		for _, err := range []error{nil, nil, errors.New("no answer"), errors.New("no answer"), clients.ErrNotHeld} {
			answers <- err
		}
		asked := uint64(0)
		r := Renew(&b, grant, time.Second, func(context.Context) (clients.Grant, error) {
			if asked++; asked != b.marks.Load() {
				t.Error("a request without a mark before it")
			}
			return clients.Grant{Valid: time.Minute}, <-answers
		})
		time.Sleep(2500 * time.Millisecond)
		if told := b.read(); len(told) != 2 || told[1].F != clients.Renewed || told[1].Mark != 2 || told[1].Valid != time.Minute || told[1].Grant != 7 {
			t.Fatalf("told %+v", told)
		}
		time.Sleep(2 * time.Second)
		if told := b.read(); len(told) != 4 || told[3].F != clients.RenewFailed || told[3].Valid != 0 || told[3].Mark != 0 {
			t.Fatalf("told %+v", told)
		}
		time.Sleep(time.Minute)
		if told := b.read(); len(told) != 5 {
			t.Fatalf("went on after not-held: %+v", told)
		}
		r.Stop()
	})
}

// A renewal that is answered after the release began is not told.
func TestStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b book
		r := Renew(&b, grant, time.Second, func(ctx context.Context) (clients.Grant, error) {
			<-ctx.Done() // no longer than until the next one is due
			time.Sleep(time.Hour)
			return grant, nil
		})
		time.Sleep(1500 * time.Millisecond)
		r.Stop()
		time.Sleep(2 * time.Hour)
		if told := b.read(); len(told) != 0 || b.marks.Load() != 1 {
			t.Fatalf("told %+v after %d marks", told, b.marks.Load())
		}
		(*Renewals)(nil).Stop()
	})
}

func TestTable(t *testing.T) {
	var table Table[int]
	if !table.Put("a", 1) || !table.Put("b", 2) {
		t.Fatal("an open table takes nothing")
	}
	if v, ok := table.Take("a"); v != 1 || !ok {
		t.Fatal("not there")
	}
	if _, ok := table.Get("a"); ok {
		t.Fatal("taken, and still there")
	}
	if left := table.Close(); len(left) != 1 || left[0] != 2 || table.Put("c", 3) {
		t.Fatalf("closed with %v", left)
	}
}

func TestOwnersDiffer(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		if o := NewOwner(); seen[o] || len(o) != 32 {
			t.Fatalf("owner %q", o)
		} else {
			seen[o] = true
		}
	}
}

package scenario

import (
	"fmt"
	"io"
	"math/rand/v2"

	"github.com/lockcheck/lockcheck/history"
)

// A form is how an event of a file is written.
type form func(b []byte, o *history.Op) []byte

func asJSON(b []byte, o *history.Op) []byte { return history.AppendJSON(b, o) }
func asEDN(b []byte, o *history.Op) []byte  { return history.AppendEDN(b, o) }

// asLog is a line of Jepsen's log.
func asLog(b []byte, o *history.Op) []byte {
	return fmt.Appendf(b, "INFO  jepsen.util - %d\t:%v\t:%s\tnil", o.Process, o.Type, o.F)
}

// A book is a history that is being made up.
type book struct {
	own    bool // in our own form: numbered, timed, with grants
	ops    []history.Op
	grants uint64
}

func (k *book) put(p history.Process, t history.Type, f string, grant uint64, errText string) {
	o := history.Op{Process: p, Type: t, F: f, Error: errText}
	if k.own {
		o.Index, o.Time, o.Key = len(k.ops), int64(len(k.ops)+1)*1e6, Key
		if grant > 0 && (f != history.Acquire || t == history.OK) {
			o.Grant = history.Some(grant)
		}
	}
	k.ops = append(k.ops, o)
}

// acquire is one that was granted; it gives the grant's number.
func (k *book) acquire(p history.Process) uint64 {
	k.grants++
	k.put(p, history.Invoke, history.Acquire, 0, "")
	k.put(p, history.OK, history.Acquire, k.grants, "")
	return k.grants
}

func (k *book) release(p history.Process, grant uint64) {
	k.put(p, history.Invoke, history.Release, grant, "")
	k.put(p, history.OK, history.Release, grant, "")
}

// crash is an operation of which nobody knows what became of it.
func (k *book) crash(p history.Process, f string) {
	k.put(p, history.Invoke, f, 0, "")
	k.put(p, history.Info, f, 0, "timeout")
}

// refused is an acquire while another holds, so that a pass has been earned.
func (k *book) refused(p history.Process) {
	k.put(p, history.Invoke, history.Acquire, 0, "")
	k.put(p, history.Fail, history.Acquire, 0, history.ErrHeld)
}

func (k *book) write(w io.Writer, as form) error {
	var b []byte
	if k.own {
		b = append(b, `{"lockcheck":1,"require":["exclusion","lease","release","linearizable"]}`+"\n"...)
	}
	for i := range k.ops {
		b = append(as(b, &k.ops[i]), '\n')
	}
	_, err := w.Write(b)
	return err
}

// crashedAcquires writes a history with eight to twenty acquires whose client
// died, about two hundred clean pairs, and near the end a holder that comes in
// before the one before it has released, which it never does.
func crashedAcquires(second bool, as form) func(io.Writer, *rand.Rand) error {
	return func(w io.Writer, rng *rand.Rand) error {
		k := &book{own: isOwn(as)}
		for p := range 8 + rng.IntN(13) {
			k.crash(history.Process(100+p), history.Acquire)
		}
		pairs := 150 + rng.IntN(100)
		intruded := pairs - 1 - rng.IntN(10)
		for i := range pairs {
			p := history.Process(i % 5)
			g := k.acquire(p)
			if i%20 == 0 {
				k.refused((p + 1) % 5)
			}
			if i != intruded {
				k.release(p, g)
				continue
			}
			const other = 50
			if !second {
				k.release(p, g)
			}
			h := k.acquire(other)
			k.release(other, h)
		}
		return k.write(w, as)
	}
}

// isOwn tells our own form, which has fields that Jepsen's does not.
func isOwn(as form) bool {
	return as(nil, &history.Op{Type: history.Info, F: "x"})[0] == '{' && as(nil, &history.Op{Type: history.Info, F: "x"})[1] == '"'
}

// A slip is a way in which a history can make no sense: what it writes makes
// none, or does under fresh process numbers.
type slip struct {
	about, refused string
	write          func(k *book, fresh bool)
}

var slips = []slip{
	{"a completion without an invocation", "completion without an invocation", func(k *book, fresh bool) {
		if fresh {
			k.put(90, history.Invoke, history.Acquire, 0, "")
		}
		k.put(90, history.Fail, history.Acquire, 0, history.ErrHeld)
	}},
	{"a process used again after info", "a retired process may not be used again", func(k *book, fresh bool) {
		k.crash(91, history.Acquire)
		k.put(again91(fresh), history.Invoke, history.Acquire, 0, "")
		k.put(again91(fresh), history.Fail, history.Acquire, 0, history.ErrHeld)
	}},
	{"two invocations open on one process", "is still open", func(k *book, fresh bool) {
		k.put(91, history.Invoke, history.Acquire, 0, "")
		k.put(again91(fresh), history.Invoke, history.Acquire, 0, "")
		k.put(again91(fresh), history.Fail, history.Acquire, 0, history.ErrHeld)
		if fresh {
			k.put(91, history.Fail, history.Acquire, 0, history.ErrHeld)
		}
	}},
}

func again91(fresh bool) history.Process {
	if fresh {
		return 191
	}
	return 91
}

// malformed are each slip and its twin, in every form that is read.
func malformed() []Row {
	var rows []Row
	for _, s := range slips {
		for _, f := range []struct {
			ext string
			as  form
		}{{".jsonl", asJSON}, {".edn", asEDN}, {".log", asLog}} {
			rows = append(rows,
				Row{Failing: true, About: s.about, Ext: f.ext, File: s.file(false, f.as), Expected: Expected{Refused: s.refused}},
				Row{About: s.about + ": under a number of its own", Ext: f.ext, File: s.file(true, f.as)})
		}
	}
	return rows
}

// file writes clean pairs and the slip somewhere among them, while one holds.
func (s slip) file(fresh bool, as form) func(io.Writer, *rand.Rand) error {
	return func(w io.Writer, rng *rand.Rand) error {
		k := &book{own: isOwn(as)}
		pairs := 3 + rng.IntN(20)
		at := rng.IntN(pairs)
		for i := range pairs {
			p := history.Process(i % 3)
			g := k.acquire(p)
			if i == at {
				s.write(k, fresh)
			}
			k.release(p, g)
		}
		return k.write(w, as)
	}
}

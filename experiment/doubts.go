package experiment

import (
	"slices"
	"sync"
	"time"

	"github.com/lockcheck/lockcheck/history"
)

// doubts follows which locks somebody tries to get and nobody is granted. It is the
// quick look of a run that may have to ask the servers before its sessions end; what
// is stuck is for the checker to say.
type doubts struct {
	mu  sync.Mutex
	all map[string]*doubt
}

// A doubt is about one key.
type doubt struct {
	since int64 // the first acquire that was begun, or the latest that was granted
	last  int64 // that an acquire began or ended
	open  int   // acquires
}

// doubtAfter is the least time in which the checker calls a lock stuck.
const doubtAfter = 2 * time.Second

// maxDoubts bounds how many keys are asked for.
const maxDoubts = 16

// add is a sink of the recorder.
func (d *doubts) add(o *history.Op) {
	if o.F != history.Acquire {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	k := d.all[o.Key]
	if k == nil {
		k = &doubt{since: o.Time}
		if d.all == nil {
			d.all = map[string]*doubt{}
		}
		d.all[o.Key] = k
	}
	k.last = o.Time
	switch o.Type {
	case history.Invoke:
		k.open++
	case history.OK:
		k.open, k.since = k.open-1, o.Time
	default:
		k.open--
	}
}

// keys are those that have been tried for and not granted for long, in order. now
// counts from the beginning of the history, as its stamps do.
func (d *doubts) keys(now int64) []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var keys []string
	for key, k := range d.all {
		last := k.last
		if k.open > 0 {
			last = now
		}
		if last-k.since >= doubtAfter.Nanoseconds() {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys[:min(len(keys), maxDoubts)]
}

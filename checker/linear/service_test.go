package linear

import (
	"container/heap"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/lockcheck/lockcheck/history"
)

// A service simulates a lock server and its clients down to the events that a
// runner would record: messages with delays, losses, leases that run out, crashes,
// kills, sessions that are closed. Unless it has the bug, every history is legal.
type service struct {
	service config
	r       *rand.Rand
	now     int64
	seq     int64
	queue   timers
	emit    func(*history.Op)
	index   int
	last    int64
	ended   bool
	records int

	// the server
	holder   uint64 // request that holds; 0: free
	lease    int64  // counts the leases, so that a timer knows that it is out of date
	token    uint64
	requests uint64
	fault    int
	bugged   bool

	next   history.Process
	active map[uint64]*client // clients that know that they hold, by request
}

type config struct {
	clients int
	n       int     // lock operations
	info    float64 // share of requests that are lost, or their answers
	polling float64 // share of acquires that give up when the lock is held
	chaos   float64 // share of sections that end with a crash, a kill or a close
	tokens  bool
	session bool
	plain   bool
	bug     bool // the server grants a held lock, once, near the end
	quiet   bool // no background renewals, reads or marks: lock operations only
	seed    uint64
}

const (
	ttl     = 30_000_000
	timeout = 10_000_000
)

type timer struct {
	at, seq int64
	do      func()
}

type timers []timer

func (q timers) Len() int { return len(q) }
func (q timers) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].seq < q[j].seq
}
func (q timers) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *timers) Push(x any)   { *q = append(*q, x.(timer)) }
func (q *timers) Pop() any {
	old := *q
	x := old[len(old)-1]
	*q = old[:len(old)-1]
	return x
}

// client is one worker process; a retired one is replaced by a new one.
type client struct {
	s       *service
	id      history.Process
	request uint64
	dead    bool
}

// run simulates until there are enough operations and gives each event to emit.
// It tells whether the bug struck.
func (c config) run(emit func(*history.Op)) (struck bool) {
	s := &service{service: c, r: rand.New(rand.NewPCG(c.seed, 99)), emit: emit, last: -1,
		active: map[uint64]*client{}, bugged: !c.bug}
	for range c.clients {
		s.newClient()
	}
	for len(s.queue) > 0 && !s.ended {
		t := heap.Pop(&s.queue).(timer)
		s.now = t.at
		t.do()
	}
	return c.bug && s.bugged
}

func (c config) history() (ops []history.Op, struck bool) {
	struck = c.run(func(o *history.Op) { ops = append(ops, *o) })
	return ops, struck
}

func (s *service) newClient() {
	c := &client{s: s, id: s.next}
	s.next++
	s.after(s.some(1_000_000), c.acquire)
}

func (s *service) after(d int64, do func()) {
	s.seq++
	heap.Push(&s.queue, timer{s.now + d, s.seq, do})
}

func (s *service) some(mean float64) int64 { return int64(-math.Log(1-s.r.Float64())*mean) + 1 }

func (s *service) network() int64 { return 50_000 + s.some(200_000) }

func (s *service) chance(p float64) bool { return s.r.Float64() < p }

// record stamps an event as the runner does and gives the stamp.
func (s *service) record(o history.Op) int64 {
	if s.ended {
		return s.last
	}
	o.Time = max(s.now, s.last+1)
	s.last, o.Index = o.Time, s.index
	s.index++
	s.emit(&o)
	if o.Type != history.Invoke && lockOp(o.F) {
		s.records++
		s.ended = s.records >= s.service.n
	}
	return o.Time
}

func (c *client) record(typ history.Type, f string, change func(*history.Op)) int64 {
	o := history.Op{Process: c.id, Type: typ, F: f, Key: "k"}
	if change != nil {
		change(&o)
	}
	return c.s.record(o)
}

// call sends a request, which may be lost, as may its answer.
func (c *client) call(server func() bool, answer func(lost, ok bool)) {
	s := c.s
	reply := func(lost, ok bool) {
		if !c.dead {
			answer(lost, ok)
		}
	}
	if s.chance(s.service.info / 2) {
		s.after(timeout, func() { reply(true, false) })
		if s.chance(0.5) { // it only takes very long
			s.after(timeout*3/2, func() { server() })
		}
		return
	}
	lost := s.chance(s.service.info / 2)
	s.after(s.network(), func() {
		ok := server()
		if lost {
			s.after(timeout, func() { reply(true, false) })
			return
		}
		s.after(s.network(), func() { reply(false, ok) })
	})
}

// serveAcquire is the server's side of an acquire.
func (s *service) serveAcquire(req uint64) bool {
	if s.holder != 0 {
		_, knows := s.active[s.holder]
		if s.bugged || s.records < s.service.n*9/10 || !knows {
			return false
		}
		s.bugged = true
	}
	s.holder = req
	s.token += 1 + uint64(s.r.IntN(2))
	s.arm()
	return true
}

// arm starts the lease of the holder anew.
func (s *service) arm() {
	s.lease++
	if s.service.plain || s.service.session {
		return
	}
	now := s.lease
	s.after(ttl, func() {
		if s.lease == now {
			s.holder = 0
		}
	})
}

func (s *service) serveRelease(req uint64) bool {
	if s.holder != req {
		return false
	}
	s.holder = 0
	s.lease++
	return true
}

func (s *service) serveRenew(req uint64) bool {
	if s.holder == req {
		s.arm()
		return true
	}
	return false
}

func (c *client) acquire() {
	s := c.s
	if s.ended || c.dead {
		return
	}
	s.requests++
	c.request = s.requests
	req := c.request
	c.record(history.Invoke, history.Acquire, nil)
	polls := s.chance(s.service.polling)
	var try func()
	try = func() {
		from := s.last
		if !s.service.quiet {
			from = c.record(history.Info, history.Mark, nil)
		}
		var token uint64
		c.call(func() bool {
			ok := s.serveAcquire(req)
			token = s.token
			return ok
		}, func(lost, ok bool) {
			switch {
			case lost:
				c.retire(history.Acquire)
			case !ok && polls:
				c.record(history.Fail, history.Acquire, func(o *history.Op) { o.Error = history.ErrHeld })
				s.after(s.some(600_000*float64(s.service.clients)/5), c.acquire)
			case !ok:
				s.after(s.some(400_000*float64(s.service.clients)/5), try)
			default:
				c.granted(from, token)
			}
		})
	}
	try()
}

func (c *client) granted(from int64, token uint64) {
	s := c.s
	c.record(history.OK, history.Acquire, func(o *history.Op) {
		o.Grant = history.Some(c.request)
		if s.service.tokens {
			o.Token = history.Some(token)
		}
		if s.service.session {
			o.Session = true
		} else if !s.service.plain {
			o.Valid, o.From = history.Some(int64(ttl)), history.Some(from)
		}
	})
	s.active[c.request] = c
	if !s.service.quiet && s.chance(0.3) {
		c.renewInBackground(c.request)
	}
	s.after(s.some(400_000), c.section)
}

func (c *client) renewInBackground(req uint64) {
	s := c.s
	from := c.record(history.Info, history.Mark, nil)
	s.after(s.network(), func() {
		ok := s.serveRenew(req)
		s.after(s.network(), func() {
			if ok && !c.dead && c.request == req {
				c.record(history.Info, history.Renewed, func(o *history.Op) {
					o.Grant, o.From, o.Valid = history.Some(req), history.Some(from), history.Some(int64(ttl))
				})
			}
		})
	})
}

// section goes on from an ok acquire: a renewal, an accident, or the release.
func (c *client) section() {
	s := c.s
	if c.dead {
		return
	}
	switch {
	case s.chance(s.service.chaos):
		c.accident()
	case s.chance(0.2):
		c.ask(history.Renew, s.serveRenew, func() { s.after(s.some(300_000), c.release) })
	default:
		c.release()
	}
}

func (c *client) release() {
	if c.dead {
		return
	}
	delete(c.s.active, c.request)
	c.ask(history.Release, c.s.serveRelease, func() { c.s.after(c.s.some(500_000), c.acquire) })
}

// ask is an operation on the grant that is held.
func (c *client) ask(f string, server func(uint64) bool, then func()) {
	req := c.request
	grant := func(o *history.Op) { o.Grant = history.Some(req) }
	invoke := c.record(history.Invoke, f, grant)
	c.call(func() bool { return server(req) }, func(lost, ok bool) {
		switch {
		case lost:
			c.retire(f)
			return
		case ok:
			c.record(history.OK, f, func(o *history.Op) {
				grant(o)
				if f == history.Renew {
					o.Valid, o.From = history.Some(int64(ttl)), history.Some(invoke)
				}
			})
		default:
			delete(c.s.active, req)
			c.record(history.Fail, f, func(o *history.Op) {
				grant(o)
				o.Error = history.ErrNotHeld
			})
		}
		then()
	})
}

// retire ends a process whose operation has an unknown outcome.
func (c *client) retire(f string) {
	c.record(history.Info, f, func(o *history.Op) { o.Error = "timeout" })
	c.replace()
}

// replace ends the session of the process, some time after now, and puts a new
// process in its place.
func (c *client) replace() {
	s := c.s
	c.dead = true
	delete(s.active, c.request)
	req := c.request
	if s.service.plain || s.service.session || s.chance(0.3) {
		s.after(s.network()*2, func() { s.serveRelease(req) })
		s.after(timeout*2, func() { s.serveRelease(req) }) // what was still on its way
	}
	s.newClient()
}

func (c *client) accident() {
	s := c.s
	switch s.r.IntN(3) {
	case 0: // its worker dies, and the next write shows it
		s.after(s.some(300_000), func() {
			c.record(history.Invoke, history.Write, nil)
			c.record(history.Info, history.Write, func(o *history.Op) { o.Error = history.ErrCrashed + ": signal 9" })
		})
		c.replace()
	case 1:
		c.killed()
	default: // it closes its session instead of releasing
		c.record(history.Invoke, history.Close, nil)
		c.replace()
		s.after(s.network()*2, func() { c.record(history.OK, history.Close, nil) })
	}
}

func (c *client) killed() {
	s := c.s
	s.fault++
	number := s.fault
	kill := func(phase string) {
		s.record(history.Op{Process: history.Nemesis, Type: history.Info, F: faultKill,
			Value: json.RawMessage(fmt.Sprintf(`{"fault":%d,"phase":%q,"targets":[%d]}`, number, phase, c.id))})
	}
	kill(history.Asked)
	if s.chance(0.2) {
		s.after(s.some(100_000), func() { kill(history.Skipped) })
		s.after(s.some(200_000), c.release)
		return
	}
	c.replace()
	s.after(s.some(300_000), func() { kill(history.Done) })
}

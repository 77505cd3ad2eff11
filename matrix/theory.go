package matrix

import (
	"slices"
	"strings"

	"github.com/lockcheck/lockcheck/checker"
	"github.com/lockcheck/lockcheck/clients/catalog"
	"github.com/lockcheck/lockcheck/cluster"
	"github.com/lockcheck/lockcheck/cluster/local"
	"github.com/lockcheck/lockcheck/fencedstore"
	"github.com/lockcheck/lockcheck/nemesis"
	"github.com/lockcheck/lockcheck/scenario"
)

// A Theory is what may be found in a cell. Whatever is found beside it is a
// surprise. That something may happen does not mean that it must: faults drawn
// at random do not always hit.
type Theory struct {
	May   []May    `json:"may,omitempty"`
	Holds string   `json:"holds,omitempty"` // why the required properties stand, where they must
	Notes []string `json:"notes,omitempty"` // of what may be found and is no fault of the lock
}

// May is one kind of anomaly that a cell may show.
type May struct {
	Property string `json:"property"`
	Kind     string `json:"kind"` // with the class, as in overlap/overrun; "*" for every kind
	Why      string `json:"why"`
}

// Allows reports whether an anomaly is one that may be found.
func (t *Theory) Allows(property, kind string) bool {
	return slices.ContainsFunc(t.May, func(m May) bool {
		return m.Property == property && (m.Kind == "*" || m.Kind == kind)
	})
}

// Breaks lists the required properties that may be found violated, in their usual
// order.
func (t *Theory) Breaks(required []string) []string {
	var out []string
	for _, p := range checker.Properties {
		if slices.Contains(required, p) && slices.ContainsFunc(t.May, func(m May) bool { return m.Property == p }) {
			out = append(out, p)
		}
	}
	return out
}

// Why gives the sentences behind the properties, each once.
func (t *Theory) Why(properties []string) []string {
	var out []string
	for _, m := range t.May {
		if slices.Contains(properties, m.Property) && !slices.Contains(out, m.Why) {
			out = append(out, m.Why)
		}
	}
	return out
}

// The sentences of theory.
const (
	whyForgets   = "Redis forgets every lock when it is restarted without its data, and gives it out again within the lease."
	whyCounter   = "The counter behind the token is forgotten with the data, so tokens go backwards and no fence can tell the holders apart."
	whyAsync     = "Replication is asynchronous: the replica that is promoted may not have heard of the lock, while the old master may still serve its own clients."
	whyWallClock = "Redis ends a key by the wall clock: a jump forward ends the lease early, and a jump backward keeps a key for longer than anybody holds it."
	whyMonotonic = "etcd ends a lease by its leader's monotonic clock, which was made to jump; a real one does not."
	whyBare      = "A lock that only a bare quorum of the Redlock servers knows is lost with one of them."
	whyMajority  = "A majority of the servers is restarted without data, which no quorum system promises to survive: locks, sessions and revisions are gone."
	whyOverrun   = "A holder that is stopped, cut off or not answered goes on past the end of its lease; no lease lock can keep it from doing so."
	whyNoFence   = "Nothing fences a write that comes after the next holder's"
	whyLateWrite = "A write that was under way when its holder gave the lock up reaches the store after that; a fence refuses only what has been overtaken."
	whyBroken    = "It follows from the broken lease: two hold the lock, and either may give it back."

	holdsQuorum  = "A majority of the servers agrees on every grant and counts time by a monotonic clock."
	holdsExpiry  = "The server keeps its data, and ends the lease by a clock that nobody moves."
	holdsRedlock = "A majority of the servers keeps its data, and their clocks are not moved."
	holdsNothing = "Nothing is broken."
)

// broken is what a cell's faults can do.
type broken struct {
	overrun string // a holder may go on past its lease
	lease   string // the lock may be given out twice within a lease
	stuck   string // the lock may stay taken although nobody holds it
	tokens  string // tokens may go backwards
	late    string // writes may arrive after their holder gave up
}

// TheoryOf says what may be found in a cell.
func (s *Spec) TheoryOf(c Cell) Theory {
	f, err := ParseFault(c.Fault)
	if err != nil || f.Scenario != "" {
		return Theory{} // a story has a theory of its own
	}
	e, err := catalog.Find(c.Client)
	if err != nil {
		return Theory{}
	}
	b := s.breaks(c, f)
	if b.tokens != "" && !e.Tokens {
		b.tokens = ""
	}
	return b.theory(c, e)
}

// breaks puts the faults of a cell together.
func (s *Spec) breaks(c Cell, f Fault) broken {
	var b broken
	durable := local.Durable(cluster.Spec{Backend: c.Backend, Persistence: s.Options.Persistence})
	for _, n := range f.Nemesis {
		entry, form, err := nemesis.Parse(n)
		if err != nil {
			continue
		}
		b.add(c, fault{entry.Name, form, s.target(f), !durable, entry.Acts})
	}
	return b
}

func (s *Spec) target(f Fault) string {
	if f.Target != "" {
		return f.Target
	}
	return s.Options.Target
}

// fault is one fault as theory sees it.
type fault struct {
	name, form, target string
	volatile           bool // a server that is restarted has lost its data
	acts               nemesis.Acts
}

// loses reports whether servers may be restarted without their data.
func (f fault) loses() bool {
	return f.name == "server-kill" && (f.form != nemesis.Keep || f.volatile)
}

// moves reports whether the lead may go to another server.
func (f fault) moves() bool {
	return slices.Contains([]string{"failover", "server-kill", "server-pause", "partition"}, f.name)
}

// wallClock reports whether the servers' time of day is moved.
func (f fault) wallClock() bool {
	return isClock(f.name) && (f.form == "" || f.form == "server")
}

// majority reports whether more than a minority of the servers is hit at once.
func (f fault) majority() bool { return f.target == nemesis.Majority || f.target == nemesis.All }

func (b *broken) add(c Cell, f fault) {
	if f.name != "kill" && (!isClock(f.name) || f.form == "worker-monotonic") {
		b.overrun = whyOverrun
	}
	if f.acts == nemesis.OnLinks {
		b.late = whyLateWrite
	}
	switch c.Backend {
	case cluster.Redis, cluster.Sentinel:
		b.addRedis(c, f)
	case cluster.Redlock:
		if f.loses() {
			b.lease = whyBare
		}
		if f.wallClock() {
			b.lease, b.stuck = whyWallClock, whyWallClock
		}
	default:
		if c.Backend == cluster.Etcd && isClock(f.name) && f.form == "monotonic" {
			b.lease, b.stuck = whyMonotonic, whyMonotonic
		}
		if f.loses() && f.majority() {
			b.lease, b.tokens, b.stuck = whyMajority, whyMajority, whyMajority
		}
	}
}

func (b *broken) addRedis(c Cell, f fault) {
	if f.wallClock() {
		b.lease, b.stuck = whyWallClock, whyWallClock
	}
	switch {
	case c.Backend == cluster.Sentinel && f.moves():
		b.lease, b.tokens = whyAsync, whyAsync
	case f.loses():
		b.lease, b.tokens = whyForgets, whyCounter
	}
}

// theory turns what the faults can do into what may be found.
func (b *broken) theory(c Cell, e catalog.Entry) Theory {
	var t Theory
	may := func(property, why string, kinds ...string) {
		if why == "" {
			return
		}
		for _, k := range kinds {
			t.May = append(t.May, May{property, k, why})
		}
	}
	fenced := e.Tokens && c.Store != string(fencedstore.None)
	may(checker.Exclusion, b.overrun, "overlap/overrun", "overlap/ambiguous")
	may(checker.Exclusion, b.lease, "*")
	may(checker.Lease, b.lease, "*")
	may(checker.Fencing, b.tokens, "*")
	may(checker.Release, b.broken(b.lease), "*")
	if !fenced {
		why := first(b.lease, b.overrun)
		if why != "" {
			why = whyNoFence + map[bool]string{true: ": the store does not look at tokens.", false: ": this lock has no tokens."}[e.Tokens]
		}
		may(checker.Data, why, "stale-write", "lost-update")
		if e.Tokens {
			may(checker.Fencing, why, "stale-token-applied")
		}
	}
	may(checker.Data, b.tokens, "*")
	may(checker.Data, b.late, "write-outside-hold")
	may(checker.Progress, b.stuck, "*")
	may(checker.Linearizable, first(b.lease, b.stuck), "*")
	if c.Store == string(fencedstore.Strict) && e.Tokens {
		may(checker.Fencing, "A strict store looks at writes only: a read does not raise its fence.", "stale-token-applied")
		may(checker.Data, "A strict store looks at writes only: a read does not raise its fence.", "stale-write", "lost-update")
	}
	if b.lease == "" {
		t.Holds = holds(c, b)
	}
	if b.overrun != "" {
		t.Notes = append(t.Notes, whyOverrun)
	}
	return t
}

func (b *broken) broken(why string) string {
	if why == "" {
		return ""
	}
	return whyBroken
}

func first(whys ...string) string {
	for _, w := range whys {
		if w != "" {
			return w
		}
	}
	return ""
}

// holds says why a lock keeps its promise in a cell.
func holds(c Cell, b *broken) string {
	switch {
	case c.Fault == NoFault:
		return holdsNothing
	case c.Backend == cluster.ZooKeeper || c.Backend == cluster.Etcd:
		return holdsQuorum
	case c.Backend == cluster.Redlock:
		return holdsRedlock
	}
	return holdsExpiry
}

// Says is theory in one sentence, for the table: what may break and why, or why
// nothing does.
func (t *Theory) Says(required []string) string {
	breaks := t.Breaks(required)
	if len(breaks) == 0 {
		return strings.TrimSpace("holds. " + t.Holds)
	}
	why := t.Why(breaks)
	why = slices.DeleteFunc(why, func(w string) bool { return w == whyBroken && len(why) > 1 })
	return "may break " + strings.Join(breaks, ", ") + ". " + strings.Join(why, " ")
}

// saysStory is the same of a scenario.
func saysStory(f Fault) string {
	s, err := scenario.Find(f.Scenario)
	if err != nil {
		return ""
	}
	return s.About
}

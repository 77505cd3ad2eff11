package linear

import "github.com/lockcheck/lockcheck/history"

// faultKill is the nemesis's fault that ends a worker.
const faultKill = "kill"

// A kill is a fault that ends processes. It is remembered until the end of the
// history because it may still turn out to have been skipped.
type kill struct {
	fault   int
	at      int64 // when it was asked for
	until   int64 // when it was done: later grants belong to a process that lives
	index   int
	skipped bool
	hits    []hit
}

// A hit is a grant that may have ended with its process.
type hit struct {
	key     *keyOps
	grant   int32
	process history.Process
}

func (b *Builder) kill(o *history.Op) {
	f, ok := history.FaultOf(o)
	if !ok {
		return
	}
	switch f.Phase {
	case "", history.Asked:
		kl := &kill{fault: f.Fault, at: b.now, until: Forever, index: o.Index}
		if f.Phase == "" {
			kl.until = b.now
		} else {
			b.unsettled++
		}
		b.kills = append(b.kills, kl)
		b.strike(kl, &f)
	case history.Done:
		if kl := b.asked(f.Fault); kl != nil {
			b.strike(kl, &f)
			b.settle(kl)
		}
	case history.Skipped:
		if kl := b.asked(f.Fault); kl != nil {
			kl.skipped = true
			b.settle(kl)
		}
	}
}

// asked finds the kill with that number that was asked for last.
func (b *Builder) asked(fault int) *kill {
	for i := len(b.kills) - 1; i >= 0; i-- {
		if b.kills[i].fault == fault {
			return b.kills[i]
		}
	}
	return nil
}

func (b *Builder) settle(kl *kill) {
	if kl.until != Forever {
		return
	}
	kl.until = b.now
	b.unsettled--
}

// strike marks what the targets hold. They may be named only when the kill is
// done, and by the grants that they held.
func (b *Builder) strike(kl *kill, f *history.Fault) {
	for _, id := range f.Processes() {
		p := b.process(id)
		for k, h := range p.holds {
			if h.depth > 0 {
				kl.hits = append(kl.hits, hit{k, h.grant, id})
			}
		}
		p.kills = append(p.kills, kl)
	}
	for _, number := range f.Grants {
		for _, k := range b.keys {
			if g, ok := k.numbers[number]; ok {
				kl.hits = append(kl.hits, hit{k, g, history.Nemesis})
			}
		}
	}
}

// dieWith lets the kills of p reach a grant that was on its way when they struck.
func (p *process) dieWith(k *keyOps, g int32, call int64) {
	for _, kl := range p.kills {
		if call <= kl.until {
			kl.hits = append(kl.hits, hit{k, g, p.id})
		}
	}
}

// apply adds the indeterminate releases of a kill that happened.
func (kl *kill) apply() {
	if kl.skipped {
		return
	}
	for _, h := range kl.hits {
		h.key.ops.add(Op{Kind: Release, Outcome: Info, Cause: Killed, Grant: h.grant, Process: int64(h.process),
			Call: kl.at, Return: Forever, Completed: place(kl.index), Invoked: -1})
	}
}

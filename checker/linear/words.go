package linear

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// wordyGaps is how many grants or tries a sentence names.
const wordyGaps = 4

// ms writes a stamp in milliseconds.
func ms(t int64) string {
	switch t {
	case Dawn:
		return "the beginning"
	case Forever:
		return "the end of time"
	}
	return strconv.FormatFloat(float64(t)/1e6, 'f', -1, 64) + " ms"
}

// nameGrants names the grants of a part by their renumbered place: with their
// number in the history where they have one.
func (k *keyOps) nameGrants(part []Op) []string {
	grants := grantsOf(part)
	names := make([]string, len(grants))
	numbers := map[int32]uint64{}
	for number, g := range k.numbers {
		if old, ok := numbers[g]; slices.Contains(grants, g) && (!ok || number < old) {
			numbers[g] = number
		}
	}
	for i, g := range grants {
		if number, ok := numbers[g]; ok {
			names[i] = fmt.Sprintf("grant %d", number)
			continue
		}
		a := slices.IndexFunc(part, func(o Op) bool { return o.Grant == g })
		names[i] = fmt.Sprintf("the grant of process %d", part[a].Process)
	}
	return names
}

// describe writes an operation in the words of the history.
func (o *Op) describe(name string) string {
	text := o.Kind.String()
	switch o.Cause {
	case Background:
		text = "background renewal"
	case Closed:
		text = "close, may release"
	case Retired:
		text = "retired, may release"
	case Killed:
		text = "killed, may release"
	case Crashed:
		text = "crashed, may release"
	case Reentry:
		text = "re-entry"
	}
	switch {
	case o.Outcome == Denied:
		return fmt.Sprintf("%s of %s: not-held", text, name)
	case o.Outcome == Info && o.Cause == Asked:
		text += " (unknown)"
	}
	if o.Kind == Acquire {
		text += ":"
	}
	text += " " + name
	if o.HasToken {
		text += fmt.Sprintf(", token %d", o.Token)
	}
	if o.Kind != Release && o.Deadline != Forever && o.Deadline != Dawn {
		text += ", lease until " + ms(o.Deadline)
	}
	return text
}

// teller writes the sentence about a violation.
type teller struct {
	p     *problem
	names map[int32]string
}

func (p *problem) sentence(v *violation, k *keyOps, part []Op) string {
	t := teller{p: p, names: map[int32]string{}}
	tell := part
	switch {
	case v.rule == noHolder:
		tell = p.witness(v)
	case v.rule != noOrder:
		tell = p.project([]int32{v.first, v.second}, nil)
	}
	names := k.nameGrants(tell)
	for i, g := range grantsOf(tell) {
		t.names[g] = names[i]
	}
	switch v.rule {
	case releasedTwice:
		return t.releasedTwice(v)
	case sameToken:
		return fmt.Sprintf("token %d was given twice: to %s and to %s",
			p.grants[v.first].token(&p.ops), t.who(v.first), t.who(v.second))
	case lateStart:
		return t.lateStart(v)
	case lateEnd:
		return t.lateEnd(v)
	case noHolder:
		return t.noHolder(v)
	}
	return fmt.Sprintf("no order of these %d operations explains them%s", len(part), t.list(grantsOf(part)))
}

// who names a grant with its process and token.
func (t *teller) who(i int32) string {
	g := &t.p.grants[i]
	text := t.names[i]
	if number, ok := strings.CutPrefix(text, "grant "); ok {
		text = fmt.Sprintf("process %d (grant %s", t.p.ops.at(g.acquire).Process, number)
	} else {
		text = fmt.Sprintf("process %d (a grant asked for at %s", t.p.ops.at(g.acquire).Process, ms(g.la))
	}
	if g.hasToken {
		text += fmt.Sprintf(", token %d", g.token(&t.p.ops))
	}
	return text + ")"
}

func (t *teller) list(grants []int32) string {
	if len(grants) == 0 {
		return ""
	}
	text := ": "
	for i, g := range grants {
		switch {
		case i == wordyGaps:
			return text + ", and others"
		case i > 0:
			text += ", "
		}
		text += t.who(g)
	}
	return text
}

func (t *teller) releasedTwice(v *violation) string {
	var at []string
	for _, o := range t.releases(v.first)[:2] {
		at = append(at, fmt.Sprintf("between %s and %s", ms(o.Call), ms(o.Return)))
	}
	return fmt.Sprintf("%s released its grant twice with success, %s", t.who(v.first), strings.Join(at, " and "))
}

// releases are those of a grant that succeeded; a legal history has one at most.
func (t *teller) releases(i int32) []*Op {
	var of []*Op
	for _, o := range t.p.ops.all() {
		if o.Grant == i && o.Kind == Release && o.Outcome == OK {
			of = append(of, o)
		}
	}
	return of
}

// freedAt tells whether an indeterminate release of a grant was invoked then.
func (t *teller) freedAt(i int32, at int64) bool {
	return slices.ContainsFunc(t.p.frees, func(k int32) bool {
		o := t.p.ops.at(k)
		return o.Grant == i && o.Call == at
	})
}

// untilWhen says what keeps a grant held until its least end.
func (t *teller) untilWhen(i int32) string {
	g := &t.p.grants[i]
	switch {
	case g.released && t.releases(i)[0].Call == g.le:
		return fmt.Sprintf("its release, which succeeded, was invoked only at %s", ms(g.le))
	case g.renewCall == g.le:
		return fmt.Sprintf("its renewal, which succeeded, was invoked only at %s", ms(g.le))
	case g.le == Forever:
		return "it was never released and has no lease that could end"
	case t.freedAt(i, g.le):
		return fmt.Sprintf("nothing can have released it before %s", ms(g.le))
	}
	return fmt.Sprintf("its lease ran until %s", ms(g.le))
}

func (t *teller) lateStart(v *violation) string {
	first, second := &t.p.grants[v.first], &t.p.grants[v.second]
	if v.first == v.second {
		return fmt.Sprintf("%s held the lock by %s, before its acquire was invoked at %s", t.who(v.second), ms(second.ua), ms(second.la))
	}
	if second.hasToken && first.hasToken && first.la > second.ua {
		return fmt.Sprintf("%s asked for the lock at %s, after %s had been granted it by %s, and got the lower token",
			t.who(v.first), ms(first.la), t.who(v.second), ms(second.ua))
	}
	if v.at == first.le {
		return fmt.Sprintf("%s was granted the lock by %s although %s still held it: %s",
			t.who(v.second), ms(min(second.ua, second.ue)), t.who(v.first), t.untilWhen(v.first))
	}
	return fmt.Sprintf("%s was granted the lock by %s, but the grant before it, of %s, was asked for only at %s",
		t.who(v.second), ms(second.ua), t.who(v.first), ms(first.la))
}

func (t *teller) lateEnd(v *violation) string {
	first, second := &t.p.grants[v.first], &t.p.grants[v.second]
	gone := fmt.Sprintf("was gone by %s", ms(second.ue))
	switch {
	case second.released && second.ue == t.releases(v.second)[0].Return:
		gone = fmt.Sprintf("had been released by %s", ms(second.ue))
	case second.ue < Forever:
		gone = fmt.Sprintf(`was told "not-held" by %s`, ms(second.ue))
	}
	if v.first == v.second {
		why := t.untilWhen(v.second)
		if second.ua < second.la {
			return fmt.Sprintf("%s held the lock by %s, before its acquire was invoked at %s", t.who(v.second), ms(second.ua), ms(second.la))
		}
		if second.le < v.at {
			why = fmt.Sprintf("it was asked for only at %s", ms(second.la))
		}
		return fmt.Sprintf("%s %s, but must have held the lock after that: %s", t.who(v.second), gone, why)
	}
	why := fmt.Sprintf("the grant before it, of %s, was asked for only at %s", t.who(v.first), ms(first.la))
	if v.at == first.le {
		why = fmt.Sprintf("%s held the lock: %s", t.who(v.first), t.untilWhen(v.first))
	}
	return fmt.Sprintf("%s %s, and cannot have held the lock before that: %s", t.who(v.second), gone, why)
}

func (t *teller) noHolder(v *violation) string {
	g := &v.gaps[len(v.gaps)-1]
	o := t.p.ops.at(g.try)
	text := fmt.Sprintf(`process %d was told "held" between %s and %s, when nobody can have held the lock`, o.Process, ms(o.Call), ms(o.Return))
	pl, slot := v.plan, int(g.slot)
	var sides []string
	if slot > 0 {
		sides = append(sides, fmt.Sprintf("%s had ended by %s", t.who(pl.order[slot-1]), ms(pl.hiEnd[slot-1])))
	}
	if slot < len(pl.order) {
		sides = append(sides, fmt.Sprintf("%s did not begin before %s", t.who(pl.order[slot]), ms(pl.loStart[slot])))
	}
	if len(sides) == 0 {
		sides = append(sides, "it was never granted")
	}
	text += ": " + strings.Join(sides, ", ")
	switch n := len(v.phantoms); {
	case n == 0:
		text += ", and no acquire of unknown outcome explains it"
	case slices.ContainsFunc(v.phantoms, func(i int32) bool { return t.p.grants[i].exists == definite }):
		text += fmt.Sprintf(", and the others that may have held it (%d) are needed for earlier refusals", n)
	default:
		text += fmt.Sprintf(", and each acquire of unknown outcome that could explain it (%d) is needed for an earlier refusal", n)
	}
	return text
}

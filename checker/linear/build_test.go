package linear

import (
	"context"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/anishathalye/porcupine"
	"github.com/lockcheck/lockcheck/history"
)

// TestBuilderMapsEvents holds each rule by which events become operations of the
// model.
func TestBuilderMapsEvents(t *testing.T) {
	for _, c := range []struct {
		name   string
		events string
		want   []string
	}{
		{"a lease counts from the mark", `
			0 1 invoke acquire
			3 1 info mark
			9 1 ok acquire grant=1 token=18446744073709551615 valid=100 from=3
			20 1 invoke release grant=1
			21 1 ok release grant=1`,
			[]string{"acquire ok g0 0-9 until 103 token 18446744073709551615", "release ok g0 20-21"}},
		{"without a mark it counts from the invoke", `
			5 1 invoke acquire
			9 1 ok acquire grant=1 token=0 valid=100`,
			[]string{"acquire ok g0 5-9 until 105 token 0"}},
		{"a mark after its completion counts as the completion", `
			5 1 invoke acquire
			9 1 ok acquire grant=1 valid=100 from=50`,
			[]string{"acquire ok g0 5-9 until 109"}},
		{"a session has no deadline, not even after a renewal", `
			0 1 invoke acquire
			1 1 ok acquire grant=1 session
			2 1 invoke renew grant=1
			3 1 ok renew grant=1 valid=100`,
			[]string{"acquire ok g0 0-1 until dawn", "renew ok g0 2-3 until dawn"}},
		{"a plain mutex never ends", `
			0 1 invoke acquire
			1 1 ok acquire grant=1`,
			[]string{"acquire ok g0 0-1 until forever"}},
		{"held counts, other failures of an acquire do not", `
			0 1 invoke acquire
			1 1 fail acquire error=held
			2 1 invoke acquire
			3 1 fail acquire error=no-quorum
			4 1 invoke acquire
			5 1 fail acquire`,
			[]string{"acquire denied 0-1"}},
		{"not-held counts, other failures do not; check is left out", `
			0 1 invoke acquire
			1 1 ok acquire grant=1 valid=10
			2 1 invoke renew grant=1
			3 1 fail renew grant=1 error=not-held
			4 1 invoke release grant=1
			5 1 fail release grant=1 error=refused
			6 1 invoke check grant=1
			7 1 fail check grant=1 error=not-held
			8 1 invoke release grant=1
			9 1 fail release grant=1 error=not-held`,
			[]string{"acquire ok g0 0-1 until 10", "renew denied g0 2-3", "release denied g0 8-9"}},
		{"an acquire of unknown outcome ends its process and what it holds", `
			0 1 invoke acquire key=a
			1 1 ok acquire grant=1 valid=10 key=a
			2 1 invoke acquire key=a
			7 1 info acquire key=a`,
			[]string{"acquire ok g0 0-1 until 10", "acquire info g1 2-forever until 2", "release info g0 7-forever"}},
		{"so does a write of unknown outcome", `
			0 1 invoke acquire
			1 1 ok acquire grant=1 valid=10
			2 1 invoke write value=3
			7 1 info write`,
			[]string{"acquire ok g0 0-1 until 10", "release info g0 7-forever"}},
		{"a release of unknown outcome counts from its invoke", `
			0 1 invoke acquire
			1 1 ok acquire grant=1 valid=10
			2 1 invoke release grant=1
			7 1 info release grant=1`,
			[]string{"acquire ok g0 0-1 until 10", "release info g0 2-forever", "release info g0 7-forever"}},
		{"a close releases from its invoke", `
			0 1 invoke acquire
			1 1 ok acquire grant=1 valid=10
			4 1 invoke close
			7 1 ok close`,
			[]string{"acquire ok g0 0-1 until 10", "release info g0 4-forever"}},
		{"what was released is not released again by the end of the process", `
			0 1 invoke acquire
			1 1 ok acquire grant=1 valid=10
			2 1 invoke release grant=1
			3 1 ok release grant=1
			4 1 invoke close
			7 1 info close`,
			[]string{"acquire ok g0 0-1 until 10", "release ok g0 2-3"}},
		{"a crash counts from the last thing heard, not from an invoke", `
			0 1 invoke acquire
			1 1 ok acquire grant=1 valid=10
			2 1 info suspended
			5 1 invoke read
			9 1 info read error=worker_crashed:_signal_9`,
			[]string{"acquire ok g0 0-1 until 10", "release info g0 2-forever", "release info g0 9-forever"}},
		{"a kill counts from the moment it was asked for", `
			0 1 invoke acquire
			1 1 ok acquire grant=1 valid=10
			2 nemesis info kill value={"fault":4,"phase":"asked","targets":[1]}
			3 nemesis info kill value={"fault":4,"phase":"done","targets":[1]}`,
			[]string{"acquire ok g0 0-1 until 10", "release info g0 2-forever", "release info g0 2-forever"}},
		{"a skipped kill counts for nothing", `
			0 1 invoke acquire
			1 1 ok acquire grant=1 valid=10
			2 nemesis info kill value={"fault":4,"phase":"asked","targets":[1]}
			3 nemesis info kill value={"fault":4,"phase":"skipped"}`,
			[]string{"acquire ok g0 0-1 until 10"}},
		{"a kill reaches what is acquired before it is done, not after", `
			0 1 invoke acquire key=a
			2 nemesis info kill value={"fault":4,"phase":"asked","targets":[1]}
			3 1 ok acquire grant=1 valid=10 key=a
			4 nemesis info kill value={"fault":4,"phase":"done","targets":[1]}
			5 1 invoke acquire key=a
			6 1 ok acquire grant=2 valid=10 key=a`,
			[]string{"acquire ok g0 0-3 until 10", "acquire ok g1 5-6 until 15",
				"release info g0 2-forever", "release info g0 2-forever"}},
		{"a kill may name its targets only when it is done, and the grants they held", `
			0 1 invoke acquire
			1 1 ok acquire grant=1 valid=10
			2 nemesis info kill value={"fault":4,"phase":"asked","targets":["holder"]}
			3 1 invoke read
			4 1 info read
			5 nemesis info kill value={"fault":4,"phase":"done","grants":[1],"targets":[1]}`,
			[]string{"acquire ok g0 0-1 until 10", "release info g0 4-forever",
				"release info g0 2-forever", "release info g0 2-forever"}},
		{"a kill without phases counts at once", `
			0 1 invoke acquire
			1 1 ok acquire grant=1 valid=10
			2 nemesis info kill value=[1]`,
			[]string{"acquire ok g0 0-1 until 10", "release info g0 2-forever"}},
		{"a background renewal counts from its mark", `
			0 1 invoke acquire
			1 1 ok acquire grant=1 valid=10
			6 1 info renewed grant=1 from=4 valid=10
			9 1 info renewed grant=1 valid=10 # without from it is left out
			10 1 info renewed from=8 valid=10`,
			[]string{"acquire ok g0 0-1 until 10", "renew ok g0 4-6 until 14", "renew ok g0 8-10 until 18"}},
		{"a renewal of the lease while the acquire waits is not one of the lock", `
			0 1 invoke acquire
			2 1 info renewed from=1 valid=10
			3 1 info renewed grant=1 from=1 valid=10
			4 1 ok acquire grant=1 valid=10
			5 1 invoke release
			6 1 ok release
			8 1 info renewed from=7 valid=10
			9 1 invoke acquire
			10 1 info renewed from=7 valid=10`,
			[]string{"acquire ok g0 0-4 until 10", "release ok g0 5-6", "acquire info g1 9-forever until 9"}},
		{"nor is one after the release, or while the next acquire waits", `
			0 1 invoke acquire
			1 1 ok acquire valid=10
			2 1 invoke release
			3 1 ok release
			5 1 info renewed from=4 valid=10
			6 1 invoke acquire
			7 1 ok acquire valid=10
			20 1 invoke acquire
			22 1 info renewed from=21 valid=10`,
			[]string{"acquire ok g0 0-1 until 10", "release ok g0 2-3", "acquire ok g1 6-7 until 16", "acquire info g2 20-forever until 20"}},
		{"a renewal without a validity promises nothing", `
			0 1 invoke acquire
			1 1 ok acquire grant=1 valid=10
			2 1 invoke renew grant=1
			3 1 ok renew grant=1
			4 1 invoke renew grant=1
			5 1 info renew grant=1`,
			[]string{"acquire ok g0 0-1 until 10", "renew ok g0 2-3 until 2", "renew info g0 4-forever until 4", "release info g0 5-forever"}},
		{"without numbers an operation is of the process's latest grant", `
			0 1 invoke acquire
			1 1 ok acquire
			2 2 invoke acquire
			3 1 invoke release
			4 1 ok release
			5 2 ok acquire
			6 1 invoke release
			7 1 ok release
			8 2 invoke release
			9 2 ok release`,
			[]string{"acquire ok g0 0-1 until forever", "release ok g0 3-4", "acquire ok g1 2-5 until forever",
				"release ok g0 6-7", "release ok g1 8-9"}},
		{"what is open at the end is indeterminate", `
			0 1 invoke acquire
			1 1 ok acquire grant=1 valid=10
			2 1 invoke release grant=1
			3 2 invoke acquire`,
			[]string{"acquire ok g0 0-1 until 10", "release info g0 2-forever", "acquire info g1 3-forever until 3"}},
		{"a completion without an invocation may have begun at any time", `
			5 1 ok acquire grant=1 valid=10
			6 1 ok release grant=1`,
			[]string{"acquire ok g0 dawn-5 until dawn", "release ok g0 dawn-6"}},
		{"time that runs backwards is concurrent", `
			5 1 invoke acquire
			3 1 ok acquire grant=1 valid=10
			4 1 invoke release grant=1
			9 1 ok release grant=1`,
			[]string{"acquire ok g0 5-5 until 15", "release ok g0 5-9"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := NewBuilder(history.Header{})
			for _, o := range script(t, c.events) {
				b.Add(&o)
			}
			b.closeOpen()
			var got []string
			for _, o := range b.keys[0].ops.all() {
				got = append(got, short(o))
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(c.want, "\n\t"))
			}
		})
	}
}

func TestOpIsSmall(t *testing.T) {
	if n := unsafe.Sizeof(Op{}); n > 64 {
		t.Errorf("an operation takes %d bytes", n)
	}
}

// TestVerdicts are small histories and what must be said of them.
func TestVerdicts(t *testing.T) {
	for _, c := range []struct {
		name      string
		reentrant bool
		events    string
		want      Verdict
		reason    string // a part of it
		ops       []int
	}{
		{name: "nothing", want: Legal, events: `
			0 1 invoke acquire
			1 1 ok acquire grant=1 token=0 valid=10
			2 1 invoke release grant=1
			3 1 ok release grant=1`},
		{name: "two leases overlap", want: Illegal, ops: []int{0, 1, 2, 3}, events: `
			0 1 invoke acquire
			1 1 ok acquire grant=1 token=1 valid=10
			2 2 invoke acquire
			3 2 ok acquire grant=2 token=2 valid=10
			4 1 invoke check grant=1`,
			reason: "process 2 (grant 2, token 2) was granted the lock by 3 ms although process 1 (grant 1, token 1) still held it: its lease ran until 10 ms"},
		{name: "the lease had ended", want: Legal, events: `
			0 1 invoke acquire
			1 1 ok acquire grant=1 token=1 valid=2
			2 2 invoke acquire
			3 2 ok acquire grant=2 token=2 valid=10`},
		{name: "tokens beyond a float64 that differ by one", want: Legal, events: `
			0 1 invoke acquire
			1 1 ok acquire grant=1 token=9007199254740992 valid=2
			5 2 invoke acquire
			6 2 ok acquire grant=2 token=9007199254740993 valid=10`},
		{name: "a token goes back", want: Illegal, ops: []int{0, 1, 2, 3}, events: `
			0 1 invoke acquire
			1 1 ok acquire grant=1 token=9007199254740993 valid=2
			5 2 invoke acquire
			6 2 ok acquire grant=2 token=9007199254740992 valid=10`,
			reason: "process 2 (grant 2, token 9007199254740992) asked for the lock at 5 ms, after process 1 (grant 1, token 9007199254740993) had been granted it by 1 ms, and got the lower token"},
		{name: "a token twice, and it is zero", want: Illegal, ops: []int{0, 1, 2, 3}, events: `
			0 1 invoke acquire
			1 1 ok acquire grant=1 token=0 valid=2
			5 2 invoke acquire
			6 2 ok acquire grant=2 token=0 valid=10`,
			reason: "token 0 was given twice: to process 1 (grant 1, token 0) and to process 2 (grant 2, token 0)"},
		{name: "the very first operation", want: Illegal, ops: []int{0, 1}, events: `
			0 1 invoke acquire
			1 1 fail acquire error=held`,
			reason: "process 1 was told \"held\" between 0 ms and 1 ms, when nobody can have held the lock: it was never granted"},
		{name: "a refusal in a gap", want: Illegal, ops: []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, events: `
			0 1 invoke acquire
			1 1 ok acquire grant=1 token=1 valid=100
			2 1 invoke release grant=1
			3 1 ok release grant=1
			4 2 invoke acquire
			5 2 fail acquire error=held
			6 2 invoke acquire
			7 2 ok acquire grant=2 token=2 valid=100
			8 2 invoke release grant=2
			9 2 ok release grant=2`,
			reason: "had ended by 3 ms"},
		{name: "an acquire of unknown outcome explains it", want: Legal, events: `
			0 3 invoke acquire
			1 1 invoke acquire
			1 1 ok acquire grant=1 token=1 valid=100
			2 1 invoke release grant=1
			3 1 ok release grant=1
			4 2 invoke acquire
			5 2 fail acquire error=held
			6 2 invoke acquire
			7 2 ok acquire grant=2 token=2 valid=100`},
		{name: "one acquire of unknown outcome does not explain two", want: Illegal, events: `
			0 3 invoke acquire
			1 1 invoke acquire
			1 1 ok acquire grant=1 token=1 valid=100
			2 1 invoke release grant=1
			3 1 ok release grant=1
			4 2 invoke acquire
			5 2 fail acquire error=held
			6 2 invoke acquire
			7 2 ok acquire grant=2 token=2 valid=100
			8 2 invoke release grant=2
			9 2 ok release grant=2
			10 2 invoke acquire
			11 2 fail acquire error=held`,
			reason: "needed for an earlier refusal"},
		{name: "released twice", want: Illegal, ops: []int{0, 1, 2, 3, 4, 5}, events: `
			0 1 invoke acquire
			1 1 ok acquire grant=1
			2 1 invoke release grant=1
			3 1 ok release grant=1
			4 1 invoke release grant=1
			5 1 ok release grant=1`,
			reason: "released its grant twice with success, between 2 ms and 3 ms and between 4 ms and 5 ms"},
		{name: "renewed after its release", want: Illegal, events: `
			0 1 invoke acquire
			1 1 ok acquire grant=1 valid=10
			2 1 invoke release grant=1
			3 1 ok release grant=1
			4 1 invoke renew grant=1
			5 1 ok renew grant=1 valid=10`,
			reason: "had been released by 3 ms, but must have held the lock after that: its renewal"},
		{name: "not-held while the lease ran, then released", want: Illegal, events: `
			0 1 invoke acquire
			1 1 ok acquire grant=1 valid=100
			2 1 invoke renew grant=1
			3 1 fail renew grant=1 error=not-held`,
			reason: "told \"not-held\" by 3 ms"},
		{name: "a session may end at once", want: Legal, events: `
			0 1 invoke acquire
			1 1 ok acquire grant=1 token=1 session
			2 2 invoke acquire
			3 2 ok acquire grant=2 token=2 session`},
		{name: "a session proved by a write on its node", want: Illegal, events: `
			0 1 invoke acquire
			1 1 ok acquire grant=1 token=1 session
			2 2 invoke acquire
			3 2 ok acquire grant=2 token=2 session
			5 1 info renewed grant=1 from=4`},
		{name: "untokened sessions, one inside another's", want: Illegal, events: `
			0 1 invoke acquire
			1 1 ok acquire grant=1 session
			2 2 invoke acquire
			3 2 ok acquire grant=2 session
			5 1 invoke release grant=1
			6 1 ok release grant=1`,
			reason: "process 2 (grant 2) was granted the lock by 3 ms although process 1 (grant 1) still held it: its release, which succeeded, was invoked only at 5 ms"},
		{name: "a session that began too early to explain a refusal", want: Illegal, events: `
			0 1 invoke acquire
			1 1 ok acquire grant=1
			1.5 2 invoke acquire
			2 1 invoke release grant=1
			2.5 2 ok acquire grant=2 session
			3 1 ok release grant=1
			5 3 invoke acquire
			6 3 ok acquire grant=3
			7 3 invoke release grant=3
			8 3 ok release grant=3
			10 4 invoke acquire
			11 4 fail acquire error=held`,
			reason: "process 3 (grant 3) had ended by 8 ms, and no acquire of unknown outcome explains it"},
		{name: "a session that was gone too early to explain a refusal", want: Illegal, events: `
			0 1 invoke acquire
			1 1 ok acquire grant=1
			2 1 invoke release grant=1
			3 1 ok release grant=1
			4 2 invoke acquire
			5 2 ok acquire grant=2 session
			6 2 invoke release grant=2
			7 2 fail release grant=2 error=not-held
			10 4 invoke acquire
			11 4 fail acquire error=held
			12 3 invoke acquire
			13 3 ok acquire grant=3`,
			reason: "process 3 (grant 3) did not begin before 12 ms, and no acquire of unknown outcome explains it"},
		{name: "released before the one before it in token order had ended", want: Illegal, events: `
			0 1 invoke acquire
			0.1 2 invoke acquire
			0.2 1 ok acquire grant=1 token=1 valid=10
			4 2 ok acquire grant=2 token=2 valid=1
			5 2 invoke release grant=2
			6 2 ok release grant=2`,
			reason: "process 2 (grant 2, token 2) was granted the lock by 4 ms although process 1 (grant 1, token 1) still held it: its lease ran until 10 ms"},
		{name: "renewed after a later token was granted", want: Illegal, events: `
			0 1 invoke acquire
			0.1 2 invoke acquire
			0.2 1 ok acquire grant=1 token=1 valid=10
			12 2 ok acquire grant=2 token=2 session
			13 2 info renewed grant=2 from=7
			14 2 invoke release grant=2
			15 2 fail release grant=2 error=not-held
			16 1 invoke renew grant=1
			17 1 ok renew grant=1 valid=1`,
			reason: "process 2 (grant 2, token 2) was granted the lock by 12 ms although process 1 (grant 1, token 1) still held it: its lease ran until 17 ms"},
		{name: "released before it is granted", want: Unknown, events: `
			0 1 invoke acquire
			1 1 ok acquire grant=1 token=1 valid=10
			1.5 2 invoke acquire
			2 3 invoke release grant=2
			14 3 ok release grant=2
			20 2 ok acquire grant=2 token=2 valid=100
			21 1 invoke renew grant=1
			22 1 fail renew grant=1 error=not-held`,
			reason: "grant 2, which the history never grants"},
		{name: "an unknown grant", want: Unknown, events: `
			0 1 invoke release grant=7
			1 1 ok release grant=7`,
			reason: "grant 7, which the history never grants"},
		{name: "a number given twice", want: Unknown, events: `
			0 1 invoke acquire
			1 1 ok acquire grant=1 valid=1
			5 1 invoke acquire
			6 1 ok acquire grant=1`,
			reason: "grant number 1 was given to two acquires"},
		{name: "re-entry is not a second grant", reentrant: true, want: Legal, events: `
			0 1 invoke acquire
			1 1 ok acquire grant=1
			2 1 invoke acquire
			3 1 ok acquire grant=2
			4 1 invoke release grant=2
			5 1 ok release grant=2
			6 2 invoke acquire
			7 2 fail acquire error=held
			8 1 invoke release grant=1
			9 1 ok release grant=1
			10 2 invoke acquire
			11 2 ok acquire grant=3`},
		{name: "where locks are not re-entrant, it is", want: Illegal, events: `
			0 1 invoke acquire
			1 1 ok acquire grant=1
			2 1 invoke acquire
			3 1 ok acquire grant=2`},
		{name: "a re-entry after the lease had been taken over", reentrant: true, want: Unknown, events: `
			0 1 invoke acquire
			1 1 ok acquire grant=1 token=1 valid=1
			2 2 invoke acquire
			3 2 ok acquire grant=2 token=2 valid=1
			4 1 invoke acquire
			5 1 ok acquire grant=3 token=3 valid=1`,
			reason: "acquired the lock again while it held it"},
		{name: "an overlap that re-entries cannot excuse", reentrant: true, want: Illegal, events: `
			0 1 invoke acquire
			1 1 ok acquire grant=1
			2 1 invoke acquire
			3 1 ok acquire grant=2
			4 1 invoke release grant=2
			5 1 ok release grant=2
			10 2 invoke acquire
			11 2 ok acquire grant=3
			12 3 invoke acquire
			13 3 ok acquire grant=4`},
	} {
		t.Run(c.name, func(t *testing.T) {
			rs := judge(t, history.Header{Reentrant: c.reentrant}, script(t, c.events))
			r := rs[0]
			if r.Verdict != c.want || !strings.Contains(r.Reason, c.reason) {
				t.Fatalf("%s: %s\nwant %s: %s", r.Verdict, r.Reason, c.want, c.reason)
			}
			if r.Searched {
				t.Error("it took a search")
			}
			if c.ops != nil && !slices.Equal(r.Ops, c.ops) {
				t.Errorf("witness %v, want %v", r.Ops, c.ops)
			}
			t.Log(r.Reason)
			if r.Verdict != Illegal {
				return
			}
			if oracle(r.Window) != porcupine.Illegal {
				t.Error("the part shown is legal by itself")
			}
			var page strings.Builder
			if err := Visualize(&page, r); err != nil || !strings.Contains(page.String(), "not linearizable") {
				t.Errorf("page of %d bytes, %v", page.Len(), err)
			}
			if !strings.Contains(page.String(), `"PartialLinearizations":[[{"Index":`) {
				t.Error("the page shows no order at all")
			}
		})
	}
}

func TestStoppedIsUnknown(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	b := NewBuilder(history.Header{})
	for _, o := range script(t, "0 1 invoke acquire\n1 1 fail acquire error=held") {
		b.Add(&o)
	}
	if r := b.Finish(ctx, Options{}); len(r) != 1 || r[0].Verdict != Unknown {
		t.Errorf("%+v", r)
	}
}

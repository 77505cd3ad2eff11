package linear

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A mutant is a mistake that somebody could make in this package. In what replaces
// the old text, MUTANT stands for "this mutant is the one that is switched on".
type mutant struct{ name, file, old, mistake string }

var mutants = []mutant{
	{"one token may be given twice", "decide.go",
		"keys[i].token == keys[i-1].token {", "keys[i].token == keys[i-1].token && !MUTANT {"},
	{"tokens are compared as floats", "decide.go",
		"return cmp.Compare(a.token, b.token)", "if MUTANT { return cmp.Compare(float64(a.token), float64(b.token)) }\nreturn cmp.Compare(a.token, b.token)"},
	{"a grant may start before its predecessor ends", "decide.go",
		"if t > g.ua {", "if t > g.ua && !MUTANT {"},
	{"a touch counts as an overlap", "decide.go",
		"if t > g.ua ", "if (t > g.ua || MUTANT && k > 0 && t == g.ua) "},
	{"a grant may end before it must", "decide.go",
		"if t > g.ue {", "if t > g.ue && !MUTANT {"},
	{"cores that begin together are in any order", "decide.go",
		"return cmp.Compare(x.le, y.le)", "if MUTANT { return cmp.Compare(y.le, x.le) }\nreturn cmp.Compare(x.le, y.le)"},
	{"the latest end forgets the grant's own", "decide.go",
		"h = min(h, g.ue)", "if !MUTANT { h = min(h, g.ue) }"},
	{"the latest end forgets the next start", "decide.go",
		"h = min(h, g.ua)", "if !MUTANT { h = min(h, g.ua) }"},
	{"the latest start forgets the grant's own", "decide.go",
		"return min(pl.hiEnd[k], pl.grants[pl.order[k]].ua)", "if MUTANT { return pl.hiEnd[k] }\nreturn min(pl.hiEnd[k], pl.grants[pl.order[k]].ua)"},
	{"a try that touches an end is not covered", "decide.go",
		"pl.hiEnd[pos-1] >= try.Call {", "(pl.hiEnd[pos-1] > try.Call || !MUTANT && pl.hiEnd[pos-1] == try.Call) {"},
	{"a try that touches a start is not covered", "decide.go",
		"pos = gallop(pl.loStart, pos, try.Return)", "pos = gallop(pl.loStart, pos, try.Return)\nfor MUTANT && pos > 0 && pl.loStart[pos-1] == try.Return { pos-- }"},
	{"of the tries in a gap the last counts", "decide.go",
		"if need.by < pl.needs[m-1].by {", "if need.by < pl.needs[m-1].by != MUTANT {"},
	{"a phantom serves a gap from before its invoke", "decide.go",
		"pl.needs[j].by >= ph.la &&", "(MUTANT || pl.needs[j].by >= ph.la) &&"},
	{"a phantom's lease does not keep the next one out", "decide.go",
		"pl.needs[j].till >= ph.le })", "(MUTANT || pl.needs[j].till >= ph.le) })"},
	{"a phantom serves any number of gaps", "decide.go",
		"lasting = lasting[:n-1]", "if !MUTANT { lasting = lasting[:n-1] }"},
	{"a grant may serve a gap after it must have begun", "decide.go",
		"pl.needs[i].after > ph.ua ||", "pl.needs[i].after > ph.ua && !MUTANT ||"},
	{"a grant may serve a gap after it was gone", "decide.go",
		"pl.needs[i].need > ph.ue })", "pl.needs[i].need > ph.ue && !MUTANT })"},
	{"a renewal does not prove that the lock was held", "window.go",
		"g.le = max(g.le, g.renewCall)", "if !MUTANT { g.le = max(g.le, g.renewCall) }"},
	{"a lease never ends", "window.go",
		"g.leased(o.Deadline)", "if !MUTANT { g.leased(o.Deadline) }"},
	{"an indeterminate release frees nothing", "window.go",
		"g.le = min(g.le, o.Call)", "if !MUTANT { g.le = min(g.le, o.Call) }"},
	{"an indeterminate renewal shortens nothing", "window.go",
		"g.leased(min(g.le, max(o.Deadline, o.Call)))", "if !MUTANT { g.leased(min(g.le, max(o.Deadline, o.Call))) }"},
	{"any renewal may have been the last", "window.go",
		"case o.Return >= g.renewCall:", "case o.Return >= g.renewCall || MUTANT:"},
	{"a renewal does not prove that the acquire took effect by then", "window.go",
		"g.ua = min(g.ua, o.Return)\n}", "if !MUTANT { g.ua = min(g.ua, o.Return) }\n}"},
	{"not-held says nothing", "window.go",
		"g.ue = min(g.ue, o.Return)", "if !MUTANT { g.ue = min(g.ue, o.Return) }"},
	{"an early not-held is always of the end", "window.go",
		"case o.Call <= g.ua:", "case o.Call <= g.ua && !MUTANT:"},
	{"a window ends at a core that touches it", "search.go",
		".ua > r.to })", ".ua > r.to || MUTANT && p.grants[cuts[k]].ua == r.to })"},
	{"any failed acquire says that the lock is held", "build.go",
		"o.Error == history.ErrHeld:", "(MUTANT || o.Error == history.ErrHeld):"},
	{"a lease counts from the ok", "build.go",
		"return min(o.From.Or(open.call), b.now)", "if MUTANT { return b.now }\nreturn min(o.From.Or(open.call), b.now)"},
	{"a session is as good as a lease", "build.go",
		"case o.Session:", "case o.Session && !MUTANT:"},
	{"token zero is no token", "build.go",
		"op.HasToken = o.Token.V, o.Token.Set", "op.HasToken = o.Token.V, o.Token.Set && !(MUTANT && o.Token.V == 0)"},
	{"a retired process keeps its locks", "build.go",
		"p.letGo(b.now, o.Index, Retired)", "if !MUTANT { p.letGo(b.now, o.Index, Retired) }"},
	{"a crash counts from when it was noticed", "build.go",
		"p.letGo(p.heard, o.Index, Crashed)", "if !MUTANT { p.letGo(p.heard, o.Index, Crashed) }"},
	{"a close releases nothing", "build.go",
		"p.letGo(b.now, o.Index, Closed)", "if !MUTANT { p.letGo(b.now, o.Index, Closed) }"},
	{"a background renewal counts from when it was heard", "build.go",
		"call: o.From.V, index: -1}", "call: o.From.V, index: -1}\nif MUTANT { open.call = b.now }"},
	{"a lease that is renewed while the acquire waits is the lock", "build.go",
		"(h.depth == 0 || p.open.key == k && p.open.f == history.Acquire)", "!MUTANT && (h.depth == 0 || p.open.key == k && p.open.f == history.Acquire)"},
	{"a re-entry is a second grant", "build.go",
		"if b.reentrant && h.depth > 0", "if b.reentrant && !MUTANT && h.depth > 0"},
	{"a skipped kill counts", "kill.go",
		"if kl.skipped {", "if kl.skipped && !MUTANT {"},
	{"a kill counts from when it was done", "kill.go",
		"for _, h := range kl.hits {", "for _, h := range kl.hits {\nif MUTANT { kl.at = kl.until }"},
}

// mutantSwitch turns one mutant on. It exists only in the binary of this test.
const mutantSwitch = `package linear

import "flag"

var mutantOn int

func init() { flag.IntVar(&mutantOn, "mutant", 0, "which mutant is switched on") }
`

// TestMutants holds the tests to account: with any of the mistakes above made, at
// least one of them must fail. All mistakes are compiled into one binary, by an
// overlay of the sources, and switched on one at a time; the package itself knows
// nothing of it.
func TestMutants(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a test binary")
	}
	binary := buildMutants(t)
	if out, failed := runMutant(t, binary, 0); failed {
		t.Fatalf("the tests fail without any mistake:\n%s", out)
	}
	for i, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			out, failed := runMutant(t, binary, i+1)
			if !failed {
				t.Error("no test notices")
			}
			t.Log(firstFailure(out))
		})
	}
}

func buildMutants(t *testing.T) string {
	goTool, err := exec.LookPath("go")
	if err != nil {
		t.Skip("no go command to build with")
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	overlay := map[string]string{}
	put := func(name, text string) {
		at := filepath.Join(dir, name)
		if err := os.WriteFile(at, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		overlay[filepath.Join(here, name)] = at
	}
	put("mutant_switch.go", mutantSwitch)
	for name, text := range mutated(t) {
		put(name, text)
	}
	list, err := json.Marshal(map[string]any{"Replace": overlay})
	if err != nil {
		t.Fatal(err)
	}
	put("overlay.json", string(list))
	binary := filepath.Join(dir, "mutants.test")
	cmd := exec.Command(goTool, "test", "-c", "-vet=off", "-overlay", filepath.Join(dir, "overlay.json"), "-o", binary, ".")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return binary
}

// mutated gives the text of each source file that has a mistake in it.
func mutated(t *testing.T) map[string]string {
	files := map[string]string{}
	for i, m := range mutants {
		text, ok := files[m.file]
		if !ok {
			b, err := os.ReadFile(m.file)
			if err != nil {
				t.Fatal(err)
			}
			text = string(b)
		}
		if n := strings.Count(text, m.old); n != 1 {
			t.Fatalf("%q: the text to change occurs %d times in %s", m.name, n, m.file)
		}
		files[m.file] = strings.Replace(text, m.old, strings.ReplaceAll(m.mistake, "MUTANT", fmt.Sprintf("(mutantOn == %d)", i+1)), 1)
	}
	return files
}

func runMutant(t *testing.T, binary string, number int) (string, bool) {
	cmd := exec.Command(binary, "-test.run", "^(TestBuilderMapsEvents|TestVerdicts|TestServiceIsLegal|TestDecisionAgreesWithSearch|TestNextButOneBoundsPhantom)$",
		"-test.failfast", "-test.timeout", time.Minute.String(), "-soak", "60000", "-mutant", fmt.Sprint(number))
	out, err := cmd.CombinedOutput()
	if _, exited := err.(*exec.ExitError); err != nil && !exited {
		t.Fatal(err)
	}
	return string(out), err != nil
}

func firstFailure(out string) string {
	for line := range strings.Lines(out) {
		if strings.Contains(line, "FAIL: ") {
			return strings.TrimSpace(line)
		}
	}
	return ""
}

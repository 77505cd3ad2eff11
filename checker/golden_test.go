package checker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lockcheck/lockcheck/history"
)

// expectation is the first line of a golden history.
type expectation struct {
	About   string                     `json:"about"`
	Verdict string                     `json:"verdict"` // of the whole, where the file is about it
	Expect  map[string]json.RawMessage `json:"expect"`
}

// Each file in testdata is a small history with the judgement that the
// semantics demand of it; most come as a pair that differs in one event.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.jsonl")
	if err != nil || len(files) < 80 {
		t.Fatalf("%d golden histories, %v", len(files), err)
	}
	for _, f := range files {
		t.Run(strings.TrimSuffix(filepath.Base(f), ".jsonl"), func(t *testing.T) { golden(t, f) })
	}
}

func golden(t *testing.T, file string) {
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var want expectation
	first, _, _ := bytes.Cut(b, []byte("\n"))
	if err := json.Unmarshal(first, &want); err != nil {
		t.Fatal(err)
	}
	ops, rd, err := history.ReadAll(bytes.NewReader(b), file)
	if m, ok := want.Expect["malformed"]; ok {
		var text string
		json.Unmarshal(m, &text)
		var bad *history.MalformedError
		if !errors.As(err, &bad) {
			t.Fatalf("not refused: %v", err)
		}
		if !strings.Contains(err.Error(), text) && !strings.Contains(fmt.Sprintf("line %d: %s", bad.Line, bad.Reason), text) {
			t.Errorf("refused with %q, want %q\n%s", err, text, want.About)
		}
		return
	}
	if err != nil {
		t.Fatalf("refused: %v\n%s", err, want.About)
	}
	res := Check(context.Background(), ops, rd.Header)
	for name, raw := range want.Expect {
		var list []string
		if json.Unmarshal(raw, &list) != nil || res.Properties[name] == nil {
			continue
		}
		if got := outcome(res.Properties[name]); !slices.Equal(got, list) {
			t.Errorf("%s: got %v, want %v\n%s\n%s", name, got, list, want.About, res.Properties[name].told())
		}
	}
	if want.Verdict != "" && res.Verdict.String() != want.Verdict {
		t.Errorf("the whole is %v (%v), want %s", res.Verdict, res.Reasons, want.Verdict)
	}
	for name, p := range res.Properties {
		for _, a := range p.Anomalies {
			if a.Message == "" || strings.Contains(a.Message, "%!") {
				t.Errorf("%s: message %q", name, a.Message)
			}
		}
	}
}

// outcome is the verdict and the distinct kinds, as the golden files write them.
func outcome(r *Result) []string {
	var kinds []string
	for _, a := range r.Anomalies {
		k := a.Kind
		if a.Class != "" {
			k += "/" + a.Class
		}
		kinds = append(kinds, k)
	}
	slices.Sort(kinds)
	return append([]string{r.Verdict.String()}, slices.Compact(kinds)...)
}

func (r *Result) told() string {
	var b strings.Builder
	for _, a := range r.Anomalies {
		fmt.Fprintf(&b, "  %s %v faults %v: %s\n", a.Kind, a.Ops, a.Faults, a.Message)
	}
	return b.String() + r.Reason
}

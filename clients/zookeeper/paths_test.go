package zookeeper

import (
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"
)

// Every name has one path of its own that ZooKeeper accepts.
func FuzzDir(f *testing.F) {
	for _, name := range []string{"", "a", "a/b", "..", ".", "%", "%2E", "a b", "\n", "é", "\xff"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		e, ok := strings.CutPrefix(Dir(name), root+"/")
		if !ok || e == "" || e == "." || e == ".." || strings.ContainsAny(e, "/\x00") || !utf8.ValidString(e) {
			t.Fatalf("%q becomes %q", name, Dir(name))
		}
		if back, err := url.QueryUnescape(e); e != "%" && (err != nil || back != name) {
			t.Fatalf("%q becomes %q becomes %q", name, e, back)
		}
		if e == "%" && name != "" {
			t.Fatalf("%q is taken for the empty name", name)
		}
	})
}

func TestAhead(t *testing.T) {
	queue := []string{"b-0000000012", "a-0000000009", "c-0000000010", "other"}
	for node, want := range map[string]string{
		"a-0000000009": "", "c-0000000010": "a-0000000009", "b-0000000012": "c-0000000010",
	} {
		if got, err := ahead(queue, node); err != nil || got != want {
			t.Errorf("ahead of %s: %q, %v", node, got, err)
		}
	}
	if _, err := ahead(queue, "d-0000000011"); err == nil {
		t.Error("somebody who is not in the queue has a place")
	}
}

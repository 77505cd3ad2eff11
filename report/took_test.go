package report

import "testing"

func TestTook(t *testing.T) {
	for ms, want := range map[float64]string{0: "0 ms", 0.1234: "0.123 ms", 999.4: "999 ms", 999.6: "1 s", 1234: "1.23 s", 3_600_000: "3600 s"} {
		if got := Took(ms); got != want {
			t.Errorf("Took(%v) = %q, want %q", ms, got, want)
		}
	}
}

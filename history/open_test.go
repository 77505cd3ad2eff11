package history

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

func gz(t testing.TB, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	if _, err := z.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func zst(t testing.TB, b []byte) []byte {
	t.Helper()
	z, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	return z.EncodeAll(b, nil)
}

// openAll reads everything; n is the number of events.
func openAll(b []byte, file string) (n int, about About, err error) {
	s, err := Open(bytes.NewReader(b), file)
	if err != nil {
		return 0, About{}, err
	}
	defer s.Close()
	var o Op
	for ; ; n++ {
		if err := s.Read(&o); err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return n, s.About(), err
		}
	}
}

func TestOpen(t *testing.T) {
	edn, log := ednTexts[0], logText
	for _, c := range []struct {
		name, file, text string
		format           Format
		events           int
	}{
		{"our own", "h", example, JSONL, 7},
		{"with a header", "h.edn", `{"lockcheck":1}` + "\n" + example, JSONL, 7},
		{"with a byte order mark", "h", "\xef\xbb\xbf" + example, JSONL, 7},
		{"blank lines first", "h", "\n \r\n" + example, JSONL, 7},
		{"a vector", "h.jsonl", edn, EDN, 2},
		{"a vector with a mark", "h", "\xef\xbb\xbf[" + strings.SplitN(edn, "[", 2)[1], EDN, 2},
		{"a list", "h", ednTexts[1], EDN, 2},
		{"a map a line", "h", ednTexts[2], EDN, 2},
		{"records", "h.edn", ednTexts[3], EDN, 1},
		{"our own in EDN", "h", ednTexts[4], EDN, 1},
		{"an empty vector", "h", "[ ]", EDN, 0},
		{"a log", "h", log, JepsenLog, 8},
		{"a log that begins with a bracket", "h", "[main] INFO starting\n" + log, JepsenLog, 8},
		{"only the name tells", "jepsen.log", strings.Repeat("nothing\n", sniffSize/4) + log, JepsenLog, 8},
		{"empty", "h", "", JSONL, 0},
		{"only space", "h", " \n\n", JSONL, 0},
	} {
		for how, b := range map[string][]byte{"": []byte(c.text), "gzip": gz(t, []byte(c.text)), "zstd": zst(t, []byte(c.text))} {
			n, about, err := openAll(b, c.file)
			if err != nil || n != c.events || about.Format != c.format || about.Truncated != "" {
				t.Errorf("%s %s: %d events, %v, %+v", c.name, how, n, err, about)
			}
			if how != about.Compression && len(b) > 0 {
				t.Errorf("%s: compression %q", how, about.Compression)
			}
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"hello world\n":        `h:1: neither JSON lines nor EDN nor a Jepsen log: it begins with "hello world`,
		"\x00\x01\x02":         "h:1: neither",
		"\x7fELF\x02":          "h:1: neither",
		"[1,2]":                "h:1: a JSON array where an event",
		`[{"a":1}]`:            "h:1: a JSON array where an event",
		`"text"`:               "h:1: a JSON string",
		"\x1f\x8bxxxxxxxxxxxx": "h:1: not gzip, though it begins like it",
		"\x1f\x8b":             "h:1: the gzip data is cut short",
		"\x28\xb5\x2f\xfd\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff": "h:",
		"[{:process 1 :type :ok :f :x}]":                                   "h:1: completion without an invocation",
	} {
		if _, _, err := openAll([]byte(text), "h"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	dir, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if _, err := Open(dir, "d"); err == nil || !strings.Contains(err.Error(), "read d: ") {
		t.Error(err)
	}
}

// Compressed data that is cut anywhere gives what came before, or says that there
// was nothing.
func TestOpenCutCompressed(t *testing.T) {
	text := service(20_000)
	whole := strings.Count(string(text), "\n")
	for name, b := range map[string][]byte{"gzip": gz(t, text), "zstd": zst(t, text)} {
		for _, n := range []int{len(b) - 1, len(b) - 9, len(b) / 2, len(b) / 3, 100, 12, 5, 3} {
			events, about, err := openAll(b[:n], "h")
			var m *MalformedError
			if errors.As(err, &m) {
				if events > 0 {
					t.Errorf("%s cut at %d: %v after %d events", name, n, err, events)
				}
				continue
			}
			if err != nil || about.Truncated == "" || events > whole {
				t.Errorf("%s cut at %d: %d events, %v, %q", name, n, events, err, about.Truncated)
			}
		}
		bad := bytes.Clone(b)
		bad[len(bad)-2] ^= 0xff
		if _, about, err := openAll(bad, "h"); err == nil {
			t.Errorf("%s: a wrong checksum was not noticed: %+v", name, about)
		}
	}
}

// One event of a gigabyte is refused long before it is in memory, packed or not.
func TestOpenHugeLine(t *testing.T) {
	for _, begin := range []string{`{"time":1,"f":"`, `{:process 1 :f "`, "1\t:invoke\t:write\t\""} {
		huge := io.MultiReader(strings.NewReader(begin), io.LimitReader(endless{}, 1<<30))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		s, err := Open(huge, "huge")
		if err != nil {
			t.Fatal(err)
		}
		var o Op
		err = s.Read(&o)
		runtime.ReadMemStats(&after)
		if err == nil || !strings.Contains(err.Error(), "huge:1: ") || !strings.Contains(err.Error(), "16 MB") {
			t.Errorf("%s: %v", begin, err)
		}
		if mb := (after.TotalAlloc - before.TotalAlloc) >> 20; mb > 200 {
			t.Errorf("%s: %d MB were allocated", begin, mb)
		}
	}
}

// Closing early stops what unpacks ahead, and leaves nothing behind.
func TestCloseEarly(t *testing.T) {
	packed := gz(t, service(200_000))
	before := runtime.NumGoroutine()
	for range 20 {
		s, err := Open(bytes.NewReader(packed), "h")
		if err != nil {
			t.Fatal(err)
		}
		var o Op
		if err := s.Read(&o); err != nil {
			t.Fatal(err)
		}
		s.Close()
		s.Close()
	}
	for range 1000 {
		if runtime.NumGoroutine() <= before {
			return
		}
		runtime.Gosched()
	}
	for runtime.NumGoroutine() > before { // until the test's own deadline
		runtime.Gosched()
	}
}

func TestInOrder(t *testing.T) {
	s, err := Open(strings.NewReader(`[{:process 1 :type :invoke :f :x :time 50} {:process 1 :type :ok :f :x :time 40} {:process 1 :type :invoke :f :x} {:process 1 :type :ok :f :x :time 90}]`), "h")
	if err != nil {
		t.Fatal(err)
	}
	s = InOrder(s)
	var o Op
	for _, want := range []int64{50, 51, 52, 90} {
		if err := s.Read(&o); err != nil || o.Time != want {
			t.Errorf("%d %v, want %d", o.Time, err, want)
		}
	}
	ops, _, err := ReadAll(strings.NewReader(`{"lockcheck":1,"order":"file"}`+"\n"+`{"time":5,"process":1,"type":"invoke","f":"x"}`+"\n"+`{"time":5,"process":1,"type":"ok","f":"x"}`), "h")
	if err != nil || ops[1].Time != 6 {
		t.Error(ops, err)
	}
}

// corpus gives the folder of histories that others recorded, or skips the test.
func corpus(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	for err == nil {
		c := filepath.Join(dir, "shared", "corpus")
		if _, err := os.Stat(c); err == nil {
			return c
		}
		if parent := filepath.Dir(dir); parent != dir {
			dir = parent
			continue
		}
		break
	}
	t.Skip("the corpus is not there")
	return ""
}

// Every file of the corpus is read to its end, and goes to JSON lines and back.
func TestCorpusIsRead(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(corpus(t), "*", "*.*"))
	if err != nil {
		t.Fatal(err)
	}
	read := 0
	for _, f := range files {
		if strings.HasSuffix(f, ".tsv") {
			continue
		}
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		n, about, err := openAll(b, "history") // the name does not help
		if err != nil || n == 0 || about.Truncated != "" {
			t.Errorf("%s: %d events, %v, %s", filepath.Base(f), n, err, about.Truncated)
		}
		if want := map[string]Format{".edn": EDN, ".log": JepsenLog}[filepath.Ext(f)]; about.Format != want {
			t.Errorf("%s is %s", filepath.Base(f), about.Format)
		}
		read++
		ednBack(t, b, about.Format)
	}
	if read < 80 {
		t.Errorf("only %d files", read)
	}
}

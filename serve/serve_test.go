package serve

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

const hostile = `"><script>document.title='owned'</script><img src=x onerror="document.title='owned'">` + "\u202e\x00"

// store makes a store with two runs, one of which is hostile wherever it may be,
// and with ways out of the store.
func store(t *testing.T) string {
	t.Helper()
	above := t.TempDir()
	dir := filepath.Join(above, "store")
	write := func(path, text string) {
		t.Helper()
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	marshal := func(v any) string {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	run := func(path, backend, verdict, text string) {
		write(path+"/test.json", marshal(map[string]any{"started": "2026-09-01T12:00:00Z", "options": map[string]any{"backend": backend, "client": text, "store": "none", "seed": 7, "nemesis": []string{"pause"}}}))
		write(path+"/results.json", marshal(map[string]any{"verdict": verdict, "required": []string{"data"}, "exposure": map[string]any{"acquires_ok": 12}, "properties": map[string]any{"data": map[string]any{"anomalies": []any{map[string]any{"message": text, "time": 1}}}}}))
	}
	run("redis-x-pause/20260901T120000.000Z", "redis", "valid", "plain")
	bad := "etcd <script>document.title='owned'<>/2026"
	bad = strings.ReplaceAll(bad, "/", "-")
	run(bad, "etcd", "invalid", hostile)
	write(bad+"/report.html", `<title>report</title><p id=p>in the sandbox</p><script>try{document.title=parent.origin+localStorage.length}catch(e){document.title='kept in'}; fetch('/').then(()=>document.title='got out')</script>`)
	write(bad+`/a&b "<i>.log`, "text")
	if err := os.WriteFile(filepath.Join(above, "secret"), []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, to := range map[string]string{"out.txt": "../../secret", "abs.txt": filepath.Join(above, "secret"), "up": "../.."} {
		if err := os.Symlink(to, filepath.Join(dir, bad, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func server(t *testing.T) *httptest.Server {
	t.Helper()
	root, err := os.OpenRoot(store(t))
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(New(root, slog.New(slog.DiscardHandler), false))
	t.Cleanup(func() { s.Close(); root.Close() })
	return s
}

func get(t *testing.T, url string, change func(*http.Request)) (int, http.Header, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(req)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, res.Header, string(b)
}

func TestListAndFilter(t *testing.T) {
	s := server(t)
	for query, want := range map[string]string{
		"": "2 of 2 runs", "?backend=redis": "1 of 2", "?verdict=invalid": "1 of 2", "?fault=pause": "2 of 2", "?fault=kill": "0 of 2",
		"?text=PLAIN": "1 of 2", "?backend=redis&verdict=invalid": "0 of 2", "?text=%22%3E%3Cscript": "1 of 2",
	} {
		code, _, body := get(t, s.URL+"/"+query, nil)
		if code != 200 || !strings.Contains(body, want) || strings.Contains(body, "<script") {
			t.Errorf("%s: %d, no %q in\n%s", query, code, want, body)
		}
	}
}

// Nothing outside the store is served, by whatever name.
func TestNoWayOut(t *testing.T) {
	s := server(t)
	bad := href("/", "etcd <script>document.title='owned'<>-2026")
	for _, p := range []string{
		"/file/../secret", "/file/..%2fsecret", "/file/%2e%2e/secret", "/file//etc/passwd", "/file/%2fetc%2fpasswd", "/file/..\\secret", "/file/a%00b",
		"/file" + bad + "/out.txt", "/file" + bad + "/abs.txt", "/file" + bad + "/up/secret", "/zip/..", "/zip/.", "/run/..", "/run/" + bad + "/up",
		"/zip" + bad + "/up", "/file/", "/file" + bad + "/", "/other", "/run/",
	} {
		code, _, body := get(t, s.URL, func(r *http.Request) { r.URL.Opaque = p })
		if strings.Contains(body, "secret") || code == 200 && !strings.HasSuffix(p, "2026/") {
			t.Errorf("%s: %d %s", p, code, body)
		}
	}
	code, _, body := get(t, s.URL+"/zip"+bad, nil)
	z, err := zip.NewReader(bytes.NewReader([]byte(body)), int64(len(body)))
	if code != 200 || err != nil {
		t.Fatal(code, err)
	}
	names := map[string]bool{}
	for _, f := range z.File {
		names[filepath.Base(f.Name)] = true
	}
	if len(names) != 4 || !names["results.json"] || names["out.txt"] || names["secret"] {
		t.Error(names)
	}
}

// Pages of elsewhere get nothing, and nothing can be changed.
func TestOnlyHere(t *testing.T) {
	s := server(t)
	if code, _, _ := get(t, s.URL, func(r *http.Request) { r.Host = "evil.example:7070" }); code != http.StatusForbidden {
		t.Errorf("another name: %d", code)
	}
	if code, _, _ := get(t, s.URL, func(r *http.Request) { r.Host = "localhost:1" }); code != 200 {
		t.Errorf("localhost: %d", code)
	}
	if code, _, _ := get(t, s.URL, func(r *http.Request) { r.Method = http.MethodPost }); code != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", code)
	}
	_, h, _ := get(t, s.URL+href("/file/", "redis-x-pause/20260901T120000.000Z/results.json"), nil)
	if h.Get("X-Content-Type-Options") != "nosniff" || !strings.HasPrefix(h.Get("Content-Security-Policy"), "sandbox") || h.Get("Access-Control-Allow-Origin") != "" {
		t.Error(h)
	}
	for addr, own := range map[string]bool{"127.0.0.1:1": true, "[::1]:1": true, "localhost:80": true, "0.0.0.0:1": false, "[::]:1": false, "192.0.2.1:1": false, "": false} {
		if Loopback(addr) != own {
			t.Errorf("%q: %v", addr, !own)
		}
	}
}

// In a browser: hostile text stays text, the filter works, a report opens in its
// sandbox, and nothing complains.
func TestInBrowser(t *testing.T) {
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatalf("chromium is missing: %v (scripts/deps.sh installs it)", err)
	}
	s := server(t)
	alloc, cancel := chromedp.NewExecAllocator(t.Context(), append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.WSURLReadTimeout(2*time.Minute))...)
	defer cancel()
	ctx, cancel := chromedp.NewContext(alloc)
	defer cancel()
	ctx, stop := context.WithTimeout(ctx, 3*time.Minute)
	defer stop()
	complaints := make(chan string, 100)
	chromedp.ListenTarget(ctx, func(ev any) {
		switch e := ev.(type) {
		case *runtime.EventExceptionThrown:
			complaints <- e.ExceptionDetails.Error()
		case *log.EventEntryAdded:
			if e.Entry.Level == log.LevelError && !strings.Contains(e.Entry.URL, "favicon") {
				complaints <- e.Entry.Text
			}
		}
	})
	var list, files, report struct{ Title, Text string }
	see := chromedp.Evaluate
	const look = `({Title: document.title, Text: document.body.innerText})`
	err = chromedp.Run(ctx, chromedp.Navigate(s.URL), see(`document.querySelector("select[name=backend]").value = "etcd"`, nil),
		submitted(`document.forms[0].submit()`), see(look, &list),
		submitted(`[...document.links].find(a => a.innerText == "files").click()`), see(look, &files))
	if err != nil {
		t.Fatal(err)
	}
	if list.Title != "lockcheck: runs" || !strings.Contains(list.Text, "1 of 2 runs") || !strings.Contains(list.Text, "<script>document.title='owned'") {
		t.Errorf("list: %+v", list)
	}
	if files.Title != "lockcheck: run" || !strings.Contains(files.Text, `a&b "<i>.log`) {
		t.Errorf("files: %+v", files)
	}
	uncomplaining(t, complaints)
	err = chromedp.Run(ctx, submitted(`[...document.links].find(a => a.innerText == "report").click()`), see(look, &report))
	if err != nil || report.Title != "kept in" || !strings.Contains(report.Text, "in the sandbox") {
		t.Errorf("report: %+v %v", report, err)
	}
}

// submitted does what leads to another page, and waits for that.
func submitted(js string) chromedp.Action {
	return chromedp.ActionFunc(func(ctx context.Context) error {
		_, err := chromedp.RunResponse(ctx, chromedp.Evaluate(js, nil))
		return err
	})
}

// uncomplaining wants the browser to have had nothing to complain of so far: the
// hostile report, which comes next, is refused what it asks for.
func uncomplaining(t *testing.T, complaints chan string) {
	t.Helper()
	for len(complaints) > 0 {
		t.Error(<-complaints)
	}
}

// Package serve shows the runs of a store in a browser: a list to filter, the files
// of each run, and each run as a download.
//
// It only reads, never leaves the store's folder, not by a link either, and takes
// every name and text in it for hostile: keys, errors and file names come from the
// system under test. What runs have drawn is shown in a sandbox, so that a page of
// one run can see nothing of another.
package serve

import (
	"archive/zip"
	_ "embed"
	"errors"
	"fmt"
	"html/template"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path"
	"slices"
	"strings"
	"time"
)

//go:embed pages.html
var pagesText string

var pages = template.Must(template.New("").Funcs(template.FuncMap{"href": href}).Parse(pagesText))

// href is the address of a path of the store below a prefix.
func href(prefix, p string) string { return (&url.URL{Path: prefix + p}).String() }

// A Server answers requests about the runs of one store.
type Server struct {
	root  *os.Root
	log   *slog.Logger
	runs  *index
	hosts func(string) bool
}

// New gives a server of the store in root. Unless anyHost, only requests that name
// this machine are answered, so that a page of elsewhere cannot have a browser read
// the store under a name of its own.
func New(root *os.Root, log *slog.Logger, anyHost bool) *Server {
	s := &Server{root: root, log: log, runs: &index{root: root}, hosts: loopbackName}
	if anyHost {
		s.hosts = func(string) bool { return true }
	}
	return s
}

// Loopback reports whether an address to listen on is of this machine alone.
func Loopback(addr string) bool { return loopbackName(addr) }

func loopbackName(hostport string) bool {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = strings.Trim(hostport, "[]")
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// What a browser may do with our own pages, and with what runs have left.
const (
	ownPolicy  = "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
	filePolicy = "sandbox allow-scripts allow-downloads allow-top-navigation-by-user-activation; default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; base-uri 'none'; frame-ancestors 'none'"
)

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", ownPolicy)
	switch {
	case !s.hosts(r.Host):
		http.Error(w, "this page is for the machine that it runs on: open it as http://localhost", http.StatusForbidden)
		return
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		h.Set("Allow", "GET, HEAD")
		http.Error(w, "only GET", http.StatusMethodNotAllowed)
		return
	}
	var err error
	kind, p, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	switch kind {
	case "":
		err = s.list(w, r)
	case "run":
		err = s.files(w, p)
	case "file":
		err = s.file(w, r, p)
	case "zip":
		err = s.zip(w, p)
	default:
		err = fs.ErrNotExist
	}
	if err != nil {
		s.fail(w, r, err)
	}
}

// fail answers with what is wrong, and not with where on this machine.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	code := http.StatusInternalServerError
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrInvalid) || strings.Contains(err.Error(), "path escapes") {
		code = http.StatusNotFound
	}
	if code != http.StatusNotFound {
		s.log.Error("page", "path", r.URL.Path, "error", err)
	}
	w.Header().Set("Content-Security-Policy", ownPolicy)
	http.Error(w, http.StatusText(code), code)
}

// clean gives the path of a thing of the store, or an error for one that is none.
func clean(p string) (string, error) {
	p = strings.TrimSuffix(p, "/")
	if !fs.ValidPath(p) || strings.ContainsRune(p, '\\') || strings.ContainsRune(p, 0) {
		return "", fs.ErrNotExist
	}
	return p, nil
}

// shownRuns bounds the list.
const shownRuns = 500

func (s *Server) list(w http.ResponseWriter, r *http.Request) error {
	all, cut, err := s.runs.list()
	if err != nil {
		return err
	}
	f := filterOf(r.URL.Query())
	chosen := slices.DeleteFunc(slices.Clone(all), func(run Run) bool { return !f.takes(&run) })
	page := map[string]any{
		"Filter": f, "All": len(all), "Chosen": len(chosen), "Runs": chosen[:min(shownRuns, len(chosen))], "More": max(0, len(chosen)-shownRuns), "Cut": cut,
		"Backends": values(all, func(r *Run) []string { return []string{r.Backend} }),
		"Faults":   values(all, func(r *Run) []string { return r.Faults }),
		"Verdicts": values(all, func(r *Run) []string { return []string{r.Verdict} }),
	}
	return s.page(w, "list", page)
}

// values are the different ones of a column, for a filter.
func values(runs []Run, of func(*Run) []string) []string {
	var out []string
	for i := range runs {
		for _, v := range of(&runs[i]) {
			if v != "" && !slices.Contains(out, v) {
				out = append(out, v)
			}
		}
	}
	slices.Sort(out)
	return out
}

// page writes a page of our own. It is made whole first, so that an error is no
// half of one.
func (s *Server) page(w http.ResponseWriter, name string, data any) error {
	var b strings.Builder
	if err := pages.ExecuteTemplate(&b, name, data); err != nil {
		return err
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = io.WriteString(w, b.String()) // a browser that went away is nobody's mistake
	return nil
}

// A fileEntry is a file of a run on its page.
type fileEntry struct {
	Path, Name string
	Size       string
}

// maxFiles bounds the files of one run that are listed or packed.
const maxFiles = 2000

// walk visits the regular files below a folder of the store; what links lead to is
// not among them.
func (s *Server) walk(dir string, visit func(p string, size int64) error) error {
	n := 0
	return fs.WalkDir(s.root.FS(), dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		if n++; n > maxFiles {
			return fs.SkipAll
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		return visit(p, info.Size())
	})
}

func (s *Server) files(w http.ResponseWriter, p string) error {
	dir, err := s.runDir(p)
	if err != nil {
		return err
	}
	var list []fileEntry
	err = s.walk(dir, func(p string, size int64) error {
		list = append(list, fileEntry{p, strings.TrimPrefix(p, dir+"/"), bytesSaid(size)})
		return nil
	})
	if err != nil {
		return err
	}
	run := s.runs.read(dir)
	return s.page(w, "run", map[string]any{"Run": run, "Files": list, "Full": len(list) == maxFiles})
}

// runDir gives the folder of a run, and refuses folders that are none.
func (s *Server) runDir(p string) (string, error) {
	dir, err := clean(p)
	if err != nil {
		return "", err
	}
	if !s.runs.isRun(dir) {
		return "", fs.ErrNotExist
	}
	return dir, nil
}

func bytesSaid(n int64) string {
	switch {
	case n < 1<<10:
		return fmt.Sprintf("%d B", n)
	case n < 1<<20:
		return fmt.Sprintf("%.1f kB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%.1f MB", float64(n)/(1<<20))
}

// types are those of the files that are shown as what they are; everything else is
// text.
var types = map[string]string{".html": "text/html; charset=utf-8", ".svg": "image/svg+xml", ".png": "image/png", ".json": "application/json"}

func (s *Server) file(w http.ResponseWriter, r *http.Request, p string) error {
	name, err := clean(p)
	if err != nil {
		return err
	}
	f, err := s.root.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.IsDir() && s.runs.isRun(name) {
		http.Redirect(w, r, href("/run/", name), http.StatusFound)
		return nil
	}
	if !info.Mode().IsRegular() {
		return fs.ErrNotExist
	}
	kind, ok := types[path.Ext(name)]
	if !ok {
		kind = "text/plain; charset=utf-8"
	}
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Content-Security-Policy", filePolicy)
	http.ServeContent(w, r, "", time.Time{}, f)
	return nil
}

// zip sends a run as one file.
func (s *Server) zip(w http.ResponseWriter, p string) error {
	dir, err := s.runDir(p)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/zip")
	name := strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r == '.' || r == '-' {
			return r
		}
		return '-'
	}, strings.ReplaceAll(dir, "/", "-"))
	w.Header().Set("Content-Disposition", `attachment; filename="`+name+`.zip"`)
	z := zip.NewWriter(w)
	err = s.walk(dir, func(p string, _ int64) error { return s.pack(z, path.Dir(dir), p) })
	if err = errors.Join(err, z.Close()); err != nil {
		s.log.Error("download", "run", dir, "error", err)
		panic(http.ErrAbortHandler) // the answer has begun: let it be seen to be cut short
	}
	return nil
}

func (s *Server) pack(z *zip.Writer, above, p string) error {
	f, err := s.root.Open(p)
	if err != nil {
		return err
	}
	defer f.Close()
	to, err := z.CreateHeader(&zip.FileHeader{Name: strings.TrimPrefix(p, above+"/"), Method: zip.Deflate, Modified: modified(f)})
	if err != nil {
		return err
	}
	_, err = io.Copy(to, f)
	return err
}

func modified(f *os.File) time.Time {
	if info, err := f.Stat(); err == nil {
		return info.ModTime()
	}
	return time.Time{}
}

package report

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/lockcheck/lockcheck/history"
)

// browserWithin bounds one page: a busy machine may take long to start Chromium.
const browserWithin = 3 * time.Minute

// shots is a folder for screenshots, for those who want to look.
var shots = os.Getenv("LOCKCHECK_SHOTS")

// A browser is a headless Chromium with one tab. What a page complains about, and
// whatever it asks the network for, is kept.
type browser struct {
	context.Context
	t        *testing.T
	complain []string
	asked    []string
}

func openBrowser(t *testing.T) *browser {
	t.Helper()
	opts := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.WSURLReadTimeout(browserWithin),
		chromedp.Flag("disable-dev-shm-usage", true), chromedp.Flag("no-proxy-server", true))
	actx, stop := chromedp.NewExecAllocator(t.Context(), opts...)
	ctx, cancel := chromedp.NewContext(actx)
	b := &browser{Context: ctx, t: t}
	t.Cleanup(func() {
		cancel() // which waits for the browser's end
		stop()
	})
	chromedp.ListenTarget(ctx, func(ev any) {
		switch ev := ev.(type) {
		case *runtime.EventConsoleAPICalled:
			b.complain = append(b.complain, fmt.Sprint("console ", ev.Type))
		case *runtime.EventExceptionThrown:
			b.complain = append(b.complain, ev.ExceptionDetails.Error())
		case *log.EventEntryAdded:
			b.complain = append(b.complain, ev.Entry.Text)
		case *network.EventRequestWillBeSent:
			if !strings.HasPrefix(ev.Request.URL, "file:") && !strings.HasPrefix(ev.Request.URL, "data:") {
				b.asked = append(b.asked, ev.Request.URL)
			}
		}
	})
	b.do(log.Enable(), network.Enable())
	return b
}

func (b *browser) do(actions ...chromedp.Action) {
	b.t.Helper()
	if err := chromedp.Run(b, actions...); err != nil {
		b.t.Fatalf("chromium: %v (is it installed? scripts/deps.sh test)", err)
	}
}

// open opens a page of a run directory and waits until its script is through. It
// gives the time from the request to that moment.
func (b *browser) open(file string, width, height int64, dark bool) time.Duration {
	b.t.Helper()
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	begun := time.Now()
	b.do(chromedp.EmulateViewport(width, height),
		emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}),
		chromedp.Navigate("file://"+file))
	if strings.HasSuffix(file, ".html") {
		b.do(chromedp.WaitReady(`html[data-ready="yes"]`, chromedp.ByQuery))
	}
	return time.Since(begun)
}

func (b *browser) shot(name string) {
	b.t.Helper()
	if shots == "" {
		return
	}
	var png []byte
	if strings.HasPrefix(name, "page-") {
		b.do(chromedp.FullScreenshot(&png, 100))
	} else {
		b.do(chromedp.CaptureScreenshot(&png))
	}
	if err := os.WriteFile(filepath.Join(shots, name+".png"), png, 0o644); err != nil {
		b.t.Fatal(err)
	}
}

func eval[T any](b *browser, js string) T {
	b.t.Helper()
	var v T
	b.do(chromedp.Evaluate(js, &v))
	return v
}

// hostileText is what a key or an error may hold.
const hostileText = `</script><script>window.hacked=1</script><img src=x onerror="window.hacked=1">{{.}}"'&amp;` + "\u202e\x1b[31m"

// writeRun writes a run directory with a history in which a paused holder writes
// late, among a number of other orders.
func writeRun(t *testing.T, key, errText string, events int) (dir string, ops []history.Op) {
	t.Helper()
	dir = t.TempDir()
	ops = lateWriter(key, errText, events)
	f, err := os.Create(filepath.Join(dir, "history.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	buf := []byte(`{"lockcheck":1,"ttl":1000000000,"params":{"workers":5}}` + "\n")
	for i := range ops {
		buf = append(history.AppendJSON(buf, &ops[i]), '\n')
		if len(buf) > 1<<20 || i == len(ops)-1 {
			if _, err := f.Write(buf); err != nil {
				t.Fatal(err)
			}
			buf = buf[:0]
		}
	}
	d := &Dir{Path: dir}
	if err := d.WriteJSON("test.json", map[string]any{
		"options": map[string]any{"backend": "redis", "client": key, "store": "none", "nemesis": []string{"pause"}, "ttl": 1e9, "keys": errText},
		"version": errText, "versions": map[string]string{"redis": errText},
	}); err != nil {
		t.Fatal(err)
	}
	return dir, ops
}

// lateWriter is a history of five workers, of at least so many events. In the
// middle of it process 0 is paused beyond its lease and writes late.
func lateWriter(key, errText string, events int) []history.Op {
	rng := rand.New(rand.NewPCG(1, 2))
	var ops []history.Op
	now, grant, value := int64(0), uint64(0), 0
	add := func(after int64, o history.Op) {
		now += after
		o.Time, o.Index = now, len(ops)
		ops = append(ops, o)
	}
	access := func(p history.Process, g uint64) {
		value++
		v := []byte(fmt.Sprint(value))
		add(50e3, history.Op{Process: p, Type: history.Invoke, F: history.Write, Key: key, Grant: history.Some(g), Token: history.Some(g), Value: v})
		add(200e3, history.Op{Process: history.Store, Type: history.OK, F: history.Write, Key: key, Grant: history.Some(g), Token: history.Some(g), Value: v, Seq: history.Some(uint64(len(ops)))})
		add(100e3, history.Op{Process: p, Type: history.OK, F: history.Write, Key: key, Grant: history.Some(g), Token: history.Some(g), Value: v})
	}
	acquire := func(p history.Process) uint64 {
		grant++
		add(int64(rng.IntN(3e6)), history.Op{Process: p, Type: history.Invoke, F: history.Acquire, Key: key, TTL: history.Some[int64](1e9)})
		add(800e3, history.Op{Process: p, Type: history.OK, F: history.Acquire, Key: key, Grant: history.Some(grant), Token: history.Some(grant), Valid: history.Some[int64](1e9)})
		return grant
	}
	refused := func(p history.Process) {
		add(300e3, history.Op{Process: p, Type: history.Invoke, F: history.Acquire, Key: key, TTL: history.Some[int64](1e9)})
		add(400e3, history.Op{Process: p, Type: history.Fail, F: history.Acquire, Key: key, Error: history.ErrHeld})
	}
	release := func(p history.Process, g uint64) {
		add(100e3, history.Op{Process: p, Type: history.Invoke, F: history.Release, Key: key, Grant: history.Some(g)})
		add(300e3, history.Op{Process: p, Type: history.OK, F: history.Release, Key: key, Grant: history.Some(g)})
	}
	order := func(p history.Process) {
		g := acquire(p)
		refused((p + 1) % 4)
		access(p, g)
		release(p, g)
	}
	for len(ops) < events/2 {
		order(history.Process(rng.IntN(4)))
	}
	g := acquire(0)
	add(1e6, history.Op{Process: 0, Type: history.Invoke, F: history.Check, Key: key, Grant: history.Some(g)})
	add(1e6, history.Op{Process: 0, Type: history.OK, F: history.Check, Key: key, Grant: history.Some(g)})
	for _, phase := range []string{history.Asked, history.Done} {
		add(1e6, history.Op{Process: history.Nemesis, Type: history.Info, F: "pause", Value: []byte(`{"fault":1,"phase":"` + phase + `","targets":[0]}`)})
	}
	late := now
	refused(2)
	add(1100e6, history.Op{Process: 4, Type: history.Invoke, F: history.Acquire, Key: key, TTL: history.Some[int64](1e9)})
	add(800e3, history.Op{Process: 4, Type: history.Info, F: history.Acquire, Key: key, Error: errText})
	order(1)
	add(late+1500e6-now, history.Op{Process: history.Nemesis, Type: history.Info, F: "pause", Value: []byte(`{"fault":1,"phase":"healed","targets":[0]}`)})
	value = max(0, value-1)
	access(0, g)
	add(1e6, history.Op{Process: 0, Type: history.Invoke, F: history.Release, Key: key, Grant: history.Some(g)})
	add(300e3, history.Op{Process: 0, Type: history.Fail, F: history.Release, Key: key, Grant: history.Some(g), Error: history.ErrNotHeld})
	for len(ops) < events {
		order(history.Process(rng.IntN(4)))
	}
	return ops
}

func drawn(t *testing.T, dir string) {
	t.Helper()
	for _, err := range Draw(t.Context(), dir) {
		t.Error(err)
	}
}

// The page says what it has to, without a complaint and without the network, in
// light and dark and on a phone; hostileText texts stay text.
func TestPageInChromium(t *testing.T) {
	dir, ops := writeRun(t, hostileText, hostileText, 400)
	drawn(t, dir)
	b := openBrowser(t)
	page := filepath.Join(dir, PageFile)
	b.open(page, 1280, 900, false)
	b.shot("page-light")
	if eval[bool](b, `"hacked" in window`) {
		t.Error("a text of the history ran as a script")
	}
	if n := eval[int](b, `document.querySelectorAll("img").length`); n != 0 {
		t.Errorf("%d images: a text of the history became markup", n)
	}
	body := eval[string](b, `document.body.textContent`)
	for _, want := range []string{`</script><script>window.hacked=1</script>`, "The first anomaly, step by step", "lost-update", "lockcheck run --from"} {
		if !strings.Contains(body, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
	b.zooms()
	b.jumps()
	b.agrees(ops)
	for _, o := range []struct {
		name string
		w    int64
		dark bool
	}{{"dark", 1280, true}, {"phone", 390, false}, {"phone-dark", 390, true}} {
		b.open(page, o.w, 844, o.dark)
		b.shot("page-" + o.name)
		if over := eval[int](b, `document.documentElement.scrollWidth - window.innerWidth`); over > 0 {
			t.Errorf("%s: the page is %d pixels wider than its window", o.name, over)
		}
	}
	if len(b.complain) > 0 {
		t.Errorf("the page complains: %q", b.complain)
	}
	if len(b.asked) > 0 {
		t.Errorf("the page asks the network for %q", b.asked)
	}
}

// shownEvent is an event as it stands in the timeline.
type shownEvent struct {
	Index int     `json:"index"`
	X     float64 `json:"x"`
	Y     float64 `json:"y"`
}

const eventsJS = `[...document.querySelectorAll("#lanes .event")].map(g => {
  const c = g.querySelector("circle:last-of-type"); return {index: +g.dataset.index, x: +c.getAttribute("cx"), y: +c.getAttribute("cy")}})`

func (b *browser) settled() { // the next frame has been drawn
	b.do(chromedp.Evaluate(`new Promise(r => requestAnimationFrame(() => requestAnimationFrame(() => r(true))))`, nil, func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }))
}

func (b *browser) zooms() {
	b.t.Helper()
	b.do(chromedp.Click("#all", chromedp.ByID))
	b.settled()
	whole := eval[string](b, `document.getElementById("said").textContent`)
	b.do(chromedp.Click("#in", chromedp.ByID))
	b.settled()
	if near := eval[string](b, `document.getElementById("said").textContent`); near == whole {
		b.t.Errorf("zooming in changes nothing: %s", near)
	}
	b.do(chromedp.Evaluate(`document.getElementById("lanes").dispatchEvent(new WheelEvent("wheel", {deltaY: -400, clientX: 500, cancelable: true}))`, nil))
	b.settled()
	b.do(chromedp.Click("#all", chromedp.ByID))
	b.settled()
	if back := eval[string](b, `document.getElementById("said").textContent`); back != whole {
		b.t.Errorf("all is %s, and was %s", back, whole)
	}
}

func (b *browser) jumps() {
	b.t.Helper()
	n := eval[int](b, `data.jumps.length`)
	if n == 0 {
		b.t.Fatal("there is no anomaly to jump to")
	}
	for range n {
		b.do(chromedp.Click("#next", chromedp.ByID))
		b.settled()
		said := eval[string](b, `document.getElementById("tip").textContent`)
		var at int
		if _, err := fmt.Sscanf(said[strings.LastIndex(said, "(#")+2:], "%d", &at); err != nil {
			b.t.Fatalf("the jump says %q", said)
		}
		if !eval[bool](b, fmt.Sprintf(`!!document.querySelector('#lanes .event[data-index="%d"]')`, at)) {
			b.t.Errorf("a jump to #%d does not show it: %s", at, said)
		}
	}
	b.do(chromedp.Click("#first li.proof a", chromedp.ByQuery))
	b.settled()
}

// agrees compares the places of what is drawn with the history.
func (b *browser) agrees(ops []history.Op) {
	b.t.Helper()
	b.do(chromedp.Click("#all", chromedp.ByID))
	b.settled()
	shown := eval[[]shownEvent](b, eventsJS)
	if len(shown) < 20 {
		b.t.Fatalf("only %d events are drawn", len(shown))
	}
	width := eval[float64](b, `document.getElementById("lanes").clientWidth`)
	names := eval[[]string](b, `[...document.querySelectorAll("#lanes > text:not(.soft)")].map(t => t.textContent).filter(s => /^(worker|store|server)/.test(s))`)
	from, to := float64(ops[0].Time/1000), float64(ops[len(ops)-1].Time/1000)
	for _, e := range shown {
		o := &ops[e.Index]
		x := 92 + (float64(o.Time/1000)-from)/(to-from)*(width-100)
		if e.X < x-1 || e.X > x+1 {
			b.t.Errorf("#%d at %d ns stands at %.1f, not %.1f", e.Index, o.Time, e.X, x)
		}
		want := "store"
		if o.Process.Worker() {
			want = fmt.Sprintf("worker %d", o.Process%5)
		}
		if lane := names[int((e.Y-26)/46)]; lane != want {
			b.t.Errorf("#%d of %v stands in the lane of %s", e.Index, o.Process, lane)
		}
	}
}

// The pictures open as files of their own, with the same texts in them.
func TestPicturesInChromium(t *testing.T) {
	dir, _ := writeRun(t, hostileText, hostileText, 400)
	drawn(t, dir)
	b := openBrowser(t)
	for _, f := range []string{TimelineFile, LatencyFile, RateFile} {
		b.open(filepath.Join(dir, f), 1120, 700, false)
		b.shot(strings.TrimSuffix(f, ".svg"))
		if eval[bool](b, `"hacked" in window || document.querySelector("parsererror") !== null`) {
			t.Errorf("%s is no drawing", f)
		}
	}
	if len(b.complain) > 0 {
		t.Errorf("the pictures complain: %q", b.complain)
	}
}

// The page stays small and says where it cut. LOCKCHECK_MILLION=1 shows the
// figures for a hundred thousand and a million events, too (make page-size).
func TestPageSize(t *testing.T) {
	sizes := []int{1e3, 1e4}
	if os.Getenv("LOCKCHECK_MILLION") != "" {
		sizes = []int{1e3, 1e5, 1e6}
	}
	b := openBrowser(t)
	for _, n := range sizes {
		dir, _ := writeRun(t, "orders/7", "timeout", n)
		begun := time.Now()
		drawn(t, dir)
		drew := time.Since(begun)
		info, err := os.Stat(filepath.Join(dir, PageFile))
		if err != nil {
			t.Fatal(err)
		}
		opened := b.open(filepath.Join(dir, PageFile), 1280, 900, false)
		script := eval[float64](b, `performance.getEntriesByType("navigation")[0].domComplete`)
		t.Logf("%7d events: report.html %d kB, judged and drawn in %v, open in %v (%.0f ms by the browser's own clock)", n, info.Size()/1000, drew.Round(time.Millisecond), opened.Round(time.Millisecond), script)
		if info.Size() > 2e6 {
			t.Errorf("report.html of %d events has %d bytes: the cap does not hold", n, info.Size())
		}
		if cut := eval[bool](b, `!!document.getElementById("cut")`); cut != (n > 2*reach) {
			t.Errorf("%d events: the page says that it cut: %v", n, cut)
		}
	}
	if len(b.complain) > 0 {
		t.Errorf("the page complains: %q", b.complain)
	}
}

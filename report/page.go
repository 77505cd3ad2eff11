package report

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/lockcheck/lockcheck/checker"
	"github.com/lockcheck/lockcheck/history"
)

//go:embed page
var pageFiles embed.FS

var pageTemplate = template.Must(template.New("page.html").Funcs(template.FuncMap{
	"style":  func() template.CSS { return template.CSS(pageFile("page.css")) },
	"script": func() template.JS { return template.JS(pageFile("page.js")) },
}).ParseFS(pageFiles, "page/page.html"))

// pageFile gives a part of the page that is ours.
func pageFile(name string) string {
	b, err := pageFiles.ReadFile("page/" + name)
	if err != nil {
		panic(err) // it is embedded
	}
	return string(b)
}

// A pageView is what report.html shows. Texts of the history are plain strings:
// the template escapes them.
type pageView struct {
	Title, Verdict, Sentence string
	Reasons                  []string
	Properties               []propertyView
	First                    *firstView
	Availability             []string
	Windows                  [][]string
	Exposure                 []string
	Timeline, Latency, Rate  template.HTML // drawn here, and escaped there
	Data                     timelineData
	Cut                      string
	Rows                     []rowView
	Parameters, Versions     [][2]string
	Again                    string
	Events                   int
}

type propertyView struct {
	Name, Verdict, Reason, Kinds, Says string
	Checked, Anomalies                 int
	Required                           bool
}

type firstView struct {
	Property, Kind, Key, Message string
	Required                     bool
	Steps                        []stepView
}

type stepView struct {
	Index          int
	Time, Who, Did string
	Proof          bool
}

type rowView struct {
	Index                                 int
	Time, Process, Type, F, Key, Rest, Is string
}

// propertySays tells in words what each property asks.
var propertySays = map[string]string{
	checker.Exclusion:    "no two processes believe to hold one lock",
	checker.Lease:        "the lock never promises one key to two",
	checker.Fencing:      "tokens grow, and the store applied none that was overtaken",
	checker.Release:      "nobody frees or renews what another holds",
	checker.Data:         "no stale write, no lost update",
	checker.Progress:     "who tries is granted the lock",
	checker.Linearizable: "some order of the operations explains the history",
}

// page writes report.html.
func (d *drawing) page(w io.Writer) error {
	v := pageView{
		Title: d.title(), Verdict: d.res.Verdict.String(), Sentence: d.sentence(), Reasons: d.reasons(),
		Properties: d.propertyViews(), Availability: Availability(d.res.Availability), Exposure: d.exposureLines(),
		Parameters: pairs(d.about.Options), Versions: d.versions(), Again: d.again(), Events: d.events,
	}
	for _, f := range []struct {
		draw func(io.Writer) error
		into *template.HTML
	}{{d.timeline, &v.Timeline}, {d.latency, &v.Latency}, {d.rate, &v.Rate}} {
		var b bytes.Buffer
		if err := f.draw(&b); err != nil {
			return err
		}
		*f.into = template.HTML(b.String())
	}
	if a := d.res.Availability; a != nil {
		for _, u := range a.Unavailable[:min(len(a.Unavailable), 20)] {
			v.Windows = append(v.Windows, []string{clip(u.Key, 60), Took(u.From), Took(u.To - u.From), strings.Trim(fmt.Sprint(u.Faults), "[]")})
		}
	}
	v.First = d.firstView()
	v.Data, v.Cut = d.timelineData()
	v.Rows = d.rowViews()
	return pageTemplate.Execute(w, v)
}

func (d *drawing) reasons() []string {
	var out []string
	for _, r := range d.res.Reasons {
		out = append(out, clip(r, maxText))
	}
	return out
}

// sentence says the verdict in words.
func (d *drawing) sentence() string {
	var bad, unknown []string
	for _, n := range d.res.Required {
		switch p := d.res.Properties[n]; {
		case p == nil || p.Verdict == checker.Unknown:
			unknown = append(unknown, n)
		case p.Verdict == checker.Invalid:
			bad = append(bad, n)
		}
	}
	switch {
	case len(bad) > 0:
		return "The lock broke its promise: " + strings.Join(bad, ", ") + "."
	case len(unknown) > 0:
		return "Not decided: " + strings.Join(unknown, ", ") + "."
	case len(d.res.Reasons) > 0:
		return "No anomaly was found, but the run proves nothing."
	}
	said := "The lock kept all that was asked of it."
	if d.first != nil {
		said += " It did not keep " + d.property + ", which no verdict was asked of."
	}
	return said
}

func (d *drawing) propertyViews() []propertyView {
	var out []propertyView
	for _, n := range shown(d.res) {
		v := propertyView{Name: n, Says: propertySays[n], Required: slices.Contains(d.res.Required, n), Verdict: "not judged"}
		if p := d.res.Properties[n]; p != nil {
			v.Verdict, v.Reason, v.Checked, v.Anomalies = p.Verdict.String(), clip(p.Reason, maxText), p.Checked, p.AnomalyCount
			if p.AnomalyCount > 0 {
				v.Kinds = kinds(p)
			}
		}
		out = append(out, v)
	}
	return out
}

func (d *drawing) exposureLines() []string {
	var out []string
	for _, s := range []string{lockExposure(&d.res.Exposure), faultExposure(&d.res.Exposure), dataExposure(&d.res.Exposure)} {
		if s != "" {
			out = append(out, s)
		}
	}
	return out
}

// maxSteps bounds the story of an anomaly.
const maxSteps = 40

// firstView tells the first anomaly step by step: the grants that it is about,
// the faults on their way, and the events that prove it.
func (d *drawing) firstView() *firstView {
	a := d.first
	if a == nil {
		return nil
	}
	f := &firstView{Property: d.property, Kind: kindOf(a), Key: clip(a.Key, 200), Message: clip(a.Message, maxText), Required: slices.Contains(d.res.Required, d.property)}
	sc := d.scene()
	pic, held, ops := sc.pic, sc.held, sc.ops
	worth := map[int]bool{}
	for _, i := range slices.Concat(a.Ops, a.Faults) {
		worth[i] = true
	}
	for _, h := range held {
		worth[h.okIdx] = true
	}
	if pic.flight.on {
		worth[pic.flight.idx] = true
	}
	for i := range ops {
		o := &ops[i]
		if o.Process == history.Nemesis && o.Time >= pic.from && o.Time <= pic.to {
			worth[o.Index] = true
		}
		if !worth[o.Index] || len(f.Steps) >= maxSteps {
			continue
		}
		who, did := describe(o)
		if o.Process == history.Nemesis {
			who, did = "fault", faultWords(o)
		}
		f.Steps = append(f.Steps, stepView{o.Index, fmt.Sprintf("%.1f", float64(o.Time)/1e6), who, did, slices.Contains(a.Ops, o.Index)})
	}
	return f
}

// faultWords says an event of a fault.
func faultWords(o *history.Op) string {
	v, _ := history.FaultOf(o)
	var targets []string
	for _, t := range v.Targets {
		targets = append(targets, strings.Trim(string(t), `"`))
	}
	words := map[string]string{
		history.Asked: "is asked for", history.Done: "is in force", history.HealAsked: "is being healed", history.Healed: "is over", history.Skipped: "was skipped",
	}
	said := clip(o.F, 30)
	if len(targets) > 0 {
		said += " of " + clip(strings.Join(targets, ", "), 40)
	}
	return said + " " + words[v.Phase]
}

func pairs(m map[string]any) [][2]string {
	var out [][2]string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		v := fmt.Sprint(m[k])
		if n, ok := m[k].(float64); ok {
			v = strconv.FormatFloat(n, 'f', -1, 64)
			switch k {
			case "ttl", "interval", "duration", "hold", "retry_delay", "wait", "node_timeout":
				v = Took(n / 1e6)
			}
		}
		if l, ok := m[k].([]any); ok {
			v = strings.Trim(fmt.Sprint(l), "[]")
		}
		if v != "" && v != "<nil>" {
			out = append(out, [2]string{k, clip(v, 300)})
		}
	}
	return out
}

func (d *drawing) versions() [][2]string {
	out := [][2]string{{"lockcheck", clip(d.about.Version, 100)}, {"started", clip(d.about.Started, 60)}, {"network", clip(d.about.Network, 60)}}
	for _, k := range slices.Sorted(maps.Keys(d.about.Versions)) {
		out = append(out, [2]string{clip(k, 60), clip(d.about.Versions[k], 300)})
	}
	out = append(out, pairs(d.about.Machine)...)
	return slices.DeleteFunc(out, func(p [2]string) bool { return p[1] == "" })
}

// rowsShown is how many events around the first anomaly stand in the page.
const rowsShown = 160

// rowViews gives the events around the first anomaly, and those that the story
// links to.
func (d *drawing) rowViews() []rowView {
	ops := d.near.withProof()
	center := 0
	for i := range ops {
		if d.near.rank > centerStart && ops[i].Index <= d.near.ops[d.near.center].Index {
			center = i
		}
	}
	keep := map[int]bool{}
	for i := max(0, center-rowsShown/2); i < min(len(ops), center+rowsShown/2); i++ {
		keep[ops[i].Index] = true
	}
	if f := d.firstView(); f != nil {
		for _, s := range f.Steps {
			keep[s.Index] = true
		}
	}
	var out []rowView
	for i := range ops {
		if o := &ops[i]; keep[o.Index] {
			out = append(out, rowView{o.Index, fmt.Sprintf("%.3f", float64(o.Time)/1e6), o.Process.String(), o.Type.String(), clip(o.F, 30), clip(o.Key, 40), rest(o), d.wrong[o.Index]})
		}
	}
	return out
}

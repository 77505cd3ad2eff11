"use strict";
// Draws the timeline that can be zoomed. Times are microseconds. All text goes
// through textContent: nothing of the history becomes markup.
(() => {
  const NS = "http://www.w3.org/2000/svg";
  const LEFT = 92, TOP = 26, ROW = 46, SHOWN = 1500;
  const lanes = document.getElementById("lanes"), overview = document.getElementById("overview");
  const tip = document.getElementById("tip"), said = document.getElementById("said");
  let width = 0, view = {a: data.from, b: Math.max(data.to, data.from + 1)}, chosen = -1, jump = -1;

  const el = (parent, name, attrs, text) => {
    const e = document.createElementNS(NS, name);
    for (const k in attrs) e.setAttribute(k, attrs[k]);
    if (text !== undefined) e.textContent = text;
    parent.appendChild(e);
    return e;
  };
  const x = t => LEFT + (t - view.a) / (view.b - view.a) * (width - LEFT - 8);
  const clampX = t => Math.min(Math.max(x(t), LEFT), width - 8);
  const ms = t => (t / 1000).toLocaleString("en", {maximumFractionDigits: 3, useGrouping: false}) + " ms";

  function set(a, b) {
    const least = 20, span = Math.max(b - a, least), from = data.from, to = Math.max(data.to, from + least);
    if (span >= to - from) { a = from; b = to; }
    else {
      const mid = (a + b) / 2;
      a = Math.min(Math.max(mid - span / 2, from), to - span);
      b = a + span;
    }
    view = {a, b};
    schedule();
  }
  const zoom = (by, at) => {
    at = at === undefined ? (view.a + view.b) / 2 : at;
    set(at - (at - view.a) * by, at + (view.b - at) * by);
  };

  let due = false;
  function schedule() { if (!due) { due = true; requestAnimationFrame(() => { due = false; draw(); }); } }

  function step(span, about) {
    let s = Math.pow(10, Math.floor(Math.log10(span / about)));
    for (const m of [1, 2, 5, 10]) if (span / (s * m) <= about) return s * m;
    return s;
  }

  function draw() {
    width = lanes.clientWidth || 800;
    const height = TOP + ROW * data.lanes.length + 8;
    lanes.replaceChildren();
    lanes.setAttribute("viewBox", `0 0 ${width} ${height}`);
    lanes.style.height = height + "px";
    drawTimes(height);
    data.lanes.forEach((l, i) => {
      el(lanes, "line", {x1: 0, x2: width, y1: TOP + ROW * i, y2: TOP + ROW * i, style: "stroke:var(--line)"});
      el(lanes, "text", {x: 10, y: TOP + ROW * i + 26}, l.name);
    });
    drawBands();
    drawHolds();
    drawEvents();
    drawOverview();
  }

  function drawTimes(height) {
    const s = step(view.b - view.a, Math.max(2, (width - LEFT) / 110));
    for (let t = Math.ceil(view.a / s) * s; t <= view.b; t += s) {
      const at = x(t);
      el(lanes, "line", {x1: at, x2: at, y1: 18, y2: height, style: "stroke:var(--line)"});
      if (at < width - 30) el(lanes, "text", {x: at, y: 13, "text-anchor": "middle", class: "soft"}, ms(t));
    }
  }

  function drawBands() {
    for (const f of data.faults) {
      if (f.b < view.a || f.a > view.b) continue;
      const a = clampX(f.a), b = clampX(f.b);
      const y = f.l < 0 ? TOP : TOP + ROW * f.l, h = f.l < 0 ? ROW * data.lanes.length : ROW;
      const band = el(lanes, "rect", {x: a, y, width: Math.max(b - a, 2), height: h, class: "fault", style: "fill:var(--fault);opacity:.22"});
      el(band, "title", {}, `${f.s}, ${ms(f.a)} to ${ms(f.b)}`);
      if (b - a > f.s.length * 7) el(lanes, "text", {x: (a + b) / 2, y: y + ROW - 4, "text-anchor": "middle", class: "soft"}, f.s);
    }
    for (const w of data.lost) {
      if (w[1] < view.a || w[0] > view.b) continue;
      el(lanes, "rect", {x: clampX(w[0]), y: 18, width: Math.max(clampX(w[1]) - clampX(w[0]), 1), height: 6, style: "fill:var(--bad);opacity:.45"});
    }
  }

  function drawHolds() {
    for (const h of data.holds) {
      const y = TOP + ROW * h.l;
      for (const v of h.v || []) {
        if (v[1] < view.a || v[0] > view.b) continue;
        el(lanes, "rect", {x: clampX(v[0]), y: y + 39, width: Math.max(clampX(v[1]) - clampX(v[0]), 1), height: 3, style: "fill:var(--lease)"});
      }
      if (h.b < view.a || h.a > view.b) continue;
      const a = clampX(h.a), b = clampX(h.b);
      const bar = el(lanes, "rect", {x: a, y: y + 24, width: Math.max(b - a, 1), height: 13, rx: 2, class: "hold", "data-index": h.i, style: "fill:var(--section)"});
      bar.addEventListener("click", () => { tip.textContent = `held: ${h.s}, ${ms(h.a)} to ${ms(h.b)} (#${h.i})`; });
      if (b - a > h.s.length * 6.6) el(lanes, "text", {x: a + 5, y: y + 34, style: "fill:#fff;font-size:11px;pointer-events:none"}, h.s);
    }
  }

  function drawEvents() {
    const inView = data.events.filter(e => e.t >= view.a && e.t <= view.b);
    const many = inView.length > SHOWN;
    const lastX = {};
    let left = 0;
    for (const e of inView) {
      const at = x(e.t), must = e.w || e.i === chosen || e.m === "✗";
      if (!must && (many || at - (lastX[e.l] === undefined ? -99 : lastX[e.l]) < 3)) { left++; continue; }
      if (!must) lastX[e.l] = at;
      const y = TOP + ROW * e.l + 12;
      const g = el(lanes, "g", {class: "event", "data-index": e.i, "data-time": e.t, style: "cursor:pointer"});
      if (e.w || e.i === chosen) el(g, "circle", {cx: at, cy: y, r: 9, style: "fill:none;stroke:var(--bad);stroke-width:" + (e.i === chosen ? 2.5 : 1.2)});
      el(g, "circle", {cx: at, cy: y, r: e.m === "x" ? 3 : 6.5, style: `fill:var(--${e.c})`});
      if (e.m !== "x") el(g, "text", {x: at, y: y + 3.5, "text-anchor": "middle", style: "fill:var(--paper);font-size:9.5px;font-weight:700"}, e.m);
      el(g, "title", {}, `#${e.i} ${ms(e.t)}: ${e.s}${e.w ? " (" + e.w + ")" : ""}`);
      g.addEventListener("click", () => choose(e));
    }
    said.textContent = `${ms(view.a)} to ${ms(view.b)}` + (left ? `; ${left} of ${inView.length} events need a closer look to be drawn` : "");
  }

  function drawOverview() {
    overview.replaceChildren();
    overview.setAttribute("viewBox", `0 0 ${width} 46`);
    const w = width - LEFT - 8, top = Math.max(1, ...data.rates), last = Math.max(data.last, 1), n = data.rates.length;
    const at = t => LEFT + t / last * w;
    el(overview, "text", {x: 10, y: 27, class: "soft"}, "grants/s");
    for (const f of data.faults) el(overview, "rect", {x: at(f.a), y: 0, width: Math.max(at(f.b) - at(f.a), 1), height: 46, style: "fill:var(--fault);opacity:.18"});
    let d = "";
    data.rates.forEach((v, i) => { d += (i ? "L" : "M") + (LEFT + i / n * w).toFixed(1) + " " + (42 - 36 * v / top).toFixed(1) + "H" + (LEFT + (i + 1) / n * w).toFixed(1); });
    el(overview, "path", {d, style: "fill:none;stroke:var(--ok);stroke-width:1.4"});
    for (const j of data.jumps) el(overview, "rect", {x: at(j.t) - 1, y: 0, width: 2, height: 46, style: "fill:var(--bad)"});
    el(overview, "rect", {x: at(view.a), y: .5, width: Math.max(at(view.b) - at(view.a), 2), height: 45, style: "fill:var(--ink);fill-opacity:.07;stroke:var(--soft)"});
  }

  function choose(e) {
    chosen = e.i;
    tip.textContent = `#${e.i} at ${ms(e.t)}: ${e.s}${e.w ? " — " + e.w : ""}`;
    schedule();
  }

  function jumpTo(i) {
    if (!data.jumps.length) { said.textContent = "There is no anomaly to jump to."; return; }
    jump = (i + data.jumps.length) % data.jumps.length;
    const j = data.jumps[jump], span = Math.min(view.b - view.a, Math.max((data.to - data.from) / 40, 4000));
    chosen = j.i;
    set(j.t - span / 2, j.t + span / 2);
    tip.textContent = `${jump + 1} of ${data.jumps.length}: ${j.s}` + (j.i >= 0 ? ` (#${j.i})` : "");
  }

  function jumpToIndex(i) {
    const e = data.events.find(e => e.i === i);
    if (!e) return;
    const span = Math.min(view.b - view.a, Math.max((data.to - data.from) / 40, 4000));
    set(e.t - span / 2, e.t + span / 2);
    choose(e);
  }

  const on = (id, f) => document.getElementById(id).addEventListener("click", f);
  on("in", () => zoom(.5));
  on("out", () => zoom(2));
  on("all", () => set(data.from, data.to));
  on("next", () => jumpTo(jump + 1));
  on("prev", () => jumpTo(jump < 0 ? -1 : jump - 1));
  document.addEventListener("click", ev => {
    const a = ev.target.closest && ev.target.closest("[data-jump]");
    if (a) jumpToIndex(Number(a.dataset.jump));
  });
  lanes.addEventListener("keydown", ev => {
    const k = {"+": () => zoom(.5), "-": () => zoom(2), "0": () => set(data.from, data.to), n: () => jumpTo(jump + 1), p: () => jumpTo(jump < 0 ? -1 : jump - 1),
      ArrowLeft: () => set(view.a - (view.b - view.a) / 5, view.b - (view.b - view.a) / 5), ArrowRight: () => set(view.a + (view.b - view.a) / 5, view.b + (view.b - view.a) / 5)}[ev.key];
    if (k) { ev.preventDefault(); k(); }
  });
  const timeAt = px => view.a + (px - LEFT) / (width - LEFT - 8) * (view.b - view.a);
  lanes.addEventListener("wheel", ev => {
    ev.preventDefault();
    zoom(Math.exp(Math.max(-1, Math.min(1, ev.deltaY / 200))), timeAt(ev.clientX - lanes.getBoundingClientRect().left));
  }, {passive: false});
  const fingers = new Map();
  lanes.addEventListener("pointerdown", ev => { fingers.set(ev.pointerId, ev.clientX); });
  window.addEventListener("pointermove", ev => {
    if (!fingers.has(ev.pointerId)) return;
    const before = [...fingers.values()];
    fingers.set(ev.pointerId, ev.clientX);
    const now = [...fingers.values()], per = (view.b - view.a) / (width - LEFT - 8);
    if (now.length === 1) { const by = (before[0] - now[0]) * per; if (by) set(view.a + by, view.b + by); }
    else if (now.length === 2) zoom(Math.abs(before[0] - before[1]) / Math.max(Math.abs(now[0] - now[1]), 1), timeAt((now[0] + now[1]) / 2 - lanes.getBoundingClientRect().left));
  });
  for (const end of ["pointerup", "pointercancel"]) window.addEventListener(end, ev => fingers.delete(ev.pointerId));
  overview.addEventListener("click", ev => {
    const t = (ev.clientX - overview.getBoundingClientRect().left - LEFT) / (width - LEFT - 8) * data.last, half = (view.b - view.a) / 2;
    set(t - half, t + half);
  });
  window.addEventListener("resize", schedule);
  draw();
  if (data.jumps.length) jumpTo(data.first);
  document.documentElement.dataset.ready = "yes";
})();

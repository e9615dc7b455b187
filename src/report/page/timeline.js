"use strict";
/*
 * One request under several ways of sharing: bars on a time axis that can be moved and enlarged, and a table of where
 * the request's time went.
 *
 *   hb.timeline(parent, data)
 *     data.programs  [{name, high}], the index is the `program` of a span
 *     data.names     texts, the index is the `name` of a span
 *     data.slo_ns    may be null
 *     data.shown     indices of the modes shown first
 *     data.modes     [{name, latency_ns, from_ns, to_ns, spans}], times from the request's arrival;
 *                    spans: [kind, program, start_ns, length_ns, name]; kinds: hb.timeline.KINDS
 * A kernel that had the GPU several times, because others had it in between, has a span for each time.
 */
(() => {
  const WIDTH = 960, LEFT = 190, RIGHT = 950, TOP = 26, ROW = 24, LANES_MAX = 3;
  const [REQUEST, KERNEL, COPY, SWITCH, TAKEOVER, GATE] = [0, 1, 2, 3, 4, 5];
  /* Rows of a program from top to bottom, with the kinds of spans in them. */
  const ROWS = [
    { name: "requests", type: "request", kinds: [REQUEST] },
    { name: "takeovers", type: "takeover", kinds: [TAKEOVER] },
    { name: "switches to it", type: "switch", kinds: [SWITCH] },
    { name: "waits at the gate", type: "gate", kinds: [GATE] },
    { name: "kernels, copies", type: "work", kinds: [KERNEL, COPY] }];

  const time = ns => Math.abs(ns) >= 1e6 ? (ns / 1e6).toFixed(3) + " ms" : (ns / 1e3).toFixed(3) + " µs";

  /* The rows that have a span under some mode: [{group, name, type, kinds, program}]. */
  const findRows = data => data.programs.flatMap((program, index) => ROWS
    .filter(row => data.modes.some(mode => mode.spans.some(([kind, owner]) => owner === index && row.kinds.includes(kind))))
    .map(row => ({ ...row, group: program.name, program: index,
      type: row.type === "work" ? (program.high ? "high" : "low") : row.type })));

  /* The spans with a row number: [row, start, length, name, is a copy]. */
  const placeSpans = (rows, spans) => spans.map(([kind, program, start, length, name]) =>
    [rows.findIndex(row => row.program === program && row.kinds.includes(kind)), start, length, name, kind === COPY]);

  /* Overlapping spans of a row (requests that wait) go into lanes. */
  const findLanes = (rows, spans) => {
    const ends = rows.map(() => []);
    return spans.map(([row, start, length]) => {
      let lane = ends[row].findIndex(end => end <= start);
      if (lane < 0) lane = Math.min(ends[row].length, LANES_MAX - 1);
      ends[row][lane] = start + length;
      return lane;
    });
  };

  const findStep = span => {
    const raw = span / 8, power = 10 ** Math.floor(Math.log10(raw));
    return [1, 2, 5, 10].find(m => m * power >= raw) * power;
  };

  class Panel {
    constructor(parent, data, rows, label, index) {
      Object.assign(this, { data, rows });
      this.svg = hb.shape("svg", { class: "lanes", viewBox: `0 0 ${WIDTH} 200`, role: "img", tabindex: 0 });
      this.output = hb.element("output");
      const select = hb.element("select", { "aria-label": label });
      data.modes.forEach((mode, i) => select.add(new Option(mode.name, i, i === index, i === index)));
      select.addEventListener("change", () => this.show(+select.value));
      const buttons = [["left", "earlier", "←"], ["right", "later", "→"], ["in", "zoom in", "+"], ["out", "zoom out", "−"], ["all", "all", "all"]]
        .map(([action, name, sign]) => {
          const button = hb.element("button", { type: "button", "aria-label": name }, sign);
          button.addEventListener("click", () => this.act(action));
          return button;
        });
      parent.append(hb.element("div", { class: "panel" },
        hb.element("div", { class: "bar" }, select, this.output, ...buttons), this.svg));
      this.svg.addEventListener("keydown", event => {
        const action = { ArrowLeft: "left", ArrowRight: "right", "+": "in", "=": "in", "-": "out", "0": "all" }[event.key];
        if (!action) return;
        event.preventDefault();
        this.act(action);
      });
      this.listenToDrags();
      this.show(index);
    }

    show(index) {
      const mode = this.mode = this.data.modes[index];
      this.spans = placeSpans(this.rows, mode.spans);
      this.laneOf = findLanes(this.rows, this.spans);
      this.view = [mode.from_ns, mode.to_ns];
      const outcome = this.data.slo_ns && mode.latency_ns > this.data.slo_ns ? ", over the SLO" : "";
      this.output.textContent = "done " + time(mode.latency_ns) + " after its arrival" + outcome;
      this.draw();
    }

    act(action) {
      const [from, to] = this.view, span = to - from, middle = (from + to) / 2;
      if (action === "all") this.view = [this.mode.from_ns, this.mode.to_ns];
      else if (action === "in") this.view = [middle - span / 4, middle + span / 4];
      else if (action === "out") this.view = [middle - span, middle + span];
      else this.view = [from, to].map(t => t + (action === "left" ? -span / 4 : span / 4));
      this.draw();
    }

    listenToDrags() {
      let last = null;
      const perPixel = () => (this.view[1] - this.view[0]) / ((RIGHT - LEFT) / WIDTH * this.svg.clientWidth);
      this.svg.addEventListener("pointerdown", event => { last = event.clientX; });
      window.addEventListener("pointerup", () => { last = null; });
      window.addEventListener("pointermove", event => {
        if (last === null) return;
        const by = (last - event.clientX) * perPixel();
        last = event.clientX;
        this.view = this.view.map(t => t + by);
        this.draw();
      });
    }

    limitView() {
      const { from_ns: from, to_ns: to } = this.mode;
      const span = Math.min(Math.max(this.view[1] - this.view[0], 2000), to - from);
      const start = Math.min(Math.max(this.view[0], from), to - span);
      this.view = [start, start + span];
    }

    drawAxis(x, bottom) {
      const [from, to] = this.view, by = findStep(to - from), milli = by >= 1e5;
      const digits = Math.max(0, Math.ceil(-Math.log10(by / (milli ? 1e6 : 1e3)) - 1e-9));
      for (let t = Math.ceil(from / by) * by; t <= to; t += by) {
        this.svg.append(hb.shape("line", { class: "grid", x1: x(t), x2: x(t), y1: TOP, y2: bottom }));
        if (x(t) > RIGHT - 22) continue;
        this.svg.append(hb.shape("text", { class: "tick", x: x(t), y: bottom + 17, "text-anchor": "middle" },
          (t / (milli ? 1e6 : 1e3)).toFixed(digits)));
      }
      this.svg.append(hb.shape("text", { class: "tick", x: LEFT - 12, y: bottom + 17, "text-anchor": "end" },
        (milli ? "ms" : "µs") + " after the arrival"));
    }

    drawMarks(x, bottom) {
      const marks = [[0, "arrival"], [this.mode.latency_ns, "end"]];
      if (this.data.slo_ns) marks.push([this.data.slo_ns, "SLO"]);
      let free = -Infinity;
      for (const [t, name] of marks.sort((a, b) => a[0] - b[0])) {
        if (t < this.view[0] || t > this.view[1]) continue;
        this.svg.append(hb.shape("line", { class: "mark", x1: x(t), x2: x(t), y1: TOP - 6, y2: bottom }));
        const at = Math.max(x(t), free);
        this.svg.append(hb.shape("text", { x: at, y: TOP - 11, "text-anchor": "middle" }, name));
        free = at + 52;
      }
    }

    drawLabels(heights) {
      let y = TOP, last = "";
      this.rows.forEach((row, i) => {
        if (row.group !== last)
          this.svg.append(hb.shape("text", { x: 0, y: y + 11, "font-weight": 600 },
            row.group.length > 26 ? row.group.slice(0, 25) + "…" : row.group));
        last = row.group;
        this.svg.append(hb.shape("text", { class: "sub", x: LEFT - 12, y: y + heights[i] - 8, "text-anchor": "end" }, row.name));
        y += heights[i];
      });
    }

    rowClass(row, start) {
      const type = this.rows[row].type;
      return type === "request" && start !== 0 ? "other" : type;
    }

    drawBar(i, x, tops, heights) {
      const [row, start, length, name, copy] = this.spans[i];
      const [from, to] = this.view;
      if (start > to || start + length < from) return;
      const left = x(Math.max(start, from)), right = x(Math.min(start + length, to));
      const count = Math.max(1, Math.min(LANES_MAX, this.lanesIn[row]));
      const height = (heights[row] - 8) / count;
      const rect = hb.shape("rect", {
        class: "k-" + (copy ? "copy" : this.rowClass(row, start)), x: left.toFixed(2),
        width: Math.max(right - left - (right - left > 3 ? .5 : 0), .6).toFixed(2),
        y: (tops[row] + 4 + height * this.laneOf[i]).toFixed(1), height: (height - (count > 1 ? 1 : 0)).toFixed(1) });
      rect.append(hb.shape("title", {}, this.data.names[name] + "\n" + time(length) + ", from " + time(start)));
      this.svg.append(rect);
    }

    draw() {
      this.limitView();
      this.lanesIn = this.rows.map(() => 1);
      this.spans.forEach(([row], i) => { this.lanesIn[row] = Math.max(this.lanesIn[row], this.laneOf[i] + 1); });
      const groups = this.rows.map((row, i) => i === 0 || this.rows[i - 1].group !== row.group);
      const heights = this.rows.map((row, i) => (groups[i] ? ROW + 16 : ROW));
      const tops = []; let y = TOP;
      heights.forEach((height, i) => { tops.push(y + (groups[i] ? 16 : 0)); y += height; });
      const inner = heights.map(() => ROW);
      this.svg.replaceChildren();
      this.svg.setAttribute("viewBox", `0 0 ${WIDTH} ${y + 26}`);
      const [from, to] = this.view, x = t => LEFT + (t - from) / (to - from) * (RIGHT - LEFT);
      this.svg.append(hb.shape("title", {}, "Timeline of one request under " + this.mode.name));
      this.svg.append(hb.shape("desc", {}, "Rows of bars, one a kernel, switch, takeover or wait; the table below sums them up."));
      this.drawAxis(x, y);
      this.spans.forEach((span, i) => this.drawBar(i, x, tops, inner));
      this.drawLabels(heights);
      this.drawMarks(x, y);
    }
  }

  const overlap = (start, length, latency) => Math.max(0, Math.min(start + length, latency) - Math.max(start, 0));

  /* Where the time between a request's arrival and its end went, in ns; `switches` is a number of context switches. */
  const findCosts = mode => {
    const costs = { own: 0, others: 0, switching: 0, switches: 0, takeover: 0, gate: 0 };
    for (const [kind, program, start, length] of mode.spans) {
      const ns = overlap(start, length, mode.latency_ns), own = program === 0;
      if (kind === KERNEL || kind === COPY) costs[own ? "own" : "others"] += ns;
      if (kind === SWITCH) costs.switching += ns;
      if (kind === SWITCH && ns > 0) costs.switches++;
      if (kind === TAKEOVER && own) costs.takeover += ns;
      if (kind === GATE && !own) costs.gate += ns;
    }
    return costs;
  };

  const costsTable = data => hb.table({
    head: [["this request", ["latency", hb.element("br"), "ms"], ["its own", hb.element("br"), "kernels, ms"],
      ["kernels of", hb.element("br"), "others, ms"], ["context", hb.element("br"), "switches"], ["switching", hb.element("br"), "ms"],
      ["takeovers", hb.element("br"), "ms"], ["others at", hb.element("br"), "the gate, ms"]].map(text => ({ text }))],
    rows: data.modes.map(mode => {
      const costs = findCosts(mode), ms = ns => (ns / 1e6).toFixed(3);
      return [mode.name, ms(mode.latency_ns), ms(costs.own), ms(costs.others), String(costs.switches), ms(costs.switching),
        ms(costs.takeover), ms(costs.gate)];
    }) });

  hb.timeline = (parent, data) => {
    const rows = findRows(data);
    data.shown.forEach((index, i) => new Panel(parent, data, rows, `sharing mode of timeline ${i + 1}`, index));
    parent.append(costsTable(data));
  };
  hb.timeline.KINDS = ["request", "kernel", "copy", "switch", "takeover", "gate"];
})();

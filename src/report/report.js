"use strict";
/* Draws the timelines from the JSON in the page. Without scripts the table below them stands alone. */
(() => {
  const source = document.getElementById("timeline-data");
  if (!source) return;
  const data = JSON.parse(source.textContent);
  const SVG = "http://www.w3.org/2000/svg";
  const WIDTH = 960, LEFT = 190, RIGHT = 950, TOP = 26, ROW = 24, LANES_MAX = 3;

  const element = (name, attributes, text) => {
    const node = document.createElementNS(SVG, name);
    for (const key in attributes) node.setAttribute(key, attributes[key]);
    if (text !== undefined) node.textContent = text;
    return node;
  };
  const time = ns => Math.abs(ns) >= 1e6 ? (ns / 1e6).toFixed(3) + " ms" : (ns / 1e3).toFixed(3) + " µs";

  /* Overlapping spans of a row (requests that wait) go into lanes. */
  const lanes = mode => {
    const ends = data.rows.map(() => []);
    return mode.spans.map(([row, start, length]) => {
      let lane = ends[row].findIndex(end => end <= start);
      if (lane < 0) lane = Math.min(ends[row].length, LANES_MAX - 1);
      ends[row][lane] = start + length;
      return lane;
    });
  };

  const step = span => {
    const raw = span / 8, power = 10 ** Math.floor(Math.log10(raw));
    return [1, 2, 5, 10].find(m => m * power >= raw) * power;
  };

  class Panel {
    constructor(root, index) {
      this.root = root;
      this.svg = root.querySelector("svg");
      this.select = root.querySelector("select");
      this.output = root.querySelector("output");
      data.modes.forEach((mode, i) => this.select.add(new Option(mode.name, i, i === index, i === index)));
      this.select.addEventListener("change", () => this.show(+this.select.value));
      for (const button of root.querySelectorAll("button"))
        button.addEventListener("click", () => this.act(button.value));
      this.svg.addEventListener("keydown", event => {
        const action = { ArrowLeft: "left", ArrowRight: "right", "+": "in", "=": "in", "-": "out", "0": "all" }[event.key];
        if (!action) return;
        event.preventDefault();
        this.act(action);
      });
      this.drag();
      this.show(index);
    }

    show(index) {
      this.mode = data.modes[index];
      this.laneOf = lanes(this.mode);
      this.view = [this.mode.from, this.mode.to];
      const outcome = this.mode.latency > data.slo && data.slo ? ", over the SLO" : "";
      this.output.textContent = "done " + time(this.mode.latency) + " after its arrival" + outcome;
      this.draw();
    }

    act(action) {
      const [from, to] = this.view, span = to - from, middle = (from + to) / 2;
      if (action === "all") this.view = [this.mode.from, this.mode.to];
      else if (action === "in") this.view = [middle - span / 4, middle + span / 4];
      else if (action === "out") this.view = [middle - span, middle + span];
      else this.view = [from, to].map(t => t + (action === "left" ? -span / 4 : span / 4));
      this.draw();
    }

    drag() {
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

    clamp() {
      const { from, to } = this.mode;
      const span = Math.min(Math.max(this.view[1] - this.view[0], 2000), to - from);
      const start = Math.min(Math.max(this.view[0], from), to - span);
      this.view = [start, start + span];
    }

    axis(x, bottom) {
      const [from, to] = this.view, by = step(to - from), milli = by >= 1e5;
      const digits = Math.max(0, Math.ceil(-Math.log10(by / (milli ? 1e6 : 1e3)) - 1e-9));
      for (let t = Math.ceil(from / by) * by; t <= to; t += by) {
        this.svg.append(element("line", { class: "grid", x1: x(t), x2: x(t), y1: TOP, y2: bottom }));
        if (x(t) > RIGHT - 22) continue;
        this.svg.append(element("text", { class: "tick", x: x(t), y: bottom + 17, "text-anchor": "middle" },
          (t / (milli ? 1e6 : 1e3)).toFixed(digits)));
      }
      this.svg.append(element("text", { class: "tick", x: LEFT - 12, y: bottom + 17, "text-anchor": "end" },
        (milli ? "ms" : "µs") + " after the arrival"));
    }

    marks(x, bottom) {
      const marks = [[0, "arrival"], [this.mode.latency, "end"]];
      if (data.slo) marks.push([data.slo, "SLO"]);
      let free = -Infinity;
      for (const [t, name] of marks.sort((a, b) => a[0] - b[0])) {
        if (t < this.view[0] || t > this.view[1]) continue;
        this.svg.append(element("line", { class: "mark", x1: x(t), x2: x(t), y1: TOP - 6, y2: bottom }));
        const at = Math.max(x(t), free);
        this.svg.append(element("text", { x: at, y: TOP - 11, "text-anchor": "middle" }, name));
        free = at + 52;
      }
    }

    labels(heights) {
      let y = TOP, last = "";
      data.rows.forEach((row, i) => {
        if (row.group !== last)
          this.svg.append(element("text", { x: 0, y: y + 11, "font-weight": 600 },
            row.group.length > 26 ? row.group.slice(0, 25) + "…" : row.group));
        last = row.group;
        this.svg.append(element("text", { class: "sub", x: LEFT - 12, y: y + heights[i] - 8, "text-anchor": "end" }, row.name));
        y += heights[i];
      });
    }

    rowClass(row, start) {
      const type = data.rows[row].type;
      return type === "request" && start !== 0 ? "other" : type;
    }

    bar(i, x, tops, heights) {
      const [row, start, length, name, copy] = this.mode.spans[i];
      const [from, to] = this.view;
      if (start > to || start + length < from) return;
      const left = x(Math.max(start, from)), right = x(Math.min(start + length, to));
      const count = Math.max(1, Math.min(LANES_MAX, this.lanesIn[row]));
      const height = (heights[row] - 8) / count;
      const rect = element("rect", {
        class: "k-" + (copy ? "copy" : this.rowClass(row, start)), x: left.toFixed(2),
        width: Math.max(right - left - (right - left > 3 ? .5 : 0), .6).toFixed(2),
        y: (tops[row] + 4 + height * this.laneOf[i]).toFixed(1), height: (height - (count > 1 ? 1 : 0)).toFixed(1) });
      rect.append(element("title", {}, data.names[name] + "\n" + time(length) + ", from " + time(start)));
      this.svg.append(rect);
    }

    draw() {
      this.clamp();
      this.lanesIn = data.rows.map(() => 1);
      this.mode.spans.forEach(([row], i) => { this.lanesIn[row] = Math.max(this.lanesIn[row], this.laneOf[i] + 1); });
      const groups = data.rows.map((row, i) => i === 0 || data.rows[i - 1].group !== row.group);
      const heights = data.rows.map((row, i) => (groups[i] ? ROW + 16 : ROW));
      const tops = []; let y = TOP;
      heights.forEach((height, i) => { tops.push(y + (groups[i] ? 16 : 0)); y += height; });
      const inner = heights.map(() => ROW);
      this.svg.replaceChildren();
      this.svg.setAttribute("viewBox", `0 0 ${WIDTH} ${y + 26}`);
      const [from, to] = this.view, x = t => LEFT + (t - from) / (to - from) * (RIGHT - LEFT);
      this.svg.append(element("title", {}, "Timeline of one request under " + this.mode.name));
      this.svg.append(element("desc", {}, "Rows of bars, one a kernel, switch, hold or wait; the table below sums them up."));
      this.axis(x, y);
      this.mode.spans.forEach((span, i) => this.bar(i, x, tops, inner));
      this.labels(heights);
      this.marks(x, y);
    }
  }

  document.querySelectorAll(".panel").forEach((root, i) => {
    root.hidden = false;
    new Panel(root, data.shown[Math.min(i, data.shown.length - 1)]);
  });
})();

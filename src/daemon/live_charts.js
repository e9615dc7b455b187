/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Charts of the last minutes for the live page (live.html). A chart has at most STEPS values for each series and replaces
 * its drawing, so memory is bounded. Texts from the status are set as text, never as HTML.
 *
 *   beginCharts(), drawChart(parent, key, chart), endCharts()   draw all charts; endCharts removes those not drawn again
 *
 * chart: {title, series, unit, stepNs, most, least, base, log, goal, empty}. series: [{name, values, color, kind}], where values has null
 * for what is not known, and kind is "area" (stacked), "line" or "text" (only named below the chart). unit(value) makes a
 * text. most: the value at the top; without it the largest value, or `least`, is rounded up (base: 1024 for bytes).
 * goal: {name, value}, a dashed line. log: the scale is logarithmic. empty: a text in place of a drawing without any value
 * above 0.
 */
const {beginCharts, drawChart, endCharts} = (() => {
  const STEPS = 60, BOX = {width: 400, height: 150, left: 58, right: 392, top: 8, bottom: 126};
  const figures = new Map(); // by key: {figure, svg, keys, chart, back}; back = steps before the last one that are read off
  let drawn = new Set();

  function node(tag, attributes = {}, ...children) {
    const made = tag[0] === tag[0].toUpperCase() ? document.createElement(tag) : document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.append(...children);
    return made;
  }
  const width = (BOX.right - BOX.left) / STEPS;
  const left = (series, i) => BOX.right - (series.values.length - i) * width;
  const valueAt = (series, back) => series.values[series.values.length - 1 - back];
  const isKnown = value => value !== null && value !== undefined;

  /* --- scales: a function from a value to a height, with its ticks ------------------------------------------------ */

  // The next of 1, 2, 4, 10, 20 ... in the unit of its text: half of it is a short number as well.
  function roundUp(value, base) {
    const unit = base ** Math.max(0, Math.floor(Math.log(value) / Math.log(base))), power = 10 ** Math.floor(Math.log10(value / unit));
    return unit * power * [1, 2, 4, 10].find(digit => digit * power * unit >= value * (1 - 1e-9));
  }
  function makeScale(chart) {
    const all = chart.series.filter(s => s.kind !== "text").flatMap(s => s.values).filter(isKnown);
    if (chart.goal) all.push(chart.goal.value);
    if (chart.log) {
      const some = all.filter(value => value > 0);
      let low = Math.floor(Math.log10(Math.min(...some))), high = Math.ceil(Math.log10(Math.max(...some)) + 1e-9);
      if (low === high) low--;
      const map = value => BOX.bottom - (Math.log10(Math.max(value, 10 ** low)) - low) / (high - low) * (BOX.bottom - BOX.top);
      return Object.assign(map, {ticks: Array.from({length: high - low + 1}, (_, i) => 10 ** (low + i))});
    }
    const areas = chart.series.filter(s => s.kind === "area"), lines = chart.series.filter(s => s.kind === "line");
    const sums = Array.from({length: STEPS}, (_, back) => areas.reduce((sum, s) => sum + (valueAt(s, back) || 0), 0));
    const most = chart.most || roundUp(Math.max(chart.least || 0, ...sums, ...lines.flatMap(s => s.values)), chart.base || 10);
    const map = value => BOX.bottom - Math.min(value / most, 1) * (BOX.bottom - BOX.top);
    return Object.assign(map, {ticks: [0, most / 2, most]});
  }

  /* --- drawing ------------------------------------------------------------------------------------------------------ */

  function drawAxes(svg, chart, scale) {
    for (const tick of scale.ticks) {
      const y = scale(tick).toFixed(1);
      svg.append(node("path", {class: "grid", d: `M${BOX.left} ${y}H${BOX.right}`}),
        node("text", {class: "tick", x: BOX.left - 6, y: +y + 4, "text-anchor": "end"}, chart.unit(tick)));
    }
    const minute = 60e9 / chart.stepNs * width;
    for (let i = 0; BOX.right - i * minute >= BOX.left - 1; i++)
      svg.append(node("path", {class: "grid", d: `M${(BOX.right - i * minute).toFixed(1)} ${BOX.bottom}v4`}),
        node("text", {class: "tick", x: (BOX.right - i * minute).toFixed(1), y: BOX.bottom + 18, "text-anchor": i ? "middle" : "end"},
          i ? `−${i} min` : "now"));
  }
  // Each step is a mean or a count over the step, so an area has steps as well.
  function drawAreas(svg, chart, scale) {
    const base = Array(STEPS).fill(0);
    for (const series of chart.series.filter(s => s.kind === "area")) {
      let up = "", down = "";
      series.values.forEach((value, i) => {
        const x = left(series, i).toFixed(1), next = left(series, i + 1).toFixed(1), slot = STEPS - series.values.length + i;
        down = `H${next}V${scale(base[slot]).toFixed(1)}H${x}` + down;
        base[slot] += value || 0;
        up += `${i ? "V" : `M${x} `}${scale(base[slot]).toFixed(1)}H${next}`;
      });
      if (up) svg.append(node("path", {class: `m area ${series.color}`, d: up + down + "Z"}));
    }
  }
  function drawLines(svg, chart, scale) {
    for (const series of chart.series.filter(s => s.kind === "line")) {
      let path = "", on = false;
      series.values.forEach((value, i) => {
        const x = (left(series, i) + width / 2).toFixed(1), known = isKnown(value);
        // A value between two unknown ones is a dot.
        if (known) path += `${on ? "L" : "M"}${x} ${scale(value).toFixed(1)}${on ? "" : "h.1"}`;
        on = known;
      });
      if (path) svg.append(node("path", {class: `l ${series.color}`, "stroke-linecap": "round", "stroke-dasharray": series.dash || "none", d: path}));
    }
  }
  function drawGoal(svg, chart, scale) {
    if (!chart.goal) return;
    const y = scale(chart.goal.value);
    svg.append(node("path", {class: "slo", d: `M${BOX.left} ${y.toFixed(1)}H${BOX.right}`}),
      node("text", {class: "slo", x: BOX.left + 4, y: (y < BOX.top + 16 ? y + 14 : y - 4).toFixed(1)}, `${chart.goal.name} ${chart.unit(chart.goal.value)}`));
  }

  /* --- reading off ------------------------------------------------------------------------------------------------- */

  const countSteps = chart => Math.max(0, ...chart.series.map(s => s.values.length));
  function describeStep(chart, back) {
    const seconds = Math.round(back * chart.stepNs / 1e9);
    return !back ? "now" : seconds < 60 ? `${seconds} s ago` : `${Math.floor(seconds / 60)} min ${seconds % 60} s ago`;
  }
  function showStep(state) {
    const {chart, svg, keys} = state, back = Math.min(state.back, Math.max(0, countSteps(chart) - 1));
    const texts = chart.series.map(series => {
      const value = valueAt(series, back);
      return `${series.name} ${isKnown(value) ? (series.unit || chart.unit)(value) : series.unknown || "not known"}`;
    });
    keys.replaceChildren(node("SPAN", {class: "soft"}, describeStep(chart, back)), ...chart.series.map((series, i) => {
      const mark = series.kind === "area" ? node("rect", {class: `m ${series.color}`, width: 14, height: 10, y: 1})
        : node("path", {class: `l ${series.color}`, "stroke-dasharray": series.dash || "none", d: "M0 6h22"});
      const key = node("svg", {width: series.kind === "area" ? 14 : 22, height: 12, "aria-hidden": "true"}, mark);
      return node("SPAN", {}, ...(series.kind === "text" ? [] : [key, " "]), texts[i]);
    }));
    const cursor = svg.querySelector(".cursor"), x = BOX.right - (back + 0.5) * width;
    cursor.setAttribute("d", state.back ? `M${x.toFixed(1)} ${BOX.top}V${BOX.bottom}` : "");
    svg.setAttribute("aria-valuemax", Math.max(0, countSteps(chart) - 1));
    svg.setAttribute("aria-valuenow", Math.max(0, countSteps(chart) - 1 - back));
    svg.setAttribute("aria-valuetext", `${describeStep(chart, back)}: ${texts.join(", ")}`);
  }
  function makeFigure(key) {
    const svg = node("svg", {class: "plot", viewBox: `0 0 ${BOX.width} ${BOX.height}`, role: "slider", tabindex: 0, "aria-valuemin": 0});
    const caption = node("FIGCAPTION"), keys = node("P", {class: "keys"}), figure = node("FIGURE", {"data-chart": key}, caption, svg, keys);
    const state = {figure, svg, caption, keys, chart: null, back: 0};
    const move = back => { state.back = Math.max(0, Math.min(countSteps(state.chart) - 1, back)); showStep(state); };
    svg.onpointermove = event => {
      const box = svg.getBoundingClientRect(), x = (event.clientX - box.left) / box.width * BOX.width;
      move(Math.floor((BOX.right - x) / width));
    };
    svg.onpointerdown = svg.onpointermove;
    svg.onpointerleave = event => { if (event.pointerType === "mouse") move(0); };
    svg.onkeydown = event => {
      const by = {ArrowLeft: 1, ArrowDown: 1, ArrowRight: -1, ArrowUp: -1, PageDown: 12, PageUp: -12, Home: STEPS, End: -STEPS}[event.key];
      if (by === undefined) return;
      event.preventDefault();
      move(state.back + by);
    };
    return state;
  }

  return {
    beginCharts() { drawn = new Set(); },
    drawChart(parent, key, chart) {
      const state = figures.get(key) || makeFigure(key);
      figures.set(key, state);
      drawn.add(key);
      state.chart = chart;
      state.caption.textContent = chart.title;
      state.svg.setAttribute("aria-label", `${chart.title}, the last ${Math.round(countSteps(chart) * chart.stepNs / 1e9)} s; arrow keys read off earlier values`);
      const some = chart.series.some(s => s.kind !== "text" && s.values.some(value => value > 0));
      state.svg.replaceChildren();
      if (some) {
        const scale = makeScale(chart);
        drawAxes(state.svg, chart, scale);
        drawAreas(state.svg, chart, scale);
        drawLines(state.svg, chart, scale);
        drawGoal(state.svg, chart, scale);
      } else
        state.svg.append(node("text", {class: "tick", x: BOX.width / 2, y: BOX.height / 2, "text-anchor": "middle"}, chart.empty));
      state.svg.append(node("path", {class: "cursor"}));
      showStep(state);
      if (state.figure.parentNode !== parent) parent.append(state.figure);
    },
    endCharts() {
      for (const [key, state] of figures)
        if (!drawn.has(key)) {
          state.figure.remove();
          figures.delete(key);
        }
    },
  };
})();

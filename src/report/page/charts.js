"use strict";
/*
 * Charts and tables for the page. Every view (sim_view.js, bench_view.js) draws with these functions:
 *
 *   hb.element(tag, attributes, ...children)    an HTML element; children are nodes or texts
 *   hb.shape(tag, attributes, ...children)      the same for SVG
 *   hb.section(parent, heading, note)           appends a section, with an explanation when `note` is given, and returns it
 *   hb.figure(parent, svg, fileName)            appends a chart with its "save as SVG" button
 *   hb.table({head, rows, wide})                a table; see there
 *   hb.scatter({title, xName, yName, points})   attainment against speed, one point for each way of sharing
 *   hb.distribution({title, slo_ms, series})    latencies, one line for each way of sharing
 *   hb.bars({title, unit, groups, names})       groups of bars, with intervals
 *   hb.timeline(parent, data)                   timeline.js
 *   hb.number(value), hb.percent(share)         a number as text; a dash for null and NaN
 *   hb.style(names, index)                      how the series `index` of `names` looks; hb.key(style) draws that
 *
 * A view registers itself as hb.views[KIND] = function (data, main). The page calls the view that data.kind names.
 * Texts from the data reach the page only through text nodes, so that nothing in a program's name becomes markup.
 * Shares are numbers from 0 to 1, latencies milliseconds.
 */
const hb = { views: {} };

(() => {
  const SVG = "http://www.w3.org/2000/svg";
  const COLORS = 8, DASHES = ["none", "8 3", "2 3", "9 3 2 3", "5 2", "12 3 2 3 2 3"];
  /* Corners around (0, 0) for radius 1; null is a circle. */
  const MARKERS = [null, "M-.9 -.9H.9V.9H-.9Z", "M0 -1.15L1.1 .85H-1.1Z", "M0 -1.25L1.25 0L0 1.25L-1.25 0Z",
    "M0 1.15L1.1 -.85H-1.1Z", "M-.4 -1.1H.4V-.4H1.1V.4H.4V1.1H-.4V.4H-1.1V-.4H-.4Z"];

  const fill = (node, attributes, children) => {
    for (const [key, value] of Object.entries(attributes || {}))
      if (value !== null && value !== undefined) node.setAttribute(key, value);
    node.append(...children);
    return node;
  };
  hb.element = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
  hb.shape = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

  const known = value => typeof value === "number" && Number.isFinite(value);
  /* At most three significant digits below 1000: 0.77, 12.5, 480, 1250. */
  hb.number = value => {
    if (!known(value)) return "–";
    const size = Math.abs(value), small = size > 0 && size < 0.1;
    return value.toFixed(size >= 100 ? 0 : size >= 10 ? 1 : !small ? 2 : size >= 0.01 ? 3 : 4);
  };
  hb.percent = share => (known(share) ? (100 * share).toFixed(1) + "\u202f%" : "–");

  hb.section = (parent, heading, note) => {
    const section = hb.element("section", { class: "together" }, hb.element("h2", {}, heading));
    if (note) section.append(hb.element("p", { class: "soft" }, ...[note].flat()));
    parent.append(section);
    return section;
  };

  /* --- scales: functions from a value to a coordinate, with `low`, `high` and `ticks` ([value, has a label]) ---- */

  const transforms = { linear: value => value, log: Math.log10, nines: share => -Math.log10(1 - share) };
  const NINES = [0, 0.5, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999];

  /* The ends count as inside although 0.1 + 0.2 is not exactly 0.3. */
  const inside = (low, high, value) => {
    const margin = 1e-9 * (Math.abs(high) + Math.abs(low));
    return value >= low - margin && value <= high + margin;
  };

  const linearTicks = (low, high) => {
    const raw = (high - low) / 6, power = 10 ** Math.floor(Math.log10(raw));
    const step = power * (raw / power > 5 ? 10 : raw / power > 2 ? 5 : raw / power > 1 ? 2 : 1);
    const ticks = [];
    for (let i = Math.ceil(low / step - 1e-9); inside(low, high, i * step); i++) ticks.push([i * step, true]);
    return ticks;
  };

  /* 1, 2 and 5 of every decade, more on a short scale; a long scale has labels at decades only. */
  const logTicks = (low, high) => {
    const decades = Math.log10(high / low), ticks = [];
    const mantissas = decades < 1.2 ? [1, 1.5, 2, 3, 4, 5, 7] : [1, 2, 5];
    for (let decade = Math.floor(Math.log10(low)); decade <= Math.log10(high); decade++)
      mantissas.forEach((mantissa, i) => {
        const value = +(mantissa + "e" + decade);
        if (inside(low, high, value)) ticks.push([value, i === 0 || decades < 3]);
      });
    return ticks;
  };

  const scale = (kind, low, high, from, to) => {
    const transform = transforms[kind], bottom = transform(low), top = transform(high);
    const map = value => {
      const clipped = Math.min(Math.max(value, low), high);
      return from + (top > bottom ? (transform(clipped) - bottom) / (top - bottom) : 0.5) * (to - from);
    };
    const nines = () => NINES.filter(share => inside(low, high, share)).map(share => [share, true]);
    map.ticks = !(high > low) ? [] : kind === "log" ? logTicks(low, high) : kind === "nines" ? nines() : linearTicks(low, high);
    return Object.assign(map, { low, high });
  };

  /* --- how a series looks ------------------------------------------------------------------------------------ */

  /*
   * Names that begin with the same letters (mps_prio, mps_88) are a family and share a color. Dashes tell the
   * members apart, markers also neighboring families, so that nothing depends on color alone.
   */
  hb.style = (names, index) => {
    const family = name => name.match(/^[A-Za-z]*/)[0], own = family(names[index]);
    const seen = names.slice(0, index).map(family);
    const member = seen.filter(name => name === own).length;
    const number = [...new Set([...seen, own])].indexOf(own);
    return { color: number % COLORS, dash: DASHES[member % DASHES.length], marker: (number + member) % MARKERS.length };
  };

  const marker = (style, x, y, radius, hollow) => {
    const shape = MARKERS[style.marker], look = hollow ? "m hollow" : "m";
    if (!shape) return hb.shape("circle", { class: look, cx: x.toFixed(1), cy: y.toFixed(1), r: radius });
    return hb.shape("path", { class: look, transform: `translate(${x.toFixed(1)} ${y.toFixed(1)}) scale(${radius})`, d: shape });
  };

  const line = (style, x, y, width) => [
    hb.shape("path", { class: "l", "stroke-dasharray": style.dash, d: `M${x} ${y.toFixed(1)}h${width}` }),
    marker(style, x + width / 2, y, 4, false)];

  hb.key = style => hb.shape("svg", { class: "key c" + style.color, width: 34, height: 12, "aria-hidden": "true" },
    ...line(style, 0, 6, 34));

  /* --- tables ------------------------------------------------------------------------------------------------- */

  const cell = (tag, content) => {
    const of = content !== null && typeof content === "object" && !(content instanceof Node) ? content : { text: content };
    const attributes = { class: of.class, colspan: of.span, scope: tag === "th" ? of.scope || "col" : null, title: of.title };
    return hb.element(tag, attributes, ...(of.key ? [of.key] : []), ...[of.text ?? ""].flat());
  };

  /*
   * head: rows of cells; rows: rows of cells, the first cell names the row. A cell is a text, a node or
   * {text, key, class, span, scope, title}; the class "missed" marks a broken SLO, "first" begins a group of columns.
   */
  hb.table = ({ head, rows, wide }) => {
    const table = hb.element("table", { class: wide ? "wide" : null },
      hb.element("thead", {}, ...head.map(row => hb.element("tr", {}, ...row.map(content => cell("th", content))))),
      hb.element("tbody", {}, ...rows.map(row => hb.element("tr", {},
        ...row.map((content, i) => {
          const node = cell(i ? "td" : "th", content);
          if (!i) node.setAttribute("scope", "row");
          return node;
        })))));
    return hb.element("div", { class: "scroll" }, table);
  };

  /* --- frames of charts --------------------------------------------------------------------------------------- */

  let charts = 0;
  const WIDTH = 960;

  const chart = (height, title, description) => {
    const id = "chart" + charts++;
    return hb.shape("svg", { class: "plot", viewBox: `0 0 ${WIDTH} ${height}`, role: "img",
      "aria-labelledby": `${id}-t ${id}-d` },
    hb.shape("title", { id: id + "-t" }, title), hb.shape("desc", { id: id + "-d" }, description));
  };

  const text = (x, y, content, attributes) =>
    hb.shape("text", { x: +x.toFixed(1), y: +y.toFixed(1), ...attributes }, content);
  const middle = { "text-anchor": "middle" }, end = { "text-anchor": "end" };

  const axes = (svg, box, x, y, xText, yText) => {
    for (const [value, labelled] of x.ticks) {
      svg.append(hb.shape("path", { class: "grid", d: `M${x(value).toFixed(1)} ${box.top}V${box.bottom}` }));
      if (labelled) svg.append(text(x(value), box.bottom + 20, xText(value), { class: "tick", ...middle }));
    }
    for (const [value, labelled] of y.ticks) {
      svg.append(hb.shape("path", { class: "grid", d: `M${box.left} ${y(value).toFixed(1)}H${box.right}` }));
      if (labelled) svg.append(text(box.left - 8, y(value) + 4.5, yText(value), { class: "tick", ...end }));
    }
    svg.append(hb.shape("path", { class: "axis", d: `M${box.left} ${box.top}V${box.bottom}H${box.right}` }));
  };

  const names = (svg, box, xName, yName) => svg.append(
    text((box.left + box.right) / 2, box.bottom + 47, xName, { class: "name", ...middle }),
    hb.shape("text", { class: "name", transform: `translate(18 ${(box.top + box.bottom) / 2}) rotate(-90)`, ...middle }, yName));

  const short = value => String(+value.toPrecision(6));
  const wholePercent = share => short(100 * share) + "%";

  /* --- attainment against speed ------------------------------------------------------------------------------- */

  const GLYPH_WIDTH = 7.4; /* of the label font, rather too wide than too narrow */
  const LABEL_HEIGHT = 16, RADIUS = 6;
  const SCATTER = { left: 76, right: 930, top: 24, bottom: 430, height: 490 };
  const CAPTION = { left: SCATTER.right - 248, right: SCATTER.right - 8, top: SCATTER.top + 4, bottom: SCATTER.top + 20 };

  const overlap = (a, b) => {
    const width = Math.min(a.right, b.right) - Math.max(a.left, b.left);
    const height = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
    return width > 0 && height > 0 ? width * height : 0;
  };

  /* Area in which a label would cover something or leave the chart. */
  const labelCost = (dots, index, box) => {
    const within = { left: SCATTER.left + 4, top: SCATTER.top, right: SCATTER.right, bottom: SCATTER.bottom - 4 };
    let cost = (box.right - box.left) * (box.bottom - box.top) - overlap(box, within) + overlap(box, CAPTION);
    dots.forEach((dot, i) => {
      const radius = RADIUS + 2;
      cost += overlap(box, { left: dot.x - radius, right: dot.x + radius, top: dot.y - radius, bottom: dot.y + radius });
      if (i < index) cost += overlap(box, dot.label);
    });
    return cost;
  };

  /* The side of the label that faces the dot touches the ring of this distance. */
  const labelBox = (dot, width, angle, distance) => {
    const left = dot.x + Math.cos(angle) * distance - width * (1 - Math.cos(angle)) / 2;
    const y = dot.y + Math.sin(angle) * distance;
    return { left, right: left + width, top: y - LABEL_HEIGHT / 2, bottom: y + LABEL_HEIGHT / 2 };
  };

  /* Tries rings of growing distance, on each the left and right first; takes the first free place. */
  const placeLabel = (dots, index) => {
    const dot = dots[index], width = GLYPH_WIDTH * dot.text.length;
    let best = Infinity;
    for (let distance = RADIUS + 6; distance < 150 && best > 0; distance += 9)
      for (const eighth of [0, 4, -1, 1, -3, 3, -2, 2]) {
        const box = labelBox(dot, width, eighth * Math.PI / 4, distance), cost = labelCost(dots, index, box);
        if (cost >= best - 0.5) continue;
        best = cost;
        dot.label = box;
      }
  };

  const drawDot = (svg, dot) => {
    const group = hb.shape("g", { class: "s c" + dot.style.color, "data-name": dot.name, "data-x": dot.relative, "data-y": dot.attainment },
      hb.shape("title", {}, `${dot.name}: ${(100 * dot.attainment).toFixed(1)}% of requests within the SLO, ` +
        `low priority at ${(100 * dot.relative).toFixed(1)}% of its speed alone`));
    const nearX = Math.max(dot.label.left, Math.min(dot.x, dot.label.right));
    const nearY = Math.max(dot.label.top + 3, Math.min(dot.y, dot.label.bottom - 3));
    if (Math.hypot(nearX - dot.x, nearY - dot.y) > RADIUS + 9)
      group.append(hb.shape("path", { class: "lead", d: `M${dot.x.toFixed(1)} ${dot.y.toFixed(1)}L${nearX.toFixed(1)} ${nearY.toFixed(1)}` }));
    group.append(marker(dot.style, dot.x, dot.y, RADIUS, dot.reference),
      text((dot.label.left + dot.label.right) / 2, dot.label.bottom - 3.5, dot.text, { class: "label", ...middle }));
    svg.append(group);
  };

  /*
   * points: [{name, attainment, relative, reference}], both shares; reference draws a hollow marker and adds
   * "(a GPU each)". Returns null when there is no point. The vertical scale is stretched towards all requests.
   */
  hb.scatter = ({ title, xName, yName, points }) => {
    const all = points.map(point => point.name);
    const dots = points.map((point, i) => ({ ...point, style: hb.style(all, i),
      text: point.name + (point.reference ? " (a GPU each)" : "") })).filter(dot => known(dot.attainment) && known(dot.relative));
    if (!dots.length) return null;
    const lowest = Math.min(1, ...dots.map(dot => dot.relative)), fastest = Math.max(0, ...dots.map(dot => dot.relative));
    const worst = Math.min(1, ...dots.map(dot => dot.attainment));
    const x = scale("linear", Math.max(0, Math.floor((lowest - 0.03) * 10) / 10), Math.max(1.02, fastest + 0.02), SCATTER.left, SCATTER.right);
    const y = scale("nines", [0.9, 0.8, 0.5].find(share => worst > share + 0.02) || 0, 0.999, SCATTER.bottom, SCATTER.top);
    for (const dot of dots) Object.assign(dot, { x: x(dot.relative), y: y(dot.attainment) });
    dots.forEach((dot, i) => placeLabel(dots, i));
    const svg = chart(SCATTER.height, title, "One point for each way of sharing. Higher points serve more requests within the SLO; " +
      "points further right run low-priority programs faster. The table has the numbers.");
    const left = x(x.high - (x.high - x.low) * 0.3);
    svg.append(hb.shape("rect", { class: "good", x: left.toFixed(1), y: SCATTER.top, width: (SCATTER.right - left).toFixed(1),
      height: (y(0.95) - SCATTER.top).toFixed(1) }),
    text(CAPTION.right, CAPTION.bottom - 3.5, "good corner: both keep what they had", { class: "good", ...end }));
    axes(svg, SCATTER, x, y, wholePercent, wholePercent);
    names(svg, SCATTER, xName, yName);
    dots.forEach(dot => drawDot(svg, dot));
    return svg;
  };

  /* --- latencies ---------------------------------------------------------------------------------------------- */

  const LATENCY = { left: 70, right: 690, top: 30, bottom: 410, height: 470 };
  const LEGEND = 712, SHARE_TOP = 0.999;

  /* Steps through [latency, share]; leaves out steps that are too small to be seen. */
  const steps = (points, x, y) => {
    let seenX = x(points[0][0]), seenY = y(0), path = `M${seenX.toFixed(1)} ${seenY.toFixed(1)}`;
    const top = y(SHARE_TOP);
    points.some(([latency, share], i) => {
      const atX = x(latency), atY = y(share);
      if (Math.abs(atX - seenX) < 0.7 && Math.abs(atY - seenY) < 0.7 && i + 1 < points.length) return false;
      path += `H${atX.toFixed(1)}V${atY.toFixed(1)}`;
      [seenX, seenY] = [atX, atY];
      return seenY <= top;
    });
    return path;
  };

  const drawSeries = (svg, series, style, x, y, legendY) => {
    const group = hb.shape("g", { class: "s c" + style.color, "data-name": series.name, "data-p99": series.p99_ms },
      hb.shape("title", {}, series.name));
    if (series.points.length)
      group.append(hb.shape("path", { class: "l", "stroke-dasharray": style.dash, d: steps(series.points, x, y) }),
        marker(style, x(series.p99_ms), y(0.99), 4.5, false));
    group.append(hb.shape("rect", { class: "hit", x: LEGEND - 6, y: (legendY - 10).toFixed(1), width: WIDTH - LEGEND + 6, height: 20 }),
      ...line(style, LEGEND, legendY, 34),
      text(LEGEND + 42, legendY + 4.5, series.name),
      text(WIDTH - 4, legendY + 4.5, hb.number(series.p99_ms), { class: "num", ...end }));
    svg.append(group);
  };

  const drawSlo = (svg, x, slo) => {
    const at = x(slo), left = at > (LATENCY.left + LATENCY.right) / 2;
    svg.append(hb.shape("path", { class: "slo", d: `M${at.toFixed(1)} ${LATENCY.top - 6}V${LATENCY.bottom}` }),
      text(at + (left ? -6 : 6), LATENCY.top - 10, `SLO ${hb.number(slo)} ms`, { class: "slo", "text-anchor": left ? "end" : "start" }));
  };

  /*
   * series: [{name, points: [[latency_ms, share of requests done within it], ...] ascending, p99_ms}]; slo_ms may be null.
   * The share axis is stretched towards its end: equal steps are 90, 99 and 99.9 %.
   */
  hb.distribution = ({ title, slo_ms, series }) => {
    const drawn = series.filter(one => one.points.length);
    const least = Math.min(...drawn.map(one => one.points[0][0])), most = Math.max(slo_ms || 0, ...drawn.map(one => one.points.at(-1)[0]));
    const low = Number.isFinite(least) && least > 1e-6 ? least : 1e-6;
    const x = scale("log", low * 0.9, Math.max(most, low) * 1.1, LATENCY.left, LATENCY.right);
    const y = scale("nines", 0, SHARE_TOP, LATENCY.bottom, LATENCY.top);
    const svg = chart(LATENCY.height, title, "One line for each way of sharing: the share of requests done within a latency. " +
      "Lines further left are better. The table has the numbers.");
    axes(svg, LATENCY, x, y, short, wholePercent);
    names(svg, LATENCY, "latency from arrival, ms (log scale)", "requests done within");
    if (slo_ms) drawSlo(svg, x, slo_ms);
    svg.append(text(WIDTH - 4, LATENCY.top - 10, "p99, ms", { class: "tick", ...end }));
    const step = Math.min(24, (LATENCY.bottom - LATENCY.top) / series.length), all = series.map(one => one.name);
    series.forEach((one, i) => drawSeries(svg, one, hb.style(all, i), x, y, LATENCY.top + step * (i + 0.5)));
    return svg;
  };

  /* --- bars --------------------------------------------------------------------------------------------------- */

  const BARS = { left: 190, right: 930, top: 34, row: 20, gap: 16 };

  /*
   * Horizontal bars. groups: [{name, bars: [{name, value, low, high, text}]}]; names: all names of bars, in the order
   * that gives them colors; low and high (may be absent) draw an interval; unit follows the numbers of the axis.
   */
  hb.bars = ({ title, unit, groups, names: all }) => {
    const bars = groups.flatMap(group => group.bars).filter(bar => known(bar.value));
    const most = Math.max(0, ...bars.map(bar => (known(bar.high) ? bar.high : bar.value)));
    const x = scale("linear", 0, most * 1.05 || 1, BARS.left, BARS.right - 90);
    const rows = groups.reduce((sum, group) => sum + group.bars.length, 0);
    const bottom = BARS.top + rows * BARS.row + groups.length * BARS.gap;
    const svg = chart(bottom + 40, title, "One bar for each way of sharing, in groups; lines through the ends are intervals.");
    axes(svg, { left: BARS.left, right: BARS.right - 90, top: BARS.top, bottom }, x, Object.assign(() => 0, { ticks: [] }), short, short);
    svg.append(text(BARS.right - 80, bottom + 20, unit, { class: "tick" }));
    let at = BARS.top;
    for (const group of groups) {
      svg.append(text(0, at + 12, group.name, { class: "label" }));
      at += BARS.gap;
      for (const bar of group.bars) {
        drawBar(svg, bar, hb.style(all, Math.max(0, all.indexOf(bar.name))), x, at);
        at += BARS.row;
      }
    }
    return svg;
  };

  const drawBar = (svg, bar, style, x, top) => {
    const middleY = top + BARS.row / 2, right = known(bar.value) ? x(bar.value) : BARS.left;
    const group = hb.shape("g", { class: "s c" + style.color, "data-name": bar.name, "data-value": bar.value },
      hb.shape("title", {}, `${bar.name}: ${hb.number(bar.value)}`),
      hb.shape("rect", { class: "m", x: BARS.left, y: top + 4, width: (right - BARS.left).toFixed(1), height: BARS.row - 8 }),
      text(BARS.left - 8, middleY + 4.5, bar.name, end));
    let last = right;
    if (known(bar.low) && known(bar.high)) {
      group.append(hb.shape("path", { class: "axis", d: `M${x(bar.low).toFixed(1)} ${middleY}H${x(bar.high).toFixed(1)}` }));
      last = Math.max(last, x(bar.high));
    }
    group.append(text(last + 8, middleY + 4.5, bar.text ?? hb.number(bar.value), { class: "num" }));
    svg.append(group);
  };

  /* --- saving --------------------------------------------------------------------------------------------------- */

  /* The chart as a file of its own, with its style sheet inside. */
  hb.svgText = svg => {
    const copy = svg.cloneNode(true), [, , width, height] = svg.getAttribute("viewBox").split(" ");
    copy.setAttribute("width", width);
    copy.setAttribute("height", height);
    copy.prepend(hb.shape("style", {}, document.getElementById("chart-style").textContent),
      hb.shape("rect", { class: "paper", width, height }));
    return new XMLSerializer().serializeToString(copy).replaceAll("><", ">\n<") + "\n";
  };

  hb.figure = (parent, svg, fileName) => {
    if (!svg) return;
    const button = hb.element("button", { type: "button", class: "save" }, "save as SVG");
    button.addEventListener("click", () => {
      const url = URL.createObjectURL(new Blob([hb.svgText(svg)], { type: "image/svg+xml" }));
      hb.element("a", { href: url, download: fileName + ".svg" }).click();
      setTimeout(() => URL.revokeObjectURL(url), 1000);
    });
    parent.append(hb.element("figure", {}, svg, button));
  };
})();

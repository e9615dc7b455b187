"use strict";
/*
 * The page of `hb sim --report`. Data:
 *   command    the command line
 *   reading    what the numbers say, a sentence; may be empty
 *   slo_kept   a service keeps its SLO when this share of its requests is within it
 *   results    as `hb sim --json` writes them, each high also with
 *              "distribution": [[latency in microseconds, share of requests done within it], ...]
 *   request    data for hb.timeline, or null
 */
(() => {
  const joinNames = names => names.reduce((text, name, i) =>
    text + (i === 0 ? "" : i + 1 === names.length ? " and " : ", ") + name, "");

  const makeTitle = ({ gpu, high, low }) => joinNames(high.map(one => one.workload)) + (high.length && low.length ? " beside " : "") +
    joinNames(low.map(one => one.workload)) + " on one " + gpu;

  const makeFacts = ({ gpu, seconds, seed, high }) => {
    const facts = [["GPU", gpu + ", simulated"], ["time", seconds + " s"], ["seed", seed]];
    for (const { workload, rate_per_s: rate, slo_us: slo } of high)
      facts.push([workload, (rate ? +rate.toPrecision(6) + " requests/s" : "one request after the other") +
        (slo ? `, SLO ${(slo / 1e3).toFixed(2)} ms` : "")]);
    return hb.element("dl", { class: "facts" }, ...facts.map(([name, value]) =>
      hb.element("div", {}, hb.element("dt", {}, name), hb.element("dd", {}, String(value)))));
  };

  const makeHeader = data => {
    const title = document.title = makeTitle(data.results[0]);
    const header = hb.element("header", {}, hb.element("h1", {}, title));
    if (data.command) header.append(hb.element("pre", {}, hb.element("code", {}, data.command)));
    header.append(makeFacts(data.results[0]));
    if (data.reading) header.append(hb.element("p", { class: "reading" }, data.reading));
    return header;
  };

  const ms = us => hb.number(us === null ? null : us / 1e3);

  const highCells = (high, kept) => {
    const judged = high.requests > 0 && high.slo_us;
    return [{ text: ms(high.p50_us), class: "first" }, ms(high.p90_us), ms(high.p99_us), ms(high.max_us),
      { text: judged ? hb.percent(high.attainment) : "–", class: judged && high.attainment < kept ? "missed" : null }];
  };

  const makeTable = ({ results, slo_kept: kept }) => {
    const { high, low } = results[0], modes = results.map(result => result.sharing);
    const group = span => ({ workload }) => ({ text: workload, class: "group", span, scope: "colgroup" });
    const first = text => ({ text, class: "first" });
    return hb.table({
      wide: 5 * high.length + 2 * low.length > 10,
      head: [["", ...high.map(group(5)), ...low.map(group(2)), ""],
        ["sharing", ...high.flatMap(() => [first("p50"), "p90", "p99", "max", "in SLO"]),
          ...low.flatMap(() => [first("it/s"), "of alone"]), first("GPU busy")]],
      rows: results.map((result, i) => [{ text: result.sharing, key: hb.key(hb.style(modes, i)) },
        ...result.high.flatMap(one => highCells(one, kept)),
        ...result.low.flatMap(one => [first(hb.number(one.iterations_per_s)), hb.percent(one.relative)]),
        first(hb.percent(result.gpu_busy))]) });
  };

  /* The least served service against the mean speed of the low-priority programs. */
  const makePoint = ({ sharing, high, low }) => ({
    name: sharing, reference: sharing === "exclusive",
    attainment: Math.min(1, ...high.filter(one => one.slo_us).map(one => one.attainment)),
    relative: low.reduce((sum, one) => sum + one.relative / low.length, 0) });

  const drawScatter = (main, { results }) => {
    const { high, low } = results[0];
    if (!low.length || !high.some(one => one.slo_us && one.requests)) return;
    const title = "What each way of sharing gives to both sides";
    const section = hb.section(main, title, "Up: more requests within the SLO, on a scale stretched towards all of them. " +
      "To the right: faster low-priority programs.");
    hb.figure(section, hb.scatter({ title, points: results.map(makePoint),
      xName: (low.length === 1 ? low[0].workload : "low-priority programs (mean)") + ": speed, of alone",
      yName: (high.length === 1 ? high[0].workload : "worst service") + ": requests within the SLO" }), "attainment");
  };

  const drawLatencies = (main, { results }, index) => {
    const { workload, slo_us: slo } = results[0].high[index];
    const section = hb.section(main, "Latency of " + workload, [
      "The share of requests done within a time; further left is better. Equal steps on the vertical axis are 90\u202f%, 99\u202f% " +
      "and 99.9\u202f%, because a service is judged by its slowest requests. ",
      hb.element("span", { class: "screen" }, "Point at a name to see its line alone.")]);
    hb.figure(section, hb.distribution({ title: `Latency of ${workload} under each way of sharing`, slo_ms: slo ? slo / 1e3 : null,
      series: results.map(({ sharing, high }) => ({ name: sharing, p99_ms: high[index].p99_us === null ? null : high[index].p99_us / 1e3,
        points: high[index].distribution.map(([us, share]) => [us / 1e3, share]) })) }), "latency-" + (index + 1));
  };

  const drawRequest = (main, { results, request }) => {
    const section = hb.section(main, "One request, closely", [
      `A typical request of ${results[0].high[0].workload}` +
      (results.length > 1 ? ", the same arrival under every way of sharing where arrivals are given. " : ". "),
      hb.element("span", { class: "screen" }, "Choose a way to share above each timeline; drag to move, point at a bar for its name and times.")]);
    section.removeAttribute("class");
    hb.timeline(section, request);
  };

  hb.views.sim = (data, main) => {
    main.append(makeHeader(data));
    const section = hb.section(main, "All numbers", [
      "Latencies in milliseconds, from a request's arrival to its end. ", hb.element("em", {}, "In SLO"),
      " is the attainment: the share of requests within the bound. ", hb.element("em", {}, "Of alone"),
      " is a program's speed relative to having the GPU to itself. In ", hb.element("em", {}, "exclusive"),
      " every program has a GPU of its own; sharing is measured against it."]);
    section.append(makeTable(data));
    drawScatter(main, data);
    data.results[0].high.forEach((high, index) => drawLatencies(main, data, index));
    if (data.request) drawRequest(main, data);
  };
})();

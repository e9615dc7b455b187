"use strict";
/*
 * The page of `hb bench --report`. Data: a result file as docs/bench.md describes it. Files that hold only "rows" (a
 * comparison with targets) show that table alone.
 */
(() => {
  const POINTS = 400; /* of one line of a distribution */

  const makeFacts = data => hb.element("dl", { class: "facts" }, ...[["GPU", data.gpu], ["driver", data.driver],
    ["commit", data.commit], ["machine", data.machine], ["time", data.time], ["rounds", data.rounds + (data.window_s ? ` of ${data.window_s} s` : "")]]
    .map(([name, value]) => hb.element("div", {}, hb.element("dt", {}, name), hb.element("dd", {}, String(value)))));

  const first = text => ({ text, class: "first" });

  /* "12.5 [12.1, 12.6]" in the unit of `text`. */
  const withInterval = ([value, low, high], text) => text(value) +
    (low === null && high === null ? "" : ` [${text(low)}, ${text(high)}]`);
  const plain = share => hb.percent(share).replace("\u202f%", "");
  const us = value => hb.number(value);

  const keyed = (names, i) => ({ text: names[i], key: hb.key(hb.style(names, i)) });

  /* --- all cases together ------------------------------------------------------------------------------------- */

  const drawOverall = (main, { overall }) => {
    if (!overall || overall.cases < 2) return;
    const section = hb.section(main, `All ${overall.cases} cases together`, ["Means over the cases, so that no way of sharing is " +
      "chosen for the case that suits it. The engines are compared with the baselines that serve best over all cases: " +
      `${overall.spatial || "none"} (spatial) and ${overall.temporal || "none"} (temporal).`]);
    const names = overall.sharing.map(row => row.name), times = value => (value === null ? "–" : hb.number(value) + "×");
    section.append(hb.table({ head: [["sharing", "cases", first("in SLO"), "least", "points below exclusive", "of spatial",
      "of temporal", first("low priority, of alone"), "of temporal"]],
    rows: overall.sharing.map((row, i) => [keyed(names, i), row.cases, first(hb.percent(row.attainment)), hb.percent(row.least),
      row.attainment_below_exclusive === null ? "–" : (100 * row.attainment_below_exclusive).toFixed(1),
      times(row.attainment_of_spatial), times(row.attainment_of_temporal), first(hb.percent(row.low_of_alone)),
      times(row.low_of_temporal)]) }));
    hb.figure(section, hb.scatter({ title: "All cases together", xName: "low priority: speed, of alone (mean)",
      yName: "requests within the SLO (mean)", points: overall.sharing.map(row => ({ name: row.name,
        attainment: row.attainment, relative: row.low_of_alone, reference: row.class === "reference" })) }), "overall");
  };

  /* --- one case ----------------------------------------------------------------------------------------------- */

  const serviceCells = ({ summary }) => [first(String(summary.seen)), us(summary.rate_per_s), withInterval(summary.p50_us, us),
    withInterval(summary.p99_us, us), withInterval(summary.attainment, plain) +
      (summary.control ? ` (control ${plain(summary.control[0])})` : "")];

  const makeTable = ({ high, low, sharing }) => {
    const names = sharing.map(cell => cell.name);
    const group = (text, span) => ({ text, class: "group", span, scope: "colgroup" });
    return hb.table({ wide: true,
      head: [["", ...high.map(one => group(`${one.program}, ${one.arrivals}, SLO ${us(one.slo_us)} us`, 5)),
        ...(low.length ? [group(low.join(", "), 1)] : [])],
      ["sharing", ...high.flatMap(() => [first("n"), "served/s", "p50 us", "p99 us", "in SLO %"]),
        ...(low.length ? [first("speed, % of alone")] : [])]],
      rows: sharing.map((cell, i) => [keyed(names, i), ...cell.high.flatMap(serviceCells),
        ...(low.length ? [first(withInterval(cell.low_of_alone, plain))] : [])]) });
  };

  /* [[latency in ms, share done within it], ...]: at most POINTS, and all of the slowest. */
  const distribution = rounds => {
    const all = rounds.flatMap(one => one.latency_ns.split(" ").filter(word => word).map(Number)).sort((a, b) => a - b);
    const step = Math.max(1, Math.floor(all.length / POINTS));
    return all.map((ns, i) => [ns / 1e6, (i + 1) / all.length]).filter((_, i) => i % step === 0 || i > all.length - POINTS / 4);
  };

  const drawLatencies = (section, { name, high, sharing }, index) => {
    const { program, slo_us: slo } = high[index];
    const series = sharing.map(cell => {
      const p99 = cell.high[index].summary.p99_us[0];
      return { name: cell.name, points: distribution(cell.high[index].rounds), p99_ms: p99 === null ? null : p99 / 1e3 };
    });
    if (series.some(one => one.points.length))
      hb.figure(section, hb.distribution({ title: `${name}: latency of ${program}`, slo_ms: slo ? slo / 1e3 : null, series }),
        `${name}-latency-${index + 1}`);
  };

  const describe = result => {
    const { world, high, low, failed, skipped, unfinished, dropped } = result;
    const notes = [high.map(one => `${one.program} at ${one.arrivals}`).join(", ") + (low.length ? " beside " + low.join(", ") : "") +
      (world === "virtual" ? ", in virtual time" : world === "processes" ? ", real processes" : "") + "."];
    for (const [what, text] of [["Failed", failed], ["Skipped", skipped], ["Unfinished", unfinished]])
      if (text) notes.push(` ${what}: ${text}.`);
    for (const { name, why } of dropped) notes.push(` ${name} failed: ${why}.`);
    return notes;
  };

  const drawCase = (main, result) => {
    const { name, high, low, sharing } = result;
    const section = hb.section(main, name, describe(result));
    section.removeAttribute("class");
    if (!sharing.length) return;
    section.append(makeTable(result));
    if (low.length)
      hb.figure(section, hb.scatter({ title: name, xName: low.join(", ") + ": speed, of alone", yName: "requests within the SLO",
        points: sharing.map(cell => ({ name: cell.name, attainment: cell.attainment, relative: cell.low_of_alone[0],
          reference: cell.class === "reference" })) }), name + "-attainment");
    high.forEach((_, index) => drawLatencies(section, result, index));
  };

  /* --- comparison with targets ---------------------------------------------------------------------------------- */

  const drawRows = (main, rows) => {
    if (!rows || !rows.length) return;
    const section = hb.section(main, "Targets", ["Each measured value, the value it is compared with, and its target."]);
    section.append(hb.table({ wide: true, head: [["what", "measured", "baseline", "unit", "target", "met"]],
      rows: rows.map(row => [row.what, String(row.measured), row.baseline === null ? "–" : String(row.baseline), row.unit || "",
        row.target || "", { text: row.met ? "yes" : "no", class: row.met ? null : "missed" }]) }));
  };

  hb.views.bench = (data, main) => {
    const title = document.title = data.suite ? `hb bench ${data.suite} on ${data.gpu}` : "Results of measurements";
    const header = hb.element("header", {}, hb.element("h1", {}, title));
    if (data.command) header.append(hb.element("pre", {}, hb.element("code", {}, data.command)));
    if (data.suite) {
      header.append(makeFacts(data), hb.element("p", { class: "soft" }, "Brackets hold 95\u202f% confidence intervals. The SLO of a " +
        "service is its p99 alone; latencies count from a request's arrival."));
    }
    main.append(header);
    drawOverall(main, data);
    for (const result of data.cases || []) drawCase(main, result);
    drawRows(main, data.rows);
  };
})();

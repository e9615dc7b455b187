"use strict";
/* The page of `hb sim-cluster --report`. Data: the JSON of `hb sim-cluster --json` (docs/cluster.md). */
(() => {
  const TITLES = { recorded: "Pods come and go as recorded", "at-once": "All pods are there at once",
    limited: "Pods come as recorded, the number of GPUs is limited" };
  const NOTES = { recorded: "There is always another GPU. Harvested: GPU-hours of work that low priority did beside services.",
    "at-once": "There is always another GPU, and no pod ends. Harvested: the work of all low-priority pods that share, in GPUs.",
    limited: "Low priority waits for a GPU, and is evicted where a service needs its GPU and may not share it." };
  const BOUNDS = { any: "any pair", fleet: "mean of all services", each: "each pair" };

  const points = share => hb.number(100 * share);
  const byArrivals = (rows, arrivals) => rows.filter(row => row.arrivals === arrivals);

  const makeTable = rows => {
    const timed = rows.some(row => row.times);
    return hb.table({ wide: true,
      head: [["rule", "bound on", "GPUs", "saved", "harvested", "lost attainment, points", "worst service",
        ...(timed ? ["LP wait, s", "p99", "LP time, of its run", "slowest job", "evictions"] : [])]],
      rows: rows.map(row => [row.rule, row.rule === "exclusive" ? "" : BOUNDS[row.bound], String(row.gpus), hb.percent(row.gpus_saved),
        hb.number(row.harvested), points(row.loss), points(row.worst_loss),
        ...(row.times ? [hb.number(row.times.wait_mean_s), hb.number(row.times.wait_p99_s), hb.number(row.times.completion_mean),
          hb.number(row.times.completion_most), String(row.times.evictions)] : [])]) });
  };

  const drawBars = (section, rows, arrivals, value, title, unit) => {
    const rules = [...new Set(rows.map(row => row.rule))];
    const groups = Object.keys(BOUNDS).map(bound => ({ name: "bound on " + BOUNDS[bound],
      bars: rows.filter(row => row.bound === bound).map(row => ({ name: row.rule, value: value(row) })) }))
      .filter(group => group.bars.length);
    hb.figure(section, hb.bars({ title, unit, groups, names: rules }), `${arrivals}-${unit.replace(/\W+/g, "-")}`);
  };

  const drawArrivals = (main, data, arrivals) => {
    const rows = byArrivals(data.rows, arrivals);
    if (!rows.length) return;
    const section = hb.section(main, TITLES[arrivals], [NOTES[arrivals]]);
    section.removeAttribute("class");
    section.append(makeTable(rows));
    if (arrivals !== "limited") drawBars(section, rows, arrivals, row => row.gpus, "GPUs that the cluster needs", "GPUs");
    drawBars(section, rows, arrivals, row => 100 * row.loss, "Attainment that services lose (mean)", "points");
  };

  const drawSensitivity = (main, data) => {
    const section = hb.section(main, "Sensitivity", ["The last rule, where losses and slowdowns are not as predicted, and where " +
      "services are busier."]);
    section.append(hb.table({ wide: true, head: [["arrivals", "losses and slowdowns", "duty", "GPUs", "saved", "lost attainment, points"]],
      rows: data.sensitivity.map(row => [row.arrivals, `× ${row.truth}`, `× ${row.duty_factor}`, String(row.gpus),
        hb.percent(row.gpus_saved), points(row.loss)]) }));
  };

  const drawModel = (main, data) => {
    const section = hb.section(main, "Error of the pair model", ["Mean absolute error for measured rows that the model had not seen."]);
    section.append(hb.table({ head: [["sharing", "rows", "attainment, points", "LP speed, %"]],
      rows: data.model.map(row => [row.sharing, String(row.rows), points(row.error_of_loss), points(row.error_of_speed)]) }));
  };

  hb.views.cluster = (data, main) => {
    document.title = "hb sim-cluster";
    main.append(hb.element("header", {}, hb.element("h1", {}, "Who shares a GPU in a cluster"), hb.element("p", { class: "soft" },
      `${data.pods} pods that ask for GPUs. The bound is ${points(data.within)} points of attainment.`)));
    const rules = hb.section(main, "Rules", ["What each rule does."]);
    rules.append(hb.table({ head: [["rule", "what it does"]], rows: Object.entries(data.rules) }));
    for (const arrivals of Object.keys(TITLES)) drawArrivals(main, data, arrivals);
    drawSensitivity(main, data);
    drawModel(main, data);
    const list = hb.section(main, "Assumptions", ["The numbers hold under these assumptions."]);
    list.append(hb.element("ul", {}, ...data.assumptions.map(text => hb.element("li", {}, text))));
  };
})();

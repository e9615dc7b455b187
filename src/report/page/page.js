"use strict";
/*
 * Draws the data with the view of its kind. The address "#svg=N" replaces the page by the text of chart N as a file of its
 * own, for programs that save charts (tools/save_chart.py).
 */
(() => {
  const main = document.querySelector("main");
  const data = JSON.parse(document.getElementById("data").textContent);
  const view = data && hb.views[data.kind];
  if (!view) {
    main.append(hb.element("p", {}, data ? `This page cannot draw results of the kind "${data.kind}".`
      : "This page has no results. `hb sim --report FILE` and `hb bench --report FILE` write pages that have."));
    return;
  }
  view(data, main);
  const chosen = location.hash.match(/^#svg=(\d+)$/);
  if (!chosen) return;
  const svg = document.querySelectorAll("svg.plot")[chosen[1]];
  document.body.replaceChildren(hb.element("pre", { id: "svg" }, svg ? hb.svgText(svg) : ""));
})();

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws docs/h200-pairs.svg and docs/h200-llm.svg from bench/results/h200: attainment against the speed of low priority.

usage: plot_evaluation.py [--check]

--check draws nothing; it exits 1 if a committed picture differs from the picture of the data.
"""
import json
import os
import sys

from plot_colocation import DOCS, STYLE, line, text

RESULTS = os.path.join(DOCS, "..", "bench", "results", "h200")
sys.path.insert(0, os.path.join(DOCS, "..", "bench"))
from hbbench import results  # noqa: E402  pylint: disable=wrong-import-position

PANEL, GAP, TOP, LEFT, BELOW, LEGEND = 250, 40, 58, 50, 62, 40
# The letter of each way of sharing, what the legend says, and the class of its color.
WAYS = {"temporal": ("T", "temporal", "temporal"), "spatial": ("S", "spatial", "spatial"), "timeslice": ("N", "time slices", "gated"),
        "native": ("N", "time slices", "gated"), "mps_prio": ("M", "MPS with priorities", "gated"),
        "mps": ("M", "MPS with priorities", "gated"), "reef": ("R", "REEF's rule", "gated"), "orion": ("O", "Orion's rule", "gated")}
SIZES = {"1b": "1.2", "8b": "8"}
MORE_STYLE = "\n.letter { fill: #ffffff; font-size: 9px; font-weight: 600 }"


class Panel:
    """One square with both axes from 0 to 100 %."""

    def __init__(self, number, per_row, title):
        self.left = LEFT + number % per_row * (PANEL + GAP)
        self.top = TOP + number // per_row * (PANEL + BELOW)
        self.title = title

    def x_of(self, share):
        return self.left + PANEL * share

    def y_of(self, share):
        return self.top + PANEL * (1 - share)

    def axes(self):
        out = [text(self.left, self.top - 10, self.title, "title")]
        for percent in range(0, 101, 20):
            x, y = self.x_of(percent / 100), self.y_of(percent / 100)
            out += [line(x, self.top, x, self.top + PANEL, "grid"), text(x, self.top + PANEL + 14, f"{percent}", "tick", "middle")]
            out += [line(self.left, y, self.left + PANEL, y, "grid"), text(self.left - 5, y + 4, f"{percent}", "tick", "end")]
        return out + [text(self.x_of(0.5), self.top + PANEL + 30, "speed of low priority, % of alone", "note", "middle")]

    def alone(self, share):
        y = self.y_of(share)
        return [line(self.left, y, self.left + PANEL, y, "alone")]

    def points(self, points):
        """Points (name, speed of low priority, attainment, whether with an objective)."""
        out = []
        for name, low, attained, objective in sorted(points):
            x, y = self.x_of(low), self.y_of(attained)
            letter, _, color = WAYS[name]
            out.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="8.5" fill-opacity="0.85" class="{color}"/>')
            out.append(text(x, y + 3.2, letter + ("+" if objective else ""), "letter", "middle"))
        return out


def legend(names, top, objective):
    words = list(dict.fromkeys(f"{WAYS[name][0]} {WAYS[name][1]}" for name in WAYS if name in names))
    words += ["+ with an objective"] if objective else []
    return [text(LEFT, top, ",  ".join(words) + "; dashed: alone", "note")]


def picture(title, caption, panels, per_row):
    rows = -(-len(panels) // per_row)
    width, height = LEFT + per_row * (PANEL + GAP), TOP + rows * (PANEL + BELOW) + LEGEND - BELOW + 30
    out = ["<!-- SPDX-License-Identifier: Apache-2.0; drawn by docs/plot_evaluation.py -->",
           f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">',
           f"<title>{title}</title>", f"<style>{STYLE}{MORE_STYLE}\n</style>", text(LEFT, 18, caption, "title")]
    for panel, alone, points in panels:
        out += panel.axes() + panel.alone(alone) + panel.points(points)
    points = [point for _, _, found in panels for point in found]
    out += legend({point[0] for point in points}, height - 12, any(point[3] for point in points))
    return "\n".join(out + ["</svg>"]) + "\n"


def draw_pairs():
    panels = []
    for number, case in enumerate(results.load(os.path.join(RESULTS, "pairs.json.gz"))["cases"]):
        cells = {cell["name"]: cell for cell in case["sharing"]}
        attained = {name: cell["high"][0]["summary"]["attainment"][0] for name, cell in cells.items()}
        points = [(name, cell["low"][0]["summary"]["of_alone"][0], attained[name], False)
                  for name, cell in cells.items() if name in WAYS]
        panels.append((Panel(number, 2, case["name"].replace("-", " ")), attained["exclusive"], points))
    return picture("Attainment of a service against the speed of the program beside it, for six ways of sharing an H200",
                   "Requests within the p99 alone, %, on one H200 (suite pairs)", panels, 2)


def draw_llm():
    with open(os.path.join(RESULTS, "llm.json"), encoding="utf-8") as file:
        cells = json.load(file)["cells"]
    panels = []
    for number, (model, load, low) in enumerate((("1b", 50, "train"), ("1b", 80, "train"), ("1b", 80, "lora"), ("8b", 80, "train"))):
        found = [cell for cell in cells if (cell["model"], cell["load"]) == (model, load)]
        alone = next(cell for cell in found if cell["place"] == "native" and not cell["low"])["attainment"]
        points = [(cell["place"], cell["low_of_alone"], cell["attainment"], cell["objective"]) for cell in found if cell["low"] == low]
        what = {"train": "training", "lora": "LoRA"}[low]
        panels.append((Panel(number, 2, f"{SIZES[model]} billion, {load} % load, {what}"), alone, points))
    return picture("Attainment of a language model against the speed of the job beside it, for four ways of sharing an H200",
                   "Answers within 1.25 times the p99 alone of their time per token, %, one H200", panels, 2)


def main():
    stale = 0
    for name, draw in (("h200-pairs.svg", draw_pairs), ("h200-llm.svg", draw_llm)):
        path = os.path.join(DOCS, name)
        if sys.argv[1:] != ["--check"]:
            with open(path, "w", encoding="utf-8") as out:
                out.write(draw())
            continue
        with open(path, encoding="utf-8") as committed:
            if committed.read() != draw():
                print(f"docs/{name} is stale: run docs/plot_evaluation.py")
                stale = 1
    return stale


if __name__ == "__main__":
    sys.exit(main())

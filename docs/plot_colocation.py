#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws docs/h200-colocation.svg from data/traces/h200-colocation.csv.

usage: plot_colocation.py [--check]

--check draws nothing; it exits 1 if the committed picture differs from the picture
of the data. Colors follow the reader's light or dark mode.
"""

import csv
import math
import os
import sys

DOCS = os.path.dirname(os.path.abspath(__file__))
DATA = os.path.join(DOCS, "..", "data", "traces", "h200-colocation.csv")
PICTURE = os.path.join(DOCS, "h200-colocation.svg")

# Training alone on this GPU, iterations/s (data/traces/README.md), and the title of the panel.
PANELS = [
    ("resnet50_train_b128", 33.9, "beside resnet50 training"),
    ("llama8_train_b4", 10.25, "beside LLM training"),
]
HIGH, RATE = "resnet50_b1", "60"
LABELS = {  # mode: offset of its label from its point (x, y, anchor), in each panel
    "timeslice": [(-8, 4, "end"), (-8, 4, "end")],
    "ts100": [(8, 4, "start"), (8, 6, "start")],
    "ts1": [(0, -9, "middle"), (8, -4, "start")],
    "mps": [(-8, 4, "end"), (-8, 4, "end")],
    "mps_prio": [(-8, 4, "end"), (-8, 4, "end")],
    "mps_88": [(8, 4, "start"), (-8, 4, "end")],
    "mps_gate2": [(4, 17, "start"), (6, 18, "start")],
    "mps_gate2_88": [(0, 18, "middle"), (-4, 18, "middle")],
    "mps_gate8_88": [(0, -9, "middle"), (-8, 4, "end")],
}
WIDTH, HEIGHT = 860, 440
TOP, BOTTOM, LEFT, PANEL, GAP = 56, 382, 56, 370, 44
X_LOW, X_HIGH = 65.0, 100.0
Y_LOW, Y_HIGH = 5.5, 80.0

STYLE = """
text { font: 12px system-ui, sans-serif; fill: #24292f }
.title { font-weight: 600; font-size: 13px } .tick, .note { fill: #57606a; font-size: 11px }
.grid { stroke: #d0d7de; stroke-width: 1 } .alone { stroke: #1a7f37; stroke-dasharray: 5 4; stroke-width: 1.5 }
.alone-text { fill: #1a7f37; font-size: 11px }
.temporal { fill: #0969da } .spatial { fill: #bc4c00 } .gated { fill: #8250df }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .tick, .note { fill: #9198a1 } .grid { stroke: #3d444d }
.alone { stroke: #3fb950 } .alone-text { fill: #3fb950 }
.temporal { fill: #4493f8 } .spatial { fill: #f0883e } .gated { fill: #ab7df8 }
}"""


def kind(mode):
    if "gate" in mode:
        return "gated"
    return "spatial" if mode.startswith("mps") else "temporal"


def x_of(panel, percent):
    left = LEFT + panel * (PANEL + GAP)
    return left + (percent - X_LOW) / (X_HIGH - X_LOW) * PANEL


def y_of(ms):
    return BOTTOM - math.log(ms / Y_LOW) / math.log(Y_HIGH / Y_LOW) * (BOTTOM - TOP)


def text(x, y, words, cls="", anchor="start"):
    return '<text x="%.1f" y="%.1f" class="%s" text-anchor="%s">%s</text>' % (x, y, cls, anchor, words)


def line(x1, y1, x2, y2, cls):
    return '<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" class="%s"/>' % (x1, y1, x2, y2, cls)


def axes(panel, title):
    out = [text(x_of(panel, X_LOW), TOP - 14, title, "title")]
    for percent in range(70, 101, 10):
        x = x_of(panel, percent)
        out += [line(x, TOP, x, BOTTOM, "grid"), text(x, BOTTOM + 16, "%d %%" % percent, "tick", "middle")]
    for ms in (7, 10, 20, 40, 80):
        y = y_of(ms)
        out.append(line(x_of(panel, X_LOW), y, x_of(panel, X_HIGH), y, "grid"))
        if panel == 0:
            out.append(text(LEFT - 6, y + 4, "%d ms" % ms, "tick", "end"))
    out.append(text(x_of(panel, (X_LOW + X_HIGH) / 2), BOTTOM + 36, "speed of the training, alone = 100 %", "note", "middle"))
    return out


def points(panel, rows, low, alone_rate):
    out = []
    for row in rows:
        if row["low"] != low:
            continue
        mode, ms = row["sharing"], float(row["p99_us"]) / 1000
        x, y = x_of(panel, 100 * float(row["low_it_s"]) / alone_rate), y_of(ms)
        dx, dy, anchor = LABELS[mode][panel]
        out.append('<circle cx="%.1f" cy="%.1f" r="4.5" class="%s"/>' % (x, y, kind(mode)))
        out.append(text(x + dx, y + dy, mode, "", anchor))
    return out


def picture():
    with open(DATA, encoding="utf-8", newline="") as data:
        rows = [r for r in csv.DictReader(data) if r["high"] == HIGH and r["rate_per_s"] == RATE]
    alone_ms = next(float(r["p99_us"]) for r in rows if r["sharing"] == "timeslice" and not r["low"]) / 1000
    out = [
        "<!-- SPDX-License-Identifier: Apache-2.0; drawn by docs/plot_colocation.py -->",
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img">' % (WIDTH, HEIGHT),
        "<title>p99 latency of resnet50 inference at 60 requests/s against the speed of a training beside it</title>",
        "<style>%s\n</style>" % STYLE,
        text(LEFT, 16, "p99 latency of resnet50 inference (60 requests/s), measured on one H200", "title"),
    ]
    for panel, (low, alone_rate, title) in enumerate(PANELS):
        out += axes(panel, title)
        out.append(line(x_of(panel, X_LOW), y_of(alone_ms), x_of(panel, X_HIGH), y_of(alone_ms), "alone"))
        out.append(text(x_of(panel, X_LOW) + 2, y_of(alone_ms) - 5, "inference alone", "alone-text"))
        out += points(panel, rows, low, alone_rate)
    out.append("</svg>")
    return "\n".join(out) + "\n"


def main():
    if sys.argv[1:] == ["--check"]:
        with open(PICTURE, encoding="utf-8") as committed:
            if committed.read() != picture():
                print("docs/h200-colocation.svg is stale: run docs/plot_colocation.py")
                return 1
        return 0
    with open(PICTURE, "w", encoding="utf-8") as out:
        out.write(picture())
    return 0


if __name__ == "__main__":
    sys.exit(main())

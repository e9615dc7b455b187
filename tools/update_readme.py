#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fills the README's table and picture from a run of build/hb.

usage: tools/update_readme.py [HB]    (default build/hb)

The table stands between two comments in README.md, the picture is
docs/sim-h200.svg. Run it after the GPU model, a policy or the traces change.
"""
import json
import os
import subprocess
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
README = os.path.join(ROOT, "README.md")
PICTURE = os.path.join(ROOT, "docs", "sim-h200.svg")
BEGIN, END = "<!-- begin: tools/update_readme.py -->\n", "<!-- end -->\n"
ARGUMENTS = "sim --high resnet50_b1@60/s --low {low} --sharing all --seconds 60 --seed 1"
LOWS = ["resnet50_train_b128", "llama8_train_b4"]


def run(binary, low, plot):
    command = [binary] + ARGUMENTS.format(low=low).split() + ["--json"] + (["--plot", plot] if plot else [])
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def latencies(result):
    high = result["high"][0]
    return f"{high['p50_us'] / 1e3:.1f} / {high['p99_us'] / 1e3:.1f} ms | {100 * high['attainment']:.0f} %"


def speed(result):
    return f"{100 * result['low'][0]['relative']:.0f} %"


def table(runs):
    slo = runs[0][0]["high"][0]["slo_us"] / 1e3
    lines = [
        "```",
        "build/hb " + ARGUMENTS.format(low=LOWS[0]) + " --report out.html",
        "build/hb " + ARGUMENTS.format(low=LOWS[1]) + " --report out.html",
        "```",
        "",
        "| sharing | resnet50 beside resnet50 training: p50 / p99 | in SLO | training | beside LLM training: p50 / p99 | in SLO | training |",
        "|---|---|---|---|---|---|---|",
    ]
    for first, second in zip(*runs):
        lines.append(f"| `{first['sharing']}` | {latencies(first)} | {speed(first)} | {latencies(second)} | {speed(second)} |")
    lines += ["", f"*In SLO*: share of requests within {slo:.1f} ms, the p99 of the service alone. *Training*: its speed, "
              "alone = 100 %. `exclusive` is a GPU for each."]
    return "\n".join(lines) + "\n"


def main():
    binary = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "build", "hb"))
    runs = [run(binary, low, PICTURE if low == LOWS[1] else None) for low in LOWS]
    with open(PICTURE, encoding="utf-8") as file:
        picture = file.read()
    with open(PICTURE, "w", encoding="utf-8") as file:
        file.write("<!-- SPDX-License-Identifier: Apache-2.0; drawn by hb sim (tools/update_readme.py) -->\n" + picture)
    with open(README, encoding="utf-8") as file:
        before, rest = file.read().split(BEGIN)
    with open(README, "w", encoding="utf-8") as file:
        file.write(before + BEGIN + table(runs) + END + rest.split(END, 1)[1])


if __name__ == "__main__":
    main()

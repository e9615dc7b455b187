#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fills the tables of README.md and docs/sharing-modes.md: the measured ones from bench/results, the simulated ones from a run of hb.

usage: tools/update_readme.py [HB]    (default build/hb)

Each table is between two comments. Run the script after the GPU model, a
policy, a default or the traces change. Picture: docs/sim-h200.svg, from
tools/draw_pages.py.
"""
import gzip
import json
import os
import subprocess
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
BEGIN, END = "<!-- begin: tools/update_readme.py {} -->\n", "<!-- end -->\n"
# A measured table: the engine, the case, and the result file of `hb bench run engines`.
MEASURED = {
    "temporal": ("graph-60-beside-llm-training", "bench/results/h200/engines.json.gz"),
    "spatial": ("eager-150-beside-training", "bench/results/h200/engines.json.gz"),
}
NAMES = {
    "exclusive": "a GPU for each program",
    "timeslice": "time slicing (the driver's default)",
    "mps_prio": "MPS with priorities",
    "mps_60": "MPS, training on 60 % of the SMs",
    "temporal": "Hummingbird, temporal engine",
    "spatial": "Hummingbird, spatial engine",
}
ARGUMENTS = "sim --high resnet50_b1@60/s --low {low} --sharing all --seconds 60 --seed 1"
LOWS = ["resnet50_train_b128", "llama8_train_b4"]
# Modes of the short table: the name in `hb sim`, and what it is.
SHORT = {
    "exclusive": "a GPU for each program",
    "timeslice": "the driver's time slices",
    "mps": "MPS",
    "mps_prio": "MPS with priorities",
    "mps_88": "MPS, training on 88 % of the SMs",
    "temporal": "**Hummingbird, temporal engine (default)**",
    "spatial": "**Hummingbird, spatial engine**",
}


def measured_table(engine):
    """The rows of one case: only the engine that the table is about, beside the baselines."""
    name, path = MEASURED[engine]
    with gzip.open(os.path.join(ROOT, path), "rt", encoding="utf-8") as file:
        result = json.load(file)
    case = next(case for case in result["cases"] if case["name"] == name)
    lines = ["| sharing | requests/s served | p50 | p99 | in SLO | training |", "|---|---|---|---|---|---|"]
    for way in case["sharing"]:
        if way["name"] not in NAMES or (way["class"] == "engine" and way["name"] != engine):
            continue
        high = way["high"][0]["summary"]
        bold = "**" if way["class"] == "engine" else ""
        lines.append(f"| {bold}{NAMES[way['name']]}{bold} | {high['rate_per_s']:.0f} | {high['p50_us'][0] / 1e3:.1f} ms | "
                     f"{high['p99_us'][0] / 1e3:.1f} ms | {100 * way['attainment']:.0f} % | {100 * way['low_of_alone'][0]:.0f} % |")
    n = case["sharing"][0]["high"][0]["summary"]["seen"]
    lines += ["", f"SLO: {case['high'][0]['slo_us'] / 1e3:.1f} ms, the p99 alone. {n} requests in each row, "
              f"{case['rounds']} alternating rounds on one {result['gpu']}, driver {result['driver']}."]
    return "\n".join(lines) + "\n"


def run_hb(binary, low):
    command = [binary] + ARGUMENTS.format(low=low).split() + ["--json"]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def latencies(result):
    high = result["high"][0]
    return f"{high['p50_us'] / 1e3:.1f} ms | {high['p99_us'] / 1e3:.1f} ms | {100 * high['attainment']:.0f} %"


def speed(result):
    return f"{100 * result['low'][0]['relative']:.0f} %"


def short_table(runs):
    lines = ["| sharing (`hb sim` name) | p50 | p99 | in SLO | LLM training |", "|---|---|---|---|---|"]
    for result in runs[1]:
        if result["sharing"] in SHORT:
            lines.append(f"| {SHORT[result['sharing']]} (`{result['sharing']}`) | {latencies(result)} | {speed(result)} |")
    slo = runs[1][0]["high"][0]["slo_us"] / 1e3
    lines += ["", f"*In SLO*: share of requests within {slo:.1f} ms, the p99 of the service alone. *Training*: its speed, alone = 100 %."]
    return "\n".join(lines) + "\n"


def full_table(runs):
    lines = ["```"] + ["build/hb " + ARGUMENTS.format(low=low) + " --report out.html" for low in LOWS] + ["```", ""]
    lines += ["| mode | beside resnet50 training: p50 | p99 | in SLO | training | beside LLM training: p50 | p99 | in SLO | training |",
              "|---|---|---|---|---|---|---|---|---|"]
    for first, second in zip(*runs):
        lines.append(f"| `{first['sharing']}` | {latencies(first)} | {speed(first)} | {latencies(second)} | {speed(second)} |")
    return "\n".join(lines) + "\n"


def replace_table(name, which, table):
    path, begin = os.path.join(ROOT, name), BEGIN.format(which)
    with open(path, encoding="utf-8") as file:
        before, rest = file.read().split(begin)
    with open(path, "w", encoding="utf-8") as file:
        file.write(before + begin + table + END + rest.split(END, 1)[1])


def main():
    binary = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "build", "hb"))
    runs = [run_hb(binary, low) for low in LOWS]
    replace_table("README.md", "simulated", short_table(runs))
    replace_table(os.path.join("docs", "sharing-modes.md"), "simulated", full_table(runs))
    for engine in MEASURED:
        replace_table("README.md", engine, measured_table(engine))


if __name__ == "__main__":
    main()

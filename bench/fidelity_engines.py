# SPDX-License-Identifier: Apache-2.0
"""The rows of docs/fidelity.md for our own engines: what an H200 measured, and the same run in `hb sim`.

Imported by fidelity.py. Every row takes from bench/results/h200 what was measured without LP (arrivals, how long a
request took alone, how much that scattered) and gives it to the simulator. What it compares is LP's speed and the share
of requests within the p99 of the same service without LP.
"""
import gzip
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
DATA = os.path.join(ROOT, "data")
RESULTS = os.path.join(ROOT, "bench", "results", "h200")
ALONE = "h200-pytorch-2.11.alone.csv"
# Targets in points of LP's speed alone and of attainment.
LOW_POINTS, ATTAINMENT_POINTS = 5.0, 2.0
SEEDS = (1, 2, 3)
# Windows of the spatial engine's results, as `hb bench --halves` has them: LP runs in every other half, and requests count
# this long after a change.
HALF_S, SETTLE_S, HALVES = 0.8, 0.2, 6
TRAINING = {"resnet": "resnet50_train_b128", "llama": "llama8_train_b4"}
# Lengths of the noise that hb sim draws: an exponential distribution has its median at 0.69 of its mean, its p95 at 3.
EXPONENTIAL_P50, EXPONENTIAL_P95 = 0.69, 3.0


def quantile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def load(name):
    with gzip.open(os.path.join(RESULTS, name), "rt", encoding="utf-8") as source:
        return source.read()


def noise_of(service_us):
    """(share of noise, time without noise): an eager service's time is mostly that of its CPU, which others use, too."""
    ratio = quantile(service_us, 0.95) / quantile(service_us, 0.5)
    noise = max(0.0, (ratio - 1) / (EXPONENTIAL_P95 - EXPONENTIAL_P50 * ratio)) if ratio < 3 else 1.0
    return noise, 1 + EXPONENTIAL_P50 * noise


# ---- rows: windows in which LP comes and goes ----

def values_of(answer, what, halves):
    return [value for arrival, value in zip(answer["arrival_s"], answer[what + "_us"])
            if int(arrival / HALF_S) in halves and arrival % HALF_S >= SETTLE_S]


def window_row(window, number):
    """None where HP could not keep up even without LP."""
    answer, line = window["answer"], window["line"]
    if not line:
        return None
    beside, alone = {1, 3, 5}, {0, 2, 4}
    noise, scale = noise_of(values_of(answer, "service", alone))
    host_us = quantile(values_of(answer, "service", beside), 0.5) - quantile(values_of(answer, "wait", beside), 0.5)
    sharing = window["mode"]
    if sharing == "spatial":
        _, _, reserve, gaps, *_ = window["beacons"][0][0]
        sharing += f":reserve={reserve}:gaps={gaps}"
    return {"source": f"window {number}", "engine": window["mode"], "sharing": sharing, "high": window["high"],
            "form": "eager", "low": TRAINING[window["low"].split("-")[0]], "arrivals": answer["arrival_s"],
            "seconds": HALVES * HALF_S, "noise": noise,
            "alone_us": (host_us + quantile(values_of(answer, "wait", alone), 0.5)) / scale,
            "low_percent": 100 * line["low_of_alone"], "attainment": 100 * line["attainment"],
            "control": 100 * line["control"]}


def window_rows():
    windows = [json.loads(line) for line in load("spatial-windows.jsonl.gz").splitlines()]
    chosen = [window for window in windows if window["mode"] in ("temporal", "spatial")]
    rows = [window_row(window, i + 1) for i, window in enumerate(chosen)]
    return [row for row in rows if row]


# ---- rows: a CUDA graph as service ----

def poisson(rate, seconds, windows=1):
    """Arrivals as the measured service drew them: the same in each window."""
    random.seed(1)
    times, at = [], random.expovariate(rate)
    while at < seconds:
        times.append(at)
        at += random.expovariate(rate)
    return [at + i * seconds for i in range(windows) for at in times]


def within(latencies, alone):
    slo = quantile(alone, 0.99)
    return 100 * sum(latency <= slo for latency in latencies) / len(latencies)


def graph_row(source, engine, low, arrivals, seconds, **measured):
    return dict({"source": source, "engine": engine, "sharing": engine, "high": "resnet50_b1", "form": "graph",
                 "low": low, "arrivals": arrivals, "seconds": seconds, "noise": 0.0, "alone_us": None}, **measured)


def torch_rows():
    """Rows of temporal.json: three windows of 3 s."""
    latencies = json.loads(load("temporal-raw.json.gz"))["torch"]["latency_us"]
    with open(os.path.join(RESULTS, "temporal.json"), encoding="utf-8") as source:
        kept = {row["what"]: row["measured"] for row in json.load(source)}
    alone, rows = latencies["hp alone hb"], []
    arrivals, seconds = poisson(60, 3, 3), 9
    for short, low in TRAINING.items():
        rows.append(graph_row("temporal.json", "temporal", low, arrivals, seconds,
                              low_percent=kept[f"LP {low} beside it, of alone"],
                              attainment=within(latencies[f"hp beside {short}-hb"], alone), control=99.0))
    return rows


def http_rows():
    """Rows of foresight.json: two windows of 4.5 s; LP's speed is that of the same engine without signs."""
    with open(os.path.join(RESULTS, "foresight.json"), encoding="utf-8") as source:
        measured = {row["what"]: row for row in json.load(source)}
    rows = []
    for low in TRAINING.values():
        kept = measured[f"LP {low} beside it, of without hints"]["measured"]
        share = measured[f"HTTP resnet50 b1 graph 60/s, hints from sockets, beside {low}, attainment of the p99 alone"]
        row = graph_row("foresight.json", "temporal", low, poisson(60, 4.5, 2), 9, low_percent=kept,
                        attainment=share["measured"], control=share["baseline"])
        rows.append(dict(row, sharing="temporal:hints=learned", against="temporal:without=foresight"))
    return rows


def pair_rows():
    """`hb bench run pairs` before its services had sockets: three windows of 0.6 s."""
    result = json.loads(load("pairs-short.json.gz"))
    known = {"resnet50-beside-training": ("resnet50_b1", "graph", "resnet50_train_b128"),
             "decode-beside-finetune": ("llama8_decode_b8", "eager", "llama8_train_b4")}
    rows = []
    for case in result["cases"]:
        if case["name"] not in known:
            continue
        high, form, low = known[case["name"]]
        by_name = {sharing["name"]: sharing for sharing in case["sharing"]}
        alone = by_name["exclusive"]["high"][0]
        seconds = result["window_s"] * result["rounds"]
        latencies = [int(text) / 1e3 for one in alone["rounds"] for text in one["latency_ns"].split()]
        for engine in ("temporal", "spatial"):
            summary = by_name[engine]["high"][0]["summary"]
            row = graph_row("pairs-short.json", engine, low, poisson(summary["seen"] / seconds, 6), 6,
                            low_percent=100 * by_name[engine]["low"][0]["summary"]["of_alone"][0],
                            attainment=100 * summary["attainment"][0],
                            control=100 * alone["summary"]["attainment"][0])
            eager = {"high": high, "form": form, "alone_us": quantile(latencies, 0.25)} if form == "eager" else {}
            rows.append(dict(row, rate=summary["seen"] / seconds, **eager))
    return rows


def engine_rows():
    rows = torch_rows() + http_rows() + pair_rows() + window_rows()
    for row in rows:
        row.setdefault("rate", len(row["arrivals"]) / row["seconds"])
    return rows


# ---- the same in the simulator ----

def write_alone(folder, workload, alone_us):
    """The traces of the repository, but for how long one program takes alone."""
    os.makedirs(os.path.join(folder, "traces"))
    os.symlink(os.path.join(DATA, "gpus"), os.path.join(folder, "gpus"))
    for name in os.listdir(os.path.join(DATA, "traces")):
        if name != ALONE:
            os.symlink(os.path.join(DATA, "traces", name), os.path.join(folder, "traces", name))
    with open(os.path.join(DATA, "traces", ALONE), encoding="utf-8") as source:
        text = source.read()
    if alone_us:
        text = re.sub(rf"^{workload},[0-9]+", f"{workload},{alone_us:.0f}", text, flags=re.M)
    with open(os.path.join(folder, "traces", ALONE), "w", encoding="utf-8") as out:
        out.write(text)


def run_once(hb, row, sharing, seed):
    with tempfile.TemporaryDirectory(prefix="hb-fidelity-") as folder:
        write_alone(folder, row["high"], row["alone_us"])
        arrivals = os.path.join(folder, "arrivals.txt")
        with open(arrivals, "w", encoding="utf-8") as out:
            out.writelines(f"{at:.6f}\n" for at in row["arrivals"])
        high = row["high"] + (":graph" if row["form"] == "graph" else "")
        command = [hb, "sim", "--json", "--jobs", "1", "--sharing", sharing, "--seconds", f"{row['seconds']:g}",
                   "--high", f"{high}@file:{arrivals},slo=auto", "--low", row["low"], "--lead", "700ms",
                   "--seed", str(seed), "--host-noise", f"{100 * row['noise']:.1f}"]
        done = subprocess.run(command, env=dict(os.environ, HB_DATA_DIR=folder), stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            sys.exit(f"{' '.join(command)}\nended with status {done.returncode}: {done.stderr.strip()}")
        result = json.loads(done.stdout)
        return 100 * result["low"][0]["relative"], 100 * result["high"][0]["attainment"]


def simulate_engine(hb, row):
    """Adds what the simulator says: the mean over a few seeds of the host's noise."""
    runs = [run_once(hb, row, row["sharing"], seed) for seed in (SEEDS if row["noise"] else SEEDS[:1])]
    low, attainment = (statistics.mean(values) for values in zip(*runs))
    if "against" in row:
        low = 100 * low / run_once(hb, row, row["against"], SEEDS[0])[0]
    return dict(row, low_simulated=low, attainment_simulated=attainment)


# ---- the verdict ----

# Rows outside of the targets, and how far off they are at most (points of LP's speed, of attainment). Why: docs/fidelity.md.
KNOWN = {
    "foresight.json": {("temporal", "resnet50_train_b128"): (LOW_POINTS, 3.5)},
    "pairs-short.json": {("spatial", "resnet50_train_b128"): (7.5, 6),
                   ("temporal", "llama8_train_b4"): (LOW_POINTS, 2.5)},
    "window 1": {("spatial", "resnet50_train_b128"): (9, ATTAINMENT_POINTS)},
    "window 5": {("temporal", "resnet50_train_b128"): (13, ATTAINMENT_POINTS)},
    "window 6": {("temporal", "llama8_train_b4"): (13, 3.5)},
    "window 7": {("temporal", "resnet50_train_b128"): (6.5, 4.5)},
    "window 9": {("spatial", "resnet50_train_b128"): (12.5, ATTAINMENT_POINTS)},
    "window 10": {("spatial", "llama8_train_b4"): (24, ATTAINMENT_POINTS)},
    "window 11": {("spatial", "resnet50_train_b128"): (12, ATTAINMENT_POINTS)},
    "window 12": {("spatial", "llama8_train_b4"): (13, ATTAINMENT_POINTS)},
    "window 13": {("spatial", "resnet50_train_b128"): (LOW_POINTS, 5)},
}


def misses_of(row):
    """(whether the row is outside of the targets, whether it is farther off than its known miss explains)."""
    low = abs(row["low_simulated"] - row["low_percent"])
    attainment = abs(row["attainment_simulated"] - row["attainment"])
    most_low, most_attainment = KNOWN.get(row["source"], {}).get(
        (row["engine"], row["low"]), (LOW_POINTS, ATTAINMENT_POINTS))
    outside = low > LOW_POINTS or attainment > ATTAINMENT_POINTS
    return outside, low > most_low or attainment > most_attainment


def engine_table(rows):
    lines = ["| source | engine | service | training | served/s | LP measured | simulated | error | in SLO measured (alone) | simulated | error |",
             "|---|---|---|---|---|---|---|---|---|---|---|"]
    for row in rows:
        low = row["low_simulated"] - row["low_percent"]
        share = row["attainment_simulated"] - row["attainment"]
        lines.append(f"| {row['source']} | {row['engine']} | {row['high']} {row['form']} | {row['low']} | {row['rate']:.0f} "
                     f"| {row['low_percent']:.1f} % | {row['low_simulated']:.1f} % | {bold(low, LOW_POINTS)} "
                     f"| {row['attainment']:.1f} % ({row['control']:.1f}) | {row['attainment_simulated']:.1f} % "
                     f"| {bold(share, ATTAINMENT_POINTS)} |")
    return "\n".join(lines)


def bold(points, target):
    return f"**{points:+.1f}**" if abs(points) > target else f"{points:+.1f}"

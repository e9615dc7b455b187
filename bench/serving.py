#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Serving policies at 60 to 150 % load: results file, tables of docs/serving-scheduler.md.

Every policy gets the same requests: Poisson, bursts, and the times of a production
trace (live: with --traffic). Without --live in `hb
sim-serve`: virtual time on the GPU model, exact, the same on every machine. With
it against a living `hb serve` (serve_live.py): models in PyTorch on a GPU, or
recorded programs on the simulated GPU in real time, to try this script.

usage: serving.py [--hb BINARY] [--live torch|trace] [--seconds N] [--results FILE] [--page docs/serving-scheduler.md] ...
exit status: 0 all targets met, 1 not, 2 a run failed.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

import serve_live

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LOADS = [60, 70, 80, 90, 100, 110, 130, 150]
# Name -> loads, options of sim-serve. The models of the second mix copy much: once with the link of an H200, once with a
# link of 12 GB/s, as an older machine has.
USUAL = "usual"
COPIES = ["--models", "stream,upscale,clip,recommend,resume,prefill"]
MIXES = {USUAL: (LOADS, []), "copies": ([80, 110], COPIES), "copies over 12 GB/s": ([80, 110], COPIES + ["--link", "12"])}
TRAFFIC = ["poisson", "bursts"]
TRACE_LOADS = (80, 110, 130)  # simulated, usual mix
BASELINES = ["fifo", "priority-fifo", "edf", "clockwork", "preempt", "separate"]
ABLATIONS = ["ours-no-transfer", "ours-no-interference", "ours-no-preemption"]
PARTS = {"all_parts": "all parts", "no_transfer": "no transfer", "no_interference": "no interference",
         "neither": "neither"}
# Predictors of others (src/simserving/comparators.h).
COMPARED = {"static_regression": "static regression", "sgd": "SGD", "ewma": "EWMA"}
PREDICTORS = {**PARTS, **COMPARED}
RUN, COPY = ["run_median", "run_p95"], ["copy_median", "copy_p95"]
ERRORS = {"no_transfer": ["median", "p95"] + COPY, "no_interference": ["median", "p95"] + RUN,
          "neither": ["median", "p95"] + RUN + COPY, **dict.fromkeys(COMPARED, ["median", "p95"])}
# A load of this percentage of the GPU's capacity and more counts as high; there the margin must be this many points.
HIGH_LOAD, HIGH_LOAD_POINTS = 100, 1.02
PAGE_LOADS = (60, 80, 100, 110, 130, 150)  # rows of the page; the results file has every load
# Windows with --live in order of importance; windows that do not fit into --budget are left out.
LIVE_LOADS = (100, 110, 80, 60, 90, 70)  # --loads adds others
LIVE_MIXES = {USUAL: serve_live.MODELS, "copies": serve_live.COPIES}
BEGIN, END = "<!-- bench/serving.py %s begin -->", "<!-- end -->"


def simulate(job):
    arguments, mix, traffic, load = job
    name = f"{mix}-{traffic}-{load}.json".replace(" ", "-").replace("/", "")
    kept = os.path.join(arguments.keep, name) if arguments.keep else None
    if kept and os.path.exists(kept) and os.path.getsize(kept):
        with open(kept) as file:
            return json.load(file)["runs"]
    command = [arguments.hb, "sim-serve", "--json", "--errors", "--seconds", str(arguments.seconds),
               "--traffic", "trace:" + os.path.normpath(serve_live.llm_load.TRACE) if traffic == "trace" else traffic, "--load", str(load)] + MIXES[mix][1]
    data = os.path.join(ROOT, "data")
    environment = dict(os.environ, **({"HB_DATA_DIR": data} if os.path.isdir(data) else {}))
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        print(f"{' '.join(command)}\nended with status {done.returncode}: {done.stderr.strip()}", file=sys.stderr)
        return None
    if kept:
        with open(kept, "w") as file:
            file.write(done.stdout)
    return json.loads(done.stdout)["runs"]


def missed(runs, policy, priority):
    return round(100 * next(run for run in runs if run["policy"] == policy)[priority]["violations"], 2)


def live(arguments):
    """Returns runs in the simulator's form by mix, traffic and load, and whether a window failed."""
    policies = arguments.policies or ["ours", "preempt", "priority-fifo", "clockwork", "edf", "fifo", "separate"] + ABLATIONS
    until = time.monotonic() + arguments.budget
    with tempfile.TemporaryDirectory() as folder:
        keep = arguments.keep or folder
        os.makedirs(keep, exist_ok=True)
        loads = [load for load in LIVE_LOADS if not arguments.loads or load in arguments.loads]
        loads += [load for load in arguments.loads if load not in LIVE_LOADS]
        plan = [(traffic, load, policies) for load in loads for traffic in arguments.traffic]
        found = serve_live.run(arguments.hb, arguments.live, plan, arguments.seconds, until, keep, arguments.speed,
                               LIVE_MIXES[arguments.mix],
                               serve_live.Place(arguments.engine, arguments.gpus, arguments.measured, arguments.simulated_gpu),
                               arguments.capacity)
    if arguments.raw:
        with open(arguments.raw, "w") as file:
            json.dump({**found, "runs": [run for runs in found["runs"].values() for run in runs]}, file)
    for window in found["left_out"]:
        print(f"left out: {window['mark']}: {window['why']}", file=sys.stderr)
    compared = {(arguments.mix, *key): runs for key, runs in found["runs"].items() if "ours" in {run["policy"] for run in runs}}
    return compared, bool(found["left_out"])


def rows_of(found, command, about):
    rows = []

    def row(what, measured, baseline, unit, target, met):
        rows.append({"what": what, "measured": measured, "baseline": baseline, "unit": unit, "target": target,
                     "met": bool(met), "command": command, **about})

    for (mix, traffic, load), runs in found.items():
        where = f"{traffic}, {load} % load" + (f", {mix}" if mix != USUAL else "")
        there = {run["policy"] for run in runs}
        ours = missed(runs, "ours", "high")
        for baseline in [policy for policy in BASELINES + ABLATIONS if policy in there]:
            other = missed(runs, baseline, "high")
            least = HIGH_LOAD_POINTS if load >= HIGH_LOAD and baseline in BASELINES else 0
            target = f"at least {least} points lower" if least else "lower"
            row(f"HP requests not in time, {where}, against {baseline}", ours, other, "%", target,
                other - ours >= least and other > ours)
        if "preempt" in there:
            low, preempt = missed(runs, "ours", "low"), missed(runs, "preempt", "low")
            row(f"LP requests not in time, {where}, against preempt", low, preempt, "%", "no more", low <= preempt)
        errors = next((run["prediction_error"] for run in runs if run["policy"] == "ours"), None)
        for part in list(PREDICTORS)[1:] if errors else []:
            for which in ERRORS[part]:
                what = which.replace("run_", "of the run with its company known, ")
                what = what.replace("copy_", "of its copies with their company known, ")
                row(f"prediction error, {what}, {where}, against {PREDICTORS[part]}",
                    round(100 * errors["all_parts"][which], 1), round(100 * errors[part][which], 1), "%",
                    "lower", errors["all_parts"][which] < errors[part][which])
    return rows


def policy_table(found):
    """Requests not completed in time, high/low priority, in percent."""
    measured = {run["policy"] for runs in found.values() for run in runs}
    policies = [policy for policy in ["ours"] + BASELINES + ABLATIONS if policy in measured]
    lines = ["| traffic, load | " + " | ".join(policies) + " |", "|---" * (len(policies) + 1) + "|"]
    for (_, traffic, load), runs in found.items():
        there = {run["policy"] for run in runs}
        values = [f"{missed(runs, policy, 'high'):.2f}/{missed(runs, policy, 'low'):.1f}" if policy in there else ""
                  for policy in policies]
        lines.append(f"| {traffic}, {load} % | **{values[0]}** | " + " | ".join(values[1:]) + " |")
    return lines


def error_table(found):
    """Median and 95th percentile of the relative errors, in percent."""
    lines = ["| traffic, load | " + " | ".join(PREDICTORS.values()) + " |", "|---" * (1 + len(PREDICTORS)) + "|"]
    for (_, traffic, load), runs in found.items():
        known = next(run for run in runs if run["policy"] == "ours")["prediction_error"]
        errors = [f"{100 * known[part]['median']:.1f}, {100 * known[part]['p95']:.0f}" if known else ""
                  for part in PREDICTORS]
        lines.append(f"| {traffic}, {load} % | " + " | ".join(errors) + " |")
    return lines


def page_text(found, which):
    shown = {key: runs for key, runs in found.items() if key[2] in PAGE_LOADS} or found
    return "\n".join([BEGIN % which, ""] + policy_table(shown) + ["", "Prediction errors of complete batches at their start:", ""]
                     + error_table(shown) + [END])


def page_write(path, found, live):
    """The tables of each mix between its marks."""
    with open(path) as file:
        text = file.read()
    for mix in dict.fromkeys(key[0] for key in found):
        which = "live" if live else "simulated" if mix == USUAL else mix
        before, rest = text.split(BEGIN % which)
        part = {key: runs for key, runs in found.items() if key[0] == mix}
        text = before + page_text(part, which) + rest.split(END, 1)[1]
    with open(path, "w") as file:
        file.write(text)


def results_write(path, rows):
    with open(path, "w") as file:
        file.write("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")


def simulated(arguments):
    if arguments.keep:
        os.makedirs(arguments.keep, exist_ok=True)
    keys = [(mix, traffic, load) for mix in MIXES for traffic in TRAFFIC for load in MIXES[mix][0]]
    keys += [(USUAL, "trace", load) for load in TRACE_LOADS]
    with ThreadPoolExecutor(arguments.jobs) as pool:
        runs = list(pool.map(simulate, [(arguments, *key) for key in keys]))
    return None if None in runs else dict(zip(keys, runs))


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hb", default=os.path.join(ROOT, "build", "hb"))
    parser.add_argument("--live", choices=("torch", "trace"))
    parser.add_argument("--mix", choices=LIVE_MIXES, default=USUAL, help="live: the models")
    parser.add_argument("--loads", type=lambda text: [int(load) for load in text.split(",")], default=[],
                        help="live: these only, also others than the usual: 100,130")
    parser.add_argument("--traffic", type=lambda text: text.split(","), default=TRAFFIC,
                        help="live: of poisson, bursts and trace, the times of a production trace (poisson,bursts)")
    parser.add_argument("--engine", choices=("temporal", "spatial"), default="",
                        help="live: workers run under a daemon with this engine, as hb serve is shipped; otherwise as clients of "
                        "one MPS server")
    parser.add_argument("--gpus", type=int, default=1, help="live, with --engine")
    parser.add_argument("--measured", action="store_true", help="live, with --engine: the server measures the models' demands")
    parser.add_argument("--simulated-gpu", action="store_true", help="live, with --engine: to try this script without a GPU")
    parser.add_argument("--capacity", type=float, help="live: requests/s that count as 100 %%, instead of measuring them")
    parser.add_argument("--policies", type=lambda text: text.split(","), help="live: these only")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="simulations at one time")
    parser.add_argument("--seconds", type=float, default=None, help="of requests in a run (4; live 1.6)")
    parser.add_argument("--budget", type=float, default=600, help="live: seconds after which no run begins")
    parser.add_argument("--speed", type=float, default=1, help="live trace: of the simulated GPU")
    parser.add_argument("--keep", help="folder for each run's JSON, taken from there if it is there; live: journal and log")
    parser.add_argument("--raw", help="live: file for what every run gave")
    parser.add_argument("--results", help="file for what was found, against what it should be")
    parser.add_argument("--driver", help="put into the results file")
    parser.add_argument("--commit", help="put into the results file")
    parser.add_argument("--page", help="put the tables into this page")
    arguments = parser.parse_args()
    if arguments.engine and arguments.live != "torch":
        parser.error("--engine needs --live torch")
    for name in ("measured", "simulated_gpu"):
        if getattr(arguments, name) and not arguments.engine:
            parser.error("--%s needs --engine" % name.replace("_", "-"))
    if arguments.gpus < 1 or (arguments.gpus > 1 and not arguments.engine):
        parser.error("--gpus is at least 1, and more than 1 needs --engine")
    unknown = [traffic for traffic in arguments.traffic if traffic not in (*TRAFFIC, "trace")]
    if unknown:
        parser.error(f"--traffic {unknown[0]}: none of poisson, bursts, trace")
    if arguments.policies and "ours" not in arguments.policies:
        parser.error("--policies must have 'ours', with which the others are compared")
    arguments.seconds = arguments.seconds or (1.6 if arguments.live else 4)
    return arguments


def main():
    arguments = parse()
    try:
        found, failed = live(arguments) if arguments.live else (simulated(arguments), False)
    except (RuntimeError, OSError, ValueError, serve_live.Failed) as error:
        print(f"serving.py: {error}", file=sys.stderr)
        return 2
    if not found:
        return 2
    command = "bench/serving.py" + (f" --live {arguments.live}" if arguments.live else "") + f" --seconds {arguments.seconds:g}"
    command += f" --mix {arguments.mix}" if arguments.mix != USUAL else ""
    for name in ("engine", "capacity"):
        command += f" --{name} {getattr(arguments, name)}" if getattr(arguments, name) else ""
    command += (f" --gpus {arguments.gpus}" if arguments.gpus > 1 else "") + (" --measured" if arguments.measured else "")
    command += " --simulated-gpu" if arguments.simulated_gpu else ""
    command += " --policies " + ",".join(arguments.policies) if arguments.policies else ""
    command += " --loads " + ",".join(map(str, arguments.loads)) if arguments.loads else ""
    about = {key: getattr(arguments, key) for key in ("driver", "commit") if getattr(arguments, key)}
    rows = rows_of(found, command, about)
    if arguments.results:
        results_write(arguments.results, rows)
    if arguments.page:
        page_write(arguments.page, found, arguments.live)
    unmet = [row for row in rows if not row["met"]]
    for row in unmet:
        print(f"not met: {row['what']}: {row['measured']} {row['unit']}, {row['baseline']}; {row['target']}")
    print(f"{len(rows) - len(unmet)} of {len(rows)} targets met")
    return 2 if failed else 1 if unmet else 0


if __name__ == "__main__":
    sys.exit(main())

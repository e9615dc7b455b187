#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures what Hummingbird costs a program that shares the GPU with no other: calls of the driver, start, memory, and
processor time while nothing happens; and memory and processor time of an idle daemon.

  bench/own_cost.py --build build [--gpu sim] [--rounds 5] [--calls 2000] [--idle 1000] [--busy 0] [--start COMMAND]
                    [--places 'NAME; NAME'] [--budget SECONDS] [--out FILE]

Each place is a new process of cuda-tenant, and the places take turns in each round. --idle and --busy are milliseconds for each
process. With --busy N the program runs kernels for N ms, and NVML's energy counter gives the energy of a kernel; NVML counts in
steps of about 0.1 s. --start COMMAND is timed from its start to its end in each place, for example
--start 'python3 -c "import torch; torch.zeros(1).cuda()"'. Prints a table of medians; --out has all values as JSON. The
values of a simulated GPU describe the shim's own work, not a GPU.
"""
import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
from hbbench import tables  # noqa: E402  pylint: disable=wrong-import-position
from hbbench.energy import Energy  # noqa: E402  pylint: disable=wrong-import-position
from hbbench.process import Failed, Limits, Process, TimeIsUp  # noqa: E402  pylint: disable=wrong-import-position
from hbbench.stage import Stage, find_part  # noqa: E402  pylint: disable=wrong-import-position
from processor_time import cpu_seconds  # noqa: E402  pylint: disable=wrong-import-position

LIMIT_S = 120
# Name: way of sharing, whether with high priority, variables of the program.
PLACES = {
    "native": ("timeslice", True, {}),
    "MPS": ("mps", True, {}),
    "temporal, high": ("temporal", True, {}),
    "temporal, low": ("temporal", False, {}),
    "spatial, high": ("spatial", True, {}),
    "spatial, low": ("spatial", False, {}),
    "temporal, high, shim off": ("temporal", True, {"HB_OFF": "1"}),
}
COLUMNS = {"launch_ns": "launch ns", "graph_launch_ns": "graph ns", "round_trip_ns": "round trip ns", "allocation_ns": "alloc+free ns",
           "idle_cpu_ms_per_s": "idle ms/s", "pss_kib": "PSS KiB", "private_kib": "private KiB", "ready_ms": "ready ms",
           "start_ms": "start ms", "uj_per_kernel": "uJ/kernel"}


def pss_kib(pid):
    with open(f"/proc/{pid}/smaps_rollup", encoding="utf-8") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("Pss:"))


def place_of(stage, name):
    way, high, variables = PLACES[name]
    before, environment = stage.place(tables.find_way(way), high, ())
    return before, stage.environment(**environment, **variables)


def measure_program(args, stage, energy, name):
    """The values of one process of a place."""
    before, environment = place_of(stage, name)
    command = before + [find_part(stage.hb, "cuda-tenant"), "cost", str(args.calls), str(args.idle), str(args.busy)]
    begin = time.perf_counter()
    process = Process(name, command, environment, stage.folder, stage.limits)
    try:
        process.hear("ready", LIMIT_S)
        ready_ms = 1000 * (time.perf_counter() - begin)
        found = process.hear("cost", LIMIT_S)
        process.hear("busy", LIMIT_S)
        before_mj = energy.read()
        kernels = process.hear("done", LIMIT_S)["kernels"]
        after_mj = energy.read()
        process.child.stdin.close()
        process.child.wait(LIMIT_S)
    finally:
        process.kill()
    del found["event"]
    found["ready_ms"] = round(ready_ms, 2)
    if kernels and before_mj is not None and not args.gpu:
        found["uj_per_kernel"] = round(1000 * (after_mj - before_mj) / kernels, 1)
    return found


def measure_start(args, stage, name):
    """Milliseconds from the start of the command to its end."""
    before, environment = place_of(stage, name)
    begin = time.perf_counter()
    done = subprocess.run(before + shlex.split(args.start), env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    if done.returncode:
        raise Failed(f"--start {args.start}: {name}: ended with status {done.returncode}: {done.stderr.strip()[-300:]}")
    return round(1000 * (time.perf_counter() - begin), 2)


def measure_daemons(args, stage):
    """An idle daemon of each engine that was used, after its programs have ended."""
    found = {}
    for engine, daemon in stage.daemons.items():
        before, begin = cpu_seconds(daemon.process.pid), time.monotonic()
        stage.limits.sleep_until(begin + max(args.idle, 1) / 1000)
        cpu_s, wall_s = cpu_seconds(daemon.process.pid) - before, time.monotonic() - begin
        found[engine] = {"pss_kib": pss_kib(daemon.process.pid), "idle_cpu_ms_per_s": round(1000 * cpu_s / wall_s, 4)}
    return found


def measure_all(args, stage, chosen):
    values = {name: [] for name in chosen}
    energy = Energy()
    try:
        for name in chosen * args.rounds:
            row = measure_program(args, stage, energy, name)
            if args.start:
                row["start_ms"] = measure_start(args, stage, name)
            values[name].append(row)
        daemons = measure_daemons(args, stage)
    except TimeIsUp:
        print("own_cost.py: the budget was over; the result has fewer rounds", file=sys.stderr)
        daemons = {}
    return values, daemons


def summarize(values):
    """Medians of each place, and what each adds to `native`: the difference of the lowest values, which other programs of the
    machine disturb least."""

    def of_rounds(choose):
        return {name: {key: round(choose(row[key] for row in rows), 3) for key in COLUMNS if rows and key in rows[0]}
                for name, rows in values.items()}

    medians, native = of_rounds(statistics.median), of_rounds(min).get("native", {})
    added = {name: {key: round(value - native[key], 3) for key, value in row.items() if key in native}
             for name, row in of_rounds(min).items() if name != "native"}
    return medians, added


def print_table(medians, daemons):
    shown = [key for key in COLUMNS if any(key in row for row in medians.values())]
    print(f"{'':26}" + "".join(f"{COLUMNS[key]:>15}" for key in shown))
    for name, row in medians.items():
        print(f"{name:26}" + "".join(f"{row[key] if key in row else '':>15}" for key in shown))
    for engine, row in daemons.items():
        print(f"idle daemon ({engine}): {row['pss_kib']} KiB (PSS), {row['idle_cpu_ms_per_s']} ms of processor time in a second")


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(HERE, "../build"))
    parser.add_argument("--gpu", choices=["sim"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--idle", type=int, default=1000)
    parser.add_argument("--busy", type=int, default=0)
    parser.add_argument("--start")
    parser.add_argument("--places", default="", help=f"of: {'; '.join(PLACES)} (default: all)")
    parser.add_argument("--budget", type=float, default=300, help="seconds after which nothing else is measured (300)")
    parser.add_argument("--out")
    args = parser.parse_args()
    args.chosen = [name.strip() for name in args.places.split(";") if name.strip()] or list(PLACES)
    for name in args.chosen:
        if name not in PLACES:
            parser.error(f"--places: there is no '{name}'")
    if min(args.rounds, args.calls, args.idle + 1, args.busy + 1) < 1:
        parser.error("--rounds and --calls must be 1 or more, --idle and --busy 0 or more")
    return args


def main():
    args = parse()
    limits = Limits()
    limits.watch_signals()
    limits.end = time.monotonic() + args.budget
    stage = Stage(os.path.abspath(os.path.join(args.build, "hb")), bool(args.gpu), None, limits)
    try:
        values, daemons = measure_all(args, stage, args.chosen)
    except Failed as error:
        print(f"own_cost.py: {error}", file=sys.stderr)
        return 1
    finally:
        limits.end = None
        stage.close()
    medians, added = summarize(values)
    if args.out:
        with open(args.out, "w", encoding="utf-8") as file:
            json.dump({"command": shlex.join(sys.argv), "simulated": bool(args.gpu), "medians": medians, "added_to_native": added,
                       "daemons": daemons, "rounds": values}, file, indent=1)
            file.write("\n")
    print_table(medians, daemons)
    return 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Suites of `hb bench` one after another within one time: micro, adversary, and disb in short form.

  run_all.py OUT [--seconds 330] [--gpu sim] [--hb build/hb] [--part micro,adversary,disb]

Each part has its share of the time, which `hb bench --limit` keeps; where even
that hangs it is killed a little later, and the next part begins. What a part had
measured is in OUT/SUITE.json.gz and OUT/SUITE.html in any case, what it said in
OUT/SUITE.log. A short table comes last.
"""
import argparse
import gzip
import json
import os
import signal
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
# Share of the time; rounds and windows that fit into it on an H200.
PARTS = {
    "micro": (0.42, ["--rounds", "3", "--seconds", "0.5"]),
    "adversary": (0.34, ["--rounds", "2", "--seconds", "0.4"]),
    "disb": (0.24, ["--case", "A,B", "--rounds", "2", "--seconds", "1", "--sharing",
                    "timeslice,mps_prio,reef,orion,temporal,spatial"]),
}
GRACE_S = 15 # beyond its limit, until a part is killed


def run_part(hb, out, name, limit_s, gpu):
    command = [hb, "bench", "run", name, "--limit", f"{limit_s:.0f}", "--out", out, *PARTS[name][1]]
    command += ["--gpu", gpu] if gpu else []
    environment = os.environ | {"HB_LOG": "info"}
    begin = time.monotonic()
    with open(os.path.join(out, name + ".log"), "w", encoding="utf-8") as log:
        child = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        for end in (None, signal.SIGTERM, signal.SIGKILL):
            if end:
                child.send_signal(end)
            try:
                child.wait(limit_s if not end else GRACE_S / 2)
                break
            except subprocess.TimeoutExpired:
                continue
    status = child.poll()
    print(f"{name}: status {status}, {time.monotonic() - begin:.0f} s of {limit_s:.0f}", flush=True)


def load(out, name):
    try:
        with gzip.open(os.path.join(out, name + ".json.gz"), "rt", encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError, EOFError):
        return None


def how_it_ended(case):
    said = [case[name] for name in ("skipped", "failed", "unfinished") if case[name]]
    return "; ".join(said + [f"{dropped['name']}: {dropped['why']}" for dropped in case["dropped"]]) or "whole"


def value(number, scale=1.0):
    return f"{number * scale:.1f}" if number is not None else "-"


def print_case(case):
    print(f"  {case['name']}: {how_it_ended(case)[:160]}")
    for cell in case["sharing"]:
        high = cell["high"][0]["summary"]
        low = [one["summary"]["of_alone"][0] for one in cell["low"]]
        mean = sum(low) / len(low) if low and None not in low else None
        print(f"    {cell['name']:12}{high['seen']:8}  p50 {value(high['p50_us'][0]):>9}  p99 "
              f"{value(high['p99_us'][0]):>9} us  in SLO {value(high['attainment'][0], 100):>6} %  low "
              f"{value(mean, 100):>6} %")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("--seconds", type=float, default=330)
    parser.add_argument("--gpu", help="as of hb bench; sim = a simulated one")
    parser.add_argument("--hb", default=os.path.join(HERE, "../../build/hb"))
    parser.add_argument("--part", default=",".join(PARTS))
    args = parser.parse_args()
    names = args.part.split(",")
    if not set(names) <= set(PARTS):
        parser.error(f"--part {args.part}: there are {', '.join(PARTS)}")
    os.makedirs(args.out, exist_ok=True)
    shares = sum(PARTS[name][0] for name in names)
    for name in names:
        run_part(args.hb, args.out, name, args.seconds * PARTS[name][0] / shares, args.gpu)
    results = {name: load(args.out, name) for name in names}
    for name, result in results.items():
        print(f"\n{name}" + (f" on {result['gpu']}, commit {result['commit']}" if result else ": no results"))
        for case in result["cases"] if result else []:
            print_case(case)
    sys.exit(0 if all(results.values()) else 1)


if __name__ == "__main__":
    main()

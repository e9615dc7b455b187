#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs suites of `hb bench` one after another on this machine's GPU, within one time budget.

  bench/run_gpu.py --suite engines --budget 500 --out DIR [--build build] [--gpu N|sim] [-- OPTION...]

--suite takes several names, comma-separated; each suite gets its share of the budget, which `hb bench --limit` keeps. A
suite that does not keep it is stopped a little later, and the next one begins. Options after "--" go to `hb bench run`
(for example: -- --rounds 2 --seconds 1 --sharing temporal,spatial).

In DIR: SUITE.json.gz (all raw values), SUITE.html, SUITE.log (the tables), written also after each case. The tables are
printed at the end. Exit status: 0 every suite ran and nothing failed in it, 1 otherwise.
"""
import argparse
import os
import signal
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
# Seconds of each suite on an H200, by which the budget is divided, and options that make it fit into a few minutes.
SUITES = {
    "engines": (480, []),
    "pairs": (820, []),
    "paper": (1500, []),
    "micro": (140, ["--rounds", "3", "--seconds", "0.5"]),
    "adversary": (110, ["--rounds", "2", "--seconds", "0.5"]),
    "disb": (120, ["--case", "A,B", "--rounds", "2", "--seconds", "1"]),
    "splitting": (220, []),
    "preparation": (230, []),
    "combinations": (480, ["--sharing", "timeslice,mps_prio,mps_60,temporal,spatial"]),
    "calls": (40, []),
    "kernels": (200, []),
    "copies": (120, []),
    "foresight": (300, []),
    "serve": (130, []),
}
GRACE_S = 8  # beyond its limit, before SIGTERM, and again before SIGKILL


def run_suite(args, name, limit_s, more):
    """The exit status, or None when the suite had to be stopped."""
    command = [os.path.join(args.build, "hb"), "bench", "run", name, "--limit", f"{limit_s:.0f}", "--out", args.out]
    command += SUITES[name][1] + more + (["--gpu", args.gpu] if args.gpu else [])
    begin = time.monotonic()
    with open(os.path.join(args.out, name + ".log"), "w", encoding="utf-8") as log:
        child = subprocess.Popen(command, stdout=log, stderr=log, env=dict(os.environ, HB_LOG="info"))
        for wait_s, next_signal in ((limit_s + GRACE_S, signal.SIGTERM), (GRACE_S, signal.SIGKILL), (GRACE_S, None)):
            try:
                child.wait(wait_s)
                break
            except subprocess.TimeoutExpired:
                if next_signal:
                    child.send_signal(next_signal)
    print(f"{name}: status {child.poll()}, {time.monotonic() - begin:.0f} s of {limit_s:.0f}", flush=True)
    return child.poll()


def main():
    argv, more = sys.argv[1:], []
    if "--" in argv:
        argv, more = argv[:argv.index("--")], argv[argv.index("--") + 1:]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--budget", type=float, default=500, help="seconds for all suites together (500)")
    parser.add_argument("--build", default=os.path.join(HERE, "../build"))
    parser.add_argument("--gpu")
    args = parser.parse_args(argv)
    names = args.suite.split(",")
    unknown = [name for name in names if name not in SUITES]
    if unknown:
        parser.error(f"--suite {unknown[0]}: there are {', '.join(SUITES)}")
    os.makedirs(args.out, exist_ok=True)
    total = sum(SUITES[name][0] for name in names)
    statuses = [run_suite(args, name, args.budget * SUITES[name][0] / total, more) for name in names]
    for name in names:
        with open(os.path.join(args.out, name + ".log"), encoding="utf-8") as log:
            print(f"\n--- {name}\n" + log.read()[-20000:], flush=True)
    return 0 if not any(statuses) and None not in statuses else 1


if __name__ == "__main__":
    sys.exit(main())

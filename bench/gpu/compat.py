#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the programs of compat_programs.py natively and under Hummingbird and compares what they print.

  bench/gpu/compat.py --build build --out DIR [--only NAME,...]

Each program runs natively, natively once more (a program that is not
deterministic by itself shows there), as a low- and a high-priority tenant, and
with the shim switched off. Writes DIR/compat.json in the form of temporal.json.
"""
import argparse
import concurrent.futures
import json
import os
import subprocess
import sys
import time

import compat_programs
import temporal

HERE = os.path.dirname(os.path.abspath(__file__))


def run_one(hb, name, how):
    command = [sys.executable, os.path.join(HERE, "compat_programs.py"), name]
    env = dict(os.environ, TOKENIZERS_PARALLELISM="false")
    if how == "off":
        env["HB_OFF"] = "1"
    if how not in ("native", "again"):
        command = [hb, "run", "--priority", "low" if how == "off" else how, "--"] + command
    begun = time.monotonic()
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=150, env=env)
        return done.returncode, done.stdout, done.stderr[-800:], time.monotonic() - begun
    except subprocess.TimeoutExpired:
        return -1, "", "timed out", time.monotonic() - begun


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default="build")
    parser.add_argument("--out", required=True)
    parser.add_argument("--only")
    parser.add_argument("--commit")
    args = parser.parse_args()
    hb = os.path.join(os.path.abspath(args.build), "hb")
    names = [program.__name__ for program in compat_programs.PROGRAMS]
    names = [name for name in names if not args.only or name in args.only.split(",")]
    facts = dict(temporal.describe(args), command="bench/gpu/compat.py " + " ".join(sys.argv[1:]))
    rows, failed = [], 0
    for how in ("native", "again", "low", "high", "off"):
        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            for name, result in zip(names, pool.map(lambda n, h=how: run_one(hb, n, h), names)):
                rows.append({"name": name, "how": how, "result": result})
    native = {row["name"]: row["result"] for row in rows if row["how"] == "native"}
    out = []
    for row in rows:
        name, how, (code, text, errors, seconds) = row["name"], row["how"], row["result"]
        same = code == 0 and native[name][0] == 0 and text == native[name][1]
        failed += not same
        print("%-24s %-7s %-9s %5.1f s  %s%s" % (name, how, "same" if same else "DIFFERS", seconds, text.strip(),
                                                 "" if same else " rc %d %s" % (code, errors)), flush=True)
        if how != "native":
            out.append(dict(facts, what="compatibility: %s, %s" % (name, how), measured=text.strip(),
                            baseline=native[name][1].strip(), unit="output", target="identical", met=same))
    with open(os.path.join(args.out, "compat.json"), "w") as file:
        file.write("[\n" + ",\n".join(json.dumps(row) for row in out) + "\n]\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

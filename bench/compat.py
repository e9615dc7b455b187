#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the programs of compat_programs.py natively and under Hummingbird and compares what they print.

  bench/compat.py --build build --out DIR [--elastic] [--only NAME,...]
                  [--places NAME,...] [--expandable]

Each program runs natively, natively once more (which shows a program that is not deterministic by itself), as a
low-priority and as a high-priority tenant, and with the shim switched off. With --elastic also as a low-priority tenant
with elastic memory; no daemon of the user may run before, because that needs a configuration of its own. Writes DIR/compat.json, a list of rows that
`hb bench report` shows.
"""
import argparse
import concurrent.futures
import json
import os
import subprocess
import sys
import tempfile
import time

import compat_programs
from hbbench.run import commit_of, driver_version

HERE = os.path.dirname(os.path.abspath(__file__))
LIMIT_S = 150
PLACES = ["again", "low", "high", "off", "elastic"]
HOST_GIB = 16  # for elastic memory of all programs together


def write_config(folder):
    """A daemon's configuration with elastic memory, at the user's path if XDG_CONFIG_HOME is the folder."""
    os.makedirs(os.path.join(folder, "hummingbird"))
    with open(os.path.join(folder, "hummingbird/hummingbird.yaml"), "w", encoding="utf-8") as file:
        file.write(f"elastic_host: {HOST_GIB}GiB\n")


def run_program(hb, name, how):
    """(exit status, output, end of the errors, seconds)"""
    command = [sys.executable, os.path.join(HERE, "compat_programs.py"), name]
    env = dict(os.environ, TOKENIZERS_PARALLELISM="false")
    if how == "off":
        env["HB_OFF"] = "1"
    if how not in ("native", "again"):
        place = {"off": ["low"], "elastic": ["low", "--elastic"]}.get(how, [how])
        command = [hb, "run", "--priority", *place, "--"] + command
    begun = time.monotonic()
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, env=env, check=False)
        return done.returncode, done.stdout, done.stderr[-800:], time.monotonic() - begun
    except subprocess.TimeoutExpired:
        return -1, "", "timed out", time.monotonic() - begun


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build")
    parser.add_argument("--out", required=True)
    parser.add_argument("--elastic", action="store_true")
    parser.add_argument("--only")
    parser.add_argument("--places", help="comma-separated, beside native: " + ", ".join(PLACES))
    parser.add_argument("--expandable", action="store_true", help="PyTorch's memory consists of expandable segments")
    args = parser.parse_args()
    places = args.places.split(",") if args.places else PLACES[:-1] + (PLACES[-1:] if args.elastic else [])
    if unknown := set(places) - set(PLACES):
        parser.error(f"--places: there is no place {', '.join(sorted(unknown))}; places are {', '.join(PLACES)}")
    if args.expandable:
        os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
    hb = os.path.join(os.path.abspath(args.build), "hb")
    names = [program.__name__ for program in compat_programs.PROGRAMS]
    names = [name for name in names if not args.only or name in args.only.split(",")]
    facts = {"command": "bench/compat.py " + " ".join(sys.argv[1:]), "driver": driver_version(), "commit": commit_of(hb)}
    native, rows = {}, []
    if "elastic" in places:
        folder = tempfile.TemporaryDirectory(prefix="hb-compat-")
        write_config(folder.name)
        os.environ["XDG_CONFIG_HOME"] = folder.name
    for how in ["native", *places]:
        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            found = list(pool.map(lambda name, how=how: run_program(hb, name, how), names))
        for name, (code, text, errors, seconds) in zip(names, found):
            native.setdefault(name, text if code == 0 else None)
            same = code == 0 and text == native[name]
            print(f"{name:<24} {how:<7} {'same' if same else 'DIFFERS':<9} {seconds:5.1f} s  {text.strip()}"
                  + ("" if same else f" status {code} {errors}"), flush=True)
            if how != "native":
                rows.append(dict(facts, what=f"compatibility: {name}, {how}", measured=text.strip(),
                                 baseline=(native[name] or "").strip(), unit="output", target="identical", met=same))
    with open(os.path.join(args.out, "compat.json"), "w", encoding="utf-8") as file:
        file.write("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")
    return 0 if rows and all(row["met"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())

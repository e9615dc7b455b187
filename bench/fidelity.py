#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares `hb sim` with what was measured on an H200 (docs/fidelity.md).

Baselines: runs every row of data/traces/h200-colocation.csv and of the second
table with the row's own arrival times, and compares the errors with the targets
below. Our own engines (fidelity_engines.py): runs every row of
bench/results/h200 at the rate that was really served; each has to be within the
targets, or as near as its known miss says. The simulator is exact and
repeatable, so the result is the same on every machine.

usage: fidelity.py [--hb BINARY] [--jobs N] [--json] [--only baselines|engines] [--write PAGE|--check PAGE] [TABLE.csv...]
  --write PAGE   puts the table of the engines between its marks in PAGE
  --check PAGE   the table in PAGE must be the one that is simulated now
exit status: 0 all targets met, 1 one was missed, 2 a run failed.
"""
import argparse
import csv
import json
import os
import re
import statistics
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import fidelity_engines

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
DATA = os.path.join(ROOT, "data", "traces")
TABLES = ["h200-colocation.csv", "h200-colocation-2.csv"]

# Rows of services in overload measure how long the run was, not the GPU.
COUNTED_P50_US = 40000
# Recorded training rates count from this long before the first request.
LEAD = "700ms"

# (column, targets): median and largest error in percent; None = no bound.
TARGETS = {"p50_us": (8, 30), "p99_us": (20, None), "low_it_s": (3, 10)}
TITLES = {"p50_us": "p50", "p99_us": "p99", "low_it_s": "LP it/s"}


def rows_of(path):
    with open(path, newline="", encoding="utf-8") as table:
        return [dict(row, table=os.path.basename(path)) for row in csv.DictReader(table)]


def command_of(hb, row):
    arrivals = os.path.join(DATA, row["arrivals"])
    seconds = re.search(r"-(\d+)s\.txt$", row["arrivals"]).group(1)
    high = re.sub(r"_graph$", ":graph", row["high"])
    command = [hb, "sim", "--json", "--jobs", "1", "--sharing", row["sharing"], "--seconds", seconds,
               "--high", f"{high}@file:{arrivals},slo=none"]
    if row["low"]:
        command += ["--low", row["low"], "--lead", LEAD]
    return command


def simulate(hb, row):
    command = command_of(hb, row)
    environment = dict(os.environ, HB_DATA_DIR=os.path.join(ROOT, "data"))
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\nended with status {done.returncode}: {done.stderr.strip()}")
    result = json.loads(done.stdout)
    high = result["high"][0]
    simulated = {"p50_us": high["p50_us"], "p99_us": high["p99_us"]}
    if row["low"]:
        simulated["low_it_s"] = result["low"][0]["iterations_per_s"]
    return simulated


def compare(row, simulated):
    """One row of the result: measured, simulated and relative error of each column."""
    out = {key: row[key] for key in ("table", "sharing", "high", "low", "rate_per_s")}
    out["counted"] = float(row["p50_us"]) <= COUNTED_P50_US
    for column, value in simulated.items():
        measured = float(row[column])
        out[column] = {"measured": measured, "simulated": value,
                       "error_percent": 100 * (value - measured) / measured}
    return out


def summary_of(rows):
    out = []
    for column, (median_target, worst_target) in TARGETS.items():
        errors = [abs(row[column]["error_percent"]) for row in rows if row["counted"] and column in row]
        if not errors:
            continue
        median, worst = statistics.median(errors), max(errors)
        met = median <= median_target and (worst_target is None or worst <= worst_target)
        out.append({"column": column, "rows": len(errors), "median_percent": median, "worst_percent": worst,
                    "median_target_percent": median_target, "worst_target_percent": worst_target, "met": met})
    return out


def print_rows(rows):
    head = f"{'sharing':<13}{'high':<18}{'low':<20}{'req/s':>6}"
    for title in ("p50 ms", "p99 ms", "LP it/s"):
        head += f" |{title:>9}{'sim':>8}{'error':>8}"
    print(head)
    for row in rows:
        line = f"{row['sharing']:<13}{row['high']:<18}{row['low'] or '-':<20}{row['rate_per_s']:>6}"
        for column, unit in (("p50_us", 1000), ("p99_us", 1000), ("low_it_s", 1)):
            cell = row.get(column)
            if cell:
                line += f" |{cell['measured'] / unit:9.2f}{cell['simulated'] / unit:8.2f}{cell['error_percent']:+7.1f}%"
            else:
                line += " |" + " " * 25
        print((line + ("" if row["counted"] else " | not counted: overload")).rstrip())


def print_summary(name, summary):
    print(f"\n{name}:")
    for part in summary:
        worst = part["worst_target_percent"]
        targets = f"target {part['median_target_percent']} %" + (f", {worst} %" if worst else ", none")
        print(f"  {TITLES[part['column']]:<8} median error {part['median_percent']:5.1f} %, largest "
              f"{part['worst_percent']:5.1f} % ({targets}): {'met' if part['met'] else 'MISSED'}")


MARKS = ("<!-- engines: bench/fidelity.py --write docs/fidelity.md -->", "<!-- end of engines -->")


def replace_table(path, table, check):
    """Whether the page held the table already; without `check` it holds it from now on."""
    with open(path, encoding="utf-8") as page:
        text = page.read()
    before, rest = text.split(MARKS[0])
    new = f"{before}{MARKS[0]}\n\n{table}\n\n{MARKS[1]}{rest.split(MARKS[1])[1]}"
    if new != text and not check:
        with open(path, "w", encoding="utf-8") as page:
            page.write(new)
    return new == text


def compare_engines(arguments):
    """True when every row is as near as it has to be."""
    with ThreadPoolExecutor(arguments.jobs) as pool:
        rows = list(pool.map(lambda row: fidelity_engines.simulate_engine(arguments.hb, row),
                             fidelity_engines.engine_rows()))
    table = fidelity_engines.engine_table(rows)
    verdicts = [fidelity_engines.misses_of(row) for row in rows]
    print(f"\n{table}\n\nengines: {len(rows)} rows, {sum(not outside for outside, _ in verdicts)} within the targets, "
          f"{sum(worse for _, worse in verdicts)} farther off than is known", file=sys.stderr if arguments.json else sys.stdout)
    good = not any(worse for _, worse in verdicts)
    page = arguments.write or arguments.check
    if page and not replace_table(page, table, arguments.check) and arguments.check:
        print(f"{page} holds another table: bench/fidelity.py --write {page}", file=sys.stderr)
        good = False
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hb", default=os.path.join(ROOT, "build", "hb"), help="the program (build/hb)")
    parser.add_argument("--jobs", type=int, default=2, help="rows run at a time (2)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--only", choices=("baselines", "engines"), help="one of the two parts")
    parser.add_argument("--write", metavar="PAGE", help="put the table of the engines into PAGE")
    parser.add_argument("--check", metavar="PAGE", help="the table in PAGE must be the one that is simulated now")
    parser.add_argument("tables", nargs="*", default=[os.path.join(DATA, name) for name in TABLES])
    arguments = parser.parse_args()
    engines_good = arguments.only == "baselines" or compare_engines(arguments)
    if arguments.only == "engines":
        return 0 if engines_good else 1
    return 0 if compare_baselines(arguments) and engines_good else 1


def compare_baselines(arguments):
    """True when all targets are met."""
    rows = [row for path in arguments.tables for row in rows_of(path)]
    with ThreadPoolExecutor(arguments.jobs) as pool:
        simulated = list(pool.map(lambda row: simulate(arguments.hb, row), rows))
    compared = [compare(row, values) for row, values in zip(rows, simulated)]
    names = list(dict.fromkeys(row["table"] for row in rows))
    summaries = {name: summary_of([row for row in compared if row["table"] == name]) for name in names}
    if arguments.json:
        json.dump({"rows": compared, "tables": summaries}, sys.stdout, indent=1)
        print()
    else:
        for name in names:
            print(f"\n{name}\n")
            print_rows([row for row in compared if row["table"] == name])
        for name, summary in summaries.items():
            print_summary(name, summary)
    return all(part["met"] for summary in summaries.values() for part in summary)


if __name__ == "__main__":
    sys.exit(main())

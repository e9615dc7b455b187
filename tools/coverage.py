#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints how many lines of each room the tests executed, and compares that with a floor.

usage: coverage.py FOLDER FLOORS

FOLDER is a build with -Db_coverage=true whose tests have run. FLOORS has lines "ROOM PERCENT", such as "src/daemon 80".
Prints one line for each room, and the files of the room with the most lines that no test executed. Exits 1 if a room is
below its floor.

Processes that a signal kills, and children that leave with _exit(), do not write their counts: what only they execute
counts as not executed.
"""
import collections
import json
import os
import subprocess
import sys

WORST = 6  # files that are named for each room


def read_floors(path):
    with open(path, encoding="utf-8") as text:
        rows = [line.split() for line in text if line.strip() and not line.startswith("#")]
    return {room: float(percent) for room, percent in rows}


def read_counts(folder, source):
    """Returns {file: {line: count}}. Several programs may have compiled the same file: their counts are added."""
    notes = [os.path.join(top, name) for top, _, names in os.walk(folder) for name in names if name.endswith(".gcno")]
    counts = collections.defaultdict(collections.Counter)
    if not notes:
        sys.exit(f"coverage.py: {folder} was not built with -Db_coverage=true")
    done = subprocess.run(["gcov", "--json-format", "--stdout", *sorted(notes)], check=True, capture_output=True)
    for line in done.stdout.splitlines():
        result = json.loads(line)
        for file in result["files"]:
            path = os.path.relpath(os.path.normpath(os.path.join(result["current_working_directory"], file["file"])), source)
            for row in file["lines"]:
                counts[path][row["line_number"]] += row["count"]
    return counts


def main():
    folder, floors = os.path.abspath(sys.argv[1]), read_floors(sys.argv[2])
    source = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    counts, low = read_counts(folder, source), False
    for room, floor in floors.items():
        lines = {path: rows for path, rows in counts.items() if path.startswith(room + "/") and path.endswith(".c")}
        total = sum(len(rows) for rows in lines.values())
        missed = {path: sum(count == 0 for count in rows.values()) for path, rows in lines.items()}
        percent = 100 * (1 - sum(missed.values()) / total) if total else 0
        low |= percent < floor
        print(f"coverage {room}: {percent:.1f} % of {total} lines, floor {floor:g} %{' FAIL: below' if percent < floor else ''}")
        for path in sorted(missed, key=lambda path: -missed[path])[:WORST]:
            print(f"    {path}: {missed[path]} of {len(lines[path])} lines are not executed")
    return 1 if low else 0


if __name__ == "__main__":
    sys.exit(main())

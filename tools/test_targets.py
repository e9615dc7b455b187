#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the targets that the tests of some suites need, one a line, for ninja.

usage: test_targets.py FOLDER SUITE [WITHOUT]

FOLDER is a configured build folder. Tests of the suite WITHOUT are left out. Called by tools/setup.sh, for builds of
which only some tests run. Exits 1 if there is no such test.
"""
import json
import os
import sys


def read_info(folder, kind):
    with open(os.path.join(folder, "meson-info", f"intro-{kind}.json"), encoding="utf-8") as file:
        return json.load(file)


def main():
    folder, suite = sys.argv[1:3]
    without = sys.argv[3] if len(sys.argv) > 3 else None
    needed = set()
    for test in read_info(folder, "tests"):
        suites = {name.split(":")[-1] for name in test["suite"]}  # "hummingbird:fast" becomes "fast"
        if suite in suites and without not in suites:
            needed.update(test["depends"])
    files = [file for target in read_info(folder, "targets") if target["id"] in needed for file in target["filename"]]
    print("\n".join(sorted(os.path.relpath(file, os.path.abspath(folder)) for file in files)))
    return 0 if files else 1


if __name__ == "__main__":
    sys.exit(main())

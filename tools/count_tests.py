#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints "N passed, N failed" from the results of meson tests and of steps.

usage: count_tests.py FILE...

A file named testlog.json is Meson's (one object a test program); any other
holds "ok NAME" or "failed NAME" lines. A test program that prints its cases
(cmocka) counts as that many; a step that is a test run counts only by its
tests. Exits 1 if anything failed or nothing ran.
"""

import json
import re
import sys

CASE = re.compile(r"^\[ (RUN|      OK|  SKIPPED) +\] ", re.M)


def cases(output):
    """How many cmocka cases began, passed and were skipped."""
    found = [kind.strip() for kind in CASE.findall(output)]
    return found.count("RUN"), found.count("OK"), found.count("SKIPPED")


def count_meson(lines):
    passed = failed = skipped = 0
    for line in lines:
        test = json.loads(line)
        begun, good, left_out = cases(test.get("stdout") or "")
        if test["result"] in ("OK", "EXPECTEDFAIL"):
            passed += max(good, 1)
            skipped += left_out
        elif test["result"] == "SKIP":
            skipped += 1
        else:
            passed += good
            failed += max(begun - good - left_out, 1)
            print("failed:", test["name"], "(%s)" % test["result"])
    return passed, failed, skipped


def count_steps(lines):
    passed = failed = skipped = 0
    for line in lines:
        result, name = line.rstrip("\n").split(" ", 1)
        if result != "ok":
            # A failed test run is counted by its tests, too; once more does not turn red into green.
            failed += 1
            print("failed:", name)
        elif not name.startswith("test "):
            passed += 1
    return passed, failed, skipped


def main():
    total = [0, 0, 0]
    for path in sys.argv[1:]:
        with open(path, encoding="utf-8") as lines:
            counts = (count_meson if path.endswith("testlog.json") else count_steps)(lines)
        total = [a + b for a, b in zip(total, counts)]
    passed, failed, skipped = total
    if skipped:
        print(skipped, "skipped")
    print(passed, "passed,", failed, "failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())

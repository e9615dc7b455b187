#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints "N passed, N failed" from the results of meson tests and of steps.

usage: count_tests.py FILE...

A file named testlog*.json is Meson's, with one object for each test program. Any
other file has lines "ok NAME" or "failed NAME". A test program that prints its
cases (cmocka) counts as that many tests. A step that is a test run counts only
through its tests. Tests that Python's unittest skipped count as skipped; a
unittest program that ran no test has failed. Tests that passed at their second
try (second_try.py) are counted and named; more of them than SECOND_TRIES_MOST
are one failure. Exits 1 if anything failed or nothing ran.
"""

import json
import os
import re
import sys

CASE = re.compile(r"^\[ (RUN|      OK|  SKIPPED) +\] ", re.M)
SECOND_TRIES_MOST = 4
UNITTEST_RAN = re.compile(r"^Ran (\d+) tests? in ", re.M)
UNITTEST_SKIPPED = re.compile(r"^(?:OK|FAILED) \(.*\bskipped=(\d+)", re.M)


def cases(output):
    """Counts the cmocka cases that began, passed and were skipped."""
    found = [kind.strip() for kind in CASE.findall(output)]
    return found.count("RUN"), found.count("OK"), found.count("SKIPPED")


def unittests(output):
    """Returns whether unittest ran no test, and how many tests it skipped."""
    ran = [int(n) for n in UNITTEST_RAN.findall(output)]
    skipped = sum(int(n) for n in UNITTEST_SKIPPED.findall(output))
    return bool(ran) and not any(ran) and not skipped, skipped


def count_meson(lines, second_tries):
    passed = failed = skipped = 0
    for line in lines:
        test = json.loads(line)
        begun, good, left_out = cases(test.get("stdout") or "")
        if test.get("second_try"):
            second_tries.append(test["name"])
        ran_nothing, left_out_here = unittests(test.get("stderr") or "")
        if test["result"] in ("OK", "EXPECTEDFAIL") and ran_nothing:
            failed += 1
            print("failed:", test["name"], "(ran no test)")
        elif test["result"] in ("OK", "EXPECTEDFAIL"):
            passed += max(good, 1)
            skipped += left_out + left_out_here
        elif test["result"] == "SKIP":
            skipped += 1
        else:
            passed += good
            failed += max(begun - good - left_out, 1)
            print("failed:", test["name"], "(%s)" % test["result"])
    return passed, failed, skipped


def count_steps(lines):
    """Counts steps that passed and failed, and lists failed test runs."""
    passed = failed = 0
    bad_runs = []
    for line in lines:
        result, name = line.rstrip("\n").split(" ", 1)
        if name.startswith("test "):
            bad_runs += [name] if result != "ok" else []
        elif result == "ok":
            passed += 1
        else:
            failed += 1
            print("failed:", name)
    return passed, failed, bad_runs


def main():
    passed = failed = skipped = failed_tests = 0
    bad_runs, second_tries = [], []
    for path in sys.argv[1:]:
        with open(path, encoding="utf-8") as lines:
            if os.path.basename(path).startswith("testlog"):
                good, bad, left_out = count_meson(lines, second_tries)
                failed_tests += bad
                skipped += left_out
            else:
                good, bad, runs = count_steps(lines)
                bad_runs += runs
        passed += good
        failed += bad
    # A failed run shows in the results of its tests. If no test failed, Meson itself broke, and the run counts as a failure.
    if not failed_tests:
        for name in bad_runs:
            print("failed:", name)
        failed += len(bad_runs)
    print(f"second tries: {len(second_tries)} of at most {SECOND_TRIES_MOST}" + "".join("; " + name for name in second_tries))
    if len(second_tries) > SECOND_TRIES_MOST:
        failed += 1
        print("failed: too many tests needed a second try")
    if skipped:
        print(skipped, "skipped")
    print(passed, "passed,", failed, "failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())

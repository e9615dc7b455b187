#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs failed timing tests of a `meson test` run once more, alone.

usage: second_try.py FOLDER [MESON TEST ARGUMENT...]

Tests of the suite `live` run a complete system in real time, several at once, on
machines that may pause for seconds. Such a test that fails in the run and passes
alone counts as passed. count_tests.py counts and names these tests, and fails if
all builds together needed more second tries than it allows. A test of another
suite has no second try. Two kinds of failure are not repeated because they are
findings: reports of a sanitizer, and programs that a signal ended. If more than
MOST tests of a build failed, none is repeated.

Exits 1 if a test failed again, or if no test had failed (the run itself broke); 2 without the log of a run.
"""
import json
import os
import subprocess
import sys

MOST = 4
TIMING_SUITE = "live"
FAILED = ("FAIL", "TIMEOUT", "ERROR", "INTERRUPT")


def read(path):
    with open(path, encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def is_finding(test):
    said = (test.get("stdout") or "") + (test.get("stderr") or "")
    killed = test["result"] != "TIMEOUT" and (test.get("returncode") or 0) < 0
    return killed or "Sanitizer" in said or "runtime error:" in said


def is_timing_test(test):
    """The name begins with project and suites: "hummingbird:fast+live / stack auto"."""
    suites = test["name"].split(" / ", 1)[0].partition(":")[2]
    return TIMING_SUITE in suites.split("+")


def plain_name(test):
    """Returns the name without project and suites ("hummingbird:fast+live / stack auto" becomes "stack auto")."""
    return test["name"].split(" / ", 1)[-1]


def try_again(folder, names, options):
    """Repeats the tests. Returns their results by name; a test that did not run has none."""
    log = os.path.join(folder, "meson-logs", "second-try.json")
    if os.path.exists(log):
        os.remove(log)
    subprocess.run(["meson", "test", "-C", folder, "--no-rebuild", "--print-errorlogs", "--num-processes", "1",
                    "--logbase", "second-try", *options, *names], check=False)
    return {test["name"]: test for test in read(log)} if os.path.exists(log) else {}


def main():
    folder, options = sys.argv[1], sys.argv[2:]
    log = os.path.join(folder, "meson-logs", "testlog.json")
    if not os.path.exists(log):
        return 2
    tests = read(log)
    failed = [test for test in tests if test["result"] in FAILED]
    if not failed:
        return 1
    repeatable = [test for test in failed if is_timing_test(test) and not is_finding(test)] if len(failed) <= MOST else []
    if repeatable:
        again = try_again(folder, [plain_name(test) for test in repeatable], options)
        good = {name for name, test in again.items() if test["result"] == "OK"}
        tests = [dict(again[test["name"]], second_try=True) if test in repeatable and test["name"] in good else test
                 for test in tests]
        with open(log + ".new", "w", encoding="utf-8") as out:
            out.writelines(json.dumps(test) + "\n" for test in tests)
        os.replace(log + ".new", log)
    return 1 if any(test["result"] in FAILED for test in tests) else 0


if __name__ == "__main__":
    sys.exit(main())

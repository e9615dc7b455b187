#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The last line of ./test.sh counts what really ran: no way for a failure to look like a pass.

usage: test_counting.py COUNT_TESTS
"""

import json
import os
import subprocess
import sys
import tempfile
import unittest

COUNT_TESTS = sys.argv.pop(1)

TWO_GOOD = "[ RUN      ] a\n[       OK ] a\n[ RUN      ] b\n[       OK ] b\n"
ONE_BAD = "[ RUN      ] a\n[       OK ] a\n[ RUN      ] b\n[  FAILED  ] b\n[  FAILED  ] 1 test(s), listed below:\n[  FAILED  ] b\n"
CRASHED = "[ RUN      ] a\n[       OK ] a\n[ RUN      ] b\n"


def record(result, stdout="", stderr=""):
    return json.dumps({"name": "t", "stdout": stdout, "stderr": stderr, "result": result})


class Counting(unittest.TestCase):
    def count(self, tests=(), steps=(), name="testlog.json"):
        with tempfile.TemporaryDirectory() as folder:
            log, results = os.path.join(folder, name), os.path.join(folder, "results.txt")
            with open(log, "w", encoding="utf-8") as out:
                out.writelines(line + "\n" for line in tests)
            with open(results, "w", encoding="utf-8") as out:
                out.writelines(line + "\n" for line in steps)
            done = subprocess.run([sys.executable, COUNT_TESTS, results, log], capture_output=True, text=True, check=False)
        self.lines = done.stdout.splitlines()
        return self.lines[-1], done.returncode

    def test_cases_of_a_program_count_one_by_one(self):
        self.assertEqual(self.count([record("OK", TWO_GOOD), record("OK", "no cases")]), ("3 passed, 0 failed", 0))

    def test_the_log_of_a_part_of_the_tests_counts_too(self):
        self.assertEqual(self.count([record("OK", TWO_GOOD), record("FAIL", ONE_BAD)], name="testlog-still.json"),
                         ("3 passed, 1 failed", 1))

    def test_a_failed_case_fails_the_whole(self):
        self.assertEqual(self.count([record("FAIL", ONE_BAD)]), ("1 passed, 1 failed", 1))

    def test_a_crash_in_the_middle_is_a_failure(self):
        self.assertEqual(self.count([record("ERROR", CRASHED)]), ("1 passed, 1 failed", 1))

    def test_a_failed_exit_after_good_cases_is_a_failure(self):
        self.assertEqual(self.count([record("FAIL", TWO_GOOD)]), ("2 passed, 1 failed", 1))

    def test_a_timeout_is_a_failure(self):
        self.assertEqual(self.count([record("TIMEOUT")]), ("0 passed, 1 failed", 1))

    def test_second_tries_are_named_and_bounded(self):
        def tried(name):
            return json.dumps({"name": name, "result": "OK", "second_try": True})
        self.assertEqual(self.count([record("OK")]), ("1 passed, 0 failed", 0))
        self.assertIn("second tries: 0 of at most 4", self.lines)
        self.assertEqual(self.count([tried("a"), tried("b")]), ("2 passed, 0 failed", 0))
        self.assertIn("second tries: 2 of at most 4; a; b", self.lines)
        self.assertEqual(self.count([tried(name) for name in "abcde"]), ("5 passed, 1 failed", 1))

    def test_what_unittest_skipped_is_told(self):
        self.assertEqual(self.count([record("OK", stderr="..s\nRan 3 tests in 1.000s\n\nOK (skipped=1)\n")]), ("1 passed, 0 failed", 0))
        self.assertIn("1 skipped", self.lines)

    def test_a_class_that_is_skipped_is_no_failure(self):
        self.assertEqual(self.count([record("OK", stderr="Ran 0 tests in 0.000s\n\nOK (skipped=1)\n")]), ("1 passed, 0 failed", 0))

    def test_a_program_without_tests_has_failed(self):
        self.assertEqual(self.count([record("OK", stderr="Ran 0 tests in 0.000s\n\nOK\n")]), ("0 passed, 1 failed", 1))

    def test_skipped_tests_count_as_neither(self):
        self.assertEqual(self.count([record("SKIP"), record("OK")]), ("1 passed, 0 failed", 0))

    def test_nothing_at_all_is_a_failure(self):
        self.assertEqual(self.count(), ("0 passed, 0 failed", 1))

    def test_steps_count_too(self):
        steps = ["ok build gcc", "failed build clang"]
        self.assertEqual(self.count([record("OK")], steps), ("2 passed, 1 failed", 1))

    def test_a_test_run_counts_by_its_tests(self):
        self.assertEqual(self.count([record("OK")], ["ok test gcc"]), ("1 passed, 0 failed", 0))
        self.assertEqual(self.count([record("FAIL")], ["failed test gcc"]), ("0 passed, 1 failed", 1))

    def test_a_test_run_that_broke_without_a_failed_test_counts_itself(self):
        self.assertEqual(self.count([record("OK")], ["failed test gcc"]), ("1 passed, 1 failed", 1))


if __name__ == "__main__":
    unittest.main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A second try turns only a spoilt test into a passed one: with a small `meson` that answers what the test says.

usage: test_second_try.py SECOND_TRY
"""
import json
import os
import subprocess
import sys
import tempfile
import unittest

SECOND_TRY = sys.argv.pop(1)

# Writes the log of the second run from answers.json, by name, and what it was asked to asked.json.
MESON = """#!/usr/bin/env python3
import json, sys
folder = sys.argv[sys.argv.index("-C") + 1]
json.dump(sys.argv[1:], open(folder + "/asked.json", "w"))
answers = json.load(open(folder + "/answers.json"))
with open(folder + "/meson-logs/second-try.json", "w") as out:
    for name, result in answers.items():
        if name.split(" / ")[1] in sys.argv:
            out.write(json.dumps({"name": name, "result": result, "returncode": 0}) + "\\n")
"""


def record(name, result, returncode=1, stdout="", stderr="", suites="fast+live"):
    return {"name": f"hb:{suites} / {name}", "result": result, "returncode": returncode, "stdout": stdout, "stderr": stderr}


class SecondTry(unittest.TestCase):
    def run_with(self, tests, answers, *options):
        """The results after it by plain name, its exit status, and what Meson was asked (None = nothing)."""
        with tempfile.TemporaryDirectory() as folder:
            os.mkdir(os.path.join(folder, "meson-logs"))
            log = os.path.join(folder, "meson-logs", "testlog.json")
            meson = os.path.join(folder, "meson")
            with open(meson, "w", encoding="utf-8") as out:
                out.write(MESON)
            os.chmod(meson, 0o755)
            with open(os.path.join(folder, "answers.json"), "w", encoding="utf-8") as out:
                json.dump({"hb:fast+live / " + name: result for name, result in answers.items()}, out)
            with open(log, "w", encoding="utf-8") as out:
                out.writelines(json.dumps(test) + "\n" for test in tests)
            path = folder + ":" + os.environ.get("PATH", "")
            done = subprocess.run([sys.executable, SECOND_TRY, folder, *options], env=dict(os.environ, PATH=path),
                                  check=False)
            with open(log, encoding="utf-8") as lines:
                after = [json.loads(line) for line in lines]
            asked = os.path.join(folder, "asked.json")
            if os.path.exists(asked):
                with open(asked, encoding="utf-8") as text:
                    asked = json.load(text)
            else:
                asked = None
        self.assertEqual([test["name"] for test in after], [test["name"] for test in tests])
        return ({test["name"].split(" / ")[1]: (test["result"], test.get("second_try", False)) for test in after},
                done.returncode, asked)

    def test_one_that_passes_alone_passes_and_is_marked(self):
        results, status, asked = self.run_with([record("a", "OK", 0), record("b b", "FAIL"), record("c", "TIMEOUT", -9)],
                                               {"b b": "OK", "c": "OK"}, "--suite", "fast")
        self.assertEqual(results, {"a": ("OK", False), "b b": ("OK", True), "c": ("OK", True)})
        self.assertEqual(status, 0)
        self.assertEqual(asked[-4:], ["--suite", "fast", "b b", "c"])
        self.assertEqual(asked[asked.index("--num-processes") + 1], "1")

    def test_one_that_fails_again_has_failed(self):
        results, status, _ = self.run_with([record("a", "FAIL"), record("b", "FAIL")], {"a": "FAIL", "b": "OK"})
        self.assertEqual(results, {"a": ("FAIL", False), "b": ("OK", True)})
        self.assertEqual(status, 1)

    def test_one_that_does_not_run_again_has_failed(self):
        results, status, _ = self.run_with([record("a", "FAIL")], {})
        self.assertEqual((results, status), ({"a": ("FAIL", False)}, 1))

    def test_findings_have_no_second_try(self):
        findings = [record("crash", "FAIL", -11), record("race", "FAIL", 66, stderr="WARNING: ThreadSanitizer: data race"),
                    record("overflow", "FAIL", 1, stdout="x.c:1: runtime error: signed integer overflow")]
        results, status, asked = self.run_with(findings, {name: "OK" for name in ("crash", "race", "overflow")})
        self.assertEqual([result for result, _ in results.values()], ["FAIL"] * 3)
        self.assertEqual((status, asked), (1, None))

    def test_only_timing_tests_have_one(self):
        tests = [record("a", "FAIL", suites="fast"), record("b", "TIMEOUT", suites="slow+lively"), record("c", "FAIL")]
        results, status, asked = self.run_with(tests, {name: "OK" for name in "abc"})
        self.assertEqual([result for result, _ in results.values()], ["FAIL", "TIMEOUT", "OK"])
        self.assertEqual((status, asked[-1]), (1, "c"))

    def test_many_failures_are_no_accident(self):
        many = [record(f"t{i}", "FAIL") for i in range(5)]
        _, status, asked = self.run_with(many, {f"t{i}": "OK" for i in range(5)})
        self.assertEqual((status, asked), (1, None))


if __name__ == "__main__":
    unittest.main()

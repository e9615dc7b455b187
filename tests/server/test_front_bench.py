#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""bench/front.py --part quiet runs from a copy of its programs, gets an answer to every request, and names what each row
measures. The measured values are not checked."""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

from serve_process import BUILD, SOURCE

PROGRAMS = ("hb-serve", "tests/server/front-load", "tests/server/front-hello")


class FrontBench(unittest.TestCase):
    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory(prefix="hb-front-bench-"))
        for name in PROGRAMS:
            shutil.copy(os.path.join(BUILD, name), self.folder)
        self.results = os.path.join(self.folder, "rows.json")

    def run_bench(self, *arguments):
        return subprocess.run([sys.executable, os.path.join(SOURCE, "bench/front.py"), "--build", self.folder, "--part", "quiet",
                               "--rounds", "2", "--seconds", "0.05", "--many", "300", "--results", self.results, *arguments],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)

    def test_each_row_names_its_measure(self):
        done = self.run_bench("--commit", "abc")
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(self.results, encoding="utf-8") as file:
            rows = json.load(file)
        self.assertEqual(["requests/s", "ms", "ms", "us", "requests/s"], [row["unit"] for row in rows])
        for row in rows:
            self.assertGreater(min(row["measured"], row["baseline"]), 0, row)
            self.assertEqual(row["commit"], "abc")
            self.assertIn("--part quiet --server-cpus ", row["command"])
        for row in rows[:4]:
            self.assertEqual((len(row["rounds"]), len(row["baseline_rounds"])), (2, 2))
        self.assertTrue(rows[4]["met"])

    def test_all_threads_of_the_generator_send_requests(self):
        """With several threads on one processor, the threads' connections and rates add up to the requested ones."""
        one = str(min(os.sched_getaffinity(0)))
        done = self.run_bench("--server-cpus", one, "--load-cpus", ",".join(3 * [one]), "--json", os.path.join(self.folder, "raw"))
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(os.path.join(self.folder, "raw"), encoding="utf-8") as file:
            found = json.load(file)["many"].values()
        self.assertEqual([(one["whole"]["threads"], one["whole"]["connections"]) for one in found], [(3, 300), (3, 300)])

    def test_a_server_that_fails_is_an_error(self):
        for name, text in (("hb-serve", "#!/bin/sh\nexit 1\n"), ("front-hello", "#!/bin/sh\necho 1\n")):
            with open(os.path.join(self.folder, name), "w", encoding="utf-8") as file:
                file.write(text)
            done = self.run_bench()
            self.assertEqual((done.returncode, os.path.exists(self.results)), (1, False), done.stderr)
            self.assertIn("did not start" if name == "hb-serve" else "", done.stderr)
            shutil.copy(os.path.join(BUILD, "hb-serve"), self.folder)

    def test_wrong_processors_are_an_error(self):
        for given in ("x", "0-", "100000"):
            done = self.run_bench("--server-cpus", given)
            self.assertEqual(done.returncode, 2)
            self.assertIn(given, done.stderr)


if __name__ == "__main__":
    unittest.main()

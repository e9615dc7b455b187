#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""bench/serving.py --live on workers without a GPU: if a worker is killed in a measurement window, only that window is left
out. The worker reports when it has the batch in which it is killed, so nothing depends on times."""
import asyncio
import contextlib
import io
import os
import random
import signal
import statistics
import sys
import tempfile
import unittest
from unittest import mock

from serve_process import BUILD, LIMIT, SOURCE
from test_serve_workers import HAVE_NUMPY, HEAD

sys.path.insert(0, os.path.join(SOURCE, "bench"))
import serve_live  # noqa: E402  pylint: disable=wrong-import-position

# On request the worker writes its process number and stays in its batch until it is killed.
WORKER = HEAD + """
FOLDER = %r

def infer(x):
    try:
        os.rename(FOLDER + "/die", FOLDER + "/dies")
    except FileNotFoundError:
        return x
    there(FOLDER + "/pid", str(os.getpid()))
    wait_for(FOLDER + "/never")

worker.serve(infer)
"""
MODEL = """command: /usr/bin/python3 %s
max_batch: 2
priority: %s
inputs: [{name: x, datatype: FP32, shape: [1]}]
outputs: [{name: y, datatype: FP32, shape: [1]}]
"""
PLAN = [("poisson", 50, ["fifo", "edf", "ours"])]


@unittest.skipUnless(HAVE_NUMPY, "python3-numpy is not installed")
class ServingBench(unittest.TestCase):
    def in_folder(self, name, text=""):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory(prefix="hb-serving-test-"))
        self.said = io.StringIO()
        program = self.in_folder("worker.py", WORKER % self.folder)
        quick = {"MODELS": {"tiny": (2, 0, 0, "", "")}, "LEARN_S": 0.1, "CAPACITY_S": 0.1, "WARM_S": 0.0, "CONNECTIONS": 4,
                 "DEADLINES": dict.fromkeys(serve_live.PRIORITIES, 1e5), "DRAIN_S": LIMIT, "READY_S": LIMIT, "ANSWER_S": LIMIT,
                 "model_text": lambda name, priority, how, models, place: MODEL % (program, priority),
                 "schedule": lambda *_: [(0.02 * i, "tiny", serve_live.PRIORITIES[i % 2]) for i in range(8)]}
        for name, value in quick.items():
            self.enterContext(mock.patch.object(serve_live, name, value))

    async def kill_who_dies(self):
        path = os.path.join(self.folder, "pid")
        while not os.path.exists(path):
            await asyncio.sleep(0.01)
        with open(path, encoding="utf-8") as file:
            os.kill(int(file.read()), signal.SIGKILL)

    def run_killing_in(self, policy):
        """Runs the windows of the plan. In the window of `policy` a worker is killed during a batch."""
        window, set_policy, asked = serve_live.window, serve_live.set_policy, []

        async def asks(client, name, mark):
            asked.append(mark)
            await set_policy(client, name, mark)

        async def windows(*arguments):
            if not asked[-1].endswith("-" + policy):
                return await window(*arguments)
            self.in_folder("die")
            killer = asyncio.create_task(self.kill_who_dies())
            try:
                return await window(*arguments)
            finally:
                await killer
        with mock.patch.object(serve_live, "set_policy", asks), mock.patch.object(serve_live, "window", windows), \
                contextlib.redirect_stderr(self.said):
            return serve_live.run(os.path.join(BUILD, "hb"), "torch", PLAN, 0.2, float("inf"), self.folder)

    def test_a_window_in_which_a_worker_is_killed_is_left_out(self):
        found = self.run_killing_in("edf")
        runs = found["runs"][("poisson", 50)]
        self.assertEqual([run["policy"] for run in runs], ["fifo", "ours"])
        self.assertEqual([run[priority]["requests"] for run in runs for priority in serve_live.PRIORITIES], [4] * 4)
        self.assertEqual([one["mark"] for one in found["left_out"]], ["poisson-50-edf"])
        self.assertIn("requests failed: tiny-", found["left_out"][0]["why"])
        self.assertIsNotNone(runs[1]["prediction_error"])
        self.assertIn("poisson-50-edf is left out", self.said.getvalue())

    def test_workers_run_under_a_daemon_on_several_gpus(self):
        place = serve_live.Place("temporal", gpus=2, measured=True, simulated=True)
        with contextlib.redirect_stderr(self.said), mock.patch.dict(os.environ, HB_LOG="info"):
            found = serve_live.run(os.path.join(BUILD, "hb"), "torch", PLAN, 0.2, float("inf"), self.folder, place=place, per_s=40)
        runs = found["runs"][("poisson", 50)]
        self.assertEqual([run["policy"] for run in runs], ["fifo", "edf", "ours"])
        self.assertEqual([run[priority]["in_time"] for run in runs for priority in serve_live.PRIORITIES], [4] * 6)
        self.assertEqual(found["capacity_per_s"], 40)
        demands = found["demands"]
        self.assertEqual(demands["tiny-high"], demands["tiny-low"])  # one trial for both names
        self.assertEqual({value["source"] for value in demands["tiny-low"].values()}, {"measured"})
        with open(os.path.join(self.folder, "server.log"), encoding="utf-8") as log:
            text = log.read()
        self.assertNotIn("unscheduled", text)
        self.assertEqual(text.count("measured sm_share"), 1, text)
        with open(os.path.join(self.folder, "server.log.daemon"), encoding="utf-8") as log:
            workers = [line for line in log if "registered" in line and "worker.py" in line]
        for priority in serve_live.PRIORITIES:  # a worker on each GPU; the measurement of demands may have started another one
            self.assertGreaterEqual(sum(f"priority {priority}" in line for line in workers), 2, workers)
        self.assertTrue(os.path.exists(os.path.join(self.folder, "journal.txt.gpu1")))


class Arrivals(unittest.TestCase):
    def test_the_trace_is_repeated_at_the_rate_that_is_asked_for(self):
        times = serve_live.trace_arrivals(500, 60, random.Random(1))
        self.assertAlmostEqual(len(times) / 60, 500, delta=10)  # some 15 times the trace
        self.assertTrue(times == sorted(times) and 0 <= times[0] and times[-1] < 60)
        gaps = [after - before for before, after in zip(times, times[1:])]
        self.assertGreater(statistics.pstdev(gaps) * 500, 1.1)  # more uneven than Poisson, whose gaps have 1


if __name__ == "__main__":
    unittest.main()

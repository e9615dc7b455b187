#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`hb serve` without a GPU: models are recorded programs on the simulated GPU, in real time. What the scheduler promises
(priorities, deadlines, what is refused or downgraded) is tried through HTTP. The simulated GPU is slowed down, so that a
busy machine does not matter; nothing is asserted about how fast anything is."""
import json
import os
import subprocess
import tempfile
import unittest

from serve_process import BUILD, TENSORS, Requests, Server, wait_until

SPEED = ("--gpu", "none", "--speed", "0.02")  # a segmentation takes 4 ms on the real GPU and 0.2 s here
LONG, SHORT = "trace: segment\nmax_batch: 1\n", "trace: bert\nmax_batch: 4\n"
LOW = 12
ECHO = "platform: echo\nmax_batch: 1\n"
MODELS = 64  # limit of loaded models


class Trace(unittest.TestCase):
    def serve(self, models, *options):
        server = Server(models, *options)
        self.addCleanup(server.stop)
        return server

    def test_trace_is_the_default_platform_without_a_gpu(self):
        server = self.serve({"plain": "trace: bert\n", "either": "trace: bert\ncommand: 'false'\n",
                             "recorded": "trace: resnet50_b1\n", "unknown": "trace: nonsense\n"}, *SPEED)
        for name in ("plain", "either", "recorded"):
            self.assertEqual(json.loads(server.call("GET", "/v2/models/%s" % name)[1])["platform"], "hummingbird_trace")
        body = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [4], "data": [1, 2, 3, 4]}]})
        for name in ("plain", "either", "recorded"):
            status, data = server.call("POST", "/v2/models/%s/infer" % name, body)
            self.assertEqual((status, json.loads(data)["outputs"][0]["data"]), (200, [0, 0, 0, 0]))
        status, data = server.call("POST", "/v2/models/unknown/infer", body)
        self.assertEqual(status, 503)
        self.assertIn("nonsense", json.loads(data)["error"])

    def test_late_requests_are_predicted_before_the_first_run(self):
        server = self.serve({"long": LONG}, *SPEED)
        status, answer = server.infer("long", deadline=100000, priority="high")  # half of the time that it needs
        self.assertEqual(status, 503)
        self.assertIn("predicted finish", answer["error"])
        self.assertEqual(server.infer("long", deadline=50000000, priority="high")[0], 200)

    def late_high(self, *options):
        """Sends twelve low-priority segmentations and then a high-priority one. Returns how many were answered before that."""
        server = self.serve({"low": LONG, "high": SHORT}, *SPEED, *options)
        asked = Requests(server)
        for i in range(LOW):
            asked.ask(i, "low", priority="low")
        wait_until("all requests have arrived", lambda: server.pending("low") + len(asked.order) == LOW)
        asked.ask("high", "high", priority="high", deadline=50000000)
        asked.join()
        self.assertEqual({status for status, _ in asked.answers.values()}, {200})
        return asked.order.index("high")

    def once_in(self, attempts, condition):
        """Tries several times: in a pause of the machine this client can be slower than the server."""
        self.assertTrue(any(condition() for _ in range(attempts)))

    def test_high_priority_precedes_waiting_low_priority(self):
        self.once_in(5, lambda: self.late_high() < LOW / 2)

    def test_high_priority_does_not_precede_under_a_policy_without_priorities(self):
        # This policy runs two batches at a time in order of arrival: all earlier ones have begun before the last begins.
        self.once_in(5, lambda: self.late_high("--policy", "fifo") > LOW / 2)

    def test_late_requests_are_downgraded_with_late_downgrade(self):
        server = self.serve({"long": LONG}, *SPEED, "--late", "downgrade,reject")
        self.assertEqual(server.infer("long", deadline=100000, priority="high")[0], 200)
        self.assertEqual(server.infer("long", deadline=100000, priority="low")[0], 503)

    def test_batch_sizes_keep_deadlines(self):
        server = self.serve({"many": "trace: classify\nmax_batch: 16\n"}, *SPEED)
        executions = 'nv_inference_exec_count{model="many",version="1"}'

        def some_are_batched():
            before, asked = server.metric(executions), Requests(server)
            for i in range(16):
                asked.ask(i, "many", priority="high", deadline=50000000)
            asked.join()
            self.assertEqual([answer for answer in asked.answers.values() if answer[0] != 200], [])
            return server.metric(executions) - before < 16
        self.once_in(5, some_are_batched)

    def test_any_number_of_models_can_be_loaded_one_after_another(self):
        journal = tempfile.NamedTemporaryFile()  # pylint: disable=consider-using-with
        self.addCleanup(journal.close)
        server = self.serve({"stays": LONG}, "--gpu", "none", "--journal", journal.name)

        def load(name, text):
            server.write(name + "/model.yaml", text + TENSORS)
            return server.call("POST", "/v2/repository/models/%s/load" % name)

        def index():
            return {one["name"]: one["state"] for one in json.loads(server.call("POST", "/v2/repository/index")[1])}
        for i in range(MODELS + 10):
            for name, text in (("traced-%d" % i, SHORT), ("echoed-%d" % i, ECHO)):
                self.assertEqual(load(name, text)[0], 200)
                self.assertEqual(server.infer(name)[1].get("model_name"), name)
                self.assertEqual(server.call("POST", "/v2/repository/models/%s/unload" % name)[0], 200)
        self.assertEqual((len(index()), index()["stays"], index()[name]), (MODELS, "READY", "UNAVAILABLE"))
        statistics = json.loads(server.call("GET", "/v2/models/stays/stats")[1])["model_stats"][0]
        self.assertEqual((statistics["inference_count"], server.infer("stays")[0]), (0, 200))
        # A loaded model is never replaced by another.
        for i in range(MODELS - 1):
            self.assertEqual(load("echoed-%d" % i, ECHO)[0], 200)
        status, answer = load("more", ECHO)
        self.assertEqual((status, b"more than %d models are loaded" % MODELS in answer), (400, True), answer)
        self.assertEqual(set(index().values()), {"READY"})
        server.call("POST", "/v2/policy/ours")  # writes all buffered lines to the file
        done = subprocess.run([os.path.join(BUILD, "bench", "journal", "journal-errors"), journal.name], capture_output=True,
                              text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_unloading_without_drain_time_ends_running_batches(self):
        # The request takes four seconds.
        server = self.serve({"long": LONG, "other": SHORT}, "--gpu", "none", "--speed", "0.001", "--drain", "0s")

        def is_cut():
            asked = Requests(server)
            asked.ask("cut", "long")
            wait_until("the request runs, or was answered in a pause of the machine", lambda: server.pending("long") == 1 or asked.order)
            self.assertEqual(server.call("POST", "/v2/repository/models/long/unload")[0], 200)
            asked.join()
            self.assertEqual(server.call("POST", "/v2/repository/models/long/load")[0], 200)
            return asked.answers["cut"][0] != 200
        self.once_in(5, is_cut)
        for name in ("long", "other"):
            self.assertEqual(server.infer(name)[0], 200)


if __name__ == "__main__":
    unittest.main()

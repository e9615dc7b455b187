#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Workers of `hb serve` that end again and again are started again without end, with growing pauses; a worker whose CUDA
context is broken ends and is replaced. Workers report through files, so nothing depends on how fast the machine is."""
import json
import unittest

from serve_process import TENSORS, Requests, wait_until
from worker_programs import HAVE_NUMPY, HEAD, WORKER, appears, serve

ENDS = """
def infer(x):
    if x[0, 0] == 666:
        os._exit(7)
    return x

worker.serve(infer)
"""
CRASHES = HEAD + ENDS
BREAKS = HEAD + """
import ctypes
ctypes.CDLL(os.environ["HB_FAKE_CUDA"])
if os.path.exists("broken"):
    os.remove("broken")

def infer(x):
    there("pid", str(os.getpid()))
    if x[0, 0] > 0:
        there("broken", "%d" % x[0, 0])
        raise RuntimeError("CUDA error")
    return x

worker.serve(infer)
"""
# Each start after the first waits for a file.
STARTS_LATE = HEAD + """
if os.path.exists("started"):
    wait_for("go")
there("started")
""" + ENDS
HANGS = HEAD + """
def infer(x):
    there("runs")
    wait_for("go")
    return x

worker.serve(infer)
"""
FULL = "sm_share: [1, 1]\npriority: high\n"  # two batches at once do no more work than one after the other


@unittest.skipUnless(HAVE_NUMPY, "python3-numpy is not installed")
class Restarts(unittest.TestCase):
    @staticmethod
    def index_of(server, name):
        return next(model for model in json.loads(server.call("POST", "/v2/repository/index")[1]) if model["name"] == name)

    @staticmethod
    def model_metric(server, name, model):
        return server.metric('%s{model="%s",version="1"}' % (name, model))

    def crash_until_not_ready(self, server):
        """Sends requests that end the worker until the model is not ready. Returns the status of each."""
        seen = []
        while not seen or seen[-1] == 500:
            seen.append(server.infer("crashes", (666, 0, 0, 0))[0])
        self.assertEqual(seen[-1], 503)
        return seen[:-1]

    def test_a_worker_that_ends_again_and_again_is_started_without_end(self):
        server = serve(self, {"crashes": ("", CRASHES), "other": ("", CRASHES)})
        self.assertEqual(self.model_metric(server, "hb_serve_model_ready", "crashes"), 1)
        for number in (5, 5):  # a request that succeeds between them does not shorten the pause: the worker must serve for a while
            self.crash_until_not_ready(server)
            found = self.index_of(server, "crashes")
            self.assertEqual((found["state"], "its worker ended %d times: exit status 7" % number in found["reason"],
                              "pause of 3.2 s" in found["reason"]), ("UNAVAILABLE", True, True), found)
            status, _, head = server.exchange("GET", "/v2/models/crashes/ready")
            self.assertEqual((status, head["Retry-After"]), (503, "1"))
            self.assertEqual(self.model_metric(server, "hb_serve_model_ready", "crashes"), 0)
            self.assertEqual(server.infer("other")[0], 200)
            self.assertEqual(server.call("GET", "/v2/health/ready")[0], 200)
            wait_until("the model is ready again", lambda: server.is_ready("crashes"))
            self.assertEqual((server.infer("crashes")[0], self.index_of(server, "crashes")["reason"]), (200, ""))
        self.assertEqual(self.model_metric(server, "hb_serve_model_ready", "crashes"), 1)
        self.assertEqual(self.model_metric(server, "hb_serve_worker_restarts_total", "crashes"), 6)
        self.assertEqual(self.model_metric(server, "hb_serve_worker_restarts_total", "other"), 0)

    def test_no_model_waits_for_a_worker_that_is_started_again_or_hangs(self):
        server = serve(self, {"late": (FULL, STARTS_LATE), "hangs": (FULL, HANGS), "other": (FULL, CRASHES)})
        requests = Requests(server)
        self.addCleanup(requests.join)
        self.assertEqual(server.infer("late", (666, 0, 0, 0))[0], 500)
        requests.ask("late", "late")
        wait_until("the request waits", lambda: server.pending("late") == 1)
        self.assertEqual(server.infer("other")[0], 200)
        requests.ask("hangs", "hangs")
        appears(server, "hangs/runs")
        self.assertEqual(server.infer("other")[0], 200)
        self.assertEqual(requests.order, [])
        server.write("late/go", "")
        server.write("hangs/go", "")
        requests.join()
        self.assertEqual({name: answer[0] for name, answer in requests.answers.items()}, {"late": 200, "hangs": 200})

    def test_a_model_that_did_not_load_becomes_ready_when_its_cause_is_gone(self):
        server = serve(self, {"other": ("", CRASHES)})
        server.write("late/model.yaml", WORKER + TENSORS)
        server.write("late/model.py", "raise SystemExit(3)")
        status, answer = server.call("POST", "/v2/repository/models/late/load")
        self.assertEqual((status, b"ended 5 times: exit status 3" in answer), (400, True), answer)
        server.write("late/model.py", CRASHES)
        wait_until("the model is ready", lambda: server.is_ready("late"))

    def test_a_worker_whose_cuda_context_is_broken_is_replaced(self):
        server = serve(self, {"breaks": ("", BREAKS)})
        self.assertEqual(server.infer("breaks", (0, 0, 0, 0))[0], 200)
        first = appears(server, "breaks/pid")
        status, answer = server.infer("breaks", (1, 0, 0, 0))  # CUDA_ERROR_INVALID_VALUE breaks nothing
        self.assertEqual((status, answer["error"]), (500, "model breaks: RuntimeError: CUDA error"))
        self.assertEqual(server.infer("breaks", (0, 0, 0, 0))[0], 200)
        self.assertEqual(appears(server, "breaks/pid"), first)
        status, answer = server.infer("breaks", (700, 0, 0, 0))  # CUDA_ERROR_ILLEGAL_ADDRESS
        self.assertEqual((status, answer["error"]), (500, "model breaks: RuntimeError: CUDA error"))
        self.assertEqual(server.infer("breaks", (0, 0, 0, 0))[0], 200)
        self.assertNotEqual(appears(server, "breaks/pid"), first)
        wait_until("the cause is logged", lambda: any("broken its CUDA context" in line for line in server.log))


if __name__ == "__main__":
    unittest.main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Unmodified HTTP servers on a simulated GPU: after a while their GPU is held
before the request's first kernel, by what came in on their sockets alone.
Nothing here depends on how long anything takes: load goes on until it was so."""
import json
import os
import signal
import subprocess
import sys
import unittest

from stack import BUILD, LIMIT, Stack, wait_until

HERE = os.path.dirname(os.path.abspath(__file__))
LOAD = os.path.join(HERE, "../../bench/http_load.py")
SERVER = os.path.join(BUILD, "bench/simcuda/sim_http")
PYTHON_SERVER = os.path.join(HERE, "../../bench/simcuda/sim_http.py")
MODULE = os.path.join(HERE, "../../python")
CLIENT = """
import hummingbird, sim_http
gpu = sim_http.Gpu(200)
gpu.infer()
for _ in range(5):
    with hummingbird.request(deadline=0.01):
        hummingbird.hint(0.0003)
        gpu.infer()
print("told", flush=True)
input()
"""
WORK = ("200", "600")  # us of the kernel, us on the CPU before it


def load(port, *extra):
    done = subprocess.run([sys.executable, LOAD, "--port", port, "--bytes", "2000", "--connections", "1", *extra],
                          capture_output=True, text=True, check=True, timeout=LIMIT)
    return json.loads(done.stdout)


def counters(stack):
    found = [tenant for tenant in stack.tenants() if tenant["priority"] == "high"]
    return found[0]["counters"] if found else {}


class Foresight(unittest.TestCase):
    def serve(self, stack, arguments, options=()):
        low = stack.start("low", "train", 300, 0)
        low.expect("running")
        server = stack.start("high", *arguments[1:], options=options, program=arguments[0])
        port = server.expect("port").split()[1]
        load(port, "--rate", "50", "--seconds", "0.2")
        return low, server, port

    def end(self, low, server):
        server.signal(signal.SIGTERM)
        server.ended()
        low.signal(signal.SIGTERM)
        low.ended()

    def hold_before_requests(self, arguments):
        with Stack() as stack:
            low, server, port = self.serve(stack, arguments)

            def held():
                load(port, "--rate", "60", "--seconds", "0.5")
                return counters(stack)["requests_with_takeover"] >= 10
            wait_until("requests find the GPU held", held)
            found = counters(stack)
            self.assertGreater(found["takeovers_released"], 0)
            self.assertGreaterEqual(found["requests"], found["requests_with_takeover"])
            self.end(low, server)

    def test_c_server(self):
        self.hold_before_requests([SERVER, *WORK])

    def test_python_server(self):
        self.hold_before_requests([sys.executable, PYTHON_SERVER, *WORK])

    def test_nothing_is_held_without_signs(self):
        with Stack() as stack:
            low, server, port = self.serve(stack, [SERVER, *WORK], ("--no-signs",))
            load(port, "--rate", "60", "--seconds", "1")
            self.assertEqual(counters(stack)["signs"], 0)
            self.end(low, server)

    def test_bytes_that_lead_to_nothing_are_not_believed(self):
        with Stack() as stack:
            low, server, port = self.serve(stack, [SERVER, *WORK])
            before = counters(stack)["takeovers"]
            sent = 0
            while sent < 3000:  # at this rate in less than a second, if the machine can
                sent += load(port, "--hostile", "--rate", "5000", "--seconds", "1")["sent"]
            found = counters(stack)
            self.assertGreater(found["signs"], 100)
            self.assertLess(found["takeovers"] - before, sent / 20)
            self.end(low, server)

    def test_python_client(self):
        """Requests told through the module reach the page; without Hummingbird it does nothing."""
        subprocess.run([sys.executable, "-c", "import hummingbird as h\nwith h.request(0.01): h.hint()"], check=True,
                       env={"PYTHONPATH": MODULE, "PATH": os.environ["PATH"]}, timeout=LIMIT)
        with Stack() as stack:
            client = stack.start("high", "-c", CLIENT, program=sys.executable,
                                 PYTHONPATH=MODULE + ":" + os.path.dirname(PYTHON_SERVER))
            client.expect("told")
            self.assertEqual(counters(stack)["requests"], 6)  # 5, and the one before the program began to tell
            client.go()
            client.output()


if __name__ == "__main__":
    unittest.main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Unmodified HTTP servers on a simulated GPU. After a while, the bytes that arrive on
their sockets are enough for the GPU to be taken over before a request's first
kernel. No test depends on times: load continues until the condition is true.
"""
import concurrent.futures
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
WORK = ("200", "600")  # microseconds of the kernel, and on the CPU before it


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
            wait_until("requests find the GPU taken over", held)
            found = counters(stack)
            self.assertGreater(found["takeovers_released"], 0)
            self.assertGreaterEqual(found["requests"], found["requests_with_takeover"])
            self.end(low, server)

    def test_requests_of_a_c_server_are_foreseen(self):
        self.hold_before_requests([SERVER, *WORK])

    def test_requests_of_a_python_server_are_foreseen(self):
        self.hold_before_requests([sys.executable, PYTHON_SERVER, *WORK])

    def test_requests_of_two_services_are_foreseen(self):
        with Stack() as stack:
            low, server, port = self.serve(stack, [SERVER, *WORK])
            other = stack.start("high", *WORK, program=SERVER)
            other_port = other.expect("port").split()[1]

            def both_held():
                with concurrent.futures.ThreadPoolExecutor() as pool:
                    for done in [pool.submit(load, one, "--rate", "60", "--seconds", "0.5") for one in (port, other_port)]:
                        done.result()
                held = [tenant["counters"]["requests_with_takeover"] for tenant in stack.tenants()
                        if tenant["priority"] == "high"]
                return len(held) == 2 and min(held) >= 10
            wait_until("requests of both services find the GPU taken over", both_held)
            other.signal(signal.SIGTERM)
            other.ended()
            self.end(low, server)

    def test_without_signs_there_is_no_takeover(self):
        with Stack() as stack:
            low, server, port = self.serve(stack, [SERVER, *WORK], ("--no-signs",))
            load(port, "--rate", "60", "--seconds", "1")
            self.assertEqual(counters(stack)["signs"], 0)
            self.end(low, server)

    def test_bytes_without_requests_are_soon_ignored(self):
        with Stack() as stack:
            low, server, port = self.serve(stack, [SERVER, *WORK])
            before = counters(stack)["takeovers"]
            sent = 0
            while sent < 3000:  # takes less than a second on an idle machine
                sent += load(port, "--hostile", "--rate", "5000", "--seconds", "1")["sent"]
            found = counters(stack)
            self.assertGreater(found["signs"], 100)
            self.assertLess(found["takeovers"] - before, sent / 20)
            self.end(low, server)

    def test_requests_of_the_client_module_are_counted(self):
        """Requests that the module reports reach the page. Without Hummingbird the module does nothing."""
        subprocess.run([sys.executable, "-c", "import hummingbird as h\nwith h.request(0.01): h.hint()"], check=True,
                       env={"PYTHONPATH": MODULE, "PATH": os.environ["PATH"]}, timeout=LIMIT)
        with Stack() as stack:
            client = stack.start("high", "-c", CLIENT, program=sys.executable,
                                 PYTHONPATH=MODULE + ":" + os.path.dirname(PYTHON_SERVER))
            client.expect("told")
            self.assertEqual(counters(stack)["requests"], 6)  # 5, and one before the program began to report
            client.go()
            client.output()


if __name__ == "__main__":
    unittest.main()

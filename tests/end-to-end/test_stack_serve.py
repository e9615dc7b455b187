#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`hb serve` on a simulated GPU with other tenants: its workers run with the priority of their model, and the first bytes of a
request are a sign of it. The client sends the head of a request and withholds the body. So the daemon hears of the request
before anything can have been parsed, batched or launched."""
import json
import os
import signal
import socket
import subprocess
import sys
import unittest

from stack import HB, LIMIT, Stack, wait_until

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(HERE, "../server"))
from grpc_frames import data_frames, field, grpc_begin  # noqa: E402
PROGRAM = """
import os, sys
sys.path += [%r, %r]
import sim_http
from hummingbird import worker
gpu = sim_http.Gpu(200)

def infer(x):
    gpu.infer()
    return x

worker.serve(infer)
""" % (os.path.join(HERE, "../../python"), os.path.join(HERE, "../../bench/simcuda"))
MODEL = """platform: worker
priority: %s
max_batch: 4
command: %s model.py
inputs: [{name: x, datatype: FP32, shape: [1]}]
outputs: [{name: y, datatype: FP32, shape: [1]}]
"""
BODY = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 1], "data": [7]}]}).encode()
# Only Debian's own numpy: wheels of other Pythons free memory that the address sanitizer did not allocate.
PYTHON = "/usr/bin/python3"
HAVE_NUMPY = subprocess.run([PYTHON, "-c", "import numpy"], check=False, capture_output=True).returncode == 0


@unittest.skipUnless(HAVE_NUMPY, "no numpy")
class Serve(unittest.TestCase):
    def server(self, stack, *names):
        folder = os.path.join(stack.folder, "models")
        for name in names:
            os.makedirs(os.path.join(folder, name))
            for file, text in (("model.yaml", MODEL % (name, PYTHON)), ("model.py", PROGRAM)):
                with open(os.path.join(folder, name, file), "w", encoding="utf-8") as out:
                    out.write(text)
        server = stack.spawn([HB, "serve", "--models", folder, "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--gpu", "sim",
                              "--demands", "none"])
        port, self.grpc_port = (int(server.expect(kind).split()[-1]) for kind in ("http", "grpc"))
        for name in names:
            wait_until("%s is ready" % name, lambda one=name: self.ask(port, b"GET /v2/models/%s/ready" % one.encode()) == 200)
        return server, port

    @staticmethod
    def head(what, body=b""):
        return b"%s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % (what, len(body))

    def ask(self, port, what, body=b""):
        with socket.create_connection(("127.0.0.1", port), timeout=LIMIT) as client:
            client.sendall(self.head(what, body) + body)
            return int(client.recv(64).split()[1])

    @staticmethod
    def end(server):
        server.signal(signal.SIGTERM)
        assert server.ended() == 0, server.stderr()

    @staticmethod
    def counter(stack, priority, name):
        return sum(tenant["counters"][name] for tenant in stack.tenants() if tenant["priority"] == priority)

    def settled(self, stack, name):
        """Waits until a counter no longer changes and returns it."""
        seen = []

        def again():
            seen.append(self.counter(stack, "high", name))
            return len(seen) > 2 and seen[-1] == seen[-2] == seen[-3]
        wait_until("the counter no longer changes", again)
        return seen[-1]

    def test_workers_run_under_their_models_priority(self):
        with Stack() as stack:
            server, port = self.server(stack, "high", "low")
            for name in (b"high", b"low"):
                self.assertEqual(self.ask(port, b"POST /v2/models/%s/infer" % name, BODY), 200)
            wait_until("both workers are tenants", lambda: {tenant["priority"] for tenant in stack.tenants()} == {"high", "low"})
            self.end(server)

    def test_the_head_of_a_request_is_a_sign(self):
        with Stack() as stack:
            server, port = self.server(stack, "high", "low")
            for name in (b"high", b"low"):
                self.assertEqual(self.ask(port, b"POST /v2/models/%s/infer" % name, BODY), 200)
            wait_until("the request has ended", lambda: self.counter(stack, "high", "requests") >= 1)
            before, requests = self.settled(stack, "signs"), self.counter(stack, "high", "requests")
            # Requests for a low-priority model or for no model are not signs.
            for name in (b"low", b"none"):
                self.ask(port, b"POST /v2/models/%s/infer" % name, BODY)
            self.assertEqual(self.counter(stack, "high", "signs"), before)
            with socket.create_connection(("127.0.0.1", port), timeout=LIMIT) as client:
                client.sendall(self.head(b"POST /v2/models/high/infer", BODY))
                wait_until("the daemon has counted the sign", lambda: self.counter(stack, "high", "signs") > before)
                self.assertEqual(self.counter(stack, "high", "requests"), requests)
                client.sendall(BODY)
                self.assertEqual(int(client.recv(64).split()[1]), 200)
            wait_until("the request was counted", lambda: self.counter(stack, "high", "requests") > requests)
            self.end(server)

    def test_the_beginning_of_a_message_is_a_sign(self):
        with Stack() as stack:
            server, port = self.server(stack, "high", "low")
            for name in (b"high", b"low"):
                self.assertEqual(self.ask(port, b"POST /v2/models/%s/infer" % name, BODY), 200)
            wait_until("the request has ended", lambda: self.counter(stack, "high", "requests") >= 1)
            before = self.settled(stack, "signs")
            # The name is incomplete; a message for a low-priority model.
            for message in (b"\x0a\x04hig", field(1, b"low")):
                with socket.create_connection(("127.0.0.1", self.grpc_port), timeout=LIMIT) as client:
                    client.sendall(grpc_begin() + data_frames(1, message, end=False))
                    self.assertTrue(client.recv(64))
            self.assertEqual(self.settled(stack, "signs"), before)
            with socket.create_connection(("127.0.0.1", self.grpc_port), timeout=LIMIT) as client:
                client.sendall(grpc_begin() + data_frames(1, field(1, b"high"), end=False))
                wait_until("the daemon has counted the sign", lambda: self.counter(stack, "high", "signs") > before)
            self.end(server)


if __name__ == "__main__":
    unittest.main()

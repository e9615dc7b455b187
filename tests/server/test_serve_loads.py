#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Requests of `hb serve` to load a model: they take no thread each, wait in a queue with a limit, and end with their client;
the server answers others meanwhile. Workers report through files, so nothing depends on how fast the machine is."""
import json
import os
import threading
import unittest

from grpc_frames import data_frames, field, grpc_begin
from serve_process import TENSORS, Requests, wait_until
from worker_programs import GATED, HAVE_NUMPY, HEAD, WORKER, appears, serve

NEVER_READY = HEAD + """
there("starts")
wait_for("go")
worker.serve(lambda x: x, lists=True)
"""
LOAD = "/inference.GRPCInferenceService/RepositoryModelLoad"


@unittest.skipUnless(HAVE_NUMPY, "python3-numpy is not installed")
class Loads(unittest.TestCase):
    def start(self, *options, **models):
        """A server with a model that is loaded, and one that becomes ready only when the test says so."""
        server = serve(self, {"fast": ("platform: echo\nmax_batch: 4\n", None), **models}, "--connections", "60",
                       "--connections-per-client", "60",
                       "--idle", "1h", *options)
        server.write("slow/model.yaml", WORKER + TENSORS)
        server.write("slow/model.py", NEVER_READY)
        return server

    @staticmethod
    def threads(server):
        return len(os.listdir("/proc/%d/task" % server.process.pid))

    @staticmethod
    def begin_http(server, model=b"slow"):
        return server.connect(b"POST /v2/repository/models/%s/load HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n" % model)

    @staticmethod
    def begin_grpc(server, model=b"slow"):
        return server.connect(grpc_begin(path=LOAD) + data_frames(1, field(2, model)), server.grpc_port)

    @staticmethod
    def waiting(server):
        return server.metric("hb_serve_waiting_loads")

    def test_requests_that_wait_take_no_threads_and_end_with_their_client(self):
        for begin in (self.begin_http, self.begin_grpc):
            server = self.start()
            before = self.threads(server)
            clients = [begin(server) for _ in range(50)]
            wait_until("all requests wait", lambda s=server: self.waiting(s) == 50)
            self.assertLess(self.threads(server), before + 10)  # some may wait for the end of a worker or measure a demand
            self.assertEqual(server.infer("fast")[0], 200)
            self.assertEqual(server.call("POST", "/v2/repository/models/fast/load")[0], 200)
            for client in clients:
                client.close()
            wait_until("no request waits", lambda s=server: self.waiting(s) == 0)
            new = [server.connect(b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n") for _ in range(50)]
            for client in new:
                self.assertIn(b" 200 ", client.recv(4096))
                client.close()

    def test_the_queue_has_a_limit(self):
        server = self.start()
        clients = [self.begin_http(server) for _ in range(32)] + [self.begin_grpc(server) for _ in range(32)]
        wait_until("all requests wait", lambda: self.waiting(server) == 64)
        status, answer, head = server.exchange("POST", "/v2/repository/models/fast/load")
        self.assertEqual((status, head["Retry-After"], "64 load requests" in json.loads(answer)["error"]), (503, "1", True))
        with self.begin_grpc(server, b"fast") as client:
            wait_until("the call is refused", lambda: b"\x0214" in client.recv(65536))  # grpc-status UNAVAILABLE
        clients.pop().close()
        wait_until("a place is free", lambda: self.waiting(server) == 63)
        self.assertEqual(server.call("POST", "/v2/repository/models/fast/load")[0], 200)
        server.write("slow/go", "")
        for client in clients[:32]:
            self.assertIn(b" 200 ", client.recv(4096))
        for client in clients[32:]:
            wait_until("the call is answered", lambda c=client: b"\x010" in c.recv(65536))
        for client in clients:
            client.close()

    def test_requests_that_wait_together_load_the_model_once(self):
        """The first request waits for a batch that runs; those that arrive meanwhile load the model once more."""
        program = 'there("starts-%d" % os.getpid())\n'.join(GATED.split('there("pid", str(os.getpid()))\n'))
        server = self.start("--drain", "1h", gated=("", program))
        asked = Requests(server)
        asked.ask("one", "gated")
        appears(server, "gated/runs-1")
        clients = [self.begin_http(server, b"gated") for _ in range(21)]
        wait_until("all requests wait", lambda: self.waiting(server) == 21)
        server.write("gated/go", "")
        for client in clients:
            self.assertIn(b" 200 ", client.recv(4096))
            client.close()
        asked.join()
        self.assertEqual(asked.answers["one"][0], 200)
        started = sum(name.startswith("starts-") for name in os.listdir(os.path.join(server.folder, "gated")))
        self.assertIn(started, (2, 3))

    def test_a_model_whose_client_has_gone_continues_to_load(self):
        server = self.start()
        client = self.begin_http(server)
        appears(server, "slow/starts")
        client.close()
        wait_until("no request waits", lambda: self.waiting(server) == 0)
        server.write("slow/go", "")
        wait_until("the model is ready", lambda: server.is_ready("slow"))

    def test_requests_end_when_the_server_ends(self):
        server = self.start()
        answers = []
        load = threading.Thread(target=lambda: answers.append(server.call("POST", "/v2/repository/models/slow/load")))
        load.start()
        appears(server, "slow/starts")
        server.stop()
        load.join()
        self.assertEqual((answers[0][0], b"going down" in answers[0][1]), (400, True), answers)


if __name__ == "__main__":
    unittest.main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`hb serve` with clients of Python's standard library: answers, refusals, time-outs, clients that disconnect, workers that
die, and faulty bodies and connections. The tests wait for conditions, never for a fixed time."""
import http.client
import json
import os
import socket
import struct
import subprocess
import threading
import unittest

from serve_process import LIMIT, SOURCE, Server, is_closed, wait_until

MODEL = """
import os, signal, sys
sys.path.insert(0, %r)
from hummingbird import worker

def infer(x):
    if x[0, 0] == 13:
        raise ValueError("unlucky")
    if x[0, 0] == 666:
        os.kill(os.getpid(), signal.SIGKILL)
    return x * 2

worker.serve(infer)
""" % os.path.join(SOURCE, "python")
HAVE_NUMPY = subprocess.run(["/usr/bin/python3", "-c", "import numpy"], check=False, capture_output=True).returncode == 0


class Serve(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        models = {"fast": "platform: echo\nmax_batch: 8\n",
                  "slow": "platform: echo\nmax_batch: 1\ndelay: 10s\nrun: 10s\n",
                  "late": "platform: echo\ndelay: 50ms\nrun: 50ms\nmax_batch: 1\n",
                  "broken": "platform: worker\ncommand: 'false'\n"}
        if HAVE_NUMPY:
            models["work"] = "platform: worker\nmax_batch: 8\ncommand: /usr/bin/python3 model.py\n"
        cls.server = Server(models, "--gpu", "none", "--body", "1MiB", "--idle", "10s",
                            files=[("work/model.py", MODEL)] if HAVE_NUMPY else ())

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def call(self, method, path, body=None, headers=None):
        return self.server.exchange(method, path, body, headers)

    def head_only(self, length):
        """Announces a body, sends none of it and returns the status of the answer."""
        with self.server.connect(b"POST /v2/models/fast/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % length) as client:
            return int(client.recv(64).split()[1])

    def infer(self, model, values, **parameters):
        return self.server.infer(model, values, **parameters)

    def metric(self, name):
        return self.server.metric(name)

    def test_health_metadata_and_repository_are_reported(self):
        self.assertEqual(self.call("GET", "/v2/health/live")[0], 200)
        wait_until("all models have loaded or failed", lambda: self.call("GET", "/v2/health/ready")[0] == 200)
        self.assertEqual(json.loads(self.call("GET", "/v2")[1])["name"], "hummingbird")
        metadata = json.loads(self.call("GET", "/v2/models/fast/versions/1")[1])
        self.assertEqual(metadata["inputs"], [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}])
        index = {model["name"]: model for model in json.loads(self.call("POST", "/v2/repository/index")[1])}
        self.assertEqual(index["fast"]["state"], "READY")
        for path in ("/v2/models/none", "/v2/models/fast/versions/2", "/v3", "/v2/models/none/ready"):
            self.assertEqual(self.call("GET", path)[0], 404, path)
        self.assertEqual(self.call("GET", "/v2/models/fast/infer")[0], 405)

    def test_a_worker_that_cannot_start_fails_its_model(self):
        wait_until("the model has failed", lambda: "ended" in self.infer("broken", [1, 2, 3, 4])[1].get("error", ""))
        self.assertEqual(self.infer("broken", [1, 2, 3, 4])[0], 503)

    def test_the_configuration_of_a_model_is_reported(self):
        config = json.loads(self.call("GET", "/v2/models/late/versions/1/config")[1])
        self.assertEqual((config["name"], config["max_batch_size"]), ("late", 1))
        self.assertEqual(config["input"], [{"name": "x", "data_type": "TYPE_FP32", "format": "FORMAT_NONE", "dims": [4]}])
        self.assertEqual(config["output"], [{"name": "y", "data_type": "TYPE_FP32", "dims": [4]}])
        self.assertEqual(self.call("GET", "/v2/models/none/config")[0], 404)

    def test_unsupported_parameters_that_change_the_answer_are_refused(self):
        def refused(path, body):
            status, data, _ = self.call("POST", path, json.dumps(body))
            return status, json.loads(data).get("error", "")
        tensor = {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}
        for body, word in (({"inputs": [tensor], "parameters": {"sequence_id": 3}}, "sequence_id"),
                           ({"inputs": [tensor], "outputs": [{"name": "y", "parameters": {"classification": 2}}]}, "classification")):
            status, error = refused("/v2/models/fast/infer", body)
            self.assertEqual((status, word in error), (501, True), error)
        for name in ("config", "file:1/model.bin"):
            status, error = refused("/v2/repository/models/fast/load", {"parameters": {name: "{}"}})
            self.assertEqual((status, "failed to load 'fast'" in error), (501, True), error)
        self.assertEqual(self.call("POST", "/v2/repository/models/fast/load", b"{")[0], 400)
        status, error = refused("/v2/models/fast/infer", {"inputs": [dict(tensor, data=[1, 2, 3, 1e39])]})
        self.assertEqual((status, "4 elements of FP32" in error), (400, True), error)

    def test_head_answers_like_get_without_a_body(self):
        for path, status in (("/v2/health/live", 200), ("/v2/models/fast", 200), ("/v2/models/none", 404), ("/metrics", 200)):
            answer, body, headers = self.call("HEAD", path)
            self.assertEqual((answer, body), (status, b""), path)
            if path == "/metrics":
                self.assertGreater(int(headers["Content-Length"]), 0)
        self.assertEqual(self.call("HEAD", "/v2/models/fast/infer")[0], 405)

    def test_json_and_binary_tensors_give_the_same_answer(self):
        status, answer = self.infer("fast", [1, 2, 3, 4.5], priority="high")
        self.assertEqual((status, answer["id"], answer["outputs"][0]["data"]), (200, "7", [1, 2, 3, 4.5]))
        head = json.dumps({"parameters": {"binary_data_output": True}, "inputs": [
            {"name": "x", "datatype": "FP32", "shape": [2, 4], "parameters": {"binary_data_size": 32}}]}).encode()
        data = struct.pack("<8f", *range(8))
        status, answer, headers = self.call("POST", "/v2/models/fast/infer", head + data,
                                            {"Inference-Header-Content-Length": str(len(head))})
        self.assertEqual(status, 200)
        self.assertEqual(answer[int(headers["Inference-Header-Content-Length"]):], data)

    def test_errors_in_a_request_are_named(self):
        for body, word in ((b"", "request"), (b"{", "request"), (b"\xff\xfe", "request"), (b"[1]", "object"),
                           (b'{"inputs":[{"name":"x"}]}', "datatype")):
            status, data, _ = self.call("POST", "/v2/models/fast/infer", body)
            self.assertEqual(status, 400, body)
            self.assertIn(word, json.loads(data)["error"])
        self.assertEqual(self.head_only(2 << 20), 413)
        self.assertEqual(self.call("POST", "/v2/models/fast/infer", b"{}", {"Inference-Header-Content-Length": "9"})[0], 400)
        self.assertEqual(self.infer("fast", [1, 2, 3, 4])[0], 200)

    def test_a_request_is_answered_at_its_time_out(self):
        before = self.metric('hb_serve_requests_total{model="slow",version="1",priority="low",outcome="TIMEOUT"}')
        duration = 'nv_inference_request_duration_us{model="slow",version="1"}'
        duration_before = self.metric(duration)
        status, answer = self.infer("slow", [1, 2, 3, 4], timeout=20000, priority="low")
        self.assertEqual(status, 504)
        self.assertEqual(self.metric(duration), duration_before)  # like Triton, counts only requests that succeed
        self.assertIn("time-out after", answer["error"])
        self.assertEqual(self.metric('hb_serve_requests_total{model="slow",version="1",priority="low",outcome="TIMEOUT"}'),
                         before + 1)

    def test_a_request_that_would_be_late_is_refused_with_the_prediction(self):
        for _ in range(3):
            self.assertEqual(self.infer("late", [1, 2, 3, 4], priority="high")[0], 200)
        status, answer = self.infer("late", [1, 2, 3, 4], deadline=1000, priority="high")
        self.assertIn(status, (503, 504))
        if status == 503:
            self.assertIn("predicted finish", answer["error"])
        self.assertEqual(self.infer("late", [1, 2, 3, 4], deadline=30000000, priority="high")[0], 200)

    def test_the_request_of_a_client_that_disconnects_is_cancelled(self):
        name = 'hb_serve_requests_total{model="slow",version="1",priority="high",outcome="CANCELLED"}'
        before = self.metric(name)
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=LIMIT)
        connection.request("POST", "/v2/models/slow/infer", json.dumps({
            "inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}]}))
        pending = 'nv_inference_pending_request_count{model="slow",version="1"}'
        wait_until("the request waits", lambda: self.metric(pending) >= 1)
        connection.close()
        wait_until("the request was cancelled", lambda: self.metric(name) == before + 1)

    def test_faulty_connections_are_closed(self):
        """All connections at once. If a request and the end of its connection arrive together, as after a pause of the machine,
        the time limit closes the connection."""
        clients = []
        for data in (b"GET / HTTP/9.9\r\n\r\n", b"\0" * 4096, b"POST /v2/models/fast/infer HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
                     b"POST /v2/models/fast/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{", b"G" * 70000,
                     b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"):
            for port in (self.server.port, self.server.grpc_port):
                clients.append(self.server.connect(port=port))
                try:
                    clients[-1].sendall(data)
                    clients[-1].shutdown(socket.SHUT_WR)
                except OSError:
                    pass  # the server refused the request before its end
        for client in clients:
            with client:
                self.assertTrue(is_closed(client))
        self.assertEqual(self.infer("fast", [1, 2, 3, 4])[0], 200)

    @unittest.skipUnless(HAVE_NUMPY, "python3-numpy is not installed")
    def test_a_worker_answers_fails_a_batch_and_is_started_again(self):
        wait_until("the model is ready", lambda: self.server.is_ready("work"))
        self.assertEqual(self.infer("work", [1, 2, 3, 4])[1]["outputs"][0]["data"], [2, 4, 6, 8])
        status, answer = self.infer("work", [13, 0, 0, 0])
        self.assertEqual(status, 500)
        self.assertIn("unlucky", answer["error"])
        status, answer = self.infer("work", [666, 0, 0, 0])
        self.assertEqual(status, 500)
        self.assertIn("signal 9", answer["error"])
        self.assertEqual(self.infer("work", [5, 6, 7, 8])[1]["outputs"][0]["data"], [10, 12, 14, 16])
        results = []
        threads = [threading.Thread(target=lambda k=k: results.append(
            (k, self.infer("work", [k, k, k, k])[1]["outputs"][0]["data"]))) for k in range(1, 12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(sorted(results), [(k, [2.0 * k] * 4) for k in range(1, 12)])

    def test_models_are_unloaded_and_loaded(self):
        self.assertEqual(self.call("POST", "/v2/repository/models/fast/unload")[0], 200)
        self.assertEqual(self.infer("fast", [1, 2, 3, 4])[0], 404)
        self.assertEqual(self.call("POST", "/v2/repository/models/fast/load")[0], 200)
        self.assertEqual(self.infer("fast", [1, 2, 3, 4])[0], 200)
        status, data, _ = self.call("POST", "/v2/repository/models/nothing/load")
        self.assertEqual(status, 400)
        self.assertIn("model.yaml", json.loads(data)["error"])


class Fairness(unittest.TestCase):
    def test_the_metric_says_how_evenly_models_get_their_requests_in_time(self):
        server = Server({"even": "platform: echo\nmax_batch: 1\n", "late": "platform: echo\nmax_batch: 1\ndelay: 50ms\nrun: 50ms\n"},
                        "--gpu", "none")
        self.addCleanup(server.stop)
        index = 'hb_serve_fairness_ratio{priority="%s"}'
        self.assertEqual([server.metric(index % priority) for priority in ("high", "low")], [1, 1])
        self.assertEqual(server.infer("even", [1, 2, 3, 4], priority="low")[0], 200)
        self.assertEqual(server.metric(index % "low"), 1)
        # A request that is refused because it would be late; then one of two models gets everything.
        self.assertEqual(server.infer("late", [1, 2, 3, 4], priority="low", deadline=1000)[0], 503)
        self.assertEqual(server.metric(index % "low"), 0.5)
        self.assertEqual(server.metric(index % "high"), 1)
        # Requests that are wrong do not count.
        self.assertEqual(server.infer("even", [1, 2, 3, 4], priority="unknown")[0], 400)
        self.assertEqual(server.metric(index % "low"), 0.5)


if __name__ == "__main__":
    unittest.main()

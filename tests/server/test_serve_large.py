#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`hb serve` and tensors so large that threads copy them: the answers are complete, also when other clients leave early, time
out, or unload the model during the copies."""
import json
import struct
import threading
import unittest

from grpc_frames import PREFACE, data_frames, field, frame, headers
from serve_process import wait_until
from worker_programs import HAVE_NUMPY, HEAD, serve

FLOATS = 1 << 20
TENSORS = """inputs: [{name: x, datatype: FP32, shape: [%d]}]
outputs: [{name: y, datatype: FP32, shape: [%d]}]
""" % (FLOATS, FLOATS)
TWICE = HEAD + "worker.serve(lambda x: x * 2)"
PATH = "/v2/models/m/infer"


def data(value):
    return struct.pack("<f", value) * FLOATS


def http_request(value, **parameters):
    """The body and headers of a request with binary data."""
    head = json.dumps({"parameters": {"binary_data_output": True, **parameters}, "inputs": [
        {"name": "x", "datatype": "FP32", "shape": [1, FLOATS], "parameters": {"binary_data_size": 4 * FLOATS}}]}).encode()
    return head + data(value), {"Inference-Header-Content-Length": str(len(head))}


def varint(value):
    return bytes([value & 127 | 128]) + varint(value >> 7) if value > 127 else bytes([value])


def ask_grpc(server, value):
    """Returns the message of the answer."""
    raw = data(value)
    tensor = field(1, b"x") + field(2, b"FP32") + field(3, b"\x01" + varint(FLOATS))
    message = field(1, b"m") + field(5, tensor) + bytes([7 << 3 | 2]) + varint(len(raw)) + raw
    window = (1 << 31) - 1
    connection = server.connect(PREFACE + frame(4, 0, 0, struct.pack(">HI", 4, window)) +
                                frame(8, 0, 0, struct.pack(">I", window - 65535)) +
                                headers(1, "/inference.GRPCInferenceService/ModelInfer") + data_frames(1, message),
                                server.grpc_port)
    answer = b""
    with connection, connection.makefile("rb") as stream:
        while True:
            head = stream.read(9)
            payload = stream.read(int.from_bytes(head[:3], "big"))
            if head[3] == 0:
                answer += payload
            elif head[3] == 1 and head[4] & 1:
                return answer


@unittest.skipUnless(HAVE_NUMPY, "needs NumPy")
class LargeTensors(unittest.TestCase):
    def serve(self):
        return serve(self, {"m": ("", TWICE)}, tensors=TENSORS)

    def check_http(self, server, value):
        status, answer, got = server.exchange("POST", PATH, *http_request(value))
        self.assertEqual(status, 200, answer[:300])
        self.assertTrue(answer[int(got["Inference-Header-Content-Length"]):] == data(2 * value), "the values of %d" % value)

    def test_clients_at_the_same_time_get_their_own_values(self):
        server, answers = self.serve(), {}
        threads = [threading.Thread(target=lambda i=i: answers.update({i: ask_grpc(server, i)})) for i in (1, 3)]
        for thread in threads:
            thread.start()
        for value in (2, 4, 6):
            self.check_http(server, value)
        for thread in threads:
            thread.join()
        for value, answer in answers.items():
            self.assertTrue(answer.endswith(data(2 * value)), "the values of %d" % value)
        self.assertEqual(len(answers), 2)

    def test_a_large_answer_can_be_compressed(self):
        server = self.serve()
        body, sent = http_request(5)
        status, answer, got = server.exchange("POST", PATH, body, {"Accept-Encoding": "gzip", **sent})
        self.assertEqual((status, got["Content-Encoding"]), (200, "gzip"))
        self.assertLess(len(answer), FLOATS)

    def test_requests_that_end_early_harm_no_other(self):
        server = self.serve()
        for i in range(12):
            body, sent = http_request(i, **({"timeout": 1000 * i} if i % 2 else {}))
            text = "".join("%s: %s\r\n" % line for line in sent.items())
            server.connect(("POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n%s\r\n" % (PATH, len(body), text)).encode() +
                           body).close()
        self.check_http(server, 7)
        wait_until("no request is left", lambda: server.pending("m") == 0)

    def test_a_model_is_unloaded_during_requests(self):
        server = self.serve()
        statuses = []
        threads = [threading.Thread(target=lambda: statuses.append(server.exchange("POST", PATH, *http_request(8))[0]))
                   for _ in range(6)]
        for thread in threads:
            thread.start()
        self.assertEqual(server.call("POST", "/v2/repository/models/m/unload")[0], 200)
        for thread in threads:
            thread.join()
        self.assertLessEqual(set(statuses), {200, 400, 404, 503})
        self.assertEqual(server.call("POST", "/v2/repository/models/m/load")[0], 200)
        wait_until("the model is ready", lambda: server.is_ready("m"))
        self.check_http(server, 9)


if __name__ == "__main__":
    unittest.main()

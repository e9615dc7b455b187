# SPDX-License-Identifier: Apache-2.0
"""A server for tests of limits, with clients that send incomplete requests."""
import json
import os
import socket
import struct
import unittest

from grpc_frames import PREFACE, data_frames, field, frame, grpc_begin, headers, infer_message
from serve_process import Server

KIB = 1024
MODELS = {"fast": "platform: echo\n", "slow": "platform: echo\ndelay: 4s\nrun: 4s\n",
          "low": "platform: echo\npriority: low\n"}
# A model whose answers are larger than the system's socket buffers, so a client that does not read blocks them.
LARGE_BYTES = 24 * 1024 * KIB
LARGE = ("large/model.yaml", "platform: echo\ninputs: [{name: x, datatype: FP32, shape: [4]}]\n"
         "outputs: [{name: y, datatype: FP32, shape: [%d]}]\n" % (LARGE_BYTES // 4))
SERVICE = "/inference.GRPCInferenceService/"
BODY = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [4], "data": [1, 2, 3, 4]}]}).encode()


def half_close(connection):
    try:
        connection.shutdown(socket.SHUT_WR)
    except OSError:
        pass  # the server closed the connection in a pause of the machine


class LimitedServer(Server):
    def __init__(self, *options, open_files=None, models=0):
        more = [("more-%d/model.yaml" % i, LARGE[1]) for i in range(models)]
        super().__init__(MODELS, "--gpu", "none", *options, files=[LARGE] + more, open_files=open_files)

    def ask(self, path, body=None, headers=None):
        return self.exchange("POST" if body else "GET", path, body, headers)

    def send_incomplete_request(self, length, sent, model=b"fast"):
        return self.connect(b"POST /v2/models/%s/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % (model, length)
                            + b" " * sent)

    def send_incomplete_call(self, length, model=b"fast"):
        return self.connect(grpc_begin() + data_frames(1, field(1, model) + b" " * length, end=False), self.grpc_port)

    def connect_without_window(self, calls, method="ModelInfer", message=infer_message(b"large")):
        """Connects a gRPC client that sends some calls and, with a window of 0, takes no answer."""
        return self.connect(PREFACE + frame(4, 0, 0, struct.pack(">HI", 4, 0)) + b"".join(
            headers(stream, SERVICE + method) + data_frames(stream, message) for stream in range(1, 2 * calls, 2)),
                            self.grpc_port)

    def resident(self):
        with open("/proc/%d/status" % self.process.pid, encoding="utf-8") as file:
            return next(int(line.split()[1]) * KIB for line in file if line.startswith("VmRSS:"))


class LimitedTest(unittest.TestCase):
    """Tests that share a server with these options."""
    OPTIONS = ()

    @classmethod
    def setUpClass(cls):
        cls.server = LimitedServer(*cls.OPTIONS)

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

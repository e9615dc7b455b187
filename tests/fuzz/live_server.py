#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Attacks a living hb-serve with mutated HTTP requests and gRPC frames, some of them cut in two or left incomplete, while
a bystander sends good requests.

Afterwards hb-serve is alive without a report of a sanitizer, every request of the bystander was answered, a fresh client
is served, no descriptor is left open, memory is bounded, and hb-serve ends with 0. The build folder is in HB_BUILD.

usage: live_server.py [--seconds N] [--seed N]
"""
import gzip
import http.client
import json
import os
import random
import socket
import subprocess
import sys
import threading
import time
import zlib

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "server"))
import grpc_frames as frames  # noqa: E402
import live_target  # noqa: E402
from live_target import BUILD, LIMIT, Target  # noqa: E402

MODEL = """platform: echo
max_batch: 8
inputs: [{name: x, datatype: FP32, shape: [2]}, {name: text, datatype: BYTES, shape: [1]}]
outputs: [{name: x, datatype: FP32, shape: [2]}, {name: text, datatype: BYTES, shape: [1]}]
"""
GROWTH_MAX = 1 << 20  # bytes that hb-serve may have allocated more than before
UNCHANGED = .05  # share of requests that are sent as they are
SERVICE = "/inference.GRPCInferenceService/"


def body(binary=False):
    text = {"name": "text", "datatype": "BYTES", "shape": [1, 1]}
    text.update({"parameters": {"binary_data_size": 7}} if binary else {"data": ["b\u00e9"]})
    return json.dumps({"id": "a", "inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]}, text],
                       "outputs": [{"name": "text", "parameters": {"binary_data": True}}]}).encode()


def request(path, data=b"", head=b"", method=b"POST"):
    return (method + b" " + path + b" HTTP/1.1\r\nHost: localhost\r\n" + head +
            (b"Content-Length: %d\r\n" % len(data) if data else b"") + b"\r\n" + data)


def http_requests():
    infer, plain, binary = b"/v2/models/echo/infer", body(), body(binary=True)
    yield request(infer, plain)
    yield request(b"/v2/models/echo/versions/1/infer", plain)
    yield request(infer, gzip.compress(plain), b"Content-Encoding: gzip\r\n")
    yield request(infer, zlib.compress(plain), b"Content-Encoding: deflate\r\nAccept-Encoding: gzip;q=0.5, deflate\r\n")
    yield request(infer, binary + b"\3\0\0\0abc", b"Inference-Header-Content-Length: %d\r\n" % len(binary))
    yield request(infer, head=b"Transfer-Encoding: chunked\r\n") + b"%x\r\n%s\r\n0\r\n\r\n" % (len(plain), plain)
    yield request(infer, plain, b"Expect: 100-continue\r\n")
    yield request(infer, plain) + request(b"/v2/health/live", method=b"GET")
    yield request(b"/v2/repository/index", b'{"ready":true}')
    yield request(b"/v2/systemsharedmemory/region/a/register", b'{"key":"/nope","offset":0,"byte_size":8}')
    for path in (b"/v2/models/echo/versions/1/config", b"/v2/models/echo/stats", b"/v2", b"/v2/health/ready"):
        yield request(path, method=b"GET")
    yield request(b"/metrics", method=b"GET", head=b"Accept-Encoding: gzip\r\n")


def grpc_requests():
    """Pairs of the connection's beginning, which stays as it is, and the frames that are mutated."""
    for method in ("ModelInfer", "ServerLive", "ModelMetadata", "ModelStatistics", "RepositoryIndex", "ModelConfig",
                   "SystemSharedMemoryStatus", "ModelReady"):
        message = frames.infer_message(b"echo") if method == "ModelInfer" else frames.field(1, b"echo")
        yield frames.headers(1, SERVICE + method) + frames.data_frames(1, message)
    yield (frames.headers(1, SERVICE + "ModelInfer", grpc_timeout="5m", grpc_encoding="gzip")
           + frames.data_frames(1, gzip.compress(frames.infer_message(b"echo")), compressed=1)
           + frames.headers(3, SERVICE + "ServerLive", end=True) + frames.frame(3, 0, 1, b"\0\0\0\x08"))


class Bystander(threading.Thread):
    """A client at another address that sends one good request after the other over one connection."""

    def __init__(self, port):
        super().__init__(daemon=True)
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT, source_address=("127.0.0.2", 0))
        self.over, self.answers, self.failure = threading.Event(), 0, None
        self.start()

    def run(self):
        try:
            while not self.over.wait(0.02):
                self.connection.request("POST", "/v2/models/echo/infer", body(), {"Host": "localhost"})
                response = self.connection.getresponse()
                data = response.read()
                if response.status != 200:
                    raise AssertionError(f"status {response.status}: {data[:300]}")
                self.answers += 1
        except (OSError, http.client.HTTPException, AssertionError) as error:
            self.failure = repr(error)

    def end(self):
        self.over.set()
        self.join()
        self.connection.close()
        assert self.failure is None, f"the bystander was answered {self.answers} times, then: {self.failure}"
        assert self.answers, "the bystander was never answered"


class Attacker:
    def __init__(self, seed, http_port, grpc_port):
        self.random, self.http_port, self.grpc_port = random.Random(seed), http_port, grpc_port
        self.http, self.grpc = list(http_requests()), list(grpc_requests())
        self.connections = self.answers = self.good = 0

    def send(self, port, data):
        """Returns the beginning of what the server answers within a short time; b"" = nothing."""
        choose = self.random
        with socket.create_connection(("127.0.0.1", port), timeout=LIMIT) as connection:
            connection.settimeout(0.02 if choose.random() < .9 else 0.2)
            if choose.random() < .2:
                cut = choose.randrange(len(data) + 1)
                connection.sendall(data[:cut])
                time.sleep(0.001)
                connection.sendall(data[cut:])
            else:
                connection.sendall(data)
            return connection.recv(65536)

    def attack_once(self):
        choose, answer = self.random, b""
        change = choose.random() >= UNCHANGED
        is_http = choose.random() < .5
        if is_http:
            data = choose.choice(self.http)
            data = live_target.mutate(choose, data) if change else data
        else:
            data = choose.choice(self.grpc)
            data = frames.PREFACE + frames.frame(4, 0, 0) + (live_target.mutate(choose, data) if change else data)
        self.connections += 1
        try:
            answer = self.send(self.http_port if is_http else self.grpc_port, data)
        except (TimeoutError, ConnectionError):  # an incomplete request, or one that the server refuses
            pass
        self.answers += bool(answer)
        self.good += answer.startswith(b"HTTP/1.1 200")


def start_server(folder, _chosen):
    os.mkdir(os.path.join(folder, "echo"))
    with open(os.path.join(folder, "echo", "model.yaml"), "w", encoding="utf-8") as out:
        out.write(MODEL)
    target = Target([os.path.join(BUILD, "hb-serve"), "--models", folder, "--gpu", "none", "--shared-memory", "loopback",
                     "--shared-memory-prefix", "nope", "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--idle", "3s"], stdout=subprocess.PIPE, text=True)
    return (target,)


def read_ports(target):
    lines = [target.process.stdout.readline() for _ in range(2)]
    assert all(lines), f"hb-serve does not start: {target.said()}"
    return [int(line.split()[-1]) for line in lines]


def attack(target, chosen):
    ports = read_ports(target)
    bystander = Bystander(ports[0])
    attacker = Attacker(chosen.seed, *ports)
    live_target.wait_until("the bystander is served", lambda: bystander.answers or bystander.failure)
    for _ in range(100):
        attacker.attack_once()  # threads and buffers are made
    before, size, end = target.held(), target.meter.allocated_bytes(), time.monotonic() + chosen.seconds
    while time.monotonic() < end:
        target.check_alive()
        attacker.attack_once()
    print(f"{attacker.connections} connections, {attacker.answers} answered, {attacker.good} with 200; "
          f"the bystander had {bystander.answers} answers", flush=True)
    assert attacker.good, "the attack does nothing: no request was accepted"
    target.await_release(before)
    grown = target.meter.allocated_bytes() - size
    print(f"grown by {grown >> 10} KiB", flush=True)
    assert grown < GROWTH_MAX, f"hb-serve has grown by {grown >> 10} KiB"
    bystander.end()
    fresh = Bystander(ports[0])
    live_target.wait_until("a fresh client is served", lambda: fresh.answers or fresh.failure)
    fresh.end()


if __name__ == "__main__":
    live_target.run(__doc__, start_server, attack)

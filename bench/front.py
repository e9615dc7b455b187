#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the front end of `hb serve` costs: small inference requests to a model that does nothing (platform echo).

usage: front.py --build BUILD [--part NAME]... [--seconds N] [--rounds N] [--preferred] [--rate N] [--json FILE] [--markdown]
    --part small        closed loop over a few connections: JSON, binary tensors, GET; beside it peers, by the same
                        generator: the same HTTP library with a fixed answer, and nginx where it is installed
    --part half         server on processor 0, generator on processor 1: closed loop, then an open loop (Poisson) at half of
                        that; latency from the moment a request was due. Repeated (--rounds): given is the round in which
                        both waited least for their processors, which others may use, too. --preferred: before
                        those (SCHED_RR; root). --rate: the open loop alone, at so many requests a second,
                        and the same to the HTTP library with a fixed answer
    --part connections  10,000 connections at once, one request a time on each
    --part requests     1,000,000 requests: the server's memory at the first tenth and at the end
    --markdown          the rows of docs/serving.md
Without --part: all. The load generator (front_load.c, one thread) shares the machine's processors with the server; what
does not depend on that is the server's own CPU time a request (/proc), and so the requests that one core can answer.
exit status: 0, 1 a run failed or answered something else than 200.
"""
import argparse
import contextlib
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile

from processor_time import cpu_seconds, waited_seconds

MODEL = """platform: echo
inputs: [{name: x, datatype: FP32, shape: [4]}]
outputs: [{name: y, datatype: FP32, shape: [4]}]
"""
INFER = "/v2/models/null/infer"
NGINX = """worker_processes 2; daemon off; error_log stderr error; pid %(folder)s/pid;
events { worker_connections 20000; }
http { access_log off; keepalive_requests 100000000; client_body_temp_path %(folder)s; proxy_temp_path %(folder)s;
fastcgi_temp_path %(folder)s; uwsgi_temp_path %(folder)s; scgi_temp_path %(folder)s;
server { listen 127.0.0.1:%(port)d backlog=4096; location / { return 200 '{"model_name":"null","outputs":[]}'; } } }
"""
NGINX_PORT = 18499


def family(pid):
    """The process and its children."""
    with open(f"/proc/{pid}/task/{pid}/children", encoding="utf-8") as file:
        return [pid] + [int(child) for child in file.read().split()]


def family_seconds(pid):
    return sum(cpu_seconds(one) for one in family(pid))


def stolen_seconds():
    """What the machine under this one took from its processors, together."""
    with open("/proc/stat", encoding="utf-8") as file:
        return int(file.readline().split()[8]) / os.sysconf("SC_CLK_TCK")


def on_processor(number, preferred):
    def start():
        os.sched_setaffinity(0, {number})
        if preferred:
            os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    return start


def resident_mib(pid):
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        return next(int(line.split()[1]) / 1024 for line in file if line.startswith("VmRSS:"))


class Bench:
    def __init__(self, build, folder, seconds, rounds, preferred, rate):
        self.load_program = os.path.join(build, "tests/front/front-load")
        self.build, self.folder, self.seconds = build, folder, seconds
        self.rounds, self.preferred, self.rate = rounds, preferred, rate
        self.failed = False
        tensor = {"name": "x", "datatype": "FP32", "shape": [4]}
        head = json.dumps({"inputs": [dict(tensor, parameters={"binary_data_size": 16})],
                           "parameters": {"binary_data_output": True}}).encode()
        self.json_body = self.body("json", json.dumps({"inputs": [dict(tensor, data=[1.5, 2.25, -3, 0.1])]}).encode())
        self.binary = ["--path", INFER, "--headers", f"Inference-Header-Content-Length: {len(head)}",
                       "--body", self.body("binary", head + struct.pack("<4f", 1.5, 2.25, -3, 0.1))]
        self.json = ["--path", INFER, "--body", self.json_body]

    def body(self, name, data):
        path = os.path.join(self.folder, name)
        with open(path, "wb") as file:
            file.write(data)
        return path

    @contextlib.contextmanager
    def server(self, threads=2, start=None):
        models = os.path.join(self.folder, "models")
        os.makedirs(os.path.join(models, "null"), exist_ok=True)
        with open(os.path.join(models, "null/model.yaml"), "w", encoding="utf-8") as file:
            file.write(MODEL)
        with subprocess.Popen([os.path.join(self.build, "hb-serve"), "--models", models, "--http", "0", "--grpc", "0",
                               "--gpu", "none", "--threads", str(threads)], stdout=subprocess.PIPE, text=True, preexec_fn=start) as process:
            try:
                yield process.pid, int(process.stdout.readline().split()[-1])
            finally:
                process.terminate()

    @contextlib.contextmanager
    def hello(self, start=None):
        with subprocess.Popen([os.path.join(self.build, "tests/front/front-hello")], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, text=True, preexec_fn=start) as process:
            yield process.pid, int(process.stdout.readline())
            process.stdin.close()

    @contextlib.contextmanager
    def nginx(self):
        config = self.body("nginx.conf", (NGINX % {"folder": self.folder, "port": NGINX_PORT}).encode())
        with subprocess.Popen(["nginx", "-c", config]) as process:
            subprocess.run(["bash", "-c", f"until : </dev/tcp/127.0.0.1/{NGINX_PORT}; do sleep 0.05; done 2>/dev/null"],
                           check=True, timeout=30)
            try:
                yield process.pid, NGINX_PORT
            finally:
                process.terminate()

    def load(self, server, *arguments, start=None):
        pid, port = server
        before, waited, stolen = family_seconds(pid), waited_seconds(pid), stolen_seconds()
        done = subprocess.run([self.load_program, "--port", str(port), "--seconds", str(self.seconds), *map(str, arguments)],
                              stdout=subprocess.PIPE, check=True, text=True, preexec_fn=start)
        found = json.loads(done.stdout)
        found["server_waited_ms"] = round(1e3 * (waited_seconds(pid) - waited), 1)
        found["stolen_ms"] = round(1e3 * (stolen_seconds() - stolen), 1)
        self.failed |= found["not_200"] > 0 or found["answered"] == 0
        found["server_cpu_us"] = round(1e6 * (family_seconds(pid) - before) / max(found["answered"], 1), 2)
        found["per_core"] = round(1e6 / found["server_cpu_us"])
        found["server_mib"] = round(resident_mib(pid), 1)
        return found

    # ---- parts ----

    def small(self):
        found = {}
        with self.server() as server:
            self.load(server, *self.json, "--connections", 16)  # the first seconds are not counted
            for connections in (16, 256):
                found[f"infer, JSON, {connections} connections"] = self.load(server, *self.json, "--connections", connections)
            found["infer, binary tensors, 16 connections"] = self.load(server, *self.binary, "--connections", 16)
            found["GET /v2/health/live, 16 connections"] = self.load(server, "--path", "/v2/health/live", "--connections", 16)
        with self.hello() as server:
            found["peer: libmicrohttpd alone, the same request, a fixed answer"] = self.load(server, *self.json, "--connections", 16)
        if shutil.which("nginx"):
            with self.nginx() as server:
                found["peer: nginx, the same request, a fixed answer"] = self.load(server, *self.json, "--connections", 16)
        return found

    def at_rate(self):
        """Rounds of both in turn: what disturbs one disturbs the other."""
        rounds = {"infer, JSON": [], "peer: libmicrohttpd alone, a fixed answer": []}
        for _ in range(self.rounds):
            for (what, of), start in zip(rounds.items(), (lambda begin: self.server(1, begin), self.hello)):
                with start(on_processor(0, self.preferred)) as server:
                    of.append(self.load(server, *self.json, "--connections", 256, "--rate", self.rate,
                                        start=on_processor(1, self.preferred)))
                latency = of[-1]["latency_us"]
                print(f"round: {what}: {of[-1]['per_second']:.0f}/s, p50 {latency['p50']}, p99 {latency['p99']} us", file=sys.stderr)
        return {f"{what}, open loop at {self.rate:,.0f}/s, the round with the median p99 of {self.rounds}":
                sorted(of, key=lambda one: one["latency_us"]["p99"])[self.rounds // 2] for what, of in rounds.items()}

    def half(self):
        if self.rate:
            return self.at_rate()
        rounds = []
        for _ in range(self.rounds):
            with self.server(1, on_processor(0, self.preferred)) as server:
                whole = self.load(server, *self.json, "--connections", 64, start=on_processor(1, self.preferred))
                half = self.load(server, *self.json, "--connections", 256, "--rate", whole["per_second"] / 2,
                                 start=on_processor(1, self.preferred))
            rounds.append((half["server_waited_ms"] + half["load_waited_ms"] + half["stolen_ms"], whole, half))
            print(f"round: open loop at {half['per_second']:.0f}/s: p50 {half['latency_us']['p50']}, p99 "
                  f"{half['latency_us']['p99']} us, others had {rounds[-1][0]:.0f} ms of {1e3 * half['seconds']:.0f}", file=sys.stderr)
        others_ms, whole, half = min(rounds, key=lambda one: one[0])
        half["others_share"] = round(others_ms / 1e3 / half["seconds"], 4)
        return {"infer, JSON, 64 connections, server on one processor": whole,
                f"infer, JSON, open loop at half of that; others had {100 * half['others_share']:.1f} % of the time": half}

    def connections(self):
        with self.server() as server:
            return {"infer, JSON, 10,000 connections": self.load(server, *self.json, "--connections", 10000,
                                                                 "--requests", 200000, "--seconds", 120)}

    def requests(self):
        with self.server() as server:
            first = self.load(server, *self.json, "--connections", 64, "--requests", 100000, "--seconds", 600)
            rest = self.load(server, *self.json, "--connections", 64, "--requests", 900000, "--seconds", 600)
            rest["server_mib_at_a_tenth"] = first["server_mib"]
            return {"infer, JSON, 1,000,000 requests": rest}


def markdown(found):
    lines = ["| what | requests/s here | server's CPU a request | = requests/s a core | p50, p99 | memory |", "|---|---|---|---|---|---|"]
    for what, one in found.items():
        tenth = f" ({one['server_mib_at_a_tenth']} at a tenth)" if "server_mib_at_a_tenth" in one else ""
        lines.append(f"| {what} | {one['per_second']:,.0f} | {one['server_cpu_us']} us | {one['per_core']:,} | "
                     f"{one['latency_us']['p50'] / 1000:.2f}, {one['latency_us']['p99'] / 1000:.2f} ms | "
                     f"{one['server_mib']} MiB{tenth} |")
    return "\n".join(lines)


def main():
    parts = ("small", "half", "connections", "requests")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True)
    parser.add_argument("--part", action="append", choices=parts)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--preferred", action="store_true")
    parser.add_argument("--rate", type=float)
    parser.add_argument("--json")
    parser.add_argument("--markdown", action="store_true")
    arguments = parser.parse_args()
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(arguments.build, folder, arguments.seconds, arguments.rounds, arguments.preferred, arguments.rate)
        for part in arguments.part or parts:
            found.update(getattr(bench, part)())
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(found, file, indent=2)
    print(markdown(found) if arguments.markdown else json.dumps(found, indent=2))
    return bench.failed


if __name__ == "__main__":
    sys.exit(main())

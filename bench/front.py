#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures what the front end of `hb serve` adds to a request: small inference requests to a model that does nothing
(platform echo).

usage: front.py --build BUILD [--part NAME]... [--seconds N] [--rounds N] [--preferred] [--rate N]
                [--server-cpus LIST] [--load-cpus LIST] [--many N] [--json FILE] [--markdown] [--results FILE] [--commit TEXT]
    --part quiet        the targets, on processors without other programs; about a minute. Each round has a closed loop, an
                        open loop (Poisson) at half of its rate and an open loop at 30,000/s, then the same against the HTTP
                        library with a fixed answer; in the end 10,000 connections (--many) to both. The server runs on
                        --server-cpus, the generator, with one thread each, on --load-cpus (default: two cores and up to
                        four others). Results are medians of the rounds
    --part small        closed loop over a few connections: JSON, binary tensors, GET. The same generator also measures the
                        HTTP library with a fixed answer, and nginx where it is installed
    --part half         server on processor 0, generator on processor 1 (or --server-cpus and --load-cpus): closed loop, then
                        an open loop at half of its rate; latency counts from the moment a request was due. Other programs
                        may use these processors, so of several rounds (--rounds) the one counts in which both waited least
                        for their processors. --preferred: real-time priority (SCHED_RR; root). --rate N: only the open
                        loop, at N requests a second, and the same to the HTTP library with a fixed answer
    --part connections  10,000 connections at once, one request at a time on each
    --part requests     1,000,000 requests: the server's memory after the first tenth and at the end
    --markdown          the rows of docs/serving.md
    --results           of part quiet: a list of rows, as in bench/results; "commit" is --commit or git's answer
Without --part: all parts but quiet. The load generator (front_load.c) shares the machine's processors with the server. The
server's own processor time for each request (/proc) does not depend on that, and gives the requests that one core can answer.
BUILD contains hb-serve and, in tests/server or beside it, front-load and front-hello; of the source tree only front.py and
processor_time.py are needed.
exit status: 0, or 1 when a run failed, or a request had no answer or another status than 200.
"""
import argparse
import contextlib
import json
import os
import resource
import shutil
import signal
import statistics
import struct
import subprocess
import sys
import tempfile

import processor_time
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
DESCRIPTORS = 65536
GRACE_S = 60  # for a load to connect and to end, in addition to its length
QUIET_RATE, QUIET_CONNECTIONS = 30000, 256
QUIET_LIMIT_S = 240  # after that the measurement gives up
OURS, PEER = "infer, JSON", "peer: libmicrohttpd alone, a fixed answer"


def family(pid):
    """The process and its children, where the kernel lists them."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="utf-8") as file:
            return [pid] + [int(child) for child in file.read().split()]
    except FileNotFoundError:
        return [pid]


def family_seconds(pid):
    return sum(cpu_seconds(one) for one in family(pid))


def stolen_seconds():
    """Processor time that the host of this virtual machine took from all its processors."""
    with open("/proc/stat", encoding="utf-8") as file:
        return int((file.readline().split() + 9 * [0])[8]) / os.sysconf("SC_CLK_TCK")


def raise_descriptors():
    """Raises the limit of open files to what 10,000 connections need; without root only up to the hard limit."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    for wanted in ((DESCRIPTORS, max(DESCRIPTORS, limit[1])), (limit[1], limit[1])):
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, wanted)
            return


def on_processors(numbers, preferred=False):
    def start():
        os.sched_setaffinity(0, numbers)
        if preferred:
            os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    return start


def resident_mib(pid):
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        return next(int(line.split()[1]) / 1024 for line in file if line.startswith("VmRSS:"))


def program(build, name):
    """Path of a program in the build folder, or beside hb-serve where only the programs were copied."""
    path = os.path.join(build, "tests/server", name)
    return path if os.path.exists(path) else os.path.join(build, name)


def port_of(process, line):
    if not line.strip():
        raise RuntimeError(f"{process.args[0]} did not start")
    return int(line.split()[-1])


class Bench:
    def __init__(self, arguments, folder):
        self.load_program = program(arguments.build, "front-load")
        self.hello_program = program(arguments.build, "front-hello")
        self.serve_program = os.path.join(arguments.build, "hb-serve")
        self.folder, self.seconds = folder, arguments.seconds or 4
        self.rounds, self.preferred, self.rate = arguments.rounds, arguments.preferred, arguments.rate
        self.server_cpus, self.load_cpus, self.many = arguments.server_cpus, arguments.load_cpus, arguments.many
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
        with subprocess.Popen([self.serve_program, "--models", models, "--http", "0", "--grpc", "0",
                               "--gpu", "none", "--threads", str(threads), "--connections-per-client", "16384"],
                              stdout=subprocess.PIPE, text=True, preexec_fn=start) as process:
            try:
                yield process.pid, port_of(process, process.stdout.readline())
            finally:
                process.terminate()

    @contextlib.contextmanager
    def hello(self, threads=2, start=None):
        with subprocess.Popen([self.hello_program, str(threads)], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, text=True, preexec_fn=start) as process:
            try:
                yield process.pid, port_of(process, process.stdout.readline())
            finally:
                process.kill()

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

    def load(self, server, *arguments, seconds=None, start=None):
        pid, port = server
        seconds = seconds or self.seconds
        before, waited, stolen = family_seconds(pid), waited_seconds(pid), stolen_seconds()
        done = subprocess.run([self.load_program, "--port", str(port), "--seconds", str(seconds), *map(str, arguments)],
                              stdout=subprocess.PIPE, check=True, text=True, preexec_fn=start, timeout=seconds + GRACE_S)
        found = json.loads(done.stdout)
        found["server_waited_ms"] = round(1e3 * (waited_seconds(pid) - waited), 1)
        found["stolen_ms"] = round(1e3 * (stolen_seconds() - stolen), 1)
        self.failed |= found["not_200"] > 0 or found["unanswered"] > 0 or found["answered"] == 0
        found["server_cpu_us"] = round(1e6 * (family_seconds(pid) - before) / max(found["answered"], 1), 2)
        found["per_core"] = round(1e6 / max(found["server_cpu_us"], 0.01))
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

    def on_cpus(self, what):
        """The server, or its peer, with a thread for each of its processors."""
        start = {OURS: self.server, PEER: self.hello}[what]
        return start(len(self.server_cpus), on_processors(self.server_cpus, self.preferred))

    def load_on_cpus(self, server, connections, *arguments, seconds=None):
        return self.load(server, *self.json, "--connections", connections, "--threads", len(self.load_cpus), *arguments,
                         seconds=seconds, start=on_processors(self.load_cpus, self.preferred))

    def at_rate(self):
        """Measures both in turns, so that a disturbance affects both."""
        rounds = {OURS: [], PEER: []}
        for _ in range(self.rounds):
            for what, of in rounds.items():
                with self.on_cpus(what) as server:
                    of.append(self.load_on_cpus(server, 256, "--rate", self.rate))
                latency = of[-1]["latency_us"]
                print(f"round: {what}: {of[-1]['per_second']:.0f}/s, p50 {latency['p50']}, p99 {latency['p99']} us", file=sys.stderr)
        return {f"{what}, open loop at {self.rate:,.0f}/s, the round with the median p99 of {self.rounds}":
                sorted(of, key=lambda one: one["latency_us"]["p99"])[self.rounds // 2] for what, of in rounds.items()}

    def half(self):
        if self.rate:
            return self.at_rate()
        rounds = []
        for _ in range(self.rounds):
            with self.on_cpus(OURS) as server:
                whole = self.load_on_cpus(server, 64)
                half = self.load_on_cpus(server, 256, "--rate", whole["per_second"] / 2)
            rounds.append((half["server_waited_ms"] + half["load_waited_ms"] + half["stolen_ms"], whole, half))
            print(f"round: open loop at {half['per_second']:.0f}/s: p50 {half['latency_us']['p50']}, p99 "
                  f"{half['latency_us']['p99']} us, others had {rounds[-1][0]:.0f} ms of {1e3 * half['seconds']:.0f}", file=sys.stderr)
        others_ms, whole, half = min(rounds, key=lambda one: one[0])
        half["others_share"] = round(others_ms / 1e3 / half["seconds"], 4)
        return {f"infer, JSON, 64 connections, server on {len(self.server_cpus)} processors": whole,
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

    # ---- targets ----

    def quiet_loads(self, what, half_of, seconds):
        """Measures a closed loop, half of its rate (or of half_of), and the promised rate, one after another."""
        with self.on_cpus(what) as server:
            self.load_on_cpus(server, QUIET_CONNECTIONS, seconds=0.3 * seconds)  # not counted
            whole = self.load_on_cpus(server, QUIET_CONNECTIONS, seconds=seconds)
            half_of = half_of or whole["per_second"]
            return {"whole": whole,
                    "half": self.load_on_cpus(server, QUIET_CONNECTIONS, "--rate", half_of / 2, seconds=1.5 * seconds),
                    "rate": self.load_on_cpus(server, QUIET_CONNECTIONS, "--rate", QUIET_RATE, seconds=1.5 * seconds)}

    def quiet_many(self, what, seconds):
        with self.on_cpus(what) as server:
            return {"whole": self.load_on_cpus(server, self.many, seconds=2 * seconds),
                    "rate": self.load_on_cpus(server, self.many, "--rate", QUIET_RATE, seconds=2 * seconds)}

    def quiet(self, seconds):
        """The peer gets the same rates as the server in each round."""
        found = {"rounds": [], "many": {}}
        for _ in range(self.rounds):
            ours = self.quiet_loads(OURS, None, seconds)
            found["rounds"].append({OURS: ours, PEER: self.quiet_loads(PEER, ours["whole"]["per_second"], seconds)})
            for what, of in found["rounds"][-1].items():
                print(f"round: {what}: {of['whole']['per_second']:,.0f}/s; p99 {of['half']['latency_us']['p99']} us at "
                      f"{of['half']['per_second']:,.0f}/s, {of['rate']['latency_us']['p99']} us at {of['rate']['per_second']:,.0f}/s",
                      file=sys.stderr, flush=True)
        try:
            found["many"] = {what: self.quiet_many(what, seconds) for what in (OURS, PEER)}
        except (subprocess.SubprocessError, RuntimeError) as error:  # earlier rounds are still written
            print(f"front.py: {self.many} connections: {error}", file=sys.stderr)
            self.failed = True
        return found


def p99_ms(one):
    return one["latency_us"]["p99"] / 1e3


def all_answered(found):
    return found["not_200"] == 0 and found["unanswered"] == 0


def quiet_rows(found, about):
    """Rows as in bench/results: one for each target, with all its rounds."""
    def row(what, which, of, unit, target, met, digits):
        ours, peers = ([round(of(one[side][which]), digits) for one in found["rounds"]] for side in (OURS, PEER))
        middle = statistics.median(ours)
        return {"what": what, "measured": round(middle, digits), "baseline": round(statistics.median(peers), digits), "unit": unit,
                "target": target, "met": bool(met(middle)), "rounds": ours, "baseline_rounds": peers, **about}

    within = [row(f"p99 of HTTP infer requests, null model, open loop at {which_text}", which, p99_ms, "ms", "<= 1 ms",
                  lambda middle: middle <= 1, 3)
              for which, which_text in (("half", "half of what was reached"), ("rate", f"{QUIET_RATE:,}/s"))]
    rows = [row("HTTP infer requests a second, null model", "whole", lambda one: one["per_second"], "requests/s", ">= 60000",
                lambda middle: middle >= 60000, 0)] + within + [
            row("the server's processor time a request, null model", "whole", lambda one: one["server_cpu_us"], "us",
                "<= 33.3 us (60000 on 2 cores)", lambda middle: middle <= 33.3, 2)]
    if found["many"]:
        many, peer = found["many"][OURS], found["many"][PEER]
        rows.append({"what": f"HTTP infer requests a second over {many['whole']['connections']:,} connections, null model",
                     "measured": many["whole"]["per_second"], "baseline": peer["whole"]["per_second"], "unit": "requests/s",
                     "target": "all answered with 200", "met": all_answered(many["whole"]) and all_answered(many["rate"]),
                     "p99_ms_at_rate": round(p99_ms(many["rate"]), 3), "baseline_p99_ms_at_rate": round(p99_ms(peer["rate"]), 3),
                     "rate": QUIET_RATE, "server_mib": many["whole"]["server_mib"], **about})
    return rows


def commit_here():
    done = subprocess.run(["git", "-C", os.path.dirname(os.path.abspath(__file__)), "rev-parse", "--short", "HEAD"],
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False) if shutil.which("git") else None
    return done.stdout.strip() if done else ""


def about_run(arguments):
    command = f"bench/front.py --part quiet --server-cpus {','.join(map(str, arguments.server_cpus))} " \
              f"--load-cpus {','.join(map(str, arguments.load_cpus))} --rounds {arguments.rounds} --seconds {arguments.seconds or 1:g}"
    about = {"command": command, "machine": f"{processor_time.describe()}; the server on {len(arguments.server_cpus)} processors of "
                                            f"{processor_time.cores(arguments.server_cpus)} cores"}
    commit = arguments.commit or commit_here()
    return {**about, "commit": commit} if commit else about


def give_up(_, __):
    raise TimeoutError(f"given up after {QUIET_LIMIT_S} s")


def run_quiet(bench, arguments):
    signal.signal(signal.SIGALRM, give_up)
    signal.alarm(QUIET_LIMIT_S)
    found = bench.quiet(arguments.seconds or 1)
    signal.alarm(0)
    rows = quiet_rows(found, about_run(arguments))
    for row in rows:
        print(f"{row['what']}: {row['measured']:,} {row['unit']} (peer {row['baseline']:,}), wanted {row['target']}: "
              f"{'met' if row['met'] else 'MISSED'}", file=sys.stderr)
    if arguments.results:
        with open(arguments.results, "w", encoding="utf-8") as file:
            file.write("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")
    return found


def markdown(found):
    lines = ["| what | requests/s here | server's CPU a request | = requests/s a core | p50, p99 | memory |", "|---|---|---|---|---|---|"]
    for what, one in found.items():
        tenth = f" ({one['server_mib_at_a_tenth']} at a tenth)" if "server_mib_at_a_tenth" in one else ""
        lines.append(f"| {what} | {one['per_second']:,.0f} | {one['server_cpu_us']} us | {one['per_core']:,} | "
                     f"{one['latency_us']['p50'] / 1000:.2f}, {one['latency_us']['p99'] / 1000:.2f} ms | "
                     f"{one['server_mib']} MiB{tenth} |")
    return "\n".join(lines)


def cpu_list(text):
    try:
        numbers = processor_time.parse_list(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f'"{text}" is no list of processors, as in 0,2-3') from None
    if not set(numbers) <= os.sched_getaffinity(0):
        raise argparse.ArgumentTypeError(f"{text}: this process may use {sorted(os.sched_getaffinity(0))}")
    return numbers


def choose_cpus(arguments, quiet):
    """Divides the processors: two cores for the server and up to four more for the load where there are as many, else one
    each."""
    free = [number for number in processor_time.by_core() if number not in (arguments.server_cpus or []) + (arguments.load_cpus or [])]
    two = 2 if quiet and len(free) > 2 else 1
    arguments.server_cpus = arguments.server_cpus or free[:two]
    free = [number for number in free if number not in arguments.server_cpus]
    arguments.load_cpus = arguments.load_cpus or free[:4 if quiet else 1] or arguments.server_cpus


def main():
    parts = ("small", "half", "connections", "requests")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True)
    parser.add_argument("--part", action="append", choices=parts + ("quiet",))
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--preferred", action="store_true")
    parser.add_argument("--rate", type=float)
    parser.add_argument("--server-cpus", type=cpu_list)
    parser.add_argument("--load-cpus", type=cpu_list)
    parser.add_argument("--many", type=int, default=10000)
    parser.add_argument("--json")
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--results")
    parser.add_argument("--commit", default="")
    arguments = parser.parse_args()
    chosen = arguments.part or parts
    if "quiet" in chosen and (len(chosen) > 1 or arguments.markdown):
        parser.error("--part quiet is alone, and has rows (--results) of its own")
    choose_cpus(arguments, "quiet" in chosen)
    raise_descriptors()
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(arguments, folder)
        for part in chosen:
            found.update(run_quiet(bench, arguments) if part == "quiet" else getattr(bench, part)())
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(found, file, indent=2)
    if not arguments.results:
        print(markdown(found) if arguments.markdown else json.dumps(found, indent=2))
    return bench.failed


if __name__ == "__main__":
    sys.exit(main())

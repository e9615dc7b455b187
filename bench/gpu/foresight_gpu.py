#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures foresight on a real GPU: the table of bench/results/GPU/foresight.json.

  bench/gpu/foresight_gpu.py --build build --out DIR [--part api,resident,http] [--rounds 3] [--window 4]

  api       a 20 us kernel beside LLM training, with and without a hint 0.3 ms ahead; and natively what keeps the GPU between
            two pieces of work (about 70 s)
  resident  what keeps a channel group resident: raw values only (about 40 s)
  http      an unmodified aiohttp server, 60 requests/s, beside resnet50 and LLM training, hints from its sockets alone

Windows are measured in turns, as in temporal.py, whose harness this uses.
Writes DIR/foresight-PART.json. Needs PyTorch, timm, transformers and aiohttp.
"""
import bisect
import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.request

from temporal import Windows, make_parser, quantile, run_parts

HERE = os.path.dirname(os.path.abspath(__file__))
LLM, RESNET = "llama8_train_b4", "resnet50_train_b128"
VARIANTS = ("none", "one", "two", "two-in-its-stream", "two-streams", "one+event", "one+kernel-behind-event", "one+write",
            "one+memset", "one+copy", "stream-wait+kernel", "graph", "graph-of-three")


def summary(values):
    return {"n": len(values), "p50_us": quantile(values, 0.5), "p90_us": quantile(values, 0.9),
            "p99_us": quantile(values, 0.99)}


def measure_kept(bench, turns):
    """A kernel some time after the end of other work, by hand: with holds behind that work, and without."""
    for gap in ("20", "50", "150", "600"):
        for variant in ("after", "after-one", "after-two"):
            label = "%s, %s us later" % (variant, gap)
            turns.measure(label, ["llm"], micro=("native", [variant, "kernel", str(bench.args.trials // 6), gap, "0"], (), None,
                                                 "hold-micro"))
            first = turns.moments[label][-1]["first"]
            bench.raw.setdefault("kept", {})[label] = dict(summary(turns.latencies[label]), work_before_us=quantile(first, 0.5) / 1e3,
                                                           work_before_p90_us=quantile(first, 0.9) / 1e3)
            print("%-28s %s" % (label, bench.raw["kept"][label]), flush=True)


def part_api(bench):
    """A 20 us HP kernel beside LLM training."""
    turns = Windows(bench)
    bench.torch("llm", "low", "train", LLM)
    bench.wait_ready(["llm"])
    trials = str(bench.args.trials)
    plain, hinted = ["kernel", "20", "264", trials], ["hinted", "20", "264", trials, "300"]
    for _ in range(bench.args.rounds):
        turns.measure("alone", [], micro=("high", plain))
        turns.measure("beside", ["llm"], micro=("high", plain))
        turns.measure("hinted", ["llm"], micro=("high", hinted))
    measure_kept(bench, turns)
    bench.stop()
    for share, name, most in ((0.5, "p50", 6), (0.99, "p99", 15)):
        added = turns.p("hinted", share) - turns.p("alone", share)
        bench.row("20 us HP kernel, API hint 0.3 ms ahead, beside LLM training, added %s" % name, round(added, 1),
                  round(turns.p("beside", share) - turns.p("alone", share), 1), "us", "<= %d us" % most, added <= most)
    kept = turns.low_mean("hinted", "llm") / turns.low_mean("beside", "llm")
    bench.row("LP LLM training beside it, of without hints", round(100 * kept, 2), 100, "%", ">= 97 %", kept >= 0.97)
    bench.raw["summary"] = {label: summary(values) for label, values in turns.latencies.items()}
    bench.raw["latency_us"] = turns.latencies


def part_resident(bench):
    """What has to be queued for a group to stay on the GPU while it is held; natively, for our own holds not to mix in."""
    turns = Windows(bench)
    bench.torch("llm", "low", "train", LLM)
    bench.wait_ready(["llm"])

    def measure(variant, work, late):
        label = " ".join((variant, work, late))
        turns.measure(label, ["llm"], micro=("native", [variant, work, str(bench.args.trials // 4), "400", late], (), None, "hold-micro"))
        print("%-36s %s" % (label, summary(turns.latencies[label])), flush=True)

    for variant in VARIANTS:
        measure(variant, "kernel", "0")
    for work in ("copy+kernel", "graph", "copy+graph", "chain"):
        for variant, late in (("none", "0"), ("two", "0"), ("two", "300")):
            measure(variant, work, late)
    for work in ("100k", "200k", "227k"):
        for variant, late in (("none", "0"), ("two", "300"), ("two-most-shared", "300")):
            measure(variant, work, late)
    bench.stop()
    bench.raw["resident"] = {label: summary(values) for label, values in turns.latencies.items()}


class Clocks:
    """The SM clock while windows run. LP's power draw lowers it for HP too, which no scheduler can hide."""

    def __init__(self):
        self.seen = []
        self.process = subprocess.Popen(["nvidia-smi", "--query-gpu=clocks.sm,power.draw", "--format=csv,noheader,nounits",
                                         "-lms", "50"], stdout=subprocess.PIPE, text=True)
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            try:
                self.seen.append((time.monotonic(), *(float(word) for word in line.split(","))))
            except ValueError: # a GPU that does not tell
                pass

    def stop(self):
        self.process.terminate()
        self.process.wait()

    def of_each(self, moments):
        """Of each moment the reading next to it."""
        times = [at for at, _, _ in self.seen]
        found = []
        for moment in moments:
            i = bisect.bisect(times, moment)
            near = [j for j in (i - 1, i) if 0 <= j < len(times)]
            found.append(self.seen[min(near, key=lambda j: abs(times[j] - moment))][1] if near else 0)
        return found

    def mean_mhz(self, windows):
        inside = [mhz for at, mhz, _ in self.seen if any(begun + 0.3 <= at <= ended for begun, ended, _ in windows)]
        return sum(inside) / len(inside) if inside else 0.0


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    def __init__(self, bench, name, extra):
        self.bench, self.name, self.port = bench, name, free_port()
        bench.spawn(name, "high", [sys.executable, os.path.join(HERE, "http_server.py"), "--port", str(self.port),
                                   "--ready", bench.path(name, ".ready")], extra)

    def load(self, *extra):
        command = [sys.executable, os.path.join(HERE, "..", "http_load.py"), "--port", str(self.port),
                   "--seconds", str(self.bench.args.window), *extra]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        if done.returncode:
            raise RuntimeError("http_load.py: " + done.stderr[-800:])
        return json.loads(done.stdout)

    def times(self):
        with urllib.request.urlopen("http://127.0.0.1:%d/times" % self.port, timeout=10) as answer:
            return json.loads(answer.read())

    def counters(self):
        """Of its process, as `hb status` shows them; empty where it does not."""
        try:
            tenants = json.loads(self.bench.status()).get("tenants", [])
        except ValueError:
            return {}
        found = [tenant for tenant in tenants if str(self.port) in json.dumps(tenant)]
        return found[0] if found else {}


def measure_http(turns, server, label, low, *extra):
    bench = turns.bench
    bench.resume(*low)
    # A training that goes on after a pause draws more power than it may; the clock falls by a fifth, and is steady after a second.
    time.sleep(1.2 if low else 0.1)
    server.times()
    answer = server.load(*extra)
    told = server.times()
    measured = [us for us, _ in told]
    bench.raw.setdefault("launched_s", {}).setdefault(label, []).extend(round(at, 5) for _, at in told)
    bench.pause(*low)
    time.sleep(0.15)
    turns.windows.setdefault(label, []).append((answer["begun"], answer["ended"], list(low)))
    turns.latencies.setdefault(label, []).extend(measured)
    bench.raw.setdefault("client_us", {}).setdefault(label, []).extend(answer["latency_us"])


def rows_http(bench, turns, model, short):
    alone, hinted, none = "alone", "hinted beside " + short, "none beside " + short
    p50, p99 = (turns.p(hinted, share) for share in (0.5, 0.99))
    alone50, alone99 = turns.p(alone, 0.5), turns.p(alone, 0.99)
    name = "HTTP resnet50 b1 graph 60/s, hints from sockets, beside " + model
    bench.row(name + ", server-side p50", round(p50, 1), round(turns.p(none, 0.5), 1), "us", "<= alone + 15 us (%.0f)" % (
        alone50 + 15), p50 <= alone50 + 15)
    bench.row(name + ", server-side p99", round(p99, 1), round(turns.p(none, 0.99), 1), "us",
              "<= alone x 1.05 (%.0f)" % (alone99 * 1.05), p99 <= alone99 * 1.05)
    values = turns.latencies[hinted]
    # What of them is not the clock: the others' p99 cannot be below that of those that found the GPU switched.
    switched = sorted(value for value in values if value <= alone50 + 95)
    bench.raw["p99_us of those that found it switched, beside " + short] = quantile(switched, 0.99) if switched else None
    # A request that did not find the GPU switched waits for most of a switch (190 us).
    found = sum(value <= alone50 + 95 for value in values) / len(values)
    bench.row(name + ", found the GPU switched", round(100 * found, 1), 100, "%", ">= 95 %", found >= 0.95)
    met, met_alone = (sum(value <= alone99 for value in turns.latencies[label]) / len(turns.latencies[label])
                      for label in (hinted, alone))
    bench.row(name + ", attainment of the p99 alone", round(100 * met, 2), round(100 * met_alone, 2), "%",
              "alone - 0.5 points", met >= met_alone - 0.005)
    kept = turns.low_mean(hinted, short) / turns.low_mean(none, short)
    bench.row("LP %s beside it, of without hints" % model, round(100 * kept, 2), 100, "%", ">= 97 %", kept >= 0.97)


def part_http(bench):
    """An unmodified HTTP server: hints from its sockets alone."""
    turns = Windows(bench)
    models = {"llm": LLM, "resnet": RESNET}
    for short, model in models.items():
        bench.torch(short, "low", "train", model)
    clocks = Clocks()
    hinted, plain = Server(bench, "hinted", ()), Server(bench, "plain", ("--no-signs",))
    bench.wait_ready(["hinted", "plain", *models])
    for short in models:  # learns
        measure_http(turns, hinted, "learning " + short, [short])
    for _ in range(bench.args.rounds):
        measure_http(turns, hinted, "alone", [])
        for short in models:
            measure_http(turns, plain, "none beside " + short, [short])
            time.sleep(1.5)  # until the daemon no longer counts the other server as at work
            measure_http(turns, hinted, "hinted beside " + short, [short])
            time.sleep(1.5)
        measure_http(turns, hinted, "alone again", [])  # what alone differs from itself
    measure_http(turns, hinted, "quiet", ["llm"], "--rate", "1")
    time.sleep(1.5)
    measure_http(turns, hinted, "hostile", ["llm"], "--hostile", "--rate", "10000")
    clocks.stop()
    bench.raw["clock_of_each_mhz"] = {label: clocks.of_each(moments) for label, moments in bench.raw["launched_s"].items()}
    bench.raw["clocks_mhz"] = {label: round(clocks.mean_mhz(windows), 1) for label, windows in turns.windows.items()}
    bench.raw["status"] = bench.status()
    bench.raw["counters"] = hinted.counters()
    bench.terminate("hinted", "plain")
    bench.stop()
    for short, model in models.items():
        rows_http(bench, turns, model, short)
    alone99 = turns.p("alone", 0.99)
    again = turns.latencies["alone again"]
    bench.raw["alone again"] = dict(summary(again), attainment=sum(value <= alone99 for value in again) / len(again))
    lost = 1 - turns.low_mean("hostile", "llm") / turns.low_mean("quiet", "llm")
    bench.row("LP %s beside 10,000 bytes/s that lead to nothing, lost" % LLM, round(100 * lost, 2), 0, "%", "<= 2 %",
              lost <= 0.02)
    bench.raw["summary"] = {label: summary(values) for label, values in turns.latencies.items() if values}
    bench.raw["latency_us"] = turns.latencies


PARTS = {"api": part_api, "resident": part_resident, "http": part_http}


if __name__ == "__main__":
    sys.exit(run_parts("foresight", PARTS, make_parser(PARTS).parse_args()))

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the spatial engine on a real GPU: parts of bench/results/GPU/spatial.json. The table of all ways of sharing is
made by spatial_paired.py, which stands hosts whose CPU changes its speed.

  bench/gpu/spatial.py --build build --out DIR [--part ours,rules,quick,why,strip,close] [--rounds 1] [--window 3]

  ours     spatial, temporal, and the gate alone (closed while a request is served, as REEF does), and LP alone
  rules    settings of the spatial engine side by side, at high rates: raw values only
  quick    the spatial engine alone, a minute: raw values only
  why      where its costs come from, 70 s: raw values only
  strip    a small HP kernel beside persistent LP kernels of 1 ms
  close    from a request's begin, which closes LP's gate, to the last LP block leaving; resnet50 training; some 25 s

Eager resnet50_b1 at 60/s and 220/s and LLM decode at 60/s and 130/s, beside
resnet50 training and LLM training. Windows are measured in turns, as in
temporal.py, whose harness this uses. Every HP program runs on one core (both threads
of it), everybody else on the rest: what a neighbour on the same core costs is not the subject.
The SLO is the p99 alone, outside MPS. Needs PyTorch, timm and transformers.
"""
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

import cpus
from temporal import Windows, make_parser, quantile, run_parts

SERVICES = "resnet50_b1,llama8_decode_b8"
LOADS = (("resnet50_b1", 220), ("resnet50_b1", 60), ("llama8_decode_b8", 130), ("llama8_decode_b8", 60))
TRAINING = {"resnet": "resnet50_train_b128", "llama": "llama8_train_b4"}
# LP of alone that is to be reached, by the HP's rate.
LOW_TARGETS = {("resnet", True): 0.80, ("llama", True): 0.75, ("resnet", False): 0.92, ("llama", False): 0.90}
# Settings of the spatial engine; what is not named is the default.
RULES = {
    "spatial": {},
    "harm 10 %": {"harm_percent": 10},
    "fixed 112 SMs": {"low_sms": 112},
    "fixed 100 SMs": {"low_sms": 100},
    "fixed 88 SMs": {"low_sms": 88},
    "window 1 ms": {"window": "1ms"},
    "gate": {"harm_percent": 0, "window": "300us"},
}

# Counters of a tenant that say what the engine did.
COUNTS = ("kernels", "masked", "spatial_waits", "spatial_wait", "spatial_wait_ns", "spatial_unbounded", "requests", "streams_moved", "graphs")

CORES = []

# In the table itself. `gate`: LP waits while a request is served, as REEF does with what it can stop.
SIDE_BY_SIDE = ("spatial", "fixed 100 SMs", "gate")


def cores():
    """The CPUs of the core that is HP's, the one to use first, and all others."""
    if not CORES:
        every = sorted(os.sched_getaffinity(0))
        own = cpus.find_core(every)
        CORES.extend([own, [cpu for cpu in every if cpu not in own] or every])
    return CORES


def elsewhere():
    """Before a command: not on the core that is HP's."""
    return ["taskset", "-c", ",".join(map(str, cores()[1]))]


class Hummingbird:
    """A daemon of its own, so that two engines can be measured in turns."""

    def __init__(self, bench, name, settings):
        self.bench, self.name = bench, name
        self.folder = os.path.join(bench.dir, name)
        self.path = os.path.join(self.folder, "hummingbird.yaml")
        os.mkdir(self.folder, 0o700)
        self.fixed = settings
        self.env = dict(bench.env, HB_SOCKET=os.path.join(self.folder, "hbd.sock"))
        self.write({})
        hbd = os.path.join(os.path.abspath(bench.args.build), "src/daemon/hbd")
        log = open(os.path.join(bench.dir, name + ".log"), "w")
        self.process = subprocess.Popen(elsewhere() + [hbd, "--foreground", "--config", self.path, "--socket",
                                                       self.env["HB_SOCKET"]], env=self.env, stderr=log, stdout=log)
        self.wait_until_up()

    def wait_until_up(self):
        """A signal that comes before the daemon heeds it would end it, and `hb run` start another one in its place."""
        end = time.monotonic() + 20
        while self.status().get("daemon", {}).get("pid") != self.process.pid:
            if self.process.poll() is not None or time.monotonic() > end:
                self.stop()
                raise RuntimeError("no daemon at %s: %s" % (self.env["HB_SOCKET"], self.status()))
            time.sleep(0.05)

    def demand_engine(self, engine):
        """Programs share the GPU by this engine, or nothing is measured."""
        status = self.status()
        found = [gpu["engine"] for gpu in status.get("gpus", [])]
        if status.get("daemon", {}).get("pid") != self.process.pid or set(found) != {engine}:
            raise RuntimeError("%s: the GPU is shared by %s, not %s" % (self.name, found, engine))

    def write(self, settings):
        with open(self.path, "w") as file:
            file.write("".join("%s: %s\n" % pair for pair in dict(self.fixed, **settings).items()))

    def set(self, settings):
        self.write(settings)
        self.process.send_signal(signal.SIGHUP)
        time.sleep(0.05)

    def status(self):
        """What the daemon says; {"error": why} where it says nothing, for no measurement is to end by that."""
        try:
            done = subprocess.run([self.bench.hb, "status", "--json"], env=self.env, capture_output=True, text=True,
                                  timeout=20)
            return json.loads(done.stdout) if done.returncode == 0 else {"error": done.stderr}
        except (subprocess.TimeoutExpired, ValueError) as error:
            return {"error": str(error)}

    def tell(self, when):
        """What the engine did so far, in words: which mechanisms are in force and what each tenant counted."""
        for tenant in self.status().get("tenants", []):
            masks = [one for gpu in tenant.get("gpus", []) for one in gpu.get("mechanisms", [])
                     if one.get("mechanism") == "SM masks"]
            counts = {name: value for name, value in tenant.get("counters", {}).items() if value and name in COUNTS}
            print("  status %s: %s %s masks: %s %s" % (when, tenant.get("priority"), tenant.get("name") or
                                                      tenant.get("command"), masks[0].get("why") if masks else "-",
                                                      counts), flush=True)

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()


class Mps:
    """A server of nobody's but ours; clients may be limited one by one."""

    def __init__(self, bench):
        self.folder = tempfile.mkdtemp(prefix="hb-mps-")
        self.env = dict(bench.env, CUDA_MPS_PIPE_DIRECTORY=self.folder, CUDA_MPS_LOG_DIRECTORY=self.folder)
        subprocess.run(elsewhere() + ["nvidia-cuda-mps-control", "-d"], env=self.env, check=True, timeout=30)

    def limited(self, percent):
        return dict(self.env, CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=str(percent))

    def stop(self):
        subprocess.run(["nvidia-cuda-mps-control"], input="quit\n", text=True, env=self.env, timeout=30, check=False)


@contextlib.contextmanager
def ended_with(bench, *engines):
    """However it ends: the status of the first engine is kept, the programs end, then each of what they ran in."""
    def keep_status():
        if isinstance(engines[0], Hummingbird):
            bench.raw.setdefault("status", engines[0].status())

    with contextlib.ExitStack() as last:
        for engine in reversed(engines):
            last.callback(engine.stop)
        last.callback(bench.stop)
        last.callback(keep_status)
        yield


class Table:
    def __init__(self, bench):
        self.bench = bench
        self.turns = Windows(bench)
        self.own, self.others = cores()
        self.services, self.trainings = [], []
        self.marks = {}
        self.tells_cpus = False

    def start(self, name, how, role, model, env, extra=(), options=()):
        bench = self.bench
        allowed = self.own if role == "serve" else self.others
        if role == "train":
            bench.pause(name)
        program = [sys.executable, os.path.join(os.path.dirname(os.path.abspath(__file__)), "torch_tenant.py"), role,
                   "--model", model, "--dir", bench.dir, "--name", name, *options]
        command = ["taskset", "-c", ",".join(map(str, allowed))] + bench.wrap(how, extra) + program
        bench.spawn(name, "native", command, env=env)

    def service(self, name, how="native", env=None, extra=(), options=(), models=SERVICES):
        self.services.append(name)
        self.start(name, how, "serve", models, env, extra, options)

    def training(self, name, how="native", env=None):
        for short, model in TRAINING.items():
            self.trainings.append("%s-%s" % (short, name))
            self.start(self.trainings[-1], how, "train", model, env)

    def ready(self):
        self.bench.wait_ready(self.services + self.trainings, 240)

    def window(self, mode, service, load, low):
        """One window; `low` None: HP alone."""
        bench, (model, rate) = self.bench, load
        label = "%s|%s@%d|%s" % (mode, model, rate, low or "")
        begun = time.monotonic()
        lows = [low] if low else []
        bench.resume(*lows)
        time.sleep(0.4 if low else 0.05)
        before, used, since = len(bench.lines(service)), cpus.usage(), time.monotonic()
        with open(bench.path(service, ".cmd"), "a") as out:
            out.write("%s %g %g %s\n" % (label.replace(" ", "_"), rate, bench.args.window * (1.5 if rate == 60 else 1),
                                         model))
        while len(bench.lines(service)) == before:
            if time.monotonic() > begun + 8 * bench.args.window + 20:
                raise RuntimeError("%s does not answer in %s" % (service, label))
            time.sleep(0.005)
        used = cpus.busiest(used, cpus.usage(), time.monotonic() - since)
        answer = json.loads(bench.lines(service)[before])
        bench.pause(*lows)
        time.sleep(0.15)
        mark = {"mode": mode, "model": model, "rate": rate, "low": low, "answer": answer, "cpu": used}
        self.marks.setdefault(label, []).append(mark)
        self.tell(mark)

    def tell(self, mark):
        """At once, so that a run that is cut short was not in vain."""
        answer = mark["answer"]
        done = self.bench.train_rate(mark["low"], answer["begun"], answer["ended"]) if mark["low"] else 0
        print("  %-15s %-17s %4d %-13s service p50 %6.0f p95 %6.0f latency p50 %7.0f p99 %7.0f low %6.2f/s" % (
            mark["mode"], mark["model"], mark["rate"], mark["low"] or "", quantile(answer["service_us"], 0.5),
            quantile(answer["service_us"], 0.95), quantile(answer["latency_us"], 0.5),
            quantile(answer["latency_us"], 0.99), done), flush=True)
        if self.tells_cpus:
            print("    " + " ".join("%.2f:%s@%d" % (share, name, cpu) for share, _, name, cpu in mark["cpu"]), flush=True)
        with open(os.path.join(self.bench.args.out, "spatial-windows.jsonl"), "a") as out:
            out.write(json.dumps(dict(mark, low_per_s=done)) + "\n")

    def alone(self, mode, low):
        label = "%s||%s" % (mode, low)
        self.turns.measure(label, [low])
        print("  %-15s %-37s low %6.2f/s" % (mode + " alone", low, self.turns.low_rate(label, low)), flush=True)

    def latencies(self, mode, load, low=None):
        found = []
        for marks in self.marks.values():
            for mark in marks:
                same_low = (mark["low"] or "").split("-")[0] == (low or "")
                if mark["mode"] == mode and (mark["model"], mark["rate"]) == load and same_low:
                    found += mark["answer"]["latency_us"]
        return found

    def summary(self, rates):
        """Everything that was measured, one line a window's label. `rates`: LP alone, natively."""
        lines = []
        for label, marks in self.marks.items():
            latency = [v for mark in marks for v in mark["answer"]["latency_us"]]
            service = [v for mark in marks for v in mark["answer"]["service_us"]]
            first = marks[0]
            line = {"mode": first["mode"], "high": first["model"], "rate": first["rate"], "low": first["low"],
                    "n": len(latency), "p50_us": quantile(latency, 0.5), "p99_us": quantile(latency, 0.99),
                    "service_p50_us": quantile(service, 0.5), "service_p95_us": quantile(service, 0.95)}
            for name, mode in (("attainment", "alone"), ("attainment_inside", "alone inside")):
                slo = self.latencies(mode, (first["model"], first["rate"]))
                if slo:
                    limit = quantile(slo, 0.99)
                    line[name] = sum(v <= limit for v in latency) / len(latency)
            if first["low"]:
                done = [self.bench.train_rate(first["low"], mark["answer"]["begun"], mark["answer"]["ended"])
                        for mark in marks]
                line["low_of_alone"] = sum(done) / len(done) / rates[first["low"].split("-")[0]]
            lines.append(line)
        return lines


def print_lines(lines):
    for line in lines:
        print("%-16s %-18s %4d %-16s p50 %8.0f p99 %8.0f service %6.0f %6.0f att %5.1f %5.1f low %5.1f" % (
            line["mode"], line["high"], line["rate"], line["low"] or "", line["p50_us"], line["p99_us"],
            line["service_p50_us"], line["service_p95_us"], 100 * line.get("attainment", 0),
            100 * line.get("attainment_inside", 0), 100 * line.get("low_of_alone", 0)), flush=True)


def keep(bench, table, rates):
    lines = table.summary(rates)
    bench.raw["lines"] = lines
    bench.raw["low_alone_per_s"] = rates
    bench.raw["windows"] = [{key: mark[key] for key in ("mode", "model", "rate", "low")} |
                            {"latency_us": mark["answer"]["latency_us"]} for marks in table.marks.values()
                            for mark in marks]
    print_lines(lines)
    return lines


def native_alone(table):
    for short in TRAINING:
        table.alone("native", short + "-native")
    for load in LOADS:
        table.window("alone", "hp-native", load, None)


def native_rates(table):
    return {short: table.turns.low_rate("native||%s-native" % short, short + "-native") for short in TRAINING}


def judge(bench, lines, mode, alone):
    """Rows of the table for one of our engines."""
    for line in lines:
        if line["mode"] != mode or not line["low"]:
            continue
        short = line["low"].split("-")[0]
        what = "%s: %s eager at %d/s beside %s" % (mode, line["high"], line["rate"], TRAINING[short])
        solo = alone[(line["high"], line["rate"])]
        bench.row(what + ", attainment of the p99 alone", round(100 * line["attainment"], 2), round(100 * solo, 2), "%",
                  "within 1 point of alone", line["attainment"] >= solo - 0.01)
        target = LOW_TARGETS[(short, line["rate"] > 100)]
        if line["high"].startswith("resnet"):
            bench.row(what + ", LP of alone", round(100 * line["low_of_alone"], 2), 100, "%",
                      ">= %d %%" % (100 * target), line["low_of_alone"] >= target)
        else:
            bench.raw[what + ", LP of alone"] = line["low_of_alone"]


def attainment_alone(lines, mode):
    return {(line["high"], line["rate"]): line["attainment"] for line in lines if line["mode"] == mode and not line["low"]}


def part_ours(bench):
    space, times = Hummingbird(bench, "space", {"engine": "spatial"}), Hummingbird(bench, "time", {"engine": "temporal"})
    table = Table(bench)
    table.tells_cpus = True
    with ended_with(bench, space, times):
        table.service("hp-native")
        table.service("hp-space", "high", space.env, ("--slo", "auto"))
        table.service("hp-time", "high", times.env, ("--slo", "auto"))
        table.training("native")
        table.training("space", "low", space.env)
        table.training("time", "low", times.env)
        table.ready()
        for _ in range(bench.args.rounds):
            native_alone(table)
            for short in TRAINING:
                table.alone("space", short + "-space")
            for load in LOADS:
                space.set(RULES["spatial"])
                table.window("alone inside", "hp-space", load, None)
                for short in TRAINING:
                    table.window("temporal", "hp-time", load, short + "-time")
                for rule in SIDE_BY_SIDE:
                    space.set(RULES[rule])
                    for short in TRAINING:
                        table.window(rule, "hp-space", load, short + "-space")
        space.tell("at the end")
    rates = native_rates(table)
    lines = keep(bench, table, rates)
    for short, model in TRAINING.items():
        ours = table.turns.low_rate("space||%s-space" % short, short + "-space") / rates[short]
        bench.row("spatial: LP alone, %s" % model, round(100 * ours, 2), 100, "%", ">= 97 %", ours >= 0.97)
    judge(bench, lines, "spatial", attainment_alone(lines, "alone inside"))
    compare_with_temporal(bench, lines)


def compare_with_temporal(bench, lines):
    kept = {(line["mode"], line["low"].split("-")[0]): line["low_of_alone"] for line in lines
            if line["low"] and (line["high"], line["rate"]) == LOADS[0]}
    for short, model in TRAINING.items():
        ratio = kept[("spatial", short)] / max(kept[("temporal", short)], 1e-9)
        bench.row("spatial: LP %s beside resnet50_b1 at 220/s, of temporal" % model, round(ratio, 2), 1, "ratio",
                  ">= 1.5", ratio >= 1.5)


def part_rules(bench):
    space = Hummingbird(bench, "space", {"engine": "spatial"})
    table = Table(bench)
    with ended_with(bench, space):
        table.service("hp-native")
        table.service("hp-space", "high", space.env, ("--slo", "auto"))
        table.training("native")
        table.training("space", "low", space.env)
        table.ready()
        bench.raw["status"] = space.status()
        native_alone(table)
        for short in TRAINING:
            table.alone("space", short + "-space")
        for load in LOADS:
            table.window("alone inside", "hp-space", load, None)
            for short in TRAINING:
                for rule, settings in RULES.items():
                    if load[1] == 60 and rule not in ("spatial", "fixed 100 SMs"):
                        continue
                    space.set(settings)
                    table.window(rule, "hp-space", load, short + "-space")
        bench.raw["status after"] = space.status()
    rates = native_rates(table)
    keep(bench, table, rates)
    for short in TRAINING:
        print("alone in the engine", short, table.turns.low_rate("space||%s-space" % short, short + "-space") / rates[short])


def part_quick(bench):
    """The spatial engine alone at the loads that matter most, in about a minute. LP's speed is taken of that in the
    engine while HP is idle."""
    space = Hummingbird(bench, "space", {"engine": "spatial"})
    table = Table(bench)
    with ended_with(bench, space):
        table.service("hp-native")
        table.service("hp-space", "high", space.env, ("--slo", "auto"))
        table.training("space", "low", space.env)
        table.ready()
        high = [load for load in LOADS if load[1] > 100]
        for load in high:
            table.window("alone", "hp-native", load, None)
            table.window("alone inside", "hp-space", load, None)
        time.sleep(1.2)
        for short in TRAINING:
            table.alone("space", short + "-space")
        for rule in ("spatial", "fixed 100 SMs"):
            space.set(RULES[rule])
            for load in high:
                for short in TRAINING:
                    table.window(rule, "hp-space", load, short + "-space")
        space.set(RULES["spatial"])
        for short in TRAINING:
            table.window("spatial", "hp-space", LOADS[1], short + "-space")
    keep(bench, table, {short: table.turns.low_rate("space||%s-space" % short, short + "-space") for short in TRAINING})


def launch_costs(bench, space, mps, shim):
    """What a launch costs in each of the ways to run HP, in ns."""
    for name, how, env in (("native", "native", None), ("MPS", "native", mps.env), ("MPS and shim", "native", shim),
                           ("engine", "high", space.env)):
        costs = bench.run_micro(how, ["launch", "30"], env=env)
        bench.raw["launch costs, " + name] = costs
        print("  launch, %-13s %s" % (name, {kind: (cost["p50_ns"], cost["p99_ns"]) for kind, cost in costs.items()
                                            if isinstance(cost, dict) and "p50_ns" in cost}), flush=True)


def part_why(bench):
    """Where the engine's costs come from: HP alone in each way of running it, LP under fixed masks, both together.
    Raw values only, some 70 s."""
    mps, space = Mps(bench), Hummingbird(bench, "space", {"engine": "spatial"})
    # Our library in a plain server, without a daemon: what it costs to be there at all.
    shim = dict(mps.env, HB_SOCKET=os.path.join(bench.dir, "nobody"),
                LD_LIBRARY_PATH=os.path.join(os.path.abspath(bench.args.build), "src/shim"))
    table = Table(bench)
    table.tells_cpus = True
    load = LOADS[0]
    with ended_with(bench, space, mps):
        table.service("hp-native", models="resnet50_b1")
        table.service("hp-mps", env=mps.env, models="resnet50_b1")
        table.service("hp-shim", env=shim, models="resnet50_b1")
        table.service("hp-space", "high", space.env, ("--slo", "auto"), models="resnet50_b1")
        table.training("space", "low", space.env)
        table.ready()
        space.tell("ready")
        launch_costs(bench, space, mps, shim)
        for _ in range(2):
            for mode, service in (("alone", "hp-native"), ("alone MPS", "hp-mps"), ("alone MPS+shim", "hp-shim"),
                                  ("alone inside", "hp-space")):
                table.window(mode, service, load, None)
        time.sleep(1.2)
        for short in TRAINING:
            table.alone("space", short + "-space")
        for sms in (132, 100, 66): # HP is there, but hardly ever
            space.set({"low_sms": sms})
            for short in TRAINING:
                table.window("at most %d SMs" % sms, "hp-space", ("resnet50_b1", 5), short + "-space")
        space.tell("masked")
        for rule in ("fixed 112 SMs", "fixed 100 SMs", "fixed 88 SMs", "spatial"):
            space.set(RULES[rule])
            for short in TRAINING:
                table.window(rule, "hp-space", load, short + "-space")
        space.tell("at the end")
    keep(bench, table, {short: table.turns.low_rate("space||%s-space" % short, short + "-space") for short in TRAINING})


def part_strip(bench):
    """LP keeps every SM busy with blocks of 1 ms, HP comes now and then with a small kernel."""
    space = Hummingbird(bench, "space", {"engine": "spatial"})
    trials = str(bench.args.trials)
    with ended_with(bench, space):
        def low_run(seconds):
            return bench.spawn("low", "native", bench.wrap("low") + [bench.micro_path, "fill", "1000", "528", seconds],
                               env=space.env, stdout=subprocess.PIPE, text=True)
        alone = bench.run_micro("high", ["kernel", "20", "16", trials], env=space.env)
        free = json.loads(low_run("3").communicate(timeout=60)[0])["per_s"]
        for name, settings in (("reserve of 12 SMs", {"low_sms": 120}), ("reserve of 8 SMs", {"low_sms": 124}),
                               ("no reserve", {"low_sms": 132})):
            space.set(settings)
            low = low_run("8")
            time.sleep(2.0)
            beside = bench.run_micro("high", ["kernel", "20", "16", trials], env=space.env)
            kept = json.loads(low.communicate(timeout=60)[0])["per_s"] / free
            bench.raw[name] = {"latency": beside["latency"], "alone": alone["latency"], "low": kept}
            if "no" in name:
                continue
            for key, most in (("p50_ns", 15), ("p99_ns", 25)):
                added = (beside["latency"][key] - alone["latency"][key]) / 1e3
                bench.row("HP kernel of 16 blocks x 20 us beside LP blocks of 1 ms, %s, added %s" % (name, key[:3]),
                          round(added, 1), round(alone["latency"][key] / 1e3, 1), "us", "<= %d us" % most, added <= most)
            bench.row("LP beside it, %s, of alone" % name, round(100 * kept, 2), 100, "%", ">= 90 %", kept >= 0.90)


def part_close(bench):
    """HP's kernel ends when it has every SM to itself. What that takes longer than alone is what LP's blocks need to leave."""
    space = Hummingbird(bench, "space", {"engine": "spatial"})
    space.set(RULES["gate"])
    table, trials = Table(bench), str(bench.args.trials)
    with ended_with(bench, space):
        table.start("close", "low", "train", TRAINING["resnet"], space.env)
        bench.wait_ready(["close"], 120)
        alone = bench.run_micro("high", ["whole", trials], env=space.env)["latency"]
        bench.resume("close")
        time.sleep(1.5)
        beside = bench.run_micro("high", ["whole", trials], env=space.env)["latency"]
        bench.pause("close")
    took_us = [(value - alone["p50_ns"]) / 1e3 for value in beside["raw_ns"]]
    bench.raw["latency"] = {"alone": alone, "beside": beside}
    for share, most in ((0.5, 30), (0.99, 150)):
        took = quantile(took_us, share)
        bench.row("gate closed to the last LP block leaving, kernels of resnet50 training, p%d" % (100 * share),
                  round(took, 1), round(alone["p50_ns"] / 1e3, 1), "us", "<= %d us" % most, took <= most)


PARTS = {"why": part_why, "quick": part_quick, "ours": part_ours, "rules": part_rules,
         "strip": part_strip, "close": part_close}

if __name__ == "__main__":
    sys.exit(run_parts("spatial", PARTS, make_parser(PARTS).parse_args()))

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures services and trainings that use two GPUs.

  bench/node.py --build build [--only ROW,...] [--rounds 3] [--seconds 4] [--budget 400] [--gang-seconds 600] [--gpu sim]
                [--engines temporal,spatial] [--out FILE]

  data-parallel    a service on the first GPU, a data-parallel training on both
  tensor-parallel  a service on both GPUs, with two all-reduces in every layer, beside that training
  bubbles          a service of two pipeline stages, one on each GPU, beside a training on each
  gangs            programs on both GPUs that start, end and are killed at random, beside a service

Windows with and without low priority take turns. The objective is the 99th percentile of the service alone, native. With
--gpu sim small programs of ours take the place of PyTorch's; times have no meaning then. Prints a table last, and writes it as
JSON to --out after each row. Exit status: 0 every row that ran met its targets, 1 otherwise.
"""
import argparse
import glob
import os
import random
import signal
import statistics
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
from hbbench import core_split, rows, tables  # noqa: E402  pylint: disable=wrong-import-position
from hbbench.process import Failed, Hangs, Limits, Process  # noqa: E402  pylint: disable=wrong-import-position
from hbbench.stage import Stage  # noqa: E402  pylint: disable=wrong-import-position

TENSOR_RATE = 120  # requests/s of about 3 ms
READY_S, ANSWER_S, QUIT_S = 120, 30, 15
WAYS = ["timeslice", "reef", "temporal", "spatial"]
NODE_PROGRAM = ["python3", os.path.join(HERE, "node_program.py")]
LARGE_BATCH = 256  # its steps depend less on the processor
GANGS_MOST = 4
ENGINES = ["temporal", "spatial"]
LOG_LINES = 40  # of the daemon
PROGRESS_S = 30  # a program that does not end its step within this time hangs
KILLED_SHARE = 0.4


class Node:
    """The stage, and the programs of one row."""

    def __init__(self, args, limits):
        self.args, self.simulated, self.limits = args, args.gpu == "sim", limits
        self.stage = Stage(os.path.abspath(os.path.join(args.build, "hb")), self.simulated, None, limits)
        self.programs = []
        self.details = {}  # of the present row: raw values that the table leaves out
        self.seed = 1
        self.gpus = 2 if self.simulated else len(glob.glob("/dev/nvidia[0-9]*"))

    def command(self, *words):
        """The PyTorch program on two GPUs, or what stands for it."""
        if self.simulated:
            return self.training() if words[0] == "data" else self.service()
        return [*NODE_PROGRAM, *map(str, words)]

    def service(self):
        return self.stage.command_of(tables.PROGRAMS["resnet50_b1_graph"])

    def training(self):
        """A training on one GPU."""
        return self.stage.command_of(tables.PROGRAMS["spin_200us" if self.simulated else "resnet50_train_b128"])

    def start(self, name, command, high, way, **more):
        before, environment = self.stage.place(way, high, ())
        program = Process(f"{name} ({way.name})", before + command,
                          self.stage.environment(**environment, NCCL_NVLS_ENABLE="0", **more), self.stage.folder,
                          self.limits, cpus=core_split.choose(high))
        self.programs.append(program)
        return program

    def stop(self, program, end_signal=None):
        self.programs.remove(program)
        program.stop(QUIT_S, end_signal)

    def stop_programs(self):
        while self.programs:
            self.stop(self.programs[-1])

    def serve(self, high, rate):
        """Latencies of one window in ms, ascending."""
        high.send("prepare")
        high.hear("prepared", ANSWER_S)
        self.seed += 1
        high.send(f"serve {self.args.seconds} {'poisson' if rate else 'closed'} {rate or 1} 0 {self.seed}")
        high.hear("served", ANSWER_S + 4 * self.args.seconds)
        high.send("finish")
        return sorted(ns / 1e6 for ns in high.hear("results", ANSWER_S)["latency_ns"])

    def work_beside(self, lows, high=None, rate=0):
        """(steps/s of all these programs, latencies of the service) in one window."""
        for low in lows:
            low.send("work 1")
        self.limits.sleep_until(time.monotonic() + 0.5)
        begin = time.monotonic_ns()
        latency = self.serve(high, rate) if high else self.limits.sleep_until(time.monotonic() + self.args.seconds)
        end, steps = time.monotonic_ns(), 0
        for low in lows:
            low.send("rest")
        for low in lows:
            steps += sum(begin <= at <= end for at in low.hear("rested", ANSWER_S)["ends_ns"])
        return steps / ((end - begin) / 1e9), latency or []

    def close(self):
        self.stop_programs()
        self.stage.close()


def percentile(values, share):
    return values[min(len(values) - 1, int(share * len(values)))] if values else 0.0


class Side:
    """The programs of one way of sharing, and what was measured with them."""

    def __init__(self, node, name, high_command, low_commands):
        self.node, self.way = node, tables.find_way(name)
        self.high = node.start("service", high_command, True, self.way)
        self.lows = [node.start("training", command, False, self.way, **more) for command, more in low_commands]
        self.alone, self.beside, self.low_speeds, self.low_alone = [], [], [], []

    def await_ready(self):
        """Waits until the programs are ready."""
        for program in [self.high, *self.lows]:
            program.hear("ready", READY_S)

    def apply_settings(self):
        if self.way.engine:
            self.node.stage.daemon_of(self.way).set(self.way.settings)

    def warm_up(self, rate):
        """Two windows that do not count, in which the engines learn the service."""
        self.apply_settings()
        self.node.serve(self.high, rate)
        self.node.work_beside(self.lows, self.high, rate)

    def measure(self, rate):
        """A window of the service alone, one of low priority alone, and one of both."""
        self.apply_settings()
        self.alone += self.node.serve(self.high, rate)
        self.low_alone.append(self.node.work_beside(self.lows)[0])
        speed, latency = self.node.work_beside(self.lows, self.high, rate)
        self.beside += latency
        self.low_speeds.append(speed)

    def stop(self):
        for program in [*self.lows, self.high]:
            self.node.stop(program)


def on_each_side(sides, failures, action):
    """Does this with each way of sharing. A way that fails is left out from then on."""
    for side in list(sides):
        try:
            action(side)
        except Hangs:
            raise
        except Failed as error:
            failures[side.way.name] = str(error)
            sides.remove(side)
            side.stop()


def measure_ways(node, high_command, low_commands, rate, ways):
    """A cell for each way of sharing, and why others failed. The programs of all ways exist from the beginning, and the ways take
    turns. The first way is native; the others are compared with it."""
    failures = {}
    sides = [Side(node, name, high_command, low_commands) for name in ways]
    on_each_side(sides, failures, Side.await_ready)
    on_each_side(sides, failures, lambda side: side.warm_up(rate))
    for _ in range(node.args.rounds):
        on_each_side(sides, failures, lambda side: side.measure(rate))
    if not sides or sides[0].way.name != ways[0]:
        raise Failed(f"{ways[0]}: {failures[ways[0]]}")
    node.stop_programs()
    return describe_sides(node, sides), failures


def describe_sides(node, sides):
    seconds = node.args.rounds * node.args.seconds
    for side in sides:
        side.alone.sort()
        side.beside.sort()
    slo, low_alone = percentile(sides[0].alone, 0.99), statistics.mean(sides[0].low_alone)
    return [{"way": side.way.name, "rate": round(len(side.beside) / seconds, 1), "slo_ms": round(slo, 3),
             "alone_p50_ms": round(percentile(side.alone, 0.5), 3), "alone_p99_ms": round(percentile(side.alone, 0.99), 3),
             "p50_ms": round(percentile(side.beside, 0.5), 3), "p99_ms": round(percentile(side.beside, 0.99), 3),
             "alone_in_slo": round(attainment(side.alone, slo), 2), "in_slo": round(attainment(side.beside, slo), 2),
             "requests": len(side.beside), "low_per_s": [round(speed, 2) for speed in side.low_speeds],
             "low_alone_per_s": [round(speed, 2) for speed in side.low_alone],
             "low": round(100 * statistics.mean(side.low_speeds) / low_alone, 1) if low_alone else 0.0}
            for side in sides]


def attainment(latency, slo):
    return 100 * sum(value <= slo for value in latency) / len(latency) if latency else 0.0


def describe(node, cells, failures):
    """A row's result as text, and whether each way worked. The raw values go into the file."""
    node.details["cells"] = cells
    text = "; ".join(f"{c['way']}: {c['rate']}/s, p50 {c['p50_ms']} (alone {c['alone_p50_ms']}), p99 {c['p99_ms']} "
                     f"({c['alone_p99_ms']}) ms, in SLO {c['in_slo']} ({c['alone_in_slo']}) %, LP {c['low']} %" for c in cells)
    return text + "".join(f"; {name} failed: {why}" for name, why in failures.items()), not failures


def of(cells, *names):
    return [cell for cell in cells if cell["way"] in names]


def measure_data_parallel(node):
    """A service on the first GPU beside a data-parallel training on both."""
    training = node.command("data", "--batch", LARGE_BATCH)
    cells, failures = measure_ways(node, node.service(), [(training, {})], 60, ["timeslice", "temporal", "spatial"])
    return *describe(node, cells, failures), any(c["low"] >= 90 and c["in_slo"] >= c["alone_in_slo"] - 1
                                                 for c in of(cells, "temporal", "spatial"))


def measure_tensor_parallel(node):
    """A tensor-parallel service on both GPUs beside a data-parallel training on both."""
    cells, failures = measure_ways(node, node.command("tensor"), [(node.command("data"), {})], TENSOR_RATE, WAYS)
    reef = max((c["low"] for c in of(cells, "reef")), default=0.0)
    return *describe(node, cells, failures), any(c["low"] >= 1.5 * reef and c["in_slo"] >= c["alone_in_slo"] - 1
                                                 for c in of(cells, "temporal", "spatial"))


def measure_bubbles(node):
    """A service of two pipeline stages, one on each GPU, whose requests follow each other, beside a training on each."""
    lows = [(node.training(), {"CUDA_VISIBLE_DEVICES": str(gpu)}) for gpu in range(2)]
    cells, failures = measure_ways(node, node.command("pipeline"), lows, 0, ["timeslice", "temporal", "spatial"])
    return *describe(node, cells, failures), all(c["p99_ms"] <= 1.05 * c["alone_p99_ms"] and c["low"] > 0
                                                 for c in of(cells, "spatial"))


class Gangs:
    """A service, and programs on both GPUs that come and go."""

    def __init__(self, node, way, rng):
        self.node, self.way, self.rng = node, way, rng
        self.running, self.service = [], None
        self.counts = {"started": 0, "ended": 0, "killed": 0, "hung": 0, "harmed": 0}
        self.events, self.begin, self.latency = [], time.monotonic(), []

    def note(self, text):
        self.events.append(f"{time.monotonic() - self.begin:.1f} s: {text}")

    def harm(self, program):
        """Counts a program that another one's end has ended, with the first errors in its log."""
        self.counts["harmed"] += 1
        with open(program.log, encoding="utf-8", errors="replace") as log:
            errors = [line.strip()[:200] for line in log if "rror" in line or "hb" in line]
        self.note(f"{program.name} {program.pid} was harmed: {errors[:3]}")

    def command(self):
        if self.node.simulated:
            return self.node.command("data")
        if self.node.gpus == 1:
            return self.node.training()
        return self.node.command(*self.rng.choice([("data", "--batch", "32"), ("tensor", "--layers", "8", "--eager"),
                                                   ("pipeline", "--layers", "8")]))

    def start(self):
        """Two at once, because PyTorch takes many seconds to start."""
        programs = []
        for _ in range(2):
            command = self.command()
            programs.append(self.node.start("gang", command, False, self.way))
            self.note(f"gang {programs[-1].pid} starts: {command[2:]}")
        self.counts["started"] += len(programs)
        self.running += programs
        for program in programs:
            program.hear("ready", READY_S)
            program.send("work 1")

    def stop(self):
        program = self.rng.choice(self.running)
        if self.rng.random() < KILLED_SHARE:
            number = self.rng.choice([signal.SIGKILL, signal.SIGTERM])
            self.note(f"gang {program.pid} gets {number.name}")
            self.counts["killed"] += 1
        else:
            number = None
            self.note(f"gang {program.pid} ends")
            program.send("rest")
            program.hear("rested", PROGRESS_S)
            self.counts["ended"] += 1
        self.running.remove(program)
        self.node.stop(program, number)

    def turn(self):
        """One start or stop."""
        try:
            if not self.running or (len(self.running) <= GANGS_MOST - 2 and self.rng.random() < 0.6):
                self.start()
            else:
                self.stop()
        except Hangs as error:
            self.counts["hung"] += 1
            self.note(str(error))
        except Failed as error:  # its process has ended, or is about to
            self.note(str(error))
        self.node.limits.sleep_until(time.monotonic() + 0.2)
        for program in [one for one in self.running if one.child.poll() is not None]:
            self.harm(program)
            self.running.remove(program)

    def start_service(self):
        self.service = self.node.start("service", self.node.service(), True, self.way)
        self.service.hear("ready", READY_S)

    def serve(self, seed):
        """One window of the service with a turn in it. A service that was harmed starts again."""
        args = self.node.args
        try:
            self.service.send("prepare")
            self.service.hear("prepared", ANSWER_S)
            self.service.send(f"serve {args.seconds} poisson 60 0 {seed}")
            self.turn()
            self.service.hear("served", ANSWER_S + 4 * args.seconds)
            self.service.send("finish")
            self.latency += [ns / 1e6 for ns in self.service.hear("results", ANSWER_S)["latency_ns"]]
        except Hangs:
            raise
        except Failed:
            self.harm(self.service)
            self.node.stop(self.service)
            self.start_service()


def soak_engine(node, engine, seconds):
    """Programs on both GPUs start, end and are killed at random beside a service. Returns what happened."""
    gangs = Gangs(node, tables.find_way(engine), random.Random(node.seed))
    gangs.start_service()
    end, windows = time.monotonic() + seconds, 0
    while time.monotonic() < end and node.limits.left(PROGRESS_S) >= PROGRESS_S:
        gangs.serve(node.seed + windows)
        windows += 1
    node.stop_programs()
    with open(node.stage.daemon_of(gangs.way).process.log, encoding="utf-8", errors="replace") as log:
        gangs.events += [line.strip()[:300] for line in log][-LOG_LINES:]
    latency = sorted(gangs.latency)
    return gangs.counts | {"engine": engine, "seconds": round(seconds), "requests": len(latency),
                           "p50_ms": round(percentile(latency, 0.5), 3), "p99_ms": round(percentile(latency, 0.99), 3),
                           "events": gangs.events}


def measure_gangs(node):
    """Programs on both GPUs that start, end and are killed at random, beside a service, in each engine."""
    runs = [soak_engine(node, engine, node.args.gang_seconds / len(node.args.engines)) for engine in node.args.engines]
    text = "; ".join(f"{run['engine']}: {run['started']} programs in {run['seconds']} s, {run['killed']} killed, {run['hung']} hung, "
                     f"{run['harmed']} harmed; service: {run['requests']} requests, p50 {run['p50_ms']}, p99 {run['p99_ms']} ms"
                     for run in runs)
    node.details["runs"] = runs
    return text, all(run["requests"] and not run["hung"] and not run["harmed"] for run in runs), True


ROWS = {
    "data-parallel": (measure_data_parallel, "LP >= 90 % of alone at 60/s, attainment within 1 point"),
    "tensor-parallel": (measure_tensor_parallel, "attainment within 1 point of alone, LP >= 1.5 x REEF's rule"),
    "bubbles": (measure_bubbles, "spatial: p99 <= 1.05 x alone"),
    "gangs": (measure_gangs, "none hung, none harmed"),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--build", default="build")
    parser.add_argument("--gpu", choices=["sim"], help="the simulated driver instead of this machine's GPUs")
    parser.add_argument("--only", help="rows, comma-separated: " + ", ".join(ROWS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4, help="of a window")
    parser.add_argument("--gang-seconds", type=float, default=600, help="of the row `gangs`, both engines together")
    parser.add_argument("--engines", type=lambda text: text.split(","), default=ENGINES, help="of the row `gangs`")
    parser.add_argument("--budget", type=float, default=400, help="seconds after which no row continues")
    parser.add_argument("--out", help="write the rows to this file")
    args = parser.parse_args()
    names = rows.choose(parser, args.only, ROWS)
    if args.rounds < 1 or args.seconds <= 0:
        parser.error("--rounds and --seconds must be positive")
    for engine in args.engines:
        if engine not in ENGINES:
            parser.error(f"--engines: there is no engine {engine!r}; there are {', '.join(ENGINES)}")
    if args.gpu:
        os.environ["HB_SIM_GPUS"] = "2"  # for the daemons as well
    limits = Limits()
    limits.watch_signals()
    limits.end = time.monotonic() + args.budget
    node = Node(args, limits)
    try:
        met = rows.run(node, ROWS, names, args.out)
    finally:
        node.close()
    sys.exit(0 if met else 1)


if __name__ == "__main__":
    main()

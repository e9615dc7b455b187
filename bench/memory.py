#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures elastic memory: what it costs while nothing moves, and whether programs stay correct while memory moves.

  bench/memory.py --build build [--peers] [--tries 5] [--budget 400] [--gpu sim] [--config "mps: false"] [--expandable]
                  [--only NAME,...] [--out FILE]

Runs memory_program.py in places of one daemon with the engine `temporal` and with elastic memory. Prints a table last, and
writes it as JSON to --out after each row. A row that fails or has no time left says so. With --gpu sim it runs over the
simulated driver, with small sizes; times have no meaning then. With --peers memory moves to a second GPU first. Training needs PyTorch; over the simulated driver another
program takes its place. Exit status: 0 every row that ran met its target, 1 otherwise.
"""
import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
from hbbench import rows  # noqa: E402  pylint: disable=wrong-import-position
from hbbench.process import Failed, Limits, Process  # noqa: E402  pylint: disable=wrong-import-position
from hbbench.stage import Stage, answers, find_part  # noqa: E402  pylint: disable=wrong-import-position
from hbbench.tables import PROGRAMS  # noqa: E402  pylint: disable=wrong-import-position

MIB, GIB = 1 << 20, 1 << 30
QUIT_S, ANSWER_S = 20, 120
FILL_CHUNK = 16 * MIB  # leaves less than a step of a return, so that memory stays away
REQUESTS_PER_S = 60
QUARTER = 0.245  # as a share: some memory may have returned when it is counted


class Sizes:
    """Sizes of programs and of the host's pool, in bytes. The simulated GPU is small because its memory is the machine's."""

    def __init__(self, simulated):
        self.pool = 2304 * MIB if simulated else 60 * GIB  # what does not fit of a program 1.4 times as large as the GPU
        self.chunk = 32 * MIB if simulated else GIB
        self.piece = 64 * MIB if simulated else 256 * MIB  # the least that one move takes
        self.need = 192 * MIB if simulated else 20 * GIB
        self.held = 320 * MIB if simulated else 40 * GIB  # by low priority beside a service
        self.train = ["change", 12, 512 * MIB] if simulated else ["train", 40, 12288, 2048]
        self.short_train = ["change", 4, 512 * MIB] if simulated else ["train", 15, 12288, 2048]
        self.fused_train = self.short_train if simulated else [*self.short_train, 1]
        self.service = PROGRAMS["resnet50_b1_graph"]
        self.serve_s = 3 if simulated else 10


class Machine:
    """A stage with one daemon, and the programs of one row."""

    def __init__(self, args, limits):
        self.simulated = args.gpu == "sim"
        self.sizes = Sizes(self.simulated)
        self.tries, self.peers = args.tries, args.peers
        self.stage = Stage(os.path.abspath(os.path.join(args.build, "hb")), self.simulated, None, limits)
        self.programs = []
        self.details = {}  # of the present row: raw values that the table leaves out
        self.variables = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
        if args.expandable:
            self.variables["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
        if self.simulated:
            self.variables |= {"HB_SIM_GPUS": "2" if args.peers else "1", "HB_SIM_MEMORY": str(2560 * MIB), "HB_SIM_SCALE": "0.1"}
        self.socket = os.path.join(self.stage.folder, "hbd.sock")
        config = os.path.join(self.stage.folder, "hbd.yaml")
        with open(config, "w", encoding="utf-8") as file:
            file.write(f"engine: temporal\nelastic_host: {self.sizes.pool // MIB}MiB\nelastic_return: 200ms\n" + "".join(
                f"{line}\n" for line in (["elastic_peers: true"] if args.peers else []) + args.config))
        words = [find_part(self.stage.hb, "hbd"), "--foreground", "--socket", self.socket, "--config", config]
        self.daemon = Process("hbd", words + self.gpu(), self.stage.environment(**self.variables), self.stage.folder, limits,
                              signal.SIGTERM)
        self.stage.wait_until(self.daemon, lambda: answers(self.socket), "there is no socket in time")

    def gpu(self):
        return ["--gpu", "sim"] if self.simulated else []

    def start(self, place, *arguments):
        """memory_program.py in a place: native, low, elastic, over (elastic, and what does not fit is on the host) or high."""
        return self.start_words(place, str(arguments[0]), ["python3", os.path.join(HERE, "memory_program.py"), *map(str, arguments)])

    def start_words(self, place, name, program):
        words, more = [], self.stage.native_place()
        if place != "native":
            options = ["--priority", "high" if place == "high" else "low", *({"elastic": ["--elastic"],
                                                                              "over": ["--oversubscribe"]}.get(place, []))]
            words, more = [self.stage.hb, "run", *self.gpu(), *options, "--"], {"HB_SOCKET": self.socket, "HB_START_DAEMON": "0"}
            more |= {"HB_LOG": "info"} if place == "elastic" else {}  # the time of each step of a move
        self.programs.append(Process(f"{name} ({place})", words + program, self.stage.environment(**self.variables, **more),
                                     self.stage.folder, self.stage.limits))
        return self.programs[-1]

    def stop_programs(self):
        while self.programs:
            program = self.programs.pop()
            program.stop(QUIT_S)
            with open(program.log, encoding="utf-8", errors="replace") as log:
                self.details.setdefault("moves", []).extend(line.strip() for line in log if "elastic memory: moved" in line)

    def status(self):
        done = subprocess.run([self.stage.hb, "status", "--json"], env=dict(self.stage.environment(), HB_SOCKET=self.socket),
                              capture_output=True, text=True, timeout=ANSWER_S, check=True)
        return json.loads(done.stdout)

    def elastic(self):
        """The elastic memory of the program that has some; {} = none has."""
        found = [gpu["elastic"] for tenant in self.status()["tenants"] for gpu in tenant.get("gpus", []) if gpu.get("elastic")]
        return found[0] if found else {}

    def why_not(self):
        """Why the last allocation of high priority found no room."""
        failures = [gpu["elastic"]["last_failure"] for gpu in self.status()["gpus"] if gpu.get("elastic")]
        failure = f"; last failure: {failures[0]['why']}" if failures and failures[0] else ""
        return f"{failure}; last order: {self.elastic().get('last')}"

    def await_elastic(self, condition, limit_s):
        """Whether the condition became true in time."""
        end = time.monotonic() + limit_s
        while not condition(self.elastic()):
            if time.monotonic() > end:
                return False
            self.stage.limits.sleep_until(time.monotonic() + 0.05)
        return True

    def start_high(self, chunk):
        """A program of high priority that allocates on demand. Its context needs memory that cannot be had later."""
        high = self.start("high", "fill", chunk)
        high.hear("ready", ANSWER_S)
        return high

    def await_pool(self, size=1 << 62):
        """Waits until so much host memory is prepared, or as much as the program may use."""
        if not self.await_elastic(lambda e: e.get("movable", 0) > 0 and e["spare"] + e["host"] >= min(
                size, 0.9 * (e["local"] + e["host"]), self.sizes.pool - 2 * self.sizes.piece), ANSWER_S):
            raise Failed(f"host memory was not prepared in time: {self.elastic()}")

    def close(self):
        self.stop_programs()
        self.daemon.stop(QUIT_S, signal.SIGTERM)
        self.stage.close()


# --- rows: each returns (what was measured, whether it is right, whether it is fast enough) ---------------------------------------------

def ask(program, line, event, limit_s=ANSWER_S):
    program.send(line)
    return program.hear(event, limit_s)


def away(elastic):
    return elastic["host"] + elastic["peer"]


def places(elastic):
    return f"{elastic['peer'] / MIB:.0f} MiB on a peer, {elastic['host'] / MIB:.0f} MiB on the host"


def is_in_place(machine, elastic):
    """Whether the memory that moved went where it should."""
    if machine.simulated:  # there, a probe of the tiers says nothing
        return True
    return elastic["peer"] > 0 if machine.peers else elastic["peer"] == 0


def run_train(machine, place, arguments):
    program = machine.start(place, *arguments)
    program.hear("ready", ANSWER_S)
    result = ask(program, "go", "trained")
    machine.stop_programs()
    return result


def measure_allocation(machine):
    """Allocation and free of 64 MiB relative to native."""
    medians = {place: [] for place in ("native", "low", "elastic")}
    for _ in range(2):
        for place, values in medians.items():
            values.append(machine.start(place, "allocate", 64 * MIB).hear("allocated", ANSWER_S)["us"])
            machine.stop_programs()
    native, low, elastic = (min(values) for values in medians.values())
    return (f"{elastic / native:.2f} x native: {elastic:.0f} us elastic, {low:.0f} us not elastic, {native:.0f} us native",
            True, elastic <= 1.5 * native)


def measure_overhead(machine):
    """Training with elasticity on and nothing moved, relative to off."""
    times = {place: [] for place in ("low", "elastic")}
    for _ in range(2):
        for place, values in times.items():
            values.append(run_train(machine, place, machine.sizes.short_train)["s"])
    off, on = (min(values) for values in times.values())
    return f"{100 * off / on:.1f} % of the speed without: {on:.2f} s against {off:.2f} s", True, off >= 0.99 * on


def measure_losses(machine):
    """Losses of a training whose memory moves away in pieces, one every 100 ms, then returns."""
    alone = run_train(machine, "elastic", machine.sizes.train)
    program = machine.start("elastic", *machine.sizes.train)
    program.hear("ready", ANSWER_S)
    machine.await_pool()
    high = machine.start_high(machine.sizes.piece)
    ask(high, "fill", "filled")
    before = machine.elastic()["away"]
    program.send("go")
    pieces, refused, longest = 0, 0, 0.0
    end = time.monotonic() + alone["s"]
    while time.monotonic() < end:
        next_s = time.monotonic() + 0.1
        took = ask(high, f"take {machine.sizes.piece}", "took")
        pieces, longest = pieces + took["ok"], max(longest, took["s"] if took["ok"] else 0.0)
        refused += not took["ok"]
        machine.stage.limits.sleep_until(next_s)
    after = machine.elastic()
    ask(high, "drop", "dropped")
    losses = program.hear("trained", ANSWER_S + 10 * alone["s"])
    moved = after["away"]["bytes"] - before["bytes"]
    same = losses["losses"] == alone["losses"]
    return (f"{'identical' if same else 'DIFFERENT'} losses of {len(alone['losses'])} steps; "
            f"{after['away']['moves'] - before['moves']} moves, {moved / MIB:.0f} MiB away, {after['home']['bytes'] / MIB:.0f} MiB "
            f"home; {losses['s']:.2f} s against {alone['s']:.2f} s; HP's {pieces} allocations took {1e3 * longest:.0f} ms "
            f"at most, {refused} were refused{machine.why_not() if moved == 0 else ''}", same and moved > 0, True)


def measure_segments(machine):
    """HP allocates memory while LP holds everything in memory that it created itself (cuMemCreate)."""
    return measure_need(machine, "segments")


def measure_need(machine, mode="hold"):
    """HP allocates memory while LP holds everything."""
    size, times, failed, last = machine.sizes.need, [], 0, {}
    high = machine.start_high(machine.sizes.piece)
    low = machine.start("elastic", mode, 0, machine.sizes.chunk)
    held = low.hear("holds", ANSWER_S)["bytes"]
    for attempt in range(machine.tries):
        machine.await_pool()
        took = ask(high, f"take {size}", "took")
        times += [took["s"]] if took["ok"] else []
        failed += not took["ok"]
        last = machine.elastic()
        ask(high, "drop", "dropped")
        if machine.stage.limits.left(60) < 60 or attempt == machine.tries - 1 or not machine.await_elastic(lambda e: away(e) == 0, 60):
            break
    machine.details["took_ms"] = [round(1e3 * took, 1) for took in times]
    wrong = ask(low, "check", "checked")["wrong"]
    took = f"{1e3 * statistics.median(times):.0f} ms median, {1e3 * max(times):.0f} ms at most" if times else "never"
    return (f"{size / MIB:.0f} MiB while LP holds {held / MIB:.0f} MiB: {took}; {failed} of {failed + len(times)} failed; {places(last)}; "
            f"{wrong} chunks of LP wrong{machine.why_not() if failed else ''}", not failed and not wrong and is_in_place(machine, last),
            bool(times) and max(times) <= (0.15 if machine.peers else 0.6))


def measure_quarter_fused(machine):
    """The same with an optimizer that reads and writes its state once in each step (fused Adam)."""
    return measure_quarter(machine, machine.sizes.fused_train)


def measure_quarter(machine, training=None):
    """Training with a quarter of its memory on the host, or on a peer, relative to all on the GPU."""
    program = machine.start("elastic", *(training or machine.sizes.short_train))
    program.hear("ready", ANSWER_S)
    machine.await_pool()
    everything = machine.elastic()["local"]
    alone = ask(program, "go", "trained")["s"]
    high = machine.start_high(FILL_CHUNK)
    ask(high, "fill", "filled")
    refused = 0
    while 4 * (gone := away(machine.elastic())) < everything and refused < 5:
        refused += not ask(high, f"take {min(machine.sizes.piece, max(FILL_CHUNK, everything // 4 - gone))}", "took")["ok"]
    beside = ask(program, "go", "trained", ANSWER_S + 10 * alone)["s"]
    after = machine.elastic()
    return (f"{100 * alone / beside:.1f} % of the speed with all on the GPU: {beside:.2f} s against {alone:.2f} s; "
            f"of {everything / MIB:.0f} MiB {places(after)}{machine.why_not() if 4 * away(after) < everything else ''}",
            away(after) >= QUARTER * everything > 0 and is_in_place(machine, after), alone >= (0.7 if machine.peers else 0.4) * beside)


def serve(machine, service, seconds):
    """Starts a window of requests."""
    ask(service, "prepare", "prepared")
    service.send(f"serve {seconds} poisson {REQUESTS_PER_S} 0 1")


def served(service):
    """The latencies of the window, in ms, ascending."""
    service.hear("served", ANSWER_S)
    return sorted(ns / 1e6 for ns in ask(service, "finish", "results")["latency_ns"])


def measure_service(machine):
    """99th percentile of a resnet50 graph service at 60/s while 20 GiB of LP memory move in pieces."""
    sizes = machine.sizes
    service = machine.start_words("high", "service", machine.stage.command_of(sizes.service))
    service.hear("ready", ANSWER_S)
    high = machine.start_high(FILL_CHUNK)
    serve(machine, service, sizes.serve_s)
    alone = served(service)
    low = machine.start("elastic", "hold", sizes.held, min(sizes.chunk, sizes.held // 4))
    low.hear("holds", ANSWER_S)
    machine.await_pool(sizes.need)
    ask(high, "fill", "filled")
    serve(machine, service, sizes.serve_s)
    begin, taken = time.monotonic(), 0
    for number in range(sizes.need // sizes.piece):
        machine.stage.limits.sleep_until(begin + 0.9 * sizes.serve_s * number / (sizes.need // sizes.piece))
        taken += ask(high, f"take {sizes.piece}", "took")["ok"]
    took_s, beside = time.monotonic() - begin, served(service)
    moved, wrong = machine.elastic()["away"], ask(low, "check", "checked")["wrong"]
    at = [values[min(len(values) - 1, int(0.99 * len(values)))] for values in (alone, beside)]
    return (f"{at[1] / at[0]:.2f} x alone: {at[1]:.2f} ms against {at[0]:.2f} ms, {len(beside)} requests; {moved['bytes'] / MIB:.0f} MiB moved "
            f"in {moved['moves']} moves within {took_s:.1f} of {sizes.serve_s} s, {taken} allocations; {wrong} chunks of LP wrong"
            f"{'' if moved['bytes'] else machine.why_not()}", not wrong and moved["bytes"] >= 0.75 * sizes.need, at[1] <= 1.1 * at[0])


def measure_large(machine):
    """A low-priority program 1.4 times as large as the GPU."""
    total = machine.start("native", "fill", machine.sizes.piece).hear("ready", ANSWER_S)["total"]
    machine.stop_programs()
    wanted = int(1.4 * total) // machine.sizes.chunk * machine.sizes.chunk
    program = machine.start("over", "hold", wanted, machine.sizes.chunk)
    held = program.hear("holds", ANSWER_S)["bytes"]
    if held < wanted:
        return f"out of memory after {held / MIB:.0f} of {wanted / MIB:.0f} MiB: {machine.elastic()}", False, True
    turned = ask(program, "turn", "turned")["s"]
    elastic = machine.elastic()
    wrong = ask(program, "check", "checked")["wrong"]
    return (f"{held / MIB:.0f} MiB, {elastic['host'] / MIB:.0f} MiB of them on the host; one copy of everything took "
            f"{turned:.2f} s; {wrong} chunks wrong", not wrong and elastic["host"] > 0, True)


ROWS = {
    "allocation": (measure_allocation, "<= 1.5 x"),
    "losses": (measure_losses, "identical"),
    "need": (measure_need, "<= 150 ms on a peer, 600 ms on the host, none fails"),
    "segments": (measure_segments, "as need"),
    "service": (measure_service, "<= 1.1 x"),
    "quarter": (measure_quarter, ">= 70 % on a peer, 40 % on the host"),
    "quarter-fused": (measure_quarter_fused, "as quarter"),
    "overhead": (measure_overhead, ">= 99 %"),
    "large": (measure_large, "completes, right"),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--build", default="build")
    parser.add_argument("--gpu", choices=["sim"], help="the simulated driver instead of this machine's GPU")
    parser.add_argument("--peers", action="store_true", help="memory moves to another GPU first; needs two")
    parser.add_argument("--tries", type=int, default=5, help="allocations of the row `need`")
    parser.add_argument("--budget", type=float, default=400, help="seconds after which no row continues")
    parser.add_argument("--config", action="append", default=[], help="a line for the daemon's configuration, as `mps: false`")
    parser.add_argument("--expandable", action="store_true", help="PyTorch's memory consists of expandable segments")
    parser.add_argument("--only", help="rows, comma-separated: " + ", ".join(ROWS))
    parser.add_argument("--out", help="write the rows to this file")
    args = parser.parse_args()
    names = rows.choose(parser, args.only, ROWS)
    limits = Limits()
    limits.watch_signals()
    limits.end = time.monotonic() + args.budget
    if args.tries < 1:
        parser.error(f"--tries {args.tries}: at least 1 is needed")
    machine = Machine(args, limits)
    try:
        met = rows.run(machine, ROWS, names, args.out, " (peer)" if args.peers else "")
    finally:
        machine.close()
    sys.exit(0 if met else 1)


if __name__ == "__main__":
    main()

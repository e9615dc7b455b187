#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Kills low-priority programs in every way, many times, beside another low-priority program and a service of high
priority, and counts which of those were harmed.

  tests/gpu/kill_check.py --build build [--gpu sim] [--kills 50] [--only "KIND;KIND"] [--json FILE]

Without --gpu sim it needs an NVIDIA GPU with MPS. Uses a daemon of its own (in a temporary folder) and ends what it
started. Prints a table; exits 1 when a kill through the supervisor harmed another program, or did not end its own.
The kind `program` is the case that nothing covers: SIGKILL hits the program itself. It is only counted.
With --gpu sim the MPS server is the fragile one of the model: a client that dies with work in flight ends the others.
"""
import argparse
import dataclasses
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

LIMIT = 120
SHORT_US, ENDLESS_US = "2000", "600000000"


@dataclasses.dataclass
class Kind:
    number: signal.Signals
    target: str = "hb run"
    kernel_us: str = SHORT_US
    default_signals: bool = True  # the program dies by the signal, and does not end by itself
    processes: int = 1
    reacts: bool = False  # when the work of one process has ended, the program kills the other process
    programs: int = 1     # killed at the same time


KINDS = {
    "SIGTERM": Kind(signal.SIGTERM),
    "SIGINT": Kind(signal.SIGINT),
    "SIGTERM, caught": Kind(signal.SIGTERM, default_signals=False),
    "supervisor": Kind(signal.SIGKILL),
    "SIGTERM, endless kernel": Kind(signal.SIGTERM, kernel_us=ENDLESS_US),
    "supervisor, endless kernel": Kind(signal.SIGKILL, kernel_us=ENDLESS_US),
    "SIGTERM, two processes": Kind(signal.SIGTERM, kernel_us=ENDLESS_US, processes=2),
    "supervisor, two processes": Kind(signal.SIGKILL, kernel_us=ENDLESS_US, processes=2),
    "SIGTERM, which react": Kind(signal.SIGTERM, kernel_us=ENDLESS_US, processes=2, reacts=True),
    "SIGTERM, two programs": Kind(signal.SIGTERM, kernel_us=ENDLESS_US, programs=2),
    "program": Kind(signal.SIGKILL, target="the program"),
}


def wait_until(what, condition):
    end = time.monotonic() + LIMIT
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"not within {LIMIT} s: {what}")
        time.sleep(0.002)


class Machine:
    """A folder, a daemon, and programs on one GPU."""

    def __init__(self, build, simulated, config=""):
        self.build = os.path.abspath(build)
        self.gpu = ["--gpu", "sim"] if simulated else []
        self.folder = tempfile.mkdtemp(prefix="hb-kill-")
        socket = os.path.join(self.folder, "hbd.sock")
        self.environment = os.environ | {"XDG_RUNTIME_DIR": self.folder, "HOME": self.folder, "HB_SOCKET": socket}
        if simulated:
            self.environment |= {"HB_SIM_GPU": os.path.join(self.folder, "gpu"), "HB_SIM_MPS_FRAGILE": "1"}
        with open(os.path.join(self.folder, "hummingbird.yaml"), "w", encoding="utf-8") as file:
            file.write(config)
        self.log = open(os.path.join(self.folder, "log"), "w+", encoding="utf-8")
        self.programs = []
        self.daemon = self.spawn([os.path.join(self.build, "src/daemon/hbd"), "--foreground", *self.gpu, "--socket",
                                  socket, "--config", file.name])
        wait_until("the daemon listens", lambda: os.path.exists(socket))

    def spawn(self, command):
        program = subprocess.Popen(command, env=self.environment, stdout=subprocess.PIPE, stderr=self.log, text=True)
        self.programs.append(program)
        return program

    def start_bare(self, *arguments):
        """Starts cuda-tenant without Hummingbird, and waits until it works on the GPU."""
        libraries = ["env", "LD_LIBRARY_PATH=" + os.path.join(self.build, "src/simcuda")] if self.gpu else []
        program = self.spawn([*libraries, os.path.join(self.build, "bench/tenant/cuda-tenant"), *arguments])
        await_work(program, 1)
        return program

    def run(self, priority, command):
        return self.spawn([os.path.join(self.build, "hb"), "run", *self.gpu, "--priority", priority, "--", *command])

    def start(self, priority, *arguments):
        """Starts cuda-tenant and waits until it works on the GPU."""
        program = self.run(priority, [os.path.join(self.build, "bench/tenant/cuda-tenant"), *arguments])
        if "train" in arguments:
            await_work(program, 1)
        return program

    def close(self):
        for program in self.programs:
            if program.poll() is None:
                program.terminate() if program is self.daemon else program.kill()
        for program in self.programs:
            program.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


class Neighbours:
    """Another client of the MPS server, and a service of high priority."""

    def __init__(self, machine):
        self.machine = machine
        self.harmed_low = self.harmed_high = 0
        self.start_low()
        self.start_high()

    def start_low(self):
        self.low = self.machine.start("low", "train", "500", "0")

    def start_high(self):
        self.high = self.machine.start("high", "infer", "--rate", "20", "--seconds", "100000")

    def look(self):
        """Counts and replaces those that have ended. An error arrives with the next call, a few kernels later."""
        time.sleep(0.1)
        if self.low.poll() is not None:
            self.harmed_low += 1
            self.start_low()
        if self.high.poll() is not None:
            self.harmed_high += 1
            self.start_high()

    def end(self):
        """Both end by themselves, with right results."""
        for program in (self.low, self.high):
            program.terminate()
        for program, name in ((self.low, "harmed_low"), (self.high, "harmed_high")):
            said = program.communicate(timeout=LIMIT)[0]
            if program.returncode != 0 or not ('"right": true' in said or "results=right" in said):
                setattr(self, name, getattr(self, name) + 1)


def pids_named(name, parent):
    """The processes with this name among a process and its descendants."""
    found, pids = [], [parent]
    for pid in pids:
        try:
            with open(f"/proc/{pid}/comm", encoding="utf-8") as file:
                if file.read().strip() == name:
                    found.append(pid)
            with open(f"/proc/{pid}/task/{pid}/children", encoding="utf-8") as file:
                pids += map(int, file.read().split())
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def start_victim(machine, kind):
    options = ["--default-signals"] if kind.default_signals else []
    train = [os.path.join(machine.build, "bench/tenant/cuda-tenant"), *options, "train", kind.kernel_us, "0"]
    if kind.processes == 1:
        return machine.run("low", train)
    text = " ".join(train)
    script = f"{text} & other=$!; {text} || kill -KILL $other; exec sleep 1000" if kind.reacts else f"{text} & exec {text}"
    return machine.run("low", ["/bin/sh", "-c", script])


def await_work(victim, processes):
    running = 0
    for line in victim.stdout:
        running += line.startswith("running")
        if running == processes:
            return
    raise RuntimeError(f"{victim.args} ended with {victim.wait()}")


def kill_programs(machine, kind):
    """Returns the time in ms until the victims had ended, and complaints."""
    victims = [start_victim(machine, kind) for _ in range(kind.programs)]
    for victim in victims:
        await_work(victim, kind.processes)
    processes = [pid for victim in victims for pid in pids_named("cuda-tenant", victim.pid)]
    time.sleep(random.uniform(0.02, 0.2))
    begin = time.monotonic()
    for victim in victims:
        os.kill(processes[0] if kind.target == "the program" else victim.pid, kind.number)
    for victim in victims:
        victim.communicate(timeout=LIMIT)
    wait_until("the program has ended", lambda: not any(map(is_alive, processes)))
    took_ms = 1000 * (time.monotonic() - begin)
    expected = -kind.number if kind.default_signals else 0
    return took_ms, [f"status {victim.returncode}, expected {expected}" for victim in victims if victim.returncode != expected]


def try_kind(machine, kind, kills):
    neighbours = Neighbours(machine)
    times, complaints = [], []
    for _ in range(kills):
        took_ms, wrong = kill_programs(machine, KINDS[kind])
        times.append(took_ms)
        complaints += wrong
        neighbours.look()
    neighbours.end()
    row = {"kind": kind, "kills": kills, "harmed low": neighbours.harmed_low, "harmed high": neighbours.harmed_high,
           "median_ms": statistics.median(times), "longest_ms": max(times), "wrong ends": len(complaints)}
    print(f"{kind:28}{kills:6}{neighbours.harmed_low:12}{neighbours.harmed_high:13}{row['median_ms']:11.0f}"
          f"{row['longest_ms']:12.0f}{len(complaints):12}", flush=True)
    for complaint in sorted(set(complaints)):
        print(f"  {complaint}", flush=True)
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--build", required=True)
    parser.add_argument("--gpu", choices=["sim"])
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--only", help="some kinds, separated by semicolons")
    parser.add_argument("--json", help="write the rows to this file")
    options = parser.parse_args()
    kinds = options.only.split(";") if options.only else list(KINDS)
    machine = Machine(options.build, options.gpu == "sim")
    rows = []
    try:
        print(f"{'what was killed':28}{'kills':>6}{'harmed low':>12}{'harmed high':>13}{'median ms':>11}"
              f"{'longest ms':>12}{'wrong ends':>12}")
        for kind in kinds:
            rows.append(try_kind(machine, kind, options.kills))
    except BaseException:
        machine.log.seek(0)
        print(machine.log.read()[-3000:], file=sys.stderr)
        raise
    finally:
        machine.close()
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(rows, file)
    covered = [row for row in rows if row["kind"] != "program"]
    return int(any(row["harmed low"] or row["harmed high"] or row["wrong ends"] for row in covered))


if __name__ == "__main__":
    sys.exit(main())

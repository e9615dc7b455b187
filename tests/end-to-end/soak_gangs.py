#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Starts, ends and kills programs on several simulated GPUs at random. No program may hang, and no work may be lost.

    HB_BUILD=build tests/end-to-end/soak_gangs.py [--seconds 5] [--gpus 8] [--seed N]

A run of an hour: --seconds 3600. The seed is printed; programs run in real time, so a seed repeats the order of the starts
and ends, and not each interleaving.
"""
import argparse
import os
import random
import signal
import time

from stack import Stack, end_well

SHAPES = ("dp", "tp", "pp", "one")
MOST = 6


class Soak:
    def __init__(self, stack, rng, gpus):
        self.stack, self.rng, self.gpus = stack, rng, gpus
        self.running = []
        self.counts = {"started": 0, "ended": 0, "killed": 0}

    def start(self):
        n = self.rng.choice((1, 2, 4, self.gpus))
        devices = ",".join(map(str, sorted(self.rng.sample(range(self.gpus), min(n, self.gpus)))))
        high = self.rng.random() < 0.3
        engine = ("--engine", self.rng.choice(("spatial", "temporal"))) if high and self.counts["started"] == 0 else ()
        arguments = ("gang", self.rng.choice(SHAPES), self.rng.choice((20, 100, 400)), 0, 2000 if high else 0)
        program = self.stack.start("high" if high else "low", *arguments, options=engine, CUDA_VISIBLE_DEVICES=devices)
        program.expect("running")
        self.running.append(program)
        self.counts["started"] += 1

    def stop(self):
        program = self.running.pop(self.rng.randrange(len(self.running)))
        if self.rng.random() < 0.3:
            for pid in program.family() - {program.pid} or {program.pid}:
                os.kill(pid, signal.SIGKILL)
            program.ended()
            self.counts["killed"] += 1
        else:
            end_well(program)
            self.counts["ended"] += 1
        self.stack.programs.remove(program)
        program.close()

    def run(self, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if not self.running or (len(self.running) < MOST and self.rng.random() < 0.55):
                self.start()
            else:
                self.stop()
        for program in self.running:
            program.signal(signal.SIGTERM)
        for program in self.running:
            assert program.result()["right"], program.command


def report_daemon(stack, when):
    files = os.listdir(f"/proc/{stack.pid_of('hbd')}/fd")
    print(f"daemon {when}: {stack.daemon_kib()} KiB of resident memory, {len(files)} open files", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 31))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    with Stack(gpus=options.gpus, scale=0.2) as stack:
        soak = Soak(stack, random.Random(options.seed), options.gpus)
        soak.start()
        report_daemon(stack, "with the first program")
        soak.run(options.seconds)
        print(soak.counts, flush=True)
        report_daemon(stack, "after the last program")


if __name__ == "__main__":
    main()

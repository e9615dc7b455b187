#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that low priority makes progress beside a program that was started without Hummingbird and always has work.

  tests/gpu/outside_check.py --build build [--gpu sim] [--steps 2000]

Without --gpu sim it needs an NVIDIA GPU with MPS. Uses a daemon of its own, with the temporal engine, and ends what it
started. Prints how long the steps of a low-priority program took beside an idle service only, and beside the other program,
too. Exits 1 if low priority had less than a twentieth of its speed, or if the daemon did not notice the other program.
"""
import argparse
import json
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import kill_check  # noqa: E402  pylint: disable=wrong-import-position

LIMIT_S = 60
LEAST_SPEED = 0.05
KERNEL_US = "500"


def is_busy_outside(machine):
    done = subprocess.run([os.path.join(machine.build, "hb"), "status", *machine.gpu, "--json"], env=machine.environment,
                          stdout=subprocess.PIPE, text=True, check=True)
    return any(gpu["busy_outside"] for gpu in json.loads(done.stdout)["gpus"])


def train(machine, steps):
    """Seconds that these steps took; None: they did not end in time."""
    program = machine.start("low", "train", KERNEL_US, str(steps))
    begin = time.monotonic()
    try:
        said = program.communicate(timeout=LIMIT_S)[0]
    except subprocess.TimeoutExpired:
        program.terminate()
        return None
    if program.returncode or '"right": true' not in said:
        raise RuntimeError(f"the training ended with {program.returncode}: {said[-300:]}")
    return time.monotonic() - begin


def check(machine, steps):
    machine.start("high", "infer", "--rate", "20", "--seconds", "100000")
    before = train(machine, steps)
    machine.start_bare("train", KERNEL_US, "0")
    kill_check.wait_until("the daemon notices the other program", lambda: is_busy_outside(machine))
    beside = train(machine, steps)
    speed = before / beside if beside else 0
    print(f"{steps} steps took {before:.2f} s; beside a program without Hummingbird they "
          + (f"took {beside:.2f} s, {100 * speed:.0f} % of the speed" if beside else f"did not end within {LIMIT_S} s"))
    return speed >= LEAST_SPEED


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--build", required=True)
    parser.add_argument("--gpu", choices=["sim"])
    parser.add_argument("--steps", type=int, default=2000)
    options = parser.parse_args()
    machine = kill_check.Machine(options.build, options.gpu == "sim", "engine: temporal\n")
    try:
        return int(not check(machine, options.steps))
    finally:
        machine.close()


if __name__ == "__main__":
    sys.exit(main())

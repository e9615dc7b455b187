#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures a service beside two trainings on one GPU: each alone, under the driver's own time slices, and under `hb run`.
Real processes with the real shim and daemon, on a simulated GPU where there is no real one.

usage: side_by_side.py BUILD_FOLDER
"""
import os
import re
import signal
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
if len(sys.argv) != 2:
    sys.exit(__doc__)
os.environ["HB_BUILD"] = os.path.abspath(sys.argv[1])
sys.path.insert(0, os.path.join(ROOT, "tests/end-to-end"))
from stack import Stack  # noqa: E402

SIMULATED = not os.path.exists("/dev/nvidiactl")
SERVICE = ["infer", "--rate", 100, "--seconds", 0.5]  # 80 kernels and two copies a request
# A simulated GPU that is slower than a real one: what the host adds counts less.
SCALE = 4
TRAINING = ["train", 300]


def latency_ms(lines):
    """(p50, p90) of what a service printed last."""
    return tuple(float(re.search(rf"{name}_us=([0-9.]+)", lines[-1])[1]) / 1e3 for name in ("p50", "p90"))


def side_by_side(service, training):
    trainings = [training(*TRAINING, 0) for _ in range(2)]
    for program in trainings:
        program.expect("running")
    latency = latency_ms(service(*SERVICE).output())
    for program in trainings:
        program.signal(signal.SIGTERM)
    return *latency, sum(program.result()["share"] for program in trainings)


def row(name, p50, p90, work):
    print(f"{name:<28}{p50:>8.2f} ms{p90:>8.2f} ms{work:>11.0%} of one alone")


def main():
    where = "simulated GPU: the times come from a model of the GPU" if SIMULATED else "this machine's GPU"
    print(where)
    print(f"{'':<28}{'service p50':>11}{'p90':>11}{'two trainings':>16}")
    with Stack(scale=SCALE, simulated=SIMULATED) as stack:
        alone = latency_ms(stack.bare(*SERVICE).output())
        work = stack.bare(*TRAINING, 500).result()["share"]
        row("each alone", *alone, work)
        row("driver's own time slices", *side_by_side(stack.bare, stack.bare))
        row("hb run", *side_by_side(lambda *arguments, **more: stack.start("high", *arguments, **more),
                                    lambda *arguments: stack.start("low", *arguments)))


main()

# SPDX-License-Identifier: Apache-2.0
"""Tests of times on a machine that may be slow or pause.

    def attempt(slowness):
        ...
        return complaints           # texts; none: the times are as promised

    judge(attempt)

One good attempt is enough, because noise makes times worse and never better. A
bad attempt counts only if the machine was quiet meanwhile, which a thread
measures that wants to run now and then. Three such attempts fail the test. Later
attempts ask for a GPU that is slower by a factor, so that delays of the machine
matter less. If the machine was never quiet enough, the test is skipped with a
message.
"""
import threading
import time
import unittest

STEP_S = 0.005
# On a quiet machine a sleeping thread runs again after at most this delay.
LATE_S = 0.002
# Largest share of lost time with which the machine counts as quiet.
QUIET = 0.03
ATTEMPTS = (1, 1, 2, 2, 4, 4)
ENOUGH = 3
# No attempt begins after this time.
LONGEST_S = 60


class Noise:
    """`lost`: the share of the block's time for which a thread that wanted to run did not run."""

    def __enter__(self):
        self.lost = 0.0
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.watch, daemon=True)
        self.thread.start()
        return self

    def watch(self):
        begin = before = time.monotonic()
        late = 0.0
        while not self.over.is_set():
            time.sleep(STEP_S)
            now = time.monotonic()
            late += max(0.0, now - before - STEP_S - LATE_S)
            self.lost = late / (now - begin)
            before = now

    def __exit__(self, kind, value, trace):
        self.over.set()
        self.thread.join()


def judge(attempt):
    quiet, said, end = 0, [], time.monotonic() + LONGEST_S
    for slowness in ATTEMPTS:
        if time.monotonic() > end:
            break
        with Noise() as noise:
            complaints = attempt(slowness)
        if not complaints:
            return
        said.append(f"on a GPU {slowness} times slower, {100 * noise.lost:.1f} % of the time lost: {'; '.join(complaints)}")
        quiet += noise.lost < QUIET
        if quiet == ENOUGH:
            raise AssertionError("\n".join(said))
    raise unittest.SkipTest("the machine is too noisy to judge:\n" + "\n".join(said))


def near(what, measured, predicted, factor):
    """A list with a complaint if the values differ by more than this factor, else an empty list."""
    if predicted / factor < measured < predicted * factor:
        return []
    return [f"{what} is {measured:g}, predicted {predicted:g}, further than a factor of {factor}"]


def above(what, measured, least):
    return [] if measured > least else [f"{what} is {measured:g}, at most {least:g}"]

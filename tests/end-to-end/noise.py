# SPDX-License-Identifier: Apache-2.0
"""What can only be judged by times, on a machine that may be slow or pause.

    def attempt(slowness):
        ...
        return complaints           # texts; none: it is as promised

    judge(attempt)

One good attempt is enough: noise spoils what was measured and never mends it.
A bad one counts only if the machine was quiet meanwhile, which a thread that
wants to run now and then tells; three such fail the test. Later attempts ask
for a GPU that is slower by a factor, beside which delays of the machine are
short. If the machine was never quiet enough to tell, the test is skipped, and
says so.
"""
import threading
import time
import unittest

STEP_S = 0.005
# A thread that sleeps runs again within this on a machine that is quiet.
LATE_S = 0.002
# Of the time, for which a machine was not there, if it passes for quiet.
QUIET = 0.03
ATTEMPTS = (1, 1, 2, 2, 4, 4)
ENOUGH = 3
# No attempt begins later than this.
LONGEST_S = 60


class Noise:
    """`lost`: the share of the block's time in which a thread that wanted to run did not."""

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
    raise unittest.SkipTest("the machine is too noisy to tell:\n" + "\n".join(said))


def near(what, measured, predicted, factor):
    """A complaint, in a list, unless it is within this factor."""
    if predicted / factor < measured < predicted * factor:
        return []
    return [f"{what} is {measured:g}, predicted {predicted:g}, further than a factor of {factor}"]


def above(what, measured, least):
    return [] if measured > least else [f"{what} is {measured:g}, at most {least:g}"]

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The daemon is killed while a program of low priority is at one step of a move: no byte of the program changes, and
with the next daemon it can move again. If both are killed, nothing of them is left. Memory returns when there is room.

    test_stack_moves.py          one step
    test_stack_moves.py all      every step, and the return of memory
"""
import os
import signal
import sys
import unittest

from stack import Stack, tenants_of, wait_until

MIB = 1 << 20
CHUNK = 8 * MIB  # one granule
CHUNKS = 6
CONTEXT = 512 * MIB  # what the simulated driver takes for each context
# The call at which the program stops; how many of these calls its allocations make before, and the preparation of host memory.
STEPS = {
    "the stream is made": ("cuStreamCreate", 0),
    "the copy begins": ("cuMemcpyDtoDAsync_v2", 0),
    "the old memory is unmapped": ("cuMemUnmap", 0),
    "the new memory takes its place": ("cuMemMap", 2 * CHUNKS),
    "the address gets access": ("cuMemSetAccess", 2 * CHUNKS),
    "the old memory is given back": ("cuMemRelease", 0),
}
SHORT = ("the new memory takes its place",)
ALL = sys.argv[1:] == ["all"]


def is_stopped(pid):
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        return file.read().rpartition(")")[2].split()[0] == "T"


class Moves(unittest.TestCase):
    def use_of_low(self, stack):
        return next((tenant["gpus"][0] for tenant in tenants_of(stack.status()) if tenant["priority"] == "low"), None)

    def start_high(self, stack):
        return stack.start("high", "memory", CHUNK, 1, 1, options=("--memory", str(4 * CHUNK)))

    def stop_in_move(self, stack, step):
        """Returns when the program of low priority has stopped there and the daemon has been killed."""
        call, before = STEPS[step]
        daemon = stack.start_daemon()
        low = stack.start("low", "hold", CHUNK, CHUNKS, options=("--elastic",),
                          HB_SIM_FAIL=f"{call}:stop:after={before}:times=1")
        low.expect("holds")
        wait_until("LP's memory can move", lambda: self.use_of_low(stack)["elastic"]["movable"] == CHUNKS * CHUNK)
        [tenant] = tenants_of(stack.status())
        pid = tenant["processes"][0]["pid"]
        high = self.start_high(stack)
        wait_until("the program stops", lambda: is_stopped(pid))
        daemon.signal(signal.SIGKILL)
        daemon.ended()
        self.assertTrue(high.expect("granted"), "without a daemon HP's allocation ends, too")
        high.go()
        self.assertEqual(high.ended(), 0)
        return low, pid

    def stack(self):
        return Stack(scale=0.1, mps=False, config="elastic_host: 1GiB\n", HB_SIM_MEMORY=str(2 * CONTEXT + (CHUNKS + 2) * CHUNK))

    def allocate_all(self, stack):
        high = self.start_high(stack)
        self.assertEqual(high.expect("granted"), f"granted: {4 * CHUNK}, wrong: 0")
        return high

    def check_bytes(self, low):
        low.go()
        self.assertEqual(low.expect("wrong"), "wrong: 0")

    def is_known_again(self, stack, low):
        self.check_bytes(low)  # a program registers again at a call, when the heartbeat is two seconds old
        use = self.use_of_low(stack)
        elastic = use and use["elastic"]
        return elastic and elastic["local"] + elastic["host"] == CHUNKS * CHUNK and elastic["movable"] == elastic["local"]

    def check_daemon_killed(self, step, restart_first):
        with self.stack() as stack:
            low, pid = self.stop_in_move(stack, step)
            if restart_first:
                stack.start_daemon()
            os.kill(pid, signal.SIGCONT)
            self.check_bytes(low)
            if not restart_first:
                stack.start_daemon()
            wait_until("the next daemon knows where all of it is", lambda: self.is_known_again(stack, low))
            self.assertEqual(self.use_of_low(stack)["elastic"]["leaked"], 0)
            high = self.allocate_all(stack)
            self.check_bytes(low)
            low.process.stdin.close()
            high.go()
            self.assertEqual((low.ended(), high.ended()), (0, 0))

    def check_both_killed(self, step):
        with self.stack() as stack:
            low, pid = self.stop_in_move(stack, step)
            os.kill(pid, signal.SIGKILL)
            self.assertNotEqual(low.ended(), 0)
            stack.start_daemon()
            high = self.allocate_all(stack)
            self.assertEqual([tenant["priority"] for tenant in tenants_of(stack.status())], ["high"])
            high.go()
            self.assertEqual(high.ended(), 0)

    def test_the_daemon_is_killed(self):
        for number, step in enumerate(STEPS if ALL else SHORT):
            with self.subTest(step):
                self.check_daemon_killed(step, number % 2 == 0)

    @unittest.skipUnless(ALL, "only with `all`")
    def test_memory_returns(self):
        """The daemon orders LP's memory home when the GPU has had room for 10 s."""
        with self.stack() as stack:
            low = stack.start("low", "hold", CHUNK, CHUNKS, options=("--elastic",))
            low.expect("holds")
            wait_until("LP's memory can move", lambda: self.use_of_low(stack)["elastic"]["movable"] == CHUNKS * CHUNK)
            high = self.allocate_all(stack)
            self.assertGreaterEqual(self.use_of_low(stack)["elastic"]["host"], 2 * CHUNK)
            self.check_bytes(low)
            high.go()
            self.assertEqual(high.ended(), 0)
            wait_until("LP's memory is home", lambda: self.use_of_low(stack)["elastic"]["local"] == CHUNKS * CHUNK)
            elastic = self.use_of_low(stack)["elastic"]
            self.assertEqual(elastic["host"], 0)
            self.assertGreaterEqual(elastic["home"]["bytes"], 2 * CHUNK)
            self.check_bytes(low)
            low.process.stdin.close()
            self.assertEqual(low.ended(), 0)

    @unittest.skipUnless(ALL, "only with `all`")
    def test_both_are_killed(self):
        for step in STEPS:
            with self.subTest(step):
                self.check_both_killed(step)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])

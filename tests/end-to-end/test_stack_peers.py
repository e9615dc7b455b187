#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Memory of low priority moves to another GPU with room, and leaves it when a program of that GPU needs the room."""
import signal
import unittest

from stack import Stack, tenants_of, wait_until

MIB = 1 << 20
CHUNK = 8 * MIB  # one granule
CHUNKS = 6
CONTEXT = 512 * MIB  # what the simulated driver takes for each context
TABLES = MIB  # more than enough for the page tables of host memory that is prepared for moves
GPU = 2 * CONTEXT + (CHUNKS + 2) * CHUNK + TABLES
CONFIG = "elastic_host: 1GiB\nelastic_peers: true\n"


class Peers(unittest.TestCase):
    def elastic(self, stack):
        return next(tenant for tenant in tenants_of(stack.status()) if tenant["priority"] == "low")["gpus"][0]["elastic"]

    def explain(self, stack):
        return f"{self.elastic(stack)}, GPUs: {[gpu['elastic'] for gpu in stack.status()['gpus']]}"

    def check_bytes(self, low):
        low.go()
        self.assertEqual(low.expect("wrong"), "wrong: 0")

    def move_to_peer(self, stack):
        """Low priority on the first GPU has moved memory to the second one, for high priority on the first one."""
        low = stack.start("low", "hold", CHUNK, CHUNKS, options=("--elastic",))
        low.expect("holds")
        wait_until("LP's memory can move", lambda: self.elastic(stack)["movable"] == CHUNKS * CHUNK)
        high = stack.start("high", "memory", CHUNK, 1, 1, options=("--memory", str(4 * CHUNK)))
        self.assertEqual(high.expect("granted"), f"granted: {4 * CHUNK}, wrong: 0", self.explain(stack))
        wait_until("the daemon shows it", lambda: self.elastic(stack)["peer"] == 2 * CHUNK)
        self.assertEqual((self.elastic(stack)["local"], self.elastic(stack)["host"]), (4 * CHUNK, 0))
        self.assertEqual([gpu["elastic"]["guests"] for gpu in stack.status()["gpus"]], [0, 2 * CHUNK])
        self.check_bytes(low)
        return low, high

    def check_left(self, stack, low):
        self.assertEqual((self.elastic(stack)["peer"], self.elastic(stack)["host"]), (0, 2 * CHUNK), self.explain(stack))
        self.check_bytes(low)

    def end(self, low, *others):
        for other in others:
            other.go()
            self.assertEqual(other.ended(), 0)
        low.process.stdin.close()
        self.assertEqual(low.ended(), 0)

    def lately(self, stack):
        """Returns where the memory of low priority on the first GPU was in the last step of five seconds: there, on the peer, on the host."""
        history = stack.status()["gpus"][0]["history"]
        return [history.get(f"low{place}_bytes", [])[-1:] for place in ("", "_peer", "_host")]

    def overheads(self, stack):
        """Memory of the low-priority program on each GPU, beyond its allocations."""
        low = next(tenant for tenant in tenants_of(stack.status()) if tenant["priority"] == "low")
        return [gpu["memory_overhead"] for gpu in low["gpus"]]

    def test_memory_on_the_peer_is_shown_once(self):
        with Stack(gpus=2, scale=0.1, mps=False, config=CONFIG, HB_SIM_MEMORY=str(GPU)) as stack:
            low, high = self.move_to_peer(stack)
            wait_until("the history shows it", lambda: self.lately(stack) == [[4 * CHUNK], [2 * CHUNK], [0]])
            own, peer = self.overheads(stack)
            self.assertTrue(CONTEXT <= own < CONTEXT + CHUNK and peer == 0, (own, peer))
            self.end(low, high)

    def test_guests_leave_for_a_program_of_any_priority(self):
        for priority in ("high", "low"):
            with (self.subTest(priority=priority),
                  Stack(gpus=2, scale=0.1, mps=False, config=CONFIG, HB_SIM_MEMORY=str(GPU)) as stack):
                low, high = self.move_to_peer(stack)
                everything = GPU - CONTEXT - TABLES
                second = stack.start(priority, "memory", CHUNK, 1, 1, options=("--memory", str(everything)), CUDA_VISIBLE_DEVICES="1")
                self.assertEqual(second.expect("granted"), f"granted: {everything}, wrong: 0", self.explain(stack))
                self.check_left(stack, low)
                self.end(low, high, second)

    def test_the_next_daemon_knows_the_guests(self):
        with Stack(gpus=2, scale=0.1, mps=False, config=CONFIG, HB_SIM_MEMORY=str(GPU)) as stack:
            daemon = stack.start_daemon()
            low, high = self.move_to_peer(stack)
            daemon.signal(signal.SIGKILL)
            daemon.ended()
            stack.start_daemon()
            wait_until("the next daemon knows it", lambda: self.is_known_again(stack, low))
            self.end(low, high)

    def is_known_again(self, stack, low):
        self.check_bytes(low)  # a program registers again at a call, when the heartbeat is two seconds old
        return tenants_of(stack.status()) and [gpu["elastic"]["guests"] for gpu in stack.status()["gpus"]] == [0, 2 * CHUNK]


if __name__ == "__main__":
    unittest.main()

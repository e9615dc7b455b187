#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The daemon frees what it has measured of a tenant when the tenant leaves. libhb-heap-meter counts its bytes."""
import os
import signal
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../fuzz"))
import live_target
from stack import Stack, wait_until

TENANTS = 8
GROWTH_MAX = 512 << 10  # the times that one tenant waited take 128 KiB


class Size(unittest.TestCase):
    def take_turns(self, stack):
        programs = [stack.start("low", "train", 1000, 0) for _ in range(TENANTS)]
        for program in programs:
            program.expect("running")
        wait_until("all have waited for a turn", lambda: all(
            tenant["gpus"] and tenant["gpus"][0]["wait"] for tenant in stack.tenants()))
        for program in programs:
            program.signal(signal.SIGTERM)
            self.assertTrue(program.result()["right"])
        wait_until("the daemon has noticed their end", lambda: not stack.tenants())

    def test_measures_of_tenants_are_freed_when_they_leave(self):
        meter = live_target.HeapMeter()
        with Stack(mps=False, config="engine: turns\nquantum: 5ms\n") as stack:
            stack.start_daemon(**meter.variables)
            stack.start("low", "train", 1, 1).output()  # the daemon keeps what it allocates for a new GPU
            wait_until("the first has ended", lambda: not stack.tenants())
            before = meter.allocated_bytes()
            self.take_turns(stack)
            self.assertLess(meter.allocated_bytes() - before, GROWTH_MAX)


if __name__ == "__main__":
    unittest.main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""HP gets memory that LP holds: the daemon orders a move, LP's shim carries it out
under LP's addresses, and HP's allocation succeeds."""
import unittest

from stack import Stack, wait_until

MIB = 1 << 20
CHUNK = 64 * MIB
CONFIG = "elastic_host: 1GiB\nrules:\n  - {priority: high, elastic: true}\n"


def use_of(stack, priority):
    return next(tenant for tenant in stack.status()["tenants"] if tenant["priority"] == priority)["gpus"][0]


class Elastic(unittest.TestCase):
    def test_hp_allocates_what_lp_holds(self):
        # Two contexts and LP's memory leave room for two of HP's four chunks.
        with Stack(scale=0.1, mps=False, config=CONFIG, HB_SIM_MEMORY=str(1536 * MIB)) as stack:
            low = stack.start("low", "memory", CHUNK, 1, 1, options=("--memory", "384MiB"))
            self.assertEqual(low.expect("granted"), f"granted: {6 * CHUNK}, wrong: 0")
            wait_until("LP's memory can move", lambda: use_of(stack, "low")["elastic"]["movable"] == 6 * CHUNK)
            high = stack.start("high", "memory", CHUNK, 1, 1, options=("--memory", "256MiB"))
            self.assertEqual(high.expect("granted"), f"granted: {4 * CHUNK}, wrong: 0")
            use = use_of(stack, "low")
            self.assertGreaterEqual(use["elastic"]["host"], 2 * CHUNK)
            self.assertEqual(use["elastic"]["local"] + use["elastic"]["host"], 6 * CHUNK)
            self.assertEqual(use["memory_used"], 6 * CHUNK)
            for tenant in (high, low):
                tenant.go()
                self.assertEqual(tenant.ended(), 0)


if __name__ == "__main__":
    unittest.main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""HP gets memory that LP holds: the daemon orders a move, LP's shim carries it out
under LP's addresses, and HP's allocation succeeds."""
import unittest
import urllib.request

import prometheus_text
from stack import LIMIT, Stack, wait_until

MIB = 1 << 20
CHUNK = 8 * MIB  # small: the host copies it, and an order of the daemon expires after 2 s also on a busy machine
CONTEXT = 512 * MIB  # what the simulated driver takes for each context
CONFIG = "metrics: 127.0.0.1:0\nelastic_host: 1GiB\nrules:\n  - {priority: high, elastic: true}\n"


def use_of(stack, priority):
    return next(tenant for tenant in stack.status()["tenants"] if tenant["priority"] == priority)["gpus"][0]


def explain(stack):
    """What the daemon says about the last move and about the last need that was not met."""
    return f"last order: {use_of(stack, 'low')['elastic']['last']}, GPU: {stack.status()['gpus'][0]['elastic']}"


def metrics(stack):
    with urllib.request.urlopen(f"http://{stack.status()['daemon']['metrics']['address']}/metrics", timeout=LIMIT) as answer:
        return prometheus_text.read(answer.read().decode())


class Elastic(unittest.TestCase):
    def test_hp_allocates_what_lp_holds(self):
        # Two contexts and LP's memory leave room for two of HP's four chunks.
        with Stack(scale=0.1, mps=False, config=CONFIG, HB_SIM_MEMORY=str(2 * CONTEXT + 8 * CHUNK)) as stack:
            low = stack.start("low", "memory", CHUNK, 1, 1, options=("--memory", str(6 * CHUNK)))
            self.assertEqual(low.expect("granted"), f"granted: {6 * CHUNK}, wrong: 0")
            wait_until("LP's memory can move", lambda: use_of(stack, "low")["elastic"]["movable"] == 6 * CHUNK)
            high = stack.start("high", "memory", CHUNK, 1, 1, options=("--memory", str(4 * CHUNK)))
            granted = high.expect("granted")
            self.assertEqual(granted, f"granted: {4 * CHUNK}, wrong: 0", explain(stack))
            use = use_of(stack, "low")
            self.assertGreaterEqual(use["elastic"]["host"], 2 * CHUNK)
            self.assertEqual(use["elastic"]["local"] + use["elastic"]["host"], 6 * CHUNK)
            self.assertEqual(use["memory_used"], 6 * CHUNK)
            self.check_metrics(metrics(stack), use["elastic"])
            wait_until("LP's context is shown", lambda: CONTEXT <= (use_of(stack, "low")["memory_overhead"] or 0) < CONTEXT + CHUNK)
            for tenant in (high, low):
                tenant.go()
                self.assertEqual(tenant.ended(), 0)

    def test_what_does_not_fit_is_on_the_host(self):
        # The page tables of spare memory on the host need some of the half chunk.
        memory = CONTEXT + 6 * CHUNK + CHUNK // 2
        with Stack(scale=0.1, mps=False, config=f"elastic_host: {4 * CHUNK}\n", HB_SIM_MEMORY=str(memory)) as stack:
            low = stack.start("low", "memory", CHUNK, 1, 1, options=("--oversubscribe",))
            self.assertEqual(low.expect("granted"), f"granted: {10 * CHUNK}, wrong: 0")
            wait_until("the daemon knows what is where", lambda: use_of(stack, "low")["elastic"]["host"] == 4 * CHUNK)
            self.assertEqual(use_of(stack, "low")["elastic"]["local"], 6 * CHUNK)
            low.go()
            self.assertEqual(low.ended(), 0)

    def test_an_idle_program_gives_its_memory_back(self):
        config = "elastic_host: 1GiB\nelastic_idle: 1s\n"
        with Stack(scale=0.1, mps=False, config=config, HB_SIM_MEMORY=str(CONTEXT + 6 * CHUNK)) as stack:
            low = stack.start("low", "hold", CHUNK, 6, options=("--elastic",))
            low.expect("holds")
            for times in (1, 2):
                wait_until("all of it is on the host", lambda: (use := use_of(stack, "low")["elastic"])["host"] == 6 * CHUNK and use["parked"])
                low.go()
                self.assertEqual(low.expect("wrong"), "wrong: 0")
                self.assertEqual(use_of(stack, "low")["elastic"]["home"]["bytes"], times * 6 * CHUNK, explain(stack))
            low.process.stdin.close()
            self.assertEqual(low.ended(), 0)

    def test_segments_that_the_program_makes_itself_move(self):
        config = CONFIG.replace("elastic_host", "elastic_return: 1s\nelastic_host")
        with Stack(scale=0.1, mps=False, config=config, HB_SIM_MEMORY=str(2 * CONTEXT + 8 * CHUNK)) as stack:
            low = stack.start("low", "segments", CHUNK, 6, options=("--elastic", "--memory", str(6 * CHUNK)))
            low.expect("holds")
            wait_until("LP's memory can move", lambda: use_of(stack, "low")["elastic"]["movable"] == 6 * CHUNK)
            high = stack.start("high", "memory", CHUNK, 1, 1, options=("--memory", str(4 * CHUNK)))
            self.assertEqual(high.expect("granted"), f"granted: {4 * CHUNK}, wrong: 0", explain(stack))
            use = use_of(stack, "low")
            self.assertGreaterEqual(use["elastic"]["host"], 2 * CHUNK)
            self.assertEqual(use["elastic"]["local"] + use["elastic"]["host"], 6 * CHUNK)
            self.assertEqual((use["memory_used"], use["elastic"]["stays"]), (6 * CHUNK, []))
            low.go()
            self.assertEqual(low.expect("wrong"), "wrong: 0")
            high.go()
            self.assertEqual(high.ended(), 0)
            wait_until("the memory is back", lambda: use_of(stack, "low")["elastic"]["local"] == 6 * CHUNK)
            low.go()
            self.assertEqual(low.expect("wrong"), "wrong: 0")
            low.process.stdin.close()
            self.assertEqual(low.ended(), 0)

    def check_metrics(self, families, elastic):
        for tier in ("local", "peer", "host"):
            self.assertEqual(families["hb_tenant_elastic_bytes"].values(tier=tier), [elastic[tier]])
        for direction in ("away", "home"):
            moves = elastic[direction]
            self.assertEqual(families["hb_tenant_memory_moves_total"].values(direction=direction), [moves["moves"]])
            self.assertEqual(families["hb_tenant_memory_moved_bytes_total"].values(direction=direction), [moves["bytes"]])
        self.assertGreater(sum(families["hb_tenant_memory_move_seconds_total"].values(direction="away")), 0)
        self.assertGreater(sum(families["hb_gpu_memory_needs_total"].values(result="met")), 0)
        self.assertEqual(families["hb_elastic_host_bytes"].values(state="configured"), [1 << 30])


if __name__ == "__main__":
    unittest.main()

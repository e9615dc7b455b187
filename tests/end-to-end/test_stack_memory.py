#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Status and doctor show memory and processes beyond what tenants allocated: the
contexts' own memory, and programs without Hummingbird."""
import json
import subprocess
import unittest

from stack import HB, LIMIT, Stack, tenants_of, wait_until

MIB = 1 << 20
CONTEXT = 512 * MIB  # of the simulated driver (docs/simcuda.md)


def doctor(stack, *options):
    """Returns {name: probe} and the exit status."""
    done = subprocess.run([HB, "doctor", "--gpu", "sim", "--json", *options], env=stack.environment,
                          capture_output=True, text=True, timeout=2 * LIMIT, check=False)
    return {probe["name"]: probe for probe in json.loads(done.stdout)["probes"]}, done.returncode


def use_of(status):
    return tenants_of(status)[0]["gpus"][0]


class OwnMemory(unittest.TestCase):
    def test_memory_of_contexts_is_shown_with_and_without_mps(self):
        for priority in ("high", "low"):
            with self.subTest(priority=priority), Stack(scale=0.1) as stack:
                tenant = stack.start(priority, "memory", MIB, 1, 1, options=("--memory", "8MiB"))
                tenant.expect("full")
                # The daemon shows the driver's last answer.
                wait_until("its context is shown", lambda: use_of(stack.status())["memory_overhead"])
                use = use_of(stack.status())
                self.assertEqual(use["memory_used"], 8 * MIB)
                self.assertEqual(use["memory_overhead"], CONTEXT)
                self.assertEqual(use["memory_overhead_why"], "")
                tenant.go()
                self.assertEqual(tenant.ended(), 0)

    def test_a_program_without_hummingbird_is_listed_until_it_ends(self):
        with Stack(scale=0.1) as stack:
            probes, status = doctor(stack)
            self.assertTrue(probes["all managed"]["works"], probes["all managed"])
            self.assertEqual(status, 0)
            stranger = stack.bare("--wait", "work", 1)
            stranger.expect("joined")
            wait_until("the program is listed", lambda: stack.status()["gpus"][0]["uncovered"])
            gpu = stack.status()["gpus"][0]
            self.assertEqual([(entry["pid"], entry["name"]) for entry in gpu["uncovered"]],
                             [(stranger.pid, "cuda-tenant")])
            self.assertGreaterEqual(gpu["uncovered"][0]["memory"], CONTEXT)
            probes, status = doctor(stack)
            self.assertFalse(probes["all managed"]["works"])
            self.assertEqual(probes["all managed"]["found"], f"cuda-tenant (pid {stranger.pid})")
            self.assertEqual(status, 0, "a warning, not a failure")
            stranger.go()
            stranger.expect("done")
            stranger.go()
            self.assertEqual(stranger.ended(), 0)
            wait_until("the list is empty", lambda: not stack.status()["gpus"][0]["uncovered"])

    def test_low_priority_goes_on_beside_a_busy_program_without_hummingbird(self):
        def slice_of_server():
            return [use["slice_us"] for tenant in stack.status()["tenants"] if tenant["priority"] == "mps server"
                    for use in tenant["gpus"]]
        with Stack(scale=0.1) as stack:
            low = stack.start("low", "--wait", "work", 1)
            low.expect("joined")
            wait_until("the slice is tiny", lambda: slice_of_server() == [1])
            stranger = stack.bare("train", 20000, 0)
            wait_until("the slice is longer", lambda: slice_of_server() == [500])
            self.assertTrue(stack.status()["gpus"][0]["busy_outside"])
            stranger.process.kill()
            wait_until("the slice is tiny again", lambda: slice_of_server() == [1])
            low.go()
            low.expect("done")
            low.go()
            self.assertEqual(low.ended(), 0)


if __name__ == "__main__":
    unittest.main()

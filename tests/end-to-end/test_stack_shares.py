#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Shares of the GPU among tenants of low priority in one MPS server: equal weights run at the same time, others take turns in
proportion to their weights. Turns are counted, no time is judged."""
import re
import signal
import subprocess
import unittest

from stack import HB, Stack, end_well, wait_until

TRAINING_US = 300


def turns(stack, programs):
    pids = {tenant["pid"]: tenant for tenant in stack.tenants()}
    return [pids[program.pid]["gpus"][0]["turns"] for program in programs]


def server_slice(stack):
    """The compute slice that the MPS server has set, in words; None before it registered."""
    for tenant in stack.status()["tenants"]:
        if tenant["priority"] == "mps server":
            return tenant["gpus"][0]["mechanisms"][0]["why"]
    return None


class Slices(unittest.TestCase):
    def test_the_server_sets_new_slices_without_a_call_of_its_own(self):
        """The objective leaves slack, which LP gets as longer slices once 64 requests were seen."""
        with Stack() as stack:
            low = stack.start("low", "train", TRAINING_US, 0)
            low.expect("running")
            wait_until("the server has a tiny slice", lambda: (server_slice(stack) or "").startswith("1 us"))
            high = stack.start("high", "infer", "--rate", 200, "--seconds", 600, "--kernels", 1, "--kernel-us", 300,
                               options=("--slo", "40ms"))
            wait_until("the server has set a longer slice", lambda: re.match("[0-9]{2,} us on 1 groups", server_slice(stack)))
            high.signal(signal.SIGTERM)
            self.assertEqual(high.ended(), 0)
            end_well(low)


class Weights(unittest.TestCase):
    def start(self, stack, weight, *options):
        program = stack.start("low", "train", TRAINING_US, 0, options=("--weight", weight, *options))
        program.expect("running")
        return program

    def check_turns(self, stack, light, heavy):
        """The heavy program has three turns for each one of the light."""
        wait_until("both had turns", lambda: min(turns(stack, (light, heavy))) > 1)
        before = turns(stack, (light, heavy))
        wait_until("the heavy program had many", lambda: turns(stack, (light, heavy))[1] - before[1] >= 18)
        had = [after - first for after, first in zip(turns(stack, (light, heavy)), before)]
        self.assertTrue(3 <= had[0] <= 10, had)  # the end of a turn counts for its holder, and the numbers are read one after the other

    def end(self, *programs):
        for program in programs:
            program.signal(signal.SIGTERM)
            self.assertTrue(program.result()["right"])

    def test_turns_are_in_proportion_to_weights(self):
        for engine in ("temporal", "spatial"):
            with self.subTest(engine=engine), Stack() as stack:
                light, heavy = self.start(stack, 1, "--engine", engine), self.start(stack, 3, "--engine", engine)
                self.assertEqual(stack.status()["gpus"][0]["engine"], engine)
                self.check_turns(stack, light, heavy)
                self.end(light, heavy)

    def test_a_changed_weight_takes_effect_and_a_lone_program_has_the_gpu(self):
        with Stack() as stack:
            light, heavy = self.start(stack, 1), self.start(stack, 1)
            self.assertEqual(turns(stack, (light, heavy)), [0, 0])  # equal weights: no turns
            number = next(tenant["id"] for tenant in stack.tenants() if tenant["pid"] == heavy.pid)
            done = subprocess.run([HB, "set", str(number), "--gpu", "sim", "--weight", "3"], env=stack.environment,
                                  capture_output=True, text=True, check=True)
            self.assertIn("weight 3", done.stdout)
            self.check_turns(stack, light, heavy)
            self.end(heavy)
            had = turns(stack, (light,))
            self.assertEqual(stack.tenants()[0]["gpus"][0]["gate"], "open")
            self.assertEqual(turns(stack, (light,)), had)
            self.end(light)


class Copies(unittest.TestCase):
    def test_pcie_weights_set_copy_slices_in_both_engines(self):
        for engine in ("temporal", "spatial"):
            with self.subTest(engine=engine), Stack() as stack:
                def slices(stack=stack):
                    return [tenant["gpus"][0]["copy_slice_us"] for tenant in stack.tenants()]
                lows = []
                for options, expected in (((), [1]), (("--pcie-weight", 3), [7, 27])):
                    lows.append(stack.start("low", "train", TRAINING_US, 0, options=("--engine", engine, *options)))
                    lows[-1].expect("running")
                    self.assertEqual(slices(), expected)
                self.assertEqual(turns(stack, lows), [0, 0])  # their weights for the GPU are equal
                for low in lows:
                    low.signal(signal.SIGTERM)
                    self.assertTrue(low.result()["right"])


class Minimum(unittest.TestCase):
    def mechanism(self, stack, priority, name):
        use = next(tenant["gpus"][0] for tenant in stack.tenants() if tenant["priority"] == priority)
        return next(one for one in use["mechanisms"] if one["mechanism"] == name)

    def slices(self, stack):
        return {tenant["priority"]: tenant["gpus"][0]["slice_us"] for tenant in stack.status()["tenants"]}

    def test_low_priority_has_slices_while_high_priority_leaves_it_nothing(self):
        with Stack(config="low_minimum: 20%\n") as stack:
            low = stack.start("low", "train", TRAINING_US, 0)
            low.expect("running")
            self.assertEqual(self.slices(stack)["mps server"], 1)
            # Kernels so long that the GPU has no pause, however late a loaded machine launches the next one.
            high = stack.start("high", "train", 200000, 0, options=("--slo", "1ms"))
            high.expect("running")
            self.assertIn("guaranteed minimum of 20 % of the GPU", high.stderr())
            wait_until("low priority has slices", lambda: self.slices(stack)["mps server"] > 100)
            self.assertGreater(self.slices(stack)["high"], 100)
            self.assertIn("20 % of the GPU", self.mechanism(stack, "low", "low minimum")["why"])
            self.assertIn("leaves high priority", self.mechanism(stack, "high", "low minimum")["why"])
            for program in (high, low):
                program.signal(signal.SIGTERM)
            self.assertTrue(high.result()["right"])
            self.assertTrue(low.result()["right"])

    def test_an_objective_that_the_minimum_contradicts_is_reported(self):
        with Stack(config="low_minimum: 20%\n", scale=0.5) as stack:
            service = stack.start("high", "infer", "--rate", 100, "--seconds", 2, options=("--slo", "1ms"))
            wait_until("the daemon runs", stack.status)
            wait_until("the daemon knows how long a request takes", lambda: any(
                "cannot be kept" in one["why"] for tenant in stack.tenants() for use in tenant["gpus"]
                for one in use["mechanisms"]))
            self.assertFalse(self.mechanism(stack, "high", "low minimum")["enforced"])
            wait_until("the log says so", lambda: any("cannot be kept" in text for _, text in stack.logs()))
            service.output()


unittest.main(verbosity=2)

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`engine: auto` over the whole stack on a simulated GPU: what each engine showed for a program is remembered, both are
tried, and hb status says what was chosen and why."""
import os
import signal
import unittest

from stack import BUILD, Stack, wait_until

SERVICE = os.path.join(BUILD, "bench/simcuda/sim_infer")


def by_priority(stack):
    return {tenant["priority"]: tenant for tenant in stack.tenants()}


class Auto(unittest.TestCase):
    def live(self, stack, *options):
        """A life of the service beside low priority, long enough to tell; the engine it was in, and why."""
        service = stack.start("high", "--rate", 200, "--seconds", 1.5, "--kernels", 4, program=SERVICE,
                              options=("--slo", "p50=60s", *options))
        found = wait_until("high is there", lambda: by_priority(stack).get("high"))
        wait_until("its GPU is known", lambda: by_priority(stack)["high"]["gpus"])
        engine = stack.status()["gpus"][0]["engine"]
        service.output()
        wait_until("it has left", lambda: "high" not in by_priority(stack))
        return engine, found["engine_why"]

    def test_auto_tries_both_and_says_what_it_knows(self):
        with Stack(scale=2, config="engine: auto\n") as stack:
            low = stack.start("low", "train", 300, 0)
            low.expect("running")
            self.assertEqual(self.live(stack), ("temporal", ""))
            known = stack.status()["engines"]
            self.assertEqual([(pair["temporal"]["lives"], pair["spatial"]["lives"]) for pair in known], [(1, 0)])
            self.assertEqual(known[0]["temporal"]["attainment_ppm"], 1000000)
            self.assertIn("train", known[0]["low"])
            engine, why = self.live(stack)
            self.assertEqual(engine, "spatial")
            self.assertRegex(why, r"^spatial: beside .*train.*: temporal 100.0 % met, low at .* \(1 life\); spatial not tried$")
            known = stack.status()["engines"]
            self.assertEqual([(pair["temporal"]["lives"], pair["spatial"]["lives"]) for pair in known], [(1, 1)])
            low.signal(signal.SIGTERM)
            self.assertTrue(low.result()["right"])

    def test_nothing_is_tried_unless_the_configuration_says_so(self):
        with Stack(scale=2) as stack:
            low = stack.start("low", "train", 300, 0)
            low.expect("running")
            for _ in range(2):
                self.assertEqual(self.live(stack), ("temporal", ""))
            low.signal(signal.SIGTERM)
            low.result()

    def test_an_engine_that_was_asked_for_is_not_chosen(self):
        with Stack(scale=2, config="engine: auto\n") as stack:
            low = stack.start("low", "train", 300, 0)
            low.expect("running")
            self.live(stack)
            self.assertEqual(self.live(stack, "--engine", "temporal"), ("temporal", ""))
            known = stack.status()["engines"]
            self.assertEqual([(pair["temporal"]["lives"], pair["spatial"]["lives"]) for pair in known], [(2, 0)])
            low.signal(signal.SIGTERM)
            low.result()

    def test_auto_does_not_try_what_cannot_be(self):
        with Stack(scale=2, config="engine: auto\n") as stack:
            low = stack.start("low", "train", 300, 0)
            low.expect("running")
            self.live(stack)
            outside = stack.start("high", "--wait", "work", 1, options=("--engine", "temporal"))
            outside.expect("joined")
            service = stack.start("high", "--rate", 200, "--seconds", 1.5, "--kernels", 4, program=SERVICE,
                                  options=("--slo", "p50=60s"))
            why = wait_until("it is explained", lambda: next(
                (one["engine_why"] for one in stack.tenants() if "sim_infer" in one["command"]), None))
            self.assertRegex(why, "^temporal: .*; spatial cannot be tried now$")
            service.output()
            outside.go()
            outside.go()
            outside.output()
            low.signal(signal.SIGTERM)
            low.result()


if __name__ == "__main__":
    unittest.main()

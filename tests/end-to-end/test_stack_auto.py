#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`engine: auto` over the whole stack on a simulated GPU: what each engine showed for a program is remembered, both are
tried, and hb status says what was chosen and why. A life of the service tells something only with enough requests and
enough time beside low priority; a machine that pauses may have it tell nothing, so lives are led until one told something."""
import json
import signal
import unittest
import urllib.request

from stack import LIMIT, Stack, wait_until

# Three times what a life needs (HB_LIFE_REQUESTS); at this rate they come in three seconds.
REQUESTS = 300


def service_of(stack):
    """The service as the daemon sees it once it is at work; None before."""
    found = [tenant for tenant in stack.tenants() if "cuda-tenant infer" in tenant["command"] and tenant["gpus"]]
    return found[0] if found else None


def lives(stack):
    """How many lives told something, in this engine and in that."""
    pairs = stack.status()["engines"]
    return {engine: sum(pair[engine]["runs"] for pair in pairs) for engine in ("temporal", "spatial")}


class Auto(unittest.TestCase):
    def train(self, stack):
        low = stack.start("low", "train", 300, 0)
        low.expect("running")
        return low

    def end(self, low):
        low.signal(signal.SIGTERM)
        self.assertTrue(low.result()["right"])

    def begin(self, stack, *options):
        """The service, which serves until it is told to end, at work; the GPU's engine with it, and why."""
        service = stack.start("high", "infer", "--rate", 200, "--seconds", 3600, "--kernels", 4,
                              options=("--slo", "p50=60s", *options))
        why = wait_until("the service is at work", lambda: service_of(stack))["engine_why"]
        return service, stack.status()["gpus"][0]["engine"], why

    def leave(self, stack, service):
        service.signal(signal.SIGTERM)
        self.assertIn("results=right", service.output()[-1])
        wait_until("it has left", lambda: not any("cuda-tenant infer" in tenant["command"] for tenant in stack.tenants()))

    def life(self, stack, *options):
        """A life that tells something: the engine it was in, and why. Those before it, which told nothing, were in no other."""
        before, seen = lives(stack), []

        def has_told():
            service, engine, why = self.begin(stack, *options)
            seen.append((engine, why))
            wait_until("it has served", lambda: service_of(stack)["gpus"][0]["scheduling"]["requests_judged"] >= REQUESTS)
            self.leave(stack, service)
            return lives(stack) != before
        wait_until("a life tells something", has_told)
        self.assertEqual(len(set(seen)), 1, seen)
        engine, why = seen[0]
        self.assertEqual(lives(stack), before | {engine: before[engine] + 1})
        return engine, why

    def page(self, stack):
        """The status as served over HTTP."""
        address = stack.status()["daemon"]["metrics"]["address"]
        with urllib.request.urlopen(f"http://{address}/status.json", timeout=LIMIT) as answer:
            return json.load(answer)

    def test_auto_tries_both_and_says_what_it_knows(self):
        with Stack(scale=2, config="engine: auto\nmetrics: 127.0.0.1:0\n") as stack:
            low = self.train(stack)
            self.assertEqual(self.life(stack), ("temporal", ""))
            known = stack.status()["engines"]
            self.assertEqual([(pair["temporal"]["runs"], pair["spatial"]["runs"]) for pair in known], [(1, 0)])
            self.assertEqual(known[0]["temporal"]["attainment_ppm"], 1000000)
            self.assertIn("train", known[0]["low"])
            # Whoever can connect reads this: programs without their arguments.
            self.assertEqual([(pair["high"], pair["low"]) for pair in self.page(stack)["engines"]], [("cuda-tenant", "cuda-tenant")])
            engine, why = self.life(stack)
            self.assertEqual(engine, "spatial")
            self.assertRegex(why, r"^spatial: beside cuda-tenant train .*: temporal 100.0 % met, low at .* \(1 run\); spatial not tried$")
            known = stack.status()["engines"]
            self.assertEqual([(pair["temporal"]["runs"], pair["spatial"]["runs"]) for pair in known], [(1, 1)])
            service, _, why = self.begin(stack)
            self.assertIn("train 300", why)
            self.assertNotIn("train 300", json.dumps(self.page(stack)))
            self.leave(stack, service)
            self.end(low)

    def test_nothing_is_tried_unless_the_configuration_says_so(self):
        with Stack(scale=2) as stack:
            low = self.train(stack)
            for _ in range(2):
                self.assertEqual(self.life(stack), ("temporal", ""))
            self.end(low)

    def test_an_engine_that_was_asked_for_is_not_chosen(self):
        with Stack(scale=2, config="engine: auto\n") as stack:
            low = self.train(stack)
            self.life(stack)
            self.assertEqual(self.life(stack, "--engine", "temporal"), ("temporal", ""))
            known = stack.status()["engines"]
            self.assertEqual([(pair["temporal"]["runs"], pair["spatial"]["runs"]) for pair in known], [(2, 0)])
            self.end(low)

    def test_auto_does_not_try_what_cannot_be(self):
        with Stack(scale=2, config="engine: auto\n") as stack:
            low = self.train(stack)
            self.life(stack)
            outside = stack.start("high", "--wait", "work", 1, options=("--engine", "temporal"))
            outside.expect("joined")
            service, engine, why = self.begin(stack)
            self.assertEqual(engine, "temporal")
            self.assertRegex(why, "^temporal: .*; spatial is not possible now$")
            self.leave(stack, service)
            outside.go()
            outside.go()
            outside.output()
            self.end(low)


if __name__ == "__main__":
    unittest.main()

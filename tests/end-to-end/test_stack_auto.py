#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`engine: auto` with the complete stack on a simulated GPU: the daemon tries both engines for a program, remembers what a run
of it showed, and `hb status` says what was chosen and why. A run of the service counts only with enough requests and enough
time beside low priority. If the machine pauses, a run may not count, so runs are repeated until one does."""
import json
import os
import signal
import subprocess
import tempfile
import unittest
import urllib.request

from stack import HB, LIMIT, Stack, wait_until

# More than the requests that a run needs (HB_ENGINE_RUN_REQUESTS). A loaded machine can serve them at this rate, one after the
# other: they arrive in three seconds.
REQUESTS, RATE = 150, 100
# Long enough for a machine that pauses. With a much longer one low priority may have the GPU for so long that the requests do not
# arrive in time: the engine uses the slack.
SLO = "p50=2s"
AUTO = "engine: auto\nisolation: shared\n"


def service_of(stack):
    """The daemon's view of the service; None until it works."""
    found = [tenant for tenant in stack.tenants() if "cuda-tenant infer" in tenant["command"] and tenant["gpus"]]
    return found[0] if found else None


def count_runs(stack):
    """How many runs counted, by engine."""
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
        """Starts the service and waits until it works. Returns it with the GPU's engine and the reason."""
        service = stack.start("high", "infer", "--rate", RATE, "--seconds", 3600, "--kernels", 4,
                              options=("--slo", SLO, *options))
        why = wait_until("the service works", lambda: service_of(stack))["engine_why"]
        return service, stack.status()["gpus"][0]["engine"], why

    def leave(self, stack, service):
        service.signal(signal.SIGTERM)
        self.assertIn("results=right", service.output()[-1])
        wait_until("the service has left", lambda: not any("cuda-tenant infer" in tenant["command"] for tenant in stack.tenants()))

    def run_until_counted(self, stack, *options):
        """Repeats the service until a run counts. Returns its engine and the reason; runs that did not count had the same engine."""
        before, seen = count_runs(stack), []

        def has_counted():
            service, engine, why = self.begin(stack, *options)
            seen.append((engine, why))
            wait_until("the service has served its requests", lambda: service_of(stack)["gpus"][0]["scheduling"]["requests_judged"] >= REQUESTS)
            self.leave(stack, service)
            return count_runs(stack) != before
        wait_until("a run counts", has_counted)
        self.assertEqual(len(set(seen)), 1, seen)
        engine, why = seen[0]
        self.assertEqual(count_runs(stack), before | {engine: before[engine] + 1})
        return engine, why

    def page(self, stack):
        """The status as served over HTTP."""
        address = stack.status()["daemon"]["metrics"]["address"]
        with urllib.request.urlopen(f"http://{address}/status.json", timeout=LIMIT) as answer:
            return json.load(answer)

    def test_auto_tries_both_engines_and_reports_what_it_knows(self):
        with Stack(scale=2, config=AUTO + "metrics: 127.0.0.1:0\n") as stack:
            low = self.train(stack)
            self.assertEqual(self.run_until_counted(stack), ("temporal", ""))
            known = stack.status()["engines"]
            self.assertEqual([(pair["temporal"]["runs"], pair["spatial"]["runs"]) for pair in known], [(1, 0)])
            self.assertEqual(known[0]["temporal"]["attainment_ppm"], 1000000)
            self.assertIn("train", known[0]["low"])
            # Every process that can connect reads this, so programs are shown without their arguments.
            self.assertEqual([(pair["high"], pair["low"]) for pair in self.page(stack)["engines"]], [("cuda-tenant", "cuda-tenant")])
            engine, why = self.run_until_counted(stack)
            self.assertEqual(engine, "spatial")
            self.assertRegex(why, r"^spatial: beside cuda-tenant train .*: temporal 100.0 % met, low at .* \(1 run\); spatial not tried$")
            known = stack.status()["engines"]
            self.assertEqual([(pair["temporal"]["runs"], pair["spatial"]["runs"]) for pair in known], [(1, 1)])
            service, _, why = self.begin(stack)
            self.assertIn("train 300", why)
            self.assertNotIn("train 300", json.dumps(self.page(stack)))
            self.leave(stack, service)
            self.end(low)

    def test_no_engine_is_tried_unless_the_configuration_says_auto(self):
        with Stack(scale=2) as stack:
            low = self.train(stack)
            for _ in range(2):
                self.assertEqual(self.run_until_counted(stack), ("temporal", ""))
            self.end(low)

    def test_auto_keeps_high_priority_isolated_unless_the_operator_allows_it(self):
        with Stack(scale=2, config="engine: auto\n") as stack:
            low = self.train(stack)
            self.run_until_counted(stack)
            engine, why = self.run_until_counted(stack)
            self.assertEqual(engine, "temporal")
            self.assertRegex(why, "^temporal: .*; `isolation: strict` keeps high priority out of the MPS server$")
            self.end(low)

    def test_a_new_daemon_knows_what_the_last_one_learned(self):
        with tempfile.TemporaryDirectory() as folder, \
                Stack(scale=2, config=AUTO + "idle_exit: 1s\n", XDG_STATE_HOME=folder) as stack:
            low = self.train(stack)
            self.run_until_counted(stack)
            first = stack.status()["daemon"]["pid"]
            self.end(low)
            wait_until("the daemon has ended", lambda: not os.path.exists(f"/proc/{first}"))
            low = self.train(stack)
            self.assertNotEqual(stack.status()["daemon"]["pid"], first)
            self.assertEqual(self.run_until_counted(stack)[0], "spatial")

            def kept_runs():
                with open(os.path.join(folder, "hummingbird/engines.json"), encoding="utf-8") as file:
                    return [(pair["temporal"]["runs"], pair["spatial"]["runs"]) for pair in json.load(file)["pairs"]]
            # The daemon writes the file after its status has changed.
            wait_until("the file has both runs", lambda: kept_runs() == [(1, 1)])
            self.end(low)

    def test_the_other_engine_is_recommended_where_requests_leave_the_gpu_idle(self):
        """The requests of this service consist of copies. A service whose requests consist of kernels gets no such line."""
        def advice(stack):
            return {tenant["pid"]: use["engine_advice"] for tenant in stack.tenants() for use in tenant["gpus"]}

        # Measuring takes long, so the two services run at the same time, each on a GPU of its own.
        with Stack(scale=2) as stack, Stack(scale=2) as other:
            idle = stack.start("high", "infer", "--rate", 200, "--seconds", 3600, "--kernels", 1, "--input-kb", 120000,
                               options=("--slo", "p50=60s"))
            busy = other.start("high", "infer", "--rate", 2, "--seconds", 3600, "--kernels", 1, "--kernel-us", 100000, "--input-kb", 1,
                               options=("--slo", "p50=60s"))
            wait_until("the daemons answer", lambda: stack.status() and other.status())
            wait_until("the daemon recommends the spatial engine", lambda: any(advice(stack).values()))
            self.assertRegex("".join(advice(stack).values()),
                             r"^A request is present \d+ % of the time but the GPU is busy \d %: --engine spatial would give low "
                             r"priority about \d+ % \(shares MPS's fault domain\)$")
            for command in (("status",), ("top", "--once")):
                shown = subprocess.run([HB, *command, "--gpu", "sim"], env=stack.environment, capture_output=True, text=True, check=True)
                self.assertIn("--engine spatial would give", " ".join(shown.stdout.split()))
            self.leave(stack, idle)
            wait_until("enough was measured", lambda: other.tenants() and other.tenants()[0]["age_ns"] > 25e9)
            self.assertEqual(set(advice(other).values()), {""})
            self.leave(other, busy)

    def test_a_requested_engine_is_not_replaced(self):
        with Stack(scale=2, config=AUTO) as stack:
            low = self.train(stack)
            self.run_until_counted(stack)
            self.assertEqual(self.run_until_counted(stack, "--engine", "temporal"), ("temporal", ""))
            known = stack.status()["engines"]
            self.assertEqual([(pair["temporal"]["runs"], pair["spatial"]["runs"]) for pair in known], [(2, 0)])
            self.end(low)

    def test_auto_does_not_try_an_engine_that_is_not_possible(self):
        with Stack(scale=2, config=AUTO) as stack:
            low = self.train(stack)
            self.run_until_counted(stack)
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

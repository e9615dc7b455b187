#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Requests of real programs on a simulated GPU, as `hb status` shows them: the daemon
sees them without help of the program, compares them with the objective, and
attributes misses to causes. An objective that no request can meet makes every
request a miss, so the tests check the cause and not the speed of the machine.
test_daemon_requests.c, which can choose times, tests the switch as a cause."""
import json
import os
import signal
import subprocess
import sys
import unittest

from stack import BUILD, HB, LIMIT, Stack, wait_until

HERE = os.path.dirname(os.path.abspath(__file__))
LOAD = os.path.join(HERE, "../../bench/http_load.py")
SERVER = os.path.join(BUILD, "bench/simcuda/sim_http")
SIMCUDA_PYTHON = os.path.join(HERE, "../../bench/simcuda")
MODULE = os.path.join(HERE, "../../python")
WORK = ("400", "200")  # microseconds of the kernel, and on the CPU before it
NEVER_MET = "1us"
ENDLESS_US = 3600e6
MISSES = ("missed_switch", "missed_low", "missed_high", "missed_queue", "missed_alone")

# Two requests of two threads: the second begins while the first runs, ends after it, and misses its deadline.
OVERLAPPING = """
import threading, hummingbird, sim_http
gpu = sim_http.Gpu(200)
gpu.infer()
first_began, second_began, first_ended = threading.Event(), threading.Event(), threading.Event()
def first():
    with hummingbird.request():
        first_began.set()
        gpu.infer()
        second_began.wait()
    first_ended.set()
def second():
    first_began.wait()
    with hummingbird.request(deadline=0.000001):
        second_began.set()
        first_ended.wait()
        gpu.infer()
threads = [threading.Thread(target=body) for body in (first, second)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print("told", flush=True)
input()
"""


def load(port, seconds=0.3, rate=100):
    done = subprocess.run([sys.executable, LOAD, "--port", port, "--bytes", "2000", "--connections", "1", "--rate",
                           str(rate), "--seconds", str(seconds)], capture_output=True, text=True, check=True,
                          timeout=LIMIT)
    return json.loads(done.stdout)


class Requests(unittest.TestCase):
    def serve(self, stack, *options):
        server = stack.start("high", *WORK, options=options, program=SERVER)
        return server, server.expect("port").split()[1]

    def use(self, stack, which=0):
        """The first tenant's GPU in the status. Also checks the rules that hold at any time."""
        tenant = sorted(stack.tenants(), key=lambda tenant: tenant["id"])[which]
        use = tenant["gpus"][0]
        counts = use["scheduling"]
        self.assertEqual(use["requests"], counts["requests_ended"])
        self.assertEqual(counts["requests_judged"], counts["requests_met"] + sum(counts[name] for name in MISSES))
        if counts["requests_judged"]:
            self.assertEqual(use["attainment_ppm"], counts["requests_met"] * 1000000 // counts["requests_judged"])
        return use

    def counts(self, stack):
        return self.use(stack)["scheduling"]

    def load_until(self, stack, port, what, condition):
        def done():
            load(port)
            return condition(self.counts(stack))
        wait_until(what, done)

    def always_busy(self, stack):
        """Starts a low-priority program that always has work on the GPU, however slow the machine is: an endless kernel."""
        low = stack.start("low", "train", ENDLESS_US, 1)
        low.expect("running")
        return low

    def kill(self, low):
        low.signal(signal.SIGKILL)
        low.ended()

    def end(self, *programs):
        for program in programs:
            program.signal(signal.SIGTERM)
            program.ended()

    # --- objectives ---------------------------------------------------------------------------

    def test_requests_are_judged_by_a_given_objective(self):
        with Stack() as stack:
            server, port = self.serve(stack, "--slo", "p95=60s")
            self.load_until(stack, port, "requests are seen", lambda counts: counts["requests_judged"] >= 20)
            use = self.use(stack)
            self.assertEqual((use["slo_ns"], use["attainment_ppm"]), (60 * 10**9, 1000000))
            self.assertEqual(use["latency"]["count"], use["requests"])
            self.assertGreaterEqual(use["latency"]["p50_ns"], 350000)  # the kernel alone takes longer
            self.assertGreaterEqual(use["latency"]["p99_ns"], use["latency"]["p50_ns"])
            said = subprocess.run([HB, "status", "--gpu", "sim"], env=stack.environment, capture_output=True, text=True,
                                  check=True, timeout=LIMIT).stdout
            # After a pause of the machine too many requests for their ring may have arrived at once.
            self.assertRegex(said, r"requests +\d+, p50 [0-9.]+[mu]?s, p99 [0-9.]+[mu]?s(, \d+ more came too fast to be read)?\n")
            self.assertRegex(said, r"objective +60s for 95 % of requests: met by 100.00 %\n")
            self.assertNotIn("missed", said)
            # From now on no request can meet the objective.
            changed = subprocess.run([HB, "set", str(stack.tenants()[0]["id"]), "--gpu", "sim", "--slo", NEVER_MET],
                                     env=stack.environment, capture_output=True, text=True, check=True, timeout=LIMIT)
            self.assertIn("slo 1us for 99 % of requests", changed.stdout)
            self.load_until(stack, port, "requests miss", lambda counts: counts["missed_alone"] >= 5)
            self.end(server)

    def test_an_automatic_objective_is_learned_while_alone(self):
        with Stack() as stack:
            server, port = self.serve(stack, "--slo", "auto")
            load(port)
            self.assertEqual(self.use(stack)["slo_ns"], 0)
            self.assertIsNone(self.use(stack)["attainment_ppm"])
            self.load_until(stack, port, "an objective is learned", lambda counts: counts["requests_alone"] >= 100)
            self.assertGreaterEqual(self.use(stack)["slo_ns"], 350000)  # the kernel alone takes longer
            self.load_until(stack, port, "it is judged by", lambda counts: counts["requests_judged"] > 0)
            self.end(server)

    def test_an_automatic_objective_is_not_learned_beside_others(self):
        with Stack() as stack:
            low = self.always_busy(stack)
            server = stack.start("high", *WORK, options=("--slo", "auto"), program=SERVER)
            port = server.expect("port").split()[1]
            # Alone these requests would be more than enough to learn from.
            wait_until("requests are seen", lambda: load(port, rate=200) and self.use(stack, which=1)["requests"] > 150)
            use = self.use(stack, which=1)
            self.assertEqual((use["slo_ns"], use["scheduling"]["requests_alone"]), (0, 0))
            self.end(server)
            self.kill(low)

    # --- causes ---------------------------------------------------------------------------------

    def test_misses_are_attributed_to_low_priority_or_to_the_service(self):
        with Stack() as stack:
            server, port = self.serve(stack, "--slo", NEVER_MET)
            self.load_until(stack, port, "misses alone", lambda counts: counts["missed_alone"] >= 10)
            counts = self.counts(stack)
            self.assertEqual([counts[name] for name in MISSES[:-1]], [0, 0, 0, 0])
            low = self.always_busy(stack)
            self.load_until(stack, port, "misses beside low priority", lambda counts: counts["missed_low"] >= 10)
            alone = self.counts(stack)["missed_alone"]
            load(port)
            self.assertEqual(self.counts(stack)["missed_alone"], alone)
            self.kill(low)
            wait_until("the low-priority tenant has left", lambda: len(stack.tenants()) == 1)
            self.load_until(stack, port, "misses alone again", lambda counts: counts["missed_alone"] > alone)
            low_and_switch = [self.counts(stack)[name] for name in MISSES[:2]]
            load(port)
            self.assertEqual([self.counts(stack)[name] for name in MISSES[:2]], low_and_switch)
            self.end(server)

    def test_an_idle_low_priority_tenant_is_not_a_cause(self):
        with Stack() as stack:
            server, port = self.serve(stack, "--slo", NEVER_MET)
            low = stack.start("low", "--wait", "work", 2)
            low.expect("joined")
            low.go()
            low.expect("done")  # the tenant has worked and is idle
            wait_until("the daemon knows that its work is done", lambda: load(port) and self.counts(stack)["missed_alone"] > 0)
            self.end(server)
            low.go()
            low.output()

    def test_misses_beside_another_high_priority_tenant(self):
        with Stack() as stack:
            server, port = self.serve(stack, "--slo", NEVER_MET)
            other = stack.start("high", "train", 300, 0)
            other.expect("running")
            self.load_until(stack, port, "misses beside it", lambda counts: counts["missed_high"] >= 10)
            counts = self.counts(stack)
            self.assertEqual((counts["missed_low"], counts["missed_switch"]), (0, 0))
            self.end(server, other)

    def test_misses_behind_the_same_tenants_requests(self):
        with Stack() as stack:
            client = stack.start("high", "-c", OVERLAPPING, program=sys.executable,
                                 PYTHONPATH=MODULE + ":" + SIMCUDA_PYTHON)
            client.expect("told")
            wait_until("the daemon knows both requests", lambda: self.use(stack)["requests"] >= 3)
            counts = self.counts(stack)
            self.assertEqual((counts["requests_judged"], counts["missed_queue"]), (1, 1))
            client.go()
            client.output()

    # --- takeovers ------------------------------------------------------------------------------------

    def test_status_says_why_takeovers_are_off(self):
        with Stack() as stack:
            low = stack.start("low", "train", 300, 0)
            low.expect("running")
            server = stack.start("high", *WORK, program=SERVER, HB_SIM_FAIL="cuStreamCreateWithPriority:2")
            port = server.expect("port").split()[1]

            def faults():
                load(port)
                return [process["takeover_fault"] for tenant in stack.tenants() for process in tenant["processes"]
                        if process["takeover_fault"]]
            self.assertEqual(wait_until("takeovers are off", faults), ["the driver creates no stream for the takeover kernels"])
            said = subprocess.run([HB, "status", "--gpu", "sim"], env=stack.environment, capture_output=True, text=True,
                                  check=True, timeout=LIMIT).stdout
            self.assertRegex(said, r"takeovers +off in process \d+: the driver creates no stream for the takeover kernels\n")
            self.end(server, low)


if __name__ == "__main__":
    unittest.main()

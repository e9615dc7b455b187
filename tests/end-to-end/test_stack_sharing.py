#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Shares of one GPU that tenants of different priority get, and limits that they
cannot exceed. Times are GPU time of the model. Processes run in real time, so
noise.py judges times."""
import json
import os
import re
import signal
import subprocess
import unittest

from noise import above, judge, near
from stack import HB, Stack, wait_until

RATE = 100
TRAINING_US = 300
MIB = 1 << 20


def write_trace(path):
    """Writes the work of `cuda-tenant infer` and `cuda-tenant train` in the format of hb sim."""
    rows = ["service,0,memcpy,Memcpy HtoD (Pinned -> Device),0,13,,,,,614400"]
    rows += [f"service,0,kernel,work,{14 + 10 * i},9,132x1x1,256x1x1,32,0," for i in range(80)]
    rows += ["service,0,kernel,step,814,1,264x1x1,512x1x1,32,0,",
             "service,0,memcpy,Memcpy DtoH (Device -> Pinned),816,3,,,,,4096"]
    rows += [f"training,0,kernel,step,{(TRAINING_US + 1) * i},{TRAINING_US},264x1x1,512x1x1,32,0," for i in range(8)]
    with open(path, "w", encoding="utf-8") as file:
        file.write("workload,iteration,kind,name,start_us,duration_us,grid,block,registers,shared_bytes,bytes\n")
        file.write("\n".join(rows) + "\n")
    with open(path.replace(".csv", ".alone.csv"), "w", encoding="utf-8") as file:
        file.write(f"workload,alone_us,alone_graph_us\nservice,850,850\ntraining,{8 * (TRAINING_US + 1)},\n")


def predict(stack, sharing):
    trace = os.path.join(stack.folder, "trace.csv")
    write_trace(trace)
    done = subprocess.run([HB, "sim", "--trace", trace, "--high", f"service:graph@{RATE}/s", "--low", "training",
                           "--low", "training", "--sharing", sharing, "--seconds", "4", "--json"],
                          capture_output=True, text=True, check=True, env=stack.environment)
    found = json.loads(done.stdout)
    return found["high"][0]["p50_us"], found["low"][0]["relative"]


def p50_us(service):
    line = service.output()[-1]
    assert "results=right" in line, line
    return float(re.search(r"p50_us=([0-9.]+)", line)[1])


def end(training):
    training.signal(signal.SIGTERM)
    result = training.result()
    assert result["right"], result
    return result["share"]


class Sharing(unittest.TestCase):
    def measure(self, stack, service, training):
        """Returns p50 of the service beside two trainings, and the share of the GPU that one training gets."""
        trainings = [training(), training()]
        for program in trainings:
            program.expect("running")
        latency = p50_us(service("infer", "--rate", RATE, "--seconds", 0.4))
        return latency, [end(program) for program in trainings]

    def test_latency_beside_two_trainings_is_what_the_model_predicts(self):
        judge(self.latency_is_as_predicted)

    def latency_is_as_predicted(self, slowness):
        with Stack(scale=4 * slowness) as stack:
            native, native_shares = self.measure(stack, stack.bare,
                                                 lambda: stack.bare("train", TRAINING_US, 0))
            ours, shares = self.measure(stack, lambda *a: stack.start("high", *a),
                                        lambda: stack.start("low", "train", TRAINING_US, 0))
            native_predicted, _ = predict(stack, "timeslice")
            predicted, share_predicted = predict(stack, "temporal")
        complaints = above("p50 by time slices, over ours,", native / ours, 3)
        complaints += near("p50 by time slices", native, native_predicted, 1.8) + near("p50", ours, predicted, 1.6)
        for share, native_share in zip(shares, native_shares):
            complaints += near("a training's share", share, share_predicted, 1.2)
            complaints += above("a training's share, over that by time slices,", share / native_share, 1.5)
        return complaints

    def test_tenants_come_and_go_in_any_order(self):
        with Stack(scale=0.5) as stack:
            service = ("infer", "--rate", RATE, "--seconds", 0.1)
            first = stack.start("high", *service)
            low = stack.start("low", "train", TRAINING_US, 0)
            low.expect("running")
            p50_us(first)
            second = stack.start("high", "train", TRAINING_US, 0)
            second.expect("running")
            another = stack.start("low", "train", TRAINING_US, 200)
            p50_us(stack.start("high", *service))
            end(second)
            self.assertTrue(another.result()["right"])
            end(low)
            p50_us(stack.start("high", *service))

    def test_slices_are_in_force_and_shown(self):
        with Stack() as stack:
            tenants = [stack.start(priority, "--wait", "work", 1) for priority in ("high", "low")]
            for tenant in tenants:
                tenant.expect("joined")

            def compute_slice(priority):
                use = next(tenant["gpus"][0] for tenant in stack.tenants() if tenant["priority"] == priority)
                return next(one for one in use["mechanisms"] if one["mechanism"] == "compute slice")
            for priority in ("high", "low"):
                wait_until(f"the slice of {priority}", lambda of=priority: compute_slice(of)["enforced"])
            wait_until("low priority has the slice of its server", lambda: compute_slice("low")["why"].startswith(
                "1 us on the channel group of the MPS server"))
            view = {tenant["priority"]: tenant for tenant in stack.tenants()}
            self.assertTrue(view["low"]["mps"])
            self.assertFalse(view["high"]["mps"])
            for tenant in tenants:
                tenant.go()
                tenant.go()
                tenant.output()

    def test_slices_of_the_mps_server_follow_the_tenants(self):
        """Also after a tenant has left, when no other tenant makes a call into the driver."""
        def copy_slices(stack):
            found = [use["mechanisms"][1] for tenant in stack.tenants() for use in tenant["gpus"]]
            return [slice["why"] for slice in found if slice["enforced"]]

        with Stack() as stack:
            lows = []
            for expected in ("1 us", "17 us"):
                lows.append(stack.start("low", "--wait", "work", 1))
                lows[-1].expect("joined")
                wait_until(f"{expected} each", lambda: copy_slices(stack) == [
                    f"{expected} on the channel group of the MPS server, in which the tenant runs"] * len(lows))
            for _ in range(2):
                lows[0].go()
            lows[0].output()
            wait_until("the slice is 1 us again", lambda: copy_slices(stack) == ["1 us on the channel group of the MPS server, in which the tenant runs"])
            for _ in range(2):
                lows[1].go()
            lows[1].output()

    def test_a_refused_control_call_is_shown_and_harmless(self):
        with Stack() as stack:
            tenant = stack.start("high", "--wait", "work", 3, HB_SIM_RM_REFUSE="a06c0103")
            tenant.expect("joined")
            wait_until("the refusal is shown", lambda: "0x1b" in stack.tenants()[0]["gpus"][0]["mechanisms"][0]["why"])
            uses = stack.tenants()[0]["gpus"][0]["mechanisms"]
            self.assertEqual([use["enforced"] for use in uses], [False, False])
            tenant.go()
            tenant.go()
            tenant.output()

    def take_turns(self, how, slowness):
        """Returns complaints about p50 of the service beside two trainings that take turns, and about their shares."""
        with Stack(scale=3 * slowness, mps=how != "absent", **{"HB_SIM_NO_MPS": "1"} if how == "refused" else {}) as stack:
            options = ("--engine", "turns") if how == "asked for" else ()
            lows = [stack.start("low", "train", TRAINING_US, 0, options=options) for _ in range(2)]
            for low in lows:
                low.expect("running")
            self.assertEqual(stack.status()["gpus"][0]["engine"], "turns")
            wait_until("each training had several turns", lambda: all(
                tenant["gpus"][0]["turns"] >= 2 for tenant in stack.tenants()))
            latency = p50_us(stack.start("high", "infer", "--rate", RATE, "--seconds", 0.2))
            shares = [end(low) for low in lows]
        # Both trainings progress, and little time is unused.
        return above("p50, below 2000 us,", 2000 - latency, 0) + above("the lesser share", min(shares), 0.2) + above(
            "both shares", sum(shares), 0.65)

    def test_without_mps_low_priority_takes_turns(self):
        for how in ("refused", "absent", "asked for"):
            with self.subTest(how=how):
                judge(lambda slowness, how=how: self.take_turns(how, slowness))

    def test_a_launch_after_its_turn_blocks_no_other_tenant(self):
        """The launch spends 50 ms in the driver, like one that must load its kernel first. Its turn ends long before."""
        with Stack(scale=0.3, mps=False) as stack:
            others = [stack.start(priority, "train", TRAINING_US, 0) for priority in ("low", "high")]
            for other in others:
                other.expect("running")
            late = stack.start("low", "train", 2000, 5, HB_SIM_FAIL="cuLaunchKernel:0:slow=50")
            self.assertTrue(late.result()["right"])
            for other in others:
                end(other)

    def test_a_tenant_outside_the_mps_server_makes_all_take_turns(self):
        with Stack() as stack:
            # The tenant has worked and makes no call into CUDA while the engine changes.
            idle = stack.start("low", "--wait", "work", 3)
            idle.expect("joined")
            idle.go()
            idle.expect("done")
            inside = stack.start("low", "train", TRAINING_US, 0)
            inside.expect("running")
            self.assertEqual(stack.status()["gpus"][0]["engine"], "temporal")
            outside = stack.start("low", "train", TRAINING_US, 0, options=("--engine", "turns"))
            outside.expect("running")
            self.assertEqual(stack.status()["gpus"][0]["engine"], "turns")
            wait_until("each tenant had a turn", lambda: all(
                tenant["gpus"][0]["turns"] >= 2 for tenant in stack.tenants() if "train" in tenant["command"]))
            end(outside)
            wait_until("all tenants are in the MPS server again",
                       lambda: stack.status()["gpus"][0]["engine"] == "temporal")
            end(inside)
            idle.go()
            idle.output()

    def test_high_priority_tenants_share_in_proportion(self):
        judge(self.equals_share)

    def equals_share(self, slowness):
        with Stack(scale=2 * slowness) as stack:
            highs = [stack.start("high", "--wait", "train", TRAINING_US, 1000) for _ in range(2)]
            for high in highs:
                high.expect("joined")
            for high in highs:
                high.go()
                high.expect("running")
            for high in highs:
                high.expect("{")
                high.go()
            shares = [high.result()["share"] for high in highs]
        return [complaint for share in shares for complaint in near("the share of one of two equals", share, 0.5, 1.25)]


class Memory(unittest.TestCase):
    def test_a_limit_is_exact_under_threads_and_processes(self):
        chunk, limit = 3 * MIB + 4096, 200 * MIB
        for priority in ("high", "low"):
            with self.subTest(priority=priority), Stack(scale=0.1) as stack:
                tenant = stack.start(priority, "memory", chunk, 4, 3, options=("--memory", "200MiB"))
                self.assertEqual(tenant.expect("granted"), f"granted: {limit // chunk * chunk}, wrong: 0")
                tenant.expect("full")
                view = stack.tenants()[0]
                self.assertEqual(view["gpus"][0]["memory_used"], limit // chunk * chunk)
                self.assertEqual(len(view["processes"]), 3)
                self.assertGreater(view["counters"]["allocations_refused"], 0)
                tenant.go()
                tenant.output()

    def test_low_priority_does_not_get_the_reserve(self):
        # Each context takes half a GiB besides allocations, also that of the MPS server.
        with Stack(scale=0.1, config="reserve: 1700MiB\n", HB_SIM_MEMORY=str(6 << 30)) as stack:
            low = stack.start("low", "memory", 16 * MIB, 2, 1)
            granted = int(low.expect("granted").split()[1].rstrip(","))
            low.expect("full")
            self.assertGreater(granted, 2 << 30)
            high = stack.start("high", "--wait", "memory", 16 * MIB, 1, 1, options=("--memory", "64MiB"))
            self.assertEqual(high.expect("granted"), f"granted: {64 * MIB}, wrong: 0")
            high.go()
            high.output()
            low.go()
            low.output()
            stack.check_empty()


class Policy(unittest.TestCase):
    RULES = """rules:
  - name: batch
    user: {user}
    priority: low
    memory: 64MiB
"""

    def test_a_tenant_gets_no_more_than_its_rule_allows(self):
        user = subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip()
        with Stack(scale=0.1, config=self.RULES.format(user=user)) as stack:
            tenant = stack.start("high", "memory", MIB, 1, 1, options=("--memory", "1GiB"), HB_PRIORITY="high")
            self.assertEqual(tenant.expect("granted"), f"granted: {64 * MIB}, wrong: 0")
            tenant.expect("full")
            view = stack.tenants()[0]
            self.assertEqual(view["priority"], "low")
            self.assertIn("batch", view["reduced"])
            tenant.go()
            tenant.output()


if __name__ == "__main__":
    unittest.main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Programs on several GPUs at once, over the whole stack on simulated GPUs."""
import signal
import unittest

from stack import Stack, end_well, wait_until


def mechanisms(tenant):
    """One {mechanism: row} for each GPU of the tenant."""
    return [{row["mechanism"]: row for row in use["mechanisms"]} for use in tenant["gpus"]]


def counts_of_lows(stack):
    """(kernels, those of them that were masked) for each tenant of low priority."""
    return [(tenant["counters"]["kernels"], tenant["counters"]["masked"])
            for tenant in stack.tenants() if tenant["priority"] == "low"]


class Gpus(unittest.TestCase):
    def test_the_mps_server_registers_each_gpu_when_a_client_comes_to_it(self):
        with Stack(gpus=2, scale=0.2) as stack:
            lows = []
            for gpu in range(2):
                lows.append(stack.start("low", "train", 300, 0, options=("--engine", "spatial"), CUDA_VISIBLE_DEVICES=str(gpu)))
                lows[-1].expect("running")
                server = wait_until(f"the server is on {gpu + 1} GPUs", lambda n=gpu + 1: next(
                    (one for one in stack.status()["tenants"] if one["priority"] == "mps server" and len(one["gpus"]) == n), None))
                self.assertEqual(len({use["gpu"] for use in server["gpus"]}), gpu + 1)
            wait_until("the time slices of the server's channel groups are set on both GPUs", lambda: all(
                "on the channel group of the MPS server" in row["compute slice"]["why"] for tenant in stack.tenants()
                for row in mechanisms(tenant)))
            end_well(*lows)

    def test_low_priority_on_two_gpus_is_masked_on_the_one_that_high_priority_uses(self):
        with Stack(gpus=2, scale=2) as stack:
            low = stack.start("low", "gang", "dp", 300, 0)
            low.expect("running")
            service = stack.start("high", "infer", "--rate", 100, "--seconds", 3600, "--eager",
                                  options=("--engine", "spatial"), CUDA_VISIBLE_DEVICES="1")
            wait_until("low leaves SMs to high", lambda: next(
                tenant for tenant in stack.tenants() if tenant["priority"] == "low")["counters"]["masked"] > 0)
            service.signal(signal.SIGTERM)
            self.assertIn("results=right", service.output()[-1])
            end_well(low)

    def test_low_priority_makes_room_on_each_gpu_of_a_high_priority_gang(self):
        with Stack(gpus=2, scale=2) as stack:
            lows = [stack.start("low", "train", 300, 0, options=("--engine", "spatial"), CUDA_VISIBLE_DEVICES=str(gpu))
                    for gpu in range(2)]
            for low in lows:
                low.expect("running")
            # One thread launches on both GPUs and waits for the second one only.
            high = stack.start("high", "gang", "chain", 200, 0, 2000, options=("--engine", "spatial"))
            high.expect("running")
            # Its kind of request is known by then.
            wait_until("high has served some requests", lambda: next(
                tenant for tenant in stack.tenants() if tenant["priority"] == "high")["counters"]["requests"] >= 100)
            before = counts_of_lows(stack)
            wait_until("both programs of low priority have launched", lambda: min(
                now[0] - then[0] for now, then in zip(counts_of_lows(stack), before)) >= 300)
            for now, then in zip(counts_of_lows(stack), before):
                self.assertGreater((now[1] - then[1]) / (now[0] - then[0]), 0.8)
            end_well(high)
            end_well(*lows)

    def test_low_priority_runs_where_high_priority_waits_for_another_gpu(self):
        with Stack(gpus=2, scale=2) as stack:
            low = stack.start("low", "train", 300, 0, options=("--engine", "spatial"), CUDA_VISIBLE_DEVICES="1")
            low.expect("running")
            # Most of the time a stage of 5 ms runs on one GPU, and a small kernel on the other waits for its end.
            high = stack.start("high", "gang", "pp", 5000, 0, options=("--engine", "spatial"))
            high.expect("running")

            def counts():
                tenants = {tenant["priority"]: tenant["counters"] for tenant in stack.tenants()}
                return tenants["high"]["requests"], tenants["low"]["kernels"]

            def window():
                before = counts()
                wait_until("high has served more requests", lambda: counts()[0] >= before[0] + 10)
                after = counts()
                return (after[1] - before[1]) / (after[0] - before[0])

            wait_until("high has served some requests", lambda: counts()[0] >= 20)
            # Where other programs take the processors, requests are late and low priority waits for some time.
            wait_until("low priority launches several kernels per request", lambda: window() > 3)
            end_well(high, low)

    def test_memory_is_accounted_on_each_gpu_of_a_program(self):
        with Stack(gpus=2, scale=0.2) as stack:
            low = stack.start("low", "gang", "dp", 300, 0)
            low.expect("running")
            used = wait_until("both GPUs have memory of low priority", lambda: (
                lambda used: used if min(used) > 0 else None)([gpu["low_memory"] for gpu in stack.status()["gpus"]]))
            self.assertEqual(used[0], used[1])
            end_well(low)

    def test_collectives_end_whatever_the_shape_of_the_gang(self):
        with Stack(gpus=4, scale=0.2) as stack:
            gangs = [stack.start("low", "gang", shape, 50, 0) for shape in ("dp", "tp", "pp", "one")]
            for gang in gangs:
                gang.expect("running")
            end_well(*gangs)


if __name__ == "__main__":
    unittest.main()

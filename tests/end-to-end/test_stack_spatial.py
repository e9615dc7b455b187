#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The spatial engine over the whole stack on a simulated GPU: programs of both
priorities in one MPS server, what they see of each other, and who is refused."""
import signal
import subprocess
import unittest

from stack import HB, LIMIT, SHIM, SIMCUDA, Stack, wait_until

SPATIAL = ("--engine", "spatial")
# The variables that `hb run` sets for low priority outside the MPS server. A script may set them as well.
WITHOUT_HB_RUN = {"HB_TENANT": "5a" * 16, "HB_PRIORITY": "low", "HB_GPU": "sim", "LD_LIBRARY_PATH": SHIM + ":" + SIMCUDA,
                  "HB_REAL_LIBCUDA": SIMCUDA + "/libcuda.so.1"}


def by_priority(stack):
    return {tenant["priority"]: tenant for tenant in stack.tenants()}


def refused(program):
    status = program.ended()
    assert status == 125, f"status {status}: {program.command}"
    return program.stderr()


def logs_of(stack):
    return "".join(text for _, text in stack.logs())


class Spatial(unittest.TestCase):
    def mechanisms(self, stack, priority):
        return {one["mechanism"]: one for one in by_priority(stack)[priority]["gpus"][0]["mechanisms"]}

    def test_both_priorities_live_in_the_server_and_results_are_right(self):
        with Stack() as stack:
            expected = stack.bare("work", 3).output()
            high = stack.start("high", "--wait", "work", 3, options=SPATIAL)
            low = stack.start("low", "--wait", "work", 3)
            for program in (high, low):
                program.expect("joined")
            gpu = stack.status()["gpus"][0]
            self.assertEqual((gpu["engine"], gpu["policy"]), ("spatial", "spatial"))
            view = by_priority(stack)
            self.assertTrue(view["high"]["mps"] and view["low"]["mps"])
            for priority in ("high", "low"):
                wait_until(f"the slice of {priority}", lambda of=priority: "2048 us on the channel group of the MPS server" in
                           self.mechanisms(stack, of)["compute slice"]["why"])
            for program in (high, low):
                program.go()
                program.go()
                lines = [line for line in program.output() if line not in ("joined", "done")]
                self.assertEqual(lines, expected)

    def test_low_takes_masks_beside_requests_and_both_are_right(self):
        with Stack(scale=2) as stack:
            low = stack.start("low", "train", 300, 0)
            low.expect("running")
            service = stack.start("high", "infer", "--rate", 100, "--seconds", 3600, "--eager", options=SPATIAL)
            wait_until("low leaves SMs to high", lambda: by_priority(stack)["low"]["counters"]["masked"] > 0)
            wait_until("requests are seen", lambda: by_priority(stack).get("high", {}).get(
                "counters", {"requests": 0})["requests"] > 0)
            service.signal(signal.SIGTERM)
            self.assertIn("results=right", service.output()[-1])
            low.signal(signal.SIGTERM)
            self.assertTrue(low.result()["right"])

    def test_graphs_without_an_slo_find_low_masked_and_waiting(self):
        with Stack(scale=2) as stack:
            low = stack.start("low", "train", 300, 0)
            low.expect("running")
            # One launch a request: it opens with the graph and ends with the synchronize. Nobody told an SLO.
            service = stack.start("high", "infer", "--rate", 50, "--seconds", 600, options=SPATIAL)
            wait_until("low waits for high, or for its own work", lambda: by_priority(stack)["low"]["counters"][
                "spatial_waits"] > 0)
            wait_until("low leaves SMs to high", lambda: by_priority(stack)["low"]["counters"]["masked"] > 0)
            high = by_priority(stack)["high"]
            self.assertIsNone(high["slo_asked_ns"] or None)
            wait_until("requests are seen", lambda: by_priority(stack)["high"]["counters"]["requests"] > 0)
            wait_until("graphs are seen", lambda: by_priority(stack)["high"]["counters"]["graphs"] > 0)
            service.signal(signal.SIGTERM)
            self.assertIn("results=right", service.output()[-1])
            low.signal(signal.SIGTERM)
            self.assertTrue(low.result()["right"])

    def test_the_engine_goes_back_when_high_has_left(self):
        with Stack() as stack:
            low = stack.start("low", "train", 300, 0)
            low.expect("running")
            self.assertEqual(stack.status()["gpus"][0]["engine"], "temporal")
            stack.start("high", "work", 1, options=SPATIAL).output()
            wait_until("temporal again", lambda: stack.status()["gpus"][0]["engine"] == "temporal")
            low.signal(signal.SIGTERM)
            self.assertTrue(low.result()["right"])

    def test_a_killed_process_of_high_leaves_nobody_waiting(self):
        with Stack() as stack:
            # It never waits for its work, so its request never ends.
            high = stack.start("high", "train", 300, 0, options=SPATIAL)
            high.expect("running")
            low = stack.start("low", "train", 300, 0)
            low.expect("running")
            high.process.kill()
            wait_until("high is gone", lambda: "high" not in by_priority(stack))
            before = by_priority(stack)["low"]["counters"]["kernels"]
            wait_until("low goes on", lambda: by_priority(stack)["low"]["counters"]["kernels"] > before + 50)
            low.signal(signal.SIGTERM)
            self.assertTrue(low.result()["right"])

    def test_one_engine_at_a_time(self):
        with Stack() as stack:
            temporal = stack.start("high", "--wait", "work", 1)
            temporal.expect("joined")
            self.assertRegex(refused(stack.start("high", "work", 1, options=SPATIAL)),
                             r"engine spatial: tenant \d+ \(high priority: .*\) already uses the engine temporal")
            self.assertIn("already uses the engine temporal", refused(stack.start("low", "work", 1, options=SPATIAL)))
            temporal.go()
            temporal.go()
            temporal.output()
            wait_until("it has left", lambda: not stack.tenants())
            spatial = stack.start("high", "--wait", "work", 1, options=SPATIAL)
            spatial.expect("joined")
            for priority, engine in (("high", "temporal"), ("low", "temporal"), ("low", "turns")):
                said = refused(stack.start(priority, "work", 1, options=("--engine", engine)))
                self.assertRegex(said, rf"engine {engine}: tenant \d+ \(high priority: .*\) already uses the engine spatial")
            # A program without --engine joins the engine in use.
            second = stack.start("high", "--wait", "work", 1)
            second.expect("joined")
            self.assertEqual([tenant["mps"] for tenant in stack.tenants()], [True, True])
            for program in (spatial, second):
                program.go()
                program.go()
                program.output()

    def check_excluded(self, stack, low):
        """While this program runs, outside the MPS server, the engine is refused. Ends the program."""
        said = refused(stack.start("high", "work", 1, options=SPATIAL))
        self.assertRegex(said, r"tenant \d+ \(low priority: .*\) already uses the engine turns")
        low.signal(signal.SIGTERM)
        self.assertTrue(low.result()["right"])

    def test_low_outside_the_server_excludes_the_engine_after_a_restart(self):
        """The new daemon knows from the processes themselves that they run outside the MPS server."""
        with Stack(mps=False) as stack:
            stack.start_daemon()
            low = stack.start("low", "train", 1000, 0)
            low.expect("running")
            stack.daemon.signal(signal.SIGKILL)
            stack.daemon.ended()
            stack.configure("mps: true\n")
            stack.start_daemon()
            wait_until("low has registered again", stack.tenants)
            self.check_excluded(stack, low)

    def test_low_without_hb_run_excludes_the_engine(self):
        with Stack() as stack:
            stack.start_daemon()
            low = stack.bare("train", 1000, 0, **WITHOUT_HB_RUN)
            low.expect("running")
            wait_until("low has registered", stack.tenants)
            self.check_excluded(stack, low)

    def test_high_that_becomes_low_excludes_the_engine(self):
        with Stack() as stack:
            program = stack.start("high", "train", 1000, 0)
            program.expect("running")
            subprocess.run([HB, "set", str(stack.tenants()[0]["id"]), "--gpu", "sim", "--priority", "low"],
                           env=stack.environment, check=True, capture_output=True, timeout=LIMIT)
            self.check_excluded(stack, program)

    def test_a_configured_engine_yields_to_low_outside_the_server(self):
        with Stack(config="engine: spatial\n") as stack:
            low = stack.start("low", "train", 1000, 0, options=("--engine", "turns"))
            low.expect("running")
            high = stack.start("high", "--wait", "work", 1)
            high.expect("joined")
            self.assertFalse(by_priority(stack)["high"]["mps"])
            high.go()
            high.go()
            high.output()
            low.signal(signal.SIGTERM)
            self.assertTrue(low.result()["right"])

    def masks_beside_a_service(self, stack, see):
        """`see` holds of the mechanism and the counters of low priority at some time beside requests."""
        low = stack.start("low", "train", 300, 0)
        low.expect("running")
        service = stack.start("high", "infer", "--rate", 100, "--seconds", 3600, "--eager", options=SPATIAL)
        wait_until("low is masked as it should be", lambda: see(
            self.mechanisms(stack, "low").get("SM masks", {"why": ""})["why"], by_priority(stack)["low"]["counters"]))
        for program in (service, low):
            program.signal(signal.SIGTERM)
        self.assertIn("results=right", service.output()[-1])
        self.assertTrue(low.result()["right"])

    def test_masks_leave_out_whole_gpcs_where_it_is_wanted(self):
        with Stack(scale=2, config="masks: gpcs\n") as stack:
            self.masks_beside_a_service(stack, lambda why, counts: "complete GPCs: found and proven" in why
                                        and counts["masked_gpcs"] > 0)

    def test_masks_are_spread_where_gpcs_are_not_found(self):
        with Stack(scale=2, config="masks: gpcs\n", HB_SIM_GPCS="one") as stack:
            self.masks_beside_a_service(stack, lambda why, counts: "do not form groups" in why
                                        and counts["masked"] > 0 and counts["masked_gpcs"] == 0)

    def test_a_trial_that_hangs_holds_nobody(self):
        # Neither the tenants nor the daemon, when it is to end.
        with Stack(scale=2, config="masks: gpcs\n", HB_SIM_GPCS="stuck") as stack:
            self.masks_beside_a_service(stack, lambda why, counts: "complete GPCs: found" not in why
                                        and counts["masked"] > 0 and counts["masked_gpcs"] == 0)

    def test_without_mps_it_is_refused(self):
        with Stack(mps=False) as stack:
            self.assertIn("the spatial engine needs MPS", refused(stack.start("high", "work", 1, options=SPATIAL)))

    def test_the_configuration_can_choose_it(self):
        with Stack(config="engine: spatial\nwindow: 2ms\n") as stack:
            high = stack.start("high", "--wait", "work", 1)
            high.expect("joined")
            self.assertEqual(stack.status()["gpus"][0]["engine"], "spatial")
            self.assertTrue(stack.tenants()[0]["mps"])
            high.go()
            high.go()
            high.output()

    def test_a_driver_that_is_new_is_tried_in_a_process_of_its_own_first(self):
        with Stack(scale=2, HB_LOG="info", HB_SIM_DRIVER="599.1") as stack:
            self.masks_beside_a_service(stack, lambda why, counts: "each launch can be kept off some SMs" in why
                                        and counts["masked"] > 0)
            self.assertIn("masks work with this driver, which is new to Hummingbird", logs_of(stack))

    def test_a_new_driver_on_which_masks_crash_harms_no_program(self):
        with Stack(scale=2, HB_SIM_DRIVER="599.1", HB_SIM_MASKS="crash") as stack:
            self.masks_beside_a_service(stack, lambda why, counts: "crashed or hung" in why)
            wait_until("all have ended", lambda: not stack.tenants())
            said = refused(stack.start("high", "work", 1, options=SPATIAL))
            self.assertIn("driver 599.1 is new to Hummingbird, and its trial of SM masks failed", said)
            self.assertIn("`trusted_driver: 599.1` in hummingbird.yaml allows them", said)
            stack.start("high", "work", 1).output()  # other engines are not affected

    def test_the_configuration_can_trust_a_new_driver(self):
        with Stack(scale=2, config="trusted_driver: 599.1\n", HB_LOG="info", HB_SIM_DRIVER="599.1", HB_SIM_MASKS="silent") as stack:
            self.masks_beside_a_service(stack, lambda why, counts: "did not call the callback" in why)
            wait_until("all have ended", lambda: not stack.tenants())
            stack.start("high", "work", 1, options=SPATIAL).output()
            self.assertNotIn("a process of its own", logs_of(stack))

    def test_a_driver_without_masks_is_told(self):
        with Stack(HB_SIM_MASKS="none") as stack:
            high = stack.start("high", "--wait", "work", 1, options=SPATIAL)
            high.expect("joined")
            low = stack.start("low", "--wait", "work", 2)
            low.expect("joined")
            low.go()
            low.expect("done")
            wait_until("it is told", lambda: "no callback table" in self.mechanisms(stack, "low")["SM masks"]["why"])
            told = self.mechanisms(stack, "low")
            self.assertFalse(told["SM masks"]["enforced"])
            self.assertEqual(told["kernel splitting"]["why"], "no kernel beside high priority has been long enough so far")
            low.go()
            low.output()
            high.go()
            high.go()
            high.output()


if __name__ == "__main__":
    unittest.main()

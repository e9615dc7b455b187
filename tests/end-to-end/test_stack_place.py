#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`hb run --gpus`: the daemon chooses GPUs, the command sees only these, and `hb status` says why. Four simulated GPUs."""
import subprocess
import unittest

from stack import HB, TENANT, Stack, end_well, wait_until


class Place(unittest.TestCase):
    def run_devices(self, stack, n, *options, status=0, **variables):
        """Runs a program that prints its devices' UUIDs. Returns these, or the message of an error."""
        done = subprocess.run([HB, "run", "--gpu", "sim", "--priority", "low", "--gpus", str(n), *options, "--", TENANT,
                               "devices"], env=stack.environment | variables, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, status, done.stderr)
        return done.stderr if status else done.stdout.split()

    def check_message(self, stack, n, text, *options, **variables):
        self.assertIn(text, self.run_devices(stack, n, *options, status=125, **variables))

    def test_programs_that_start_at_the_same_moment_get_different_gpus(self):
        with Stack(gpus=4, scale=0.2) as stack:
            lows = [stack.start("low", "train", 300, 0, options=("--gpus", 1)) for _ in range(4)]
            for low in lows:
                low.expect("running")
            tenants = stack.tenants()
            self.assertEqual(len({use["gpu"] for tenant in tenants for use in tenant["gpus"]}), 4)
            for tenant in tenants:
                self.assertEqual([use["gpu"] for use in tenant["gpus"]], tenant["placement"]["gpus"])
                self.assertFalse(tenant["placement"]["waiting"])
            shown = subprocess.run([HB, "status", "--gpu", "sim"], env=stack.environment, capture_output=True, text=True,
                                   check=True).stdout
            for text in ("placed on      GPU ", "; order: GPU "):
                self.assertEqual(shown.count(text), 4, shown)
            self.assertIn("; why: ", shown)
            end_well(*lows)
            wait_until("all placements have ended", lambda: stack.status()["places"]["placements"]["taken"] == 0)

    def test_low_priority_goes_where_no_high_priority_is(self):
        with Stack(gpus=3, scale=0.2) as stack:
            high = stack.start("high", "--wait", "work", 6, options=("--gpus", 1))
            high.expect("joined")
            gpu_of_high = stack.tenants()[0]["placement"]["gpus"][0]
            low = stack.start("low", "train", 300, 0, options=("--gpus", 2))
            low.expect("running")
            views = {view["priority"]: view["placement"] for view in stack.tenants()}
            self.assertEqual(len(views["low"]["gpus"]), 2)
            self.assertNotIn(gpu_of_high, views["low"]["gpus"])
            self.assertIn("why: less high priority there", views["low"]["text"])
            self.assertFalse(views["low"]["waiting"])
            end_well(low)
            high.go()
            high.go()
            high.output()

    def test_the_command_sees_only_what_was_chosen_among_what_is_allowed(self):
        with Stack(gpus=4) as stack:
            all_four = stack.bare("devices").output()
            self.assertEqual(self.run_devices(stack, 4), all_four)
            self.assertEqual(self.run_devices(stack, 2, CUDA_VISIBLE_DEVICES="3,1"), [all_four[1], all_four[3]])
            names = ["GPU-" + "-".join((u[:8], u[8:12], u[12:16], u[16:20], u[20:])) for u in all_four]
            self.assertEqual(self.run_devices(stack, 1, CUDA_VISIBLE_DEVICES=names[2]), [all_four[2]])
            self.check_message(stack, 5, "--gpus 5: 5 GPUs are wanted, and this machine has 4")
            self.check_message(stack, 3, "--gpus 3: CUDA_VISIBLE_DEVICES=0,1 allows only 2", CUDA_VISIBLE_DEVICES="0,1")
            self.check_message(stack, 1, "'7' is not one of the 4 GPUs", CUDA_VISIBLE_DEVICES="7")
            self.check_message(stack, 1, "'GPU-' is not one of the 4 GPUs", CUDA_VISIBLE_DEVICES="GPU-")
            self.check_message(stack, 1, "is empty, which hides all GPUs", CUDA_VISIBLE_DEVICES="")
            self.check_message(stack, 1, "does not list its GPUs", HB_SIM_UNLISTED="1",
                               HB_SOCKET=stack.folder + "/other.sock")
            wait_until("no program is left", lambda: not stack.tenants())
            other = stack.bare("--wait", "work", 6)  # the driver knows the memory only while a program uses the GPUs
            other.expect("joined")
            self.check_message(stack, 1, "1 GPU is wanted, and 0 can run the program: none; not suited: GPU 0 (too little "
                               "free memory)", "--memory", "900GiB")
            other.go()
            other.go()
            other.output()


if __name__ == "__main__":
    unittest.main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Unmodified programs give the same results under `hb run` as without it, however
they find the driver and however they use fork, exec and captures. The shim is
loaded while they run."""
import os
import subprocess
import unittest

from stack import HB, LIMIT, TENANT, TENANT_LINKED, Stack


class Programs(unittest.TestCase):
    def test_results_are_the_same_however_the_driver_is_found(self):
        with Stack(scale=0.2) as stack:
            expected = stack.bare("work", 6).output()
            self.assertEqual(len(expected), 7)
            for program in (TENANT, TENANT_LINKED):
                routes = stack.bare("--routes", program=program).output()
                self.assertGreaterEqual(len(routes), 5)
                for route in routes:
                    with self.subTest(program=program, route=route):
                        arguments = ("--route", route, "work", 6)
                        for priority in ("high", "low"):
                            self.assertEqual(stack.start(priority, *arguments, program=program).output(), expected)
                        off = stack.start("high", *arguments, program=program, HB_OFF="1")
                        self.assertEqual(off.output(), expected)

    def test_the_shim_counts_work_however_the_driver_is_found(self):
        with Stack(scale=0.2) as stack:
            for program in (TENANT, TENANT_LINKED):
                for route in stack.bare("--routes", program=program).output():
                    with self.subTest(program=program, route=route):
                        tenant = stack.start("high", "--wait", "--route", route, "work", 6, program=program)
                        tenant.expect("joined")
                        tenant.go()
                        tenant.expect("done")
                        counters = stack.tenants()[0]["counters"]
                        # two orders of 12, 12 with events, 6 before host functions
                        self.assertEqual(counters["kernels"], 42)
                        self.assertEqual(counters["captured"], 3)
                        self.assertEqual((counters["graphs"], counters["host_functions"]), (6, 6))
                        self.assertEqual(counters["unknown_versions"], 0)
                        tenant.go()
                        tenant.output()

    def test_with_hb_off_no_work_is_counted(self):
        with Stack(scale=0.2) as stack:
            tenant = stack.start("low", "--wait", "work", 6, HB_OFF="1")
            tenant.expect("joined")
            tenant.go()
            tenant.expect("done")
            view = stack.tenants()[0]
            self.assertEqual(view["processes"], [])
            self.assertEqual(sum(view["counters"].values()), 0)
            tenant.go()
            tenant.output()

    def test_a_background_daemon_keeps_no_descriptor_of_its_starter(self):
        with Stack(mps=False) as stack:
            end, other_end = os.pipe()
            subprocess.run([HB, "run", "--gpu", "sim", "--priority", "low", "--", "true"], env=stack.environment,
                           pass_fds=[other_end], stdin=subprocess.DEVNULL, timeout=LIMIT, check=True)
            kept = self.files_of(stack.pid_of("hbd"))
            self.assertIn("/dev/null", kept)
            self.assertNotIn(f"pipe:[{os.fstat(end).st_ino}]", kept)
            os.close(end)
            os.close(other_end)

    def files_of(self, pid):
        """The files that the process has open; it may close some of them meanwhile."""
        found = set()
        for number in os.listdir(f"/proc/{pid}/fd"):
            try:
                found.add(os.readlink(f"/proc/{pid}/fd/{number}"))
            except FileNotFoundError:
                continue
        return found

    def test_children_give_the_same_results(self):
        """A child without CUDA, a child that becomes another program, and one that was started before CUDA."""
        with Stack(scale=0.2) as stack:
            for how in ("fork", "exec", "spawn"):
                expected = sorted(stack.bare("child", how).output())
                for priority in ("high", "low"):
                    with self.subTest(how=how, priority=priority):
                        self.assertEqual(sorted(stack.start(priority, "child", how).output()), expected)

    def test_a_capture_is_not_disturbed(self):
        with Stack(scale=0.2) as stack:
            others = [stack.start(priority, "train", 300, 0) for priority in ("low", "low", "high")]
            for other in others:
                other.expect("running")
            tenant = stack.start("low", "--wait", "capture")
            tenant.expect("joined")
            tenant.go()
            tenant.expect("capturing")
            tenant.go()
            self.assertEqual(tenant.expect("graph:"), "graph: 42")
            tenant.expect("done")
            tenant.go()
            tenant.output()
            for other in others:
                other.process.terminate()
                self.assertTrue(other.result()["right"])

    def test_each_of_two_gpus_has_its_own_tenants(self):
        with Stack(scale=0.2, gpus=2) as stack:
            uuids = stack.bare("devices").output()
            self.assertEqual(len(set(uuids)), 2)
            tenants = []
            for i, uuid in enumerate(uuids):
                self.assertEqual(stack.start("high", "devices", CUDA_VISIBLE_DEVICES=str(i)).output(), [uuid])
                tenants.append(stack.start("low", "--wait", "work", 6, CUDA_VISIBLE_DEVICES=str(i)))
                tenants[i].expect("joined")
            views = sorted(stack.tenants(), key=lambda view: view["id"])
            used = [[use["gpu"].removeprefix("GPU-").replace("-", "") for use in view["gpus"]] for view in views]
            self.assertEqual(used, [[uuids[0]], [uuids[1]]])
            # Each is alone on its GPU, so none waits for the other.
            self.assertEqual([gpu["low"] for gpu in stack.status()["gpus"]], [1, 1])
            for tenant in tenants:
                tenant.go()
                tenant.go()
                tenant.output()


if __name__ == "__main__":
    unittest.main()

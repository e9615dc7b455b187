#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Kills each process of the stack with SIGKILL: at every fault point of hb and the shim (base/fault_points.def), and in
situations that users know. The survivors continue and end with correct results, and a new tenant works. Leaving a Stack
checks that nothing is left behind."""
import os
import re
import signal
import unittest

from stack import BUILD, HB, TENANT, Stack, end_well, wait_until

FAULTS = os.path.join(BUILD, "tests/fault")
TABLE = os.path.join(os.path.dirname(__file__), "../../src/base/fault_points.def")
TRAINING_US = 200
KILLED = -signal.SIGKILL

# What a program must do to reach the fault point; `work` is enough for most.
REACHED_BY = {
    "shim_left_in_child": ("child", "fork"),
    "shim_gate_waiting": ("train", TRAINING_US, 0),
    "shim_gate_passed": ("train", TRAINING_US, 0),
    "shim_drain_looking": ("train", TRAINING_US, 0),
    "shim_drain_reported": ("train", TRAINING_US, 0),
}
# Only tenants that take turns wait at a gate and are watched by the shim's thread.
TAKES_TURNS = ("shim_gate_waiting", "shim_gate_passed", "shim_drain_looking", "shim_drain_reported")


def points(area):
    with open(TABLE, encoding="utf-8") as file:
        return re.findall(rf"HB_FAULT_POINT\({area}, (\w+)\)", file.read())


class Killed(unittest.TestCase):
    def survivors(self, stack, *priorities):
        programs = [stack.start(priority, "train", TRAINING_US, 0) for priority in priorities]
        for program in programs:
            program.expect("running")
        return programs

    def end_well(self, programs):
        for result in end_well(*programs):
            self.assertGreater(result["kernels"], 0)

    def new_tenants_work(self, stack, expected):
        for priority in ("high", "low"):
            self.assertEqual(stack.start(priority, "work", 2).output(), expected)

    def forgotten(self, stack, n):
        wait_until(f"{n} tenants are left", lambda: len(stack.tenants()) == n)

    def no_memory_of_the_dead(self, stack):
        """Waits until the daemon accounts for the survivors only. Each holds one word, rounded up by the simulated driver."""
        wait_until("the account is what the survivors hold", lambda: all(
            gpu["low_memory"] == sum(use["memory_used"] for tenant in stack.tenants() if tenant["priority"] == "low"
                                     for use in tenant["gpus"] if use["gpu"] == gpu["uuid"])
            for gpu in stack.status()["gpus"]))
        for tenant in stack.tenants():
            for use in tenant["gpus"]:
                self.assertLessEqual(use["memory_used"], 4096)

    def at_every_point(self, mps, names):
        with Stack(scale=0.3, mps=mps) as stack:
            expected = stack.bare("work", 2).output()
            left = self.survivors(stack, "high", "low")
            for name in names:
                with self.subTest(point=name):
                    arguments = REACHED_BY.get(name, ("work", 3))
                    variables = {"HB_FAULT": name, "HB_SHIM_DIR": os.path.join(FAULTS, "shim")}
                    victim = stack.spawn([os.path.join(FAULTS, "hb-faults"), "run", "--gpu", "sim", "--priority",
                                          "low", "--memory", "100MiB", "--", TENANT, *arguments], **variables)
                    if name == "shim_left_in_child":
                        self.assertIn("child: 137, word: 2", victim.output())
                    else:
                        self.assertEqual(victim.ended(), KILLED, victim.lines)
                    self.forgotten(stack, len(left))
                    self.no_memory_of_the_dead(stack)
                    self.new_tenants_work(stack, expected)
            self.end_well(left)

    def test_kill_at_each_fault_point_of_hb_run_and_the_shim(self):
        names = points("RUN") + points("SHIM")
        self.assertGreaterEqual(len(names), 16)
        self.at_every_point(True, [name for name in names if name not in TAKES_TURNS])
        self.at_every_point(False, [name for name in names if name in TAKES_TURNS])

    # --- tenants ----------------------------------------------------------------------------

    def test_kill_low_priority_during_a_kernel(self):
        for mps in (True, False):
            with self.subTest(mps=mps), Stack(scale=0.3, mps=mps) as stack:
                expected = stack.bare("work", 2).output()
                left = self.survivors(stack, "high", "low")
                victim = stack.start("low", "train", 200e6, 1)
                victim.expect("running")
                victim.signal(signal.SIGKILL)
                self.assertEqual(victim.ended(), KILLED)
                self.forgotten(stack, len(left))
                self.new_tenants_work(stack, expected)
                self.end_well(left)

    def test_a_stopped_tenant_does_not_block_the_others(self):
        """The tenant gets SIGSTOP instead of SIGKILL."""
        for mps in (True, False):
            with self.subTest(mps=mps), Stack(scale=0.3, mps=mps) as stack:
                stopped = self.survivors(stack, "low")
                stopped[0].signal(signal.SIGSTOP)
                for _ in range(2):
                    self.assertTrue(stack.start("low", "train", TRAINING_US, 100).result()["right"])
                stopped[0].signal(signal.SIGCONT)
                self.end_well(stopped)

    def test_kill_high_priority(self):
        with Stack(scale=0.3) as stack:
            expected = stack.bare("work", 2).output()
            left = self.survivors(stack, "low", "low")
            victim = self.survivors(stack, "high")[0]
            victim.signal(signal.SIGKILL)
            self.assertEqual(victim.ended(), KILLED)
            self.forgotten(stack, len(left))
            self.new_tenants_work(stack, expected)
            self.end_well(left)

    def test_kill_the_first_process_of_a_tenant(self):
        """The children continue as the same tenant, which ends with the last of them."""
        with Stack(scale=0.3) as stack:
            leader = stack.spawn([HB, "run", "--gpu", "sim", "--priority", "low", "--", "sh", "-c",
                                  f"{TENANT} --wait work 3; :"])
            leader.expect("joined")
            before = stack.tenants()[0]
            child = stack.pid_of("cuda-tenant")
            leader.signal(signal.SIGKILL)
            wait_until("the first process has ended", lambda: leader.process.poll() is not None)
            after = stack.tenants()[0]
            self.assertEqual((after["id"], [process["pid"] for process in after["processes"]]), (before["id"], [child]))
            leader.go()
            leader.expect("done")
            leader.go()
            leader.ended()

    def test_kill_a_tenant_that_holds_all_its_memory(self):
        with Stack(scale=0.1) as stack:
            for _ in range(3):
                victim = stack.start("low", "memory", 1 << 20, 2, 2, options=("--memory", "100MiB"))
                self.assertEqual(victim.expect("granted"), f"granted: {100 << 20}, wrong: 0")
                victim.expect("full")
                for pid, name in stack.processes().items():
                    if name == "cuda-tenant":
                        os.kill(pid, signal.SIGKILL)
                self.assertEqual(victim.ended(), KILLED)
                self.forgotten(stack, 0)
                stack.check_empty()

    # --- the daemon ---------------------------------------------------------------------------

    def kill_daemon(self, stack):
        daemon = stack.pid_of("hbd")
        os.kill(daemon, signal.SIGKILL)
        wait_until("the daemon has ended", lambda: daemon not in stack.processes())

    def test_after_a_kill_the_next_daemon_adopts_living_tenants(self):
        for mps in (True, False):
            with self.subTest(mps=mps), Stack(scale=0.3, mps=mps) as stack:
                expected = stack.bare("work", 2).output()
                left = self.survivors(stack, "high", "low", "low")
                idle = stack.start("low", "--wait", "work", 2)
                idle.expect("joined")
                commands = sorted(tenant["command"] for tenant in stack.tenants())
                used = sorted(tenant["gpus"][0]["memory_used"] for tenant in stack.tenants())
                for _ in range(2 if mps else 1):
                    self.kill_daemon(stack)
                    self.new_tenants_work(stack, expected)  # the first new tenant starts a daemon
                    # The idle tenant makes no call in which it could register again.
                    wait_until("working tenants are registered again", lambda: len(stack.tenants()) >= len(left))
                idle.go()
                idle.expect("done")
                wait_until("all tenants are registered again", lambda: len(stack.tenants()) == len(left) + 1
                           or idle.process.poll() is not None)
                self.assertEqual(sorted(tenant["gpus"][0]["memory_used"] for tenant in stack.tenants()
                                        )[-len(left):], used[-len(left):])
                self.assertEqual(len(commands), len(left) + 1)
                idle.go()
                self.assertEqual([line for line in idle.output() if ":" in line], expected)
                self.end_well(left)

    def test_without_a_daemon_running_programs_end_normally(self):
        """Kills the daemon during a capture, while children run and during work. The programs end as without Hummingbird."""
        for priority in ("high", "low"):
            for mode in (("capture",), ("child", "fork"), ("child", "exec"), ("child", "spawn"), ("work", 4)):
                with self.subTest(priority=priority, mode=mode), Stack(scale=0.3, mps=False) as stack:
                    work = stack.bare("work", 2).output()
                    bare = stack.bare(*mode)
                    if mode[0] == "capture":
                        bare.expect("capturing")
                        bare.go()
                    expected = sorted(bare.output())
                    other = self.survivors(stack, "low")
                    tenant = stack.start(priority, *mode) if mode[0] in ("capture", "child") else stack.start(
                        priority, "--wait", *mode)
                    if mode[0] == "capture":
                        tenant.expect("capturing")
                    if mode[0] == "work":
                        tenant.expect("joined")
                    self.kill_daemon(stack)
                    if mode[0] != "child":
                        tenant.go()
                    if mode[0] == "work":
                        tenant.expect("done")
                        tenant.go()
                    said = [line for line in tenant.output() if line not in ("joined", "done")]
                    self.assertEqual(sorted(said), expected)
                    self.end_well(other)
                    self.new_tenants_work(stack, work)

    def test_kill_the_daemon_while_low_priority_waits_for_its_turn(self):
        with Stack(scale=1, mps=False, config="quantum: 1s\n") as stack:
            expected = stack.bare("work", 2).output()
            left = self.survivors(stack, "low", "low")
            wait_until("one tenant waits at its gate", lambda: any(
                tenant["gpus"][0]["gate"] == "closed" for tenant in stack.tenants()))
            self.kill_daemon(stack)
            self.end_well(left)
            self.new_tenants_work(stack, expected)

    # --- the simulated GPU and its MPS --------------------------------------------------------

    def test_kill_the_mps_server(self):
        """All low-priority programs die with the server, high priority continues, and the next program gets a new server."""
        with Stack(scale=0.3) as stack:
            expected = stack.bare("work", 2).output()
            high = self.survivors(stack, "high")
            lows = self.survivors(stack, "low", "low")
            for _ in range(2):
                stack.kill("hb-sim-mps-server")
                for low in lows:
                    self.assertEqual(low.ended(), 4)
                    self.assertIn("CUDA_ERROR_MPS", low.stderr())
                self.forgotten(stack, 1)
                lows = self.survivors(stack, "low")
                self.new_tenants_work(stack, expected)
            self.end_well(high + lows)

    def test_kill_the_mps_control_daemon(self):
        with Stack(scale=0.3) as stack:
            expected = stack.bare("work", 2).output()
            high = self.survivors(stack, "high")
            low = self.survivors(stack, "low")[0]
            stack.kill("hb-sim-mps-control")
            low.signal(signal.SIGTERM)
            self.assertIn(low.ended(), (0, 4))
            self.new_tenants_work(stack, expected)
            self.end_well(high)

    def test_kill_the_simulated_gpu(self):
        """Like a GPU that has fallen off the bus: programs end with an error, none hangs, and everything works once it is back."""
        with Stack(scale=0.3) as stack:
            expected = stack.bare("work", 2).output()
            tenants = self.survivors(stack, "high", "low", "low")
            stack.kill("hb-simgpu")
            for tenant in tenants:
                self.assertEqual(tenant.ended(), 4)
            self.forgotten(stack, 0)
            self.new_tenants_work(stack, expected)


if __name__ == "__main__":
    unittest.main()

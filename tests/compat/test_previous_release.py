#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs this release together with the previous one, which is built from the repository's history: an upgrade and a
downgrade of the daemon while programs run, and programs of each release under the daemon of the other. Programs stay
scheduled and compute the same. Skipped where the history is missing, as in a shallow clone."""
import os
import signal
import subprocess
import unittest

from stack import BUILD, HB, HBD, SIMCUDA, TENANT, Stack, end_well, wait_until

SOURCE = os.environ["HB_SOURCE"]
# The last commit before pages had one writer: page version 2 without features.
PREVIOUS = "04fcc27"
OLD = os.path.join(BUILD, "previous-release")
OLD_HB, OLD_HBD = os.path.join(OLD, "build/hb"), os.path.join(OLD, "build/src/daemon/hbd")
# Files of the previous release that programs need; this release simulates the GPU and its driver.
TARGETS = ("hb", "src/daemon/hbd", "src/shim/libcuda.so.1", "src/signs/libhb-signs.so")
TRAINING_US = 200


def build_previous():
    if os.path.exists(OLD_HBD):
        return
    os.makedirs(OLD, exist_ok=True)
    archive = subprocess.run(["git", "-C", SOURCE, "archive", PREVIOUS], stdout=subprocess.PIPE, check=True).stdout
    subprocess.run(["tar", "-x", "-C", OLD], input=archive, check=True)
    build = os.path.join(OLD, "build")
    subprocess.run(["meson", "setup", "-Doptimization=1", "-Ddebug=false", "-Dtests=false", build, OLD], check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["ninja", "-C", build, *TARGETS], check=True, stdout=subprocess.DEVNULL)


def has_history():
    return subprocess.run(["git", "-C", SOURCE, "cat-file", "-e", PREVIOUS + "^{commit}"], capture_output=True,
                          check=False).returncode == 0


@unittest.skipUnless(has_history(), "the history lacks the previous release")
class PreviousRelease(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        build_previous()

    def stack(self):
        return Stack(scale=0.3, mps=False, HB_SIMCUDA_DIR=SIMCUDA)

    def start(self, stack, hb, priority, *arguments):
        return stack.spawn([hb, "run", "--gpu", "sim", "--priority", priority, "--", TENANT, *arguments])

    def start_daemon(self, stack, hbd):
        daemon = stack.spawn([hbd, "--foreground", "--gpu", "sim", "--socket", stack.environment["HB_SOCKET"]])
        wait_until("the daemon answers", lambda: daemon.process.poll() is not None or stack.status())
        self.assertIsNone(daemon.process.poll(), daemon.stderr())
        stack.daemon = daemon
        return daemon

    def replace_daemon(self, stack, hbd):
        stack.daemon.process.kill()
        stack.daemon.ended()
        self.start_daemon(stack, hbd)

    def launches(self, stack):
        return {tenant["id"]: tenant["counters"]["kernels"] for tenant in stack.tenants() if tenant["gpus"]}

    def all_are_scheduled(self, stack, n):
        """All tenants are registered and continue; low priority takes turns and its memory is accounted for."""
        wait_until("all tenants are registered", lambda: len(self.launches(stack)) == n)
        before = self.launches(stack)
        wait_until("all continue", lambda: all(self.launches(stack).get(one, 0) > before[one] for one in before))
        low = [tenant["id"] for tenant in stack.tenants() if tenant["priority"] == "low"]
        self.assertGreater(len(low), 1)
        for one in low:
            wait_until(f"tenant {one} waits for its turn", lambda one=one: any(
                tenant["id"] == one and tenant["gpus"][0]["gate"] == "closed" for tenant in stack.tenants()))
        wait_until("the memory of low priority is the sum of its programs", lambda: all(
            gpu["low_memory"] == sum(use["memory_used"] for tenant in stack.tenants() if tenant["priority"] == "low"
                                     for use in tenant["gpus"] if use["gpu"] == gpu["uuid"]) > 0
            for gpu in stack.status()["gpus"]))

    def replace_while_programs_run(self, hb, first, second, other_hb):
        with self.stack() as stack:
            expected = stack.bare("work", 2).output()
            self.start_daemon(stack, first)
            running = [self.start(stack, hb, priority, "train", TRAINING_US, 0) for priority in ("high", "low", "low")]
            for program in running:
                program.expect("running")
            self.all_are_scheduled(stack, 3)
            self.replace_daemon(stack, second)
            self.all_are_scheduled(stack, 3)
            # Programs of both releases join them: a tenant of the first one may start further processes.
            for one in (hb, other_hb):
                running.append(self.start(stack, one, "low", "train", TRAINING_US, 0))
                running[-1].expect("running")
            self.all_are_scheduled(stack, 5)
            for priority in ("high", "low"):
                self.assertEqual(self.start(stack, other_hb, priority, "work", 2).output(), expected)
            end_well(*running)

    def test_upgrade(self):
        self.replace_while_programs_run(OLD_HB, OLD_HBD, HBD, HB)

    def test_downgrade(self):
        self.replace_while_programs_run(HB, HBD, OLD_HBD, OLD_HB)


if __name__ == "__main__":
    unittest.main()

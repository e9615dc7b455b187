#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""High priority gets memory that low priority holds: it moves to the host. A program of low priority that is stopped
or killed meanwhile, and a daemon that is killed, delay high priority for a bounded time."""
import os
import signal
import subprocess
import unittest

from stack import HB, LIMIT, Stack, tenants_of, wait_until

MIB = 1 << 20
CHUNK = 64 * MIB
GPU = 4096 * MIB
TRIES = 6
LOW, HIGH = 38 * CHUNK, 16 * CHUNK  # with the memory of two contexts, 6 chunks more than the GPU has


def use_of(status, priority):
    """The first GPU of the tenant of this priority; {} before it uses one."""
    return next((tenant["gpus"][0] for tenant in tenants_of(status)
                 if tenant["priority"] == priority and tenant["gpus"]), {})


def elastic_of(status):
    return use_of(status, "low").get("elastic") or {}


class Room(unittest.TestCase):
    def setUp(self):
        self.stack = Stack(scale=0.1, mps=False, config="elastic_host: 4GiB\n", HB_SIM_MEMORY=str(GPU))
        self.addCleanup(self.stack.__exit__, None, None, None)
        self.daemon = self.stack.start_daemon()
        self.start_low()

    def start_low(self):
        self.low = self.start("low", LOW, "--elastic")
        self.low.expect("full")
        wait_until("host memory is prepared", lambda: elastic_of(self.stack.status()).get("movable") == LOW)

    def start(self, priority, bytes_, *options):
        return self.stack.start(priority, "memory", CHUNK, 1, 1, options=(*options, "--memory", f"{bytes_ // MIB}MiB"))

    def low_pid(self):
        """The process of low priority that uses CUDA."""
        tenant = next(tenant for tenant in tenants_of(self.stack.status()) if tenant["priority"] == "low")
        return tenant["processes"][0]["pid"]

    def start_high_beside_stopped_low(self):
        """Returns when an allocation of high priority waits for a process of low priority that does not run."""
        self.pid = self.low_pid()
        os.kill(self.pid, signal.SIGSTOP)
        high = self.start("high", HIGH)
        wait_until("high priority waits", lambda: self.stack.status()["gpus"][0]["elastic"]["waiting"])
        return high

    def end(self, *programs):
        for program in programs:
            program.go()
            self.assertEqual(program.ended(), 0, program.stderr())

    def start_until_granted(self):
        """Starts programs until high priority has its memory. Where the machine pauses, low priority does not move in time, and is
        not asked again soon."""
        for _ in range(TRIES):
            high = self.start("high", HIGH)
            if high.line() == f"granted: {HIGH}, wrong: 0":
                return high
            why = self.stack.status()["gpus"][0]["elastic"]["last_failure"]["why"]
            self.assertIn("did not move their memory in time", why)
            self.end(high, self.low)
            self.start_low()
        self.fail(f"{high.lines} after {TRIES} tries")

    def test_high_allocates_what_low_holds(self):
        high = self.start_until_granted()
        status = self.stack.status()
        elastic = elastic_of(status)
        self.assertIn(elastic["host"], range(6 * CHUNK, 11 * CHUNK), "a move takes 256 MiB at least")
        self.assertEqual(elastic["local"] + elastic["host"], LOW)
        self.assertEqual(use_of(status, "low")["memory_used"], LOW, "moved memory still counts")
        self.assertEqual(elastic["last"]["for_tenant"],
                         next(tenant["id"] for tenant in tenants_of(status) if tenant["priority"] == "high"))
        text = subprocess.run([HB, "status", "--gpu", "sim"], env=self.stack.environment, capture_output=True,
                              text=True, timeout=LIMIT, check=True).stdout
        self.assertIn(f"{elastic['host'] // MIB} MiB on the host", text)
        self.end(self.low, high)

    def test_a_stopped_program_is_skipped(self):
        high = self.start_high_beside_stopped_low()
        granted = int(high.expect("granted").split()[1].strip(","))
        self.assertLess(granted, HIGH)
        failure = self.stack.status()["gpus"][0]["elastic"]["last_failure"]
        self.assertIn("did not move their memory in time", failure["why"])
        os.kill(self.pid, signal.SIGCONT)
        self.end(high, self.low)

    def test_the_memory_of_a_killed_program_is_free(self):
        high = self.start_high_beside_stopped_low()
        os.kill(self.pid, signal.SIGKILL)
        self.assertEqual(high.line(), f"granted: {HIGH}, wrong: 0")
        self.low.go()
        self.assertEqual(self.low.ended(), 5, "it says that its child was killed")
        self.end(high)

    def test_without_the_daemon_the_allocation_fails(self):
        high = self.start_high_beside_stopped_low()
        self.daemon.signal(signal.SIGKILL)
        self.daemon.ended()
        self.assertTrue(high.expect("granted"))
        self.stack.start_daemon()
        os.kill(self.pid, signal.SIGCONT)
        self.end(high, self.low)


if __name__ == "__main__":
    unittest.main()

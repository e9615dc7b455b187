#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Stops a process of the stack with SIGSTOP at every fault point (base/fault_points.def), as a debugger or Ctrl-Z does. While
it stands, everybody else continues; when it continues, it ends as if nothing had happened."""
import os
import signal
import unittest

from stack import HB, TENANT, Stack, end_well, wait_until
from test_stack_faults import FAULTS, REACHED_BY, TAKES_TURNS, TRAINING_US, points

def is_stopped(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rsplit(")", 1)[1].split()[0] == "T"
    except (FileNotFoundError, ProcessLookupError):
        return False


class Stopped(unittest.TestCase):
    def stopped_pids(self, stack):
        return [pid for pid in stack.processes() if is_stopped(pid)]

    def wait_for_stop(self, stack, program):
        wait_until("the fault point is reached", lambda: self.stopped_pids(stack) or program.process.poll() is not None)
        self.assertTrue(self.stopped_pids(stack), f"the fault point was not reached: {program.lines} {program.stderr()}")

    def has_ended(self, stack, program):
        """Lets stopped processes continue: `hb run` and the program that it starts may reach the same point."""
        for pid in self.stopped_pids(stack):
            os.kill(pid, signal.SIGCONT)
        return program.process.poll() is not None

    def others_work(self, stack, left, expected):
        for priority in ("high", "low"):
            self.assertEqual(stack.start(priority, "work", 2).output(), expected)
        for program in left:
            self.assertIsNone(program.process.poll())

    # --- hb run and the shim ----------------------------------------------------------------

    def stop_victim(self, stack, name, expected, left):
        arguments = REACHED_BY.get(name, ("work", 2))
        if arguments[0] == "train":
            arguments = ("train", TRAINING_US, 2000)
        command = [os.path.join(FAULTS, "hb-faults"), "run", "--gpu", "sim", "--priority", "low", "--memory", "100MiB", "--"]
        victim = stack.spawn(command + [TENANT, *arguments], HB_FAULT=name + ":stop",
                             HB_SHIM_DIR=os.path.join(FAULTS, "shim"))
        self.wait_for_stop(stack, victim)
        self.others_work(stack, left, expected)
        wait_until("it ends", lambda: self.has_ended(stack, victim))
        self.assertEqual(victim.ended(), 0, victim.stderr())
        if arguments[0] == "work":
            self.assertEqual(victim.lines, expected)

    def at_every_point(self, mps, names):
        with Stack(scale=0.3, mps=mps) as stack:
            expected = stack.bare("work", 2).output()
            left = [stack.start(priority, "train", TRAINING_US, 0) for priority in ("high", "low")]
            for program in left:
                program.expect("running")
            for name in names:
                with self.subTest(point=name):
                    self.stop_victim(stack, name, expected, left)
            end_well(*left)

    def test_hb_run_and_the_shim(self):
        names = points("CLIENT") + points("RUN") + points("SHIM")
        self.at_every_point(True, [name for name in names if name not in TAKES_TURNS])
        self.at_every_point(False, [name for name in names if name in TAKES_TURNS])

    # --- the daemon -----------------------------------------------------------------------------

    def use_everything(self, stack):
        """Reaches every fault point of the daemon, if it does not stop before. Commands of hb may fail; programs may not."""
        left = stack.start("high", "--wait", "work", 2, options=("--or-alone",))
        left.expect("joined")  # so it is tenant 1, or the daemon has stopped
        low = stack.start("low", "train", TRAINING_US, 100, options=("--or-alone",))
        commands = [stack.spawn([HB, "status", "--gpu", "sim"]), stack.spawn([HB, "set", "--gpu", "sim", "1", "--slo", "20ms"])]
        # Tenant 1 must not end before its setting arrives.
        wait_until("the commands have ended, or the daemon has stopped", lambda: is_stopped(stack.daemon.pid) or
                   all(command.process.poll() is not None for command in commands))
        left.go()
        left.expect("done")
        left.go()
        self.assertTrue(low.result()["right"])
        return [line for line in left.output() if line not in ("joined", "done")]

    def stop_daemon_at(self, name):
        with Stack(scale=0.3, mps=False) as stack:
            expected = stack.bare("work", 2).output()
            stack.daemon = daemon = stack.spawn([os.path.join(FAULTS, "hbd-faults"), "--foreground", "--gpu", "sim", "--socket",
                                  stack.environment["HB_SOCKET"]], HB_FAULT=name + ":stop")
            wait_until("the daemon serves", lambda: os.path.exists(stack.environment["HB_SOCKET"]))
            self.assertEqual(self.use_everything(stack), expected)
            wait_until(f"{name} is reached", lambda: is_stopped(daemon.pid) or daemon.process.poll() is not None)
            self.assertIsNone(daemon.process.poll(), daemon.stderr())
            daemon.signal(signal.SIGCONT)
            # This daemon continues, or has been replaced while it stood and ends.
            wait_until("a daemon answers", stack.status)
            for program in stack.programs:
                if program is not daemon:
                    program.ended()
            for priority in ("high", "low"):
                self.assertEqual(stack.start(priority, "work", 2).output(), expected)

    def test_the_daemon(self):
        for name in points("DAEMON"):
            with self.subTest(point=name):
                self.stop_daemon_at(name)


if __name__ == "__main__":
    unittest.main()

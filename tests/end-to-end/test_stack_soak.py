#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Many tenants for a long time: 200 that arrive and leave, and an hour of GPU time with
random tenants, of which some are killed; now and then the daemon is killed as
well. In the end all accounts are zero."""
import os
import random
import signal
import time
import unittest

from stack import LIMIT, TENANT_LINKED, Stack, wait_until

AT_ONCE = 6
# 100 times as fast as real time: the hour takes 36 s.
SCALE = 0.01
HOUR_S = 3600
SEED = 20


class Soak(unittest.TestCase):
    def descriptors(self, stack):
        """The daemon's open descriptors, with their targets."""
        folder = f"/proc/{stack.pid_of('hbd')}/fd"
        found = []
        for name in os.listdir(folder):
            try:
                found.append(os.readlink(os.path.join(folder, name)).split(":")[0])
            except FileNotFoundError:
                pass  # the descriptor of the listing, or one that was closed meanwhile
        return sorted(found)

    def check_descriptors(self, stack, before):
        try:
            wait_until("the daemon holds no more descriptors than before", lambda: len(self.descriptors(stack)) <= len(before))
        except AssertionError:
            self.assertEqual(self.descriptors(stack), before)
            raise

    def test_two_hundred_tenants_arrive_and_leave(self):
        with Stack(scale=0.05) as stack:
            expected = stack.bare("work", 1).output()
            stack.start("low", "work", 1).output()
            stack.check_empty()
            before = self.descriptors(stack)
            running = []
            for i in range(200):
                running.append(stack.start(("high", "low")[i % 2], "work", 1,
                                           options=("--memory", "64MiB") if i % 3 else ()))
                if len(running) == AT_ONCE:
                    self.assertEqual(running.pop(0).output(), expected)
            for program in running:
                self.assertEqual(program.output(), expected)
            stack.check_empty()
            self.check_descriptors(stack, before)

    def random_tenant(self, stack, dice):
        priority = dice.choice(("high", "low", "low"))
        mode = dice.choice((("work", 4), ("train", 5000, 60), ("train", 200, 2000), ("child", "fork"),
                            ("child", "exec"), ("child", "spawn")))
        options = dice.choice(((), ("--memory", "1GiB"), ("--slo", "10ms"), ("--engine", "turns")))
        more = {"program": TENANT_LINKED} if dice.random() < 0.3 else {}
        return stack.start(priority, *mode, options=options, **more)

    def kill_daemons(self, stack):
        """The daemon that serves, and daemons that an `hb run` is just starting."""
        pids = [pid for pid, name in stack.processes().items() if name == "hbd"]
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass  # another daemon got the socket
        return len(pids)

    def finish(self, program, killed):
        status = program.ended()
        self.assertIn(status, (0, -signal.SIGKILL) if killed else (0,), f"{program.command}\n{program.stderr()}")
        return status == 0

    def test_an_hour_of_gpu_time_leaves_nothing_behind(self):
        dice = random.Random(SEED)
        finished = killed = daemons = 0
        with Stack(scale=SCALE) as stack:
            stack.start("low", "work", 1).output()
            stack.check_empty()
            before, rss_before = self.descriptors(stack), stack.daemon_kib()
            end = time.monotonic() + HOUR_S * SCALE
            running = []
            # On a slow machine the test runs longer, until enough has happened.
            while time.monotonic() < end or (min(finished / 50, killed / 5, daemons) <= 1 and time.monotonic() < end + LIMIT):
                while len(running) < AT_ONCE:
                    running.append([self.random_tenant(stack, dice), False])
                victim = dice.choice(running)
                if dice.random() < 0.15:
                    victim[0].signal(signal.SIGKILL)
                    victim[1] = True
                if dice.random() < 0.005:
                    daemons += self.kill_daemons(stack)
                running.remove(victim)
                if self.finish(*victim):
                    finished += 1
                else:
                    killed += 1
                victim[0].close()
                stack.programs.remove(victim[0])
            for program, was_killed in running:
                self.finish(program, was_killed)
            stack.start("low", "work", 1).output()
            print(f"{finished} ended, {killed} were killed, {daemons} times the daemon; it grew {rss_before} -> {stack.daemon_kib()} KiB")
            self.assertGreater(finished, 50)
            self.assertGreater(killed, 5)
            self.assertGreater(daemons, 1)
            stack.check_empty()
            self.check_descriptors(stack, before)
            self.assertLess(stack.daemon_kib(), rss_before + 4096)


if __name__ == "__main__":
    unittest.main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Budgets of users of the system's daemon: a user that takes everything it can get leaves
the other users their places. Users are numbers that need no entry in /etc/passwd.
Needs root, setpriv and a mount namespace of its own; skipped where these are missing."""
import os
import shutil
import signal
import subprocess
import time
import unittest

from stack import BUILD, HB, wait_until
from test_stack_system import GROUP_ID, SystemStack, as_nobody, own_mounts_work

CROWD = os.path.join(BUILD, "tests/end-to-end/crowd")
GREEDY, OTHER = 64901, 64902


def as_user(uid, *command):
    return ["setpriv", "--reuid", str(uid), "--regid", str(uid), "--groups", str(GROUP_ID), "--", *map(str, command)]


@unittest.skipIf(os.geteuid() != 0, "only root can run the system's daemon and programs of another user")
@unittest.skipUnless(shutil.which("setpriv") and own_mounts_work(), "needs setpriv and a mount namespace of its own")
class Budgets(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if subprocess.run(as_nobody(HB, "--version"), capture_output=True, check=False).returncode:
            raise unittest.SkipTest(f"user nobody may not run {HB}")

    def crowd(self, stack, uid, what, first, count):
        """Starts a process of this user that takes what it gets. Returns it, the number, and why it got no more."""
        program = stack.spawn(as_user(uid, CROWD, stack.environment["HB_SOCKET"], what, first, count))
        got = int(program.expect("got").split()[1])
        return program, got, program.line()

    def users(self, stack):
        return {user["uid"]: user for user in stack.status()["users"]}

    def test_one_user_cannot_take_all_tenants(self):
        with SystemStack() as stack:
            greedy, got, why = self.crowd(stack, GREEDY, "tenants", 0, 400)
            self.assertGreater(got, 150)  # alone it may have almost all
            self.assertIn(f"user {GREEDY} has {got} tenants; the daemon has room for 252, and keeps the", why)
            other, others, why = self.crowd(stack, OTHER, "tenants", 1000, 2)
            self.assertEqual((others, why), (2, "all"))
            root, roots, why = self.crowd(stack, 0, "tenants", 2000, 2)
            self.assertEqual((roots, why), (2, "all"))
            users = self.users(stack)
            self.assertEqual((users[GREEDY]["held"]["tenants"], users[GREEDY]["refused"]["tenants"]), (got, 1))
            self.assertEqual((users[OTHER]["held"]["tenants"], users[OTHER]["refused"]["tenants"]), (2, 0))
            stack.end(greedy, other, root)

    def test_one_user_cannot_take_all_places_of_gpus(self):
        stack = SystemStack()
        stack.environment["HB_SIM_UNLISTED"] = "1"  # else a GPU that does not exist is refused
        with stack:
            greedy, got, why = self.crowd(stack, GREEDY, "gpus", 0, 100)
            self.assertGreaterEqual(got, 16)
            self.assertIn("GPUs that the driver does not list", why)
            other, others, why = self.crowd(stack, OTHER, "gpus", 1000, 1)
            self.assertEqual((others, why), (1, "all"))
            stack.end(greedy)
            again, more, _ = self.crowd(stack, OTHER, "gpus", 2000, 10)  # the places are free again
            self.assertEqual(more, 10)
            stack.end(other, again)

    def test_one_user_cannot_take_all_descriptors(self):
        with SystemStack(files=5800) as stack:
            self.assertIn("raise LimitNOFILE of the service", stack.daemon.stderr())
            greedy = [self.crowd(stack, GREEDY, "processes", 0, 200) for _ in range(30)]
            self.assertLess(sum(got for _, got, _ in greedy), 600)
            self.assertIn(f"user {GREEDY} has", greedy[-1][2])
            self.assertIn("processes that use CUDA", greedy[-1][2])
            other, others, why = self.crowd(stack, OTHER, "processes", 1000, 3)
            self.assertEqual((others, why), (3, "all"))
            stack.end(other, *(program for program, _, _ in greedy))

    def test_one_user_cannot_take_all_connections(self):
        with SystemStack() as stack:
            # A connection of another user stays, although many newer ones were opened since.
            other, others, _ = self.crowd(stack, OTHER, "connections", 0, 1)
            greedy = [self.crowd(stack, GREEDY, "connections", 0, 300)[0] for _ in range(2)]
            users = self.users(stack)
            self.assertEqual(users[OTHER]["held"]["connections"], 2)  # crowd has one from the start
            self.assertEqual(users[GREEDY]["held"]["connections"], 208)
            self.assertGreater(users[GREEDY]["refused"]["connections"], 0)
            stack.end(other, *greedy)

    def test_what_each_user_takes_is_counted(self):
        with SystemStack() as stack:
            other, _, _ = self.crowd(stack, OTHER, "tenants", 1000, 1)
            before = self.users(stack)[OTHER]
            greedy, _, _ = self.crowd(stack, GREEDY, "tenants", 0, 100)
            users = self.users(stack)
            self.assertEqual((users[GREEDY]["requests"], users[OTHER]["requests"]), (101, 2))
            self.assertGreater(users[GREEDY]["loop_ns"], 0)
            self.assertEqual(users[OTHER]["loop_ns"], before["loop_ns"])  # others' requests do not count
            stack.end(greedy, other)

    def test_one_user_cannot_fill_the_log(self):
        """Each tenant makes a line when it begins and one when it ends."""
        with SystemStack() as stack:
            stack.stop_daemon()
            stack.start_daemon(HB_LOG="info")
            begin = time.monotonic()
            for _ in range(2):
                greedy, got, _ = self.crowd(stack, GREEDY, "tenants", 0, 150)
                self.assertEqual(got, 150)
                stack.end(greedy)
                wait_until("its tenants have ended", lambda: not stack.tenants())
            other, _, _ = self.crowd(stack, OTHER, "tenants", 1000, 1)
            # A thread of the daemon writes the log.
            wait_until("the other user's line is in the log", lambda: f"user {OTHER}" in stack.daemon.stderr())
            lines = stack.daemon.stderr().splitlines()
            written = sum("crowd" in line and f"user {OTHER}" not in line for line in lines)
            self.assertLessEqual(written, 100 + time.monotonic() - begin + 1)
            self.assertGreaterEqual(self.users(stack)[GREEDY]["log_lines_left_out"], 600 - written)
            stack.end(other)

    def test_requests_are_served_users_in_turn(self):
        """Requests of two users wait in a stopped daemon, those of the other user last. The numbers of the tenants
        show in which order they were served."""
        with SystemStack() as stack:
            greedy, _, _ = self.crowd(stack, GREEDY, "burst", 0, 150)
            other, _, _ = self.crowd(stack, OTHER, "burst", 1000, 1)
            pid = stack.status()["daemon"]["pid"]
            os.kill(pid, signal.SIGSTOP)
            for program in greedy, other:
                program.go()
                program.expect("sent")
            os.kill(pid, signal.SIGCONT)
            wait_until("all have been served", lambda: len(stack.tenants()) == 151)
            order = [tenant["user"] for tenant in sorted(stack.tenants(), key=lambda tenant: tenant["id"])]
            self.assertLess(order.index(str(OTHER)), 75)
            stack.end(greedy, other)

    def test_the_configuration_limits_each_user(self):
        with SystemStack("users: 4\nuser_tenants: 5\n") as stack:
            greedy, got, why = self.crowd(stack, GREEDY, "tenants", 0, 10)
            self.assertEqual(got, 5)
            self.assertIn("the most that hummingbird.yaml allows one user (user_tenants)", why)
            stack.end(greedy)


if __name__ == "__main__":
    unittest.main()

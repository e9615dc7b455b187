#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the daemon's children inherit, and what a daemon takes over that follows a killed one: nothing but the standard
descriptors reaches a child, and after two restarts in a row each page, gate and time slice belongs to its own process.
FD_RECORDER names a library that records the descriptors with which a program begins (fd_recorder.c)."""
import os
import signal
import unittest

from stack import Stack, wait_until

RECORDER = os.environ["FD_RECORDER"]
STANDARD = (0, 1, 2)
SERVICE = ("infer", "--rate", 100, "--seconds", 3600, "--kernels", 4)


class Recorded:
    """The programs that one folder of records names: [(pid, parent, name, {number: target})]."""
    def __init__(self, folder):
        self.programs = []
        for name in os.listdir(folder):
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                first, *rest = file.read().splitlines()
            pid, parent, program = first.split(" ", 2)
            targets = dict(line.split(" ", 1) for line in rest)
            self.programs.append((int(pid), int(parent), program, {int(fd): target for fd, target in targets.items()}))

    def beginning_with(self, name):
        return [found for found in self.programs if found[2] == name]


def servers(stack):
    """The pids of the processes that the daemon takes for MPS servers."""
    return [process["pid"] for tenant in stack.status()["tenants"] if tenant["priority"] == "mps server"
            for process in tenant["processes"]]


def has_joined(stack, program):
    return [tenant for tenant in stack.tenants() if tenant["pid"] == program.pid and tenant["processes"]]


def slice_reason(tenant):
    return " ".join(entry["why"] for gpu in tenant["gpus"] for entry in gpu["mechanisms"] if "slice" in entry["mechanism"])


class Children(unittest.TestCase):
    def records(self, stack):
        folder = os.path.join(stack.folder, "descriptors")
        os.mkdir(folder)
        return folder, {"LD_PRELOAD": RECORDER, "HB_TEST_DESCRIPTORS": folder}

    def check(self, found, allowed):
        """Checks that a program began with nothing but these descriptors, and with no file of the daemon as one of them."""
        _, _, name, targets = found
        self.assertLessEqual(set(targets), set(allowed), (name, targets))
        for target in targets.values():
            for word in ("memfd:", "eventfd", "eventpoll", "pidfd", "hbd.sock"):
                self.assertNotIn(word, target, (name, targets))

    def test_no_child_of_the_daemon_inherits_a_descriptor(self):
        """The daemon has adopted a page and was started with an open file, then it starts the MPS server."""
        with Stack() as stack:
            folder, variables = self.records(stack)
            stack.start_daemon()
            high = stack.start("high", *SERVICE)
            wait_until("the service runs", lambda: has_joined(stack, high))
            stack.daemon.signal(signal.SIGKILL)
            stack.daemon.ended()
            left_open = os.memfd_create("left-open", 0)
            stack.start_daemon(pass_fds=[left_open], **variables)
            os.close(left_open)
            wait_until("the service is back", lambda: has_joined(stack, high))
            stack.start("low", "train", 1000, 5).output()
            high.signal(signal.SIGTERM)
            high.output()
            stack.stop_daemon()
            recorded = Recorded(folder)
            started = recorded.beginning_with("hb-sim-mps-server")
            self.assertGreaterEqual(len(recorded.beginning_with("hb-sim-mps-control")), 4)  # -d and three commands
            self.assertEqual(len(started), 1)
            for found in recorded.beginning_with("hb-sim-mps-control"):
                self.check(found, STANDARD)
            self.check(started[0], (*STANDARD, 3))  # its connection to the control program
            known = {"hbd", "hb-sim-mps-control", "hb-sim-mps-server", "hb-simgpu"}
            self.assertLessEqual({found[2] for found in recorded.programs}, known)

    def test_the_search_for_gpcs_inherits_no_descriptor(self):
        with Stack(config="engine: spatial\n") as stack:
            folder, variables = self.records(stack)
            left_open = os.memfd_create("left-open", 0)
            stack.start_daemon(pass_fds=[left_open], **variables)
            os.close(left_open)
            stack.start("high", "work", 1).output()
            trials = wait_until("the daemon searches GPCs", lambda: Recorded(folder).beginning_with("hb"))
            for found in trials:
                self.check(found, STANDARD)


class TakeOver(unittest.TestCase):
    def restart(self, stack):
        stack.daemon.signal(signal.SIGKILL)
        stack.daemon.ended()
        stack.start_daemon()

    def is_right(self, stack, high, lows):
        """Whether the status shows exactly the processes that run, each with its own role and slice."""
        server = stack.pid_of("hb-sim-mps-server")
        tenants = stack.tenants()
        if servers(stack) != [server] or len(tenants) != 1 + len(lows):
            return False
        if any(not tenant["gpus"] or len(tenant["processes"]) != 1 for tenant in tenants):
            return False
        roles = {tenant["processes"][0]["pid"]: tenant for tenant in tenants}
        of = {program: next((tenant for pid, tenant in roles.items() if pid in program.family()), None)
              for program in (high, *lows)}
        if None in of.values():
            return False
        self.assertEqual((of[high]["priority"], of[high]["mps"]), ("high", False))
        return "1 us" not in slice_reason(of[high]) and all(
            "1 us on the channel group of the MPS server" in slice_reason(of[low]) for low in lows)

    def test_two_restarts_in_a_row_confuse_no_pages(self):
        with Stack() as stack:
            stack.start_daemon()
            high = stack.start("high", *SERVICE)
            wait_until("the service runs", lambda: has_joined(stack, high))
            self.restart(stack)
            wait_until("the service is back", lambda: has_joined(stack, high))
            first = stack.start("low", "train", 1000, 0)
            first.expect("running")
            self.restart(stack)
            wait_until("the status is right", lambda: self.is_right(stack, high, [first]))
            second = stack.start("low", "train", 1000, 0)
            second.expect("running")
            first.signal(signal.SIGTERM)
            first.output()
            self.restart(stack)
            wait_until("the status is right", lambda: self.is_right(stack, high, [second]))
            high.signal(signal.SIGTERM)
            high.output()
            wait_until("the daemon forgets the service", lambda: len(stack.tenants()) == 1)
            self.assertEqual(servers(stack), [stack.pid_of("hb-sim-mps-server")])
            second.signal(signal.SIGTERM)
            self.assertTrue(second.result()["right"])


if __name__ == "__main__":
    unittest.main()

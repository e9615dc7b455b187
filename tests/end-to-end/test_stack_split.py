#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The system daemon gives up the rights of root and asks its helper process for what needs them. Tests of what it can do
without them are those of `stack system` and `stack two_users`, which run once with and once without a helper. Needs root,
setpriv and a mount namespace of its own."""
import os
import signal
import subprocess
import unittest

import test_stack_system as system
from stack import TENANT, wait_until
from test_stack_two_users import FIRST, SECOND, TwoUsers

NO_RIGHTS = {"CapInh": "0" * 16, "CapPrm": "0" * 16, "CapEff": "0" * 16, "CapAmb": "0" * 16, "NoNewPrivs": "1"}
OWN_PROC = 'mount -t proc -o hidepid=2 proc /proc'


def state_of(path):
    with open(os.path.join(path, "status"), encoding="utf-8") as file:
        return dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)


def own_proc_works():
    return subprocess.run(["unshare", "-m", "sh", "-c", OWN_PROC], capture_output=True, check=False).returncode == 0


class SplitStack(TwoUsers):
    def __init__(self, config="", **more):
        super().__init__(config, split=True, **more)
        self.environment["STATE_DIRECTORY"] = os.path.join(self.folder, "state")

    def helper(self):
        return self.pid_of("hbd-helper")

    def end_by_signal(self, *programs):
        for program in programs:
            program.signal(signal.SIGTERM)
            assert program.result()["right"], program.lines


@unittest.skipIf(os.geteuid() != 0, "only root can run the system's daemon and programs of another user")
@unittest.skipUnless(system.shutil.which("setpriv") and system.own_mounts_work(), "needs setpriv and a mount namespace of its own")
class Split(unittest.TestCase):
    def setUp(self):
        if subprocess.run(system.as_nobody(system.HB, "--version"), capture_output=True, check=False).returncode:
            self.skipTest(f"user nobody may not run {system.HB}")

    def test_no_thread_of_the_daemon_has_rights_of_root(self):
        with SplitStack() as stack:
            daemon = stack.pid_of("hbd")
            self.assertEqual(stack.status()["daemon"]["pid"], daemon)
            threads = os.listdir(f"/proc/{daemon}/task")
            self.assertGreater(len(threads), 1)
            for thread in threads:
                state = state_of(f"/proc/{daemon}/task/{thread}")
                self.assertEqual(state["Uid"].split(), [str(system.DAEMON_USER_ID)] * 4, state)
                self.assertEqual(state["Gid"].split(), [str(system.GROUP_ID)] * 4, state)
                self.assertEqual(state["Groups"].split(), [])
                self.assertEqual({name: state[name] for name in NO_RIGHTS}, NO_RIGHTS)
            self.assertEqual(state_of(f"/proc/{stack.helper()}")["Uid"].split(), ["0"] * 4)
            self.assertEqual(os.stat(stack.environment["HB_SOCKET"]).st_uid, 0)  # by which clients know the system's daemon

    def test_tenants_of_two_users_are_served(self):
        with SplitStack(HB_SIM_MPS_FRAGILE="1") as stack:
            low = stack.low(FIRST, TENANT, "train", 1000, 0)
            low.expect("running")
            self.assertTrue(stack.of(low)["mps"])
            killed = stack.low(FIRST, TENANT, "train", 1000, 0)
            killed.expect("running")
            lost = stack.of(killed)
            killed.signal(signal.SIGKILL)  # the supervisor; its tenant is ended without harm to the other client
            killed.ended()
            wait_until("its processes have ended", lambda: not stack.family(lost) & set(stack.processes()))
            wait_until("the daemon has ended them", lambda: "ended the GPU work of 1 processes" in stack.daemon.stderr())
            second = stack.low(SECOND, TENANT, "train", 1000, 0)
            second.expect("running")
            self.assertFalse(stack.of(second)["mps"])
            stack.end_by_signal(second, low)

    def test_tenants_go_on_without_the_helper(self):
        with SplitStack() as stack:
            low = stack.low(FIRST, TENANT, "train", 1000, 0)
            low.expect("running")
            server = stack.pid_of("hb-sim-mps-server")
            helper = stack.helper()
            os.kill(helper, signal.SIGKILL)
            wait_until("the daemon has noticed it", lambda: f"the helper process {helper} has ended" in stack.daemon.stderr())
            other = stack.low(SECOND, TENANT, "train", 1000, 0)
            other.expect("running")
            self.assertIsNotNone(stack.of(other))
            killed = stack.low(FIRST, TENANT, "train", 1000, 0)
            killed.expect("running")
            stack.end_by_signal(killed, other, low)
            self.assertEqual(stack.daemon.stderr().count("helper process"), 1)
            self.assertIsNone(stack.daemon.process.poll())
            wait_until("the daemon lists no tenant", lambda: not stack.tenants())
            # Without the helper no process may end the MPS server and remove the socket. The next daemon does both.
            stack.daemon.signal(signal.SIGTERM)
            stack.daemon.ended()
            self.assertIn(server, stack.processes())
            stack.start_daemon()
            wait_until("the next daemon has found the server", lambda: stack.status()["daemon"]["mps"]["state"] == "ready")

    def test_the_helper_ends_with_the_daemon(self):
        with SplitStack() as stack:
            helper = stack.helper()
            os.kill(stack.pid_of("hbd"), signal.SIGKILL)
            stack.daemon.ended()
            wait_until("the helper has ended", lambda: helper not in stack.processes())
            stack.start_daemon()
            self.assertNotEqual(stack.helper(), helper)

    def test_what_the_daemon_has_learned_belongs_to_its_user(self):
        stack = SplitStack("engine: auto\n")
        folder, foreign = os.path.join(stack.folder, "state"), os.path.join(stack.folder, "foreign")
        path = os.path.join(folder, "engines.json")
        os.mkdir(folder, mode=0o700)
        for name in (path, foreign):  # as a daemon with the rights of root wrote the first one
            with open(name, "w", encoding="utf-8") as file:
                file.write('{"version": 1, "pairs": []}')
            os.chmod(name, 0o600)
        with stack:
            self.assertEqual([os.stat(name).st_uid for name in (folder, path)], [system.DAEMON_USER_ID] * 2)
            self.assertNotIn("engines.json", stack.daemon.stderr())
            stack.daemon.signal(signal.SIGTERM)
            stack.daemon.ended()
            os.remove(path)
            os.link(foreign, path)  # the user cannot get a file of root in this way
            stack.start_daemon()
            self.assertEqual(os.stat(foreign).st_uid, 0)
            self.assertIn("engines.json", stack.daemon.stderr())

    def test_without_its_user_the_daemon_keeps_its_rights_and_reports_it(self):
        with TwoUsers(split=False) as stack:
            self.assertIn("the daemon keeps the rights of the user that started it: there is no user hummingbird in "
                          "/etc/passwd", stack.daemon.stderr())
            self.assertEqual(state_of(f"/proc/{stack.pid_of('hbd')}")["Uid"].split(), ["0"] * 4)

    @unittest.skipUnless(own_proc_works(), "/proc cannot be mounted here")
    def test_with_a_hidden_proc_the_daemon_keeps_its_rights_and_reports_it(self):
        with SplitStack(before=OWN_PROC) as stack:
            self.assertIn("user hummingbird cannot read /proc of other users", stack.daemon.stderr())
            self.assertEqual(state_of(f"/proc/{stack.pid_of('hbd')}")["Uid"].split(), ["0"] * 4)


if __name__ == "__main__":
    unittest.main()

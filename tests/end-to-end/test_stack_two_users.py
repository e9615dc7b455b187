#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Low-priority programs of two users on one GPU, under the system's daemon. MPS serves one user at a time; the programs of
the second user run outside it and take turns with those inside. Needs root, setpriv and a mount namespace of its own."""
import os
import pwd
import shutil
import signal
import subprocess
import unittest

import test_stack_system as system
from stack import HB, LIMIT, SIMCUDA, TENANT, wait_until

FIRST, SECOND = "nobody", "daemon"
CONTROL = os.path.join(SIMCUDA, "hb-sim-mps-control")


def as_user(name, *command):
    user = pwd.getpwnam(name)
    return [str(word) for word in ("setpriv", "--reuid", user.pw_uid, "--regid", user.pw_gid, "--groups", system.GROUP_ID,
                                   "--", *command)]


class TwoUsers(system.SystemStack):
    def __init__(self, config="", **more):
        super().__init__(config, mps=True, **more)
        os.chmod(self.gpu_folder, 0o777)  # every user may use this simulated GPU

    def low(self, user, *command):
        return self.spawn(as_user(user, HB, "run", "--gpu", "sim", "--priority", "low", "--", *command))

    def of(self, program):
        """The status of the tenant whose programs include this one."""
        found = [tenant for tenant in self.tenants() if program.family() & self.family(tenant)]
        return found[0] if found else None

    def family(self, tenant):
        return {tenant["pid"], *(process["pid"] for process in tenant["processes"])}

    def engine(self):
        return [gpu["engine"] for gpu in self.status()["gpus"]]


@unittest.skipIf(os.geteuid() != 0, "only root can run the system's daemon and programs of another user")
@unittest.skipUnless(shutil.which("setpriv") and system.own_mounts_work(), "needs setpriv and a mount namespace of its own")
class Users(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if subprocess.run(as_user(FIRST, HB, "--version"), capture_output=True, check=False).returncode:
            raise unittest.SkipTest(f"user {FIRST} may not run {HB}")

    def test_an_idle_program_of_one_user_locks_no_other_user_out(self):
        with TwoUsers() as stack:
            idle = stack.low(FIRST, *system.READY)
            idle.expect("ready")
            self.assertTrue(stack.of(idle)["mps"])
            second = stack.low(SECOND, TENANT, "train", 1000, 0)
            second.expect("running")
            view = wait_until("the program uses the GPU", lambda: stack.of(second) if stack.of(second)["gpus"] else None)
            self.assertFalse(view["mps"])
            self.assertIn(f"low-priority programs of user {FIRST} are in the MPS server", view["reduced"])
            self.assertEqual(view["gpus"][0]["slice_us"], 1)
            second.signal(signal.SIGTERM)
            self.assertTrue(second.result()["right"])
            stack.end(idle)

    def test_two_users_take_turns_and_then_things_are_as_before(self):
        with TwoUsers("quantum: 20ms\nrules:\n  - {user: root, priority: high}\n") as stack:
            service = stack.spawn([HB, "run", "--gpu", "sim", "--priority", "high", "--", TENANT, "infer", "--rate", 100,
                                   "--seconds", 3600, "--kernels", 4])
            first = stack.low(FIRST, TENANT, "train", 1000, 0)
            first.expect("running")
            self.assertEqual(stack.engine(), ["temporal"])
            server = stack.pid_of("hb-sim-mps-server")
            second = stack.low(SECOND, TENANT, "train", 1000, 0)
            second.expect("running")
            self.assertEqual(stack.engine(), ["turns"])
            wait_until("both had turns", lambda: min(stack.of(program)["gpus"][0]["turns"] for program in (first, second)) > 5)
            turns = [stack.of(program)["gpus"][0]["turns"] for program in (first, second)]
            self.assertLessEqual(abs(turns[0] - turns[1]), 3)  # the two numbers are read one after the other
            self.assertEqual(stack.pid_of("hb-sim-mps-server"), server)
            second.signal(signal.SIGTERM)
            self.assertTrue(second.result()["right"])
            wait_until("low priority shares the MPS server again", lambda: stack.engine() == ["temporal"])
            self.assertTrue(stack.of(first)["mps"])
            for program in (first, service):
                program.signal(signal.SIGTERM)
                program.output()

    def test_beside_a_spatial_service_of_another_user_a_program_is_told_what_to_do(self):
        with TwoUsers(f"rules:\n  - {{user: {FIRST}, priority: high}}\n  - {{user: {SECOND}, priority: low}}\n") as stack:
            service = stack.spawn(as_user(FIRST, HB, "run", "--gpu", "sim", "--engine", "spatial", "--priority", "high", "--",
                                          TENANT, "infer", "--rate", 100, "--seconds", 3600, "--kernels", 4))
            wait_until("the service runs", lambda: stack.of(service) and stack.of(service)["gpus"])
            refused = stack.low(SECOND, TENANT, "train", 10, 0)
            self.assertEqual(refused.ended(), 125)
            said = refused.stderr()
            self.assertIn(f"high-priority programs of user {FIRST} are in the MPS server, which serves one user at a time, "
                          "and high priority uses the spatial engine there", said)
            self.assertIn("start it with --engine temporal", said)
            service.signal(signal.SIGTERM)
            service.output()

    def turns(self, stack, programs):
        return [stack.of(program)["gpus"][0]["turns"] for program in programs]

    def test_a_user_with_many_programs_has_no_more_turns_than_another(self):
        """The first user has one program in the MPS server, the second user three outside."""
        with TwoUsers("quantum: 20ms\n") as stack:
            programs = [stack.low(user, TENANT, "train", 1000, 0) for user in (FIRST, SECOND, SECOND, SECOND)]
            for program in programs:
                program.expect("running")
            wait_until("all had a turn", lambda: min(self.turns(stack, programs)) > 0)
            before = self.turns(stack, programs)
            wait_until("the second user had many", lambda: sum(self.turns(stack, programs)[1:]) - sum(before[1:]) >= 12)
            had = [after - first for after, first in zip(self.turns(stack, programs), before)]
            self.assertGreater(had[0], 6, had)  # half of the turns; a turn for each program would have given it 4
            self.assertGreater(min(had[1:]), 1, had)
            for program in programs:
                program.signal(signal.SIGTERM)
                self.assertTrue(program.result()["right"])

    def test_programs_in_the_mps_server_have_their_turn_together(self):
        with TwoUsers("quantum: 20ms\n") as stack:
            inside = [stack.low(FIRST, TENANT, "train", 1000, 0) for _ in range(2)]
            outside = stack.spawn(as_user(FIRST, HB, "run", "--gpu", "sim", "--priority", "low", "--own-context", "--",
                                          TENANT, "train", 1000, 0))
            for program in (*inside, outside):
                program.expect("running")
            self.assertEqual(stack.engine(), ["turns"])
            wait_until("all had a turn", lambda: min(self.turns(stack, (*inside, outside))) > 0)
            before = self.turns(stack, (*inside, outside))
            wait_until("some turns", lambda: self.turns(stack, (outside,))[0] - before[2] >= 6)
            had = [after - first for after, first in zip(self.turns(stack, (*inside, outside)), before)]
            self.assertLessEqual(abs(had[0] - had[1]), 1, had)
            self.assertLessEqual(abs(had[0] - had[2]), 1, had)  # as often as the program outside
            for program in (*inside, outside):
                program.signal(signal.SIGTERM)
                self.assertTrue(program.result()["right"])

    def test_the_server_changes_its_user_when_the_last_program_of_the_first_has_ended(self):
        with TwoUsers() as stack:
            stack.low(FIRST, TENANT, "train", 100, 5).output()
            wait_until("the daemon has noticed its end", lambda: not stack.tenants())
            before = stack.pid_of("hb-sim-mps-server")
            self.assertEqual(self.owner(before), FIRST)
            second = stack.low(SECOND, TENANT, "train", 1000, 0)
            second.expect("running")
            self.assertTrue(stack.of(second)["mps"])
            after = stack.pid_of("hb-sim-mps-server")
            self.assertNotEqual(after, before)
            self.assertEqual(self.owner(after), SECOND)
            wait_until("the daemon watches the new server", lambda: after in [
                process["pid"] for tenant in stack.status()["tenants"] if tenant["priority"] == "mps server"
                for process in tenant["processes"]])
            for user, expected in ((FIRST, 1), (SECOND, 0)):  # who can give the control program commands
                done = subprocess.run(as_user(user, CONTROL), input="get_server_list\n", text=True, capture_output=True,
                                      check=False, timeout=LIMIT,
                                      env=stack.environment | {"CUDA_MPS_PIPE_DIRECTORY": os.path.join(stack.folder, "sim-mps")})
                self.assertEqual(done.returncode, expected, done)
            second.signal(signal.SIGTERM)
            second.output()

    def owner(self, pid):
        with open(f"/proc/{pid}/status", encoding="utf-8") as file:
            uid = [line.split()[2] for line in file if line.startswith("Uid:")][0]
        return pwd.getpwuid(int(uid)).pw_name

    def test_the_daemon_takes_a_server_of_another_user_over(self):
        """Killed and started again twice, while tenants of two users live, start and end."""
        with TwoUsers() as stack:
            first = stack.low(FIRST, TENANT, "train", 1000, 0)
            first.expect("running")
            server = stack.pid_of("hb-sim-mps-server")
            second = stack.low(SECOND, TENANT, "train", 1000, 0)
            second.expect("running")
            for _ in range(2):
                os.kill(stack.pid_of("hbd"), signal.SIGKILL)
                stack.daemon.ended()
                stack.start_daemon()
                wait_until("the status is right", lambda: self.is_right(stack, server, first, second))
                third = stack.low(FIRST, TENANT, "train", 1000, 5)
                third.output()
                self.assertEqual(stack.pid_of("hb-sim-mps-server"), server)
            for program in (first, second):
                program.signal(signal.SIGTERM)
                self.assertTrue(program.result()["right"])

    def is_right(self, stack, server, first, second):
        roles = {pid: (tenant["priority"], tenant["mps"], tenant["user"]) for tenant in stack.status()["tenants"]
                 for pid in stack.family(tenant)}
        inside = {roles.get(pid) for pid in first.family()}
        outside = {roles.get(pid) for pid in second.family()}
        return roles.get(server) == ("mps server", False, FIRST) and ("low", True, FIRST) in inside and \
            ("low", False, SECOND) in outside


if __name__ == "__main__":
    unittest.main()

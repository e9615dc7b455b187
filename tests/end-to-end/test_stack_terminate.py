#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The daemon ends the work of MPS clients before they are killed (TERMINATE), and ends the processes of a tenant whose
supervisor was killed. The MPS server is fragile (HB_SIM_MPS_FRAGILE): a client that dies with work in flight ends the
others. The supervisor of these tests is this script, so that each of its messages can be chosen."""
import json
import os
import signal
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../fuzz"))
from live_daemon import Client, MESSAGES, VALUES, pack, unpack
from stack import HB, SHIM, SIMCUDA, TENANT, Stack, end_well, wait_until

TRAIN = (TENANT, "train", "100000", "0")  # long kernels, so that some are in flight whenever it is killed


class Supervisor:
    """Runs in the process that the tests start: it obeys one command a line, and prints the answers."""

    def __init__(self, command):
        self.token = os.urandom(16)
        self.client = Client(os.environ["HB_SOCKET"], timeout=60)
        flags = VALUES["HB_REGISTER_CREATE"] | VALUES["HB_REGISTER_SUPERVISED"] | VALUES["HB_REGISTER_SIMULATED"]
        kind, data, fds = self.client.register(self.token, flags=flags)
        assert kind == "REGISTERED", (kind, data)
        self.page, self.flags = fds[0], flags | VALUES["HB_REGISTER_MPS"]
        granted = [word.decode().split("=", 1) for word in data[MESSAGES["REGISTERED"][1]:].split(b"\0") if word]
        variables = {"HB_TENANT": self.token.hex(), "HB_PRIORITY": "low", "HB_GPU": "sim",
                     "LD_LIBRARY_PATH": SHIM + ":" + SIMCUDA, "HB_REAL_LIBCUDA": SIMCUDA + "/libcuda.so.1"}
        self.child = subprocess.Popen(command, env=os.environ | variables | dict(granted))
        print("child", self.child.pid, flush=True)

    def obey(self, word, *arguments):
        self.client.close()  # the daemon ends connections that are idle for long
        self.client = Client(os.environ["HB_SOCKET"], timeout=60)
        if word == "flood":  # connections that end before they have an answer
            for _ in range(int(arguments[0])):
                client = Client(os.environ["HB_SOCKET"], timeout=60)
                client.send(pack("TERMINATE", token=self.token, signal=9))
                client.close()
            self.client.send(pack("TERMINATE", token=b"x" * 16, signal=9))
        elif word == "terminate":
            self.client.send(pack("TERMINATE", token=self.token, signal=int(arguments[0])))
        elif word == "again":  # after a restart of the daemon
            self.client.send(pack("REGISTER", b"again", slot=VALUES["HB_PAGE_PROCESSES"], token=self.token,
                                  flags=self.flags | VALUES["HB_REGISTER_PAGE"]), [self.page])
        elif word == "bye":
            self.client.send(pack("BYE", token=self.token))
        kind, data, _ = self.client.receive()
        text = "" if kind == "REGISTERED" else data[MESSAGES[kind][1]:].decode()
        print("answer", kind, text, flush=True)


def supervise(command):
    supervisor = Supervisor(command)
    for line in sys.stdin:
        supervisor.obey(*line.split())


class SupervisedStack(Stack):
    def hb_status(self):
        return subprocess.run([HB, "status", "--gpu", "sim"], env=self.environment, capture_output=True, text=True,
                              check=True).stdout


class Common(unittest.TestCase):
    def stack(self):
        return SupervisedStack(scale=0.3, HB_SIM_MPS_FRAGILE="1", HB_BUILD=os.environ["HB_BUILD"],
                     PYTHONPATH=os.environ.get("PYTHONPATH", ""))

    def supervised(self, stack, *command, **variables):
        program = stack.spawn([sys.executable, os.path.abspath(__file__), "--supervise", *command], **variables)
        program.child = int(program.expect("child").split()[1])
        return program

    def tell(self, program, text):
        program.process.stdin.write(text + "\n")
        program.process.stdin.flush()
        return program.expect("answer")

    def others(self, stack):
        """A client of the same server, a client of another tenant, and a service."""
        programs = [stack.start("low", "train", 200, 0), stack.start("high", "train", 100, 0)]
        for program in programs:
            program.expect("running")
        return programs

    def gone(self, pid):
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
                return file.read().rsplit(")", 1)[1].split()[0] == "Z"
        except (FileNotFoundError, ProcessLookupError):
            return True


class Terminate(Common):
    def test_a_bare_kill_harms_other_clients(self):
        """The negative control: without TERMINATE the model does harm."""
        with self.stack() as stack:
            stack.start_daemon()
            other = stack.start("low", "train", 200, 0)
            other.expect("running")
            program = self.supervised(stack, *TRAIN)
            program.expect("running")
            self.assertIn("DONE", self.tell(program, "bye"))
            os.kill(program.child, signal.SIGKILL)
            self.assertNotEqual(other.ended(), 0)
            self.assertIn("illegal", other.stderr().lower())
            program.process.stdin.close()
            program.ended()

    def test_a_terminated_client_is_killed_without_harm(self):
        with self.stack() as stack:
            stack.start_daemon()
            others = self.others(stack)
            program = self.supervised(stack, *TRAIN)
            program.expect("running")
            self.assertIn("DONE", self.tell(program, "terminate 9"))
            os.kill(program.child, signal.SIGKILL)
            self.assertIn("DONE", self.tell(program, "bye"))
            program.process.stdin.close()
            program.ended()
            end_well(*others)

    def test_a_client_that_catches_the_signal_keeps_its_work(self):
        with self.stack() as stack:
            stack.start_daemon()
            program = self.supervised(stack, *TRAIN)
            program.expect("running")
            self.assertIn("DONE", self.tell(program, f"terminate {int(signal.SIGTERM)}"))  # `train` catches it
            os.kill(program.child, signal.SIGTERM)
            self.assertTrue(json.loads(program.expect("{"))["right"])
            self.assertIn("DONE", self.tell(program, "bye"))
            program.process.stdin.close()
            program.ended()

    def test_a_flood_of_requests_runs_one_command_at_a_time(self):
        """Each command of the daemon is a process, which waits while the control program does not answer."""
        with self.stack() as stack:
            stack.start_daemon()
            program = self.supervised(stack, *TRAIN)
            program.expect("running")
            control = stack.pid_of("hb-sim-mps-control")
            os.kill(control, signal.SIGSTOP)
            try:
                self.assertIn("ERROR", self.tell(program, "flood 40"))  # served after the 40 requests
                commands = [pid for pid, name in stack.processes().items()
                            if name == "hb-sim-mps-control"[:15] and pid != control]
                self.assertLessEqual(len(commands), 1, commands)
            finally:
                os.kill(control, signal.SIGCONT)
            self.assertIn("DONE", self.tell(program, "terminate 9"))
            os.kill(program.child, signal.SIGKILL)
            self.assertIn("DONE", self.tell(program, "bye"))
            program.process.stdin.close()
            program.ended()

    def test_other_users_and_unknown_tenants_get_an_error(self):
        with self.stack() as stack:
            stack.start_daemon()
            client = Client(stack.environment["HB_SOCKET"])
            client.send(pack("TERMINATE", token=b"x" * 16, signal=9))
            self.assertEqual(client.receive()[0], "ERROR")
            client.close()

    def test_a_killed_supervisor_takes_only_its_own_tenant_along(self):
        with self.stack() as stack:
            daemon = stack.start_daemon()
            others = self.others(stack)
            unsupervised = stack.start("low", "train", 200, 0)
            unsupervised.expect("running")
            program = self.supervised(stack, "sh", "-c", " ".join(TRAIN) + " & sleep 3600; true")
            program.expect("running")
            program.signal(signal.SIGKILL)
            wait_until("the shell has ended", lambda: self.gone(program.child))
            wait_until("the tenant is gone", lambda: len(stack.tenants()) == len(others) + 1)
            wait_until("the daemon reports it", lambda: "ended the GPU work of 1 processes and killed" in daemon.stderr())
            end_well(*others, unsupervised)

    def test_many_killed_supervisors_are_handled_one_after_the_other(self):
        """Each search for processes of a tenant is a process that reads /proc."""
        n, most = 20, 0

        def look(daemon):
            nonlocal most
            with open(f"/proc/{daemon.process.pid}/task/{daemon.process.pid}/children", encoding="ascii") as file:
                pids = file.read().split()
            most = max(most, sum(self.searches(pid) for pid in pids))
            return daemon.stderr().count("was killed; ended") == n

        flags = VALUES["HB_REGISTER_CREATE"] | VALUES["HB_REGISTER_SUPERVISED"] | VALUES["HB_REGISTER_SIMULATED"]
        with self.stack() as stack:
            daemon = stack.start_daemon()
            children = []
            for _ in range(n):
                children.append(os.fork())
                if children[-1] == 0:
                    try:
                        client = Client(stack.environment["HB_SOCKET"], timeout=60)
                        client.register(os.urandom(16), flags=flags | VALUES["HB_REGISTER_MPS"])
                        signal.pause()
                    finally:
                        os._exit(1)
            wait_until("all have registered", lambda: len(stack.tenants()) == n)
            for pid in children:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            wait_until("all tenants have ended", lambda: look(daemon))
            self.assertLessEqual(most, 1)

    def searches(self, pid):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                return b"--end-processes" in file.read()
        except (FileNotFoundError, ProcessLookupError):
            return False

    def test_a_restarted_daemon_learns_of_the_supervisor(self):
        """Whether the supervisor or its command registers again first."""
        for first in ("supervisor", "command"):
            with self.subTest(first=first), self.stack() as stack:
                stack.start_daemon()
                program = self.supervised(stack, TENANT, "train", "100", "0")
                program.expect("running")
                other = stack.start("low", "train", 200, 0)
                other.expect("running")
                if first == "supervisor":
                    os.kill(program.child, signal.SIGSTOP)
                stack.daemon.signal(signal.SIGKILL)
                stack.daemon.ended()
                daemon = stack.start_daemon()
                if first == "command":
                    wait_until("the command is back", lambda: program.child in self.processes(stack))
                self.assertIn("REGISTERED", self.tell(program, "again"))
                os.kill(program.child, signal.SIGCONT)
                wait_until("both tenants are back", lambda: len(self.processes(stack)) == 2)
                program.signal(signal.SIGKILL)
                wait_until("the command has ended", lambda: self.gone(program.child))
                wait_until("the daemon reports it", lambda: "was killed; ended the GPU work of 1 processes" in daemon.stderr())
                end_well(other)

    def processes(self, stack):
        return {process["pid"] for tenant in stack.tenants() for process in tenant["processes"]}

    def test_after_bye_nothing_is_killed(self):
        with self.stack() as stack:
            stack.start_daemon()
            program = self.supervised(stack, *TRAIN)
            program.expect("running")
            self.assertIn("DONE", self.tell(program, "bye"))
            program.signal(signal.SIGKILL)
            program.process.wait()
            # Longer than the daemon would wait for a BYE; the tenant lives through a second look.
            first = stack.status()["daemon"]["uptime_ns"]
            wait_until("a second has passed", lambda: stack.status()["daemon"]["uptime_ns"] > first + 10**9)
            self.assertFalse(self.gone(program.child))
            os.kill(program.child, signal.SIGTERM)
            wait_until("it has ended", lambda: not stack.tenants())


class Culprit(Common):
    """`hb status` names the program that made the clients of the MPS server lose their work."""

    def fault(self, stack):
        return stack.status()["daemon"]["mps"]["fault"]

    def victim(self, stack):
        program = self.supervised(stack, *TRAIN)
        program.expect("running")
        return program

    def bye(self, program):
        said = self.tell(program, "bye")
        program.process.stdin.close()
        program.ended()
        return said

    def test_an_illegal_access_names_its_process(self):
        with self.stack() as stack:
            daemon = stack.start_daemon()
            self.assertIsNone(self.fault(stack))
            service = stack.start("high", "train", 100, 0)
            service.expect("running")
            victims = [self.victim(stack), self.victim(stack)]
            culprit = self.supervised(stack, *TRAIN, HB_SIM_ILLEGAL="6")
            culprit.expect("running")
            for program in [culprit] + victims:
                wait_until("it has ended with the error", lambda: self.gone(program.child))
            fault = wait_until("the daemon has decided", lambda: self.fault(stack))
            self.assertEqual((fault["pid"], fault["error"], fault["certain"]), (culprit.child, 700, False))
            self.assertEqual({harmed["pid"] for harmed in fault["harmed"]}, {victim.child for victim in victims})
            for text in (self.bye(victims[0]), daemon.stderr(), stack.hb_status()):
                self.assertIn(f"process {culprit.child} (user root", text)
                self.assertIn("was the first to report a fault in the shared MPS server", text)
                self.assertIn("it or another program there is the cause", text)
            said = self.bye(culprit)
            self.assertIn("this program was the first to report", said)
            self.assertIn("2 other processes lost their GPU work", said)
            self.bye(victims[1])
            end_well(service)

    def test_a_fault_that_harms_nobody_is_its_own(self):
        with self.stack() as stack:
            stack.start_daemon()
            culprit = self.supervised(stack, *TRAIN, HB_SIM_ILLEGAL="6")
            culprit.expect("running")
            fault = wait_until("the daemon has decided", lambda: self.fault(stack))
            self.assertEqual((fault["pid"], fault["certain"], fault["harmed"]), (culprit.child, True, []))
            self.assertIn("this program had a fault", self.bye(culprit))

    def test_a_killed_client_is_named(self):
        with self.stack() as stack:
            stack.start_daemon()
            victim, killed = self.victim(stack), self.victim(stack)
            os.kill(killed.child, signal.SIGKILL)
            fault = wait_until("the daemon has decided", lambda: self.fault(stack))
            self.assertEqual((fault["pid"], fault["error"], fault["certain"]), (killed.child, 0, False))
            said = self.bye(victim)
            self.assertIn(f"process {killed.child} (user root", said)
            self.assertIn("while its kernels ran in the shared MPS server, which is the likely cause", said)
            self.bye(killed)

    def test_nobody_is_blamed_for_a_terminated_client(self):
        with self.stack() as stack:
            stack.start_daemon()
            other, program = self.victim(stack), self.victim(stack)
            self.assertIn("DONE", self.tell(program, "terminate 9"))
            os.kill(program.child, signal.SIGKILL)
            self.assertEqual(self.bye(program).strip(), "answer DONE")
            self.assertIsNone(self.fault(stack))
            self.tell(other, "terminate 9")
            os.kill(other.child, signal.SIGKILL)
            self.assertEqual(self.bye(other).strip(), "answer DONE")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--supervise"]:
        supervise(sys.argv[2:])
    else:
        unittest.main()

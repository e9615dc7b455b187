# SPDX-License-Identifier: Apache-2.0
"""Which programs an illegal access ends: those in the same MPS server, and no program with a context of its own. `hb
run` names the program that caused it. A kill of a program through hb harms nobody, and also not one with a context of
its own (--own-context), where hb executes the command itself.
"""
import os
import signal
import subprocess
import unittest

from stack import TENANT, Stack, end_well, wait_until

TRAIN = ("train", 500, 0)


class FaultDomain(unittest.TestCase):
    def start(self, stack, *options, **variables):
        program = stack.start("low", *TRAIN, options=options, **variables)
        program.expect("running")
        return program

    def test_a_fault_ends_the_clients_of_the_server_only_and_is_named(self):
        with Stack(scale=0.3) as stack:
            own = self.start(stack, "--own-context")
            victim = self.start(stack)
            service = stack.start("high", "train", 100, 2000)
            culprit = stack.start("low", *TRAIN, HB_SIM_ILLEGAL="20")
            self.assertNotEqual(culprit.ended(), 0)
            self.assertNotEqual(victim.ended(), 0)
            self.assertRegex(victim.stderr(), r"hb run: process \d+ \(user .*cuda-tenant.*(fault|likely cause)")
            # A program that ends within milliseconds of its error has not reported it. Then its end is the only trace.
            if "while its kernels ran" not in victim.stderr():
                self.assertIn("hb run: this program", culprit.stderr())
            self.assertNotIn("this program", victim.stderr())
            self.assertTrue(service.result()["right"])
            end_well(own)

    def test_the_client_that_an_xid_names_is_not_accused(self):
        """The driver names any client of the MPS server."""
        with Stack(scale=0.3) as stack:
            client = self.start(stack)
            pid = stack.tenants()[0]["processes"][0]["pid"]
            with open(os.path.join(stack.gpu_folder, "events"), "w", encoding="utf-8") as file:
                file.write(f"0 xid 31 {pid}\n")
            wait_until("the fault is shown", lambda: stack.status()["gpus"][0]["health"]["faults"] == 1)
            last = stack.status()["gpus"][0]["health"]["last"]
            self.assertEqual((last["pid"], last["process"], last["tenant"], last["user"]),
                             (0, "a client of the MPS server", 0, ""))
            end_well(client)

    def test_a_fault_of_a_program_with_its_own_context_reaches_no_other(self):
        with Stack(scale=0.3) as stack:
            first, second = self.start(stack), self.start(stack)
            service = stack.start("high", "train", 100, 2000)
            culprit = stack.start("low", *TRAIN, options=("--own-context",), HB_SIM_ILLEGAL="20")
            self.assertNotEqual(culprit.ended(), 0)
            self.assertTrue(service.result()["right"])
            end_well(first, second)

    def test_hb_run_ends_the_gpu_work_before_a_signal_kills_its_program(self):
        with Stack(scale=0.3, HB_SIM_MPS_FRAGILE="1") as stack:
            stack.start_daemon()
            other, program = (stack.start("low", "train", 100000, 0) for _ in range(2))
            for started in other, program:
                started.expect("running")
            program.signal(signal.SIGHUP)  # `train` does not catch it
            self.assertNotEqual(program.ended(), 0)
            other.signal(signal.SIGTERM)
            self.assertTrue(other.result()["right"])

    def test_programs_of_several_processes_are_killed_at_the_same_time(self):
        """The MPS control program serves one command at a time and refuses others."""
        train = f"{TENANT} train 100000 0"
        with Stack(scale=0.3, HB_SIM_MPS_FRAGILE="1") as stack:
            stack.start_daemon()
            other = self.start(stack)
            for number in signal.SIGHUP, signal.SIGKILL:
                gangs = [stack.start("low", "-c", f"{train} & exec {train}", program="/bin/sh") for _ in range(2)]
                for gang in gangs * 2:
                    gang.expect("running")
                for gang in gangs:
                    gang.signal(number)
                for gang in gangs:
                    self.assertEqual(gang.ended(), -number)
                wait_until("their tenants are gone", lambda: len(stack.tenants()) == 1)
            other.signal(signal.SIGTERM)
            self.assertTrue(other.result()["right"])

    def test_a_process_whose_work_has_ended_does_not_react_before_the_others(self):
        """PyTorch ends a rank that meets an error, and whatever started the ranks kills the others."""
        train = f"{TENANT} train 100000 0"
        reacts = f"{train} & other=$!; {train} || kill -KILL $other; sleep 100"
        with Stack(scale=0.3, HB_SIM_MPS_FRAGILE="1") as stack:
            stack.start_daemon()
            bystander = self.start(stack)
            for number in (signal.SIGHUP, signal.SIGKILL) * 2:
                gang = stack.start("low", "-c", reacts, program="/bin/sh")
                for _ in range(2):
                    gang.expect("running")
                gang.signal(number)
                self.assertEqual(gang.ended(), -number)
                wait_until("its tenant is gone", lambda: len(stack.tenants()) == 1)
            bystander.signal(signal.SIGTERM)
            self.assertTrue(bystander.result()["right"])

    @staticmethod
    def was_refused(tool):
        with tool:
            return b"Cannot send" in tool.stdout.read()

    def test_a_refused_command_is_repeated(self):
        """An administrator ends the work of other clients while `hb run` is killed."""
        with Stack(scale=0.3, HB_SIM_MPS_FRAGILE="1") as stack:
            stack.start_daemon()
            other = self.start(stack)
            server, control = stack.pid_of("hb-sim-mps-server"), stack.pid_of("hb-sim-mps-control")
            with open(f"/proc/{control}/environ", "rb") as file:
                environment = dict(item.decode().split("=", 1) for item in file.read().split(b"\0") if b"=" in item)
            for _ in range(3):
                ended, killed = (stack.start("low", "train", 100000, 0) for _ in range(2))
                for program in ended, killed:
                    program.expect("running")
                (pid,) = ended.family() - {ended.pid}
                tool = subprocess.Popen([f"/proc/{control}/exe"], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
                tool.stdin.write(f"terminate_client {server} {pid}\n".encode())
                tool.stdin.close()
                killed.signal(signal.SIGHUP)
                self.assertEqual(killed.ended(), -signal.SIGHUP)
                if self.was_refused(tool):  # the daemon's command was first
                    ended.signal(signal.SIGKILL)
                ended.ended()
            other.signal(signal.SIGTERM)
            self.assertTrue(other.result()["right"])

    def test_a_program_with_its_own_context_may_be_killed(self):
        with Stack(scale=0.3, HB_SIM_MPS_FRAGILE="1") as stack:
            other = self.start(stack)
            own = self.start(stack, "--own-context")
            with open(f"/proc/{own.pid}/comm", encoding="utf-8") as file:
                self.assertEqual(file.read().strip(), "cuda-tenant")  # no supervisor
            own.signal(signal.SIGKILL)
            self.assertEqual(own.ended(), -signal.SIGKILL)
            wait_until("its tenant is gone", lambda: len(stack.tenants()) == 1)
            end_well(other)

    def test_it_takes_turns_with_the_clients_and_high_priority_does_not_wait(self):
        with Stack(scale=0.3) as stack:
            inside, own = self.start(stack), self.start(stack, "--own-context")
            wait_until("the engine is turns", lambda: [gpu["engine"] for gpu in stack.status()["gpus"]] == ["turns"])
            wait_until("each had a turn", lambda: all(
                tenant["gpus"][0]["turns"] >= 2 for tenant in stack.tenants()))
            service = stack.start("high", "train", 100, 2000)
            self.assertTrue(service.result()["right"])
            end_well(inside, own)

    def test_a_supervisor_that_is_killed_after_the_daemon_was_restarted(self):
        """The new daemon learns from the supervisor itself that the tenant has one."""
        with Stack(scale=0.3, HB_SIM_MPS_FRAGILE="1") as stack:
            stack.start_daemon()
            other = self.start(stack)
            program = stack.start("low", "train", 100000, 0, options=())
            program.expect("running")
            [tenant] = [tenant for tenant in stack.tenants() if "100000" in tenant["command"]]
            self.assertEqual(tenant["pid"], program.pid)
            program.signal(signal.SIGSTOP)  # the supervisor: its program registers first
            stack.daemon.signal(signal.SIGKILL)
            stack.daemon.process.wait()
            stack.start_daemon()
            wait_until("both tenants have registered again", lambda: len(stack.tenants()) == 2)
            program.signal(signal.SIGCONT)
            wait_until("they lead their tenants",
                       lambda: {program.pid, other.pid} <= {tenant["pid"] for tenant in stack.tenants()})
            program.signal(signal.SIGKILL)
            wait_until("the tenant is gone", lambda: len(stack.tenants()) == 1)
            end_well(other)


if __name__ == "__main__":
    unittest.main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`hb register`: root registers processes of another user as tenants, as the agent of a
cluster does. Priorities, limits, what the user can change afterwards, restarts of the
daemon, and files that somebody else wrote. Needs what test_stack_system.py needs."""
import os
import subprocess
import unittest

from stack import HB, TENANT, end_well, wait_until
from test_stack_system import GROUP_ID, SystemStack, as_nobody, member, own_mounts_work

RULES = """rules:
  - {name: jobs, registered_by: root, priority: high, memory: 2GiB}
  - {name: others, priority: low}
"""
# Reads the environment from a file, as Slurm's task prolog does, and then becomes the program.
START = 'read file; while read -r word rest; do case $word in export) export "$rest";; unset) unset "$rest";; esac; done <"$file"; exec "$@"'


def is_possible():
    return os.geteuid() == 0 and own_mounts_work() and subprocess.run(
        as_nobody(HB, "--version"), capture_output=True, check=False).returncode == 0


class Job:
    """A shell of user nobody that waits until it is registered, and then starts a program in a child process."""

    def __init__(self, stack, *arguments):
        self.stack = stack
        self.shell = stack.spawn(as_nobody("bash", "-c", 'exec 3<&0; bash -c "$0" bash "$@" <&3 & wait $!', START,
                                           *arguments, groups=[GROUP_ID]))
        self.environment = {}

    def register(self, priority, *options):
        status, said = self.stack.hb("register", "--gpu", "sim", "--user", "nobody", "--process", self.shell.pid,
                                     "--priority", priority, *options, "job 7")
        self.environment = dict(line.removeprefix("export ").split("=", 1) for line in said.splitlines()
                                if line.startswith("export "))
        return status, said

    def start(self, said):
        path = os.path.join(self.stack.folder, f"job-{self.shell.pid}")
        with open(path, "w", encoding="utf-8") as file:
            file.write(said)
        os.chmod(path, 0o644)
        self.shell.process.stdin.write(path + "\n")
        self.shell.process.stdin.flush()


@unittest.skipUnless(is_possible(), "needs root, setpriv, a mount namespace of its own, and a user nobody who may run hb")
class Register(unittest.TestCase):
    def tenant(self, stack):
        tenants = stack.tenants()
        self.assertEqual(len(tenants), 1, tenants)
        return tenants[0]

    def test_a_job_gets_what_root_requested_and_ends_with_its_process(self):
        with SystemStack(RULES) as stack:
            job = Job(stack, TENANT, "train", 200, 0)
            status, said = job.register("high", "--require", "--slo", "5ms", "--memory", "1GiB")
            self.assertEqual(status, 0, said)
            tenant = self.tenant(stack)
            found = [tenant[key] for key in ("priority", "user", "command", "slo_asked_ns", "memory_limit", "pid")]
            self.assertEqual(found, ["high", "nobody", "job 7", 5000000, 1 << 30, job.shell.pid])
            job.start(said)
            job.shell.expect("running")
            tenant = self.tenant(stack)
            self.assertEqual(len(tenant["processes"]), 1)
            self.assertEqual(tenant["priority"], "high")
            # The restarted daemon still knows what root granted, though only the user's process registers again.
            stack.kill("hbd")
            wait_until("the daemon has ended", lambda: stack.status() is None)
            stack.start_daemon()
            wait_until("the job is registered again", stack.tenants)
            tenant = self.tenant(stack)
            self.assertEqual((tenant["priority"], tenant["pid"], tenant["user"]), ("high", job.shell.pid, "nobody"))
            wait_until("its process is there", lambda: self.tenant(stack)["processes"])
            for pid in job.shell.family():
                os.kill(pid, 9)
            job.shell.ended()
            wait_until("the tenant has ended with its process", stack.status_without_tenants)

    def test_the_user_cannot_raise_what_root_registered(self):
        with SystemStack(RULES) as stack:
            job = Job(stack, "true")
            status, said = job.register("low", "--memory", "1GiB")
            self.assertEqual(status, 0, said)
            number = self.tenant(stack)["id"]
            for option, why in ((("--priority", "high"), "root registered this tenant with priority low"),
                                (("--memory", "none"), "memory limited by rule 'jobs'"),
                                (("--memory", "1536MiB"), "root registered this tenant with a smaller memory limit")):
                status, answer = stack.hb("set", number, "--gpu", "sim", *option, wrap=member)
                self.assertEqual(status, 1)
                self.assertIn(why, answer)
            self.assertEqual(stack.hb("set", number, "--gpu", "sim", "--memory", "1MiB", wrap=member)[0], 0)
            # With the job's variables changed, the same rights apply after a restart of the daemon.
            stack.kill("hbd")
            wait_until("the daemon has ended", lambda: stack.status() is None)
            stack.start_daemon()
            forged = stack.spawn(member(TENANT, "train", "200", "0"), **job.environment | {"HB_PRIORITY": "high"})
            wait_until("the program is registered", stack.tenants)
            self.assertEqual(self.tenant(stack)["priority"], "low")
            end_well(forged)
            job.start(said)
            job.shell.output()

    def test_high_priority_is_for_jobs_of_root_only(self):
        with SystemStack(RULES) as stack:
            done = subprocess.run(member(HB, "run", "--gpu", "sim", "--priority", "high", "--", TENANT, "train", "200", "1"),
                                  env=stack.environment, capture_output=True, check=False, text=True)
            self.assertIn("priority high was not granted", done.stderr)
            status, said = stack.hb("register", "--gpu", "sim", "--user", "nobody", "--process", os.getpid(),
                                    "--priority", "high", wrap=member)
            self.assertEqual(status, 1)
            self.assertIn("jobs: cannot", said)

    def test_a_file_of_a_user_does_not_count(self):
        with SystemStack(RULES) as stack:
            job = Job(stack, "true")
            status, said = job.register("low")
            self.assertEqual(status, 0, said)
            folder = os.path.join(stack.folder, "jobs")
            token = "ab" * 16
            with open(os.path.join(folder, job.environment["HB_TENANT"]), encoding="utf-8") as file:
                text = file.read()
            self.assertIn("priority 0", text)
            with open(os.path.join(folder, token), "w", encoding="utf-8") as file:
                file.write(text.replace("priority 0", "priority 1"))
            os.chown(os.path.join(folder, token), 65534, 65534)
            forged = stack.spawn(member(TENANT, "train", "200", "0"),
                                 **job.environment | {"HB_TENANT": token, "HB_PRIORITY": "high"})
            wait_until("the program is registered", lambda: len(stack.tenants()) == 2)
            self.assertEqual([tenant["priority"] for tenant in stack.tenants()], ["low", "low"])
            self.assertIn("does not count: Operation not permitted", stack.daemon.stderr())
            end_well(forged)
            job.start(said)
            job.shell.output()

    def test_errors_name_what_is_wrong(self):
        with SystemStack(RULES) as stack:
            for arguments, status, why in (
                    (("--user", "nosuch", "--process", 1, "--priority", "low"), 2, "there is no user 'nosuch'"),
                    (("--user", "nobody", "--process", "x", "--priority", "low"), 2, "'x' is not the number of a process"),
                    (("--user", "nobody", "--process", 4194305, "--priority", "low"), 1, "process 4194305 does not exist"),
                    (("--user", "nobody", "--process", 1), 2, "--user, --process and --priority are required")):
                found, said = stack.hb("register", "--gpu", "sim", *arguments)
                self.assertEqual((found, why in said), (status, True), said)
        with SystemStack() as stack:
            job = Job(stack, "true")
            status, said = job.register("high", "--require")
            self.assertEqual(status, 1)
            self.assertIn("priority high was not granted", said)
            self.assertEqual(stack.tenants(), [])
            self.assertEqual(os.listdir(os.path.join(stack.folder, "jobs")), [])
            job.start("")
            job.shell.output()


if __name__ == "__main__":
    unittest.main()

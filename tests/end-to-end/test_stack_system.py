#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The system daemon (`hbd --system`), run by root for other users: who may use it, which
priority the rules grant, and what a user can do to tenants of another user.
Programs of another user run as `nobody`. Needs root, setpriv and, for groups, a
mount namespace of its own; skipped where these are missing."""
import os
import pwd
import shutil
import subprocess
import unittest

from stack import HB, HBD, LIMIT, SHIM, SIMCUDA, Stack, TENANT, wait_until

GROUP_ID = 64321
DAEMON_USER_ID = 64322
# All tests of this file and of test_stack_two_users.py also run with a daemon that gives up the rights of root.
SPLIT = bool(os.environ.get("HB_TEST_SPLIT"))
READY = ("sh", "-c", "echo ready; read word")


def as_nobody(*command, groups=(), cgroup=None):
    """Returns the command line that runs a command as nobody, in these groups and this control group."""
    nobody = pwd.getpwnam("nobody")
    groups = ["--groups", ",".join(map(str, groups))] if groups else ["--clear-groups"]
    command = ["setpriv", "--reuid", nobody.pw_uid, "--regid", nobody.pw_gid, *groups, "--", *command]
    if cgroup:
        command = ["sh", "-c", f'echo $$ > {cgroup}/cgroup.procs; exec "$@"', "sh", *command]
    return [str(word) for word in command]


def cgroup2():
    """The mount point of the unified control group hierarchy; None = not mounted."""
    with open("/proc/mounts", encoding="utf-8") as mounts:
        found = [line.split()[1] for line in mounts if line.split()[2] == "cgroup2"]
    return found[0] if found else None


def own_mounts_work():
    return subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode == 0


class SystemStack(Stack):
    def __init__(self, config="", group=True, mps=False, files=None, split=SPLIT, before="true", **variables):
        super().__init__(mps=mps, **variables)
        self.before = before  # a command that the daemon's mount namespace is prepared with
        self.files = files  # the limit of open files of the daemon
        self.group = group
        os.chmod(self.folder, 0o755)
        os.mkdir(self.gpu_folder)
        shutil.chown(self.gpu_folder, "nobody")  # the simulated GPU belongs to its first user
        if split:
            os.chmod(self.gpu_folder, 0o777)  # as the devices of a real GPU, it is open to the daemon's user
        self.config_path = os.path.join(self.folder, "system.yaml")
        self.groups_path = os.path.join(self.folder, "groups")
        with open(self.config_path, "w", encoding="utf-8") as file:
            file.write(f"mps: {str(mps).lower()}\n{config}")
        with open(self.groups_path, "w", encoding="utf-8") as file:
            file.write("root:x:0:\n" + (f"hummingbird:x:{GROUP_ID}:\n" if group else ""))
        self.passwd_path = os.path.join(self.folder, "passwd")
        with open(self.passwd_path, "w", encoding="utf-8") as file, open("/etc/passwd", encoding="utf-8") as users:
            file.writelines(line for line in users if not line.startswith("hummingbird:"))
            if split:
                file.write(f"hummingbird:x:{DAEMON_USER_ID}:{GROUP_ID}::/nonexistent:/usr/sbin/nologin\n")

    def __enter__(self):
        """Starts the daemon with an /etc/group and an /etc/passwd of the test, and a umask that denies others access unless the daemon sets modes."""
        self.start_daemon()
        return self

    def start_daemon(self, **variables):
        self.daemon = self.spawn(
            ["unshare", "-m", "sh", "-c", f'ulimit -n {self.files or "$(ulimit -n)"} && umask 077 && {self.before} && mount --bind "$HB_GROUPS" /etc/group && mount --bind "$HB_PASSWD" /etc/passwd && exec "$@"', "sh", HBD, "--foreground",
             "--system", "--gpu", "sim", "--socket", self.environment["HB_SOCKET"], "--config", self.config_path],
            HB_GROUPS=self.groups_path, HB_PASSWD=self.passwd_path, **variables)
        wait_until("the daemon answers", lambda: self.daemon.process.poll() is not None or self.status())
        return self.daemon

    def tenant(self, priority, wrap=None):
        """Starts a tenant that waits, as nobody by default. Returns it and its status."""
        before = {tenant["id"] for tenant in self.tenants()}
        wrap = wrap or (lambda *command: as_nobody(*command, groups=[GROUP_ID]))
        program = self.spawn(wrap(HB, "run", "--gpu", "sim", "--priority", priority, "--", *READY))
        program.expect("ready")
        found = [tenant for tenant in self.tenants() if tenant["id"] not in before]
        assert len(found) == 1, found
        return program, found[0]

    def hb(self, *arguments, wrap=None):
        """Returns exit status and output."""
        command = wrap(HB, *arguments) if wrap else [HB, *arguments]
        done = subprocess.run([str(word) for word in command], env=self.environment, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=LIMIT, check=False)
        return done.returncode, done.stdout

    def end(self, *programs):
        for program in programs:
            program.go()
            program.output()


def member(*command):
    return as_nobody(*command, groups=[GROUP_ID])


@unittest.skipIf(os.geteuid() != 0, "only root can run the system's daemon and programs of another user")
@unittest.skipUnless(shutil.which("setpriv") and own_mounts_work(), "needs setpriv and a mount namespace of its own")
class SystemMode(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if subprocess.run(as_nobody(HB, "--version"), capture_output=True, check=False).returncode:
            raise unittest.SkipTest(f"user nobody may not run {HB}")

    # --- who may use it ---------------------------------------------------------------------

    def test_the_daemon_serves_only_members_of_its_group(self):
        with SystemStack() as stack:
            found = os.stat(stack.environment["HB_SOCKET"])
            self.assertEqual((found.st_uid, found.st_gid, found.st_mode & 0o777), (0, GROUP_ID, 0o660))
            self.assertEqual(stack.status()["daemon"]["mode"], "system")
            self.assertEqual(stack.hb("status", "--gpu", "sim", wrap=member)[0], 0)
            status, said = stack.hb("status", "--gpu", "sim", wrap=as_nobody)
            self.assertEqual(status, 1)
            self.assertIn("Permission denied", said)

    def test_without_the_group_the_daemon_serves_only_root_and_reports_it(self):
        with SystemStack(group=False) as stack:
            found = os.stat(stack.environment["HB_SOCKET"])
            self.assertEqual((found.st_gid, found.st_mode & 0o777), (0, 0o660))
            self.assertIn("there is no group hummingbird, so only root can use this daemon", stack.daemon.stderr())
            self.assertEqual(stack.hb("status", "--gpu", "sim", wrap=member)[0], 1)
            self.assertEqual(stack.hb("status", "--gpu", "sim")[0], 0)

    def test_a_daemon_of_another_user_is_not_used_by_default(self):
        with Stack(mps=False) as stack:
            os.chmod(stack.folder, 0o755)
            folder = os.path.join(stack.folder, "hummingbird")  # the folder that root uses, made by another user
            path = os.path.join(folder, "hbd-sim.sock")
            os.mkdir(folder)
            shutil.chown(folder, "nobody")
            stack.environment["HB_SOCKET"] = path
            stack.daemon = stack.spawn(as_nobody(HBD, "--foreground", "--gpu", "sim", "--socket", path))
            wait_until("the daemon answers", stack.status)
            del stack.environment["HB_SOCKET"]
            for command in (["status"], ["run", "--priority", "low", "--", "true"]):
                done = subprocess.run([HB, command[0], "--gpu", "sim", *command[1:]], env=stack.environment,
                                      capture_output=True, text=True, timeout=LIMIT, check=False)
                self.assertIn(done.returncode, (1, 125), done)
                self.assertIn(f"{path}: the daemon belongs to user {pwd.getpwnam('nobody').pw_uid}, neither to root nor to you", done.stderr)
            stack.environment["HB_SOCKET"] = path

    def test_files_of_other_users_in_the_daemons_folder_are_not_used(self):
        with Stack(mps=False) as stack:
            path, other = (os.path.join(stack.folder, name) for name in ("sim-mps.token", "other"))
            os.symlink(other, path)
            stack.start_daemon()
            self.assertFalse(os.path.exists(other))
            self.assertEqual((os.path.islink(path), os.stat(path).st_mode & 0o777), (False, 0o600))
            stack.stop_daemon()
            with open(path, encoding="utf-8") as file:
                own = file.read()
            stack.start_daemon()
            stack.stop_daemon()
            with open(path, encoding="utf-8") as file:
                self.assertEqual(file.read(), own)  # the daemon's own file stays
            shutil.chown(path, "nobody")
            stack.start_daemon()
            with open(path, encoding="utf-8") as file:
                self.assertNotEqual(file.read(), own)
            self.assertEqual(os.stat(path).st_uid, 0)

    def test_only_the_user_of_the_mps_server_can_reach_it(self):
        with SystemStack(mps=True) as stack:
            program, tenant = stack.tenant("low")
            self.assertTrue(tenant["mps"])
            pipes = os.path.join(stack.folder, "sim-mps")
            for user, may_enter in (("nobody", True), ("daemon", False)):
                done = subprocess.run(["setpriv", "--reuid", user, "--clear-groups", "ls", pipes], capture_output=True,
                                      check=False)
                self.assertEqual(done.returncode == 0, may_enter, done)
            with open(f"/proc/{stack.status()['daemon']['pid']}/status", encoding="utf-8") as file:
                self.assertIn("\nUmask:\t0022\n", file.read())  # the server's pipes are made with it
            stack.end(program)

    # --- what the rules grant ------------------------------------------------------------------

    def test_without_a_matching_rule_a_program_gets_low_priority_and_a_message(self):
        with SystemStack() as stack:
            program, tenant = stack.tenant("high")
            self.assertEqual((tenant["user"], tenant["priority"]), ("nobody", "low"))
            self.assertIn("priority high not granted: no rule", tenant["reduced"])
            self.assertIn("priority high was not granted", program.stderr())
            stack.end(program)

    def test_a_rule_for_a_user_is_applied(self):
        rules = "rules:\n  - {user: nobody, priority: high, memory: 1GiB, slo: 7ms}\n"
        with SystemStack(rules) as stack:
            program, tenant = stack.tenant("high")
            self.assertEqual((tenant["priority"], tenant["memory_limit"], tenant["slo_asked_ns"]),
                             ("high", 1 << 30, 7000000))
            other, low = stack.tenant("high", wrap=lambda *command: list(command))  # the rule is not for root
            self.assertEqual((low["user"], low["priority"]), ("root", "low"))
            stack.end(program, other)

    @unittest.skipUnless(cgroup2() and os.access(cgroup2() or "/", os.W_OK), "no control groups (v2) to be made here")
    def test_rules_match_control_groups_and_units(self):
        mine, unit, elsewhere = (f"hb-test-{os.getpid()}{end}" for end in ("", "-serve.service", "-other"))
        rules = (f"rules:\n  - {{cgroup: /{mine}, priority: high}}\n  - {{unit: {unit}, priority: high}}\n")
        made = [os.path.join(cgroup2(), path) for path in (mine, f"{mine}/below", unit, elsewhere)]
        try:
            for path in made:
                os.mkdir(path)
            with SystemStack(rules) as stack:
                got = []
                for path in made:
                    program, tenant = stack.tenant(
                        "high", wrap=lambda *command: as_nobody(*command, groups=[GROUP_ID], cgroup=path))
                    got.append(tenant["priority"])
                    stack.end(program)
                self.assertEqual(got, ["high", "high", "high", "low"])
        finally:
            for path in filter(os.path.isdir, reversed(made)):
                wait_until(f"{path} is empty", lambda: self.is_removed(path))

    @unittest.skipUnless(cgroup2() and os.access(cgroup2() or "/", os.W_OK), "no control groups (v2) to be made here")
    def test_a_rule_binds_every_process_that_joins(self):
        names = [f"hb-test-{os.getpid()}-{end}" for end in ("service", "login")]
        service, login = (os.path.join(cgroup2(), name) for name in names)
        try:
            os.mkdir(service)
            os.mkdir(login)
            with SystemStack(f"rules:\n  - {{name: service, cgroup: /{names[0]}, priority: high}}\n") as stack:
                def in_service(*command):
                    return as_nobody(*command, groups=[GROUP_ID], cgroup=service)
                program, tenant = stack.tenant("high", wrap=in_service)
                self.assertEqual(tenant["priority"], "high")
                # Any process of that user can read the token. Outside the service it gets no high priority by it.
                self.assertEqual(self.join_as_nobody(stack, tenant, cgroup=login), 0)
                self.assertEqual(self.join_as_nobody(stack, tenant, cgroup=service), 1)
                stack.end(program)
                # A process that the tenant itself starts belongs to it, whatever its cgroup.
                script = f'sh -c "echo child \\$\\$; read word; exec {TENANT} --wait work 1"; true'
                program = stack.spawn(in_service(HB, "run", "--gpu", "sim", "--priority", "high", "--", "sh", "-c", script))
                with open(os.path.join(login, "cgroup.procs"), "w", encoding="utf-8") as file:
                    file.write(program.expect("child").split()[1])
                program.go()
                program.expect("joined")
                self.assertEqual([len(entry["processes"]) for entry in stack.tenants()], [1])
                program.go()
                stack.end(program)
        finally:
            for path in filter(os.path.isdir, (service, login)):
                wait_until(f"{path} is empty", lambda: self.is_removed(path))

    def is_removed(self, path):
        try:
            os.rmdir(path)
        except OSError:
            return False
        return True

    # --- what users can change -------------------------------------------------------------------

    def test_only_root_can_raise_the_priority_of_a_tenant(self):
        with SystemStack() as stack:
            program, tenant = stack.tenant("low")
            change = ("set", tenant["id"], "--gpu", "sim", "--priority", "high")
            status, said = stack.hb(*change, wrap=member)
            self.assertEqual(status, 1)
            self.assertIn("priority high not granted: no rule", said)
            self.assertEqual(stack.tenants()[0]["priority"], "low")
            self.assertEqual(stack.hb("set", tenant["id"], "--gpu", "sim", "--slo", "5ms", wrap=member)[0], 0)
            self.assertEqual(stack.tenants()[0]["slo_asked_ns"], 5000000)
            self.assertEqual(stack.hb(*change)[0], 0)
            self.assertEqual(stack.tenants()[0]["priority"], "high")
            self.assertEqual(stack.hb("set", tenant["id"], "--gpu", "sim", "--priority", "low", wrap=member)[0], 0)
            self.assertEqual(stack.tenants()[0]["priority"], "low")
            stack.end(program)

    def test_a_user_cannot_lift_a_limit_of_the_rules(self):
        with SystemStack("rules:\n  - {name: guests, user: nobody, priority: low, memory: 1GiB}\n") as stack:
            program, tenant = stack.tenant("low")
            for memory in ("2GiB", "none"):
                status, said = stack.hb("set", tenant["id"], "--gpu", "sim", "--memory", memory, wrap=member)
                self.assertEqual(status, 1)
                self.assertIn("memory limited by rule 'guests'", said)
            self.assertEqual(stack.hb("set", tenant["id"], "--gpu", "sim", "--memory", "1MiB", wrap=member)[0], 0)
            self.assertEqual(stack.tenants()[0]["memory_limit"], 1 << 20)
            stack.end(program)

    def test_a_user_cannot_change_tenants_of_others(self):
        with SystemStack() as stack:
            program, tenant = stack.tenant("low", wrap=lambda *command: list(command))
            status, said = stack.hb("set", tenant["id"], "--gpu", "sim", "--slo", "5ms", wrap=member)
            self.assertEqual(status, 1)
            self.assertIn("only the tenant's user and root may change it", said)
            # Their token does not help either. With the token of a tenant of its own user the process joins.
            own, own_tenant = stack.tenant("low")
            self.assertEqual(self.join_as_nobody(stack, tenant), 0)
            self.assertEqual(self.join_as_nobody(stack, own_tenant), 1)
            stack.end(own)
            stack.end(program)

    def join_as_nobody(self, stack, tenant, cgroup=None):
        """Runs a program as nobody with the tenant's token. Returns how many processes the tenant has then."""
        with open(f"/proc/{tenant['pid']}/environ", encoding="utf-8") as file:
            token = [word for word in file.read().split("\0") if word.startswith("HB_TENANT=")][0]
        program = stack.spawn(as_nobody("env", token, "HB_PRIORITY=low", "HB_GPU=sim",
                                     f"LD_LIBRARY_PATH={SHIM}:{SIMCUDA}", f"HB_REAL_LIBCUDA={SIMCUDA}/libcuda.so.1",
                                     TENANT, "--wait", "work", 1, groups=[GROUP_ID], cgroup=cgroup))
        program.expect("joined")
        found = [len(entry["processes"]) for entry in stack.tenants() if entry["id"] == tenant["id"]]
        program.go()
        program.expect("done")
        stack.end(program)
        return found[0]


if __name__ == "__main__":
    unittest.main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tenants in containers: what `hb cdi generate` writes is read as a container runtime does, and programs run with its mounts
and variables in user, process, network, IPC and mount namespaces of their own, without `hb run`. A container is one tenant,
the daemon finds out by itself who its processes are, and a container's root is not the machine's. Needs unshare and
permission to make namespaces; packaging/try_containers.sh does the same with podman."""
import json
import os
import shutil
import signal
import subprocess
import unittest

from stack import HB, LIMIT, Stack, TENANT, wait_until

SPACES = ("unshare", "--user", "--map-root-user", "--pid", "--net", "--ipc", "--uts", "--mount", "--fork", "--kill-child")
# The folders of the container where mounts appear; the other files are those of this machine.
PREPARE = """set -e
mount --make-rprivate /
mount -t proc proc /proc
for folder in /opt /run; do mount -t tmpfs none $folder; done
while read -r from to options; do
	if [ -d "$from" ]; then mkdir -p "$to"; else mkdir -p "${to%/*}"; touch "$to"; fi
	mount --bind "$from" "$to"
	mount -o "remount,bind,$options" "$to"
done <"$MOUNTS"
unset MOUNTS
exec "$@"
"""


def namespaces_work():
    command = [*SPACES, "sh", "-c", "mount -t proc proc /proc && mount -t tmpfs none /run"]
    return bool(shutil.which("unshare")) and subprocess.run(command, capture_output=True, check=False).returncode == 0


class Containers(Stack):
    def __init__(self, *devices, config="", **variables):
        super().__init__(config=config, **variables)
        os.mkdir(self.gpu_folder, 0o700)
        self.devices = devices

    def __enter__(self):
        self.start_daemon()
        # The simulated GPU runs outside of the containers, and as long as the test.
        self.keeper = self.bare("--wait", "train", 10, 1)
        self.keeper.expect("joined")
        options = [word for device in self.devices for word in ("--device", device)]
        written = subprocess.run([HB, "cdi", "generate", "--gpu", "sim", "--output", "-", *options], env=self.environment,
                                 stdout=subprocess.PIPE, timeout=LIMIT, check=True).stdout
        self.specification = json.loads(written)
        return self

    def __exit__(self, kind, value, trace):
        if kind is None:
            self.keeper.go()
            self.keeper.expect("done")
            self.keeper.go()
            self.keeper.ended()
        super().__exit__(kind, value, trace)

    def container(self, device, *command, **variables):
        """Does with a command what a runtime does with `--device hummingbird.dev/tenant=DEVICE`."""
        edits = [self.specification["containerEdits"]]
        edits += [found["containerEdits"] for found in self.specification["devices"] if found["name"] == device]
        assert len(edits) == 2, device
        given = dict(line.split("=", 1) for edit in edits for line in edit["env"])
        mounts = os.path.join(self.folder, "mounts")
        with open(mounts, "w", encoding="utf-8") as file:
            for mount in edits[0]["mounts"]:
                flags = [option for option in mount["options"] if option != "bind"]
                print(mount["hostPath"], mount["containerPath"], ",".join(flags), file=file)
        kept = {name: value for name, value in self.environment.items() if name.endswith("_OPTIONS") or name == "PATH"}
        program = super().spawn(["env", "-i", *(f"{name}={value}" for name, value in (kept | variables).items()),
                                 f"MOUNTS={mounts}", *SPACES, "sh", "-c", PREPARE, "sh", "env",
                                 *(f"{name}={value}" for name, value in given.items()), *command])
        return program

    def tenant_with(self, word):
        """The tenant whose command contains the word, when it uses the GPU."""
        found = [tenant for tenant in self.tenants() if word in tenant["command"] and tenant["gpus"]]
        return found[0] if found else None

    def end(self, program, word):
        """Ends the tenant's processes, whose pids are those of the daemon's own namespace."""
        tenant = self.tenant_with(word)
        for process in tenant["processes"]:
            os.kill(process["pid"], signal.SIGTERM)
        return program.output()


@unittest.skipUnless(namespaces_work(), "namespaces cannot be made here")
class InContainers(unittest.TestCase):
    """One daemon for all, because in its first seconds a daemon makes processes that it does not know wait."""
    @classmethod
    def setUpClass(cls):
        cls.stack = Containers("low-40g=low,memory=40GiB,weight=3", "high=high,slo=p99<50ms").__enter__()

    @classmethod
    def tearDownClass(cls):
        cls.stack.__exit__(None, None, None)

    def tearDown(self):
        wait_until("no tenant is left", lambda: not self.stack.tenants())

    def test_containers_are_tenants_with_the_rights_of_their_devices(self):
        stack = self.stack
        service = stack.container("high", TENANT, "infer", "--rate", 50, "--seconds", 3600, "--kernels", 4)
        training = stack.container("low-40g", TENANT, "train", 1000, 0)
        training.expect("running")
        high = wait_until("the service is a tenant", lambda: stack.tenant_with("infer"))
        low = wait_until("the training is a tenant", lambda: stack.tenant_with("train"))
        self.assertEqual((high["priority"], low["priority"]), ("high", "low"))
        self.assertEqual(low["command"], f"{TENANT} train 1000 0")
        self.assertEqual(low["weight"], 3)
        self.assertEqual(low["memory_limit"], 40 << 30)
        self.assertEqual(high["slo_asked_ns"], 50_000_000)
        self.assertFalse(low["mps"])
        # The processes see pids of their own; the daemon names those that this test sees.
        for tenant in high, low:
            for process in tenant["processes"]:
                with open(f"/proc/{process['pid']}/comm", encoding="utf-8") as file:
                    self.assertEqual(file.read(), "cuda-tenant\n")
        wait_until("the service has requests", lambda: stack.tenant_with("infer")["gpus"][0]["requests"] > 10)
        stack.end(service, "infer")
        self.assertTrue(json.loads(stack.end(training, "train")[-1])["right"])

    def test_all_processes_of_a_container_are_one_tenant_and_other_containers_are_not(self):
        stack = self.stack
        pair = f"{TENANT} train 500 0 & {TENANT} train 500 0 & wait"
        both = stack.container("low", "sh", "-c", pair)
        other = stack.container("low", TENANT, "train", 600, 0)
        other.expect("running")
        wait_until("both registered", lambda: len((stack.tenant_with("train 500") or {"processes": []})["processes"]) == 2)
        wait_until("there are two tenants", lambda: len(stack.tenants()) == 2 and stack.tenant_with("train 600"))
        stack.end(both, "train 500")
        stack.end(other, "train 600")

    def test_a_killed_container_leaves_nothing(self):
        stack = self.stack
        killed = stack.container("low", TENANT, "train", 500, 0)
        other = stack.container("low", TENANT, "train", 600, 0)
        for program in killed, other:
            program.expect("running")
        wait_until("both registered", lambda: len(stack.tenants()) == 2)
        os.kill(stack.tenant_with("train 500")["processes"][0]["pid"], signal.SIGKILL)
        self.assertNotEqual(killed.ended(), 0)
        wait_until("one is left", lambda: len(stack.tenants()) == 1)
        self.assertTrue(json.loads(stack.end(other, "train 600")[-1])["right"])

    def test_a_container_continues_under_the_next_daemon(self):
        stack = self.stack
        training = stack.container("low", TENANT, "train", 500, 0)
        training.expect("running")
        before = wait_until("it registered", lambda: stack.tenant_with("train"))
        stack.daemon.signal(signal.SIGKILL)
        stack.daemon.ended()
        stack.start_daemon()
        after = wait_until("it registered again", lambda: stack.tenant_with("train"))
        self.assertEqual(after["processes"][0]["pid"], before["processes"][0]["pid"])
        self.assertGreaterEqual(after["counters"]["kernels"], before["counters"]["kernels"])
        self.assertTrue(json.loads(stack.end(training, "train")[-1])["right"])

    def test_without_a_daemon_the_container_says_that_it_is_not_managed(self):
        with Containers() as stack:
            stack.daemon.signal(signal.SIGTERM)
            stack.daemon.ended()
            alone = stack.container("low", TENANT, "train", 10, 3)
            self.assertTrue(json.loads(alone.output()[-1])["right"])
            self.assertIn("hb: warning: not managed by Hummingbird, running without priority and limits: "
                          "/run/hummingbird/hbd.sock: no daemon answers there", alone.stderr())

    def test_a_container_may_change_itself_and_no_other_tenant(self):
        stack = self.stack
        outside = stack.start("low", "train", 600, 0)
        outside.expect("running")
        number = stack.tenant_with("train 600")["id"]
        refused = stack.container("low", HB, "set", number, "--weight", 7, "--gpu", "sim")
        self.assertNotEqual(refused.ended(), 0)
        self.assertIn("from outside of containers", refused.stderr())
        self.assertEqual(stack.tenant_with("train 600")["weight"], 1)
        training = stack.container("low", "sh", "-c", f"{TENANT} train 500 0 & pid=$!; read word; "
                                   f"{HB} set $(cat) --weight 7 --gpu sim; wait $pid")
        own = wait_until("the container is a tenant", lambda: stack.tenant_with("train 500"))
        training.process.stdin.write(f"\n{own['id']}\n")
        training.process.stdin.close()
        wait_until("the container has changed itself", lambda: stack.tenant_with("train 500")["weight"] == 7)
        stack.end(training, "train 500")
        outside.signal(signal.SIGTERM)
        outside.output()

    def test_beside_a_spatial_service_a_container_is_told_what_to_do(self):
        stack = self.stack
        service = stack.start("high", "infer", "--rate", 50, "--seconds", 3600, "--kernels", 4,
                              options=("--engine", "spatial"))
        wait_until("the service runs", lambda: stack.tenant_with("infer"))
        alone = stack.container("low", TENANT, "train", 600, 0)
        wait_until("the container has said it", lambda: "programs of a container run outside it; wait until high "
                   "priority has ended" in alone.stderr())
        self.assertEqual(len(stack.tenants()), 1)
        alone.signal(signal.SIGKILL)
        alone.ended()
        service.signal(signal.SIGTERM)
        service.output()


if __name__ == "__main__":
    unittest.main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A process of another user that has learnt the token of a tenant, or of the MPS server: every message with it is refused,
and the tenant is not changed. Or that claims to be in the MPS server: it keeps nobody out. Needs root, setpriv and a mount namespace of its own."""
import json
import os
import shutil
import signal
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../fuzz"))
import test_stack_system as system
from live_daemon import Client, VALUES, pack, unpack
from stack import LIMIT, TENANT, wait_until
from test_stack_two_users import SECOND, TwoUsers, as_user


def attack(path, token, tenant, uuid):
    """Runs as the stranger: sends each message that names a tenant. Prints {message: error, or the kind of the answer}."""
    simulated = VALUES["HB_REGISTER_SIMULATED"]
    register = {"slot": VALUES["HB_PAGE_PROCESSES"], "token": token}
    messages = {
        "memory": pack("MEMORY", token=token, uuid=uuid, bytes=1),
        "join": pack("REGISTER", b"stranger", flags=simulated, **register),
        "lead": pack("REGISTER", b"stranger", flags=simulated | VALUES["HB_REGISTER_CREATE"], **register),
        "server": pack("REGISTER", b"stranger", flags=simulated | VALUES["HB_REGISTER_SERVER"], **register),
        "terminate": pack("TERMINATE", token=token, signal=9),
        "bye": pack("BYE", token=token),
        "set": pack("SET", tenant=tenant, fields=VALUES["HB_SET_ALL_FIELDS"], priority=0, memory_bytes=1, pcie_weight=1, weight=1),
    }
    answers = {}
    for name, message in messages.items():
        client = Client(path)
        client.send(message)
        kind, data, fds = client.receive()
        code = unpack("ERROR", "code", data) if kind == "ERROR" else 0
        answers[name] = [kind, code - (1 << 32) if code else 0, len(fds)]
        client.close()
    print(json.dumps(answers), flush=True)


def claim(path):
    """Registers a tenant that claims to be in the MPS server, and keeps it."""
    kind = ""
    while kind != "REGISTERED":  # for some seconds a new daemon refuses tenants that it does not know
        client = Client(path, timeout=LIMIT)
        kind, data, _ = client.register(os.urandom(16), flags=VALUES["HB_REGISTER_SIMULATED"] | VALUES["HB_REGISTER_MPS"])
        if kind == "ERROR" and b"has just started" not in data:
            raise OSError(data)
    print("claimed", flush=True)
    signal.pause()


@unittest.skipIf(os.geteuid() != 0, "only root can run the system's daemon and programs of another user")
@unittest.skipUnless(shutil.which("setpriv") and system.own_mounts_work(), "needs setpriv and a mount namespace of its own")
class Strangers(unittest.TestCase):
    def token_of(self, pid):
        with open(f"/proc/{pid}/environ", "rb") as file:
            return [word.split(b"=")[1] for word in file.read().split(b"\0") if word.startswith(b"HB_TENANT=")][0].decode()

    def start_as(self, stack, user, *words):
        return stack.spawn(as_user(user, sys.executable, os.path.abspath(__file__), *words),
                           HB_BUILD=os.environ["HB_BUILD"], PYTHONPATH=os.environ.get("PYTHONPATH", ""))

    def attack_as(self, stack, user, token, tenant):
        uuid = stack.status()["gpus"][0]["uuid"].replace("GPU-", "").replace("-", "")
        return json.loads(self.start_as(stack, user, "--attack", token, tenant, uuid).output()[-1])

    def test_another_user_can_do_nothing_with_the_token_of_a_tenant(self):
        with TwoUsers() as stack:
            program = stack.low("nobody", TENANT, "train", 1000, 0)
            program.expect("running")
            before = wait_until("it uses the GPU", lambda: stack.of(program) if stack.of(program)["gpus"] else None)
            token = self.token_of(stack.pid_of("cuda-tenant"))
            for name, (kind, code, fds) in self.attack_as(stack, SECOND, token, before["id"]).items():
                with self.subTest(message=name):
                    self.assertEqual((kind, fds), ("ERROR", 0), f"error {code}")
            after = stack.of(program)
            for key in ("id", "pid", "priority", "memory_limit", "weight", "pcie_weight", "processes", "mps"):
                self.assertEqual(after[key], before[key])
            # The same messages of the tenant's own user are obeyed.
            own = self.attack_as(stack, "nobody", token, before["id"])
            self.assertEqual([own[name][0] for name in ("memory", "join", "terminate", "bye")], ["DONE", "REGISTERED", "DONE", "DONE"])
            program.signal(signal.SIGKILL)
            program.ended()

    def test_the_token_of_the_mps_server_makes_nobody_the_server(self):
        with TwoUsers() as stack:
            program = stack.low("nobody", TENANT, "train", 1000, 0)
            program.expect("running")
            token = self.token_of(stack.pid_of("hb-sim-mps-server"))
            for user in ("nobody", SECOND, "root"):
                with self.subTest(user=user):
                    kind, code, _ = self.attack_as(stack, user, token, 1)["server"]
                    self.assertEqual((kind, code), ("ERROR", -1))  # EPERM
            program.signal(signal.SIGTERM)
            self.assertTrue(program.result()["right"])

    def test_who_claims_to_be_in_the_mps_server_keeps_nobody_out(self):
        """While no server runs, and while one runs for the other user."""
        with TwoUsers() as stack:
            claimant = self.start_as(stack, SECOND, "--claim")
            claimant.expect("claimed")
            self.assertTrue(stack.of(claimant)["mps"])
            programs = []
            for _ in range(2):
                programs.append(stack.low("nobody", TENANT, "train", 1000, 0))
                programs[-1].expect("running")
                self.assertTrue(stack.of(programs[-1])["mps"], stack.of(programs[-1]))
            for program in programs:
                program.signal(signal.SIGTERM)
                self.assertTrue(program.result()["right"])
            claimant.signal(signal.SIGKILL)
            claimant.ended()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--attack"]:
        attack(os.environ["HB_SOCKET"], bytes.fromhex(sys.argv[2]), int(sys.argv[3]), bytes.fromhex(sys.argv[4]))
    elif sys.argv[1:] == ["--claim"]:
        claim(os.environ["HB_SOCKET"])
    else:
        unittest.main()

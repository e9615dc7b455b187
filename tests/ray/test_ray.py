#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Actors of Ray under `hb run`, by `py_executable` (docs/ray.md): a real Ray with two nodes on this machine, each with a daemon and
a simulated GPU of its own. Ray is not installed for this: the test is skipped without it."""
import ctypes
import os
import shutil
import sys
import tempfile
import unittest

from python_modules import find_module
from stack import HB, LIMIT, Stack, wait_until

ray = find_module("ray", "ray", "Ray", install=False)
FOLDER = tempfile.mkdtemp(prefix="hb-ray-", dir="/tmp")
os.environ |= {"HOME": FOLDER, "RAY_TMPDIR": FOLDER}  # where Ray writes what belongs to its user, and its sockets
from ray.cluster_utils import Cluster  # noqa: E402

NODES = ("a", "b")


def environment(*options):
    """The runtime environment of an actor that is a tenant."""
    return {"py_executable": " ".join([HB, "run", "--gpu", "sim", *options, "--", sys.executable])}


@ray.remote(num_cpus=0, num_gpus=0.5)
class Program:
    """A program that uses CUDA: 2 MiB of memory, and kernels of 1 ms while it is asked to."""

    def __init__(self):
        self.cuda = ctypes.CDLL("libcuda.so.1")
        context, module, function, device, address = (ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_int(),
                                                      ctypes.c_uint64())
        self.call("cuInit", 0)
        self.call("cuDeviceGet", ctypes.byref(device), 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxSetCurrent", context)
        self.call("cuModuleLoadData", ctypes.byref(module), b"HBSIM1\nkernel work ns_param=0 params=8\n")
        self.call("cuModuleGetFunction", ctypes.byref(function), module, b"work")
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(2 << 20))
        self.context, self.function = context, function

    def call(self, name, *arguments):
        status = getattr(self.cuda, name)(*arguments)
        if status:
            raise RuntimeError(f"{name}: error {status}")

    def work(self, kernels):
        # Ray calls methods on a thread of its own.
        self.call("cuCtxSetCurrent", self.context)
        value = ctypes.c_uint64(1_000_000)
        parameters = (ctypes.c_void_p * 1)(ctypes.addressof(value))
        for _ in range(kernels):
            self.call("cuLaunchKernel", self.function, 8, 1, 1, 256, 1, 1, 0, None, parameters, None)
        self.call("cuCtxSynchronize")
        return kernels

    def where(self):
        return {"pid": os.getpid(), "priority": os.environ.get("HB_PRIORITY"), "gpus": os.environ.get("CUDA_VISIBLE_DEVICES"),
                "node": os.environ["RAY_TEST_NODE"]}


class TwoNodes(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.stacks = {name: Stack() for name in NODES}
        for stack in cls.stacks.values():
            stack.start_daemon()
        cls.cluster = Cluster()
        for name, stack in cls.stacks.items():
            own = {key: stack.environment[key] for key in ("HB_SOCKET", "HB_SIM_GPU", "HB_SIM_SCALE", "HB_SIM_GPUS")}
            cls.cluster.add_node(num_cpus=1, num_gpus=1, resources={name: 1}, object_store_memory=80 << 20, include_dashboard=False,
                                 env_vars=own | {"HB_START_DAEMON": "0", "RAY_TEST_NODE": name})
        ray.init(address=cls.cluster.address, log_to_driver=False)

    @classmethod
    def tearDownClass(cls):
        ray.shutdown()
        cls.cluster.shutdown()
        for stack in cls.stacks.values():
            stack.__exit__(None, None, None)
        shutil.rmtree(FOLDER)

    def actor(self, node, *options):
        return Program.options(resources={node: 0.1}, runtime_env=environment(*options)).remote()

    def tenants(self, node):
        return {tenant["priority"]: tenant for tenant in self.stacks[node].tenants() if tenant["processes"]}

    def test_actors_share_a_gpu_and_end(self):
        high, low, other = self.actor("a", "--priority", "high", "--slo", "50ms"), self.actor("a", "--priority", "low"), \
            self.actor("b", "--priority", "low", "--memory", "1GiB")
        places = ray.get([actor.where.remote() for actor in (high, low, other)], timeout=LIMIT)
        self.assertEqual([place["node"] for place in places], ["a", "a", "b"])
        self.assertEqual(places[0]["gpus"], places[1]["gpus"])  # the same GPU, half of it each
        self.assertEqual(ray.get([actor.work.remote(20) for actor in (high, low, other)], timeout=LIMIT), [20, 20, 20])
        tenants = self.tenants("a")
        self.assertEqual(set(tenants), {"high", "low"})
        self.assertEqual(tenants["high"]["slo_asked_ns"], 50_000_000)
        self.assertEqual([tenants[place]["processes"][0]["pid"] for place in ("high", "low")], [place["pid"] for place in places[:2]])
        self.assertGreaterEqual(tenants["low"]["gpus"][0]["memory_used"], 2 << 20)
        self.assertEqual(self.tenants("b")["low"]["memory_limit"], 1 << 30)
        # The end of one actor, which Ray kills, leaves nothing and does not disturb the other.
        ray.kill(low)
        wait_until("the tenant of the killed actor is gone", lambda: set(self.tenants("a")) == {"high"})
        self.assertEqual(ray.get(high.work.remote(20), timeout=LIMIT), 20)
        # The last reference to an actor ends it.
        del high, other
        for node in NODES:
            wait_until(f"node {node} has no tenant", lambda node=node: not self.tenants(node))

    def test_a_killed_actor_starts_again_as_a_tenant(self):
        actor = Program.options(resources={"b": 0.1}, max_restarts=1, max_task_retries=1,
                                runtime_env=environment("--priority", "low")).remote()
        first = ray.get(actor.where.remote(), timeout=LIMIT)["pid"]
        wait_until("it is a tenant", lambda: self.tenants("b"))
        os.kill(first, 9)
        second = ray.get(actor.where.remote(), timeout=LIMIT)["pid"]
        self.assertNotEqual(first, second)
        self.assertEqual(ray.get(actor.work.remote(5), timeout=LIMIT), 5)
        self.assertEqual([process["pid"] for process in self.tenants("b")["low"]["processes"]], [second])

    def test_actors_survive_the_daemon(self):
        stack = self.stacks["a"]
        actor = self.actor("a", "--priority", "low")
        ray.get(actor.work.remote(5), timeout=LIMIT)
        stack.daemon.process.kill()
        stack.daemon.process.wait()
        self.assertEqual(ray.get(actor.work.remote(5), timeout=LIMIT), 5)
        stack.start_daemon()

        def joined():
            ray.get(actor.work.remote(1), timeout=LIMIT)
            return self.tenants("a").get("low")

        self.assertEqual(wait_until("the actor has joined the new daemon", joined)["priority"], "low")


if __name__ == "__main__":
    unittest.main()

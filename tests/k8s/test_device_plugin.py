#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`hb-k8s device-plugin` with a kubelet of our own (fake_kubelet.py), a daemon and simulated GPUs: every call, what is wrong in a
call, restarts of the kubelet and of the daemon, broken and slow connections, 1,000 allocations; and programs that run with what
the kubelet got, as a container runtime would start them."""
import contextlib
import json
import os
import signal
import socket
import struct
import sys
import unittest
from concurrent import futures

from fake_kubelet import Kubelet, PluginClient, grpc  # may start this program again, with a Python that has grpcio

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../server"))
from grpc_frames import PREFACE, data_frames, frame, headers  # noqa: E402
from stack import BUILD, LIMIT, TENANT, Program, wait_until  # noqa: E402
from test_stack_containers import Containers, namespaces_work  # noqa: E402

HB_K8S = os.path.join(BUILD, "src/k8s/hb-k8s")
HIGH, LOW = "hummingbird.dev/high", "hummingbird.dev/low"
MEMORY_GROWTH_MAX = 8 << 20  # bytes, also with sanitizers


class Node(Containers):
    """A node with a daemon, a CDI file, the plugin and a kubelet."""

    def __init__(self, *options, **variables):
        super().__init__(**variables)
        self.options = options
        self.sockets = os.path.join(self.folder, "device-plugins")
        self.cdi = os.path.join(self.folder, "hummingbird.json")
        self.plugin = None

    def __enter__(self):
        super().__enter__()
        os.mkdir(self.sockets)
        self.write_cdi()
        self.kubelet = Kubelet(self.sockets)
        self.kubelet.start()
        self.start_plugin()
        return self

    def write_cdi(self):
        with open(self.cdi + ".new", "w", encoding="utf-8") as file:
            json.dump(self.specification, file)
        os.rename(self.cdi + ".new", self.cdi)

    def start_plugin(self):
        self.plugin = self.spawn([HB_K8S, "device-plugin", "--gpu", "sim", "--kubelet", self.sockets, "--cdi", self.cdi,
                                  *self.options])

    def client(self, resource=LOW, units=1):
        """The kubelet's connection to a plugin, when that has reported healthy units."""
        def registered():
            assert self.plugin.process.poll() is None, self.plugin.stderr()
            client = self.kubelet.plugins.get(resource)
            return client if client and len(client.units("Healthy")) >= units else None
        return wait_until(f"{resource} is registered and healthy", registered)

    def said(self, text):
        wait_until(f"the plugin says {text!r}", lambda: text in self.plugin.stderr())

    def resident(self):
        with open(f"/proc/{self.plugin.pid}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")

    def run_with(self, answer, *command):
        """Starts a command as a runtime does with an answer of mounts and variables."""
        mounts = [{"hostPath": mount["host_path"], "containerPath": mount["container_path"],
                   "options": ["ro" if mount["read_only"] else "rw", "nosuid", "nodev"]} for mount in answer["mounts"]]
        edits = {"env": [f"{entry['key']}={entry['value']}" for entry in answer["envs"]], "mounts": mounts}
        self.specification = {"containerEdits": edits, "devices": [{"name": "answer", "containerEdits": {"env": []}}]}
        return self.container("answer", *command)

    def __exit__(self, kind, value, trace):
        if kind is None:
            self.plugin.signal(signal.SIGTERM)
            assert self.plugin.ended() == 0, self.plugin.stderr()
            assert not [name for name in os.listdir(self.sockets) if name.startswith("hummingbird")], "sockets are left"
        self.kubelet.stop()
        super().__exit__(kind, value, trace)


class RefusedError(Exception):
    pass


def status_of(function):
    """The status and text of a call that fails."""
    try:
        function()
    except grpc.RpcError as error:
        return error.code().name, error.details()
    raise RefusedError("the call did not fail")


class CommandLine(unittest.TestCase):
    def test_a_bad_command_line_is_named(self):
        long = "x" * 64
        for options, text in (
                (["device-plugin", "--resource", "low"], "--resource: 'low' is not NAME=COUNT"),
                (["device-plugin", "--resource", "low=-1"], "'low=-1': the count is not a number from 0 to 64"),
                (["device-plugin", "--resource", "low=65"], "'low=65': the count is not a number from 0 to 64"),
                (["device-plugin", "--resource", "low=1x"], "'low=1x': the count is not a number from 0 to 64"),
                (["device-plugin", "--resource", "lo:w=1"], "--resource: 'lo:w=1' is not NAME=COUNT"),
                (["device-plugin", "--resource", f"{long}=1"], f"--resource: '{long}=1' is not NAME=COUNT"),
                (["device-plugin", "--resource", "/etc=1"], "--resource: '/etc=1' is not NAME=COUNT"),
                (["device-plugin", *(f"--resource=a{i}=1" for i in range(15))], "there are more than 16 resources"),
                (["device-plugin", "--answer", "both"], "--answer: 'both' is not one of the values"),
                (["device-plugin", "--grant", "all"], "--grant: 'all' is not one of the values"),
                (["device-plugin", "--answer", "mounts", "--grant", "cdi"], "--grant cdi needs --answer cdi"),
                (["device-plugin", "--kubelet", "plugins"], "--kubelet: 'plugins' is not an absolute path"),
                (["device-plugin", "--gpu", "real"], "--gpu: 'real' is not sim"),
                (["scheduler"], "the command is `device-plugin` or `dra`, not 'scheduler'"),
                ([], "the command is `device-plugin` or `dra`, not ''")):
            with contextlib.closing(Program([HB_K8S, *options], dict(os.environ))) as program:
                self.assertEqual(program.ended(), 2, options)
                self.assertIn(text, program.stderr())
        with contextlib.closing(Program([HB_K8S, "--help"], dict(os.environ))) as program:
            self.assertIn("usage: hb-k8s device-plugin", program.output()[0])


@unittest.skipUnless(namespaces_work(), "namespaces cannot be made here")
class OnANode(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.node = Node(HB_SIM_GPUS="2").__enter__()

    @classmethod
    def tearDownClass(cls):
        cls.node.__exit__(None, None, None)

    def setUp(self):
        self.node.client(HIGH, 2)
        self.node.client(LOW, 8)

    def test_both_resources_are_registered_with_their_units(self):
        node = self.node
        high, low = node.client(HIGH, 2), node.client(LOW, 8)
        requests = {request["resource_name"]: request for request in node.kubelet.registered}
        self.assertEqual(requests[LOW], {"version": "v1beta1", "endpoint": "hummingbird-low.sock", "resource_name": LOW, "options":
                                         {"pre_start_required": False, "get_preferred_allocation_available": True}})
        self.assertEqual((len(high.units()), len(set(low.units()))), (2, 8))
        gpus = {unit.rsplit("-", 1)[0] for unit in low.units()}
        self.assertEqual(gpus, {unit.rsplit("-", 1)[0] for unit in high.units()})
        self.assertEqual(len(gpus), 2)
        self.assertEqual(low.call("GetDevicePluginOptions", answer="DevicePluginOptions"),
                         {"pre_start_required": False, "get_preferred_allocation_available": True})
        self.assertEqual(low.call("PreStartContainer", "PreStartContainerRequest", "PreStartContainerResponse",
                                  devices_ids=[low.units()[0]]), {})
        self.assertEqual(os.stat(os.path.join(node.sockets, "hummingbird-low.sock")).st_mode & 0o777, 0o600)

    def test_a_container_gets_the_device_of_its_resource(self):
        for resource in HIGH, LOW:
            client = self.node.client(resource)
            units = client.units()
            for answer in client.allocate(units[:1], units[:2]):
                self.assertEqual(answer, {"envs": [], "mounts": [], "devices": [], "annotations": [], "cdi_devices":
                                          [{"name": "hummingbird.dev/tenant=" + resource.split("/")[1]}]})

    def test_units_of_several_gpus_are_preferred(self):
        client = self.node.client(LOW, 8)
        units = client.units()
        first, second = units[:4], units[4:]
        chosen = client.prefer(units, 2)
        self.assertEqual({chosen[0] in first, chosen[1] in first}, {True, False})
        self.assertIn(client.prefer(first[:1] + second, 1)[0], second)
        self.assertEqual(client.prefer(units, 1, [second[3]]), [second[3]])
        self.assertIn(client.prefer(units, 2, [second[3]])[1], first)
        self.assertEqual(sorted(client.prefer(units, 8)), sorted(units))

    def test_a_wrong_call_is_refused_with_its_reason(self):
        client = self.node.client(LOW, 8)
        unit = client.units()[0]
        for ids in (["none"], [unit + "x"], [unit[:-1] + "4"], [unit[:-1] + "00"], [unit, ""], ["GPU-" + "%s" * 30]):
            status, text = status_of(lambda wrong=ids: client.allocate(wrong))
            self.assertEqual(status, "INVALID_ARGUMENT")
            self.assertIn(f"'{ids[-1][:80]}' is not a unit of hummingbird.dev/low", text)
        lost = "GPU-00000000-0000-0000-0000-000000000000-0"
        self.assertEqual(status_of(lambda: client.allocate([lost])),
                         ("INVALID_ARGUMENT", f"{lost}: this node has no such GPU now"))
        for size in (2, -1):
            self.assertIn("allocation_size is ", status_of(lambda n=size: client.prefer([unit], n))[1])
        self.assertEqual(status_of(lambda: client.prefer([unit], 1, ["other"])),
                         ("INVALID_ARGUMENT", "must_include_deviceIDs: 'other' is not available"))
        self.assertEqual(status_of(lambda: client.raw("Deallocate", b"")),
                         ("UNIMPLEMENTED", "/v1beta1.DevicePlugin/Deallocate: there is no such method"))
        self.assertEqual(status_of(lambda: client.raw("Allocate", b"\x0a\xff")),
                         ("INVALID_ARGUMENT", "/v1beta1.DevicePlugin/Allocate: the message is not a v1beta1.AllocateRequest"))
        self.assertEqual(status_of(lambda: client.raw("Allocate", b"\x0a" * (5 << 20)))[0], "RESOURCE_EXHAUSTED")
        packed = status_of(lambda: client.raw("Allocate", b"a" * 500, compression=grpc.Compression.Gzip))
        self.assertEqual(packed, ("INVALID_ARGUMENT", "/v1beta1.DevicePlugin/Allocate: the call is not one message without compression"))
        self.assertNotEqual(status_of(lambda: client.raw("Allocate", b"", metadata=[("x", "y" * 20000)]))[0], "OK")
        self.assertEqual(len(client.allocate([unit])), 1)

    def test_a_thousand_allocations(self):
        client = self.node.client(LOW, 8)
        units = client.units()
        client.allocate(units)
        before = self.node.resident()
        with futures.ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda i: client.allocate([units[i % 8]], units), range(1000)))
        self.assertTrue(all([[device["name"] for device in one["cdi_devices"]] for one in answer]
                            == [["hummingbird.dev/tenant=low"]] * 2 for answer in answers))
        self.assertLess(self.node.resident() - before, MEMORY_GROWTH_MAX)

    def test_the_kubelet_starts_again(self):
        node = self.node
        for removes_sockets in True, False:
            node.client(LOW, 8)
            node.client(HIGH, 2)
            node.kubelet.stop(removes_sockets)
            node.kubelet.start(removes_sockets)
            for resource in HIGH, LOW:
                client = node.client(resource)
                self.assertEqual(len(client.allocate(client.units()[:1])), 1)
        self.assertEqual(sorted(request["resource_name"] for request in node.kubelet.registered), [HIGH, LOW])

    def test_a_kubelet_that_refuses_is_asked_again(self):
        node = self.node
        node.client(LOW, 8)
        node.kubelet.stop()
        node.kubelet.refuses = "version v1beta1 is too old"
        node.kubelet.start()
        node.said("hummingbird.dev/low: the kubelet did not register the plugin: version v1beta1 is too old")
        node.kubelet.refuses = ""
        node.client(LOW, 8)

    def test_a_socket_that_was_removed_is_made_again(self):
        node = self.node
        node.client(LOW, 8)
        count = len(node.kubelet.registered)
        os.unlink(os.path.join(node.sockets, "hummingbird-low.sock"))
        wait_until("it is registered again", lambda: len(node.kubelet.registered) > count)
        self.assertEqual(len(node.client(LOW, 8).allocate(node.client(LOW).units())), 1)

    def test_broken_connections_harm_nothing(self):
        node = self.node
        client = node.client(LOW, 8)
        call = headers(1, "/v1beta1.DevicePlugin/Allocate")
        for data in (b"", b"GET / HTTP/1.1\r\n\r\n", PREFACE, PREFACE + b"\xff" * 64, PREFACE + frame(4, 0, 0) + call,
                     PREFACE + frame(4, 0, 0) + call + data_frames(1, b"\x0a\x01", end=False),
                     PREFACE + frame(4, 0, 0) + call + frame(3, 0, 1, struct.pack(">I", 8)),
                     PREFACE + frame(4, 0, 0) + call + frame(0, 1, 1, b"\0\0\0\0\x09short")):
            for _ in range(5):
                with self.connect(LOW) as connection:
                    connection.sendall(data)
        # More connections than the plugin takes: later ones are closed, and earlier ones work.
        many = [self.connect(LOW) for _ in range(30)]
        self.assertEqual(len(client.allocate(client.units()[:1])), 1)
        for connection in many:
            connection.close()
        with contextlib.closing(PluginClient(os.path.join(node.sockets, "hummingbird-low.sock"))) as other:
            wait_until("a new client is served", lambda: self.serves(other))

    def serves(self, client):
        try:
            client.call("GetDevicePluginOptions", answer="DevicePluginOptions")
        except grpc.RpcError:
            return False
        return True

    def connect(self, resource):
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(LIMIT)
        connection.connect(os.path.join(self.node.sockets, f"hummingbird-{resource.split('/')[1]}.sock"))
        return connection

    def test_a_kubelet_that_names_the_socket_as_authority_is_served(self):
        with self.connect(LOW) as connection:
            path = os.path.join(self.node.sockets, "hummingbird-low.sock")
            connection.sendall(PREFACE + frame(4, 0, 0) + headers(1, "/v1beta1.DevicePlugin/ListAndWatch", **{":authority": path})
                               + data_frames(1, b""))
            received = b""
            while received.count(b"Healthy") < 8:
                more = connection.recv(65536)
                self.assertTrue(more, "the stream was closed")
                received += more
                self.assertNotIn(frame(3, 0, 1, struct.pack(">I", 1)), received, "the stream was reset")

    def test_a_slow_stream_gets_the_last_list_and_delays_nobody(self):
        node = self.node
        client = node.client(LOW, 8)
        with self.connect(LOW) as slow:
            # The initial window is 0: not one byte of an answer may be sent.
            slow.sendall(PREFACE + frame(4, 0, 0, struct.pack(">HI", 4, 0)) + headers(1, "/v1beta1.DevicePlugin/ListAndWatch")
                         + data_frames(1, b""))
            before = len(client.lists)
            for _ in range(2):
                os.rename(node.cdi, node.cdi + ".away")
                wait_until("the units are not healthy", lambda: not client.units("Healthy"))
                node.write_cdi()
                wait_until("the units are healthy", lambda: len(client.units("Healthy")) == 8)
            self.assertEqual(len(client.lists), before + 4)
            slow.sendall(frame(8, 0, 1, struct.pack(">I", 1 << 20)))
            received = b""
            while received.count(b"Healthy") + received.count(b"Unhealthy") < 16:
                more = slow.recv(65536)
                self.assertTrue(more, "the stream was closed")
                received += more
        self.assertEqual(received.count(b"Healthy"), 16)
        self.assertEqual(received.count(b"Unhealthy"), 0)
        self.assertEqual(len(client.allocate(client.units()[:1])), 1)

    def test_units_follow_the_daemon_and_the_specification(self):
        node = self.node
        client = node.client(LOW, 8)
        with open(node.cdi, "w", encoding="utf-8") as file:
            file.write('{"kind": "other"}')
        wait_until("the units are not healthy", lambda: len(client.units("Unhealthy")) == 8)
        node.said('hummingbird.json: Object item not found: devices')
        self.assertEqual(status_of(lambda: client.allocate(client.units()[:1])), (
            "FAILED_PRECONDITION", f"{node.cdi} has no device low: run `hb cdi generate` on this node"))
        node.write_cdi()
        wait_until("the units are healthy", lambda: len(client.units("Healthy")) == 8)
        node.daemon.signal(signal.SIGTERM)
        node.daemon.ended()
        wait_until("the units are not healthy", lambda: len(client.units("Unhealthy")) == 8)
        node.start_daemon()
        wait_until("the units are healthy", lambda: len(client.units("Healthy")) == 8)

    def test_a_plugin_that_was_killed_is_replaced(self):
        node = self.node
        client, _ = node.client(LOW, 8), node.client(HIGH, 2)
        units = client.units()
        node.plugin.signal(signal.SIGKILL)
        node.plugin.ended()
        wait_until("the kubelet notices", client.ended.is_set)
        count = len(node.kubelet.registered)
        node.start_plugin()
        wait_until("both are registered", lambda: len(node.kubelet.registered) == count + 2)
        self.assertEqual(node.client(LOW, 8).units(), units)


@unittest.skipUnless(namespaces_work(), "namespaces cannot be made here")
class OtherAnswers(unittest.TestCase):
    def test_a_container_gets_the_gpus_of_its_units(self):
        with Node("--grant", "cdi", "--resource", "high=0", HB_SIM_GPUS="2") as node:
            client = node.client(LOW, 8)
            units = client.units()
            uuids = [unit.rsplit("-", 1)[0] for unit in (units[0], units[4])]
            answers = client.allocate(units[1:2], units)
            names = [[device["name"] for device in answer["cdi_devices"]] for answer in answers]
            self.assertEqual(names, [["hummingbird.dev/tenant=low", f"nvidia.com/gpu={uuids[0]}"],
                                     ["hummingbird.dev/tenant=low", *(f"nvidia.com/gpu={uuid}" for uuid in uuids)]])
            self.assertEqual(set(node.kubelet.plugins), {LOW})

    def test_programs_run_with_mounts_and_variables(self):
        with Node("--answer", "mounts", "--grant", "variable") as node:
            high, low = node.client(HIGH), node.client(LOW)
            answers = [client.allocate(client.units()[:1])[0] for client in (high, low)]
            for answer, priority in zip(answers, ("high", "low")):
                variables = {entry["key"]: entry["value"] for entry in answer["envs"]}
                self.assertEqual(answer["cdi_devices"], [])
                self.assertEqual(variables["NVIDIA_VISIBLE_DEVICES"], high.units()[0].rsplit("-", 1)[0])
                self.assertEqual(variables["HB_PRIORITY"], priority)
                wanted = {mount["containerPath"]: "ro" in mount["options"]
                          for mount in node.specification["containerEdits"]["mounts"]}
                self.assertEqual({mount["container_path"]: mount["read_only"] for mount in answer["mounts"]}, wanted)
                self.assertEqual(set(wanted.values()), {True, False})
            service = node.run_with(answers[0], TENANT, "infer", "--rate", 50, "--seconds", 3600, "--kernels", 4)
            training = node.run_with(answers[1], TENANT, "train", 1000, 0)
            training.expect("running")
            tenants = [wait_until(f"{word} is a tenant", lambda word=word: node.tenant_with(word)) for word in ("infer", "train")]
            self.assertEqual([tenant["priority"] for tenant in tenants], ["high", "low"])
            wait_until("the service has requests", lambda: node.tenant_with("infer")["gpus"][0]["requests"] > 10)
            node.end(service, "infer")
            self.assertTrue(json.loads(node.end(training, "train")[-1])["right"])


if __name__ == "__main__":
    unittest.main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`hb-k8s dra` with a kubelet (fake_dra_kubelet.py) and an API server (fake_api_server.py) of our own, a daemon and simulated
GPUs: registration, every call, parameters, ResourceSlices and their idle shares, what is wrong in a claim, restarts, a broken and a
slow API server, broken connections, 1,000 claims; and programs that run with the CDI devices of their claims."""
import contextlib
import json
import os
import signal
import socket
import struct
import sys
import time
import unittest
from concurrent import futures

from fake_kubelet import grpc  # may start this program again, with a Python that has grpcio
from fake_api_server import ApiServer, make_certificate, parameters
from fake_dra_kubelet import REGISTRATION_SOCKET, DraKubelet

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../server"))
from grpc_frames import PREFACE, data_frames, frame, headers  # noqa: E402
from stack import BUILD, TENANT, Program, wait_until  # noqa: E402
from test_stack_containers import Containers, namespaces_work  # noqa: E402

HB_K8S = os.path.join(BUILD, "src/k8s/hb-k8s")
PREPARE = "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources"
MEMORY_GROWTH_MAX = 16 << 20  # bytes, also with sanitizers


class Node(Containers):
    """A node with a daemon, a CDI file, the driver and a kubelet, and the cluster's API server."""

    def __init__(self, *options, **variables):
        super().__init__(**variables)
        self.options = options
        self.cdi = os.path.join(self.folder, "hummingbird.json")
        self.claims = os.path.join(self.folder, "cdi")
        self.kubelet_folder = os.path.join(self.folder, "kubelet")
        self.checkpoint = os.path.join(self.kubelet_folder, "plugins/hummingbird.dev/claims.json")
        self.driver = None
        self.count = 0

    def __enter__(self):
        super().__enter__()
        credentials = os.path.join(self.folder, "credentials")
        os.mkdir(credentials)
        self.api = ApiServer(credentials).__enter__()
        self.kubelet = DraKubelet(self.kubelet_folder)
        self.write_cdi()
        self.start_driver()
        return self

    def write_cdi(self):
        with open(self.cdi + ".new", "w", encoding="utf-8") as file:
            json.dump(self.specification, file)
        os.rename(self.cdi + ".new", self.cdi)

    def start_driver(self):
        self.driver = self.spawn([
            HB_K8S, "dra", "--gpu", "sim", "--node", self.api.node, "--api", self.api.address, "--credentials", self.api.folder,
            "--kubelet", self.kubelet_folder, "--cdi", self.cdi, "--claims", self.claims, *self.options])
        wait_until("the driver is registered", self.is_registered)

    def is_registered(self):
        assert self.driver.process.poll() is None, self.driver.stderr()
        return self.kubelet.register()

    def published(self, count):
        wait_until(f"{count} devices are published", lambda: len(self.api.devices()) == count or self.driver.process.poll())
        return sorted(self.api.devices())

    def restart_driver(self, number=signal.SIGTERM):
        self.driver.signal(number)
        ended = self.driver.ended()
        self.kubelet.forget()
        if number == signal.SIGTERM:
            assert ended == 0, self.driver.stderr()
        else:
            # A socket without server is left behind, and must not be taken for the new one.
            os.unlink(os.path.join(self.kubelet.registry, REGISTRATION_SOCKET))
        self.start_driver()

    def claim(self, *devices, **options):
        self.count += 1
        return self.api.add_claim(f"claim-{self.count}", *devices, **options)

    def error(self, claim, version="v1"):
        answer = self.kubelet.prepare(claim, version=version)[claim["uid"]]
        assert answer["error"] and not answer["devices"], answer
        return answer["error"]

    def prepared(self, claim, version="v1"):
        answer = self.kubelet.prepare(claim, version=version)[claim["uid"]]
        assert not answer["error"], answer
        return answer["devices"]

    def unprepare(self, *claims):
        assert all(answer == {"error": ""} for answer in self.kubelet.unprepare(*claims).values())

    def files(self):
        return sorted(os.listdir(self.claims))

    def saved(self):
        with open(self.checkpoint, encoding="utf-8") as file:
            return json.load(file)["claims"]

    def edits(self, device):
        """The CDI file of the first ID of a prepared device, and the name in it."""
        kind, name = device["cdi_device_ids"][0].split("=")
        for file in self.files():
            with open(os.path.join(self.claims, file), encoding="utf-8") as found:
                specification = json.load(found)
            if specification["kind"] == kind and name in [entry["name"] for entry in specification["devices"]]:
                return specification, name
        raise AssertionError(f"{device['cdi_device_ids']}: not in {self.files()}")

    def variables(self, device):
        specification, name = self.edits(device)
        own = next(entry["containerEdits"]["env"] for entry in specification["devices"] if entry["name"] == name)
        return dict(line.split("=", 1) for line in specification["containerEdits"]["env"] + own)

    def run_with(self, device, *command):
        """Starts a command as a runtime does with the CDI device of a claim."""
        self.specification, name = self.edits(device)
        return self.container(name, *command)

    def said(self, text):
        wait_until(f"the driver says {text!r}", lambda: text in self.driver.stderr())

    def resident(self):
        with open(f"/proc/{self.driver.pid}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")

    def __exit__(self, kind, value, trace):
        if kind is None:
            self.driver.signal(signal.SIGTERM)
            assert self.driver.ended() == 0, self.driver.stderr()
            assert not os.listdir(self.kubelet.registry), "a socket is left"
        self.kubelet.forget()
        self.api.__exit__()
        super().__exit__(kind, value, trace)


class CommandLine(unittest.TestCase):
    def test_a_bad_command_line_is_named(self):
        base = ["dra", "--node", "a", "--api", "b:1"]
        for options, text in (
                (["dra"], "--node is missing, and so is the variable NODE_NAME"),
                (["dra", "--node", "a"], "--api is missing, and so are the variables KUBERNETES_SERVICE_HOST"),
                (["dra", "--node", "../a"], "--node: '../a' is not the name of a node"),
                (["dra", "--node", "a" * 238], "is not the name of a node"),
                ([*base, "--high", "1001"], "--high: '1001' is not a number from 0 to 1000"),
                ([*base, "--low", "-1"], "--low: '-1' is not a number from 0 to 1000"),
                ([*base, "--grant", "variable"], "--grant: 'variable' is not cdi or none"),
                ([*base, "--idle-period", "0.5s"], "--idle-period: '0.5s' is not a duration from 1s to 1h"),
                ([*base, "--api", "host"], "--api: 'host' is not HOST:PORT"),
                ([*base, "--api", "host:port"], "--api: 'host:port' is not HOST:PORT"),
                ([*base, "--api", "https://host:1"], "--api: 'https://host:1' is not HOST:PORT"),
                ([*base, "--kubelet", "lib"], "--kubelet: 'lib' is not an absolute path"),
                ([*base, "--gpu", "real"], "--gpu: 'real' is not sim"),
                ([*base, "more"], "dra: too many arguments: 'more'")):
            kept = {name: value for name, value in os.environ.items() if not name.startswith(("NODE", "KUBERNETES"))}
            with contextlib.closing(Program([HB_K8S, *options], kept)) as program:
                self.assertEqual(program.ended(), 2, options)
                self.assertIn(text, program.stderr())
        with contextlib.closing(Program([HB_K8S, "dra", "--help"], dict(os.environ))) as program:
            self.assertIn("usage: hb-k8s dra", program.output()[0])


@unittest.skipUnless(namespaces_work(), "namespaces cannot be made here")
class OnANode(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.node = Node("--idle-period", "1s", HB_SIM_GPUS="2").__enter__()

    @classmethod
    def tearDownClass(cls):
        cls.node.__exit__(None, None, None)

    def setUp(self):
        self.devices = self.node.published(4)
        self.high, self.low = [name for name in self.devices if name.endswith("-high")], [
            name for name in self.devices if name.endswith("-low")]

    def tearDown(self):
        self.assertEqual(self.node.files(), [], "CDI files are left")
        self.assertEqual(self.node.saved() if os.path.exists(self.node.checkpoint) else {}, {})

    def test_the_driver_is_registered(self):
        info = self.node.kubelet.info
        self.assertEqual(info, {"type": "DRAPlugin", "name": "hummingbird.dev", "endpoint": os.path.join(
            self.node.kubelet_folder, "plugins/hummingbird.dev/dra.sock"), "supported_versions": ["v1.DRAPlugin", "v1beta1.DRAPlugin"]})
        for path in (info["endpoint"], os.path.join(self.node.kubelet.registry, REGISTRATION_SOCKET)):
            self.assertEqual(os.stat(path).st_mode & 0o777, 0o600)
        self.node.kubelet.register(error="no such feature")
        self.node.said("hummingbird.dev: the kubelet did not register the driver: no such feature")

    def test_the_slice_describes_the_gpus(self):
        found = self.node.api.slice()
        node = self.node.api.objects["/api/v1/nodes/node-1"]["metadata"]
        self.assertEqual(found["metadata"]["ownerReferences"], [
            {"apiVersion": "v1", "kind": "Node", "name": "node-1", "uid": node["uid"], "controller": True}])
        self.assertEqual((found["spec"]["driver"], found["spec"]["nodeName"]), ("hummingbird.dev", "node-1"))
        self.assertEqual(found["spec"]["pool"], {"name": "node-1", "generation": found["spec"]["pool"]["generation"],
                                                 "resourceSliceCount": 1})
        self.assertEqual((len(self.high), len(self.low)), (2, 2))
        for name, device in self.node.api.devices().items():
            priority = name.rsplit("-", 1)[1]
            attributes, capacity = device["attributes"], device["capacity"]
            self.assertTrue(device["allowMultipleAllocations"])
            self.assertEqual(attributes["priority"], {"string": priority})
            self.assertEqual(attributes["uuid"]["string"].lower(), name.rsplit("-", 1)[0])
            self.assertTrue(0 <= attributes["idlePercent"]["int"] <= 100)
            self.assertTrue(attributes["productName"]["string"])
            self.assertEqual(capacity["tenants"], {"value": {"high": "1", "low": "4"}[priority],
                                                   "requestPolicy": {"default": "1", "validValues": ["1"]}})
            self.assertGreater(int(capacity["memory"]["value"]), 1 << 30)
            self.assertEqual(capacity["memory"]["requestPolicy"], {"default": "0", "validRange": {"min": "0"}})

    def test_a_slice_that_disappears_or_differs_is_written_again(self):
        node = self.node
        generation = node.api.slice()["spec"]["pool"]["generation"]
        os.rename(node.cdi, node.cdi + ".away")
        node.published(0)
        self.assertGreater(node.api.slice()["spec"]["pool"]["generation"], generation)
        # While there is no slice, the next change creates it; the kubelet removes slices of drivers that were away for long.
        node.api.remove_slice()
        os.rename(node.cdi + ".away", node.cdi)
        self.assertEqual(node.published(4), self.devices)

    def test_claims_are_prepared_for_both_versions(self):
        node = self.node
        for version in "v1", "v1beta1":
            claim = node.claim(*self.low, request="gpus")
            devices = node.prepared(claim, version)
            self.assertEqual([device["device_name"] for device in devices], self.low)
            uuids = [node.api.devices()[name]["attributes"]["uuid"]["string"] for name in self.low]
            for i, device in enumerate(devices):
                self.assertEqual((device["request_names"], device["pool_name"]), (["gpus"], "node-1"))
                self.assertTrue(device["share_id"])
                self.assertEqual(device["cdi_device_ids"], [f"hummingbird.dev/claim=claim-{claim['uid']}-{i}",
                                                            f"nvidia.com/gpu={uuids[i]}"])
                self.assertEqual(node.variables(device)["HB_PRIORITY"], "low")
            self.assertEqual(node.files(), [f"hummingbird.dev-claim-{claim['uid']}.json"])
            self.assertEqual(os.stat(os.path.join(node.claims, node.files()[0])).st_mode & 0o777, 0o644)
            # A second time: the same answer, and the API server is not asked.
            count = len([path for _, path in node.api.requests if "resourceclaims" in path])
            self.assertEqual(node.prepared(claim, version), devices)
            self.assertEqual(len([path for _, path in node.api.requests if "resourceclaims" in path]), count)
            self.assertEqual(list(node.saved()), [claim["uid"]])
            node.unprepare(claim)
            node.unprepare(claim)

    def test_parameters_of_class_and_claim(self):
        node, high, low = self.node, self.high[0], self.low[0]
        for device, options, wanted in (
                (low, {}, {"HB_PRIORITY": "low"}),
                (high, {}, {"HB_PRIORITY": "high"}),
                (low, {"memory": "20Gi"}, {"HB_MEMORY_BYTES": str(20 << 30)}),
                (low, {"memory": "20Gi", "config": [parameters(memory="10Gi")]}, {"HB_MEMORY_BYTES": str(10 << 30)}),
                (low, {"memory": "5Gi", "config": [parameters(memory="10GiB")]}, {"HB_MEMORY_BYTES": str(5 << 30)}),
                (high, {"config": [parameters("FromClass", slo="p99<50ms"), parameters(slo="p95<20ms")]},
                 {"HB_SLO_NS": "20000000", "HB_ATTAINMENT_PPM": "950000"}),
                # The claim's parameters come after those of the class, whatever their order.
                (high, {"config": [parameters(slo="20ms"), parameters("FromClass", slo="50ms")]}, {"HB_SLO_NS": "20000000"}),
                (high, {"config": [parameters(priority="low")]}, {"HB_PRIORITY": "low"}),
                (high, {"config": [parameters(requests=["other"], slo="1ms"), parameters(requests=["gpu"], slo="2ms")]},
                 {"HB_SLO_NS": "2000000"}),
                (high, {"request": "gpu/big", "config": [parameters(requests=["gpu"], slo="3ms")]}, {"HB_SLO_NS": "3000000"}),
                (low, {"config": [parameters(driver="gpu.nvidia.com", priority="urgent")]}, {"HB_PRIORITY": "low"})):
            claim = node.claim(device, **options)
            found = node.variables(node.prepared(claim)[0])
            self.assertEqual({name: found.get(name) for name in wanted}, wanted, options)
            self.assertEqual("LD_PRELOAD" in found, found["HB_PRIORITY"] == "high")
            node.unprepare(claim)

    def test_what_is_wrong_in_a_claim_is_named(self):
        node, low = self.node, self.low[0]
        for options, text in (
                ({"config": [parameters(priority="high")]}, "parameters of the claim: priority: high is not granted: the device, or "
                                                            "the device class, has priority low"),
                ({"config": [parameters("FromClass", priority="urgent")]}, "parameters of the device class: priority: 'urgent' is not high"),
                ({"config": [parameters(memory="40Gx")]}, "memory: '40Gx' is not a size such as 40Gi"),
                ({"config": [parameters(memory="0")]}, "memory: '0' is not a size"),
                ({"config": [parameters(slo="fast")]}, "slo: "),
                ({"config": [parameters(memory=40)]}, "memory: is not a string"),
                ({"config": [parameters(gpus="2")]}, "gpus: '2': expected apiVersion"),
                ({"config": [{"source": "FromClaim", "opaque": {"driver": "hummingbird.dev", "parameters": [1]}}]},
                 "apiVersion is not hummingbird.dev/v1, or kind is not TenantParameters"),
                ({"memory": "much"}, "the consumed capacity of memory is not a quantity")):
            claim = node.claim(low, **options)
            error = node.error(claim)
            self.assertIn(text, error)
            self.assertIn(f"claim default/{claim['name']}, request gpu", error)
            node.said(text)
        # High priority cannot come back once the class has taken it away.
        claim = node.claim(self.high[0], config=[parameters("FromClass", priority="low"), parameters(priority="high")])
        self.assertIn("priority: high is not granted", node.error(claim))
        for name in ("gpu-0", low.upper(), low + "x", low.replace("-low", "-medium"), "../" * 20):
            self.assertIn("is not a device of hummingbird.dev", node.error(node.claim(name)))
        self.assertIn("no device of hummingbird.dev on node node-1 is allocated", node.error(node.claim()))

    def test_claims_that_are_not_what_they_seem(self):
        node = self.node
        claim = node.claim(self.low[0])
        other = claim | {"uid": "00000000-1111-2222-3333-444444444444"}
        self.assertIn(f"has UID {claim['uid']} now, and not {other['uid']}", node.error(other))
        lost = node.claim(self.low[0])
        node.api.remove_claim(lost)
        self.assertIn("resourceclaims/" + lost["name"] + ": 404", node.error(lost))
        for wrong in ({"uid": "../../etc"}, {"uid": "x" * 64}, {"uid": ""}, {"name": "../secrets/a"}, {"namespace": "."},
                      {"name": "a b\r\nX: y"}):
            self.assertIn("is not a claim", node.error(claim | wrong))
            if "uid" in wrong:
                self.assertIn("is not a claim", node.kubelet.unprepare(claim | wrong)[wrong["uid"]]["error"])
        # One bad claim does not prevent the others of its pod.
        answers = node.kubelet.prepare(claim, lost)
        self.assertEqual((answers[claim["uid"]]["error"], bool(answers[lost["uid"]]["error"])), ("", True))
        node.unprepare(claim, lost)

    def test_a_broken_api_server_is_reported_and_survived(self):
        node, api = self.node, self.node.api
        claim = node.claim(self.low[0], config=[parameters(slo="10ms")] * 20)  # an answer in chunks
        api.refuses = (403, "resourceclaims is forbidden: cannot get resource")
        self.assertIn("403 resourceclaims is forbidden", node.error(claim))
        api.refuses = None
        api.cuts = True
        self.assertIn("the answer is not HTTP/1.1, or not complete", node.error(claim))
        api.cuts = False
        port = api.server.server_address[1]
        api.stop()
        self.assertIn("Connection refused", node.error(claim))
        api.start(port)
        node.prepared(claim)
        node.unprepare(claim)
        for name, text in ("token", "No such file"), ("ca.crt", "ca.crt: "):
            path = os.path.join(api.folder, name)
            os.rename(path, path + ".away")
            self.assertIn(text, node.error(claim))
            os.rename(path + ".away", path)
        with self.trusting_another_authority():
            self.assertIn("certificate", node.error(claim))
        with open(os.path.join(api.folder, "token"), "r+", encoding="ascii") as file:
            token = file.read()
            file.seek(0)
            file.write("x")
        self.assertIn("401 Unauthorized", node.error(claim))
        with open(os.path.join(api.folder, "token"), "w", encoding="ascii") as file:
            file.write(token)
        node.prepared(claim)
        node.unprepare(claim)

    @contextlib.contextmanager
    def trusting_another_authority(self):
        right, other = os.path.join(self.node.api.folder, "ca.crt"), os.path.join(self.node.folder, "other-authority")
        os.mkdir(other)
        make_certificate(other)
        os.rename(right, right + ".away")
        os.rename(os.path.join(other, "ca.crt"), right)
        try:
            yield
        finally:
            os.rename(right + ".away", right)

    def test_a_slow_api_server_does_not_stop_the_sockets(self):
        node = self.node
        claim, known = node.claim(self.low[0]), node.claim(self.low[0])
        node.api.hangs.set()
        with self.assertRaises(grpc.RpcError) as late:
            node.kubelet.prepare(claim, timeout=0.5)
        self.assertEqual(late.exception.code(), grpc.StatusCode.DEADLINE_EXCEEDED)
        self.assertTrue(node.kubelet.register())
        node.api.hangs.clear()
        node.prepared(known)
        # The first request went on without its caller; what it prepared is known.
        node.prepared(claim)
        node.unprepare(claim, known)

    def test_a_restart_keeps_prepared_claims(self):
        node = self.node
        claims = [node.claim(self.low[i % 2], config=[parameters(memory="1Gi")]) for i in range(5)]
        before = node.kubelet.prepare(*claims)
        for number in signal.SIGTERM, signal.SIGKILL:
            node.restart_driver(number)
            for claim in claims:
                node.api.objects = {path: value for path, value in node.api.objects.items() if not path.endswith("/" + claim["name"])}
            self.assertEqual(node.kubelet.prepare(*claims), before)
        # The files are gone after a reboot, and come back when the kubelet asks.
        for name in node.files():
            os.unlink(os.path.join(node.claims, name))
        self.assertEqual(node.kubelet.prepare(*claims), before)
        self.assertEqual(len(node.files()), 5)
        self.assertEqual(node.variables(before[claims[0]["uid"]]["devices"][0])["HB_MEMORY_BYTES"], str(1 << 30))
        # Files of claims that were not saved are removed, and other files are not.
        for name in ("hummingbird.dev-claim-1-2.json", "hummingbird.dev-claim-1.json.7.tmp", "nvidia.yaml"):
            with open(os.path.join(node.claims, name), "w", encoding="ascii") as file:
                file.write("{}")
        node.restart_driver()
        self.assertEqual(len(node.files()), 6)
        os.unlink(os.path.join(node.claims, "nvidia.yaml"))
        node.unprepare(*claims)

    def test_a_checkpoint_that_cannot_be_read_is_not_replaced(self):
        node = self.node
        for text, message in (("{", "claims.json"), ('{"version": 2, "claims": {}}', "version 2 of the file is not known to this hb-k8s"),
                              ('{"version": 1, "claims": {"../a": {"devices": []}}}', "claim '../a' has no valid UID")):
            node.driver.signal(signal.SIGTERM)
            self.assertEqual(node.driver.ended(), 0)
            node.kubelet.forget()
            with open(node.checkpoint, "w", encoding="ascii") as file:
                file.write(text)
            program = node.spawn([*node.driver.process.args])
            self.assertEqual(program.ended(), 1)
            self.assertIn(message, program.stderr())
            with open(node.checkpoint, encoding="ascii") as file:
                self.assertEqual(file.read(), text)
            os.unlink(node.checkpoint)
            node.start_driver()

    def test_sockets_that_disappear_are_made_again(self):
        node = self.node
        os.unlink(node.kubelet.info["endpoint"])
        os.unlink(os.path.join(node.kubelet.registry, REGISTRATION_SOCKET))
        node.kubelet.forget()
        wait_until("the driver is registered again", node.is_registered)
        claim = node.claim(self.low[0])
        node.prepared(claim)
        node.unprepare(claim)

    def test_broken_connections_harm_nothing(self):
        node = self.node
        claim = node.claim(self.low[0])
        call = headers(1, PREPARE)
        for data in (b"", b"GET / HTTP/1.1\r\n\r\n", PREFACE + b"\xff" * 64, PREFACE + frame(4, 0, 0) + call + data_frames(1, b"\x0a\x7f"),
                     PREFACE + frame(4, 0, 0) + call + data_frames(1, b"") + frame(3, 0, 1, struct.pack(">I", 8))):
            for _ in range(5):
                # A connection more than the driver takes is closed at once.
                with contextlib.suppress(BrokenPipeError, ConnectionResetError), socket.socket(socket.AF_UNIX) as connection:
                    connection.connect(node.kubelet.info["endpoint"])
                    connection.sendall(data)
        node.prepared(claim)
        node.unprepare(claim)

    def test_a_thousand_claims(self):
        node = self.node
        warm = [node.claim(self.low[0]) for _ in range(50)]
        node.kubelet.prepare(*warm)
        node.unprepare(*warm)
        before = node.resident()
        claims = [node.claim(self.low[i % 2], memory="1Gi") for i in range(1000)]
        groups = [claims[i:i + 10] for i in range(0, 1000, 10)]
        with futures.ThreadPoolExecutor(max_workers=8) as pool:
            answers = list(pool.map(lambda group: node.kubelet.prepare(*group), groups))
        self.assertEqual({answer["error"] for found in answers for answer in found.values()}, {""})
        self.assertEqual((len(node.files()), len(node.saved())), (1000, 1000))
        node.restart_driver(signal.SIGKILL)
        self.assertEqual(node.prepared(claims[999])[0]["cdi_device_ids"][0], f"hummingbird.dev/claim=claim-{claims[999]['uid']}-0")
        with futures.ThreadPoolExecutor(max_workers=8) as pool:
            list(pool.map(lambda group: node.unprepare(*group), groups))
        self.assertLess(node.resident() - before, MEMORY_GROWTH_MAX)

    def test_more_claims_than_a_node_keeps_are_refused(self):
        node = self.node
        node.driver.signal(signal.SIGTERM)
        self.assertEqual(node.driver.ended(), 0)
        node.kubelet.forget()
        with open(node.checkpoint, "w", encoding="ascii") as file:
            json.dump({"version": 1, "claims": {f"uid-{i}": {"namespace": "a", "name": "b", "devices": []} for i in range(4096)}}, file)
        node.start_driver()
        self.assertIn("this node has 4096 prepared claims, which is the limit", node.error(node.claim(self.low[0])))
        node.unprepare(*({"namespace": "a", "name": "b", "uid": f"uid-{i}"} for i in range(4096)))

    def test_programs_run_with_their_claims(self):
        node = self.node
        service = node.claim(self.high[0], config=[parameters("FromClass", slo="p99<50ms")])
        training = node.claim(self.low[0], memory="30Gi")
        answers = node.kubelet.prepare(service, training)
        served = node.run_with(answers[service["uid"]]["devices"][0], TENANT, "infer", "--rate", 50, "--seconds", 3600, "--kernels", 4)
        trained = node.run_with(answers[training["uid"]]["devices"][0], TENANT, "train", 1000, 0)
        trained.expect("running")
        high, low = (wait_until(f"{word} is a tenant", lambda word=word: node.tenant_with(word)) for word in ("infer", "train"))
        self.assertEqual((high["priority"], low["priority"]), ("high", "low"))
        self.assertEqual((high["slo_asked_ns"], low["memory_limit"]), (50_000_000, 30 << 30))
        wait_until("the service has requests", lambda: node.tenant_with("infer")["gpus"][0]["requests"] > 10)
        # The service's GPU is less idle now, and the slice says so at a bounded rate.
        began, count = time.monotonic(), len(self.writes())
        gpu = high["gpus"][0]["gpu"].lower()
        wait_until("the idle share is published", lambda: self.idle(gpu) < 100)
        self.assertEqual({device["attributes"]["idlePercent"]["int"] for name, device in node.api.devices().items()
                          if not name.startswith(gpu)}, {100})
        self.assertLessEqual(len(self.writes()) - count, 1 + (time.monotonic() - began) / 2)
        node.end(served, "infer")
        self.assertTrue(json.loads(node.end(trained, "train")[-1])["right"])
        node.unprepare(service, training)

    def writes(self):
        return [path for method, path in self.node.api.requests if method in ("PUT", "POST")]

    def idle(self, gpu):
        return self.node.api.devices()[gpu + "-low"]["attributes"]["idlePercent"]["int"]


@unittest.skipUnless(namespaces_work(), "namespaces cannot be made here")
class OtherOptions(unittest.TestCase):
    def test_an_api_server_without_sharing_is_named_and_the_gpu_is_not_granted(self):
        with Node("--grant", "none", "--high", "0", "--low", "7") as node:
            (low,) = node.published(1)
            self.assertEqual(node.api.devices()[low]["capacity"]["tenants"]["value"], "7")
            claim = node.claim(low)
            self.assertEqual(node.prepared(claim)[0]["cdi_device_ids"], [f"hummingbird.dev/claim=claim-{claim['uid']}-0"])
            node.unprepare(claim)
            node.api.has_sharing = False
            node.api.remove_slice()
            node.restart_driver()
            node.said("its feature gate DRAConsumableCapacity is off")


if __name__ == "__main__":
    unittest.main()

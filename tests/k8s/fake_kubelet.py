# SPDX-License-Identifier: Apache-2.0
"""The kubelet's side of the device plugin API, for tests: a gRPC server at kubelet.sock that takes registrations and calls the
plugins back, with the gRPC library of other programs (grpcio). The messages are coded here, from the numbers of Kubernetes' own
api.proto and not from our file, so an error in that file is seen."""
import contextlib
import os
import threading
from concurrent import futures

from python_modules import find_module

TEXT, NUMBER, FLAG = "text", "number", "flag"
# Message: {number: (name, kind or message, repeated)}
MESSAGES = {
    "Empty": {},
    "DevicePluginOptions": {1: ("pre_start_required", FLAG, False), 2: ("get_preferred_allocation_available", FLAG, False)},
    "RegisterRequest": {1: ("version", TEXT, False), 2: ("endpoint", TEXT, False), 3: ("resource_name", TEXT, False),
                        4: ("options", "DevicePluginOptions", False)},
    "ListAndWatchResponse": {1: ("devices", "Device", True)},
    "Device": {1: ("ID", TEXT, False), 2: ("health", TEXT, False), 3: ("topology", "Empty", False)},
    "PreferredAllocationRequest": {1: ("container_requests", "ContainerPreferredAllocationRequest", True)},
    "ContainerPreferredAllocationRequest": {1: ("available_deviceIDs", TEXT, True), 2: ("must_include_deviceIDs", TEXT, True),
                                            3: ("allocation_size", NUMBER, False)},
    "PreferredAllocationResponse": {1: ("container_responses", "ContainerPreferredAllocationResponse", True)},
    "ContainerPreferredAllocationResponse": {1: ("deviceIDs", TEXT, True)},
    "AllocateRequest": {1: ("container_requests", "ContainerAllocateRequest", True)},
    "ContainerAllocateRequest": {1: ("devices_ids", TEXT, True)},
    "AllocateResponse": {1: ("container_responses", "ContainerAllocateResponse", True)},
    "ContainerAllocateResponse": {1: ("envs", "Entry", True), 2: ("mounts", "Mount", True), 3: ("devices", "Empty", True),
                                  4: ("annotations", "Entry", True), 5: ("cdi_devices", "CDIDevice", True)},
    "Entry": {1: ("key", TEXT, False), 2: ("value", TEXT, False)},
    "Mount": {1: ("container_path", TEXT, False), 2: ("host_path", TEXT, False), 3: ("read_only", FLAG, False)},
    "CDIDevice": {1: ("name", TEXT, False)},
    "PreStartContainerRequest": {1: ("devices_ids", TEXT, True)},
    "PreStartContainerResponse": {},
}


def varint(value):
    data = b""
    while value > 127:
        data, value = data + bytes([value & 127 | 128]), value >> 7
    return data + bytes([value])


def read_varint(data, at):
    value = shift = 0
    while True:
        value, shift, at = value | (data[at] & 127) << shift, shift + 7, at + 1
        if not data[at - 1] & 128:
            return value, at


def encode(message, value):
    data = b""
    for number, (name, kind, repeated) in MESSAGES[message].items():
        for item in (value.get(name, []) if repeated else [value[name]] if name in value else []):
            if kind in (NUMBER, FLAG):
                data += varint(number << 3) + varint(int(item) & (1 << 64) - 1)
            else:
                part = item.encode() if kind == TEXT else encode(kind, item)
                data += varint(number << 3 | 2) + varint(len(part)) + part
    return data


def decode(message, data):
    value = {name: [] if repeated else {TEXT: "", NUMBER: 0, FLAG: False}.get(kind)
             for name, kind, repeated in MESSAGES[message].values()}
    at = 0
    while at < len(data):
        tag, at = read_varint(data, at)
        name, kind, repeated = MESSAGES[message][tag >> 3]
        assert tag & 7 == (0 if kind in (NUMBER, FLAG) else 2), f"{message}.{name} has wire type {tag & 7}"
        item, at = read_varint(data, at)
        if tag & 7 == 2:
            part, at = data[at:at + item], at + item
            item = part.decode() if kind == TEXT else decode(kind, part)
        elif kind == FLAG:
            item = bool(item)
        if repeated:
            value[name].append(item)
        else:
            value[name] = item
    return value


grpc = find_module("grpc", "grpcio", "python3-grpcio")


class PluginClient:
    """Calls one plugin as the kubelet does."""

    def __init__(self, socket):
        self.channel = grpc.insecure_channel(f"unix://{socket}", options=[("grpc.default_authority", "localhost"), ("grpc.use_local_subchannel_pool", 1)])
        self.lists = []
        self.ended = threading.Event()
        self.stream = None

    def call(self, method, request="Empty", answer="Empty", service="v1beta1.DevicePlugin", **value):
        function = self.channel.unary_unary(f"/{service}/{method}", lambda given: encode(request, given),
                                            lambda data: decode(answer, data))
        return function(value, timeout=60)

    def raw(self, method, data, **options):
        return self.channel.unary_unary(f"/v1beta1.DevicePlugin/{method}")(data, timeout=60, **options)

    def allocate(self, *containers):
        answer = self.call("Allocate", "AllocateRequest", "AllocateResponse",
                           container_requests=[{"devices_ids": list(ids)} for ids in containers])
        return answer["container_responses"]

    def prefer(self, available, size, required=()):
        request = {"available_deviceIDs": available, "must_include_deviceIDs": list(required), "allocation_size": size}
        answer = self.call("GetPreferredAllocation", "PreferredAllocationRequest", "PreferredAllocationResponse",
                           container_requests=[request])
        return answer["container_responses"][0]["deviceIDs"]

    def watch(self):
        self.stream = self.channel.unary_stream("/v1beta1.DevicePlugin/ListAndWatch", lambda given: encode("Empty", given),
                                                lambda data: decode("ListAndWatchResponse", data))({})
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        with contextlib.suppress(grpc.RpcError):
            for answer in self.stream:
                self.lists.append([(device["ID"], device["health"]) for device in answer["devices"]])
        self.lists = []
        self.ended.set()

    def units(self, health=None):
        """The units of the last list, those with this health."""
        return [unit for unit, found in (self.lists[-1] if self.lists else []) if health in (None, found)]

    def close(self):
        if self.stream:
            self.stream.cancel()
        self.channel.close()


class Kubelet:
    """Registers plugins in a folder, each as often as it asks."""

    def __init__(self, folder):
        self.folder = folder
        self.registered = []
        self.plugins = {}
        self.refuses = ""
        self.server = None

    def register(self, data, context):
        request = decode("RegisterRequest", data)
        if self.refuses:
            context.abort(grpc.StatusCode.UNKNOWN, self.refuses)
        # As the kubelet does: it connects before it answers.
        client = PluginClient(os.path.join(self.folder, request["endpoint"]))
        grpc.channel_ready_future(client.channel).result(timeout=60)
        client.watch()
        self.plugins[request["resource_name"]] = client
        self.registered.append(request)
        return b""

    def start(self, removes_sockets=True):
        """Old kubelets remove the sockets of plugins, new ones only their own."""
        for name in os.listdir(self.folder) if removes_sockets else []:
            os.unlink(os.path.join(self.folder, name))
        handler = grpc.unary_unary_rpc_method_handler(self.register)
        self.server = grpc.server(futures.ThreadPoolExecutor(max_workers=4))
        self.server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("v1beta1.Registration", {"Register": handler}),))
        assert self.server.add_insecure_port(f"unix://{self.folder}/kubelet.sock.new")
        self.server.start()
        os.rename(f"{self.folder}/kubelet.sock.new", f"{self.folder}/kubelet.sock")

    def stop(self, removes_sockets=True):
        for plugin in self.plugins.values():
            plugin.close()
        self.plugins = {}
        self.registered = []
        self.server.stop(None).wait()
        if removes_sockets:
            os.unlink(os.path.join(self.folder, "kubelet.sock"))

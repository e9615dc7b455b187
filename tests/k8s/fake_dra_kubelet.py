# SPDX-License-Identifier: Apache-2.0
"""The kubelet's side of plugin registration and Dynamic Resource Allocation, for tests, with the gRPC library of other programs
(grpcio). Services and numbers are those of Kubernetes' own api.proto files."""
import contextlib
import os

from fake_kubelet import FLAG, MESSAGES, TEXT, decode, encode, grpc

MESSAGES.update({
    "InfoRequest": {},
    "PluginInfo": {1: ("type", TEXT, False), 2: ("name", TEXT, False), 3: ("endpoint", TEXT, False), 4: ("supported_versions", TEXT, True)},
    "RegistrationStatus": {1: ("plugin_registered", FLAG, False), 2: ("error", TEXT, False)},
    "RegistrationStatusResponse": {},
    "Claim": {1: ("namespace", TEXT, False), 2: ("uid", TEXT, False), 3: ("name", TEXT, False)},
    "NodePrepareResourcesRequest": {1: ("claims", "Claim", True)},
    "NodePrepareResourcesResponse": {1: ("claims", "PrepareEntry", True)},
    "PrepareEntry": {1: ("key", TEXT, False), 2: ("value", "NodePrepareResourceResponse", False)},
    "NodePrepareResourceResponse": {1: ("devices", "PreparedDevice", True), 2: ("error", TEXT, False)},
    "PreparedDevice": {1: ("request_names", TEXT, True), 2: ("pool_name", TEXT, False), 3: ("device_name", TEXT, False),
                       4: ("cdi_device_ids", TEXT, True), 5: ("share_id", TEXT, False)},
    "NodeUnprepareResourcesRequest": {1: ("claims", "Claim", True)},
    "NodeUnprepareResourcesResponse": {1: ("claims", "UnprepareEntry", True)},
    "UnprepareEntry": {1: ("key", TEXT, False), 2: ("value", "NodeUnprepareResourceResponse", False)},
    "NodeUnprepareResourceResponse": {1: ("error", TEXT, False)},
})
REGISTRATION_SOCKET = "hummingbird.dev-reg.sock"
LIMIT = 60


class DraKubelet:
    """Calls a driver through the sockets in the kubelet's folder."""

    def __init__(self, folder):
        self.folder = folder
        self.registry = os.path.join(folder, "plugins_registry")
        os.makedirs(self.registry, exist_ok=True)
        self.channels = {}
        self.info = None

    def call(self, socket, path, request, answer, value, timeout=LIMIT):
        if socket not in self.channels:
            self.channels[socket] = grpc.insecure_channel(f"unix://{socket}", options=[
                ("grpc.default_authority", "localhost"), ("grpc.use_local_subchannel_pool", 1)])
        function = self.channels[socket].unary_unary(path, lambda given: encode(request, given), lambda data: decode(answer, data))
        return function(value, timeout=timeout)

    def register(self, error=""):
        """As the kubelet does when it sees the socket. False: there is none."""
        socket = os.path.join(self.registry, REGISTRATION_SOCKET)
        if not os.path.exists(socket):
            return False
        path = "/pluginregistration.Registration/"
        with contextlib.suppress(grpc.RpcError):
            self.info = self.call(socket, path + "GetInfo", "InfoRequest", "PluginInfo", {}, 5)
            self.call(socket, path + "NotifyRegistrationStatus", "RegistrationStatus", "RegistrationStatusResponse",
                      {"plugin_registered": not error, "error": error}, 5)
            return True
        self.forget()
        return False

    def forget(self):
        """Closes the connections, as a kubelet that ends."""
        for channel in self.channels.values():
            channel.close()
        self.channels = {}
        self.info = None

    def service(self, verb, claims, version, timeout):
        found = self.call(self.info["endpoint"], f"/k8s.io.kubelet.pkg.apis.dra.{version}.DRAPlugin/{verb}", verb + "Request",
                          verb + "Response", {"claims": claims}, timeout)["claims"]
        answers = {entry["key"]: entry["value"] for entry in found}
        assert len(answers) == len(found) and set(answers) == {claim["uid"] for claim in claims}, found
        return answers

    def prepare(self, *claims, version="v1", timeout=LIMIT):
        """The answers by UID."""
        return self.service("NodePrepareResources", claims, version, timeout)

    def unprepare(self, *claims, version="v1", timeout=LIMIT):
        return self.service("NodeUnprepareResources", claims, version, timeout)

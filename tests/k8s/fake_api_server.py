# SPDX-License-Identifier: Apache-2.0
"""The part of Kubernetes' API server that `hb-k8s dra` uses, for tests: HTTPS with a certificate and a token of its own; nodes,
ResourceClaims and ResourceSlices as JSON, with the API server's rules for resourceVersion, names and fields that do not change."""
import http.server
import ipaddress
import json
import os
import ssl
import subprocess
import threading
import uuid

TOKEN = "token-of-the-service-account"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
CLAIM = "/apis/resource.k8s.io/v1/namespaces/{}/resourceclaims/{}"


def make_certificate(folder, address="127.0.0.1"):
    """ca.crt and token as a pod has them; the server's key and certificate beside them."""
    def openssl(*words):
        subprocess.run(["openssl", *words], check=True, capture_output=True, timeout=60, cwd=folder)
    new_key = ("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    kind = "IP" if ipaddress.ip_address(address) else "DNS"
    openssl(*new_key, "-x509", "-days", "2", "-subj", "/CN=cluster", "-keyout", "ca.key", "-out", "ca.crt")
    openssl(*new_key, "-subj", "/CN=kube-apiserver", "-addext", f"subjectAltName={kind}:{address}", "-keyout", "server.key", "-out", "server.csr")
    openssl("x509", "-req", "-in", "server.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-days", "2", "-copy_extensions", "copy",
            "-out", "server.crt")
    with open(os.path.join(folder, "token"), "w", encoding="ascii") as file:
        file.write(TOKEN + "\n")


class Answer(Exception):
    def __init__(self, status, message):
        super().__init__(message)
        self.status = status


class ApiServer:
    def __init__(self, folder, node="node-1"):
        self.node = node
        self.folder = folder
        self.objects = {f"/api/v1/nodes/{node}": {"metadata": {"name": node, "uid": str(uuid.uuid4())}}}
        self.requests = []  # (method, path)
        self.refuses = None  # (status, message) for each request
        self.hangs = threading.Event()  # while set, no request is answered
        self.cuts = False  # the connection ends within the answer
        self.has_sharing = True  # the feature gate DRAConsumableCapacity
        self.version = 1
        self.lock = threading.Lock()
        self.server = None

    def __enter__(self):
        make_certificate(self.folder)
        self.start()
        return self

    def start(self, port=0):
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # as Go's servers do

            def do_GET(self):
                outer.handle(self)

            do_POST = do_PUT = do_DELETE = do_GET

            def log_message(self, *_):
                pass

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_):
                pass

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(os.path.join(self.folder, "server.crt"), os.path.join(self.folder, "server.key"))
        self.server = Server(("127.0.0.1", port), Handler)
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def stop(self):
        self.server.shutdown()
        self.server.server_close()

    def __exit__(self, *_):
        self.hangs.clear()
        self.stop()

    @property
    def address(self):
        return f"127.0.0.1:{self.server.server_address[1]}"

    def handle(self, request):
        data = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        self.requests.append((request.command, request.path))
        while self.hangs.is_set():
            threading.Event().wait(0.05)
        try:
            status, found = self.answer(request, json.loads(data) if data else None)
        except Answer as refusal:
            status, found = refusal.status, {"kind": "Status", "status": "Failure", "message": str(refusal), "code": refusal.status}
        text = json.dumps(found).encode()
        request.send_response(status)
        request.send_header("Content-Type", "application/json")
        # A large answer comes in chunks, as Go's servers send it.
        if self.cuts or len(text) < 2048:
            request.send_header("Content-Length", str(len(text)))
            request.end_headers()
            request.wfile.write(text[:len(text) // 2] if self.cuts else text)
        else:
            request.send_header("Transfer-Encoding", "chunked")
            request.end_headers()
            for at in range(0, len(text), 1000):
                piece = text[at:at + 1000]
                request.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            request.wfile.write(b"0\r\n\r\n")
        request.close_connection = True

    def answer(self, request, value):
        path, method = request.path, request.command
        if self.refuses:
            raise Answer(*self.refuses)
        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            raise Answer(401, "Unauthorized")
        with self.lock:
            if method == "GET":
                if path not in self.objects:
                    raise Answer(404, f"{path} not found")
                return 200, self.objects[path]
            if method == "POST" and path == SLICES:
                name = f"{SLICES}/{value['metadata']['name']}"
                if name in self.objects or "resourceVersion" in value["metadata"]:
                    raise Answer(409, "already exists")
                return 201, self.store(name, value, None)
            if method == "PUT" and path in self.objects:
                return 200, self.store(path, value, self.objects[path])
        raise Answer(405, f"{method} {path}")

    def store(self, path, value, old):
        spec = value["spec"]
        if old and value["metadata"].get("resourceVersion") != old["metadata"]["resourceVersion"]:
            raise Answer(409, "the object has been modified")
        if old and (spec["driver"], spec["nodeName"]) != (old["spec"]["driver"], old["spec"]["nodeName"]):
            raise Answer(422, "spec.driver and spec.nodeName are immutable")
        if old and spec["pool"]["generation"] <= old["spec"]["pool"]["generation"]:
            raise Answer(422, "the generation of the pool did not grow")
        if not self.has_sharing:
            for device in spec["devices"]:
                del device["allowMultipleAllocations"]
        self.version += 1
        value["metadata"]["resourceVersion"] = str(self.version)
        self.objects[path] = value
        return value

    # What the tests ask for.

    def slice(self):
        return self.objects.get(f"{SLICES}/{self.node}-hummingbird.dev")

    def devices(self):
        """The devices that are published, by name."""
        found = self.slice()
        return {device["name"]: device for device in found["spec"]["devices"]} if found else {}

    def remove_slice(self):
        with self.lock:
            del self.objects[f"{SLICES}/{self.node}-hummingbird.dev"]

    def add_claim(self, name, *devices, space="default", config=(), memory="0", request="gpu"):
        """A claim that the scheduler has allocated. Returns it as the kubelet names it."""
        uid = str(uuid.uuid4())
        results = [{"request": request, "driver": "hummingbird.dev", "pool": self.node, "device": device,
                    "shareID": str(uuid.uuid4()), "consumedCapacity": {"tenants": "1", "memory": memory}} for device in devices]
        self.objects[CLAIM.format(space, name)] = {
            "metadata": {"namespace": space, "name": name, "uid": uid},
            "status": {"allocation": {"devices": {"results": results, "config": list(config)}}}}
        return {"namespace": space, "name": name, "uid": uid}

    def remove_claim(self, claim):
        del self.objects[CLAIM.format(claim["namespace"], claim["name"])]


def parameters(source="FromClaim", requests=(), driver="hummingbird.dev", **values):
    """An entry of a claim's configuration."""
    return {"source": source, "requests": list(requests), "opaque": {"driver": driver, "parameters": {
        "apiVersion": "hummingbird.dev/v1", "kind": "TenantParameters", **values}}}

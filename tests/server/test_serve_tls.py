#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""TLS of `hb serve`, over HTTP and gRPC: certificates, mutual TLS, slow and broken handshakes. Skipped (77) in a build without
TLS or without the program openssl, which makes the certificates."""
import contextlib
import http.client
import json
import os
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import threading
import unittest
import warnings

from grpc_frames import data_frames, field, grpc_answer, grpc_begin
from serve_process import BUILD, LIMIT, Server, is_closed, wait_until

MODELS = {"echo": "platform: echo\nmax_batch: 4\n"}
LARGE_SIZE = 160000
LARGE = """platform: echo
inputs: [{name: x, datatype: FP32, shape: [%d]}]
outputs: [{name: y, datatype: FP32, shape: [%d]}]
""" % (LARGE_SIZE, LARGE_SIZE)
TOKEN = "t" * 32
AUTHORIZATION = {"Authorization": "Bearer " + TOKEN}
INFER = field(1, b"echo") + field(5, field(1, b"x") + field(2, b"FP32") + field(3, b"\1\4")) + field(7, bytes(16))
SERVICE = "/inference.GRPCInferenceService/"


def openssl(*words):
    subprocess.run(["openssl", *words], check=True, capture_output=True, timeout=LIMIT)


class Certificates:
    """A folder with an authority (ca), certificates that it signed for the server and for a client, a client of another
    authority, and a file of tokens."""

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="hb-tls-")
        for authority in ("ca", "other-ca"):
            openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj",
                    "/CN=" + authority, "-keyout", self.path(authority + ".key"), "-out", self.path(authority + ".pem"))
        for name, authority, purpose in (("server", "ca", "serverAuth"), ("renewed", "ca", "serverAuth"),
                                         ("client", "ca", "clientAuth"), ("stranger", "other-ca", "clientAuth")):
            with open(self.path(name + ".ext"), "w", encoding="utf-8") as file:
                file.write("subjectAltName=DNS:localhost,IP:127.0.0.1\nextendedKeyUsage=%s\n" % purpose)
            openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=" + name, "-keyout",
                    self.path(name + ".key"), "-out", self.path(name + ".csr"))
            openssl("x509", "-req", "-in", self.path(name + ".csr"), "-CA", self.path(authority + ".pem"), "-CAkey",
                    self.path(authority + ".key"), "-CAcreateserial", "-days", "2", "-extfile", self.path(name + ".ext"), "-out",
                    self.path(name + ".pem"))
            os.chmod(self.path(name + ".key"), 0o600)
        with open(self.path("tokens"), "w", encoding="utf-8") as file:
            file.write(TOKEN + "\n")
        os.chmod(self.path("tokens"), 0o600)

    def path(self, name):
        return os.path.join(self.folder, name)

    def context(self, client=None, protocols=()):
        context = ssl.create_default_context(cafile=self.path("ca.pem"))
        if client:
            context.load_cert_chain(self.path(client + ".pem"), self.path(client + ".key"))
        if protocols:
            context.set_alpn_protocols(list(protocols))
        return context

    def options(self):
        return ("--tls-cert", self.path("server.pem"), "--tls-key", self.path("server.key"))


class TlsServer(Server):
    """`context` is the client's in all calls of Server."""

    def __init__(self, certificates, *options, context=None):
        self.context = context or certificates.context()
        super().__init__(MODELS, "--gpu", "none", *certificates.options(), *options,
                         files=[("large/model.yaml", LARGE)])

    def exchange(self, method, path, body=None, headers=None):
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=LIMIT, context=self.context)
        connection.request(method, path, body, headers or {})
        response = connection.getresponse()
        data = response.read()
        connection.close()
        return response.status, data, response.headers


class Tls(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.files = Certificates()

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.files.folder)

    def serve(self, *options, **more):
        server = TlsServer(self.files, *options, **more)
        self.addCleanup(server.stop)
        return server

    def refused_start(self, *options):
        done = subprocess.run([os.path.join(BUILD, "hb"), "serve", "--models", self.files.folder, "--http", "127.0.0.1:0", "--grpc",
                               "127.0.0.1:0", *options], capture_output=True, text=True, check=False, timeout=LIMIT)
        self.assertNotEqual(done.returncode, 0)
        return done.stderr

    def grpc(self, server, method, message=b"", context=None, **headers):
        with socket.create_connection(("127.0.0.1", server.grpc_port), timeout=LIMIT) as plain:
            with (context or self.files.context(protocols=["h2"])).wrap_socket(plain, server_hostname="127.0.0.1") as client:
                client.sendall(grpc_begin(1, SERVICE + method, **headers) + data_frames(1, message))
                return grpc_answer(client)[0]

    @staticmethod
    def handshakes(server, protocol, outcome):
        return server.metric('hb_serve_tls_handshakes_total{protocol="%s",outcome="%s"}' % (protocol, outcome))

    def test_both_protocols_are_encrypted(self):
        server = self.serve()
        self.assertEqual(server.infer("echo", (1, 2, 3, 4))[1]["outputs"][0]["data"], [1, 2, 3, 4])
        self.assertEqual(self.grpc(server, "ModelInfer", INFER), 0)
        for port, data in ((server.port, b"GET /v2 HTTP/1.1\r\nHost: localhost\r\n\r\n"), (server.grpc_port, grpc_begin())):
            with server.connect(data, port) as client:
                answer = b""
                try:
                    while more := client.recv(65536):
                        answer += more
                except ConnectionError:
                    pass
                self.assertNotIn(b"HTTP/1.1 200", answer)
                self.assertIn(answer[:1], (b"", b"\x15"))  # at most a TLS alert
        self.assertGreaterEqual(self.handshakes(server, "http", "done"), 2)
        self.assertEqual(self.handshakes(server, "grpc", "done"), 1)
        for protocol in ("http", "grpc"):
            wait_until("the failure is counted", lambda name=protocol: self.handshakes(server, name, "failed") == 1)

    def test_old_versions_and_other_protocols_are_refused(self):
        server = self.serve()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            old = self.files.context(protocols=["h2"])
            old.minimum_version, old.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
            old.set_ciphers("ALL:@SECLEVEL=0")
        for port, context in ((server.port, old), (server.grpc_port, old), (server.grpc_port, self.files.context()),
                              (server.grpc_port, self.files.context(protocols=["http/1.1"]))):
            with server.connect(port=port) as plain, self.assertRaises((ssl.SSLError, ConnectionError)):
                with context.wrap_socket(plain, server_hostname="127.0.0.1") as client:
                    self.assertEqual(client.recv(1), b"")
                    raise ConnectionError("closed after the handshake")
        twelve = self.files.context(protocols=["h2"])
        twelve.maximum_version = ssl.TLSVersion.TLSv1_2
        self.assertEqual(self.grpc(server, "ServerLive", context=twelve), 0)
        self.assertEqual(server.infer("echo")[0], 200)

    def test_large_bodies_arrive_whole(self):
        numbers = struct.pack("<%df" % LARGE_SIZE, *range(LARGE_SIZE))
        head = json.dumps({"parameters": {"binary_data_output": True}, "inputs": [
            {"name": "x", "datatype": "FP32", "shape": [LARGE_SIZE], "parameters": {"binary_data_size": len(numbers)}}]}).encode()
        server, answers = self.serve(), []

        def ask():
            status, body, headers = server.exchange("POST", "/v2/models/large/infer", head + numbers, {
                "Inference-Header-Content-Length": str(len(head))})
            answers.append((status, body[int(headers["Inference-Header-Content-Length"]):] == numbers))
        threads = [threading.Thread(target=ask) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(answers, [(200, True)] * 8)
        large = b"\x0a\x04echo" + b"\x7a\0" * 300000  # unknown fields
        self.assertEqual(self.grpc(server, "ModelInfer", large), 3)

    def test_mutual_tls_needs_a_client_certificate_of_the_authority(self):
        server = self.serve("--tls-client-ca", self.files.path("ca.pem"), context=self.files.context("client"))
        self.assertEqual(server.infer("echo")[0], 200)
        self.assertEqual(self.grpc(server, "ServerMetadata", context=self.files.context("client", ["h2"])), 0)
        for client in (None, "stranger", "server"):  # the last is of the authority, but not for clients
            other = http.client.HTTPSConnection("127.0.0.1", server.port, timeout=LIMIT, context=self.files.context(client))
            with contextlib.closing(other), self.assertRaises((OSError, http.client.HTTPException), msg=client):
                other.request("GET", "/v2/health/live")
                other.getresponse()
            with self.assertRaises((ssl.SSLError, ConnectionError), msg=client):
                self.grpc(server, "ServerLive", context=self.files.context(client, ["h2"]))
        self.assertEqual(server.infer("echo")[0], 200)

    def test_other_machines_are_served_with_tls_and_tokens(self):
        for options in (("--http", "0.0.0.0:0"), ("--grpc", "0.0.0.0:0", *self.files.options()),
                        ("--http", "0.0.0.0:0", "--token-file", self.files.path("tokens"))):
            self.assertIn("--insecure-network", self.refused_start(*options))
        server = self.serve("--http", "0.0.0.0:0", "--grpc", "0.0.0.0:0", "--token-file", self.files.path("tokens"))
        self.assertEqual(server.exchange("GET", "/v2")[0], 401)
        for host, status in (("10.1.2.3:8000", 200), ("[2001:db8::1]", 200), ("evil.example", 403)):
            self.assertEqual(server.exchange("GET", "/v2", headers={"Host": host, **AUTHORIZATION})[0], status, host)
        self.assertEqual(self.grpc(server, "ServerMetadata"), 16)
        self.assertEqual(self.grpc(server, "ServerMetadata", authorization="Bearer " + TOKEN), 0)

    def test_slow_handshakes_end_and_keep_nobody_waiting(self):
        server = self.serve("--idle", "2s", "--threads", "1")
        hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"  # the begin of a ClientHello
        slow = [server.connect(data, port) for data in (b"", hello) for port in (server.port, server.grpc_port) for _ in range(20)]
        self.assertEqual(server.infer("echo")[0], 200)
        self.assertEqual(self.grpc(server, "ServerLive"), 0)
        for client in slow:
            with client:
                self.assertTrue(is_closed(client))
        for protocol in ("http", "grpc"):
            wait_until("the failures are counted", lambda name=protocol: self.handshakes(server, name, "failed") == 40)

    def test_handshakes_count_to_the_limit_of_connections(self):
        server = self.serve("--idle", "2s", "--threads", "1", "--connections", "3")
        waiting = [server.connect() for _ in range(3)]
        with server.connect() as fourth:
            fourth.settimeout(1)
            with self.assertRaises((socket.timeout, ssl.SSLError, ConnectionError)):
                self.files.context().wrap_socket(fourth, server_hostname="127.0.0.1")
        for client in waiting:
            with client:
                self.assertTrue(is_closed(client))
        wait_until("the server accepts connections again", lambda: server.infer("echo")[0] == 200)

    def test_broken_handshakes_harm_nobody(self):
        server = self.serve()
        for port in (server.port, server.grpc_port):
            for data in (b"\x16\x03\x01\xff\xff" + b"a" * 70000, b"\x15\x03\x03\x00\x02\x02\x28", b"\x80\x2e\x01\x00\x02",
                         b"\x16\x03\x01\x00\x05\x01\xff\xff\xff\xff", b"\x17\x03\x03\x00\x01\0", os.urandom(5000)):
                try:
                    with server.connect(data, port) as client:
                        client.shutdown(socket.SHUT_WR)
                        self.assertTrue(is_closed(client))
                except OSError:
                    pass  # the server closed the connection first
        self.assertEqual(server.infer("echo")[0], 200)
        self.assertEqual(self.grpc(server, "ServerLive"), 0)

    def test_new_connections_get_the_certificate_that_sighup_brought(self):
        cert, key = (self.files.path("changed" + end) for end in (".pem", ".key"))

        def use(name):
            shutil.copy(self.files.path(name + ".pem"), cert)
            shutil.copy(self.files.path(name + ".key"), key)

        def serial_of(port, protocols):
            with server.connect(port=port) as plain, self.files.context(protocols=protocols).wrap_socket(
                    plain, server_hostname="127.0.0.1") as client:
                return client.getpeercert()["serialNumber"]

        use("server")
        server = self.serve("--tls-cert", cert, "--tls-key", key)
        kept = http.client.HTTPSConnection("127.0.0.1", server.port, timeout=LIMIT, context=self.files.context())
        with contextlib.closing(kept):
            kept.connect()
            ends = ((server.port, ()), (server.grpc_port, ("h2",)))
            first = [serial_of(*end) for end in ends]
            use("renewed")
            server.process.send_signal(signal.SIGHUP)
            wait_until("HTTP has the new certificate", lambda: serial_of(*ends[0]) != first[0])
            second = [serial_of(*end) for end in ends]
            self.assertEqual((first[0], second[0]), (first[1], second[1]))
            shutil.copy(self.files.path("client.key"), key)
            server.process.send_signal(signal.SIGHUP)
            wait_until("the server reports the wrong key", lambda: any("with its private key" in line for line in server.log))
            self.assertEqual([serial_of(*end) for end in ends], second)
            kept.request("GET", "/v2/health/live")
            self.assertEqual(kept.getresponse().status, 200)

    def test_a_grpc_session_ends_with_close_notify(self):
        server = self.serve("--idle", "1s")
        context = self.files.context(protocols=["h2"])
        with server.connect(port=server.grpc_port) as plain, context.wrap_socket(
                plain, server_hostname="127.0.0.1", suppress_ragged_eofs=False) as client:
            client.sendall(grpc_begin())
            while client.recv(65536):  # an end without close_notify raises SSLEOFError
                pass

    def test_files_are_checked(self):
        cert, key = self.files.path("server.pem"), self.files.path("server.key")
        open_key = self.files.path("open.key")
        shutil.copy(key, open_key)
        os.chmod(open_key, 0o644)
        for options, word in ((("--tls-cert", cert), "are given together"), (("--tls-key", key), "are given together"),
                              (("--tls-client-ca", cert), "are given together"),
                              (("--tls-cert", cert, "--tls-key", open_key), "run chmod 0640"),
                              (("--tls-cert", cert, "--tls-key", "/nowhere/key"), "/nowhere/key"),
                              (("--tls-cert", cert, "--tls-key", self.files.path("client.key")), "with its private key"),
                              (("--tls-cert", key, "--tls-key", key), "with its private key"),
                              (("--tls-cert", cert, "--tls-key", key, "--tls-client-ca", key), "no certificate")):
            self.assertIn(word, self.refused_start(*options), options)


if __name__ == "__main__":
    if os.environ.get("HB_TLS") == "0" or not shutil.which("openssl"):
        print("skipped: this build has no TLS, or the program openssl is missing")
        sys.exit(77)
    unittest.main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Access to `hb serve`: control and shared memory are off by default, web pages can do nothing, and tokens give rights."""
import contextlib
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import unittest

from grpc_frames import data_frames, field, grpc_answer, grpc_begin
from serve_process import BUILD, LIMIT, Server, wait_until

ECHO = "platform: echo\nmax_batch: 4\npriority: %s\n"
MODELS = {"echo": ECHO % "low", "urgent": ECHO % "high"}
TENSOR = {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}
OPERATOR, USER, LOW = "o" * 32, "u" * 32, "l" * 32
CONTROL_CALLS = ("/v2/repository/models/echo/unload", "/v2/repository/models/echo/load", "/v2/policy/fifo")
OK, PERMISSION_DENIED, UNAUTHENTICATED = 0, 7, 16


def bearer(token):
    return {"Authorization": "Bearer " + token}


def infer_body(**parameters):
    return json.dumps({"inputs": [TENSOR], "parameters": parameters})


@contextlib.contextmanager
def as_user(user):
    """What is done inside is done as this user; None = no change."""
    groups = os.getgroups()
    if user:
        os.setgroups([])
        os.setegid(user)
        os.seteuid(user)
    try:
        yield
    finally:
        if user:
            os.seteuid(0)
            os.setegid(0)
            os.setgroups(groups)


class Security(unittest.TestCase):
    def serve(self, *options, control="none", **more):
        server = Server(MODELS, "--gpu", "none", "--control", control, *options, **more)
        self.addCleanup(server.stop)
        if server.port:
            wait_until("the models are ready", lambda: server.call("GET", "/v2/health/ready")[0] == 200)
        return server

    def token_file(self, text=None, mode=0o600):
        handle, path = tempfile.mkstemp(prefix="hb-tokens-")
        self.addCleanup(os.unlink, path)
        with os.fdopen(handle, "w") as file:
            file.write(text or "# tokens\n%s high control shared-memory\n%s   # a user\n%s low\n" % (OPERATOR, USER, LOW))
        os.chmod(path, mode)
        return path

    def shared_object(self, name, content, mode=0o600):
        path = "/dev/shm/%s_%d" % (name, os.getpid())
        with open(path, "wb") as file:
            file.write(content.ljust(4096, b"\0"))
        os.chmod(path, mode)
        self.addCleanup(os.unlink, path)
        return path

    def refused_start(self, *options, models=None):
        done = subprocess.run([os.path.join(BUILD, "hb"), "serve", "--models", models or self.socket_folder(), "--http", "127.0.0.1:0", "--grpc",
                               "127.0.0.1:0", *options], capture_output=True, text=True, check=False, timeout=LIMIT)
        self.assertNotEqual(done.returncode, 0)
        return done.stderr

    @staticmethod
    def grpc(server, method, message=b"", address="127.0.0.1", **headers):
        """Returns status and message of a call's answer. `address` may be the path of a Unix socket."""
        with socket.socket(socket.AF_UNIX if address[0] == "/" else socket.AF_INET) as client:
            client.settimeout(LIMIT)
            client.connect(address if address[0] == "/" else (address, server.grpc_port))
            client.sendall(grpc_begin(1, "/inference.GRPCInferenceService/" + method, **headers) + data_frames(1, message))
            return grpc_answer(client)

    # ---- control ----

    def test_control_is_off_by_default(self):
        server = self.serve()
        for path in CONTROL_CALLS:
            status, body = server.call("POST", path)
            self.assertEqual(status, 403, path)
            self.assertIn("--control", json.loads(body)["error"])
        self.assertEqual(server.infer("echo")[0], 200)
        self.assertEqual(server.metric('hb_serve_refused_calls_total{reason="control"}'), 3)

    def test_loopback_control_must_be_asked_for(self):
        server = self.serve(control="loopback")
        self.assertEqual(server.call("POST", "/v2/repository/models/echo/unload")[0], 200)
        self.assertEqual(server.infer("echo")[0], 404)
        self.assertEqual(server.call("POST", "/v2/repository/models/echo/load")[0], 200)
        self.assertEqual(server.infer("echo")[0], 200)

    # ---- web pages ----

    def test_a_web_page_can_do_nothing(self):
        """The requests of a page of evil.example: with its own name (DNS rebinding) or with the server's, and without a preflight."""
        server = self.serve(control="loopback")
        before = server.metric('hb_serve_refused_calls_total{reason="origin"}')
        own = "127.0.0.1:%d" % server.port
        for host, origin in (("evil.example:%d" % server.port, "http://evil.example"), (own, "http://evil.example"),
                             ("evil.example", None), ("127.0.0.1.evil.example", None), (own, "null"), (own, "http://127.0.0.1:1"),
                             ("10.0.0.1", None)):
            headers = {"Host": host, "Content-Type": "text/plain", **({"Origin": origin} if origin else {})}
            for method, path, body in [("POST", path, b"") for path in CONTROL_CALLS] + [
                    ("GET", "/v2/models/echo", None), ("GET", "/metrics", None), ("GET", "/v2/health/live", None),
                    ("POST", "/v2/models/echo/infer", infer_body()), ("OPTIONS", "/v2/models/echo/infer", None)]:
                status, body, answer = server.exchange(method, path, body, headers)
                self.assertEqual((status, answer["Access-Control-Allow-Origin"]), (403, None), (method, path, host, origin))
                self.assertIn("--allowed-host", json.loads(body)["error"])
        self.assertEqual(server.infer("echo")[0], 200)
        self.assertGreater(server.metric('hb_serve_refused_calls_total{reason="origin"}'), before)

    def test_the_server_answers_to_its_own_names(self):
        server = self.serve("--allowed-host", "gpu.example")
        for host in ("localhost", "LOCALHOST:80", "127.0.0.1", "[::1]:8000", "gpu.example", "GPU.example:443"):
            for origin in ({}, {"Origin": "https://" + host}):
                self.assertEqual(server.exchange("GET", "/v2/models/echo", headers={"Host": host, **origin})[0], 200, host)
        self.assertEqual(server.exchange("GET", "/v2", headers={"Host": "other.example"})[0], 403)

    def test_grpc_checks_the_authority(self):
        server = self.serve()
        self.assertEqual(self.grpc(server, "ServerLive")[0], OK)
        for name in ("evil.example", "evil.example:%d" % server.grpc_port, "x" * 120):
            status, text = self.grpc(server, "ServerLive", **{":authority": name})
            self.assertEqual(status, PERMISSION_DENIED, name)
            self.assertIn("--allowed-host", text)
        self.assertEqual(self.grpc(server, "ServerLive", origin="http://evil.example")[0], PERMISSION_DENIED)

    # ---- shared memory ----

    def read_region(self, server, headers=None):
        status, body, _ = server.exchange("POST", "/v2/models/echo/infer", json.dumps({"inputs": [
            {"name": "x", "datatype": "FP32", "shape": [1, 4], "parameters": {
                "shared_memory_region": "r", "shared_memory_byte_size": 16}}]}), headers)
        return status, json.loads(body)

    def register(self, server, path, headers=None):
        return server.exchange("POST", "/v2/systemsharedmemory/region/r/register", json.dumps(
            {"key": "/" + os.path.basename(path), "offset": 0, "byte_size": 4096}), headers)

    def test_shared_memory_is_off_by_default(self):
        server = self.serve(control="loopback")
        path = self.shared_object("other_program", struct.pack("<4f", 1, 2, 3, 4))
        for method, call in (("POST", "region/r/register"), ("POST", "region/r/unregister"), ("POST", "unregister"),
                             ("GET", "status"), ("GET", "region/r/status")):
            status, body = server.call(method, "/v2/systemsharedmemory/" + call)
            self.assertEqual(status, 403, call)
            self.assertIn("--shared-memory", json.loads(body)["error"])
        self.assertEqual(self.register(server, path)[0], 403)
        self.assertEqual(self.read_region(server)[0], 400)
        name = os.path.basename(path).encode()
        for method, message in (("SystemSharedMemoryRegister", field(1, b"r") + field(2, b"/" + name) + b"\x20\x80\x20"),
                                ("SystemSharedMemoryUnregister", b""), ("SystemSharedMemoryStatus", b"")):
            status, text = self.grpc(server, method, message)
            self.assertEqual(status, PERMISSION_DENIED, method)
            self.assertIn("--shared-memory", text)

    def test_only_names_with_the_prefix_are_opened(self):
        """Another program's object is neither read nor overwritten."""
        server = self.serve("--shared-memory", "loopback", "--shared-memory-prefix", "hb_shared_")
        secret = self.shared_object("other_program", struct.pack("<4f", 5, 6, 7, 8))
        status, body, _ = self.register(server, secret)
        self.assertEqual(status, 403)
        self.assertIn("--shared-memory-prefix", json.loads(body)["error"])
        link = "/dev/shm/hb_shared_link_%d" % os.getpid()
        for make in (os.symlink, os.link):
            make(secret, link)
            self.addCleanup(lambda: os.path.lexists(link) and os.unlink(link))
            self.assertNotEqual(self.register(server, link)[0], 200, make)
            os.unlink(link)
        self.assertEqual(self.read_region(server)[0], 400)
        shared = self.shared_object("hb_shared", struct.pack("<4f", 1, 2, 3, 4))
        self.assertEqual(self.register(server, shared)[0], 200)
        self.assertEqual(self.read_region(server)[1]["outputs"][0]["data"], [1, 2, 3, 4])
        os.truncate(shared, 8)
        status, body = self.read_region(server)
        self.assertEqual(status, 400)
        self.assertIn("shorter", body["error"])
        self.assertEqual(server.infer("echo")[0], 200)

    def test_options_that_do_not_fit_together_are_refused(self):
        for options, word in ((("--shared-memory", "loopback"), "--shared-memory-prefix"), (("--control", "token"), "--token-file"),
                              (("--control", "sockets"), "--control takes"), (("--shared-memory-prefix", "a/b"), "slash"),
                              (("--allowed-host", "a:80"), "without a port"), (("--operators", "no-such-user"), "no-such-user"),
                              (("--control", "socket"), "--http-socket"), (("--operators", "root"), "--control socket"),
                              (("--socket-group", "root"), "--http-socket"), (("--http-socket", "/" + "x" * 120), "characters"),
                              (("--http-socket", "/nowhere/s"), "/nowhere/s"), (("--http", "0.0.0.0:0"), "--insecure-network"), (("--grpc", "[::]:0"), "--insecure-network"),
                              (("--token-file", "/nowhere/tokens"), "/nowhere/tokens")):
            self.assertIn(word, self.refused_start(*options), options)

    # ---- Unix sockets ----

    def socket_folder(self):
        folder = tempfile.mkdtemp(prefix="hb-sockets-")
        self.addCleanup(shutil.rmtree, folder)
        os.chmod(folder, 0o755)
        return folder

    @staticmethod
    def over_socket(path, method, target, body=b"", user=None):
        """A call over HTTP on a Unix socket, of another user if there is one. Returns status and body."""
        request = b"%s %s HTTP/1.1\r\nHost: unix\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % (
            method.encode(), target.encode(), len(body)) + body
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(LIMIT)
            with as_user(user):
                client.connect(path)
            client.sendall(request)
            answer = b""
            while data := client.recv(65536):
                answer += data
        return int(answer.split()[1]), answer.split(b"\r\n\r\n", 1)[1]

    def test_the_owner_controls_the_server_over_a_unix_socket(self):
        folder = self.socket_folder()
        http, grpc = folder + "/http", folder + "/grpc"
        server = self.serve("--http-socket", http, "--grpc-socket", grpc, "--token-file", self.token_file(), control="socket")
        self.assertEqual([os.stat(path).st_mode & 0o777 for path in (http, grpc)], [0o600, 0o600])
        for path in CONTROL_CALLS:
            self.assertEqual(server.exchange("POST", path, headers=bearer(OPERATOR))[0], 403, path)
            self.assertEqual(self.over_socket(http, "POST", path)[0], 200, path)
        self.assertEqual(self.over_socket(http, "POST", "/v2/models/echo/infer", infer_body().encode())[0], 200)
        message = field(2, b"echo")
        for address, wanted in (("127.0.0.1", UNAUTHENTICATED), (grpc, OK)):
            self.assertEqual(self.grpc(server, "RepositoryModelUnload", message, address=address)[0], wanted)

    def test_a_server_needs_no_address(self):
        path = self.socket_folder() + "/http"
        server = self.serve("--http-socket", path, "--http", "none", "--grpc", "none")
        self.assertEqual((server.port, server.grpc_port), (0, 0))
        self.assertEqual(self.over_socket(path, "GET", "/v2/health/live")[0], 200)

    def test_a_socket_that_a_dead_server_left_is_replaced(self):
        path = self.socket_folder() + "/http"
        server = self.serve("--http-socket", path)
        self.assertIn("another server uses", self.refused_start("--http-socket", path))
        server.end(signal.SIGKILL)
        self.assertTrue(os.path.exists(path))
        server = self.serve("--http-socket", path)
        self.assertEqual(self.over_socket(path, "GET", "/v2/health/live")[0], 200)
        server.stop()
        self.assertFalse(os.path.exists(path))
        with open(path, "w", encoding="utf-8") as file:
            file.write("kept")
        self.assertIn("is not a socket", self.refused_start("--http-socket", path))
        self.assertEqual(os.path.getsize(path), 4)

    @unittest.skipUnless(os.geteuid() == 0 and os.stat("/").st_mode & 1, "needs root, and a machine that other users can use")
    def test_other_users_of_a_unix_socket_have_only_their_rights(self):
        path, (nobody, operator) = self.socket_folder() + "/http", (1234, 1235)
        server = self.serve("--http-socket", path, "--operators", str(operator), "--shared-memory", "socket", control="socket")
        with self.assertRaises(PermissionError):
            self.over_socket(path, "GET", "/v2/health/live", user=nobody)
        os.chmod(path, 0o666)  # as a group of these users would
        unload, load = CONTROL_CALLS[:2]
        self.assertEqual(self.over_socket(path, "POST", unload, user=nobody)[0], 403)
        self.assertEqual(self.over_socket(path, "POST", unload, user=operator)[0], 200)
        self.assertEqual(self.over_socket(path, "POST", load, user=operator)[0], 200)
        self.assertEqual(self.over_socket(path, "POST", "/v2/models/echo/infer", infer_body().encode(), user=nobody)[0], 200)

        def register(key, user):
            return self.over_socket(path, "POST", "/v2/systemsharedmemory/region/r/register", json.dumps(
                {"key": "/" + os.path.basename(key), "byte_size": 16}).encode(), user)[0]

        def read(user):
            return self.over_socket(path, "POST", "/v2/models/echo/infer", json.dumps({"inputs": [
                {"name": "x", "datatype": "FP32", "shape": [1, 4], "parameters": {
                    "shared_memory_region": "r", "shared_memory_byte_size": 16}}]}).encode(), user)[0]
        content = struct.pack("<4f", 1, 2, 3, 4)
        secret = self.shared_object("hb_secret", content)
        readable = self.shared_object("hb_readable", content, 0o644)
        own = self.shared_object("hb_own", content)
        os.chown(own, nobody, nobody)
        self.assertEqual([register(key, nobody) for key in (secret, readable)], [403, 403])
        self.assertEqual(read(nobody), 400)
        self.assertEqual(register(own, operator), 403)
        self.assertEqual(register(own, nobody), 200)
        self.assertEqual((read(nobody), read(operator), read(0)), (200, 400, 400))
        self.assertEqual(self.over_socket(path, "POST", "/v2/systemsharedmemory/unregister", user=operator)[0], 200)
        self.assertEqual(read(nobody), 200)
        self.assertEqual(server.call("POST", "/v2/systemsharedmemory/unregister")[0], 403)

    # ---- tokens ----

    def test_all_calls_but_health_need_a_token(self):
        server = self.serve("--token-file", self.token_file(), control="token")
        for method, path, body in (("GET", "/v2", None), ("GET", "/metrics", None), ("GET", "/v2/models/echo", None),
                                   ("POST", "/v2/models/echo/infer", infer_body()), ("GET", "/nothing", None),
                                   ("POST", "/v2/repository/index", b"")):
            for headers in ({}, bearer("x" * 32), bearer(USER[:-1]), bearer(USER + "u"), {"Authorization": "Basic " + USER}):
                status, text, answer = server.exchange(method, path, body, headers)
                self.assertEqual((status, answer["WWW-Authenticate"]), (401, "Bearer"), (path, headers))
                self.assertIn("--token-file", json.loads(text)["error"])
            self.assertIn(server.exchange(method, path, body, bearer(USER))[0], (200, 404))
        self.assertEqual(server.call("GET", "/v2/health/live")[0], 200)
        self.assertEqual(server.call("GET", "/v2/health/ready")[0], 200)
        self.assertEqual(self.grpc(server, "ServerLive")[0], OK)
        self.assertEqual(self.grpc(server, "ServerMetadata")[0], UNAUTHENTICATED)
        self.assertEqual(self.grpc(server, "ServerMetadata", authorization="Bearer " + USER)[0], OK)

    def test_a_token_must_have_the_right_to_control(self):
        server = self.serve("--token-file", self.token_file(), control="token")
        for path in CONTROL_CALLS:
            self.assertEqual(server.exchange("POST", path)[0], 401)
            status, body, _ = server.exchange("POST", path, headers=bearer(USER))
            self.assertEqual(status, 403)
            self.assertIn("--control", json.loads(body)["error"])
            self.assertEqual(server.exchange("POST", path, headers=bearer(OPERATOR))[0], 200, path)
        message = field(2, b"echo")
        for headers, wanted in (({}, UNAUTHENTICATED), ({"authorization": "Bearer " + USER}, PERMISSION_DENIED),
                                ({"authorization": "Bearer " + OPERATOR}, OK)):
            self.assertEqual(self.grpc(server, "RepositoryModelUnload", message, **headers)[0], wanted)

    def test_a_token_can_be_limited_to_low_priority(self):
        server = self.serve("--token-file", self.token_file())
        def ask(model, token, **parameters):
            status, body, _ = server.exchange("POST", "/v2/models/%s/infer" % model, infer_body(**parameters), bearer(token))
            return status, json.loads(body)
        def count(model, priority):
            text = server.exchange("GET", "/metrics", headers=bearer(USER))[1].decode()
            name = 'hb_serve_requests_total{model="%s",version="1",priority="%s",outcome="OK"} ' % (model, priority)
            return sum(int(line.split()[-1]) for line in text.splitlines() if line.startswith(name))
        status, body = ask("echo", LOW, priority="high")
        self.assertEqual(status, 403)
        self.assertIn("low priority only", body["error"])
        self.assertEqual(ask("urgent", LOW)[0], 200)
        self.assertEqual((count("urgent", "high"), count("urgent", "low")), (0, 1))
        self.assertEqual(ask("urgent", USER)[0], 200)
        self.assertEqual(ask("echo", USER, priority="high")[0], 200)
        self.assertEqual((count("urgent", "high"), count("echo", "high")), (1, 1))

    def test_regions_belong_to_the_token_that_registered_them(self):
        tokens = self.token_file("%s shared-memory\n%s shared-memory\n%s\n" % (OPERATOR, LOW, USER))
        server = self.serve("--token-file", tokens, "--shared-memory", "token", "--shared-memory-prefix", "hb_shared_")
        shared = self.shared_object("hb_shared", struct.pack("<4f", 1, 2, 3, 4))
        self.assertEqual(self.register(server, shared, bearer(USER))[0], 403)
        self.assertEqual(self.register(server, shared, bearer(OPERATOR))[0], 200)
        self.assertEqual(self.read_region(server, bearer(OPERATOR))[0], 200)
        for token in (USER, LOW):
            self.assertEqual(self.read_region(server, bearer(token))[0], 400)
        self.assertEqual(json.loads(server.exchange("GET", "/v2/systemsharedmemory/status", headers=bearer(LOW))[1]), [])
        self.assertEqual(server.exchange("POST", "/v2/systemsharedmemory/unregister", headers=bearer(LOW))[0], 200)
        self.assertEqual(self.read_region(server, bearer(OPERATOR))[0], 200)

    def test_sighup_reads_the_tokens_again(self):
        path = self.token_file()
        server = self.serve("--token-file", path)
        def status(token):
            return server.exchange("GET", "/v2", headers=bearer(token))[0]
        self.assertEqual((status(USER), status("n" * 32)), (200, 401))
        with open(path, "w", encoding="utf-8") as file:
            file.write("n" * 32 + "\n")
        self.assertEqual(status(USER), 200)
        server.process.send_signal(signal.SIGHUP)
        wait_until("the new token is known", lambda: status("n" * 32) == 200)
        self.assertEqual(status(USER), 401)
        with open(path, "w", encoding="utf-8") as file:
            file.write("short\n")
        server.process.send_signal(signal.SIGHUP)
        wait_until("the error is in the log", lambda: any("%s:1: a token has" % path in line for line in server.log))
        self.assertEqual(status("n" * 32), 200)

    def test_sighup_ends_a_server_without_tokens(self):
        server = self.serve()
        self.assertEqual(server.end(signal.SIGHUP), -signal.SIGHUP)

    def test_token_files_are_checked(self):
        for text, mode, word in ((None, 0o640, "chmod 0600"), (None, 0o604, "chmod 0600"), ("#\n\n", 0o600, "contains no token"),
                                 ("short\n", 0o600, ":1: a token has"), ("%s loud\n" % USER, 0o600, ":1: 'loud'"),
                                 ("%s\n%s\n" % (USER, USER), 0o600, ":2: this token"), ("u\0", 0o600, "zero byte")):
            error = self.refused_start("--token-file", self.token_file(text, mode))
            self.assertIn(word, error)
            self.assertNotIn(USER, error)


if __name__ == "__main__":
    unittest.main()

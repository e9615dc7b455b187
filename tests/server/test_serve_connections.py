#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Connections of `hb serve`: it accepts again after a limit was reached, no client takes all connections, idle ones of gRPC
end, and heads whose end is not clear are refused. The tests wait for conditions, never for a fixed time."""
import contextlib
import os
import re
import resource
import select
import socket
import struct
import subprocess
import sys
import time
import unittest

from grpc_frames import PREFACE, data_frames, frame, grpc_begin, headers
from limited_server import BODY, KIB, SERVICE, LimitedServer, LimitedTest
from serve_process import LIMIT, is_closed, wait_until


class Idle(LimitedTest):
    OPTIONS = ("--idle", "2s")

    def test_a_grpc_connection_without_calls_ends_with_a_notice(self):
        """Also after a call, and although it sends PING and SETTINGS."""
        live = data_frames(1, b"")
        for data in (PREFACE + frame(4, 0, 0), grpc_begin(path=SERVICE + "ServerLive") + live):
            with self.server.connect(data, self.server.grpc_port) as client:
                said = b""
                end = time.monotonic() + LIMIT
                client.settimeout(0.2)
                while time.monotonic() < end:
                    try:
                        client.sendall(frame(6, 0, 0, b"8" * 8) + frame(4, 0, 0))
                    except ConnectionError:
                        pass  # the server has closed the connection; its notice may be there unread
                    try:
                        more = client.recv(65536)
                        if not more:
                            break
                        said += more
                    except socket.timeout:
                        pass
                    except ConnectionError:
                        break
                self.assertLess(time.monotonic(), end)
                self.assertIn(frame(7, 0, 0, struct.pack(">II", 0 if data.endswith(frame(4, 0, 0)) else 1, 0)), said)
        wait_until("connections hold no memory", lambda: self.server.metric("hb_serve_connection_memory_bytes") == 0)


class Heads(LimitedTest):
    def answers_of(self, data):
        """The status of each answer to these bytes, until the server closes the connection."""
        with self.server.connect() as client:
            said = b""
            try:
                client.sendall(data)
                while more := client.recv(65536):
                    said += more
            except ConnectionError:
                pass  # the server does not read what follows
        return re.findall(rb"HTTP/1\.[01] (\d+) ", said)

    def test_a_request_whose_end_is_not_clear_is_the_last_of_its_connection(self):
        line = b"POST /v2/models/fast/infer HTTP/1.1\r\n"
        path, next_request = line + b"Host: localhost\r\n", b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"
        number = b"%d\r\n" % len(BODY)
        length, chunked = b"Content-Length: " + number, b"Transfer-Encoding: chunked\r\n"
        pieces = b"%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY)
        with_length = [path + head + b"\r\n" for head in (
            length + b"content-length: 0\r\n", b"Content-Length: 0\r\n" + length, length + length, length + chunked,
            b"Content-Length : " + number, b"Content-Length\t: " + number, b"Content-Length:\r\n " + number,
            b"Content-Length: +" + number, b"Content-Length: -1\r\n", b"Content-Length: 0x1\r\n", b"Content-Length:\r\n",
            b"Content-Length: 1, 1\r\n", b"Content-Length: 1 2\r\n", b"Content-Length: %s\r\n" % (b"9" * 30),
            b"X: a\r\n b\r\n" + length, b"X: a\r\n \r\n" + length, b"X: a\n" + length, b"X: a\rContent-Length: 1\r\n" + length,
            b"X: a\0\r\n" + length, b"X: a\0\0Content-Length: 1\r\n" + length, b"X(a): b\r\n" + length, b": b\r\n" + length,
            length + b"\n", length + b"Host: localhost\r\n")] + [
            line + b" Host: localhost\r\nHost: localhost\r\n" + length + b"\r\n", line + length + b"\r\n", line + b"Host: x, y\r\n" + length + b"\r\n",
            line[:-2] + b"\nHost: localhost\r\n" + length + b"\r\n", line.replace(b" /", b"  /") + path[len(line):] + length + b"\r\n",
            line.replace(b"infer", b"infer\tx") + path[len(line):] + length + b"\r\n"]
        with_pieces = [path + head + b"\r\n" for head in (
            chunked + length, chunked + chunked, b"Transfer-Encoding: gzip, chunked\r\n", b"Transfer-Encoding: x\r\n",
            b"Transfer-Encoding: identity\r\n", b"Transfer-Encoding: chunked, identity\r\n", b"Transfer-Encoding: \x0bchunked\r\n",
            b'Transfer-Encoding: "chunked"\r\n', b"Transfer-Encoding : chunked\r\n", b"Transfer-Encoding:\r\n chunked\r\n",
            b"Transfer-Encoding : chunked\r\n" + length)] + [line.replace(b"1.1", b"1.0") + path[len(line):] + chunked + b"\r\n"]
        for heads, body in ((with_length, BODY), (with_pieces, pieces)):
            for head in heads:
                self.assertIn(self.answers_of(head + body + next_request), ([b"400"], []), head)
        for target in (b"/v2/health/live", b"/v2/health/l%69ve?a=b&c"):
            ask = b"GET %s HTTP/1.1\r\nHost: [::1]:80\r\nX:\r\nCookie: a=b; c\r\n" % target
            self.assertEqual(self.answers_of(b"\r\n" + ask + b"\r\n" + ask + b"Connection: close\r\n\r\n"), [b"200", b"200"])

    def test_a_request_with_chunks_is_the_last_of_its_connection(self):
        """Debian 12's library takes a bare LF as the end of a line between chunks, where a proxy may see a longer extension."""
        head = b"POST /v2/models/fast/infer HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        next_request = b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        size = b"%x" % len(BODY)
        for pieces in (b"%s\r\n%s\r\n0\r\n\r\n", b"%s;a\n%s\r\n0\r\n\r\n", b"%s\n%s\n0\n\n", b"%s\r\n%s\r\n0;a\n\r\n",
                       b"%s\r\n%s\r\n0\r\nA: b\n\r\n"):
            self.assertIn(self.answers_of(head + pieces % (size, BODY) + next_request), ([b"200"], [b"400"]), pieces)

    def test_a_wrong_length_is_answered_with_400_once(self):
        for length in (b"x", b"-1", b"1, 1", b"9" * 30):
            self.assertEqual(self.answers_of(b"GET /v2 HTTP/1.1\r\nHost: localhost\r\nContent-Length: %s\r\n\r\n" % length), [b"400"])

    def test_a_grpc_client_cannot_exceed_the_limits_of_http2(self):
        table = struct.pack(">HI", 4, 1 << 20) * 100  # entries of SETTINGS
        many = headers(1, SERVICE + "ServerLive")[:4] + b"\0" + headers(1, SERVICE + "ServerLive")[5:]  # without END_HEADERS
        for data in (frame(4, 0, 0, table), many + frame(9, 0, 1, b"") * 50, frame(6, 0, 0, b"8" * 8) * 20000):
            with self.server.connect(PREFACE + frame(4, 0, 0), self.server.grpc_port) as client:
                with contextlib.suppress(ConnectionError):
                    client.sendall(data)
                self.assertTrue(is_closed(client), data[:40])
        with self.server.connect(grpc_begin(**{"x%d" % k: "y" * 100 for k in range(120)}), self.server.grpc_port) as client:
            reset = frame(3, 0, 1, struct.pack(">I", 2))  # INTERNAL_ERROR
            wait_until("the call with large headers is reset", lambda said=[]: said.append(client.recv(4096)) or reset in b"".join(said))


class Connections(unittest.TestCase):
    def test_the_server_answers_again_after_descriptors_ran_out(self):
        server = LimitedServer("--connections", "1000", "--connections-per-client", "1000", open_files=(400, 400))
        try:
            wait_until("the limit is logged", lambda: any(
                "--connections 1000, but this process may have 400 open files" in line for line in server.log))
            for _ in range(2):
                clients = [server.connect() for _ in range(600)]
                for connection in clients:
                    connection.close()
                wait_until("the server answers again", lambda: server.ask("/v2/models/fast/infer", BODY)[0] == 200)
        finally:
            server.stop()

    def take_descriptors(self, server):
        """Sets the server's limit of open files so that no further one can be opened. Returns the former limit."""
        used = {int(name) for name in os.listdir("/proc/%d/fd" % server.process.pid)}
        free = next(number for number in range(len(used) + 1) if number not in used)
        before = resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (free, before[1]))
        return before

    def test_a_loop_accepts_again_when_others_give_descriptors_back(self):
        """The loop's own connection stays, so nothing that the loop sees says that descriptors are free again."""
        live = b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"
        for stays in (1, 0):
            server = LimitedServer("--threads", "1", "--idle", "1h")
            try:
                stay = [server.connect(live) for _ in range(stays)]
                for client in stay:
                    self.assertIn(b" 200 ", client.recv(4096))
                before = self.take_descriptors(server)
                with server.connect(live) as client:
                    wait_until("the server runs out of descriptors", lambda: any("no open file" in line for line in server.log))
                    resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, before)
                    self.assertIn(b" 200 ", client.recv(4096))
                for client in stay:
                    client.close()
            finally:
                server.stop()

    def test_connections_of_grpc_count_toward_the_memory(self):
        server = LimitedServer("--memory", "64KiB", "--body", "64KiB", "--idle", "1h")
        try:
            clients = [server.connect(PREFACE + frame(4, 0, 0), server.grpc_port) for _ in range(60)]
            self.assertTrue(all(client.recv(4096) for client in clients))
            wait_until("connections hold memory", lambda: server.metric("hb_serve_connection_memory_bytes") > 60 * KIB)
            self.assertEqual((server.memory(), server.ask("/v2/models/fast/infer", BODY)[0]), (0, 503))
            for client in clients:
                client.close()
            wait_until("connections hold no memory", lambda: server.metric("hb_serve_connection_memory_bytes") == 0)
            self.assertEqual(server.ask("/v2/models/fast/infer", BODY)[0], 200)
        finally:
            server.stop()

    def test_a_client_cannot_take_all_connections(self):
        """Clients on this machine are users: the connection of another one is accepted."""
        ask = ("import socket, sys; s = socket.create_connection(('127.0.0.1', int(sys.argv[1])), timeout=60); "
               "s.sendall(bytes.fromhex(sys.argv[2])); sys.exit(not s.recv(100))")
        server = LimitedServer("--connections", "40", "--idle", "1h")
        try:
            for port, greeting in ((server.port, b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"),
                                   (server.grpc_port, PREFACE + frame(4, 0, 0))):
                clients = [server.connect(greeting, port) for _ in range(10)]
                self.assertTrue(all(client.recv(4096) for client in clients))
                for _ in range(40):
                    with server.connect(port=port) as client:
                        self.assertTrue(is_closed(client))
                if os.geteuid() == 0 and os.stat("/").st_mode & 1:  # others can use this machine
                    subprocess.run(["setpriv", "--reuid=1001", "--clear-groups", sys.executable, "-c", ask, str(port),
                                    greeting.hex()], check=True)
                for client in clients:
                    client.close()
                wait_until("the client is served again", lambda p=port, g=greeting: self.greets(server, p, g))
            wait_until("the refusals are logged", lambda: sum("--connections-per-client" in line for line in server.log) == 2)
        finally:
            server.stop()

    @staticmethod
    def greets(server, port, greeting):
        with contextlib.suppress(ConnectionError), server.connect(greeting, port) as client:
            return bool(client.recv(4096))
        return False

    def test_grpc_accepts_again_after_descriptors_ran_out(self):
        server = LimitedServer("--idle", "1h")
        try:
            before = self.take_descriptors(server)
            for _ in range(2):
                with server.connect(PREFACE + frame(4, 0, 0), server.grpc_port) as client:
                    self.assertTrue(is_closed(client))  # libuv keeps a descriptor to close connections with
            resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, before)
            # The first connection may still belong to those that are closed.
            wait_until("gRPC takes a new client", lambda: self.greets(server, server.grpc_port, PREFACE + frame(4, 0, 0)))
        finally:
            server.stop()

    def test_the_server_answers_after_the_connection_limit_was_reached_twice(self):
        live = b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"
        for threads in (1, 2):
            server = LimitedServer("--threads", str(threads), "--connections", "20", "--connections-per-client", "20",
                                   "--idle", "1h")
            try:
                for _ in range(2):
                    clients = [server.connect(live) for _ in range(30)]
                    served = set()
                    wait_until("the limit is reached", lambda c=clients, s=served: s.update(
                        select.select(c, [], [], 0)[0]) or len(s) == 20)
                    for client in clients:
                        client.close()
                    with server.connect(live) as client:
                        self.assertIn(b" 200 ", client.recv(4096))
                for _ in range(2):
                    clients = []
                    wait_until("the limit is reached", lambda c=clients, s=server: c.extend(self.grpc_clients(s)) or len(c) == 20)
                    self.assertEqual(self.grpc_clients(server), [])
                    for client in clients:
                        client.close()
                wait_until("gRPC takes a new client", lambda s=server: self.greets(s, s.grpc_port, PREFACE + frame(4, 0, 0)))
            finally:
                server.stop()

    @staticmethod
    def grpc_clients(server):
        """A list of one connection, or of none if the server closes it at once."""
        client = server.connect(PREFACE + frame(4, 0, 0), server.grpc_port)
        with contextlib.suppress(ConnectionError):
            if client.recv(4096):
                return [client]
        client.close()
        return []


if __name__ == "__main__":
    unittest.main()

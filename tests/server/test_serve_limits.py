#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Limits of `hb serve`: memory of all requests together, incomplete and slow requests, half-closed connections, more
connections than open files. The tests make the bytes of HTTP and gRPC themselves. --many: 1,000 connections and 50,000
requests in constant memory. The tests wait for conditions, never for a fixed time."""
import contextlib
import gzip
import http.client
import json
import os
import random
import select
import signal
import socket
import struct
import subprocess
import sys
import time
import unittest
import zlib

from grpc_frames import PREFACE, data_frames, field, frame, grpc_answer, grpc_begin, headers, infer_message
from limited_server import BODY, KIB, LARGE, LARGE_BYTES, SERVICE, LimitedServer, LimitedTest, half_close
from serve_process import BUILD, LIMIT, is_closed, wait_until

LEAK = 2 * 1024 * KIB  # less than REQUESTS lost allocations of 42 bytes; the sanitizer finds smaller ones
REQUESTS = 50000
AT_ONCE = 24  # corrupted requests, of which some end only with the idle limit


def gzip_that_grows(head, byte, size):
    """gzip of the head and `size` MiB of this byte. One MiB is compressed and repeated: to compress all would take seconds."""
    def deflate(data):
        packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
        return packer.compress(data) + packer.flush(zlib.Z_FULL_FLUSH)
    part, crc = byte * (1024 * KIB), zlib.crc32(head)
    for _ in range(size):
        crc = zlib.crc32(part, crc)
    return (b"\x1f\x8b\x08\0\0\0\0\0\x02\xff" + deflate(head) + deflate(part) * size + b"\x03\0"
            + struct.pack("<II", crc, len(head) + len(part) * size))


class Slow(LimitedTest):
    """With an idle limit of two seconds. No test depends on being faster than that, so a pause of the machine does no harm."""

    OPTIONS = ("--idle", "2s")

    def test_the_connection_of_an_incomplete_request_is_closed(self):
        opened = []
        for data, port in ((b"POST /v2/models/fast/infer HTTP/1.1\r\nHost:", self.server.port),
                           (b"POST /v2/models/fast/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{", self.server.port),
                           (b"", self.server.grpc_port), (PREFACE, self.server.grpc_port),
                           (grpc_begin() + data_frames(1, b"\x0a\x04fast", end=False), self.server.grpc_port)):
            for half_closed in (False, True):
                connection = self.server.connect(data, port)
                if half_closed:
                    half_close(connection)
                opened.append((connection, data, half_closed))
        for connection, data, half_closed in opened:  # all of them wait at the same time
            with connection:
                self.assertTrue(is_closed(connection), (data, half_closed))

    def drip(self, *clients):
        """Sends each connection its byte again and again until the server has closed all of them: (connection, byte)."""
        left = dict(clients)
        end = time.monotonic() + LIMIT
        while left:
            self.assertLess(time.monotonic(), end, "was not closed in %d s" % LIMIT)
            for connection, byte in list(left.items()):
                try:
                    connection.sendall(byte)
                    if select.select([connection], [], [], 0.1)[0] and not connection.recv(65536):
                        del left[connection]
                except ConnectionError:
                    del left[connection]

    def test_the_connection_of_a_request_byte_by_byte_is_closed(self):
        with self.server.connect(b"POST /v2/models/fast/infer HTTP/1.1\r\nX-Long: ") as head, \
                self.server.send_incomplete_request(100000, 0) as body, self.server.connect(grpc_begin(), self.server.grpc_port) as call:
            self.drip((head, b"x"), (body, b" "), (call, frame(0, 0, 1, b"\0")))

    def test_a_slow_call_is_reset_beside_calls_that_end(self):
        """Other calls of the connection must not extend its time."""
        with self.server.connect(grpc_begin() + frame(0, 0, 1, b"\0"), self.server.grpc_port) as client:
            client.settimeout(LIMIT)
            answered, reset, data = 0, False, b""
            end = time.monotonic() + LIMIT
            for stream in range(3, 4001, 2):
                client.sendall(headers(stream, "/inference.GRPCInferenceService/ServerLive") + data_frames(stream, b""))
                data += client.recv(65536)
                while len(data) >= 9 and len(data) >= 9 + int.from_bytes(data[:3], "big"):
                    kind, of = data[3], int.from_bytes(data[5:9], "big")
                    answered += kind == 1 and of > 1
                    reset |= kind == 3 and of == 1
                    data = data[9 + int.from_bytes(data[:3], "big"):]
                if reset or time.monotonic() > end:
                    break
                time.sleep(0.2)
            self.assertTrue(reset)
            self.assertGreater(answered, 0)

    def spoil(self, rng, data):
        """Returns the bytes with some of them changed, removed, doubled or cut off."""
        data = bytearray(data)
        for _ in range(rng.randint(1, 6)):
            at, length = rng.randrange(len(data)), rng.randint(1, 8)
            what = rng.randrange(4)
            if what == 0:
                data[at] = rng.randrange(256)
            elif what == 1 and len(data) > 2 * length:
                del data[at:at + length]
            elif what == 2:
                data[at:at] = data[at:at + length]
            elif what == 3 and rng.random() < 0.3:
                del data[max(at, 1):]
        return bytes(data)

    def test_corrupted_requests_never_end_the_server(self):
        rng = random.Random(1)
        head = b"POST /v2/models/fast/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(BODY)
        packed = gzip.compress(infer_message(b"fast"))
        whole = [(head + BODY, self.server.port), (grpc_begin() + data_frames(1, infer_message(b"fast")), self.server.grpc_port),
                 (grpc_begin(grpc_encoding="gzip") + data_frames(1, packed, compressed=1), self.server.grpc_port)]
        for first in range(0, 240, AT_ONCE):
            opened = []
            for k in range(first, first + AT_ONCE):
                data, port = whole[k % len(whole)]
                connection = self.server.connect(port=port)
                opened.append((k, connection))
                with contextlib.suppress(OSError):  # the server refused the request before its end
                    connection.sendall(self.spoil(rng, data))
                    connection.shutdown(socket.SHUT_WR)
            for k, connection in opened:
                with connection:
                    self.assertTrue(is_closed(connection), k)
        wait_until("the server still answers", lambda: self.is_answered("fast"))
        wait_until("all memory is free again", self.is_memory_back)

    def is_answered(self, model):
        """Whether the request is answered; False if a pause of the machine made this client too slow."""
        try:
            return self.server.ask("/v2/models/%s/infer" % model, BODY)[0] == 200
        except (ConnectionError, http.client.BadStatusLine):
            return False

    def is_memory_back(self):
        try:
            return self.server.memory() == 0
        except (ConnectionError, http.client.BadStatusLine):
            return False

    def test_the_connection_of_a_client_that_reads_no_answer_is_closed(self):
        with self.server.connect_without_window(2) as client, self.server.connect_without_window(1) as slow:
            wait_until("the answers are ready", lambda: self.server.memory() >= 2 * LARGE_BYTES)
            self.drip((slow, frame(8, 0, 1, struct.pack(">I", 1))))  # allows one more byte
            self.assertTrue(is_closed(client))
        wait_until("all memory is free again", self.is_memory_back)

    def test_a_client_that_waits_for_its_answer_is_not_slow(self):
        """The client waits for four seconds without sending anything."""
        with self.server.connect(grpc_begin() + data_frames(1, infer_message(b"slow")), self.server.grpc_port) as client:
            wait_until("the request is answered", lambda: self.is_answered("slow"))
            wait_until("the call is answered", lambda: b"\x010" in client.recv(65536))  # grpc-status OK



class Limits(LimitedTest):
    OPTIONS = ("--body", "1MiB", "--memory", "2MiB")

    def test_all_requests_together_have_a_memory_limit(self):
        server = LimitedServer("--body", "1MiB", "--memory", "2MiB")
        try:
            holding = [server.send_incomplete_request(900 * KIB, 800 * KIB) for _ in range(2)]
            wait_until("both requests hold their memory", lambda: server.memory() == 2048 * KIB)
            status, text, head = server.ask("/v2/models/fast/infer", BODY)
            self.assertEqual((status, head["Retry-After"]), (503, "1"))
            self.assertIn(b"memory", text)
            with server.connect(grpc_begin() + data_frames(1, b"\x0a\x04fast"), server.grpc_port) as client:
                # grpc-status 8, RESOURCE_EXHAUSTED: in the header block a string of one byte.
                wait_until("the call is refused", lambda: b"\x018" in client.recv(65536))
            for connection in holding:
                connection.close()
            wait_until("all memory is free again", lambda: server.memory() == 0)
            self.assertEqual(server.ask("/v2/models/fast/infer", BODY)[0], 200)
            wait_until("all memory is free again", lambda: server.memory() == 0)
        finally:
            server.stop()

    def test_arriving_low_priority_requests_leave_memory_to_high_priority(self):
        server = LimitedServer("--body", "1MiB", "--memory", "4200KiB")  # three quarters: 3150 KiB
        body = BODY + b" " * 500 * KIB
        try:
            for hold in (server.send_incomplete_request, server.send_incomplete_call):
                arguments = (900 * KIB, 800 * KIB) if hold == server.send_incomplete_request else (800 * KIB,)
                holding = [hold(*arguments, model=b"low") for _ in range(3)]
                wait_until("the requests hold their memory", lambda: server.memory() == 3 * 1024 * KIB)
                self.assertEqual(server.ask("/v2/models/low/infer", body)[0], 503)
                with server.connect(grpc_begin() + data_frames(1, field(1, b"low") + b" " * 800 * KIB), server.grpc_port) as client:
                    wait_until("the call is refused", lambda c=client: b"\x018" in c.recv(65536))
                self.assertEqual(server.ask("/v2/models/fast/infer", body)[0], 200)
                for connection in holding:
                    connection.close()
                wait_until("all memory is free again", lambda: server.memory() == 0)
        finally:
            server.stop()

    def test_a_single_low_priority_request_may_use_all_memory(self):
        server = LimitedServer("--body", "1MiB", "--memory", "1MiB")
        try:
            with server.send_incomplete_request(1024 * KIB, 900 * KIB, model=b"low"):
                wait_until("the request holds all memory", lambda: server.memory() == 1024 * KIB)
        finally:
            server.stop()

    def test_a_message_of_many_small_parts_stays_within_the_memory_limit(self):
        # Each input tensor takes two bytes in the message and a hundred in memory.
        message = b"\x0a\x04fast" + b"\x2a\x00" * 400000
        with self.server.connect(grpc_begin() + data_frames(1, message), self.server.grpc_port) as client:
            wait_until("the call is refused", lambda: b"\x018" in client.recv(65536))
        wait_until("all memory is free again", lambda: self.server.memory() == 0)

    def test_answers_that_wait_for_their_client_have_a_memory_limit(self):
        server = LimitedServer("--memory", "64MiB", "--body", "1MiB", "--idle", "1h")
        body = json.dumps({**json.loads(BODY), "parameters": {"binary_data_output": True}}).encode()
        path, head = "/v2/models/large/infer", b"POST /v2/models/large/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
        try:
            for hold in (lambda: [server.connect(head % len(body) + body) for _ in range(2)],
                         lambda: [server.connect_without_window(2)]):
                clients = hold()
                wait_until("both answers are ready", lambda: server.memory() >= 2 * LARGE_BYTES)
                status, text, _ = server.ask(path, body)
                self.assertEqual(status, 503)
                self.assertIn(b"memory", text)
                with server.connect(grpc_begin() + data_frames(1, infer_message(b"large")), server.grpc_port) as client:
                    wait_until("the call is refused", lambda c=client: b"\x018" in c.recv(65536))
                for client in clients:
                    client.close()
                wait_until("all memory is free again", lambda: server.memory() == 0)
                self.assertEqual(server.ask(path, body)[0], 200)
                wait_until("all memory is free again", lambda: server.memory() == 0)
        finally:
            server.stop()

    def test_a_request_that_runs_has_memory_for_its_answer(self):
        server = LimitedServer("--memory", "40MiB", "--body", "1MiB", "--idle", "1h")
        path = "/v2/models/later/infer"
        server.write("later/model.yaml", LARGE[1] + "delay: 1h\nrun: 1h\n")
        try:
            self.assertEqual(server.call("POST", "/v2/repository/models/later/load")[0], 200)
            for data, port in ((b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s" % (path.encode(), len(BODY), BODY),
                                server.port), (grpc_begin() + data_frames(1, infer_message(b"later")), server.grpc_port)):
                with server.connect(data, port):
                    wait_until("the request holds memory for its answer", lambda: server.memory() >= LARGE_BYTES)
                    status, text, _ = server.ask(path, BODY)
                    self.assertEqual((status, b"memory" in text), (503, True))
                    with server.connect(grpc_begin() + data_frames(1, infer_message(b"later")), server.grpc_port) as other:
                        self.assertEqual(grpc_answer(other)[0], 8)  # RESOURCE_EXHAUSTED
                    self.assertEqual(server.ask("/v2/models/fast/infer", BODY)[0], 200)
                wait_until("all memory is free again", lambda: server.memory() == 0)
        finally:
            server.stop()

    def test_an_answer_that_its_client_takes_slowly_is_given_up(self):
        """The client takes at most 40 KiB in every second: less than the minimum rate, but the connection is never idle."""
        server = LimitedServer("--idle", "4s")
        body = json.dumps({**json.loads(BODY), "parameters": {"binary_data_output": True}}).encode()
        try:
            with socket.socket() as client:
                # The system's buffers are small, so that the server sees progress often.
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * KIB)
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 536)
                client.connect(("127.0.0.1", server.port))
                client.sendall(b"POST /v2/models/large/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
                wait_until("the answer is ready", lambda: server.memory() >= LARGE_BYTES)

                def is_given_up():
                    time.sleep(0.1)
                    return not client.recv(4 * KIB) or server.memory() == 0
                wait_until("the answer is given up", is_given_up)
        finally:
            server.stop()

    def test_documents_that_wait_for_their_client_have_a_memory_limit(self):
        server = LimitedServer("--memory", "64KiB", "--body", "64KiB", "--idle", "1h", models=40)
        try:
            with server.connect_without_window(100, "ModelStatistics", b"") as client:
                # Each document is larger than 1 KiB, so some of a hundred do not fit.
                said = b""
                while b"\x018" not in said:  # one of them is refused
                    said += client.recv(65536)
                self.assertLessEqual(server.memory(), 64 * KIB)
                with server.connect(grpc_begin(path=SERVICE + "ServerLive") + data_frames(1, b""), server.grpc_port) as other:
                    wait_until("ServerLive is answered", lambda: b"\x08\x01" in other.recv(65536))
            wait_until("all memory is free again", lambda: server.memory() == 0)
        finally:
            server.stop()

    def test_a_request_other_than_inference_has_at_most_1_mib(self):
        large = b'{"a":[' + b"0," * (1 << 19) + b"0]}"
        server = LimitedServer("--shared-memory", "loopback", "--shared-memory-prefix", "x")
        try:
            for method, path in (("POST", "/v2/repository/index"), ("POST", "/v2/repository/models/fast/load"),
                                 ("POST", "/v2/systemsharedmemory/region/x/register")):
                self.assertEqual(server.exchange(method, path, large)[0], 413)
                self.assertNotEqual(server.exchange(method, path, large[:1000])[0], 413)
            for method in ("RepositoryIndex", "RepositoryModelLoad", "ModelStatistics", "SystemSharedMemoryRegister"):
                message = field(1, b"x") + b"\x7a\0" * (1 << 19)  # unknown fields
                with server.connect(grpc_begin(path=SERVICE + method) + data_frames(1, message), server.grpc_port) as client:
                    wait_until("the call is refused", lambda c=client: b"\x018" in c.recv(65536))
        finally:
            server.stop()

    def test_a_request_for_the_health_of_the_server_has_at_most_256_bytes(self):
        # Every client may send it, also one without a token.
        for path in ("/v2/health/live", "/v2/health/ready"):
            self.assertEqual(self.server.exchange("GET", path, b" " * 257)[0], 413)
            self.assertEqual(self.server.exchange("GET", path, gzip.compress(b" " * 257), {"Content-Encoding": "gzip"})[0], 413)
            self.assertEqual(self.server.exchange("GET", path, b" " * 256)[0], 200)
        for method in ("ServerLive", "ServerReady"):
            for message, status in ((b"\x7a\0" * 129, 8), (b"\x7a\0" * 128, 0)):  # unknown fields; RESOURCE_EXHAUSTED, OK
                with self.server.connect(grpc_begin(path=SERVICE + method) + data_frames(1, message), self.server.grpc_port) as client:
                    self.assertEqual(grpc_answer(client)[0], status)
        wait_until("all memory is free again", lambda: self.server.memory() == 0)

    def test_compressed_requests_are_accepted_within_the_limits(self):
        for name, compress in (("gzip", gzip.compress), ("deflate", zlib.compress)):
            def call(body, coding=name):
                return self.server.ask("/v2/models/fast/infer", body, {"Content-Encoding": coding})[0]
            self.assertEqual(call(compress(BODY)), 200)
            self.assertEqual(call(compress(BODY)[:-1]), 400)
            self.assertEqual(call(BODY), 400)
            self.assertEqual(call(b""), 400)
            self.assertEqual(call(compress(BODY), "br"), 415)
            self.assertEqual(call(compress(b" " * (1 << 20) + BODY)), 413)  # 1 KiB that expands to more than --body
            status, data, head = self.server.ask("/metrics", headers={"Accept-Encoding": name})
            self.assertEqual((status, head["Content-Encoding"]), (200, name))
            self.assertIn(b"nv_inference_count", zlib.decompress(data, 47))
        wait_until("all memory is free again", lambda: self.server.memory() == 0)

    def test_a_body_that_grows_a_thousandfold_delays_no_other_client(self):
        """One thread serves all connections. The other client asks while the body is decompressed."""
        bomb = gzip_that_grows(b'{"inputs":[', b" ", 192)
        head = b"POST /v2/models/%s/infer HTTP/1.1\r\nHost: localhost\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n"
        server = LimitedServer("--threads", "1")
        try:
            with server.connect(head % (b"nothing", len(bomb)) + bomb) as client:
                self.assertIn(b" 404 ", client.recv(4096))  # without decompressing it
            self.assertLess(server.resident(), 100 << 20)
            # In a pause of the machine this client can be too slow to see it.
            self.assertTrue(any(self.is_answered_meanwhile(server, head % (b"fast", len(bomb)) + bomb) for _ in range(20)))
            wait_until("all memory is free again", lambda: server.memory() == 0)
        finally:
            server.stop()

    def is_answered_meanwhile(self, server, large):
        """Whether the server answers another request while it decompresses this large one."""
        meanwhile = False
        with server.connect(large) as client:
            while not meanwhile and not select.select([client], [], [], 0)[0]:
                meanwhile = server.memory() > 2 * len(large) and not select.select([client], [], [], 0)[0]
            self.assertIn(b" 400 ", client.recv(4096))
        return meanwhile

    def grpc_answer(self, message, coding):
        with self.server.connect(grpc_begin(grpc_encoding=coding) + data_frames(1, message, compressed=1), self.server.grpc_port) as client:
            said = b""
            while b"\x010" not in said and b"\x018" not in said and b"\x013" not in said and b"\x0212" not in said:
                said += client.recv(65536) or b"\x01closed"
            return next(status for status in (0, 3, 8, 12) if b"%c%d" % (len(str(status)), status) in said)

    def test_compressed_messages_are_accepted_within_the_limits(self):
        message = infer_message(b"fast")
        self.assertEqual(self.grpc_answer(gzip.compress(message), "gzip"), 0)
        self.assertEqual(self.grpc_answer(zlib.compress(message), "deflate"), 0)
        self.assertEqual(self.grpc_answer(message, "gzip"), 3)
        self.assertEqual(self.grpc_answer(message, "identity"), 3)
        self.assertEqual(self.grpc_answer(message, "br"), 12)
        self.assertEqual(self.grpc_answer(gzip.compress(message + b" " * (1 << 20)), "gzip"), 8)
        wait_until("all memory is free again", lambda: self.server.memory() == 0)

    @staticmethod
    def message_that_grows(model):
        """A call whose message of 190 KiB grows to 192 MiB, and is then no ModelInferRequest."""
        message = gzip_that_grows(field(1, model), b"\0", 192)
        return grpc_begin(grpc_encoding="gzip") + data_frames(1, message, compressed=1)

    def test_a_message_for_an_unknown_model_is_not_decompressed(self):
        server = LimitedServer()
        try:
            with server.connect(self.message_that_grows(b"nothing"), server.grpc_port) as client:
                self.assertEqual(grpc_answer(client)[0], 5)  # NOT_FOUND
            self.assertLess(server.resident(), 100 << 20)
        finally:
            server.stop()

    def test_a_message_that_grows_a_thousandfold_delays_no_other_client(self):
        """One thread serves all connections of gRPC. The other client calls while the message is decompressed."""
        large = self.message_that_grows(b"fast")
        server = LimitedServer()
        try:
            # In a pause of the machine this client can be too slow to see it.
            self.assertTrue(any(self.is_called_meanwhile(server, large) for _ in range(20)))
            with server.connect(large, server.grpc_port):
                pass  # the client leaves
            wait_until("all memory is free again", lambda: server.memory() == 0)
        finally:
            server.stop()

    def is_called_meanwhile(self, server, large):
        """Whether the server answers another call while it decompresses this large message."""
        meanwhile = False
        with server.connect(large, server.grpc_port) as client:
            while server.memory() < 4 * len(large) and not self.has_answer(client):
                pass
            while not meanwhile and not self.has_answer(client):
                with server.connect(grpc_begin(path=SERVICE + "ServerLive") + data_frames(1, b""), server.grpc_port) as other:
                    self.assertEqual(grpc_answer(other)[0], 0)
                meanwhile = not self.has_answer(client)
            self.assertEqual(grpc_answer(client)[0], 3)
        return meanwhile

    @staticmethod
    def has_answer(client):
        """Whether HEADERS have arrived, without taking them."""
        received = client.recv(65536, socket.MSG_PEEK) if select.select([client], [], [], 0)[0] else b""
        while len(received) >= 9 and received[3] != 1:
            received = received[9 + int.from_bytes(received[:3], "big"):]
        return len(received) >= 9

    def test_a_tensor_without_a_shape_is_refused(self):
        message = field(1, b"fast") + field(5, field(1, b"x") + field(2, b"FP32")) + field(7, b"\0" * 16)
        with self.server.connect(grpc_begin() + data_frames(1, message), self.server.grpc_port) as client:
            wait_until("the call is refused", lambda: b"\x013" in client.recv(65536))  # grpc-status INVALID_ARGUMENT

    def test_a_streaming_call_is_refused_at_once(self):
        path = "/inference.GRPCInferenceService/ModelStreamInfer"
        for more in (b"", data_frames(1, infer_message(b"fast"), end=False), data_frames(1, infer_message(b"fast"))):
            with self.server.connect(grpc_begin(path=path) + more, self.server.grpc_port) as client:
                said = b""
                while b"\x0212" not in said:  # grpc-status UNIMPLEMENTED; the client never ends the call, or ended it with its headers
                    data = client.recv(65536)
                    self.assertTrue(data, said)
                    said += data
                # The connection can still be used: another call is answered.
                client.sendall(headers(3, "/inference.GRPCInferenceService/ServerLive") + data_frames(3, b""))
                wait_until("the next call is answered", lambda c=client: b"\x08\x01" in c.recv(65536))
        wait_until("all memory is free again", lambda: self.server.memory() == 0)

    def test_a_call_without_a_message_is_answered(self):
        service = "/inference.GRPCInferenceService/"
        for method, status in (("ServerLive", b"\x013"), ("NoSuchMethod", b"\x0212")):  # INVALID_ARGUMENT, UNIMPLEMENTED
            with self.server.connect(PREFACE + frame(4, 0, 0) + headers(1, service + method, end=True),
                                     self.server.grpc_port) as client:
                wait_until("the call is refused", lambda c=client, s=status: s in c.recv(65536))

    def cancelled(self):
        return sum(self.server.metric('hb_serve_requests_total{model="slow",version="1",priority="%s",outcome="CANCELLED"}'
                                      % priority) for priority in ("high", "low"))

    def test_the_call_of_a_grpc_client_that_disconnects_is_cancelled(self):
        before = self.cancelled()
        pending = 'nv_inference_pending_request_count{model="slow",version="1"}'
        with self.server.connect(grpc_begin() + data_frames(1, infer_message(b"slow")), self.server.grpc_port):
            wait_until("the call waits", lambda: self.server.metric(pending) == 1)
        wait_until("the call was cancelled", lambda: self.cancelled() == before + 1)

    def test_128_requests_at_once_are_answered(self):
        # libmicrohttpd reads 128 events at a time; threads of the library would stall here (http_loops.h).
        server = LimitedServer("--threads", "1", "--idle", "1h")
        request = b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"
        try:
            clients = [server.connect(request) for _ in range(128)]
            for connection in clients:
                self.assertIn(b"200", connection.recv(4096))
            for _ in range(8):
                server.process.send_signal(signal.SIGSTOP)
                for connection in clients:
                    connection.sendall(request)
                server.process.send_signal(signal.SIGCONT)
                for connection in clients:
                    self.assertIn(b"200", connection.recv(4096))
            for connection in clients:
                connection.close()
        finally:
            server.stop()

    def test_the_connection_of_a_client_that_closes_with_its_request_is_closed(self):
        server = LimitedServer("--idle", "1h")
        try:
            request = b"POST /v2/models/fast/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s" % (len(BODY), BODY)
            clients = [server.connect(request) for _ in range(8)]
            for connection in clients:
                self.assertIn(b"200", connection.recv(4096))
            server.process.send_signal(signal.SIGSTOP)  # so that the requests and the end of the connection arrive together
            for n, connection in enumerate(clients):
                connection.sendall(request * (n + 1))
                half_close(connection)
            server.process.send_signal(signal.SIGCONT)
            for connection in clients:
                self.assertTrue(is_closed(connection))
                connection.close()
        finally:
            server.stop()


class Many(unittest.TestCase):
    """bench/front.py does the same with 10,000 connections and 1,000,000 requests."""

    def test_many_connections_and_requests_take_constant_memory(self):
        server = LimitedServer()
        body = os.path.join(server.folder, "body")
        with open(body, "wb") as file:
            file.write(BODY)

        def load(requests):
            done = subprocess.run([os.path.join(BUILD, "tests/server/front-load"), "--port", str(server.port), "--connections",
                                   "1000", "--requests", str(requests), "--seconds", "300", "--path", "/v2/models/fast/infer",
                                   "--body", body], stdout=subprocess.PIPE, check=True)
            return json.loads(done.stdout)

        try:
            # The number of requests that wait at once varies, so memory may grow a little. With a leak it would grow each time.
            load(REQUESTS)
            grown = []
            while not grown or (grown[-1] > LEAK and len(grown) < 8):
                before = server.resident()
                done = load(REQUESTS)
                self.assertEqual((done["answered"], done["not_200"]), (REQUESTS, 0))
                grown.append(server.resident() - before)
            self.assertLessEqual(grown[-1], LEAK, grown)
            wait_until("no request holds memory", lambda: server.memory() == 0)
        finally:
            server.stop()


if __name__ == "__main__":
    many = "--many" in sys.argv
    if many:
        sys.argv.remove("--many")
    unittest.main(defaultTest=["Many"] if many else ["Limits", "Slow"])

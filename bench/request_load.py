#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The clients of a service that `hb bench` measures: sends requests to its socket at given times, and reads the answers.

  request_load.py PORT CONNECTIONS FORMAT COUNT

The service starts this program, which is a process of its own and runs outside of Hummingbird. A request is its length in
bytes (8 bytes, little-endian) and COUNT numbers: FORMAT e, random halves (an image); q, random token numbers of 8 bytes. Each
line on standard input is one window: the times at which its requests are due, CLOCK_MONOTONIC in ns. Request i of a window
goes out on connection i modulo CONNECTIONS. Answers are read and thrown away. The end of input ends the program.
"""
import random
import select
import socket
import struct
import sys
import time

HEADER = struct.Struct("<Q")
SPIN_NS = 500000      # a sleeping thread needs some 100 us to wake, so the last part of a wait is spent spinning
BUFFER_BYTES = 1 << 22
TOKENS = 30000
KINDS = {"e": lambda draw: draw.gauss(0, 1), "q": lambda draw: draw.randrange(TOKENS)}


def make_request(kind, count):
    """The bytes of one request, the same every time."""
    if kind not in KINDS:
        sys.exit(f"request_load.py: the format '{kind}' is none of {', '.join(KINDS)}")
    draw = random.Random(1)
    body = struct.pack(f"<{count}{kind}", *(KINDS[kind](draw) for _ in range(count)))
    return HEADER.pack(len(body)) + body


def drop_answers(connections, wait_s):
    """Waits for answers for at most that long, and reads what is there. An answer that is never read would stop the service."""
    for connection in select.select(connections, [], [], max(0.0, wait_s))[0]:
        if not connection.recv(1 << 16):
            raise ConnectionError("request_load.py: the service has closed a connection")


def send_window(connections, request, due_ns):
    for i, due in enumerate(due_ns):
        while (left := due - SPIN_NS - time.monotonic_ns()) > 0:
            drop_answers(connections, left / 1e9)
        drop_answers(connections, 0)
        while time.monotonic_ns() < due:
            pass
        connections[i % len(connections)].sendall(request)


def main():
    port, count, kind, numbers = sys.argv[1:]
    request = make_request(kind, int(numbers))  # takes a while, so the service waits for it
    connections = [socket.create_connection(("127.0.0.1", int(port))) for _ in range(int(count))]
    for connection in connections:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
    for line in sys.stdin:
        send_window(connections, request, list(map(int, line.split())))


if __name__ == "__main__":
    main()

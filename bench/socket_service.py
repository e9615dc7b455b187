# SPDX-License-Identifier: Apache-2.0
"""Requests of a PyTorch service that come over sockets, as a real server gets them; torch_program.py uses it.

A request's bytes are received into page-locked memory, prepared on the CPU for 200 us, and copied to the GPU. Then the model
runs, its output is copied back, and the client gets it. This code does not know of Hummingbird.
"""
import os
import select
import socket
import subprocess
import sys
import time

PREPARE_NS = 200000   # decoding of a request: a parser and a tokenizer take a few hundred us
CONNECTIONS = 8
HEADER_BYTES = 8
LOAD = os.path.join(os.path.dirname(os.path.abspath(__file__)), "request_load.py")
FORMATS = {"torch.float16": "e", "torch.int64": "q"}


def receive(connection, room):
    """Fills `room` from the connection."""
    done = 0
    while done < len(room):
        got = connection.recv_into(room[done:])
        if not got:
            sys.exit("socket_service.py: the clients have closed a connection")
        done += got


class Sockets:
    """The service's end of all connections, and the clients, which are a process of their own. Each request has `count`
    numbers of a kind that request_load.py knows."""

    def __init__(self, kind, count):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            # The clients are no part of what is measured: no library may be put in front of theirs.
            environment = {key: value for key, value in os.environ.items() if key not in ("LD_LIBRARY_PATH", "LD_PRELOAD")}
            self.clients = subprocess.Popen([sys.executable, LOAD, str(listener.getsockname()[1]), str(CONNECTIONS), kind, str(count)],
                                            env=environment, stdin=subprocess.PIPE, text=True)
            self.connections = [listener.accept()[0] for _ in range(CONNECTIONS)]
        self.poll = select.poll()
        for connection in self.connections:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.poll.register(connection, select.POLLIN)
        self.header = memoryview(bytearray(HEADER_BYTES))

    def order(self, due_ns):
        """Tells the clients when to send the requests of a window."""
        self.clients.stdin.write(" ".join(map(str, due_ns)) + "\n")
        self.clients.stdin.flush()

    def next_request(self, number, room):
        """Waits for the request of this number and receives it; requests are served in their order. Returns its connection."""
        connection = self.connections[number % CONNECTIONS]
        while connection.fileno() not in (fd for fd, _ in self.poll.poll()):
            pass
        receive(connection, self.header)
        length = int.from_bytes(self.header, "little")
        if length != len(room):
            sys.exit(f"socket_service.py: a request has {length} bytes instead of {len(room)}")
        receive(connection, room)
        return connection


class Stages:
    """Page-locked memory for the input and the output of a model, and the way of a request through it."""

    def __init__(self, torch, step, stream):
        self.step, self.stream = step, stream
        flat = torch.empty(step.input.numel(), dtype=step.input.dtype, pin_memory=True)
        self.room = memoryview(flat.view(torch.uint8).numpy())
        self.input = flat.as_strided(step.input.size(), step.input.stride())
        self.kind, self.count = FORMATS[str(flat.dtype)], flat.numel()
        output = step()
        stream.synchronize()
        self.output = torch.empty(output.size(), dtype=output.dtype, pin_memory=True)
        self.answer = memoryview(self.output.flatten().view(torch.uint8).numpy())

    def run(self):
        """Returns when the first call of the driver began, and when the last one that queues work had returned."""
        begun = time.monotonic_ns()
        self.step.input.copy_(self.input, non_blocking=True)
        self.output.copy_(self.step(), non_blocking=True)
        launched = time.monotonic_ns()
        self.stream.synchronize()
        return begun, launched


class SocketService:
    """Serves windows of requests."""

    def __init__(self, torch, step, stream):
        self.stages = Stages(torch, step, stream)
        self.sockets = Sockets(self.stages.kind, self.stages.count)

    def serve(self, due_ns):
        """Yields for each request when it was done (its answer had been sent), how long its work took from the first call of
        the driver on, and from the last one on; ns."""
        self.sockets.order(due_ns)
        for number in range(len(due_ns)):
            connection = self.sockets.next_request(number, self.stages.room)
            ready = time.monotonic_ns() + PREPARE_NS
            while time.monotonic_ns() < ready:
                pass
            begun, launched = self.stages.run()
            ended = time.monotonic_ns()
            connection.sendall(self.stages.answer)
            yield time.monotonic_ns(), ended - begun, ended - launched

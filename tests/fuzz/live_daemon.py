#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Attacks a living hbd: clients register, join, leave, hand pages over, send random messages, change settings and write
random values to every page they can map; meanwhile there are HTTP requests, recordings and reloads.

Afterwards hbd is alive without a report of a sanitizer, a bystander's heartbeat was never older than a tenant accepts, a
fresh client is served, no descriptor is left open, memory is bounded, and hbd ends with 0. The build folder is in HB_BUILD.

usage: live_daemon.py [--seconds N] [--seed N]
"""
import array
import json
import mmap
import os
import random
import signal
import socket
import struct
import subprocess
import threading
import time

import live_target
from live_target import BUILD, LIMIT, Target, wait_until

ATTACKERS = 3
ENGINES = ("temporal", "spatial", "turns")
TENANTS = 40  # tokens that the attackers share
MAPS_MAX = 60
UUIDS = [bytes([i]) * 16 for i in range(1, 20)]
# What may remain once all attackers have gone. Each GPU listens to the tenants of make_gpus_known() from when it first takes
# turns, and few other threads begin when they are first needed.
THREADS_MORE = len(UUIDS) + 3
# These threads have 4 KiB of thread-local memory each, and libuv has a table of descriptors: 0.2 MiB in all. Measured after
# 4 to 60 s: 0.1 to 0.2 MiB.
GROWTH_MAX = 1 << 20
GPU_BYTES_MAX = 20 << 20  # what the daemon allocates for a GPU, which it keeps; measured: 17 MiB


def read_layout():
    messages, fields, values = {}, {}, {}
    program = os.path.join(BUILD, "tests/fuzz/protocol-layout")
    for line in subprocess.run([program], check=True, capture_output=True, text=True).stdout.splitlines():
        kind, *words = line.split()
        if kind == "message":
            messages[words[0]] = (int(words[1]), int(words[2]))
        elif kind == "field":
            fields[words[0], words[1]] = (int(words[2]), int(words[3]))
        else:
            values[words[0]] = int(words[1])
    return messages, fields, values


MESSAGES, FIELDS, VALUES = read_layout()
PAGE_BYTES, PROCESS_BYTES = VALUES["PAGE_BYTES"], VALUES["PROCESS_BYTES"]
GPUS, PROCESSES = VALUES["HB_PAGE_GPUS"], VALUES["HB_PAGE_PROCESSES"]
NAMES = {number: name for name, (number, _) in MESSAGES.items()}


def pack(name, text=b"", **fields):
    """A message; a field is an integer or bytes."""
    number, size = MESSAGES[name]
    data = bytearray(size) + text
    struct.pack_into("<IHH", data, 0, len(data), number, 0)
    for field, value in fields.items():
        offset, length = FIELDS["hb_msg_" + name.lower(), field]
        if isinstance(value, int):
            value = (value & (1 << 8 * length) - 1).to_bytes(length, "little")
        data[offset:offset + min(length, len(value))] = value[:length]
    return bytes(data)


def unpack(name, field, data):
    offset, length = FIELDS["hb_msg_" + name.lower(), field]
    return int.from_bytes(data[offset:offset + length], "little")


class Client:
    """A connection; `maps` are the pages that the daemon sent (descriptor, memory)."""

    def __init__(self, path, timeout=5, features=VALUES["HB_PROTOCOL_ALL_FEATURES"]):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(timeout)
        try:
            self.socket.connect(path)
            self.send(pack("HELLO", version_min=VALUES["HB_PROTOCOL_VERSION"], version_max=VALUES["HB_PROTOCOL_VERSION"],
                           page_version=VALUES["HB_PAGE_VERSION"], features=features))
            kind, _, _ = self.receive()
            if kind != "WELCOME":
                raise OSError(f"no welcome: {kind}")
        except OSError:
            self.close()
            raise

    def close(self):
        self.socket.close()

    def send(self, data, fds=()):
        more = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        self.socket.sendmsg([data], more)

    def receive(self):
        """Returns the kind of the next message, the message, and its descriptors."""
        data, ancillary, _, _ = self.socket.recvmsg(1 << 17, socket.CMSG_SPACE(4 * (GPUS + 1)))
        fds = array.array("i")
        for _, _, part in ancillary:
            fds.frombytes(part[:len(part) // 4 * 4])
        if len(data) < 8:
            raise OSError("the daemon has closed the connection")
        return NAMES.get(struct.unpack_from("<IHH", data)[1]), data, list(fds)

    def register(self, token, page_fd=None, **fields):
        fields = {"slot": PROCESSES, "flags": VALUES["HB_REGISTER_SIMULATED"], "token": token, **fields}
        if page_fd is not None:
            fields["flags"] |= VALUES["HB_REGISTER_PAGE"]
        self.send(pack("REGISTER", b"attack", **fields), [] if page_fd is None else [page_fd])
        return self.receive()

    def ask_status(self):
        self.send(pack("STATUS"))
        text = b""
        while True:
            kind, data, _ = self.receive()
            if kind != "TEXT":
                raise OSError(f"no status: {kind}")
            text += data[MESSAGES["TEXT"][1]:]
            if not unpack("TEXT", "more", data):
                return json.loads(text)


def token_of(number):
    return struct.pack("<QQ", 0x1122334455667788, number + 1)


class Attacker:
    """A process full of random requests. Counts of accepted ones go to a pipe, so that an attack that has become
    harmless, because the protocol has changed, fails the test."""

    def __init__(self, path, seed):
        self.path, self.random = path, random.Random(seed)
        self.maps = []
        self.counts = {"requests": 0, "registered": 0, "scribbles": 0, "adopted": 0}

    def register_random(self, client):
        choose, n = self.random, self.random.randrange(5)
        create = choose.random() < .5
        flags = VALUES["HB_REGISTER_SIMULATED"] | (VALUES["HB_REGISTER_CREATE"] if create else choose.choice((0, 0, VALUES["HB_REGISTER_MPS"])))
        totals = [choose.choice((0, 1, 1 << 37, (1 << 64) - 1)) for _ in range(n)]
        kind, _, fds = client.register(
            token_of(choose.randrange(TENANTS)), flags=flags, priority=choose.randrange(2), engine=choose.randrange(4),
            n_gpus=n, uuids=b"".join(choose.sample(UUIDS, n)), totals=struct.pack(f"<{n}Q", *totals),
            slo_ns=choose.choice((0, -1, 5, 10**6, 10**12, 1 << 62)), memory_bytes=choose.choice((0, 1, 1 << 63)),
            slot=PROCESSES if create else choose.choice((0, 1, 5, PROCESSES - 1, PROCESSES)))
        self.counts["registered"] += kind == "REGISTERED"
        self.keep_pages(fds)

    def keep_pages(self, fds):
        for i, fd in enumerate(fds):
            try:
                self.maps.append((fd, mmap.mmap(fd, PAGE_BYTES if i == 0 else VALUES["GPU_PAGE_BYTES"]), i == 0))
            except (OSError, ValueError):  # a page that this process may only read
                os.close(fd)
        while len(self.maps) > MAPS_MAX:
            self.drop_page(self.random.randrange(len(self.maps)))

    def drop_page(self, index):
        fd, memory, _ = self.maps.pop(index)
        memory.close()
        os.close(fd)

    def adopt_random(self, client):
        pages = [fd for fd, _, is_tenant_page in self.maps if is_tenant_page]
        if pages:
            kind, _, fds = client.register(token_of(self.random.randrange(100, 140)), self.random.choice(pages),
                                           engine=self.random.randrange(4))
            self.counts["adopted"] += kind == "REGISTERED"
            self.keep_pages(fds)

    def set_random(self, client):
        choose = self.random
        client.send(pack("SET", tenant=choose.randrange(1, 300), fields=choose.randrange(1, 32), priority=choose.randrange(2),
                         slo_ns=choose.choice((0, -1, 1, 1 << 60)), memory_bytes=choose.choice((0, 1 << 40)),
                         pcie_weight=choose.randrange(1, 1001), weight=choose.randrange(1, 1001)))
        client.receive()

    def send_random(self, client):
        choose = self.random
        data = bytearray(choose.randbytes(choose.choice((8, 16, 24, 64, 500, 600, 2000))))
        length = len(data) if choose.random() < .8 else choose.randrange(5000)
        struct.pack_into("<IHH", data, 0, length, choose.choice((*NAMES, 77)), 0 if choose.random() < .9 else 1)
        client.send(bytes(data))
        client.receive()

    def send_mutated(self, client):
        name = self.random.choice(("HELLO", "REGISTER", "BYE", "SET", "STATUS", "RECORD", "PLACE"))
        client.send(live_target.mutate(self.random, pack(name)) or b"x")
        client.receive()

    def scribble(self):
        choose = self.random
        for _ in range(20 if self.maps else 0):
            _, memory, is_tenant_page = choose.choice(self.maps)
            size, at = len(memory), 0
            if is_tenant_page and choose.random() < .7:  # where processes write
                at = FIELDS["hb_page", "processes"][0] + PROCESS_BYTES * choose.randrange(3)
                size = PROCESS_BYTES
            value = choose.choice((0, 1, (1 << 64) - 1, 1 << 63, choose.getrandbits(64),
                                   time.clock_gettime_ns(time.CLOCK_MONOTONIC) + choose.randrange(-10**9, 10**9)))
            struct.pack_into("<Q", memory, at + choose.randrange(size - 7), value & (1 << 64) - 1)
            self.counts["scribbles"] += 1

    def do_one(self, client):
        kind = self.random.random()
        self.counts["requests"] += 1
        if kind < .55:
            self.register_random(client)
        elif kind < .65:
            self.adopt_random(client)
        elif kind < .73:
            client.send(pack("BYE", token=token_of(self.random.randrange(TENANTS))))
            client.receive()
        elif kind < .8:
            self.set_random(client)
        elif kind < .84:
            client.ask_status()
        elif kind < .88:
            self.send_random(client)
        elif kind < .92:
            self.send_mutated(client)
        else:
            self.scribble()

    def attack_once(self):
        client = None
        try:
            # Without features it counts as a program of the previous release.
            client = Client(self.path, features=self.random.choice((0, VALUES["HB_PROTOCOL_ALL_FEATURES"])))
            for _ in range(self.random.randrange(1, 30)):
                self.do_one(client)
        except (OSError, ValueError):  # the daemon refuses, or closes the connection
            pass
        finally:
            if client:
                client.close()

    def run(self, seconds, report_fd):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.attack_once()
        os.write(report_fd, json.dumps(self.counts).encode() + b"\n")


def start_attackers(path, seed, seconds):
    """Returns the processes, and the pipe with a line of counts from each."""
    reports, write_end = os.pipe()
    pids = []
    for i in range(ATTACKERS):
        pid = os.fork()
        if pid == 0:
            try:
                Attacker(path, seed + i).run(seconds, write_end)
            finally:
                os._exit(0)
        pids.append(pid)
    os.close(write_end)
    return pids, reports


class Bystander:
    """A tenant with one process. A thread looks at its heartbeat as a gate would."""

    def __init__(self, path):
        self.client = Client(path, LIMIT)
        token = token_of(999)
        kind, data, fds = self.client.register(token, flags=VALUES["HB_REGISTER_SIMULATED"] | VALUES["HB_REGISTER_CREATE"])
        assert kind == "REGISTERED", (kind, data)
        self.memory = mmap.mmap(fds[0], PAGE_BYTES, prot=mmap.PROT_READ)
        for fd in fds:
            os.close(fd)
        self.oldest_ns = self.beats = 0
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.watch, daemon=True)
        self.thread.start()

    def word(self, field):
        offset, length = FIELDS["hb_page", field]
        return int.from_bytes(self.memory[offset:offset + length], "little")

    def watch(self):
        """The clock is read before the page. A thread that was itself stopped meanwhile has seen nothing."""
        last, before = 0, time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        while not self.over.wait(0.01):
            now = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
            beat = self.word("heartbeat_ns")
            self.beats += beat != last
            if now - before < 100_000_000:
                self.oldest_ns = max(self.oldest_ns, now - beat)
            last, before = beat, now

    def end(self):
        self.over.set()
        self.thread.join()
        self.client.close()


def probe_http(address, generator):
    host, port = address.rsplit(":", 1)
    path = generator.choice(("/metrics", "/status.json", "/", "/nothing"))
    data = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()
    if generator.random() < .7:
        data = live_target.mutate(generator, data)
    try:
        with socket.create_connection((host, int(port)), timeout=0.2) as connection:
            connection.sendall(data)
            connection.recv(65536)
    except OSError:  # refused, or no complete request
        pass


def disturb(target, path, address, seed, end):
    """Sends HTTP requests, recordings and reloads until the end."""
    generator = random.Random(seed)
    while time.monotonic() < end:
        target.check_alive()
        for _ in range(10):
            probe_http(address, generator)
        try:
            client = Client(path)
            client.send(pack("RECORD", action=generator.choice((1, 2)), seconds=3))
            client.receive()
            client.close()
        except OSError:
            pass
        if generator.random() < .3:
            target.process.send_signal(signal.SIGHUP)


def collect(pids, reports):
    for pid in pids:
        os.waitpid(pid, 0)
    with os.fdopen(reports) as lines:
        counts = [json.loads(line) for line in lines]
    assert len(counts) == ATTACKERS, f"only {len(counts)} of {ATTACKERS} attackers have reported"
    return {name: sum(count[name] for count in counts) for name in counts[0]}


def make_gpus_known(path):
    """The daemon keeps a page for each GPU that a tenant has reported. The tenants made here stay until this program ends."""
    for i in range(0, len(UUIDS), GPUS):
        client, part, token = Client(path, LIMIT), UUIDS[i:i + GPUS], token_of(900 + i)
        client.register(token, flags=VALUES["HB_REGISTER_SIMULATED"] | VALUES["HB_REGISTER_CREATE"])
        kind, data, fds = client.register(token, n_gpus=len(part), uuids=b"".join(part))
        assert kind == "REGISTERED", data
        client.close()
        for fd in fds:
            os.close(fd)


def ask_status(path):
    """Asks through a new connection, because the daemon closes connections that were idle for long."""
    client = Client(path, LIMIT)
    try:
        return client.ask_status()
    finally:
        client.close()


def end_recording(path):
    """Fetches the recording, which the daemon keeps for a while, if there is one."""
    client = Client(path, LIMIT)
    client.send(pack("RECORD", action=2))
    kind, data, _ = client.receive()
    while kind == "TEXT" and unpack("TEXT", "more", data):
        kind, data, _ = client.receive()
    client.close()


def attack(target, path, chosen):
    wait_until("hbd has a socket", lambda: target.process.poll() is not None or os.path.exists(path))
    wait_until("hbd accepts", lambda: target.process.poll() is not None or can_connect(path))
    bystander = Bystander(path)
    status = ask_status(path)
    make_gpus_known(path)
    before, size = target.held(), target.meter.allocated_bytes()
    pids, reports = start_attackers(path, chosen.seed, chosen.seconds)
    disturb(target, path, status["daemon"]["metrics"]["address"], chosen.seed, time.monotonic() + chosen.seconds)
    counts = collect(pids, reports)
    print(", ".join(f"{count} {name}" for name, count in counts.items()), flush=True)
    assert counts["registered"] and counts["adopted"] and counts["scribbles"], f"the attack does nothing: {counts}"
    target.check_alive()
    wait_until("the attackers' tenants are gone", lambda: all(
        tenant["pid"] == os.getpid() for tenant in ask_status(path)["tenants"]))
    # An attacker that writes a UUID to a page and hands the page over makes another GPU known.
    more_gpus = len(ask_status(path)["gpus"]) - len(UUIDS)
    target.await_release(before, THREADS_MORE, more_gpus)
    end_recording(path)
    grown = target.meter.allocated_bytes() - size
    assert grown < GROWTH_MAX + more_gpus * GPU_BYTES_MAX, f"hbd has grown by {grown >> 10} KiB"
    assert bystander.word("state") == 1 and bystander.beats > 1
    age_ms = bystander.oldest_ns // 10**6
    assert bystander.oldest_ns < VALUES["HB_PAGE_SILENT_NS"], f"the bystander's heartbeat was {age_ms} ms old"
    print(f"oldest heartbeat {age_ms} ms, grown by {grown >> 10} KiB, {more_gpus} more GPUs", flush=True)
    bystander.end()
    Bystander(path).end()  # a fresh client is served


def start_daemon(folder, chosen):
    path, config = os.path.join(folder, "s.sock"), os.path.join(folder, "c.yaml")
    with open(config, "w", encoding="utf-8") as out:
        print(f"mps: false\nengine: {ENGINES[chosen.seed % len(ENGINES)]}\nmetrics: 127.0.0.1:0", file=out)
    os.environ["HB_SIM_UNLISTED"] = "1"  # the simulated driver lists no GPUs, so made-up ones are accepted
    return Target([os.path.join(BUILD, "src/daemon/hbd"), "--foreground", "--gpu", "sim", "--socket", path, "--config", config]), path


def can_connect(path):
    try:
        Client(path).close()
    except OSError:
        return False
    return True


if __name__ == "__main__":
    live_target.run(__doc__, start_daemon, attack)

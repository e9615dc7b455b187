# SPDX-License-Identifier: Apache-2.0
"""Speaks the daemon's protocol byte by byte (src/protocol/protocol.h), for tests in which a client misbehaves, and for
stack.py, which reads the status often.

Imported by the tests of this folder."""
import array
import json
import mmap
import socket
import struct
import time

GPUS, SLOTS = 16, 128
PAGE_BYTES = 4096 + GPUS * 256 + SLOTS * 4096
HEARTBEAT_OFFSET = 32
UUID = bytes(range(1, 17))
HELLO, ERROR, REGISTER, REGISTERED, STATUS, TEXT = 1, 3, 4, 5, 8, 9
CREATE, WITH_PAGE = 1, 8
STATUS_REQUEST = struct.pack("<IHHII", 16, STATUS, 0, 0, 0)


def token(number):
    return struct.pack("<QQ", 0x1122334455667788, number)


def connect(path, timeout=30):
    """Connects and greets."""
    client = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        client.settimeout(timeout)
        client.connect(path)
        client.send(struct.pack("<IHHIIII", 24, HELLO, 0, 1, 1, 0, 0))
        if not client.recv(4096):
            raise ConnectionResetError("the daemon refused the connection")
    except OSError:
        client.close()
        raise
    return client


def register_message(number, flags, uuids=(), command=b"test"):
    body = struct.pack("<IIqIIQ16sIIII", flags, 0, 0, 0, 0, 0, token(number), SLOTS, 0, 2, len(uuids))
    body += b"".join(uuids) + bytes(16 * (GPUS - len(uuids))) + struct.pack("<16Q", *[1 << 37] * len(uuids),
                                                                           *[0] * (GPUS - len(uuids)))
    return struct.pack("<IHH", 8 + len(body) + len(command), REGISTER, 0) + body + command


def send_with(client, message, fds):
    client.sendmsg([message], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))])


def register(client, number, flags, uuids=(), fds=()):
    """Returns the descriptors of the pages."""
    send_with(client, register_message(number, flags, uuids), fds) if fds else client.send(
        register_message(number, flags, uuids))
    data, ancillary, _, _ = client.recvmsg(70000, socket.CMSG_SPACE(17 * 4))
    if struct.unpack_from("<IH", data)[1] != REGISTERED:
        raise RuntimeError(data[16:].decode())
    received = array.array("i")
    for _, _, part in ancillary:
        received.frombytes(part)
    return list(received)


def join_new_tenant(client, number):
    """Makes a tenant, joins it with one GPU and returns the mapped tenant page."""
    register(client, number, CREATE)
    return mmap.mmap(register(client, number, 0, [UUID])[0], PAGE_BYTES)


def heartbeat_age_s(page):
    return (time.clock_gettime_ns(time.CLOCK_MONOTONIC) - struct.unpack_from("<q", page, HEARTBEAT_OFFSET)[0]) / 1e9


def has_more(text_message):
    return struct.unpack_from("<I", text_message, 8)[0] != 0


def read_text(client):
    text = b""
    while True:
        data = client.recv(70000)
        if not data:
            raise ConnectionResetError("the daemon closed the connection")
        if struct.unpack_from("<IH", data)[1] != TEXT:
            raise RuntimeError(data[16:].decode())
        text += data[16:]
        if not has_more(data):
            return text


def status(client):
    client.send(STATUS_REQUEST)
    return json.loads(read_text(client))

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes small inputs for the fuzz targets into tests/fuzz/corpus: formats that are not text, and texts of many lines.

usage: seeds.py [FOLDER]     (default: the folder corpus beside this file)

The inputs are committed. Run this after a format has changed.
"""
import gzip
import json
import os
import struct
import sys
import zlib

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, os.pardir, "server"))
import grpc_frames as frames  # noqa: E402


def step(kind, where=0, value=0):
    """One step of the targets `pages` and `worker_ring`."""
    return struct.pack("<BHQ", kind, where, value & (1 << 64) - 1)


def pages():
    request, read, launch, claim, read_launches = 6, 8, 4, 5, 10
    yield "requests", b"".join(step(request, i) for i in range(30)) + step(read)
    yield "many-requests", step(request) + step(2, 0, 1 << 40) + step(read) + step(2, 0, 3) + step(read)
    yield "running", step(2, 16, 1) + step(9, 0, 5) + step(2, 24, 1 << 62) + step(9, 0, 1 << 50)
    yield "launches", (step(read_launches) + b"".join(step(launch, i, i + 1 | i % 5 << 32) for i in range(40))
                       + step(claim, 40) + step(read_launches) + step(claim, 65535) + step(read_launches))
    yield "names", (step(read_launches) + step(3, 128, 0x20ff0a41) + step(launch, 0, 1 | 2 << 32) + step(claim, 1)
                    + step(read_launches))
    yield "wrong-gpu", step(read_launches) + step(launch, 0, 1 | 9 << 48) + step(claim, 1) + step(read_launches)
    yield "adopt", step(7) + step(0, 20, 16) + step(7) + step(0, 20, 17) + step(7) + step(0, 0, 5) + step(7)
    yield "memory", step(1, 24, 1) + step(11, 0, 0) + step(11, 0, 1) + step(0, 4096 + 48, 1 << 62) + step(11, 0, 1)


def rpc():
    path = "/fuzz.Service/"
    message = frames.field(1, frames.field(1, b"GPU-0")) * 2
    for name in ("Now", "Watch", "Later", "Nothing"):
        yield name, b"\1" + frames.headers(1, path + name) + frames.data_frames(1, message)
    yield "with-preface", b"\0" + frames.PREFACE + frames.frame(4, 0, 0) + frames.headers(1, path + "Now") + frames.data_frames(1, b"")
    yield "later-is-reset", b"\1" + frames.headers(1, path + "Later") + frames.data_frames(1, b"") + frames.frame(3, 0, 1, b"\0\0\0\x08")
    yield "watch-is-reset", b"\1" + frames.headers(1, path + "Watch") + frames.data_frames(1, b"") + frames.frame(3, 0, 1, b"\0\0\0\x08")
    yield "two-later", b"\1" + b"".join(frames.headers(n, path + "Later") + frames.data_frames(n, message) for n in (1, 3))
    yield "trailers", b"\1" + frames.headers(1, path + "Later") + frames.data_frames(1, b"", end=False) + frames.headers(1, path, end=True)
    yield "no-message", b"\1" + frames.headers(1, path + "Now", end=True)
    yield "not-a-message", b"\1" + frames.headers(1, path + "Now") + frames.data_frames(1, b"\x0a\xff")
    yield "compressed", b"\1" + frames.headers(1, path + "Now") + frames.data_frames(1, message, compressed=1)
    yield "length-lies", b"\1" + frames.headers(1, path + "Now") + frames.frame(0, 1, 1, b"\0\xff\xff\xff\xff1234")
    yield "no-window", b"\1" + frames.frame(4, 0, 0, b"\0\4\0\0\0\0") + frames.headers(1, path + "Watch") + frames.data_frames(1, message)
    yield "ping-goaway", b"\1" + frames.frame(6, 0, 0, bytes(8)) + frames.frame(7, 0, 0, bytes(8))
    yield "http1", b"\0GET / HTTP/1.1\r\nHost: x\r\n\r\n"


def worker_ring():
    start, outputs, complete, poll = 4, 5, 6, 10
    yield "one-batch", step(poll) + step(start, 0, 0) + step(outputs, 0, 4) + step(complete, 0, 0) + step(poll)
    yield "four-batches", (step(poll) + b"".join(step(start, i, i) for i in range(5))
                           + b"".join(step(outputs, i << 8, i) + step(complete, 0, i) for i in range(4)) + step(poll))
    yield "wrong-lane", step(poll) + step(start) + step(complete, 0, 99) + step(poll) + step(complete, 0, 0) + step(poll)
    yield "error", step(poll) + step(start) + step(1, 12, 1) + step(1, 20, 0xffc3414141) + step(complete) + step(poll)
    yield "huge-output", (step(poll) + step(start) + step(outputs) + step(2, 8, 1 << 60) + step(complete) + step(poll))
    yield "long-string", step(poll) + step(start) + step(outputs, 0, 0xffffffff) + step(complete) + step(poll)
    yield "head", step(poll) + step(start) + step(0, 104, 1 << 31) + step(poll) + step(0, 104, 3) + step(poll)
    yield "unable", step(1, 20, 0x41) + step(0, 48, 2) + step(poll) + step(start) + step(poll)
    yield "stages", step(poll) + step(start, 0, 1) + step(1, 8, 2) + step(poll) + step(1, 8, 1 << 31) + step(8, 0, 1)
    yield "cancel", step(poll) + step(start) + step(7) + step(poll) + step(outputs) + step(complete) + step(poll)


def loader_cache():
    def cache(entries, strings, flags=0x0303, n=None):
        head = b"glibc-ld.so.cache1.1" + struct.pack("<II", len(entries) if n is None else n, len(strings)) + bytes(20)
        base = len(head) + 24 * len(entries)
        rows = b"".join(struct.pack("<iIIIQ", flags, base + name, base + path, 0, 0) for name, path in entries)
        return head + rows + strings
    strings = b"libcuda.so.1\0/usr/lib/libcuda.so.1\0libm.so.6\0/lib/libm.so.6\0"
    good = [(0, 13), (35, 45), (0, 45)]
    yield "good", cache(good, strings)
    yield "other-machine", cache(good, strings, flags=0x0a03)
    yield "no-end", cache(good, strings[:-1])
    yield "too-many", cache(good, strings, n=1 << 31)
    yield "far", cache([(0, 1 << 31)], strings)
    yield "short", cache(good, strings)[:40]


def image_size():
    header = struct.pack("<IHHQ", 0xba55ed50, 1, 16, 64)
    yield "fatbin", b"p" + header + bytes(64)
    yield "wrapped", b"w" + header + bytes(64)
    yield "fatbin-endless", b"p" + struct.pack("<IHHQ", 0xba55ed50, 1, 16, 1 << 63) + bytes(64)
    ident = b"\x7fELF\x02\x01\x01\x41\x08" + bytes(7)
    elf = ident + struct.pack("<HHIQQQIHHHHHH", 2, 190, 1, 0, 64, 128, 0x5a00, 64, 56, 1, 64, 3, 1)
    yield "cubin", b"p" + elf + bytes(256)
    yield "cubin-far-sections", b"p" + elf[:40] + struct.pack("<Q", (1 << 64) - 64) + elf[48:] + bytes(64)
    yield "other-elf", b"p" + elf[:18] + struct.pack("<H", 62) + elf[20:] + bytes(64)
    yield "text", b"p.version 7.0"
    yield "one-byte", b"p\0"
    yield "almost-magic", b"p\x50\xed\x55"[:3]


def access():
    token = "0123456789abcdef"
    yield "no-token", b"localhost:8000\n\n\n"
    yield "token", ("127.0.0.1\n\nBearer %s\n%s high control shared-memory\n# more\n%s low\n" % (token, token, token * 2)).encode()
    yield "rebinding", ("evil.example:8000\nhttp://evil.example:8000\nBearer %s\n" % token).encode()
    yield "other-page", ("localhost\nhttp://evil.example\nbearer  %s\n%s\n%s" % (token, token, token)).encode()
    yield "own-page", ("gpu.example\nhttps://GPU.example\nBearer %s\n" % token).encode()
    yield "address", b"[::1]:80\nnull\nBasic x\nshort\n"


def content_coding():
    text = b"".join(b"line %d of a text\n" % i for i in range(40))
    yield "gzip", b"g" + gzip.compress(text, mtime=0)
    yield "deflate", b"d" + zlib.compress(text)
    yield "too-large", b"g" + gzip.compress(bytes(1 << 20), mtime=0)
    yield "cut", b"g" + gzip.compress(text, mtime=0)[:30]
    yield "two-members", b"g" + gzip.compress(b"a", mtime=0) * 2
    yield "wrong-checksum", b"d" + zlib.compress(text)[:-1] + b"x"
    yield "accept", b"ngzip;q=0.5, deflate"
    yield "accept-none", b"ngzip;q=0, deflate;q=0.0, br"
    yield "name", b"nGZip"


def grpc():
    path = "/inference.GRPCInferenceService/"
    call = frames.headers(1, path + "ModelInfer") + frames.data_frames(1, frames.infer_message(b"echo"))
    yield "infer", b"\1" + call
    yield "with-preface", b"\0" + frames.PREFACE + frames.frame(4, 0, 0) + call
    for name in ("ServerLive", "ServerReady", "ModelReady", "ModelMetadata", "ModelConfig", "ModelStatistics", "RepositoryIndex"):
        yield name, b"\1" + frames.headers(1, path + name) + frames.data_frames(1, frames.field(1, b"echo"))
    yield "no-method", b"\1" + frames.headers(1, path + "Nothing") + frames.data_frames(1, b"")
    yield "compressed", b"\1" + frames.headers(1, path + "ModelInfer", grpc_encoding="gzip") + frames.data_frames(
        1, gzip.compress(frames.infer_message(b"echo"), mtime=0), compressed=1)
    yield "timeout", b"\1" + frames.headers(1, path + "ModelInfer", grpc_timeout="1m") + frames.data_frames(
        1, frames.infer_message(b"echo"))
    yield "two-calls", b"\1" + frames.headers(1, path + "ModelInfer") + frames.headers(3, path + "ServerLive") + (
        frames.data_frames(3, b"") + frames.data_frames(1, frames.infer_message(b"echo")))
    yield "reset", b"\1" + frames.headers(1, path + "ModelInfer") + frames.frame(3, 0, 1, b"\0\0\0\x08")
    yield "length-lies", b"\1" + frames.headers(1, path + "ModelInfer") + frames.frame(0, 1, 1, b"\0\xff\xff\xff\xff1234")
    yield "ping-window-goaway", b"\1" + frames.frame(6, 0, 0, bytes(8)) + frames.frame(8, 0, 0, b"\x7f\xff\xff\xff") + (
        frames.frame(7, 0, 0, bytes(8)))
    yield "http1", b"\0GET / HTTP/1.1\r\nHost: x\r\n\r\n"


def dra():
    def claim(device="gpu-00112233-4455-6677-8899-aabbccddeeff-high", memory="20Gi", request="gpu", **values):
        config = {"source": "FromClass", "requests": ["gpu"], "opaque": {"driver": "hummingbird.dev", "parameters": {
            "apiVersion": "hummingbird.dev/v1", "kind": "TenantParameters", **values}}}
        result = {"driver": "hummingbird.dev", "pool": "node-1", "request": request, "device": device, "shareID": "s",
                  "consumedCapacity": {"memory": memory}}
        return b"c" + json.dumps({"metadata": {"namespace": "a", "name": "b", "uid": "c"}, "status": {"allocation": {"devices": {
            "results": [result], "config": [config, config | {"source": "FromClaim"}]}}}}).encode()
    yield "claim", claim(slo="p99<50ms", memory="1500M")
    yield "claim-low", claim(priority="low")
    yield "claim-not-granted", claim(device="gpu-00112233-4455-6677-8899-aabbccddeeff-low", priority="high")
    yield "claim-of-a-subrequest", claim(request="gpu/big", slo="none")
    yield "claim-wrong-device", claim(device="gpu-0")
    yield "claim-wrong-parameter", claim(size="1")
    yield "claim-not-an-object", b"c[1]"
    yield "answer", b"hHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
    yield "answer-in-chunks", b"hHTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n3;a=b\r\n{\"a\r\n3\r\n\":1\r\n1\r\n}\r\n0\r\n\r\n"
    yield "answer-to-the-end", b"hHTTP/1.0 404 Not Found\n\n{}"
    yield "answer-cut", b"hHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\n{"


def gpc_layout():
    def answer(state="KNOWN", gpu="GPU-01020304-0506-0708-090a-0b0c0d0e0f10", bits=("f" * 8 + "0" * 24, "0" * 24 + "f" * 8)):
        return json.dumps({"gpu": gpu, "state": state, "groups": [{"bits": text} for text in bits]}).encode()
    yield "known", b"a line before\n" + answer()
    yield "overlap", answer(bits=("0" * 31 + "3", "0" * 31 + "1"))
    yield "short", answer(bits=("ff", "00"))
    yield "sign", answer(bits=("-" + "0" * 31, "+" + "1" * 31))
    yield "one-group", answer(bits=("f" * 32,))
    yield "many-groups", answer(bits=["0" * 32] * 40)
    yield "other-gpu", answer(gpu="GPU-0")
    yield "unclear", answer(state="UNCLEAR")
    yield "state", answer(state="NOTHING")
    yield "types", b'{"gpu": 5, "state": [], "groups": {"bits": null}}'
    yield "no-json", b"no result"


def http_request():
    yield "scrape", b"GET /metrics?x=1 HTTP/1.1\r\nHost: localhost:9464\r\nUser-Agent: x\r\n\r\n"
    yield "head", b"HEAD / HTTP/1.0\nHost: [::1]:9464\n\n"
    yield "address", b"GET /status.json HTTP/1.1\r\nhOST:\t127.0.0.1 \r\n\r\nbody"
    yield "other-host", b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n"
    yield "two-hosts", b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"
    yield "post", b"POST / HTTP/1.1\r\n\r\n"
    yield "version", b"GET / HTTP/2.0\r\n\r\n"
    yield "no-target", b"GET  HTTP/1.1\r\n\r\n"
    yield "long-path", b"GET /" + b"a" * 200 + b" HTTP/1.1\r\n\r\n"
    yield "no-colon", b"GET / HTTP/1.1\r\nHost\r\n\r\n"
    yield "long-head", b"GET / HTTP/1.1\r\n" + b"X: yyyyyyyyyyyy\r\n" * 520
    yield "controls", b"GET /\0\x7f HTTP/1.1\r\n\r\n"


def privileged():
    def record(kind, pid=0, client=0, signal=0, uid=0, page=0, start=0, token=bytes(16), magic=0x52504248):
        return struct.pack("=IIQiiIIQQ16s", magic, kind, 1, pid, client, signal, uid, page, start, token)
    fact, program, token = b"\0", b"\1", bytes(range(1, 17))
    yield "image", fact + record(1, pid=4711)
    yield "began-with", fact + record(2, pid=4711, token=token)
    yield "signal-kills", fact + record(3, pid=4711, signal=15)
    yield "is-server", fact + record(4, pid=4711)
    yield "server-page", fact + record(5, pid=4711, start=99)
    yield "remove-socket", fact + record(6)
    yield "start-control", program + record(7, uid=1000)
    yield "list-servers", program + record(8)
    yield "start-server", program + record(9, uid=1000)
    yield "terminate", program + record(10, pid=4711, client=4712)
    yield "quit", program + record(11)
    yield "end-processes", program + record(12, uid=1000, page=3, token=token)
    yield "wrong-channel", fact + record(12, uid=1000, page=3, token=token)
    yield "no-token", program + record(12, uid=1000, page=3)
    yield "negative-pid", program + record(10, pid=-1, client=4712)
    yield "unused-field", program + record(11, pid=4711)
    yield "magic", program + record(11, magic=0)
    yield "short", program + record(11)[:-1]
    yield "long", program + record(11) + b"\0"


TARGETS = [access, content_coding, dra, gpc_layout, grpc, http_request, image_size, loader_cache, pages, privileged, rpc, worker_ring]


def main():
    top = sys.argv[1] if len(sys.argv) > 1 else os.path.join(HERE, "corpus")
    for target in TARGETS:
        folder = os.path.join(top, target.__name__)
        os.makedirs(folder, exist_ok=True)
        for name, data in target():
            with open(os.path.join(folder, name), "wb") as out:
                out.write(data)


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""Makes the bytes of gRPC calls, for tests that send less, more or slower than a client library does."""
import struct

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def headers(stream, path, end=False, **more):
    fields = {":method": "POST", ":scheme": "http", ":path": path, ":authority": "localhost", "content-type": "application/grpc",
              "te": "trailers", **{name.replace("_", "-"): value for name, value in more.items()}}
    block = b"".join(b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()
                     for name, value in fields.items())
    return frame(1, 5 if end else 4, stream, block)


def grpc_begin(stream=1, path="/inference.GRPCInferenceService/ModelInfer", **more):
    return PREFACE + frame(4, 0, 0) + headers(stream, path, **more)


def data_frames(stream, message, end=True, compressed=0):
    """The DATA frames of a gRPC message."""
    data = struct.pack(">BI", compressed, len(message)) + message
    pieces = [data[i:i + 16000] for i in range(0, len(data), 16000)]
    return b"".join(frame(0, 1 if end and i + 1 == len(pieces) else 0, stream, piece) for i, piece in enumerate(pieces))


def field(number, payload):
    return bytes([number << 3 | 2, len(payload)]) + payload


def infer_message(model):
    tensor = field(1, b"x") + field(2, b"FP32") + field(3, b"\x04")
    return field(1, model) + field(5, tensor) + field(7, struct.pack("<4f", 1, 2, 3, 4))


# The characters of HPACK's Huffman code (RFC 7541, appendix B) by the length of their codes; within a length and from one length to
# the next the codes are consecutive.
HUFFMAN = {5: "012aceiost", 6: " %-./3456789=A_bdfghlmnpru", 7: ":BCDEFGHIJKLMNOPQRSTUVWYjkqvwxyz", 8: "&*,;XZ", 10: "!\"()?",
           11: "'+|", 12: "#>", 13: "\0$@[]~", 14: "^}", 15: "<`{"}


def huffman_codes():
    codes, code, last = {}, 0, 5
    for length, characters in HUFFMAN.items():
        code <<= length - last
        last = length
        for character in characters:
            codes[format(code, "0%db" % length)] = character
            code += 1
    return codes


def huffman_text(data):
    codes, text, bits = huffman_codes(), "", ""
    for bit in "".join(format(byte, "08b") for byte in data):
        bits += bit
        if bits in codes:
            text, bits = text + codes[bits], ""
    return text


def hpack_fields(block, table):
    """The header fields of a block, as a dictionary. `table` is the dynamic table of the connection, [] at first. Names of the
    static table are not known here."""
    at, fields = 0, {}

    def number(bits):
        nonlocal at
        value, shift = block[at] & (1 << bits) - 1, 0
        at += 1
        while value >= (1 << bits) - 1 or shift:
            value, shift = value + ((block[at] & 127) << shift), shift + 7
            at += 1
            if not block[at - 1] & 128:
                break
        return value

    def text():
        nonlocal at
        packed = block[at] & 128
        length = number(7)
        at += length
        data = block[at - length:at]
        return huffman_text(data) if packed else data.decode()

    while at < len(block):
        first = block[at]
        if first & 128:
            index = number(7)
            name, value = table[index - 62] if index > 61 else ("static %d" % index, "")
        elif first & 224 == 32:
            number(5)
            continue
        else:
            index = number(6 if first & 64 else 4)
            name = (table[index - 62][0] if index > 61 else "static %d" % index) if index else text()
            value = text()
            if first & 64:
                table.insert(0, (name, value))
        fields[name] = value
    return fields


def grpc_answer(connection):
    """Reads the answer of the only call of a connection. Returns its status and message."""
    received, table = b"", []
    while True:
        while len(received) >= 9 and len(received) >= 9 + int.from_bytes(received[:3], "big"):
            end = 9 + int.from_bytes(received[:3], "big")
            if received[3] == 1:
                fields = hpack_fields(received[9:end], table)
                if "grpc-status" in fields:
                    return int(fields["grpc-status"]), fields.get("grpc-message", "")
            received = received[end:]
        more = connection.recv(65536)
        if not more:
            raise ConnectionError("the server closed the connection without an answer")
        received += more

# SPDX-License-Identifier: Apache-2.0
"""Makes the bytes of gRPC calls, for tests that send less, more or slower than a client library does."""
import struct

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def headers(stream, path, end=False, **more):
    fields = {":method": "POST", ":scheme": "http", ":path": path, ":authority": "x", "content-type": "application/grpc",
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

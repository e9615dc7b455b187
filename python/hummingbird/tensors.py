# SPDX-License-Identifier: Apache-2.0
"""Tensors of `hb serve` as Python values: NumPy arrays (class Arrays) or nested lists (class Lists).

Used by hummingbird.worker. Both classes have two methods. read(data, dtype, shape) makes a value of an input's bytes.
write(value, dtype) returns the shape of an output and its content: the bytes of its numbers, or for BYTES a flat list of
`bytes`. In the server's memory each BYTES element has its length in front, 4 bytes, little-endian. NumPy is imported only
where Arrays is used.
"""
import importlib
import struct

ARRAY_TYPES = {"BOOL": "?", "UINT8": "u1", "UINT16": "<u2", "UINT32": "<u4", "UINT64": "<u8", "INT8": "i1",
               "INT16": "<i2", "INT32": "<i4", "INT64": "<i8", "FP16": "<f2", "BF16": "<u2", "FP32": "<f4", "FP64": "<f8"}
STRUCT_TYPES = {"BOOL": "?", "UINT8": "B", "UINT16": "H", "UINT32": "I", "UINT64": "Q", "INT8": "b", "INT16": "h",
                "INT32": "i", "INT64": "q", "FP16": "e", "FP32": "f", "FP64": "d"}


def split_strings(data):
    """The elements of a BYTES tensor, as a list of `bytes`."""
    values, at = [], 0
    while at < len(data):
        (length,) = struct.unpack_from("<I", data, at)
        values.append(bytes(data[at + 4:at + 4 + length]))
        at += 4 + length
    return values


def join_strings(values):
    return b"".join(struct.pack("<I", len(value)) + value for value in values)


def _string_bytes(value):
    if not isinstance(value, (str, bytes, bytearray)):
        raise TypeError("a BYTES tensor has str or bytes, not %s" % type(value).__name__)
    return value.encode() if isinstance(value, str) else bytes(value)


class Arrays:
    """NumPy arrays. Outputs may also be tensors of PyTorch, CuPy or JAX. BF16, which NumPy lacks, is uint16: the bits."""

    def __init__(self):
        self.numpy = importlib.import_module("numpy")

    def read(self, data, dtype, shape):
        if dtype == "BYTES":
            return self.numpy.array(split_strings(data), dtype=object).reshape(shape)
        return self.numpy.frombuffer(data, dtype=ARRAY_TYPES[dtype]).reshape(shape)

    def write(self, value, dtype):
        array = self.array_of(value)
        if dtype == "BYTES":
            return array.shape, [_string_bytes(one) for one in array.reshape(-1)]
        numbers = self.bfloat16_bits(array) if dtype == "BF16" and array.dtype != self.numpy.uint16 else \
            self.numpy.ascontiguousarray(array, dtype=ARRAY_TYPES[dtype])
        return array.shape, memoryview(numbers.reshape(-1).view(self.numpy.uint8))

    def array_of(self, value):
        if hasattr(value, "detach"):  # PyTorch
            value = value.detach()
            value = (value.float() if str(value.dtype) == "torch.bfloat16" else value).cpu().numpy()
        elif hasattr(value, "get") and not isinstance(value, (dict, self.numpy.ndarray)):  # CuPy
            value = value.get()
        array = self.numpy.asarray(value)
        return array.astype(self.numpy.float32) if array.dtype.name == "bfloat16" else array  # JAX has this type

    def bfloat16_bits(self, array):
        """Rounds to nearest, ties to even; keeps NaN."""
        bits = array.astype("<f4").reshape(-1).view("<u4")
        rounded = (bits + (0x7FFF + (bits >> 16 & 1))) >> 16
        return self.numpy.where(bits & 0x7FFFFFFF > 0x7F800000, bits >> 16 | 0x40, rounded).astype("<u2")


class Lists:
    """Nested lists of numbers or `bytes`: needs no package. BF16 is not supported."""

    def read(self, data, dtype, shape):
        values = split_strings(data) if dtype == "BYTES" else [one for one, in struct.iter_unpack("<" + _letter(dtype), data)]
        return _nest(iter(values), shape)

    def write(self, value, dtype):
        shape, innermost = [], value
        while isinstance(innermost, (list, tuple)):
            shape.append(len(innermost))
            innermost = innermost[0] if innermost else None
        values = list(_flatten(value, shape))
        if dtype == "BYTES":
            return tuple(shape), [_string_bytes(one) for one in values]
        return tuple(shape), memoryview(struct.pack("<%d%s" % (len(values), _letter(dtype)), *values))


def _letter(dtype):
    if dtype not in STRUCT_TYPES:
        raise TypeError("lists cannot have the type %s: use arrays" % dtype)
    return STRUCT_TYPES[dtype]


def _nest(values, shape):
    return [_nest(values, shape[1:]) for _ in range(shape[0])] if shape else next(values)


def _flatten(value, shape):
    if not shape and not isinstance(value, (list, tuple)):
        yield value
    elif not shape or not isinstance(value, (list, tuple)) or len(value) != shape[0]:
        raise ValueError("the lists of an output must have the same length")
    else:
        for one in value:
            yield from _flatten(one, shape[1:])

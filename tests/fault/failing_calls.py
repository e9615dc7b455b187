# SPDX-License-Identifier: Apache-2.0
"""Lets calls to the C library fail in one program, through the preloaded library failing_calls.c.

    calls = FailingCalls("hbd")
    program = stack.spawn(command, **calls.variables)
    calls.arm("mmap", 3)            # the third mmap() from now on fails
    ...
    calls.disarm()
"""
import mmap
import os
import re
import struct
import tempfile

LIBRARY = os.path.join(os.environ["HB_BUILD"], "tests/fault/libhb-failing-calls.so")
SOURCE = os.path.join(os.path.dirname(__file__), "failing_calls.c")
# The layout of struct control.
ARMED, FROM_THEN, COUNTDOWN, FAILED, COUNTED = 0, 4, 8, 16, 24


def read_kinds():
    with open(SOURCE, encoding="utf-8") as file:
        return re.findall(r"^\tX\((\w+), E\w+\)", file.read(), re.MULTILINE)


class FailingCalls:
    kinds = read_kinds()

    def __init__(self, program, from_object=None):
        self.file = tempfile.NamedTemporaryFile(prefix="hb-failing-")  # pylint: disable=consider-using-with
        self.file.truncate(4096)
        self.map = mmap.mmap(self.file.fileno(), 4096)
        self.variables = {"LD_PRELOAD": LIBRARY, "HB_FAIL_PROGRAM": program, "HB_FAIL_CONTROL": self.file.name}
        if from_object:
            self.variables["HB_FAIL_OBJECT"] = from_object

    def arm(self, kind, n, from_then=False):
        """Lets the n-th call of the kind from now on fail, and with from_then all later ones, too."""
        self.disarm()
        struct.pack_into("<Q", self.map, FAILED, 0)
        struct.pack_into("<q", self.map, COUNTDOWN, n)
        struct.pack_into("<I", self.map, FROM_THEN, from_then)
        struct.pack_into("<I", self.map, ARMED, 1 + self.kinds.index(kind))

    def disarm(self):
        struct.pack_into("<I", self.map, ARMED, 0)

    def failed(self):
        """The number of calls that have failed since arm()."""
        return struct.unpack_from("<Q", self.map, FAILED)[0]

    def counts(self):
        """{kind: calls so far}"""
        return {kind: struct.unpack_from("<Q", self.map, COUNTED + 8 * i)[0] for i, kind in enumerate(self.kinds)}

    def count_during(self, action):
        """{kind: calls during the action}"""
        before = self.counts()
        action()
        return {kind: n - before[kind] for kind, n in self.counts().items()}

    def close(self):
        self.map.close()
        self.file.close()


def spread(n, most):
    """The numbers 1 .. n, or `most` of them at equal distances, with the first and the last."""
    if n <= most:
        return list(range(1, n + 1))
    return sorted({1 + (n - 1) * i // (most - 1) for i in range(most)})

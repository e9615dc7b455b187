# SPDX-License-Identifier: Apache-2.0
"""Runs a model for `hb serve`. Wrap the model into a callable; this module does the rest.

    from hummingbird import worker
    model = load_my_model().cuda().eval()

    def infer(x):                       # NumPy arrays, named like the inputs in model.yaml
        with torch.inference_mode():
            return {"y": model(torch.from_numpy(x).cuda())}

    worker.serve(infer)

The callable gets one keyword argument per input. It returns a dict of outputs
(arrays, or PyTorch, JAX or CuPy tensors), or one output without a dict if the
model has only one. BF16 inputs are uint16 arrays that hold the bits of the numbers; BF16 outputs
may be such bits or any numbers. Inputs are in memory shared with the server and valid
until the callable returns. With PyTorch on CUDA that memory is pinned, so copies
to the GPU are fast. An exception fails this batch only; the clients get its text. If the
exception comes from an error that has broken the CUDA context (an illegal address, say), the
worker ends and the server starts another one.

NumPy is optional: with worker.serve(infer, lists=True) inputs and outputs are nested lists.

Import this module before others: if the Python that runs the model lacks one of them, `hb serve` can then name the module
and that Python as the reason why the model does not load.

The server predicts deadlines better if it sees copies and run as separate stages,
because it then knows which batches use the link and which use the GPU. Give three
callables, each of which returns when its stage has completed, and set the copied
bytes in model.yaml (`transfer`):

    worker.serve(infer, copy_in=..., copy_out=...)

copy_in(**inputs) returns a dict, infer(**dict) returns a value, copy_out(value)
returns the outputs. While a batch runs, the callable may ask:

    priority()       "high" or "low"
    interruptible()  whether this batch may be paused (low priority, `stop_share` in model.yaml)
    paused()         whether to launch nothing more until this is False again
    unwanted()       whether all clients of the batch have gone; the callable may then raise Unwanted

held() is the former name of paused().
"""
import contextlib
import ctypes
import mmap
import os
import struct
import sys
import time
import traceback

import hummingbird
from hummingbird import tensors

# The layout of src/server/backends/worker_ring.h.
MAGIC, VERSION = 0x31524B4F57424800, 5
PAGE = struct.Struct("<QIIQQQQIII")
READY_OFFSET, SUBMITTED_OFFSET, COMPLETED_OFFSET, RING_ENTRIES_OFFSET, RING = 48, 64, 104, 8, 8
EXPECTED_OFFSET, HINT_S = 144, 0.0002
PAGE_BYTES, LANE_ITEMS, LANE_PRIORITY, LANE_STAGE, LANE_STATUS, LANE_PAUSE, LANE_ERROR, LANE_ERROR_BYTES, \
    LANE_DROPPED, LANE_UNWANTED, LANE_DEADLINE = 4096, 0, 4, 8, 12, 16, 20, 476, 496, 500, 504
NEVER = (1 << 63) - 1
READY, UNABLE = 1, 2
EXIT_BROKEN = 86
COPY_IN, RUN, COPY_OUT = 1, 2, 3
NEVER_PAUSED, PAUSED = 0, 2
LANE_INPUTS, TENSORS_MAX, DIMS_MAX = 512, 16, 8
TENSOR = struct.Struct("<QQII8q")


# Errors of the CUDA driver (CUresult) after which no call in the context can succeed; as in cuda_context.c.
STICKY = frozenset((214, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721, 805, 999))
DEVICES_MAX = 64


def _check_device(driver, device):
    """The error of the device's primary context, which frameworks use; 0 = none."""
    flags, active, context = ctypes.c_uint(), ctypes.c_int(), ctypes.c_void_p()
    if driver.cuDevicePrimaryCtxGetState(device, ctypes.byref(flags), ctypes.byref(active)) or not active.value:
        return 0
    error = driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
    if error:
        return error
    error = driver.cuCtxPushCurrent_v2(context)
    if not error:
        error = driver.cuCtxSynchronize()
        driver.cuCtxPopCurrent_v2(ctypes.byref(context))
    driver.cuDevicePrimaryCtxRelease_v2(device)
    return error


def _context_error():
    """Asks the driver for the error that has broken a CUDA context; 0 = none is broken, or CUDA is not loaded."""
    try:
        driver = ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOW | os.RTLD_NOLOAD)
        current, n = ctypes.c_void_p(), ctypes.c_int()
        if driver.cuCtxGetCurrent(ctypes.byref(current)) == 0 and current.value:
            error = driver.cuCtxSynchronize()
            if error in STICKY:
                return error
        if driver.cuDeviceGetCount(ctypes.byref(n)):
            return 0
        return next((error for error in (_check_device(driver, device) for device in range(min(n.value, DEVICES_MAX)))
                     if error in STICKY), 0)
    except (OSError, AttributeError):
        return 0


class Unwanted(Exception):
    """All clients that waited for the batch have gone."""


class _NoRoom(ValueError):
    """Outputs of open size are larger than the model's `room`."""


class _Server:
    def __init__(self, inputs, outputs, codec=None):
        memory, self.submitted_doorbell, self.completed_doorbell = (int(fd) for fd in os.environ["HB_WORKER_FDS"].split(","))
        self.map = mmap.mmap(memory, 0)
        self.view = memoryview(self.map)
        # Counters are accessed as single words. struct reads and writes byte by byte: the other side could see 0 while a
        # counter changes from 255 to 256.
        self.words = self.view[:len(self.view) // 4 * 4].cast("I")
        magic, version, _, self.lane_bytes, self.in_offset, self.out_offset, self.out_bytes, *_ = \
            PAGE.unpack_from(self.map, 0)
        if (magic, version) != (MAGIC, VERSION):
            raise RuntimeError("hummingbird.worker and hb serve are of different versions")
        self.inputs, self.outputs, self.codec = inputs, outputs, codec
        self.taken = self.put = 0
        self.base = 0  # offset of the lane whose batch runs
        self.expected = 0

    def word(self, offset):
        return self.words[offset // 4]

    def set_word(self, offset, value):
        self.words[offset // 4] = value & 0xFFFFFFFF

    def take(self):
        """Waits for the next submitted lane and returns it. None when the server has ended."""
        while self.word(SUBMITTED_OFFSET) == self.taken & 0xFFFFFFFF:
            if not os.read(self.submitted_doorbell, 8):
                return None
            if self.word(EXPECTED_OFFSET) != self.expected:  # a request has begun to arrive
                self.expected = self.word(EXPECTED_OFFSET)
                hummingbird.hint(HINT_S)
        lane = self.word(SUBMITTED_OFFSET + RING_ENTRIES_OFFSET + 4 * (self.taken % RING))
        self.taken += 1
        return lane

    def give(self, lane):
        self.set_word(COMPLETED_OFFSET + RING_ENTRIES_OFFSET + 4 * (self.put % RING), lane)
        self.put += 1
        self.set_word(COMPLETED_OFFSET, self.put)
        self.ring()

    def read_inputs(self, base):
        arrays = {}
        for i, (name, dtype) in enumerate(self.inputs):
            offset, n_bytes, n_dims, _, *dims = TENSOR.unpack_from(self.map, base + LANE_INPUTS + i * TENSOR.size)
            begin = base + self.in_offset + offset
            arrays[name] = self.codec.read(self.view[begin:begin + n_bytes], dtype, dims[:n_dims])
        return arrays

    def write_output(self, base, index, output, at):
        name = self.outputs[index][0]
        shape, content = output
        if len(shape) > DIMS_MAX:
            raise ValueError("output %s: %d dimensions" % (name, len(shape)))
        data = tensors.join_strings(content) if isinstance(content, list) else content
        if at + len(data) > self.out_bytes:
            raise _NoRoom("output %s: %d bytes, more than there is room for" % (name, len(data)))
        begin = base + self.out_offset + at
        self.view[begin:begin + len(data)] = data
        dims = list(shape) + [0] * (DIMS_MAX - len(shape))
        where = base + LANE_INPUTS + (TENSORS_MAX + index) * TENSOR.size
        TENSOR.pack_into(self.map, where, at, len(data), len(shape), 0, *dims)
        return at + (len(data) + 63) // 64 * 64

    def write_outputs(self, base, values):
        if not isinstance(values, dict):
            if len(self.outputs) != 1:
                raise TypeError("the callable must return a dict of its %d outputs" % len(self.outputs))
            values = {self.outputs[0][0]: values}
        for name, _ in self.outputs:
            if name not in values:
                raise KeyError("the callable returned no output %s" % name)
        outputs = [self.codec.write(values[name], dtype) for name, dtype in self.outputs]
        try:
            self.write_all(base, outputs)
        except _NoRoom as error:
            self.write_smallest(base, outputs, error)

    def write_all(self, base, outputs):
        at = 0
        for index, output in enumerate(outputs):
            at = self.write_output(base, index, output, at)

    def write_smallest(self, base, outputs, error):
        """Writes BYTES outputs that are too large together: empties the largest items, so that few requests fail."""
        texts = [content for _, content in outputs if isinstance(content, list)]
        items, dropped = self.word(base + LANE_ITEMS), 0
        if items == 1 or not texts or any(not shape or shape[0] != items for shape, _ in outputs):
            raise error

        def part(content, item):
            return slice(len(content) // items * item, len(content) // items * (item + 1))
        sizes = [sum(4 + len(text) for content in texts for text in content[part(content, item)]) for item in range(items)]
        for item in sorted(range(items), key=lambda item: -sizes[item]):
            dropped |= 1 << item
            for content in texts:
                left_out = part(content, item)
                content[left_out] = [b""] * len(content[left_out])
            try:
                self.write_all(base, outputs)
            except _NoRoom:
                continue
            self.set_word(base + LANE_DROPPED, dropped)
            return
        raise error

    def fail(self, base, text):
        text = text.encode(errors="replace")[:LANE_ERROR_BYTES - 1] + b"\0"
        self.map[base + LANE_ERROR:base + LANE_ERROR + len(text)] = text
        self.set_word(base + LANE_STATUS, 1)

    def time_left(self):
        """Seconds until the deadline of the batch; None = no deadline."""
        deadline = self.word(self.base + LANE_DEADLINE) | self.word(self.base + LANE_DEADLINE + 4) << 32
        return None if deadline == NEVER else max(0.0, deadline / 1e9 - time.monotonic())

    def ring(self):
        os.write(self.completed_doorbell, struct.pack("<Q", 1))

    def set_stage(self, stage):
        self.set_word(self.base + LANE_STAGE, stage)
        if stage > COPY_IN:
            self.ring()

    def compute(self, function, copy_in, copy_out):
        values = self.read_inputs(self.base)
        if copy_in:
            values = copy_in(**values)
            self.set_stage(RUN)
        values = function(**values)
        if copy_out:
            self.set_stage(COPY_OUT)
            values = copy_out(values)
        return values

    def run(self, function, copy_in, copy_out, lane):
        """Runs a batch. Returns the error that has broken the CUDA context; 0 = none."""
        broken = 0
        self.base = base = PAGE_BYTES + lane * self.lane_bytes
        self.set_stage(COPY_IN)
        try:
            if unwanted():
                raise Unwanted("all clients have gone")
            with hummingbird.request(self.time_left()):
                values = self.compute(function, copy_in, copy_out)
            self.write_outputs(base, values)
        except Unwanted as error:
            self.fail(base, "%s: %s" % (type(error).__name__, error))
        except Exception as error:  # pylint: disable=broad-except
            broken = _context_error()
            self.fail(base, "%s: %s" % (type(error).__name__, error))
            with contextlib.suppress(OSError):  # the reader of the log has closed it
                traceback.print_exc()
        self.give(lane)
        return broken

    @staticmethod
    def end_broken(error):
        """Ends the process without the handlers of libraries, which could wait for the GPU."""
        with contextlib.suppress(OSError):
            print("the CUDA context is broken (CUDA error %d): this worker ends" % error, file=sys.stderr, flush=True)
            sys.stdout.flush()
        os._exit(EXIT_BROKEN)

    def pin(self):
        """Pins the shared memory, so that CUDA copies from it directly. Does nothing without PyTorch or CUDA."""
        torch = sys.modules.get("torch")
        if torch is None or not torch.cuda.is_available():
            return
        address = ctypes.addressof(ctypes.c_char.from_buffer(self.map))
        torch.cuda.cudart().cudaHostRegister(address, len(self.map), 0)


def _tensors(variable):
    """Reads an environment variable with lines of "TYPE name" into a list of (name, type)."""
    return [tuple(reversed(line.split(" ", 1))) for line in os.environ[variable].split("\n")]


_server = None


def priority():
    """The priority of the running batch: "high" or "low"."""
    return "high" if _server.word(_server.base + LANE_PRIORITY) == 0 else "low"


def interruptible():
    """Whether paused() can become true for the running batch."""
    return _server.word(_server.base + LANE_PAUSE) != NEVER_PAUSED


def paused():
    """Whether the running batch should launch nothing more until this is False again."""
    return _server.word(_server.base + LANE_PAUSE) == PAUSED


held = paused


def unwanted():
    """Whether all clients of the running batch have gone."""
    return _server.word(_server.base + LANE_UNWANTED) == 1


def _report_to_server(text):
    """Ends the model with `text` as its reason: the server does not start this worker again."""
    server = _Server([], [])
    server.fail(PAGE_BYTES, text)
    server.set_word(READY_OFFSET, UNABLE)
    server.ring()


def _report_missing_module(kind, error, trace):
    """Handles an exception that ends the program. A missing module is also missing at the next start, so report it."""
    sys.__excepthook__(kind, error, trace)
    if isinstance(error, ModuleNotFoundError) and (_server is None or _server.word(READY_OFFSET) == 0):
        with contextlib.suppress(OSError, ValueError):
            _report_to_server("%s has no module %s. Install it for this Python, or name another Python in \"command\" of "
                              "model.yaml." % (sys.executable, error.name))


if "HB_WORKER_FDS" in os.environ:
    sys.excepthook = _report_missing_module


def serve(function, copy_in=None, copy_out=None, lists=False):
    """Runs batches until the server ends. With `lists`, tensors are nested lists instead of NumPy arrays."""
    global _server
    if "HB_WORKER_FDS" not in os.environ:
        raise RuntimeError("hummingbird.worker is started by hb serve (platform: worker)")
    codec = tensors.Lists() if lists else tensors.Arrays()
    server = _server = _Server(_tensors("HB_WORKER_INPUTS"), _tensors("HB_WORKER_OUTPUTS"), codec)
    server.pin()
    server.set_word(READY_OFFSET, READY)
    server.ring()
    while True:
        lane = server.take()
        if lane is None:
            return
        broken = server.run(function, copy_in, copy_out, lane)
        if broken:
            server.end_broken(broken)

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The programs that bench/memory.py starts; they know nothing of Hummingbird.

  memory_program.py allocate BYTES           times allocation and free of BYTES, again and again
  memory_program.py hold BYTES CHUNK         allocates BYTES in chunks, writes and moves data in them, checks every byte
  memory_program.py segments BYTES CHUNK     the same in memory that it creates and maps itself, as PyTorch's segments can
  memory_program.py fill CHUNK               leaves less than CHUNK free; then allocates as its input says
  memory_program.py train STEPS WIDTH ROWS   at each line of input, trains on ROWS rows with PyTorch and says the losses;
                                             with a further argument 1 its optimizer is a fused one
  memory_program.py change STEPS BYTES       the same without PyTorch: changes memory step by step and says its checksums

All but `train` call the driver API, so they also run over the simulated driver. They say what they did in lines of JSON.
"""
import ctypes
import json
import statistics
import sys
import time
import zlib

OUT_OF_MEMORY = 2
COMPARED = 64 << 20  # bytes that are checked at a time
PART = 20 << 20  # what PyTorch creates at a time for large tensors in expandable segments
POINTER = ctypes.c_uint64
SIZE = ctypes.c_size_t
CALLS = {
    "cuInit": [ctypes.c_uint], "cuDevicePrimaryCtxRetain": [ctypes.POINTER(ctypes.c_void_p), ctypes.c_int],
    "cuCtxSetCurrent": [ctypes.c_void_p], "cuCtxSynchronize": [], "cuMemAlloc_v2": [ctypes.POINTER(POINTER), SIZE],
    "cuMemFree_v2": [POINTER], "cuMemGetInfo_v2": [ctypes.POINTER(SIZE), ctypes.POINTER(SIZE)],
    "cuMemsetD32_v2": [POINTER, ctypes.c_uint, SIZE], "cuMemcpyDtoD_v2": [POINTER, POINTER, SIZE],
    "cuMemcpyDtoH_v2": [ctypes.c_void_p, POINTER, SIZE], "cuMemRelease": [POINTER], "cuMemUnmap": [POINTER, SIZE],
    "cuMemAddressReserve": [ctypes.POINTER(POINTER), SIZE, SIZE, POINTER, POINTER], "cuMemAddressFree": [POINTER, SIZE],
    "cuMemCreate": [ctypes.POINTER(POINTER), SIZE, ctypes.c_void_p, POINTER], "cuMemMap": [POINTER, SIZE, SIZE, POINTER, POINTER],
    "cuMemSetAccess": [POINTER, SIZE, ctypes.c_void_p, SIZE],
}


class Properties(ctypes.Structure):
    """CUmemAllocationProp: pinned, can be exported as a file descriptor, on the first GPU."""
    _fields_ = [("values", ctypes.c_int * 4), ("pointer", ctypes.c_void_p), ("flags", ctypes.c_uint8 * 8)]


PROPERTIES = Properties((1, 1, 1, 0))
ACCESS = (ctypes.c_int * 3)(1, 0, 3)  # CUmemAccessDesc: the first GPU reads and writes


MEMCMP = ctypes.CDLL(None).memcmp
MEMCMP.argtypes = [ctypes.c_void_p, ctypes.c_char_p, SIZE]


def say(**what):
    print(json.dumps(what), flush=True)


class Driver:
    """The driver API, with a context on the first GPU."""

    def __init__(self):
        self.library = ctypes.CDLL("libcuda.so.1")
        for name, types in CALLS.items():
            getattr(self.library, name).argtypes = types
        context = ctypes.c_void_p()
        self.call("cuInit", 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self.call("cuCtxSetCurrent", context)
        self.host = ctypes.create_string_buffer(COMPARED)

    def call(self, name, *arguments):
        result = getattr(self.library, name)(*arguments)
        if result:
            raise RuntimeError(f"{name} returned {result}")

    def allocate(self, size):
        """The address; 0 = out of memory."""
        pointer = POINTER()
        result = self.library.cuMemAlloc_v2(ctypes.byref(pointer), size)
        if result not in (0, OUT_OF_MEMORY):
            raise RuntimeError(f"cuMemAlloc_v2 returned {result}")
        return 0 if result else pointer.value

    def open_segment(self, size):
        """The address of memory that consists of parts, each of a handle of its own; 0 = out of memory."""
        base, handle, mapped = POINTER(), POINTER(), 0
        self.call("cuMemAddressReserve", ctypes.byref(base), size, 0, 0, 0)
        while mapped < size:
            part = min(PART, size - mapped)
            result = self.library.cuMemCreate(ctypes.byref(handle), part, ctypes.byref(PROPERTIES), 0)
            if result == OUT_OF_MEMORY:
                self.close_segment(base.value, mapped, size)
                return 0
            if result:
                raise RuntimeError(f"cuMemCreate returned {result}")
            self.call("cuMemMap", base.value + mapped, part, 0, handle, 0)
            self.call("cuMemSetAccess", base.value + mapped, part, ACCESS, 1)
            self.call("cuMemRelease", handle)  # the mapping keeps the memory
            mapped += part
        return base.value

    def close_segment(self, base, mapped, size):
        if mapped:
            self.call("cuMemUnmap", base, mapped)
        self.call("cuMemAddressFree", base, size)

    def free(self, pointer):
        self.call("cuMemFree_v2", pointer)

    def sizes(self):
        """Free and total bytes."""
        free, total = SIZE(), SIZE()
        self.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value, total.value

    def checksum(self, pointer, size):
        value = 0
        for offset in range(0, size, COMPARED):
            part = min(COMPARED, size - offset)
            self.call("cuMemcpyDtoH_v2", self.host, pointer + offset, part)
            value = zlib.crc32(memoryview(self.host)[:part], value)
        return value

    def is_filled(self, pointer, size, word):
        """Whether each 32-bit word is `word`. Copies to the host; memory of the GPU is not read otherwise."""
        pattern = word.to_bytes(4, "little") * (COMPARED // 4)
        for offset in range(0, size, COMPARED):
            part = min(COMPARED, size - offset)
            self.call("cuMemcpyDtoH_v2", self.host, pointer + offset, part)
            if MEMCMP(self.host, pattern, part):
                return False
        return True


def allocate(size):
    driver, times = Driver(), []
    driver.free(driver.allocate(size))
    for _ in range(200):
        begin = time.perf_counter()
        pointer = driver.allocate(size)
        driver.free(pointer)
        times.append(time.perf_counter() - begin)
    say(event="allocated", us=1e6 * statistics.median(times))


def segments(wanted, chunk):
    hold(wanted, chunk, Driver.open_segment)


def hold(wanted, chunk, allocate_chunk=Driver.allocate):
    """Allocates, then obeys lines: `turn` copies each chunk's neighbour into it; `check` compares every byte."""
    driver, chunks, words = Driver(), [], []
    scratch = driver.allocate(chunk)
    while scratch and (wanted == 0 or len(chunks) * chunk < wanted):
        pointer = allocate_chunk(driver, chunk)
        if not pointer:
            break
        driver.call("cuMemsetD32_v2", pointer, len(chunks) * 2654435761 % (1 << 32), chunk // 4)
        words.append(len(chunks) * 2654435761 % (1 << 32))
        chunks.append(pointer)
    driver.call("cuCtxSynchronize")
    say(event="holds", bytes=len(chunks) * chunk)
    for line in sys.stdin:
        begin = time.perf_counter()
        if line.strip() == "turn":
            driver.call("cuMemcpyDtoD_v2", scratch, chunks[0], chunk)
            for to, source in zip(chunks, chunks[1:]):
                driver.call("cuMemcpyDtoD_v2", to, source, chunk)
            driver.call("cuMemcpyDtoD_v2", chunks[-1], scratch, chunk)
            driver.call("cuCtxSynchronize")
            words.append(words.pop(0))
            say(event="turned", s=time.perf_counter() - begin)
        elif line.strip() == "check":
            wrong = sum(not driver.is_filled(pointer, chunk, word) for pointer, word in zip(chunks, words))
            say(event="checked", wrong=wrong, s=time.perf_counter() - begin)
        else:
            break


def fill(chunk):
    """Lines: `fill` allocates what is free, but for less than a chunk; `take BYTES`; `drop` frees what `take` allocated."""
    driver, taken = Driver(), []
    say(event="ready", total=driver.sizes()[1])
    for line in sys.stdin:
        words = line.split()
        if words[0] == "fill":
            while driver.sizes()[0] >= 3 * chunk:
                step = chunk << max(0, (driver.sizes()[0] // (4 * chunk)).bit_length() - 1)
                if not driver.allocate(step):
                    break
            say(event="filled", free=driver.sizes()[0])
        elif words[0] == "take":
            begin = time.perf_counter()
            pointer = driver.allocate(int(words[1]))
            if pointer:
                taken.append(pointer)
            say(event="took", ok=bool(pointer), s=time.perf_counter() - begin)
        elif words[0] == "drop":
            while taken:
                driver.free(taken.pop())
            say(event="dropped")
        else:
            break


def change(steps, size):
    """Each step changes all of the memory in a way that depends on all steps before."""
    driver = Driver()
    half = size // 2
    parts = [driver.allocate(half), driver.allocate(half)]
    say(event="ready")
    for _ in sys.stdin:
        begin, sums = time.perf_counter(), []
        driver.call("cuMemsetD32_v2", parts[0], 1, half // 4)
        for step in range(steps):
            driver.call("cuMemcpyDtoD_v2", parts[1], parts[0], half)
            word = (sums[-1] if sums else 7) % (1 << 32)
            driver.call("cuMemsetD32_v2", parts[step % 2] + step % 61 * (half // 64 // 4 * 4), word, half // 256)
            sums.append(driver.checksum(parts[1], half))
            parts.reverse()
        say(event="trained", losses=sums, s=time.perf_counter() - begin)


def train(steps, width, rows, fused=0):
    import torch  # pylint: disable=import-outside-toplevel
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True)
    layers = [layer for _ in range(8) for layer in (torch.nn.Linear(width, width), torch.nn.ReLU())]
    model = torch.nn.Sequential(*layers).cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=bool(fused))
    data = torch.randn(rows, width, device="cuda")

    def step():
        optimizer.zero_grad(set_to_none=False)
        loss = torch.nn.functional.mse_loss(model(data), data)
        loss.backward()
        optimizer.step()
        return loss.detach()
    for _ in range(3):
        step()
    torch.cuda.synchronize()
    say(event="ready")
    for _ in sys.stdin:
        begin = time.perf_counter()
        losses = [step().item().hex() for _ in range(steps)]  # reads each loss, so that it is never steps ahead of its GPU
        say(event="trained", s=time.perf_counter() - begin, losses=losses)


if __name__ == "__main__":
    MODES = {"allocate": allocate, "hold": hold, "segments": segments, "fill": fill, "train": train, "change": change}
    MODES[sys.argv[1]](*map(int, sys.argv[2:]))

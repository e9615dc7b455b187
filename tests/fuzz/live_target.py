# SPDX-License-Identifier: Apache-2.0
"""Shared by live_daemon.py and live_server.py: a fuzzed process, checks of its state afterwards, and options."""
import argparse
import collections
import os
import random
import re
import signal
import struct
import subprocess
import tempfile
import time

BUILD = os.environ.get("HB_BUILD", "build")
HEAP_METER = os.path.join(BUILD, "tests/fuzz/libhb-heap-meter.so")
LIMIT = 120  # seconds after which a condition counts as never true, also with sanitizers on a busy machine
REPORT = re.compile(r"^.*(ERROR: \w+Sanitizer|WARNING: \w+Sanitizer|runtime error:|Assertion .* failed).*$", re.M)


def wait_until(what, condition):
    end = time.monotonic() + LIMIT
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"not within {LIMIT} s: {what}")
        time.sleep(0.02)


def options(about):
    """Reads --seed and --seconds, and prints how to repeat this run."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    chosen = parser.parse_args()
    print(f"seed {chosen.seed}: repeat with --seed {chosen.seed} --seconds {chosen.seconds:g}", flush=True)
    return chosen


class Held(collections.Counter):
    """Counts what a process holds: descriptors, threads and mapped memfds. Numbers in names are left out."""

    def __init__(self, pid):
        super().__init__()
        for name in os.listdir(f"/proc/{pid}/fd"):
            try:
                self["descriptor of " + re.sub(r"\d+", "N", os.readlink(f"/proc/{pid}/fd/{name}"))] += 1
            except FileNotFoundError:  # closed meanwhile
                pass
        self["thread"] = len(os.listdir(f"/proc/{pid}/task"))
        with open(f"/proc/{pid}/maps", encoding="utf-8") as maps:
            self.update("page of " + line.split(None, 5)[5].strip() for line in maps if "/memfd:" in line)

    def number(self, kind):
        return sum(n for name, n in self.items() if name.startswith(kind))


class HeapMeter:
    """Counts the bytes that a process started with `variables` has allocated and not freed (heap_meter.c). Its size in memory
    would say less: a sanitizer keeps freed memory, and large tables take memory when they are first used."""

    def __init__(self):
        self.file = tempfile.NamedTemporaryFile()
        self.file.truncate(8)
        asan = os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0:malloc_context_size=8"
        self.variables = {"ASAN_OPTIONS": asan, "HB_HEAP_METER": self.file.name, "LD_PRELOAD": HEAP_METER}

    def allocated_bytes(self):
        return struct.unpack("=q", os.pread(self.file.fileno(), 8, 0))[0]


class Target:
    """The process that is attacked. Its messages go to a file."""

    def __init__(self, command, **more):
        self.errors, self.meter = tempfile.TemporaryFile(), HeapMeter()
        self.process = subprocess.Popen(command, stderr=self.errors, env=os.environ | self.meter.variables, **more)
        self.pid = self.process.pid

    def held(self):
        return Held(self.pid)

    def await_release(self, before, more_threads=0, more_pages=0):
        """Waits until it has no more descriptors, pages and threads than before, except these."""
        def is_released():
            now = self.held()
            return (all(now.number(kind) <= before.number(kind) + more_pages for kind in ("descriptor", "page")) and
                    now["thread"] <= before["thread"] + more_threads)
        try:
            wait_until("no descriptor, thread or page is left", is_released)
        except AssertionError as error:
            raise AssertionError(f"{error}: {dict(self.held() - before)}") from None

    def said(self):
        self.errors.seek(0)
        return self.errors.read().decode("utf-8", "backslashreplace")

    def check_alive(self):
        status = self.process.poll()
        assert status is None, f"it has ended with {status}:\n{self.said()[-8000:]}"

    def end(self):
        """Ends it with SIGTERM. It must exit with 0 and have said nothing that a sanitizer says."""
        self.check_alive()
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(LIMIT)
        said = self.said()
        assert status == 0 and not REPORT.search(said), f"exit status {status}:\n{said[-8000:]}"

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        if self.process.stdout:
            self.process.stdout.close()


def run(about, start, attack):
    """Attacks a process. `start` gets a folder and the options; it returns the target, and what `attack` needs besides."""
    chosen = options(about)
    with tempfile.TemporaryDirectory(prefix="hb-live-") as folder:
        target, *needed = start(folder, chosen)
        try:
            attack(target, *needed, chosen)
            target.end()
        except AssertionError:
            print(target.said()[-4000:])
            raise
        finally:
            target.kill()


def mutate(generator, data):
    """Returns the bytes with a few random changes."""
    data = bytearray(data)
    for _ in range(generator.choice((1, 1, 2, 3, 8))):
        kind, at = generator.random(), generator.randrange(len(data) + 1)
        if kind < .35 and data:
            data[generator.randrange(len(data))] = generator.randrange(256)
        elif kind < .5:
            data[at:at] = generator.randbytes(generator.choice((1, 2, 4, 9, 40)))
        elif kind < .65:
            del data[at:at + generator.choice((1, 2, 5, 20))]
        elif kind < .8 and data:
            begin = generator.randrange(len(data))
            data[at:at] = data[begin:begin + generator.choice((1, 4, 16, 64))]
        elif data:
            begin = generator.randrange(len(data))
            data[begin:begin + 4] = generator.choice((b"\xff\xff\xff\xff", bytes(4), b"\x7f\xff\xff\xff", b"\x80\0\0\0"))
    return bytes(data)

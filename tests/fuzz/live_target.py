# SPDX-License-Identifier: Apache-2.0
"""Shared by live_daemon.py and live_server.py: a fuzzed process, checks of its state afterwards, and options."""
import argparse
import collections
import os
import random
import re
import signal
import subprocess
import tempfile
import time

BUILD = os.environ.get("HB_BUILD", "build")
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


class Target:
    """The process that is attacked. Its messages go to a file."""

    def __init__(self, command, **more):
        self.errors = tempfile.TemporaryFile()
        # A sanitizer keeps freed memory for a while. A small amount of it makes a leak visible in the process's size.
        asan = os.environ.get("ASAN_OPTIONS", "") + ":quarantine_size_mb=16:malloc_context_size=8"
        self.process = subprocess.Popen(command, stderr=self.errors, env=dict(os.environ, ASAN_OPTIONS=asan), **more)
        self.pid = self.process.pid

    def descriptors(self):
        """Returns the targets of its descriptors, sorted."""
        found = []
        for name in os.listdir(f"/proc/{self.pid}/fd"):
            try:
                found.append(re.sub(r"\d+", "N", os.readlink(f"/proc/{self.pid}/fd/{name}")))
            except FileNotFoundError:  # closed meanwhile
                pass
        return sorted(found)

    def await_descriptors(self, before):
        """Waits until it has no more descriptors than before."""
        try:
            wait_until("no descriptor is left open", lambda: len(self.descriptors()) <= len(before))
        except AssertionError as error:
            more = collections.Counter(self.descriptors()) - collections.Counter(before)
            raise AssertionError(f"{error}: {dict(more)}") from None

    def resident_bytes(self):
        with open(f"/proc/{self.pid}/statm", encoding="ascii") as text:
            return int(text.read().split()[1]) * os.sysconf("SC_PAGESIZE")

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

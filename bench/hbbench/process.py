# SPDX-License-Identifier: Apache-2.0
"""Starting programs, sending them lines and reading their answers, within a time limit that holds for every wait.

Programs end with the harness: the kernel sends each its end signal when the harness dies.
"""
import ctypes
import itertools
import json
import os
import select
import signal
import subprocess
import time

TAIL_BYTES = 300
KILLED_S, KILLED_LEAST_S = 10, 0.2
LIBC = ctypes.CDLL(None, use_errno=True)
PR_SET_PDEATHSIG = 1


class Failed(Exception):
    """A program died, hangs or broke the protocol; the text names it."""


class Hangs(Failed):
    """A program did not answer in its time."""


class TimeIsUp(Exception):
    """The time of the case or of the suite is over."""


class Interrupted(Exception):
    """Ctrl-C, SIGTERM or SIGHUP."""


class Limits:
    """The moment (monotonic) at which every wait ends, and whether the user has asked to end."""

    def __init__(self):
        self.end, self.interrupted = None, False

    def watch_signals(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda *_: setattr(self, "interrupted", True))

    def left(self, wanted_s):
        """The shorter of `wanted_s` and what the limit leaves, not negative."""
        return max(0.0, wanted_s if self.end is None else min(wanted_s, self.end - time.monotonic()))

    def check(self):
        if self.interrupted:
            raise Interrupted("interrupted")
        if self.end is not None and time.monotonic() >= self.end:
            raise TimeIsUp("the time was over")

    def sleep_until(self, moment):
        """In short pieces, so that a signal ends the wait."""
        self.check()
        while (left := moment - time.monotonic()) > 0:
            time.sleep(min(left, 0.05, self.left(left) + 0.001))
            self.check()


def die_with_parent(end_signal):
    """What a child does before its program begins, so that it gets this signal when this process dies."""
    parent = os.getpid()

    def ask():
        LIBC.prctl(PR_SET_PDEATHSIG, int(end_signal))
        if os.getppid() != parent:
            os._exit(127)  # the parent died before the child asked for the signal
    return ask


class Process:
    """A child with pipes to its input and output; its errors go to a log file in the stage's folder."""
    numbers = itertools.count(1)

    def __init__(self, name, words, environment, folder, limits, end_signal=signal.SIGKILL, cpus=None):
        self.name, self.limits, self.buffer = name, limits, b""
        self.log = os.path.join(folder, f"{next(self.numbers)}.log")
        follow_parent = die_with_parent(end_signal)

        def prepare_child():
            follow_parent()
            if cpus:
                os.sched_setaffinity(0, cpus)
        with open(self.log, "ab") as log:
            try:
                # A process group of its own: Ctrl-C reaches it only through the harness.
                self.child = subprocess.Popen(words, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                              stderr=log, bufsize=0, process_group=0, preexec_fn=prepare_child)
            except OSError as error:
                raise Failed(f"{name}: {words[0]}: {error.strerror}") from error
        os.set_blocking(self.child.stdout.fileno(), False)

    @property
    def pid(self):
        return self.child.pid

    def complaint(self, what):
        """The message that names the program and quotes the first error in its log and the log's end."""
        with open(self.log, "rb") as file:
            first = next((line for line in file if b"Error" in line), b"").decode(errors="replace").strip()
            file.seek(max(0, os.path.getsize(self.log) - TAIL_BYTES))
            tail = file.read().decode(errors="replace").rstrip("\n ").replace("\n", "|")
        return (f"{self.name} {what}" + (f"; its first error: {first[:TAIL_BYTES]}" if first and first not in tail else "")
                + (f"; its last lines: {tail}" if tail else ""))

    def check(self):
        """Raises when the program has ended."""
        status = self.child.poll()
        if status is not None:
            raise Failed(self.complaint(f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"))

    def fail_closed(self):
        """Its pipes are closed, so it has ended or is about to."""
        try:
            self.child.wait(2)
        except subprocess.TimeoutExpired:
            pass
        self.check()
        raise Failed(self.complaint("has closed its output"))

    def send(self, line):
        try:
            self.child.stdin.write(line.encode() + b"\n")
        except OSError:
            self.fail_closed()

    def read_more(self, deadline, event):
        ready, _, _ = select.select([self.child.stdout], [], [], max(0.0, min(0.05, deadline - time.monotonic())))
        if not ready or self.limits.interrupted:
            self.limits.check()
            if time.monotonic() >= deadline:
                raise Hangs(self.complaint(f"hangs: no answer '{event}' in time"))
            return
        data = self.child.stdout.read(1 << 20)
        if data == b"":
            self.fail_closed()
        self.buffer += data or b""

    def hear(self, event, limit_s):
        """Waits for the line {"event": EVENT, ...} and returns it; lines that are no objects are ignored."""
        deadline = time.monotonic() + self.limits.left(limit_s)
        while True:
            while b"\n" in self.buffer:
                line, self.buffer = self.buffer.split(b"\n", 1)
                if not line.startswith(b"{"):
                    continue
                try:
                    answer = json.loads(line)
                except ValueError as error:
                    raise Failed(self.complaint(f"wrote a line that is no JSON: {error}")) from error
                if answer.get("event") != event:
                    raise Failed(self.complaint(f"wrote the event {answer.get('event')!r} instead of {event!r}"))
                return answer
            self.read_more(deadline, event)

    def kill(self):
        """A program that is stuck in the driver is left to the kernel."""
        for target in (os.killpg, os.kill):
            if self.child.poll() is None:
                try:
                    target(self.child.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
        try:
            self.child.wait(max(KILLED_LEAST_S, self.limits.left(KILLED_S)))
        except subprocess.TimeoutExpired:
            pass
        for pipe in (self.child.stdin, self.child.stdout):
            pipe.close()

    def quit(self):
        try:
            self.child.stdin.write(b"quit\n")
        except (OSError, ValueError):
            pass

    def stop(self, limit_s, end_signal=None):
        """Ends it by `end_signal`, or by "quit" and the end of its input; kills it after the limit."""
        if end_signal:
            self.child.send_signal(end_signal)
        else:
            self.quit()
            self.child.stdin.close()
        try:
            self.child.wait(self.limits.left(limit_s))
        except subprocess.TimeoutExpired:
            pass
        self.kill()


def run_command(name, words, environment, text, folder, limits, limit_s):
    """Runs a command to its end with `text` as its input."""
    process = Process(name, words, environment, folder, limits)
    try:
        process.child.stdin.write(text.encode())
        process.child.stdin.close()
        process.child.wait(limits.left(limit_s))
        if process.child.returncode:
            process.check()
    except (subprocess.TimeoutExpired, BrokenPipeError) as error:
        raise Hangs(process.complaint("did not end in time")) from error
    finally:
        process.kill()

# SPDX-License-Identifier: Apache-2.0
"""`hb run --or-alone`: whatever state the daemon is in, the command starts within 2 s. It
then runs alone, in hb's own environment, and one message says why. Without
--or-alone hb ends with 125 and the same reason, after at most 10 s.

Each case is played by a real daemon or by a thread that answers like a daemon up to
some point. Old behaviour: no --or-alone, and 30 s until hb gave up.
"""
import concurrent.futures
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import noise
import stack

LIMIT_ALONE = 2
LIMIT_OTHERWISE = 10
HELLO, WELCOME, ERROR, REGISTER = 1, 2, 3, 4
SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")


def page_version():
    with open(os.path.join(SOURCE, "include/hummingbird/page.h"), encoding="utf-8") as file:
        return int(re.search(r"#define HB_PAGE_VERSION (\d+)", file.read())[1])


def message(kind, body):
    return struct.pack("=IHH", 8 + len(body), kind, 0) + body


def welcome():
    return message(WELCOME, struct.pack("=IIII", 1, os.getpid(), page_version(), 0))


def refusal(code, text):
    return message(ERROR, struct.pack("=iI", -code, 0) + text.encode())


class Daemon:
    """Accepts connections and answers each message as `answers` says: kind -> bytes, None (no answer) or "end"."""

    def __init__(self, path, answers):
        self.answers = answers
        self.connections = []
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.bind(path)
        self.listener.listen(16)
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.connections.append(connection)
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection):
        while data := connection.recv(65536):
            answer = self.answers.get(struct.unpack_from("=IH", data)[1])
            if answer == "end":
                break
            if answer:
                connection.send(answer)
        if data:
            connection.close()


class Case:
    """One state of the daemon: a folder with its socket, and a word of the reason that hb must name."""

    def __init__(self, folder, name, reason, answers=None, listen=None):
        self.name, self.reason = name, reason
        self.path = os.path.join(folder, f"{name.replace(' ', '-')}.sock")
        if answers is not None:
            self.daemon = Daemon(self.path, answers)
        if listen is not None:
            self.fill_queue(listen)

    def fill_queue(self, length):
        """Opens a listener that accepts no connection, and fills its queue with `length` connections, so that a further connect() blocks."""
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.bind(self.path)
        self.listener.listen(length)
        self.waiting = []
        for _ in range(length + 1):
            client = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            client.connect(self.path)
            self.waiting.append(client)


def make_cases(folder):
    return [
        Case(folder, "no socket", "no daemon answers there"),
        Case(folder, "no answer to a connection", "does not answer", {}),
        Case(folder, "nobody accepts", "does not accept connections", listen=1),
        Case(folder, "no answer to the registration", "does not answer", {HELLO: welcome()}),
        Case(folder, "full", "its limit", {HELLO: welcome(), REGISTER: refusal(87, "the daemon has 256 tenants, its limit")}),
        Case(folder, "ends before the greeting", "closed the connection", {HELLO: "end"}),
        Case(folder, "ends before the registration", "closed the connection", {HELLO: welcome(), REGISTER: "end"}),
    ]


def run_command(environment, options, path, command, **variables):
    """Returns the finished `hb run`, and the seconds until the command had begun (None: it never did)."""
    variables = {"HB_SOCKET": path, "HB_START_DAEMON": "0"} | variables
    begin = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    program = [sys.executable, "-S", "-c", "import time; print('began', time.clock_gettime_ns(time.CLOCK_MONOTONIC), flush=True); "
               "import os, sys; os.execvp(sys.argv[1], sys.argv[1:])"]
    done = subprocess.run([stack.HB, "run", "--gpu", "sim", "--priority", "high", *options, "--", *program, *command],
                          env=environment | variables, capture_output=True, text=True, timeout=stack.LIMIT, check=False)
    said = re.match(r"began (\d+)\n", done.stdout)
    return done, (int(said[1]) - begin) / 1e9 if said else None


def check_alone(environment, case):
    """The command runs within the limit, with the environment of hb, and one message names the reason."""
    given = environment | {"HB_TENANT": "11" * 16, "LD_LIBRARY_PATH": "/nowhere"}
    done, delay = run_command(given, ["--or-alone"], case.path, ["env"])
    assert done.returncode == 0, f"{case.name}: status {done.returncode}: {done.stderr}"
    lines = done.stderr.splitlines()
    assert len(lines) == 1 and case.reason in lines[0] and "--or-alone" in lines[0], f"{case.name}: {done.stderr}"
    got = dict(line.split("=", 1) for line in done.stdout.splitlines()[1:] if "=" in line)
    expected = given | {"HB_SOCKET": case.path, "HB_START_DAEMON": "0", "LD_LIBRARY_PATH": stack.SIMCUDA + ":/nowhere"}
    del expected["HB_TENANT"]
    differs = {name for name in expected.keys() | got.keys() if expected.get(name) != got.get(name)} - {"_", "LC_CTYPE"}
    assert not differs, f"{case.name}: these variables differ: {differs}"
    return [] if delay <= LIMIT_ALONE else [f"{case.name}: the command began after {delay:.2f} s"]


def check_all(check, environment, cases):
    with concurrent.futures.ThreadPoolExecutor(len(cases)) as pool:
        results = pool.map(lambda case: check(environment, case), cases)
        return [complaint for result in results for complaint in result]


def check_refused(environment, case):
    begin = time.monotonic()
    done, delay = run_command(environment, [], case.path, ["env"])
    took = time.monotonic() - begin
    assert done.returncode == 125 and delay is None, f"{case.name}: status {done.returncode}: {done.stdout}"
    assert case.reason in done.stderr, f"{case.name}: {done.stderr}"
    return [] if took < LIMIT_OTHERWISE + 1 else [f"{case.name}: hb ended after {took:.1f} s"]


class RunAlone(unittest.TestCase):
    def setUp(self):
        folder = tempfile.mkdtemp(prefix="hb-alone-", dir="/tmp")
        self.addCleanup(shutil.rmtree, folder)
        self.cases = make_cases(folder)
        self.one = stack.Stack(mps=False)
        self.addCleanup(self.one.__exit__, None, None, None)

    def test_the_command_starts_within_two_seconds(self):
        noise.judge(lambda slowness: check_all(check_alone, self.one.environment, self.cases))

    def test_the_command_can_use_the_gpu(self):
        """A real program computes on the GPU, and its shim does not wait for the daemon a second time."""
        def attempt(slowness):
            done, _ = run_command(self.one.environment, ["--or-alone"], self.cases[1].path, [stack.TENANT, "devices"])
            assert done.returncode == 0, done.stderr
            begin = time.monotonic()
            done, began = run_command(self.one.environment, ["--or-alone"], self.cases[1].path, [stack.TENANT, "devices"])
            after = time.monotonic() - begin - began
            assert done.returncode == 0, done.stderr
            return [] if after < 1 else [f"the program took {after:.2f} s after its start"]
        noise.judge(attempt)

    def test_without_the_option_hb_gives_the_reason(self):
        """The registration may have to wait for the MPS server, so that one case takes longer."""
        soon = [case for case in self.cases if case.name != "no answer to the registration"]
        noise.judge(lambda slowness: check_all(check_refused, self.one.environment, soon))

    def test_a_stopped_daemon(self):
        daemon = self.one.start_daemon()
        case = Case(self.one.folder, "stopped", "does not answer")
        case.path = self.one.environment["HB_SOCKET"]
        daemon.signal(signal.SIGSTOP)
        noise.judge(lambda slowness: check_all(check_alone, self.one.environment, [case]))
        daemon.signal(signal.SIGCONT)
        stack.wait_until("the daemon answers again", self.one.status)

    def test_a_daemon_that_answers_makes_a_tenant(self):
        self.one.start_daemon()
        done, _ = run_command(self.one.environment, ["--or-alone"], self.one.environment["HB_SOCKET"], ["env"])
        assert done.returncode == 0 and "HB_TENANT=" in done.stdout and "--or-alone" not in done.stderr, done

    def test_a_daemon_is_started_if_none_runs(self):
        """As without the option: the first `hb run` starts the daemon. On a slow machine it may not be in time."""
        done, _ = run_command(self.one.environment, ["--or-alone"], self.one.environment["HB_SOCKET"], ["env"],
                              HB_START_DAEMON="1")
        assert done.returncode == 0 and ("HB_TENANT=" in done.stdout) != ("--or-alone" in done.stderr), done
        stack.wait_until("a daemon runs", self.one.status)



if __name__ == "__main__":
    unittest.main()

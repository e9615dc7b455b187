#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A client of another user sends the daemon descriptors of files on a file system that the client serves itself and
never answers. The daemon goes on, refuses that user, and can be ended and replaced. Needs root and /dev/fuse."""
import ctypes
import mmap
import multiprocessing
import os
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import unittest

import raw_client
from slow_files import CannotMount, FLUSH, GETATTR, libc, SlowFiles, WRITE
from stack import HBD, wait_until

STRANGER = 1001
BEATS = 20  # two seconds' worth, which is the age at which tenants take the daemon for dead


def send_page(path, files, pipe):
    """Registers a tenant with a file in place of its page."""
    client = raw_client.connect(path)
    page = os.open(files.path("page"), os.O_RDWR)
    flags = raw_client.CREATE | raw_client.WITH_PAGE
    raw_client.send_with(client, raw_client.register_message(7, flags), [page])
    return client, page


def send_with_bad_message(path, files, pipe):
    """Sends more descriptors than any message may have."""
    client = raw_client.connect(path)
    pages = [os.open(files.path("page"), os.O_RDWR) for _ in range(100)]
    raw_client.send_with(client, b"nonsense", pages)
    return client, pages


def leave_in_queue(path, files, pipe):
    """The daemon drops the connection because of the first message, and with it the file in the second one. Ending that
    file means to write what another descriptor has changed."""
    client = raw_client.connect(path)
    page = os.open(files.path("page"), os.O_RDWR)
    writer = os.open(files.path("page"), os.O_RDWR)
    pipe.send("stop the daemon")
    pipe.recv()
    client.send(b"nonsense")
    raw_client.send_with(client, b"more", [page])
    os.close(page)
    os.write(writer, bytes(4096))
    pipe.send("let the daemon continue")
    return client, writer


def run_attacker(pipe, folder, path, attack, hold):
    """The hostile process: it mounts as root, and its child is an ordinary user."""
    kept = []

    def client(files):
        while not files.wait_until_held(0.1):
            kept.append(attack(path, files, pipe))
        pipe.send("held")
        pipe.recv()
        try:
            raw_client.connect(path)
            pipe.send("served")
        except OSError:
            pipe.send("refused")
        pipe.recv()
        files.release()
        pipe.recv()

    try:
        files = SlowFiles(folder, hold)
    except CannotMount as why:
        pipe.send(str(why))
        return
    pipe.send(None)
    files.run(STRANGER, client)


def lock_own_memory(files):
    """A thread maps a file, for which the kernel first writes what another descriptor has changed. Meanwhile the thread
    has the memory of this process locked."""
    writer = os.open(files.path("page"), os.O_RDWR)
    direct = os.open(files.path("page"), os.O_RDWR | os.O_APPEND)
    os.write(writer, bytes(4096))
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    return threading.Thread(target=libc.mmap, args=(None, 4096, mmap.PROT_READ, mmap.MAP_PRIVATE, direct, 0))


def run_slow_environment(folder):
    def client(files):
        thread = lock_own_memory(files)
        thread.start()
        files.wait_until_held(30)
        os.write(1, b"%d\n" % os.getpid())
        sys.stdin.read()

    try:
        SlowFiles(folder, [WRITE]).run(STRANGER, client)
    except CannotMount as why:
        print(why, flush=True)


class SlowEnvironment(unittest.TestCase):
    """The daemon looks into the environment of a process that a page names, to see whether it belongs to the tenant."""

    def test_an_environment_that_cannot_be_read(self):
        if os.geteuid():
            self.skipTest("needs root")
        folder = tempfile.mkdtemp(prefix="hb-test-")
        self.addCleanup(shutil.rmtree, folder)
        asking = []  # its thread ends with the file system, so it is waited for at the end
        self.addCleanup(lambda: [process.communicate() for process in asking])
        command = [sys.executable, __file__, BEGAN_WITH, "--slow-environment", folder]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        answer = process.stdout.readline().strip()
        if not answer.isdigit():
            self.skipTest(answer)
        asked = subprocess.Popen([BEGAN_WITH, answer, "A=B"], stdout=subprocess.PIPE, text=True)
        asking.append(asked)
        self.assertTrue(select.select([asked.stdout], [], [], 30)[0], "the reader waits for the process")
        self.assertEqual(asked.stdout.readline(), "no\n")


class HostileFiles(unittest.TestCase):
    def setUp(self):
        if os.geteuid():
            self.skipTest("needs root")
        self.folder = tempfile.mkdtemp(prefix="hb-test-")
        self.path = os.path.join(self.folder, "hbd.sock")
        os.mkdir(os.path.join(self.folder, "files"))
        os.chmod(self.folder, 0o755)
        self.addCleanup(shutil.rmtree, self.folder)
        self.daemons = []
        self.addCleanup(self.end_daemons)  # after the attacker, for whom a daemon may wait
        self.start_daemon()

    def end_daemons(self):
        for daemon in self.daemons:
            daemon.kill()
            daemon.communicate()

    def start_daemon(self):
        command = [HBD, "--foreground", "--system", "--socket", self.path]
        daemon = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        self.daemons.append(daemon)
        wait_until("the daemon serves", lambda: daemon.poll() is not None or self.serving_pid() == daemon.pid)
        self.assertIsNone(daemon.poll(), "the daemon ended")
        os.chmod(self.path, 0o666)  # stands for the group hummingbird
        return daemon

    def serving_pid(self):
        try:
            client = raw_client.connect(self.path, timeout=1)
        except OSError:
            return None
        with client:
            return raw_client.status(client)["daemon"]["pid"]

    def start_attack(self, attack, hold):
        self.pipe, other = multiprocessing.Pipe()
        folder = os.path.join(self.folder, "files")
        attacker = multiprocessing.Process(target=run_attacker, args=(other, folder, self.path, attack, hold))
        attacker.start()
        # The end of the process ends its file system, so nothing waits for it any longer, even if the test has failed.
        self.addCleanup(attacker.join)
        self.addCleanup(attacker.kill)
        why_not = self.pipe.recv()
        if why_not:
            self.skipTest(why_not)

    def wait_for_beats(self, page):
        ages = []

        def has_beaten():
            beat = struct.unpack_from("<q", page, raw_client.HEARTBEAT_OFFSET)[0]
            if beat not in ages:
                ages.append(beat)
            return len(ages) > BEATS

        wait_until("the heartbeat continues", has_beaten, 30)

    def survive(self, attack, hold):
        bystander = raw_client.connect(self.path)
        page = raw_client.join_new_tenant(bystander, 1)
        self.start_attack(attack, hold)
        while (news := self.pipe.recv()) != "held":
            self.daemons[0].send_signal(signal.SIGSTOP if news.startswith("stop") else signal.SIGCONT)
            if news.startswith("stop"):
                self.pipe.send("stopped")
        self.wait_for_beats(page)
        raw_client.join_new_tenant(raw_client.connect(self.path), 2)
        with raw_client.connect(self.path) as client:
            self.assertGreater(raw_client.status(client)["daemon"]["closing"], 0)
        self.pipe.send("connect")
        self.assertEqual(self.pipe.recv(), "refused")

    def end_first(self, number):
        """Ends the daemon, which cannot end completely, and starts another one."""
        first = self.daemons[0]
        first.send_signal(number)
        if number == signal.SIGTERM:
            wait_until("the daemon leaves its socket", lambda: not os.path.exists(self.path))
        second = self.start_daemon()
        self.assertEqual(self.serving_pid(), second.pid)
        self.pipe.send("release")
        first.wait()
        self.assertEqual(self.serving_pid(), second.pid)

    def test_a_page_that_cannot_be_closed(self):
        self.survive(send_page, [FLUSH])
        self.end_first(signal.SIGTERM)

    def test_a_daemon_that_not_even_sigkill_ends_is_replaced(self):
        self.survive(send_page, [FLUSH])
        self.end_first(signal.SIGKILL)

    def test_a_page_whose_attributes_cannot_be_read(self):
        self.survive(send_page, [GETATTR, FLUSH])

    def test_descriptors_of_a_bad_message(self):
        self.survive(send_with_bad_message, [FLUSH])

    def test_descriptors_that_nobody_reads(self):
        self.survive(leave_in_queue, [WRITE])


if __name__ == "__main__":
    BEGAN_WITH = sys.argv.pop(1)
    if sys.argv[1:2] == ["--slow-environment"]:
        run_slow_environment(sys.argv[2])
    else:
        unittest.main()

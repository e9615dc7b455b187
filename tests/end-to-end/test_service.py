#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Messages of the daemon to systemd, and the unit file, which systemd's own tools
check where they are installed."""
import os
import queue
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import unittest

from stack import HBD, LIMIT, Stack

UNIT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../packaging/systemd/hummingbird.service")


class Service(unittest.TestCase):
    def listen(self, path):
        """Receives messages at once, like systemd: a full queue would lose watchdog messages."""
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        listener.bind(path)
        self.said = queue.Queue()
        reader = threading.Thread(target=self.read, args=(listener,), daemon=True)
        reader.start()
        self.addCleanup(listener.close)
        self.addCleanup(reader.join, LIMIT)
        self.addCleanup(listener.shutdown, socket.SHUT_RD)

    def read(self, listener):
        while message := listener.recv(4096):
            self.said.put(message.decode())

    def message(self):
        try:
            return self.said.get(timeout=LIMIT)
        except queue.Empty:
            raise AssertionError(f"nothing was said in {LIMIT} s") from None

    def expect(self, word):
        """The next message with this line; only watchdog messages may precede it."""
        while True:
            lines = self.message().split("\n")
            if word in lines:
                return lines
            self.assertEqual(lines, ["WATCHDOG=1"])

    def check(self, address, stack):
        daemon = stack.start_daemon(NOTIFY_SOCKET=address.replace("\0", "@"), WATCHDOG_USEC="200000")
        self.expect("READY=1")
        self.expect("WATCHDOG=1")
        self.expect("WATCHDOG=1")
        daemon.signal(signal.SIGHUP)
        lines = self.expect("RELOADING=1")
        self.assertGreater(int(lines[1].removeprefix("MONOTONIC_USEC=")), 0)
        self.assertIn("READY=1", self.expect("STATUS=configuration read again"))
        with open(f"/proc/{daemon.pid}/environ", "rb") as file:
            self.assertIn(b"NOTIFY_SOCKET", file.read())  # the environment at its start; children do not get the variable
        daemon.signal(signal.SIGTERM)
        self.expect("STOPPING=1")
        self.assertEqual(daemon.ended(), 0)

    def test_the_daemon_reports_ready_alive_reloading_and_stopping(self):
        with Stack() as stack:
            path = os.path.join(stack.folder, "notify")
            self.listen(path)
            self.check(path, stack)

    def test_settings_that_need_a_restart_are_reported(self):
        with Stack(config="reserve: 0\n") as stack:
            self.listen(os.path.join(stack.folder, "notify"))
            daemon = stack.start_daemon(NOTIFY_SOCKET=os.path.join(stack.folder, "notify"))
            self.expect("READY=1")
            with open(os.path.join(stack.folder, ".config/hummingbird/hummingbird.yaml"), "w", encoding="utf-8") as file:
                file.write("reserve: 1GiB\nengine: turns\nmetrics: 127.0.0.1:0\n")
            daemon.signal(signal.SIGHUP)
            self.expect("RELOADING=1")
            self.expect("STATUS=configuration read again; these keys apply after a restart: engine, metrics")
            self.assertEqual(stack.status()["daemon"]["metrics"]["address"], "")

    def test_messages_reach_an_abstract_socket(self):
        with Stack() as stack:
            address = "\0hb-test-" + os.path.basename(stack.folder)
            self.listen(address)
            self.check(address, stack)

    def test_the_watchdog_of_another_process_is_ignored(self):
        with Stack() as stack:
            self.listen(os.path.join(stack.folder, "notify"))
            stack.start_daemon(NOTIFY_SOCKET=os.path.join(stack.folder, "notify"), WATCHDOG_USEC="1000", WATCHDOG_PID="1")
            self.expect("READY=1")
            self.assertIsNotNone(stack.status())
            stack.daemon.signal(signal.SIGTERM)
            self.assertEqual(self.message(), "STOPPING=1")

    def background(self, stack):
        """Starts a daemon in the background and returns its output until then."""
        done = subprocess.run([HBD, "--gpu", "sim", "--socket", stack.environment["HB_SOCKET"]], env=stack.environment,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=LIMIT, check=False)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIsNotNone(stack.status())
        stack.stop_daemon()
        return done.stdout

    def test_a_log_that_is_a_link_or_a_pipe_is_not_used(self):
        with Stack() as stack:
            log, other = (os.path.join(stack.folder, name) for name in ("hbd.log", "other"))
            with open(other, "w", encoding="utf-8") as file:
                file.write("precious")
            for plant in (lambda: os.link(other, log), lambda: os.symlink(other, log), lambda: os.mkfifo(log)):
                plant()
                self.assertIn(f"{log}: cannot be used as the log", self.background(stack))
                os.unlink(log)
                with open(other, encoding="utf-8") as file:
                    self.assertEqual(file.read(), "precious")
            with open(log, "w", encoding="utf-8") as file:
                file.write("of an earlier start")
            os.chmod(log, 0o644)
            self.assertEqual(self.background(stack), "")
            self.assertEqual(os.stat(log).st_mode & 0o777, 0o600)
            with open(log, encoding="utf-8") as file:
                self.assertNotIn("earlier", file.read())

    def test_a_second_start_does_not_change_the_log_of_the_first(self):
        with Stack(HB_LOG="info") as stack:
            command = [HBD, "--gpu", "sim", "--socket", stack.environment["HB_SOCKET"]]
            starts = [subprocess.run(command, env=stack.environment, capture_output=True, text=True, timeout=LIMIT,
                                     check=False) for _ in range(2)]
            self.assertEqual([start.returncode for start in starts], [0, 1])
            self.assertIn("another daemon serves this socket", starts[1].stderr)
            self.assertIsNotNone(stack.status())  # the daemon has reported that it is ready
            with open(os.path.join(stack.folder, "hbd.log"), encoding="utf-8") as file:
                self.assertIn("info: serving ", file.read())

    def test_the_unit_file_is_valid(self):
        if not shutil.which("systemd-analyze"):
            self.skipTest("systemd-analyze is not installed: the unit was not checked")
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "hummingbird.service")
            with open(UNIT, encoding="utf-8") as file:
                text = file.read().replace("/usr/sbin/hbd", HBD)
            done = self.verify(path, "".join(line for line in text.splitlines(True) if "Documentation" not in line))
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            wrong = self.verify(path, text.replace("WatchdogSec=30", "WatchdogSec=often"))
            self.assertIn("Failed to parse sec value", wrong.stderr)
            security = subprocess.run(["systemd-analyze", "security", "--offline=yes", "--threshold=40", path],
                                      capture_output=True, text=True, timeout=LIMIT, check=False)
            self.assertEqual(security.returncode, 0, security.stdout[-200:])

    def test_the_unit_reloads_no_configuration_with_an_error(self):
        with open(UNIT, encoding="utf-8") as file:
            steps = [line.partition("=")[2].split() for line in file if line.startswith("ExecReload=")]
        self.assertIn("kill -HUP $MAINPID", " ".join(steps[-1]))
        self.assertEqual(steps[0][0], "/usr/sbin/hbd")
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "hummingbird.yaml")
            for text, expected in (("reserve: 1GiB\n", 0), ("reserve: 1GiB\nrules: 7\n", 2)):
                with open(path, "w", encoding="utf-8") as file:
                    file.write(text)
                done = subprocess.run([HBD, *steps[0][1:], "--config", path], capture_output=True, text=True,
                                      timeout=LIMIT, check=False)
                self.assertEqual(done.returncode, expected, done.stderr)
            self.assertIn(f"{path}:2: rules", done.stderr)

    def verify(self, path, text):
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return subprocess.run(["systemd-analyze", "verify", path], capture_output=True, text=True, timeout=LIMIT,
                              check=False)


if __name__ == "__main__":
    unittest.main()

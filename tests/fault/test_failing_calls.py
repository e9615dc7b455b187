#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Lets the N-th malloc, mmap, open ... of the daemon, of the shim and of hb-serve fail: once, and from then on for a while.
Nothing may hang, crash or be lost: programs compute the same results, and afterwards everything is served as before.

usage: test_failing_calls.py daemon|shim|server [--all]
--all tries every N; without it, calls that are made often fail at equal distances."""
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import unittest
import unittest.mock

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../server"))
from failing_calls import FailingCalls, spread  # pylint: disable=wrong-import-position
from stack import HB, HBD, TENANT, Stack, wait_until  # pylint: disable=wrong-import-position

ALL = "--all" in sys.argv
OFTEN = 10 ** 9 if ALL else 8
# How long "from then on" lasts: memory and descriptors come back when some process ends.
SHORTAGE_S = 0.6
HANGS_S = 100
# Exit statuses of `hb run` itself.
HB_FAILED = 125


class Case(unittest.TestCase):
    def calls_of(self, program, from_object=None):
        calls = FailingCalls(program, from_object)
        self.addCleanup(calls.close)
        return calls

    def try_each(self, counts, attempt):
        """Calls attempt(kind, n, from_then) for each call that the counted action makes and both ways in which it can fail.
        Afterwards the test fails with everything that went wrong."""
        tried = {kind: len(spread(calls, OFTEN)) for kind, calls in counts.items()}
        print(f"{self.id()}: {sum(tried.values())} calls fail, each in two ways: {tried}", file=sys.stderr)
        for kind, calls in counts.items():
            for n in spread(calls, OFTEN):
                for from_then in (False, True):
                    with self.subTest(call=kind, n=n, from_then=from_then):
                        attempt(kind, n, from_then)


class Daemon(Case):
    """The commands of hb fail with a message, or work; the daemon and its other tenants continue."""

    def command(self, stack, *arguments, **variables):
        done = subprocess.run([HB, *arguments], env=stack.environment | variables, capture_output=True, text=True,
                              timeout=HANGS_S, check=False)
        self.assertGreaterEqual(done.returncode, 0, (arguments, done.stderr))
        return done

    def use(self, stack, expected):
        """Everything that users do with a daemon. All of it may be refused."""
        survivor = str(self.survivor)
        results = [self.command(stack, "run", "--gpu", "sim", "--priority", "low", "--", TENANT, "work", "1"),
                   self.command(stack, "status", "--gpu", "sim", "--json"),
                   self.command(stack, "set", "--gpu", "sim", survivor, "--slo", "20ms")]
        for done in results:
            self.assertTrue(done.returncode == 0 or done.stderr.strip(), f"no message: {done}")
        if results[0].returncode != HB_FAILED:
            self.assertEqual((results[0].returncode, results[0].stdout.splitlines()), (0, expected), results[0].stderr)

    def use_during_shortage(self, stack, calls, expected):
        timer = threading.Timer(SHORTAGE_S, calls.disarm)
        timer.start()
        try:
            self.use(stack, expected)
        finally:
            timer.join()

    def test_while_it_serves(self):
        calls = self.calls_of("hbd")
        with Stack(scale=0.3, mps=False) as stack:
            expected = stack.bare("work", 1).output()
            stack.start_daemon(**calls.variables)
            left = stack.start("high", "train", 200, 0)
            left.expect("running")
            self.survivor = stack.tenants()[0]["id"]
            self.use(stack, expected)
            counts = calls.count_during(lambda: self.use(stack, expected))
            self.assertGreater(counts["malloc"], 20)
            reached = set()

            def attempt(kind, n, from_then):
                calls.arm(kind, n, from_then)
                self.use_during_shortage(stack, calls, expected)
                if calls.failed():
                    reached.add(kind)
                self.assertIsNone(stack.daemon.process.poll(), stack.daemon.stderr())
                self.assertIn(self.survivor, [tenant["id"] for tenant in wait_until("it answers", stack.status)["tenants"]])
                self.assertEqual(stack.start("low", "work", 1).output(), expected)
                self.assertIsNone(left.process.poll())
            self.try_each(counts, attempt)
            self.assertEqual(reached, {kind for kind, n in counts.items() if n})
            left.process.terminate()
            self.assertTrue(left.result()["right"])

    def start(self, stack, calls):
        """Starts a daemon and ends it. Returns its exit status, what it wrote, and whether it served its socket."""
        socket = os.path.join(tempfile.mkdtemp(dir=stack.folder), "hbd.sock")
        status = {"HB_SOCKET": socket}
        daemon = stack.spawn([HBD, "--foreground", "--gpu", "sim", "--socket", socket], **calls.variables)
        wait_until("it serves or has ended", lambda: daemon.process.poll() is not None or os.path.exists(socket))
        served = os.path.exists(socket)
        self.command(stack, "status", "--gpu", "sim", "--json", **status)
        calls.disarm()
        wait_until("it answers or has ended", lambda: daemon.process.poll() is not None or
                   self.command(stack, "status", "--gpu", "sim", "--json", **status).returncode == 0)
        if daemon.process.poll() is None:
            daemon.process.terminate()
        return daemon.ended(), daemon.stderr(), served

    def test_while_it_starts(self):
        calls = self.calls_of("hbd")
        with Stack(scale=0.3, mps=False) as stack:
            counts = calls.count_during(lambda: self.start(stack, calls))
            self.assertGreater(counts["malloc"], 20)

            def attempt(kind, n, from_then):
                calls.arm(kind, n, from_then)
                status, text, served = self.start(stack, calls)
                # Without memory for their first structures, libuv and the C library end the program themselves.
                if kind == "malloc" and not served and status in (-signal.SIGABRT, -signal.SIGSEGV):
                    return
                self.assertIn(status, (0, 1), text)
                self.assertTrue(status == 0 or text.strip(), "no message")
            self.try_each(counts, attempt)


class Shim(Case):
    """The program under the shim computes the same, whatever fails in the shim."""

    def run_programs(self, priority, mps, *arguments):
        calls = self.calls_of("cuda-tenant", "shim/libcuda.so.1")
        with Stack(scale=0.3, mps=mps) as stack:
            expected = stack.bare(*arguments).output()
            stack.start_daemon()

            def run():
                program = stack.start(priority, *arguments, **calls.variables)
                self.assertEqual((program.ended(), program.lines), (0, expected), program.stderr())
            run()
            counts = calls.count_during(run)
            self.assertGreater(sum(counts.values()), 0)

            def attempt(kind, n, from_then):
                calls.arm(kind, n, from_then)
                run()
                if n == 1:
                    self.assertGreater(calls.failed(), 0)
            self.try_each(counts, attempt)
            calls.disarm()

    def test_high_priority(self):
        self.run_programs("high", True, "work", 2)

    def test_low_priority(self):
        self.run_programs("low", True, "work", 2)

    def test_turns(self):
        self.run_programs("low", False, "work", 2)

    def test_children(self):
        self.run_programs("low", False, "child", "fork")


class Server(Case):
    """Requests are answered, perhaps with an error, and never hang; afterwards all are answered well."""

    def status(self, action):
        import http.client  # pylint: disable=import-outside-toplevel
        try:
            status = action()[0]
        except (ConnectionError, http.client.HTTPException):
            return None  # it had no memory for an answer
        self.assertIn(status, (200, 400, 404, 429, 500, 503))
        return status

    def load(self, server):
        with contextlib.suppress(FileNotFoundError):
            os.remove(os.path.join(server.folder, "other/pid"))
        return self.status(lambda: server.call("POST", "/v2/repository/models/other/load"))

    @staticmethod
    def kill_worker(server):
        """Kills the worker of the model that was just loaded, if it runs."""
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            with open(os.path.join(server.folder, "other/pid"), encoding="utf-8") as file:
                os.kill(int(file.read()), signal.SIGKILL)

    def use(self, server):
        """Everything that clients do: requests, and a model that is loaded, whose worker dies, and that is unloaded."""
        self.status(lambda: server.infer("twice"))
        self.status(lambda: server.call("GET", "/v2/health/ready"))
        self.status(lambda: server.call("GET", "/metrics"))
        self.load(server)
        self.status(lambda: server.infer("other"))
        self.kill_worker(server)
        for _ in range(2):  # the first request may be lost with the worker; then the second is for the next worker
            self.status(lambda: server.infer("other"))
        self.status(lambda: server.call("POST", "/v2/repository/models/other/unload"))

    def answers(self, server, model):
        import http.client  # pylint: disable=import-outside-toplevel
        try:
            return server.infer(model)[1]["outputs"][0]["data"] == [2, 4, 6, 8]
        except (ConnectionError, http.client.HTTPException, KeyError):
            return False

    def works(self, server):
        return self.answers(server, "twice") and self.load(server) == 200 and self.answers(server, "other")

    def test_while_it_serves(self):
        import worker_programs  # pylint: disable=import-outside-toplevel
        calls = self.calls_of("hb-serve")
        program = worker_programs.HEAD + """
there("pid", str(os.getpid()))
worker.serve(lambda x: [[2 * value for value in row] for row in x], lists=True)
"""
        with unittest.mock.patch.dict(os.environ, calls.variables):
            server = worker_programs.serve(self, {"twice": ("", program), "other": ("", program)})
        wait_until("it works", lambda: self.works(server))
        self.use(server)
        counts = calls.count_during(lambda: self.use(server))
        self.assertGreater(counts["malloc"], 10)
        for kind in ("memfd_create", "mmap", "open"):
            self.assertGreater(counts[kind], 0, kind)
        self.assertGreater(counts["fork"], 1)  # the worker that is loaded, and the one that replaces it

        def attempt(kind, n, from_then):
            calls.arm(kind, n, from_then)
            timer = threading.Timer(SHORTAGE_S, calls.disarm)
            timer.start()
            self.use(server)
            timer.cancel()
            calls.disarm()
            self.assertIsNone(server.process.poll(), "".join(server.log))
            wait_until("it works again", lambda: self.works(server))
        self.try_each(counts, attempt)


if __name__ == "__main__":
    unittest.main(defaultTest={"daemon": "Daemon", "shim": "Shim", "server": "Server"}[sys.argv[1]], argv=sys.argv[:1])

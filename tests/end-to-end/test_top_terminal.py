#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`hb top` on a terminal: its view of a running stack, its keys, changes of
priority and SLO, a narrow terminal, resizing, no colors."""
import re
import signal
import unittest

from stack import HB, Stack
from terminal import Screen, Terminal

TOP = [HB, "top", "--gpu", "sim", "--interval", "100ms"]


class Running:
    """A stack with one tenant of high and one of low priority, until the end of the block."""

    def __init__(self, **options):
        self.stack = Stack(**options)

    def __enter__(self):
        stack = self.stack.__enter__()
        self.high = stack.start("high", "train", 300, 0, options=("--slo", "10ms"))
        self.low = stack.start("low", "train", 300, 0)
        for program in (self.high, self.low):
            program.expect("running")
        return stack

    def __exit__(self, kind, value, trace):
        if kind is None:
            for program in (self.high, self.low):
                program.signal(signal.SIGTERM)
                program.output()
        return self.stack.__exit__(kind, value, trace)


def tenant_lines(terminal):
    return [line for line in terminal.screen.lines() if re.match(r" *\d+ (high|low|mps) ", line)]


class Top(unittest.TestCase):
    def test_shows_tenants_and_heeds_keys(self):
        with Running(mps=False) as stack, Terminal(TOP, stack.environment) as terminal:
            terminal.wait_for("COMMAND")
            terminal.wait_until("both tenants", lambda: len(tenant_lines(terminal)) == 2)
            terminal.wait_for("1 high, 1 low")
            terminal.wait_until("low has the GPU", lambda: re.search(r"LP active ~?[1-9]", terminal.text()))
            terminal.type("s")
            terminal.wait_for("sort: priority")
            terminal.type("r")
            terminal.wait_for("(reversed)")
            self.assertIn(" low ", tenant_lines(terminal)[0])
            terminal.type("/hig\n")
            terminal.wait_until("the filter leaves one", lambda: len(tenant_lines(terminal)) == 1)
            terminal.type("\n")
            terminal.wait_for("latency of requests")
            terminal.wait_for("compute slice")
            terminal.type("\x1b")
            terminal.wait_for("COMMAND")
            titles = next(line for line in terminal.screen.lines() if "COMMAND" in line).split()
            terminal.type("h")
            terminal.wait_for("change its SLO")
            terminal.type("h")
            terminal.wait_for("line of a GPU: processes")
            explained = {line.split()[0] for line in terminal.screen.lines() if line.strip()}
            self.assertGreater(len(titles), 5)
            self.assertLessEqual(set(titles), explained, "each column on the screen has a help line")
            terminal.type("h")
            terminal.wait_without("line of a GPU: processes")
            self.check_changes(stack, terminal)
            terminal.type("q")
            self.assertEqual(terminal.ended(), 0)
            self.assertFalse(terminal.screen.alternate, "the terminal is not as it was")

    def check_changes(self, stack, terminal):
        terminal.type("o5ms\n")
        terminal.wait_for("was changed")
        tenant = next(t for t in stack.tenants() if t["priority"] == "high")
        self.assertEqual(tenant["slo_asked_ns"], 5_000_000)
        terminal.wait_for("5.00ms")
        terminal.type("osoon\n")
        terminal.wait_for("'soon' is no objective")
        self.assertEqual([t["slo_asked_ns"] for t in stack.tenants() if t["priority"] == "high"], [5_000_000])

    def test_a_narrow_terminal_and_resizing(self):
        with Running() as stack, Terminal(TOP, stack.environment, columns=40, rows=8) as terminal:
            terminal.wait_for("COMMAND")
            self.assertNotIn("P99", terminal.text())
            terminal.wait_until("nothing is cut in the middle", lambda: re.search(r"LP active \S+$", terminal.screen.lines()[1]))
            terminal.type("h")
            terminal.wait_for("latency histogram; Enter or Esc:")
            terminal.type("h")
            terminal.wait_for("number of the tenant")
            terminal.type("h")
            terminal.resize(140, 30)
            terminal.wait_for("PREEMPT/S")
            terminal.resize(20, 4)
            terminal.wait_without("PREEMPT/S")
            terminal.resize(80, 24)
            terminal.wait_for("P99")
            terminal.type("q")
            self.assertEqual(terminal.ended(), 0)

    def test_a_tenant_shows_where_its_objective_lies(self):
        with Stack() as stack:
            stack.start_daemon()
            service = stack.start("high", "infer", "--rate", 100, "--seconds", 3600, "--kernels", 8, options=("--slo", "1us"))
            with Terminal(TOP, stack.environment, columns=60, rows=40) as terminal:
                terminal.wait_until("it is there", lambda: len(tenant_lines(terminal)) == 1)
                self.assertIn(" cuda-tenant i", terminal.text())
                self.assertNotIn("/cuda-tenant", terminal.text())
                terminal.type("\n")
                terminal.wait_until("all is above it", lambda: re.search(r"samples\s+1\.00us -+ SLO\s", terminal.text()))
                terminal.wait_for("missed ")
                terminal.wait_until("p99 is drawn", lambda: re.search(r"p99 +[\u2581-\u2588]+ up to \d", terminal.text()))
                terminal.type("o1h\n")
                terminal.wait_until("all is below it", lambda: "SLO 3600s" in terminal.text() and "-- SLO" not in terminal.text())
                terminal.type("q")
                self.assertEqual(terminal.ended(), 0)
            service.signal(signal.SIGTERM)
            service.ended()

    def test_works_without_colours(self):
        colors = set(range(30, 38)) | set(range(90, 98)) | {38}
        for term, variables in (("vt100", {}), ("xterm-256color", {"NO_COLOR": "1"})):
            with Running() as stack, Terminal(TOP, stack.environment | variables, term=term) as terminal:
                terminal.wait_until("both tenants", lambda: len(tenant_lines(terminal)) >= 2)
                terminal.wait_for("GPU 0: 1 high, 1 low")
                terminal.type("q")
                self.assertEqual(terminal.ended(), 0)
                self.assertFalse(terminal.screen.colors & colors)

    def test_a_daemon_that_goes_away_is_told(self):
        with Stack() as stack:
            stack.start_daemon()
            with Terminal(TOP, stack.environment) as terminal:
                terminal.wait_for("COMMAND")
                stack.daemon.signal(signal.SIGTERM)
                stack.daemon.ended()
                terminal.wait_for("no daemon answers")
                terminal.type("q")
                self.assertEqual(terminal.ended(), 0)

    def test_a_terminal_that_is_not_known_is_told(self):
        with Stack() as stack:
            stack.start_daemon()
            with Terminal(TOP, stack.environment, term="no-such-terminal") as terminal:
                terminal.wait_for("hb top --once")
                self.assertNotEqual(terminal.ended(), 0)


class OurTerminal(unittest.TestCase):
    """Tests of the terminal that these tests use."""

    def test_moves_erases_and_scrolls(self):
        screen = Screen(10, 3)
        self.assertEqual(screen.feed(b"one\r\ntwo\x1b[1;5Hx\x1b[2;2H\x1b[K\x1b[3;1Hend\r\n\x1b"), b"\x1b")
        self.assertEqual(screen.lines(), ["t", "end", ""])
        screen.feed(b"\x1b[2;2H\x1b7\x1b[1;2r\x1b8+\x1b[1;1H\x1bM")
        self.assertEqual(screen.lines(), ["", "t", ""])

    def test_what_it_does_not_know_is_an_error(self):
        with self.assertRaises(AssertionError):
            Screen(10, 3).feed(b"\x1b[5Z")


if __name__ == "__main__":
    unittest.main()

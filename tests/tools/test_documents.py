#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the command blocks of README.md and docs/quick-start.md in a copy of the tree, with a simulated GPU.

usage: test_documents.py SOURCE [BUILD]

Each document has one shell, which gets its blocks in their order. A block in `sh` or `bash` is a list of commands; each must
succeed. In a block in `console` a command follows "$ ", and what it prints follows the command. The printed text must have the
documented form: numbers, paths and names of users may be others, and a line "..." stands for any lines. `hb status` and
`hb top` are repeated until they have it, because the programs that they show may still be starting.

A block after a comment "not run: REASON" is counted and not run. With BUILD the copy uses that build folder, so ./demo.sh
builds nothing; without it, it builds.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

DOCUMENTS = ("README.md", "docs/quick-start.md")
NOT_COMMANDS = ("yaml", "json", "python", "c", "text")
PATIENCE_S = 60
REPEATED = ("hb status", "hb top")
FENCE = re.compile(r"(?:<!-- not run: ([^\n]+) -->\n)?^```(\w*)\n(.*?)^```$", re.M | re.S)
SHELL = ["/bin/bash", "--noprofile", "--norc"]


def commands_of(language, text):
    """Returns [(command, lines that are printed; None = not documented)]."""
    found = []
    for line in re.sub(r"\\\n\s*", "", text).splitlines():
        if language != "console":
            found += [(line, None)] if line.strip() and not line.startswith("#") else []
        elif line.startswith("$ "):
            found.append((line[2:], []))
        elif not found:
            raise ValueError(f"a console block begins with {line!r}, which is no command")
        else:
            found[-1][1].append(line)
    return found


def form_of(line):
    """The line without what differs from run to run: numbers, paths, names of users, widths of columns."""
    line = re.sub(r"(?<![\w.])/[\w./-]+", "PATH", line)
    line = re.sub(r"\b(high|low) +\d+ +\w+ ", r"\1 N USER ", line)
    line = re.sub(r"\d+(\.\d+)?([KMG]iB|B|[mun]?s)?\b", "N", line)
    return " ".join(line.split())


def has_form(printed, documented):
    """Whether the lines match; "..." matches any number of lines."""
    pattern = "".join(r"(?:.*\n)*?" if line.strip() == "..." else re.escape(form_of(line)) + r"\n" for line in documented)
    return re.fullmatch(pattern, "".join(form_of(line) + "\n" for line in printed)) is not None


class Shell:
    """A shell that runs one command after the other; background jobs continue."""

    def __init__(self, folder, environment):
        self.process = subprocess.Popen(SHELL, cwd=folder, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, text=True, start_new_session=True)

    def run(self, command):
        """Returns the exit status and the lines that were printed."""
        end = f"--- end of command {time.monotonic_ns()}:"
        # The command reads no standard input: what follows there is for the shell. Braces on lines of their own allow a comment.
        self.process.stdin.write(f"{{\n{command}\n}} </dev/null\necho '{end}' $?\n")
        self.process.stdin.flush()
        lines = []
        for line in self.process.stdout:
            before, found, status = line.rstrip("\n").partition(end)
            if before or not found:
                lines.append(before)
            if found:
                return int(status), lines
        raise AssertionError(f"the shell ended in {command!r}: {lines}")

    def close(self):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


class Documents(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="hb-documents-")
        cls.tree, runtime = os.path.join(cls.folder, "hummingbird"), os.path.join(cls.folder, "run")
        shutil.copytree(SOURCE, cls.tree, symlinks=True, ignore=shutil.ignore_patterns("build*", ".git", "__pycache__"))
        if BUILD:
            os.symlink(BUILD, os.path.join(cls.tree, "build"))
        os.mkdir(runtime, 0o700)
        cls.environment = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": cls.folder, "USER": "ann",
                           "XDG_RUNTIME_DIR": runtime, "HB_SIM_GPU": os.path.join(cls.folder, "gpu"), "LC_ALL": "C.UTF-8",
                           "HB_DEMO_SECONDS": "1"}

    @classmethod
    def tearDownClass(cls):
        for process in os.listdir("/proc"):
            try:
                with open(f"/proc/{process}/environ", "rb") as file:
                    if f"XDG_RUNTIME_DIR={cls.environment['XDG_RUNTIME_DIR']}\0".encode() in file.read():
                        os.kill(int(process), 15)
            except (OSError, ValueError):
                pass
        shutil.rmtree(cls.folder, ignore_errors=True)

    def run_command(self, shell, command, documented):
        until = time.monotonic() + PATIENCE_S
        while True:
            status, printed = shell.run(command)
            good = status == 0 and (documented is None or has_form(printed, documented))
            if good or not command.startswith(REPEATED) or time.monotonic() > until:
                break
            time.sleep(0.2)
        self.assertEqual(status, 0, f"{command}\nfailed and printed:\n" + "\n".join(printed))
        self.assertTrue(good, f"{command}\nprinted:\n" + "\n".join(printed) + "\n\nwhere the document has:\n" + "\n".join(documented or []))

    def run_document(self, name):
        with open(os.path.join(SOURCE, name), encoding="utf-8") as file:
            blocks = FENCE.findall(file.read())
        ran, left_out = 0, []
        shell = Shell(self.tree, self.environment)
        self.addCleanup(shell.close)
        for reason, language, text in blocks:
            self.assertIn(language, ("sh", "bash", "console") + NOT_COMMANDS, f"{name}: a block names no language:\n{text}")
            if language in NOT_COMMANDS:
                continue
            commands = commands_of(language, text)
            if reason:
                left_out += [f"{len(commands)}: {reason}"]
                continue
            for command, documented in commands:
                with self.subTest(command=command):
                    self.run_command(shell, command, documented)
                    ran += 1
        print(f"{name}: {ran} commands ran; not run: {'; '.join(left_out) or 'none'}")
        self.assertGreater(ran, 0)

    def test_the_commands_of_the_documents_do_what_the_documents_say(self):
        for name in DOCUMENTS:
            with self.subTest(document=name):
                self.run_document(name)

    def test_a_failing_command_and_another_form_are_noticed(self):
        shell = Shell(self.tree, self.environment)
        self.addCleanup(shell.close)
        self.run_command(shell, "echo p50 3.4 ms", ["p50 1 ms"])
        self.run_command(shell, "printf 'a\\nb\\n\\nlast 1\\n'  # a comment", ["a", "...", "last 22"])
        for command, documented in (("false", None), ("echo p50 3.4 s", ["p50 1 ms"]), ("echo a; echo b", ["a"]), ("true", ["a", "..."])):
            with self.assertRaises(AssertionError):
                self.run_command(shell, command, documented)


if __name__ == "__main__":
    SOURCE = os.path.abspath(sys.argv[1])
    BUILD = os.path.abspath(sys.argv[2]) if len(sys.argv) > 2 else None
    unittest.main(argv=sys.argv[:1])

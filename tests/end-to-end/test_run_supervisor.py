# SPDX-License-Identifier: Apache-2.0
"""A low-priority command in the MPS server runs under a supervisor, and nobody notices: exit status, signals, job
control of a shell on a terminal, pipelines, sessions, files and environment are as without one. Each test of the
terminal types into a real bash with job control.

Old behaviour: hb executed the command itself. The tests of this file that only compare would pass with it; those that
look for the supervisor (`supervisor_of`) and those of its memory fail.
"""
import ctypes
import os
import pty
import re
import resource
import select
import signal
import subprocess
import sys
import time
import unittest

import stack

LOW = [stack.HB, "run", "--gpu", "sim", "--priority", "low", "--"]
PYTHON = [sys.executable, "-S", "-c"]
SANITIZED = any(name in os.environ for name in ("ASAN_OPTIONS", "TSAN_OPTIONS"))
# Says the name of each signal that arrives.
SAY_SIGNALS = """
import os, signal, sys, time
def say(number, frame):
    os.write(1, f"got {signal.Signals(number).name}\\n".encode())
    if number in (signal.SIGTERM, signal.SIGINT):
        sys.exit(5)
for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1", "SIGWINCH"):
    signal.signal(getattr(signal, name), say)
print("ready", flush=True)
while True:
    time.sleep(1)
"""


def children_of(pid):
    with open(f"/proc/{pid}/task/{pid}/children", encoding="utf-8") as file:
        return [int(child) for child in file.read().split()]


def name_of(pid):
    with open(f"/proc/{pid}/comm", encoding="utf-8") as file:
        return file.read().strip()


def state_of(pid):
    """A letter as in ps: T is stopped."""
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        return file.read().rpartition(")")[2].split()[0]


class Shell:
    """An interactive bash on a terminal of its own."""

    def __init__(self, one):
        self.said, self.seen = "", 0
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execvpe("bash", ["bash", "--norc", "--noprofile", "--noediting", "-i"],
                       one.environment | {"TERM": "dumb", "PS1": "PROMPT ", "LOW": " ".join(LOW)})
        self.expect("PROMPT ")

    def read(self, seconds):
        if not select.select([self.fd], [], [], seconds)[0]:
            return
        try:
            self.said += os.read(self.fd, 65536).decode("utf-8", "replace")
        except OSError:
            raise AssertionError(f"the shell has ended:\n{self.said}") from None

    def expect(self, pattern):
        """Waits for output that fits and was not expected before. Returns the match."""
        end = time.monotonic() + stack.LIMIT
        while True:
            match = re.compile(pattern).search(self.said, self.seen)
            if match:
                self.seen = match.end()
                return match
            if time.monotonic() > end:
                raise AssertionError(f"never: {pattern}\n{self.said[self.seen:]}\n--- all:\n{self.said}")
            self.read(0.05)

    def type(self, text):
        os.write(self.fd, text.encode())

    def do(self, line):
        self.type(line + "\n")
        self.expect(re.escape(line) + r"\r\n")

    def status(self):
        self.do("echo status=$?")
        return int(self.expect(r"status=(\d+)")[1])

    def ask(self, line):
        """The output of a command."""
        self.do(line)
        return self.expect(r"(?s)(.*?)PROMPT ")[1].replace("\r", "").strip()

    def close(self):
        os.close(self.fd)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


class Supervised(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.one = stack.Stack()
        try:
            # Starts the daemon and the MPS server.
            subprocess.run([*LOW, "true"], env=cls.one.environment, check=True, capture_output=True, timeout=stack.LIMIT)
        except BaseException:
            cls.one.__exit__(True, None, None)
            raise

    @classmethod
    def tearDownClass(cls):
        cls.one.__exit__(None, None, None)

    def run_low(self, *command, **options):
        return subprocess.run([*LOW, *command], env=self.one.environment, capture_output=True, text=True,
                              timeout=stack.LIMIT, check=False, **options)

    def start_low(self, *command):
        """Starts a command that says "ready"; checks that it has a supervisor. Returns the program and the command's pid."""
        program = self.one.spawn([*LOW, *command])
        program.expect("ready")
        self.assertEqual(name_of(program.pid), "hb-supervisor")
        [child] = children_of(program.pid)
        return program, child

    def wait_for_foreground(self):
        """Until the supervisor's group has the terminal, and gets the signals of keys."""
        [supervisor] = [pid for pid, name in self.one.processes().items() if name == "hb-supervisor"]
        stack.wait_until("the supervisor has the terminal", lambda: foreground(supervisor) == os.getpgid(supervisor))

    def shell(self):
        shell = Shell(self.one)
        self.addCleanup(shell.close)
        return shell

    # --- exit status -----------------------------------------------------------------------------

    def test_exit_status(self):
        for status in (0, 1, 7, 255):
            self.assertEqual(self.run_low("sh", "-c", f"exit {status}").returncode, status)
        self.assertEqual(self.run_low("/nowhere").returncode, 127)
        self.assertEqual(self.run_low("/dev/null").returncode, 126)

    def test_death_by_a_signal(self):
        for name in ("SIGTERM", "SIGKILL", "SIGSEGV", "SIGABRT", "SIGHUP", "SIGPIPE", "SIGUSR1"):
            number = getattr(signal, name)
            done = self.run_low("sh", "-c", f"kill -{int(number)} $$")
            self.assertEqual(done.returncode, -number, name)

    def test_only_the_command_leaves_a_core(self):
        """The supervisor ends by the same signal, without a core of its own."""
        most = resource.getrlimit(resource.RLIMIT_CORE)[1]
        program = subprocess.Popen([*LOW, "sh", "-c", "echo ready; exec sleep 1000"], env=self.one.environment,
                                   cwd=self.one.folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                   preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CORE, (most, most)))
        self.assertEqual(program.stdout.read(6), b"ready\n")
        program.send_signal(signal.SIGQUIT)
        ended = []
        stack.wait_until("it ends", lambda: ended.append(os.waitpid(program.pid, os.WNOHANG)) or ended[-1][0])
        status = ended[-1][1]
        program.returncode = -signal.SIGQUIT
        program.stdout.close()
        self.assertTrue(os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGQUIT)
        self.assertFalse(os.WCOREDUMP(status))

    # --- signals ---------------------------------------------------------------------------------

    def test_a_caught_signal_arrives_as_it_is(self):
        program, _ = self.start_low(*PYTHON, SAY_SIGNALS)
        for name in ("SIGHUP", "SIGUSR1", "SIGWINCH"):
            program.signal(getattr(signal, name))
            program.expect(f"got {name}")
        program.signal(signal.SIGTERM)
        program.expect("got SIGTERM")
        self.assertEqual(program.ended(), 5)

    def test_a_deadly_signal_ends_both_and_the_commands_children(self):
        program, child = self.start_low("sh", "-c", "sleep 1000 & echo ready; wait; echo not here")
        [grandchild] = children_of(child)
        program.signal(signal.SIGTERM)
        self.assertEqual(program.ended(), -signal.SIGTERM)
        stack.wait_until("the child of the command has ended", lambda: not os.path.exists(f"/proc/{grandchild}"))

    def test_a_value_sent_with_a_signal_arrives(self):
        program, _ = self.start_low(*PYTHON, """
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
print("ready", flush=True)
info = signal.sigwaitinfo([signal.SIGUSR2])
print("code", info.si_code, flush=True)
""")
        # Python has no function for this, and a minimal system no kill command that can queue a value.
        self.assertEqual(ctypes.CDLL(None).sigqueue(program.pid, signal.SIGUSR2, ctypes.c_void_p(77)), 0)
        self.assertEqual(program.output()[-1], "code -1")

    def test_a_stopped_daemon_does_not_keep_a_signal_back(self):
        with stack.Stack() as other:
            daemon = other.start_daemon()
            program = other.spawn([*LOW, "sh", "-c", "echo ready; exec sleep 1000"])
            program.expect("ready")
            self.assertEqual(name_of(program.pid), "hb-supervisor")
            daemon.signal(signal.SIGSTOP)
            program.signal(signal.SIGTERM)
            self.assertEqual(program.ended(), -signal.SIGTERM)
            daemon.signal(signal.SIGCONT)

    def test_ignored_signals_stay_ignored(self):
        program = self.one.spawn(["nohup", *LOW, "sh", "-c", "echo ready; read x; echo still here"])
        program.expect("ready")
        program.signal(signal.SIGHUP)
        program.go()
        self.assertEqual(program.output()[-1], "still here")

    def test_timeout(self):
        begin = time.monotonic()
        done = subprocess.run(["timeout", "1", *LOW, "sleep", "1000"], env=self.one.environment, timeout=stack.LIMIT,
                              capture_output=True, check=False)
        self.assertEqual(done.returncode, 124)
        self.assertGreater(time.monotonic() - begin, 0.9)

    # --- files, environment, memory --------------------------------------------------------------

    def test_input_and_output_pass_through(self):
        text = "line\n" * 100000
        self.assertEqual(self.run_low("cat", input=text).stdout, text)

    def test_the_supervisor_keeps_no_file_open(self):
        """A reader sees the end of a pipe as soon as the command closes it; a folder can be unmounted."""
        ends = os.pipe()
        program = subprocess.Popen([*LOW, "bash", "-c", f"exec {ends[1]}>&- >&-; sleep 1000"], env=self.one.environment,
                                   stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, pass_fds=[ends[1]])
        self.addCleanup(program.wait)
        self.addCleanup(program.terminate)
        os.close(ends[1])
        for end in (program.stdout.fileno(), ends[0]):
            self.assertTrue(select.select([end], [], [], stack.LIMIT)[0], "never the end of a file")
            self.assertEqual(os.read(end, 10), b"")
        os.close(ends[0])
        program.stdout.close()
        self.assertEqual(os.readlink(f"/proc/{program.pid}/cwd"), "/")

    def test_variables_that_name_the_process(self):
        """systemd names the process that may use descriptors and the watchdog."""
        program = self.one.spawn(["sh", "-c", 'export LISTEN_PID=$$ WATCHDOG_PID=1; exec "$@"', "sh", *LOW,
                                  "sh", "-c", "echo $LISTEN_PID $$ $WATCHDOG_PID"])
        listen, own, watchdog = program.output()[-1].split()
        self.assertEqual((listen, watchdog), (own, "1"))

    def test_only_these_variables_differ(self):
        inside = dict(line.split("=", 1) for line in self.run_low("env", "-0").stdout.split("\0") if line)
        differ = {name for name in inside.keys() | self.one.environment.keys()
                  if inside.get(name) != self.one.environment.get(name)}
        self.assertEqual({name for name in differ if not name.startswith("HB_")} - {"_", "PWD", "SHLVL", "OLDPWD"},
                         {"LD_LIBRARY_PATH", "CUDA_MPS_PIPE_DIRECTORY"})

    @unittest.skipIf(SANITIZED, "the sanitizer's memory would be counted")
    def test_memory(self):
        program, _ = self.start_low("sh", "-c", "echo ready; sleep 1000")
        with open(f"/proc/{program.pid}/smaps_rollup", encoding="utf-8") as file:
            sizes = {line.split()[0]: int(line.split()[1]) for line in file if line.endswith("kB\n")}
        program.signal(signal.SIGTERM)
        program.ended()
        self.assertLess(sizes["Private_Dirty:"] + sizes["Private_Clean:"], 400)

    def test_no_zombie_stays(self):
        """The supervisor of a container is its process 1, and gets children of others."""
        code = ("import ctypes, os, sys; ctypes.CDLL(None).prctl(36, 1); "  # PR_SET_CHILD_SUBREAPER is kept by exec
                "os.execv(sys.argv[1], sys.argv[1:])")
        program = self.one.spawn([*PYTHON, code, *LOW, "sh", "-c", "(sleep 0.1 &) ; echo ready; sleep 1000"])
        program.expect("ready")
        # The orphan is a copy of the shell until it executes sleep.
        stack.wait_until("the orphan is gone", lambda: len(children_of(program.pid)) == 1)
        self.assertEqual([name_of(child) for child in children_of(program.pid)], ["sh"])
        program.signal(signal.SIGTERM)
        program.ended()

    # --- a shell on a terminal -------------------------------------------------------------------

    def test_ctrl_c_ends_a_command_that_does_not_catch_it(self):
        shell = self.shell()
        shell.do("$LOW sh -c 'echo re''ady; exec sleep 1000; echo not here'")
        shell.expect("ready")
        shell.type("\x03")
        shell.expect("PROMPT ")
        self.assertEqual(shell.status(), 128 + signal.SIGINT)
        self.assertNotIn("\nnot here", shell.said)

    def test_ctrl_c_reaches_a_command_that_catches_it(self):
        shell = self.shell()
        shell.do(f"$LOW {sys.executable} -S {self.script(CATCH)}")
        shell.expect("ready")
        shell.type("\x03")
        shell.expect("checkpoint")
        shell.expect("PROMPT ")
        self.assertEqual(shell.status(), 5)

    def script(self, text):
        path = os.path.join(self.one.folder, f"script-{abs(hash(text))}.py")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def test_ctrl_backslash(self):
        shell = self.shell()
        shell.do("ulimit -c 0; $LOW sh -c 'echo re''ady; exec sleep 1000'")
        shell.expect("ready")
        shell.type("\x1c")
        shell.expect("PROMPT ")
        self.assertEqual(shell.status(), 128 + signal.SIGQUIT)

    def test_ctrl_z_background_foreground(self):
        shell = self.shell()
        shell.do(f"$LOW {sys.executable} -S {self.script(COUNT)}")
        pid = int(shell.expect(r"ready (\d+)")[1])
        for _ in range(3):
            shell.type("\x1a")
            shell.expect(r"\[1\]\+ +Stopped")
            stack.wait_until("the command is stopped", lambda: state_of(pid) == "T")
            shell.expect("PROMPT ")
            shell.do("bg")
            shell.expect("PROMPT ")  # else the next output would seem to end here
            stack.wait_until("the command continues", lambda: state_of(pid) != "T")
            self.assertIn("Running", shell.ask("jobs"))
            shell.do("fg")
            self.wait_for_foreground()
            os.kill(pid, signal.SIGUSR1)
            shell.expect("counted")
        shell.type("\x03")
        shell.expect("PROMPT ")
        self.assertEqual(shell.status(), 128 + signal.SIGINT)

    def test_a_command_that_stops_itself(self):
        shell = self.shell()
        shell.do("$LOW sh -c 'kill -TSTP 0; echo aw''ake'")
        shell.expect(r"\[1\]\+ +Stopped")
        shell.do("fg")
        shell.expect("awake")
        shell.expect("PROMPT ")

    def test_a_command_reads_from_the_terminal(self):
        shell = self.shell()
        shell.do("$LOW sh -c 'read a; echo first $a; read b; echo second $b; sleep 1000'")
        shell.type("one\n")
        shell.expect("first one")
        shell.type("two\n")
        shell.expect("second two")
        self.wait_for_foreground()
        shell.type("\x03")
        shell.expect("PROMPT ")
        self.assertEqual(shell.status(), 128 + signal.SIGINT)

    def test_a_reader_in_the_background_is_stopped(self):
        shell = self.shell()
        shell.do("$LOW sh -c 'read a; echo first $a' &")
        shell.expect("PROMPT ")
        stack.wait_until("bash says so", lambda: "Stopped" in shell.ask("jobs"))
        shell.do("fg")
        shell.type("one\n")
        shell.expect("first one")
        shell.expect("PROMPT ")

    def test_a_command_changes_the_terminal(self):
        shell = self.shell()
        self.assertIn(" echo", shell.ask("stty -a"))
        shell.do("$LOW stty -echo")
        shell.expect("PROMPT ")
        shell.type("stty -a\n")
        shell.expect(r"-echo\b")
        shell.expect("PROMPT ")

    def test_a_shell_inside(self):
        """A command that is itself a shell with job control."""
        shell = self.shell()
        shell.do("PS1='INNER ' $LOW bash --norc --noprofile --noediting -i")
        shell.expect("INNER ")
        time.sleep(0.5)  # longer than the supervisor waits before it takes a terminal back
        shell.do("sh -c 'echo re''ady; exec sleep 1000'")
        shell.expect("ready")
        shell.type("\x1a")
        shell.expect(r"\[1\]\+ +Stopped")
        shell.do("fg")
        shell.expect("sleep 1000")
        time.sleep(0.5)  # longer than the supervisor waits before it takes a terminal back
        shell.type("\x03")
        shell.expect("INNER ")
        shell.do("exit 3")
        shell.expect("PROMPT ")
        self.assertEqual(shell.status(), 3)

    def test_pipelines(self):
        shell = self.shell()
        self.assertEqual(shell.ask("seq 3 | $LOW cat 2>/dev/null | tac | tr '\\n' ,"), "3,2,1,")
        shell.do("$LOW sh -c 'echo re''ady; exec sleep 1000' | cat")
        shell.expect("ready")
        shell.type("\x1a")
        shell.expect(r"\[1\]\+ +Stopped")
        shell.do("fg")
        self.wait_for_foreground()
        shell.type("\x03")
        shell.expect("PROMPT ")
        self.assertEqual(shell.status(), 128 + signal.SIGINT)

    def test_kill_of_a_job(self):
        shell = self.shell()
        shell.do("$LOW sh -c 'sleep 1000 & echo re''ady; wait' &")
        shell.expect("ready")
        shell.do("kill %1; wait %1")
        self.assertEqual(shell.status(), 128 + signal.SIGTERM)

    def test_a_session_without_a_shell(self):
        """Without a shell no process could continue a stopped job, so Ctrl-Z does nothing, as for any program there."""
        pid, fd = pty.fork()
        if pid == 0:
            os.execvpe(LOW[0], [*LOW, sys.executable, "-S", self.script(COUNT)], self.one.environment)
        said = b""
        def wait_for(word, again=lambda: None):
            nonlocal said
            end = time.monotonic() + stack.LIMIT
            while word not in said:
                self.assertLess(time.monotonic(), end, said)
                if select.select([fd], [], [], 0.2)[0]:
                    said += os.read(fd, 1000)
                else:
                    again()
        wait_for(b"ready")
        command = int(re.search(rb"ready (\d+)", said)[1])
        os.write(fd, b"\x1a")
        # The terminal discards output that has not been read when it sees Ctrl-Z, so the first answer may be lost.
        wait_for(b"counted", lambda: os.kill(command, signal.SIGUSR1))
        os.write(fd, b"\x03")
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), -signal.SIGINT, said)
        os.close(fd)


# These programs sleep briefly, because Python notices a signal that arrives just before a sleep only after the sleep.
CATCH = """
import time
try:
    print("ready", flush=True)
    while True:
        time.sleep(0.1)
except KeyboardInterrupt:
    print("checkpoint", flush=True)
    raise SystemExit(5)
"""
COUNT = """
import os, signal, time
signal.signal(signal.SIGINT, signal.SIG_DFL)
signal.signal(signal.SIGUSR1, lambda *_: os.write(1, b"counted\\n"))
print("ready", os.getpid(), flush=True)
while True:
    time.sleep(0.1)
"""


def foreground(pid):
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        return int(file.read().rpartition(")")[2].split()[5])


if __name__ == "__main__":
    unittest.main()

# SPDX-License-Identifier: Apache-2.0
"""Runs the complete stack on a simulated GPU of its own: hb, hbd, shim, simulated
driver, simulated MPS and real processes, in one folder.

    with Stack() as stack:
        low = stack.start("low", "train", 200, 0)
        low.expect("running")
        ...

Leaving the block checks what every test promises: all tenants were waited for,
the daemon lists none of them, its memory accounts are zero, and after its end no
process, socket or page of the stack is left. No test sleeps for a fixed time:
wait_until() polls a condition, and LIMIT only ends a test that hangs.

Imported by the tests of this folder and of tests/fault, and by
bench/side_by_side.py, which may also run on a real GPU. HB_BUILD names the
build folder.
"""
import contextlib
import json
import os
import queue
import shutil
import signal
import subprocess
import tempfile
import threading
import time

import raw_client

BUILD = os.environ["HB_BUILD"]
HB = os.path.join(BUILD, "hb")
HBD = os.path.join(BUILD, "src/daemon/hbd")
TENANT = os.path.join(BUILD, "bench/tenant/cuda-tenant")
TENANT_LINKED = TENANT + "-linked"
SIMCUDA = os.path.join(BUILD, "src/simcuda")
SHIM = os.path.join(BUILD, "src/shim")

# Seconds after which a condition counts as never true, also with sanitizers on a busy machine.
LIMIT = 120
STATUS_LIMIT = 10  # HB_ANSWER_LIMIT_MS of `hb status`
# nohup and the background jobs of a shell ignore these signals. The programs of the tests would inherit that.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)
KEPT_VARIABLES = ("PATH", "ASAN_OPTIONS", "LSAN_OPTIONS", "TSAN_OPTIONS", "UBSAN_OPTIONS")


def wait_until(what, condition, limit=LIMIT):
    """Polls the condition, more rarely as time goes by, and returns its first true value."""
    begin = time.monotonic()
    while True:
        value = condition()
        if value:
            return value
        waited = time.monotonic() - begin
        if waited > limit:
            raise AssertionError(f"not within {limit} s: {what}")
        time.sleep(min(0.005 + waited / 10, 0.03))


def ask_status(path):
    """The status of the daemon with this socket; None without a daemon. Conditions poll it, so it starts no process."""
    try:
        with raw_client.connect(path, STATUS_LIMIT) as client:
            return raw_client.status(client)
    except (OSError, RuntimeError):  # no daemon, or one that refuses
        return None


def tenants_of(status):
    return [tenant for tenant in status["tenants"] if tenant["priority"] != "mps server"]


def end_well(*programs):
    """Ends trainings with SIGTERM and checks that their results are right. Returns the results."""
    results = []
    for program in programs:
        program.signal(signal.SIGTERM)
        results.append(program.result())
        assert results[-1]["right"], f"{program.command}\n{program.stderr()}"
    return results


class Program:
    """A process of the test. A thread reads its lines as they arrive."""

    def __init__(self, command, environment, pass_fds=()):
        self.command = " ".join(str(word) for word in command)
        self.errors = tempfile.TemporaryFile()
        self.process = subprocess.Popen([str(word) for word in command], env=environment, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=self.errors, text=True, bufsize=1,
                                        pass_fds=pass_fds)
        self.pid = self.process.pid
        self.lines = []
        self.queue = queue.Queue()
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            self.queue.put(line.rstrip("\n"))
        self.queue.put(None)

    def line(self):
        """Returns the next line; None at the end."""
        try:
            line = self.queue.get(timeout=LIMIT)
        except queue.Empty:
            raise AssertionError(f"hangs: {self.command}\nsaid: {self.lines}\n{self.stderr()}") from None
        if line is not None:
            self.lines.append(line)
        else:
            self.queue.put(None)
        return line

    def expect(self, word):
        """Reads up to a line that begins with the word."""
        while (line := self.line()) is not None:
            if line.startswith(word):
                return line
        raise AssertionError(f"ended with {self.process.wait()} before '{word}': {self.command}\n"
                             f"said: {self.lines}\n{self.stderr()}")

    def family(self):
        """The pids of the program and of its children: `hb run` of low priority may stay as the supervisor of its command."""
        try:
            with open(f"/proc/{self.pid}/task/{self.pid}/children", encoding="utf-8") as file:
                return {self.pid, *map(int, file.read().split())}
        except FileNotFoundError:
            return {self.pid}

    def go(self):
        """Lets the program continue that waits for the test."""
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def signal(self, number):
        self.process.send_signal(number)

    def ended(self):
        """Reads to the end and returns the exit status; negative for a signal."""
        while self.line() is not None:
            pass
        try:
            return self.process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"hangs: {self.command}\n{self.stderr()}") from None

    def output(self):
        """Returns all lines until the end, and checks that the exit status is 0."""
        status = self.ended()
        assert status == 0, f"status {status}: {self.command}\nsaid: {self.lines}\n{self.stderr()}"
        return self.lines

    def result(self):
        """Parses the last line as a JSON object."""
        return json.loads(next(line for line in reversed(self.output()) if line.startswith("{")))

    def stderr(self):
        self.errors.seek(0)
        return self.errors.read().decode("utf-8", "backslashreplace")

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.reader.join(LIMIT)
        self.process.stdout.close()
        self.errors.close()


class Stack:
    def __init__(self, scale=1, gpus=1, mps=True, config="", simulated=True, **variables):
        self.gpu_options = ["--gpu", "sim"] if simulated else []
        self.bare_variables = {"LD_LIBRARY_PATH": SIMCUDA} if simulated else {}
        self.folder = tempfile.mkdtemp(prefix="hb-stack-", dir="/tmp")
        self.gpu_folder = os.path.join(self.folder, "gpu")
        self.programs = []
        self.daemon = None
        self.environment = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
        self.environment |= {
            "HOME": self.folder, "XDG_RUNTIME_DIR": self.folder, "LC_ALL": "C.UTF-8",
            "HB_SOCKET": os.path.join(self.folder, "hbd.sock"),
            "HB_SIM_GPU": self.gpu_folder, "HB_SIM_SCALE": str(scale), "HB_SIM_GPUS": str(gpus),
        } | variables
        # Without this every process of a stack would sleep a second at its end.
        self.environment["TSAN_OPTIONS"] = self.environment.get("TSAN_OPTIONS", "") + ":atexit_sleep_ms=0"
        os.makedirs(os.path.join(self.folder, ".config/hummingbird"))
        self.configure(f"mps: {str(mps).lower()}\n{config}")

    def configure(self, text):
        """Writes the configuration. A running daemon reads it only after SIGHUP."""
        with open(os.path.join(self.folder, ".config/hummingbird/hummingbird.yaml"), "w", encoding="utf-8") as file:
            file.write(text)

    # --- programs -------------------------------------------------------------------------

    def spawn(self, command, pass_fds=(), **variables):
        program = Program(command, self.environment | variables, pass_fds)
        self.programs.append(program)
        return program

    def start(self, priority, *arguments, options=(), program=TENANT, **variables):
        """Starts cuda-tenant under `hb run`."""
        return self.spawn([HB, "run", *self.gpu_options, "--priority", priority, *options, "--", program, *arguments],
                          **variables)

    def bare(self, *arguments, program=TENANT, **variables):
        """Starts cuda-tenant on the same GPU without Hummingbird."""
        return self.spawn([program, *arguments], **self.bare_variables | variables)

    # --- the daemon -----------------------------------------------------------------------

    def start_daemon(self, program=HBD, pass_fds=(), **variables):
        """Starts hbd in the foreground, so that the test can wait for its end. Without this the first `hb run` starts one."""
        self.daemon = self.spawn([program, "--foreground", *self.gpu_options, "--socket",
                                  self.environment["HB_SOCKET"]], pass_fds, **variables)
        wait_until("the daemon answers", lambda: self.daemon.process.poll() is not None or self.status())
        return self.daemon

    def status(self):
        """The daemon's status; None without a daemon."""
        return ask_status(self.environment["HB_SOCKET"])

    def shown_status(self):
        """What `hb status --json` shows; None without a daemon."""
        done = subprocess.run([HB, "status", *self.gpu_options, "--json"], env=self.environment, capture_output=True,
                              text=True, timeout=LIMIT, check=False)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def tenants(self):
        """The tenants of programs, without that of the MPS server."""
        return tenants_of(self.status())

    # --- processes ------------------------------------------------------------------------

    def processes(self):
        """{pid: name} of every living process of this stack, including children of children."""
        marker = f"HB_SIM_GPU={self.gpu_folder}\0".encode()
        found = {}
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/environ", "rb") as file:
                    if marker not in file.read() + b"\0":
                        continue
                with open(f"/proc/{pid}/comm", encoding="utf-8") as file:
                    found[int(pid)] = file.read().strip()
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                continue
        return found

    def daemon_kib(self):
        """The daemon's resident memory."""
        with open(f"/proc/{self.pid_of('hbd')}/statm", encoding="utf-8") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024

    def pid_of(self, name):
        """The pid of the only process with this name (the kernel keeps 15 characters of it)."""
        pids = [pid for pid, found in self.processes().items() if found == name[:15]]
        assert len(pids) == 1, f"{name}: {pids} of {self.processes()}"
        return pids[0]

    def kill(self, name):
        os.kill(self.pid_of(name), signal.SIGKILL)

    # --- the end --------------------------------------------------------------------------

    def check_empty(self):
        """Call when all programs have ended: checks that a daemon, if there is one, lists no tenant and no memory, and that
        `hb status` shows the same."""
        status = wait_until("the daemon lists no tenant", self.status_without_tenants)
        if status is not True:
            assert tenants_of(self.shown_status() or status) == []
            wait_until("the memory of low priority is zero",
                       lambda: all(gpu["low_memory"] == 0 for gpu in self.status()["gpus"]))

    def status_without_tenants(self):
        status = self.status()
        if status is None:
            return True
        return status if not tenants_of(status) else None

    def stop_daemon(self):
        for pid, name in self.processes().items():
            if name == "hbd" or name == "hbd-faults":
                os.kill(pid, signal.SIGTERM)
        try:
            wait_until("every process of the stack has ended", self.has_no_process)
        except AssertionError as error:
            raise AssertionError(f"{error}: {self.processes()}") from None

    def has_no_process(self):
        for program in self.programs:
            program.process.poll()  # reaps zombies: they have no environment and would not be found
        return not self.processes()

    def check_nothing_left(self):
        for program in self.programs:
            if program is not self.daemon:
                assert program.process.poll() is not None, f"still runs: {program.command}"
        self.check_empty()
        self.stop_daemon()
        left = [os.path.join(where, name) for where, _, names in os.walk(self.folder) for name in names
                if name.endswith(".sock") or name in ("hb-sim-control", "control", "nvidia-cuda-mps-control.pid")]
        assert not left, f"left behind: {left}"
        # No process waits for the exit status of a background process.
        for name, text in self.logs():
            assert "Sanitizer" not in text and "runtime error" not in text, f"{name}: {text}"

    def logs(self):
        for where, _, names in os.walk(self.folder):
            for name in filter(lambda name: name.endswith(".log"), names):
                with open(os.path.join(where, name), encoding="utf-8", errors="backslashreplace") as file:
                    yield name, file.read()

    def show_logs(self):
        for program in self.programs:
            text = program.stderr()
            if text:
                print(f"--- {program.command} ({program.process.poll()})\n{text}", flush=True)
        for name, text in self.logs():
            print(f"--- {name}\n{text}", flush=True)

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        try:
            if kind is None:
                self.check_nothing_left()
        except BaseException:
            kind = True
            raise
        finally:
            if kind is not None:
                self.show_logs()
            # All of them first: what a program has started may keep its output open, which close() reads to the end.
            for pid in self.processes():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            for program in self.programs:
                program.close()
            shutil.rmtree(self.folder, ignore_errors=True)

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks on a real GPU that programs survive killed clients, servers and daemons.

  tests/gpu/real_gpu.py --build build [--only killed_client,killed_server]

Needs an NVIDIA GPU and PyTorch; not part of ./test.sh. Uses a daemon of its own
(XDG_RUNTIME_DIR in a temporary folder) and stops what it started. Every check
prints one line; exits 1 when one failed.
"""
import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

# Arguments: seconds to run, seconds of pause between bursts. Without pauses of HP, LP would rightly wait forever.
# Prints a line after each 50 steps, and one at the end.
WORK = """
import sys, time, torch
x = torch.randn(2048, 2048, device="cuda"); end = time.time() + float(sys.argv[1]); n = 0
while time.time() < end:
    for _ in range(50): y = torch.tanh(x @ x * 0.001)
    torch.cuda.synchronize(); n += 50; print("steps", n, flush=True); time.sleep(float(sys.argv[2]))
print("done", n, bool(torch.isfinite(y).all()), flush=True)
"""
# Works for a while, then reads an address that does not exist.
ILLEGAL = """
import cupy, time
x = cupy.ones((2048, 2048), dtype=cupy.float32); end = time.time() + 4
while time.time() < end: y = x @ x; cupy.cuda.Device().synchronize(); print("steps", flush=True)
bad = cupy.RawKernel(r'extern "C" __global__ void bad(int *p) { *p = 1; }', "bad")
bad((1,), (1,), (cupy.uint64(8),)); cupy.cuda.Device().synchronize()
"""
LIMIT = """
import torch
blocks = []
try:
    while True: blocks.append(torch.empty(1 << 28, dtype=torch.uint8, device="cuda"))
except torch.OutOfMemoryError: pass
free, total = torch.cuda.mem_get_info()
print(len(blocks), total, flush=True)
"""
ENDLESS = """
import cupy
spin = cupy.RawKernel(r'extern "C" __global__ void spin(long long ns) { long long a, b; asm volatile("mov.u64 %0,%globaltimer;" : "=l"(a)); do asm volatile("mov.u64 %0,%globaltimer;" : "=l"(b)); while (b - a < ns); }', "spin")
spin((8,), (32,), (1000000,)); cupy.cuda.Device().synchronize(); print("ready", flush=True)
spin((8,), (32,), (60000000000,)); cupy.cuda.Device().synchronize()
"""


def child_of(pid):
    """Returns the program that the supervisor with this pid runs, or pid itself if it has replaced the supervisor."""
    with open(f"/proc/{pid}/task/{pid}/children", encoding="utf-8") as file:
        children = file.read().split()
    return int(children[0]) if children else pid


class Stack:
    def __init__(self, build):
        self.hb = os.path.join(os.path.abspath(build), "hb")
        self.dir = tempfile.mkdtemp(prefix="hb-real-")
        os.chmod(self.dir, 0o700)
        self.env = dict(os.environ, XDG_RUNTIME_DIR=self.dir, HB_LOG="info")
        self.env.pop("HB_SOCKET", None)
        self.children = []
        self.failed = 0

    def check(self, what, good, seen=""):
        self.failed += not good
        print("%s %s%s" % ("ok    " if good else "FAILED", what, "" if good else ": " + str(seen)[-600:]), flush=True)

    def run(self, priority, code, *arguments, options=()):
        log = tempfile.NamedTemporaryFile("w+", dir=self.dir, delete=False)
        child = subprocess.Popen([self.hb, "run", "--priority", priority, *options, "--", sys.executable, "-c", code,
                                  *arguments], stdout=log, stderr=subprocess.STDOUT, env=self.env)
        child.log = log.name
        self.children.append(child)
        return child

    def work(self, priority, seconds):
        return self.run(priority, WORK, str(seconds), "0.02" if priority == "high" else "0")

    def text(self, child):
        return open(child.log).read()

    def wait_text(self, child, text, seconds=60):
        end = time.monotonic() + seconds
        while text not in self.text(child) and time.monotonic() < end and child.poll() is None:
            time.sleep(0.02)
        return text in self.text(child)

    def wait_progress(self, child, seconds=20):
        lines = self.text(child).count("\n")
        end = time.monotonic() + seconds
        while self.text(child).count("\n") <= lines + 2 and time.monotonic() < end and child.poll() is None:
            time.sleep(0.02)
        return self.text(child).count("\n") > lines + 2

    def status(self):
        done = subprocess.run([self.hb, "status", "--json"], capture_output=True, text=True, env=self.env, timeout=20)
        return json.loads(done.stdout) if done.returncode == 0 else {"tenants": [], "daemon": {"pid": 0}}

    def servers(self):
        """Returns the pids of the MPS server that the daemon reports."""
        return [tenant["pid"] for tenant in self.status()["tenants"] if tenant["priority"] == "mps server"]

    def processes(self):
        """Returns the pids of all descendants of this stack."""
        marker = f"XDG_RUNTIME_DIR={self.dir}\0".encode()
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/environ", "rb") as file:
                    if marker in file.read() + b"\0":
                        found.append(int(pid))
            except OSError:
                continue
        return found

    def end_child(self, child, seconds):
        """Waits for the child. Returns its exit status, or None if it still runs."""
        try:
            return child.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def quit_mps(self, pipe):
        """Stops the MPS server. A server with a client that cannot end may never answer."""
        try:
            subprocess.run(["nvidia-cuda-mps-control"], input="quit -t 5\n", text=True, timeout=20, check=False,
                           env=dict(self.env, CUDA_MPS_PIPE_DIRECTORY=pipe), capture_output=True)
        except subprocess.TimeoutExpired:
            self.check("the MPS server obeys quit", False, "no answer within 20 s")

    def stop(self):
        for child in self.children:
            if child.poll() is None:
                child.kill()
        for child in self.children:
            if child.poll() is None and self.end_child(child, 90) is None:
                self.check("a killed program ends", False, child.args)
        daemon = self.status()["daemon"]
        if daemon["pid"]:
            os.kill(daemon["pid"], signal.SIGTERM)
        if daemon.get("mps", {}).get("state") not in (None, "off", "not started"):
            self.quit_mps(daemon["mps"]["pipe"])
        end = time.monotonic() + 10
        while self.processes() and time.monotonic() < end:
            time.sleep(0.1)
        for pid in self.processes():
            os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.dir, ignore_errors=True)


def forgotten_after(stack, pid, seconds=10):
    """Returns the seconds until the daemon no longer lists this pid, or None after the limit."""
    begin = time.monotonic()
    while time.monotonic() < begin + seconds:
        if pid not in [tenant["pid"] for tenant in stack.status()["tenants"]]:
            return time.monotonic() - begin
        time.sleep(0.01)
    return None


def start_three(stack, victim):
    """Starts an LP client that will be killed, another LP client, and an HP program, and waits until all work."""
    other, high = stack.work("low", 30), stack.work("high", 30)
    words = {victim: "ready" if ENDLESS in victim.args else "steps", other: "steps", high: "steps"}
    stack.check("an LP client to be killed, another LP and an HP program run",
                all(stack.wait_text(child, word) for child, word in words.items()),
                [stack.text(child) for child in words])
    inside = [tenant["mps"] for tenant in stack.status()["tenants"] if tenant["pid"] in (victim.pid, other.pid)]
    stack.check("both LP programs are clients of the MPS server", inside == [True, True], stack.status()["tenants"])
    return other, high


def kill_it(stack, victim):
    victim.kill()
    killed = time.monotonic()
    stack.check("the killed client ends", stack.end_child(victim, 90) is not None, "it still runs after 90 s")
    print("       the client ended after %.2f s" % (time.monotonic() - killed), flush=True)
    took = forgotten_after(stack, victim.pid)
    stack.check("the daemon forgets the killed client", took is not None, stack.status()["tenants"])


def start_low(stack):
    """Starts an LP program. After a kill the MPS server may refuse new clients for a moment."""
    for _ in range(3):
        child = stack.work("low", 60)
        if stack.wait_text(child, "steps"):
            break
    stack.check("another LP program finds a working server", "steps" in stack.text(child), stack.text(child))
    return child


def killed_client(stack):
    """Kills an LP client three times while its ordinary kernels run. HP must not notice and nothing may hang. The other LP
    client may get CUDA's error, as MPS documents (docs/limits.md); the check counts how often."""
    victim = stack.work("low", 60)
    other, high = start_three(stack, victim)
    harmed = 0
    for _ in range(3):
        kill_it(stack, victim)
        stack.check("HP continues after an LP client was killed", stack.wait_progress(high) or stack.end_child(high, 0.1) == 0,
                    stack.text(high))
        if not stack.wait_progress(other) and stack.end_child(other, 0.1) != 0:
            harmed += 1
            stack.check("the other LP client ends with CUDA's error", stack.end_child(other, 30) is not None, stack.text(other))
            other = start_low(stack)
        victim = start_low(stack)
    print("       %d of 3 kills ended the other LP client" % harmed, flush=True)
    victim.kill()
    stack.check("HP ends with right results", stack.end_child(high, 60) == 0 and "True" in stack.text(high).splitlines()[-1],
                stack.text(high))
    stack.check("the other LP client ends with right results", stack.end_child(other, 90) == 0 and
                "True" in stack.text(other).splitlines()[-1], stack.text(other))


def killed_in_endless_kernel(stack):
    """Kills an LP client inside a kernel that does not end. The driver may then end the other LP clients with an error
    (docs/limits.md), but not HP. The kernel has 8 blocks of 32 threads, so other work fits beside it; it ends after a minute."""
    victim = stack.run("low", ENDLESS)
    other, high = start_three(stack, victim)
    kill_it(stack, victim)
    stack.check("HP continues after an LP client was killed in an endless kernel", stack.wait_progress(high) or
                stack.end_child(high, 0.1) == 0, stack.text(high))
    end = stack.end_child(other, 60)
    stack.check("the other LP client continues or gets CUDA's error, and does not hang", end is not None, stack.text(other))
    print("       the other LP client ended with %s" % end, flush=True)
    stack.check("HP ends with right results", stack.end_child(high, 60) == 0 and "True" in stack.text(high),
                stack.text(high))
    newcomer = stack.work("low", 2)
    stack.check("another LP program finds a working server", stack.end_child(newcomer, 60) == 0, stack.text(newcomer))


def killed_daemon(stack):
    low = stack.work("low", 14)
    high = stack.work("high", 14)
    stack.wait_text(low, "steps")
    stack.wait_text(high, "steps")
    before = stack.status()
    os.kill(before["daemon"]["pid"], signal.SIGKILL)
    stack.check("LP continues without a daemon", stack.wait_progress(low), stack.text(low))
    stack.check("HP continues without a daemon", stack.wait_progress(high), stack.text(high))
    newcomer = stack.work("low", 1)
    newcomer.wait(60)
    stack.check("a new tenant starts a new daemon", newcomer.returncode == 0, stack.text(newcomer))
    end = time.monotonic() + 8
    known = set()
    while len(known) < 2 and time.monotonic() < end:
        known = {tenant["pid"] for tenant in stack.status()["tenants"]} & {low.pid, high.pid}
        time.sleep(0.1)
    stack.check("the new daemon takes the old tenants over", len(known) == 2, stack.status())
    low.wait(60)
    high.wait(60)
    stack.check("the old tenants end without an error", low.returncode == 0 and high.returncode == 0)


def killed_server(stack):
    low = stack.work("low", 60)
    high = stack.work("high", 10)
    stack.wait_text(low, "steps")
    stack.wait_text(high, "steps")
    servers = stack.servers()
    stack.check("the MPS server is registered", len(servers) == 1, stack.status()["tenants"])
    for pid in servers:
        os.kill(pid, signal.SIGKILL)
    stack.check("HP continues after the MPS server was killed", stack.wait_progress(high), stack.text(high))
    end = time.monotonic() + 30
    while low.poll() is None and time.monotonic() < end:
        time.sleep(0.1)
    stack.check("LP gets CUDA's error instead of hanging", low.poll() not in (None, 0), stack.text(low))
    again = stack.work("low", 2)
    stack.check("the next LP tenant gets a new server", stack.wait_text(again, "done", 60), stack.text(again))
    stack.check("HP ends with right results", stack.end_child(high, 60) == 0 and "True" in stack.text(high),
                stack.text(high))


def run_as_nobody(command, pipe):
    """Gives the MPS control program a command as user nobody. Returns its output; None if it does not answer."""
    try:
        done = subprocess.run(["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "nvidia-cuda-mps-control"],
                              input=command + "\n", text=True, timeout=10, check=False, capture_output=True,
                              env=dict(os.environ, CUDA_MPS_PIPE_DIRECTORY=pipe))
    except subprocess.TimeoutExpired:
        return None
    return done.stdout + done.stderr


def mps_pipe(stack):
    """Which users reach the control program of a server, once in a folder that every user can enter, and once in one that
    only root can. Shows whether `quit` of another user ends it; needs root."""
    for mode, expected in ((0o755, True), (0o700, False)):
        pipe = os.path.join(stack.dir, f"pipe-{mode:o}")
        os.mkdir(pipe)
        os.chmod(stack.dir, 0o755)
        os.chmod(pipe, mode)
        env = dict(os.environ, CUDA_MPS_PIPE_DIRECTORY=pipe, CUDA_MPS_LOG_DIRECTORY=pipe)
        subprocess.run(["nvidia-cuda-mps-control", "-d"], env=env, check=True)
        subprocess.run(["nvidia-cuda-mps-control"], input="start_server -uid 0\n", text=True, env=env, check=False)
        print("       files:", subprocess.run(["ls", "-la", pipe], capture_output=True, text=True, check=False).stdout)
        server = subprocess.run(["nvidia-cuda-mps-control"], input="get_server_list\n", text=True, env=env, check=False,
                                capture_output=True).stdout.strip()
        with open(f"/proc/{server}/stat", encoding="utf-8") as file:
            parent = file.read().rsplit(")", 1)[1].split()[1]
        programs = [os.path.basename(os.readlink(f"/proc/{pid}/exe")) for pid in (server, parent)]
        stack.check("the control program is the parent of the server, which the daemon relies on",
                    programs == ["nvidia-cuda-mps-server", "nvidia-cuda-mps-control"], programs)
        listed = run_as_nobody("get_server_list", pipe)
        reached = bool(listed and listed.strip().isdigit())
        print("       another user asks for the servers: %r; quits: %r" % (listed, run_as_nobody("quit", pipe)), flush=True)
        if not expected:
            stack.check("another user does not reach the control program behind mode 0700", not reached, listed)
        stack.quit_mps(pipe)


def culprit(stack):
    """An illegal access in one of three LP programs, four times: how often the daemon names the right one."""
    right, named = 0, []
    for _ in range(4):
        others = [stack.work("low", 60), stack.work("low", 60)]
        for other in others:
            stack.wait_text(other, "steps")
        guilty = stack.run("low", ILLEGAL)
        stack.wait_text(guilty, "steps")
        program = child_of(guilty.pid)
        stack.check("the faulty program ends with an error", stack.end_child(guilty, 60) not in (None, 0), stack.text(guilty))
        for other in others:
            stack.end_child(other, 30)
        fault = (stack.status()["daemon"].get("mps") or {}).get("fault") or {}
        print("       named: pid %s of %s, certain %s, cause %s" % (fault.get("pid"), program, fault.get("certain"), fault.get("cause")),
              flush=True)
        right += fault.get("pid") == program
        named.append(fault.get("certain"))
        for other in others:
            if other.poll() is None:
                other.kill()
    print("       %d of 4 faults were given to the right program" % right, flush=True)
    stack.check("the daemon names a program after each fault, and calls it a guess", named == [False] * 4, named)


def resident_kib(pid):
    """Returns the memory of a process that no other process shares, in KiB."""
    with open(f"/proc/{pid}/smaps_rollup", encoding="utf-8") as file:
        return sum(int(line.split()[1]) for line in file if line.startswith(("Private_Clean", "Private_Dirty")))


def mps_memory(stack):
    """How much host memory the daemon and the MPS server take as LP clients are added."""
    for count in range(1, 9):
        stack.check("another LP client works", stack.wait_text(stack.work("low", 60), "steps"))
        servers = stack.servers()
        daemon = stack.status()["daemon"]["pid"]
        print("       %d clients: MPS server %s MiB, daemon %d MiB" % (
            count, [resident_kib(pid) >> 10 for pid in servers], resident_kib(daemon) >> 10), flush=True)
    stack.check("one MPS server serves all clients", len(servers) == 1, servers)


def limited(stack):
    child = stack.run("low", LIMIT, options=("--memory", "4GiB"))
    child.wait(90)
    words = stack.text(child).split()
    stack.check("a limit of 4 GiB allows 15 or 16 blocks of 256 MiB", len(words) == 2 and words[0] in ("15", "16"), stack.text(child))
    stack.check("cuMemGetInfo reports 4 GiB in total", words[-1:] == [str(4 << 30)], stack.text(child))


CHECKS = {"limited": limited, "killed_client": killed_client, "killed_in_endless_kernel": killed_in_endless_kernel,
          "mps_pipe": mps_pipe, "mps_memory": mps_memory, "culprit": culprit, "killed_daemon": killed_daemon, "killed_server": killed_server}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default="build")
    parser.add_argument("--only", default=",".join(CHECKS))
    args = parser.parse_args()
    failed = 0
    for name in args.only.split(","):
        stack = Stack(args.build)
        try:
            CHECKS[name](stack)
        except (subprocess.SubprocessError, OSError, ValueError) as error:
            stack.check(name + " ran to its end", False, repr(error))
        finally:
            stack.stop()
        failed += stack.failed
    print("%d failed" % failed)
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())

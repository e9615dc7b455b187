# SPDX-License-Identifier: Apache-2.0
"""CPUs for a measurement: which two share a core, and who used them.

A virtual machine often does not tell which of its CPUs share a core, and a
program whose other half is busy runs at little more than half its speed. Found
by timing, in about a second. Used by spatial.py; knows nothing of GPUs.
"""
import os
import signal
import time

SLICE_S = 0.012
# A neighbour on the same core takes at least so much of the speed; others do not.
SLOWED = 0.82


def spin(until):
    turns = 0
    while time.monotonic() < until:
        turns += 1
    return turns


def speed(cpu, rounds=3):
    os.sched_setaffinity(0, {cpu})
    return max(spin(time.monotonic() + SLICE_S) for _ in range(rounds))


def speed_beside(cpu, other):
    child = os.fork()
    if child == 0:
        os.sched_setaffinity(0, {other})
        spin(time.monotonic() + 10)
        os._exit(0)
    time.sleep(0.003)
    try:
        return speed(cpu)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def churn(until, table=list(range(1 << 18))):
    """Like an interpreter: more memory than the innermost caches hold, in no order."""
    at = turns = 0
    while time.monotonic() < until:
        for _ in range(64):
            at = table[(at * 40503 + turns) & 0x3ffff]
        turns += 1
    return turns


def quietest(cpus):
    """The CPU that is least held up by what shares caches with it, other machines on the host included."""
    speeds = {}
    for cpu in cpus:
        os.sched_setaffinity(0, {cpu})
        speeds[cpu] = max(churn(time.monotonic() + SLICE_S) for _ in range(3))
    best = max(speeds.values())
    print("speeds of the CPUs: %s" % " ".join("%d:%.2f" % (cpu, speed / best) for cpu, speed in speeds.items()), flush=True)
    return max(speeds, key=speeds.get)


def find_core(cpus):
    """The CPUs of one core, the first of which is to be used; where nobody shares it a second one, for the helpers
    of programs."""
    before = os.sched_getaffinity(0)
    if len(cpus) < 4:
        return [cpus[0]]
    try:
        first = quietest(cpus[2:]) # the lowest ones serve interrupts
        alone = speed(first, 8)
        beside = {other: speed_beside(first, other) / alone for other in cpus if other != first}
        slow = [other for other in cpus if other != first and beside[other] < SLOWED]
        # Confirmed: what else the machine did at that moment may look the same.
        slow = [other for other in slow if speed_beside(first, other) / speed(first, 8) < SLOWED]
        print("cpu %d shares its core with %s (speeds beside: %s)" % (
            first, slow or "nobody", " ".join("%d:%.2f" % pair for pair in beside.items())), flush=True)
        return [first] + (slow[:1] or [first - 1 if first - 1 in cpus else first + 1])
    finally:
        os.sched_setaffinity(0, before)


def usage():
    """CPU time so far, by (process, thread, its name)."""
    found = {}
    for process in filter(str.isdigit, os.listdir("/proc")):
        try:
            for thread in os.listdir("/proc/%s/task" % process):
                text = open("/proc/%s/task/%s/stat" % (process, thread)).read()
                name, rest = text[text.index("(") + 1:text.rindex(")")], text[text.rindex(")") + 2:].split()
                found[(int(process), int(thread), name)] = (int(rest[11]) + int(rest[12]), int(rest[36]))
        except OSError:
            pass
    return found


def busiest(before, after, seconds, most=6):
    """(share of a CPU, process, name, the CPU it was seen on), busiest first."""
    tick = os.sysconf("SC_CLK_TCK")
    shares = [((after[key][0] - before.get(key, (0, 0))[0]) / tick / seconds, key[0], key[2], after[key][1])
              for key in after]
    return [share for share in sorted(shares, reverse=True)[:most] if share[0] > 0.02]

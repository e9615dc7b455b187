# SPDX-License-Identifier: Apache-2.0
"""Processor time of a process in nanoseconds, as the scheduler counts it, or in ticks of 10 ms where the kernel does not count
it; and the processors of this machine. Used by daemon_cost.py and front.py."""
import os
import platform


def schedstat(pid, column):
    total = 0
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/schedstat", encoding="utf-8") as file:
            total += int(file.read().split()[column])
    return total / 1e9


def ticks_seconds(pid):
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid):
    """Processor time of all threads of the process, in seconds."""
    try:
        return schedstat(pid, 0)
    except FileNotFoundError:
        return ticks_seconds(pid)


def waited_seconds(pid):
    """Time in which threads of the process were ready but waited for a processor; 0 where the kernel does not count it."""
    try:
        return schedstat(pid, 1)
    except FileNotFoundError:
        return 0.0


# ---- processors of this machine ----

def parse_list(text):
    """Reads a list of processors as Linux writes it: "0,2-3" gives [0, 2, 3]."""
    found = []
    for part in text.strip().split(","):
        first, dash, last = part.partition("-")
        found.extend(range(int(first), int(last if dash else first) + 1))
    return found


def siblings(number):
    """The processors that share a core with this one, itself among them."""
    try:
        with open(f"/sys/devices/system/cpu/cpu{number}/topology/thread_siblings_list", encoding="utf-8") as file:
            return parse_list(file.read())
    except (OSError, ValueError):
        return [number]


def by_core():
    """The processors this process may use: one of each core first, then their siblings."""
    return sorted(os.sched_getaffinity(0), key=lambda number: (siblings(number).index(number), number))


def cores(numbers):
    return len({min(siblings(number)) for number in numbers})


def describe():
    """The machine, in words."""
    model = platform.machine()
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    allowed = os.sched_getaffinity(0)
    return f"{model}, {len(allowed)} processors on {cores(allowed)} cores, Linux {platform.release()}"

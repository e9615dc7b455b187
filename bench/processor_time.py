# SPDX-License-Identifier: Apache-2.0
"""Processor time of a process as the scheduler counts it, to the nanosecond, where ticks are 10 ms. Used by daemon_cost.py
and front.py."""
import os


def schedstat(pid, column):
    total = 0
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/schedstat", encoding="utf-8") as file:
            total += int(file.read().split()[column])
    return total / 1e9


def cpu_seconds(pid):
    """Of all its threads."""
    return schedstat(pid, 0)


def waited_seconds(pid):
    """Time in which its threads could have run, had their processor been free."""
    return schedstat(pid, 1)

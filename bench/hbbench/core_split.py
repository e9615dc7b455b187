# SPDX-License-Identifier: Apache-2.0
"""Dividing the machine's cores: services run on one half, all other programs on the other half. A neighbour on the same
core costs a program nearly half its speed, which is not what the harness measures."""
import os

CORES_NEEDED = 4


def core_of(cpu):
    """The first processor of this one's core; pairs of neighbours where the kernel does not say."""
    try:
        with open(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list", encoding="ascii") as file:
            return int(file.read().split(",")[0].split("-")[0])
    except (OSError, ValueError):
        return cpu & ~1


def split(allowed, core, high):
    """The processors for one side; None on a machine with too few cores. `core`: processor -> its core."""
    cores = list(dict.fromkeys(core[cpu] for cpu in sorted(allowed)))
    if len(cores) < CORES_NEEDED:
        return None
    mine = set(cores[:len(cores) // 2] if high else cores[len(cores) // 2:])
    return {cpu for cpu in allowed if core[cpu] in mine}


def choose(high):
    """The processors for a program of this machine, or None."""
    allowed = os.sched_getaffinity(0)
    return split(allowed, {cpu: core_of(cpu) for cpu in allowed}, high)

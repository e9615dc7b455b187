#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the cost of the daemon: CPU time, memory and the time of a scrape, with busy tenants on a simulated GPU; low
priority shares an MPS server or takes turns.

CPU time is the daemon's own, from /proc, so a busy machine changes it little. The time of a scrape is that of the complete
request over loopback, which a busy machine does change. Prints JSON, or with --markdown the rows of docs/metrics.md.

usage: daemon_cost.py --build BUILD [--tenants 20] [--seconds 20] [--markdown]
"""
import argparse
import json
import os
import resource
import statistics
import sys
import time
import urllib.request

from processor_time import cpu_seconds

HIGH_SHARE = 5  # every fifth tenant has high priority
KERNEL_US = 2000
RATE = 20  # requests a second of a high-priority tenant
SCRAPES = 200


def wakes(pid):
    """How often threads of the process slept and were woken."""
    total = 0
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/status", encoding="utf-8") as file:
            total += next(int(line.split()[1]) for line in file if line.startswith("voluntary_ctxt_switches:"))
    return total


def resident_bytes(pid):
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmRSS:"))


def scrape_ms(url):
    begin = time.perf_counter()
    with urllib.request.urlopen(url, timeout=30) as answer:
        size = len(answer.read())
    return 1000 * (time.perf_counter() - begin), size


def launches_of(tenant):
    return tenant["counters"]["kernels"] + tenant["counters"]["graphs"]


def launches(stack):
    return sum(launches_of(tenant) for tenant in stack.tenants())


def all_launch(stack, n):
    tenants = stack.tenants()
    return len(tenants) == n and all(launches_of(tenant) > 0 for tenant in tenants)


def start_tenant(stack, high):
    if high:
        return stack.start("high", "infer", "--rate", RATE, "--seconds", 3600, "--kernels", 8, options=("--slo", "auto"))
    return stack.start("low", "train", KERNEL_US, 0)


def measure(stack_module, arguments, mps):
    with stack_module.Stack(config="metrics: 127.0.0.1:0\n", mps=mps) as stack:
        stack.start_daemon()
        programs = [start_tenant(stack, i % HIGH_SHARE == 0) for i in range(arguments.tenants)]
        stack_module.wait_until("everybody launches", lambda: all_launch(stack, arguments.tenants), 300)
        pid = stack.daemon.pid
        before, woken = launches(stack), wakes(pid)
        begin, cpu = time.monotonic(), cpu_seconds(pid)
        time.sleep(arguments.seconds)
        cpu, wall, woken = cpu_seconds(pid) - cpu, time.monotonic() - begin, wakes(pid) - woken
        launched = launches(stack) - before
        url = f"http://{stack.status()['daemon']['metrics']['address']}/metrics"
        cpu_scrapes = cpu_seconds(pid)
        scrapes = [scrape_ms(url) for _ in range(SCRAPES)]
        cpu_scrapes = cpu_seconds(pid) - cpu_scrapes
        found = {
            "engine": stack.status()["gpus"][0]["engine"], "tenants": len(stack.tenants()),
            "launches_per_s": round(launched / wall), "seconds": round(wall, 1), "core_percent": round(100 * cpu / wall, 2),
            "wakes_per_s": round(woken / wall),
            "resident_mib": round(resident_bytes(pid) / 2**20, 1),
            "scrape_p50_ms": round(statistics.median(ms for ms, _ in scrapes), 2),
            "scrape_p99_ms": round(sorted(ms for ms, _ in scrapes)[int(0.99 * SCRAPES)], 2),
            "scrape_cpu_ms": round(1000 * cpu_scrapes / SCRAPES, 2), "scrape_kib": scrapes[0][1] // 1024,
        }
        for program in programs:
            program.signal(15)
        for program in programs:
            program.process.wait(60)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", required=True)
    parser.add_argument("--tenants", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--markdown", action="store_true")
    arguments = parser.parse_args()
    os.environ["HB_BUILD"] = os.path.abspath(arguments.build)
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../tests/end-to-end"))
    import stack as stack_module  # pylint: disable=import-outside-toplevel
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    rows = [measure(stack_module, arguments, mps) for mps in (True, False)]
    if not arguments.markdown:
        json.dump(rows, sys.stdout, indent=2)
        print()
        return
    print("| " + " | ".join(rows[0]) + " |\n|" + "---|" * len(rows[0]))
    for row in rows:
        print("| " + " | ".join(str(value) for value in row.values()) + " |")


if __name__ == "__main__":
    main()

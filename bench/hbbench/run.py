# SPDX-License-Identifier: Apache-2.0
"""Running a suite, case by case, within its time. A case that fails does not end the others: time on a GPU is expensive."""
import logging
import os
import re
import subprocess
import sys
import time

from hbbench import measure, results
from hbbench.process import Failed, Interrupted, Limits
from hbbench.stage import Stage, find_part
from hbbench.tables import CASES, Plan

END_LEAST_S, END_MOST_S = 0.5, 8  # kept of the limit for the end of programs and servers: a tenth, within these
LAST_END_S = 2                    # what the end may take when the time is over already
UNLIMITED_FACTOR, UNLIMITED_MORE_S = 5, 300


def cases_end(begin, deadline):
    """When all cases must have ended; None = no limit."""
    return deadline and deadline - min(END_MOST_S, max(END_LEAST_S, (deadline - begin) / 10))


def case_end(now, end, cost_s, rest_s):
    """When this case must have ended: it gets its share of the time that is left, so an early end of one case gives time
    to the others. `rest_s`: what this case and the cases after it should take."""
    if end is None:
        return now + UNLIMITED_FACTOR * cost_s + UNLIMITED_MORE_S
    return now + max(0.0, end - now) * (cost_s / rest_s if rest_s > 0 else 1)


def first_match(path, pattern, otherwise):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            found = re.search(pattern, file.read(65536), re.MULTILINE)
            return found[1] if found else otherwise
    except OSError:
        return otherwise


def commit_of(hb):
    """The commit that `hb` was built from."""
    try:
        done = subprocess.run([hb, "--version"], capture_output=True, text=True, timeout=15, check=False)
        return os.environ.get("HB_BENCH_COMMIT") or done.stdout.split()[-1].strip("()")
    except (OSError, IndexError, subprocess.TimeoutExpired):
        return "unknown"


def driver_version():
    """Version of the kernel module of this machine's driver."""
    return first_match("/proc/driver/nvidia/version", r"\s(\d[\w.]*\.[\w.]*)\s", "unknown")


def new_result(options):
    """The head of a result file."""
    return {"kind": "bench", "version": results.VERSION, "suite": options.suite.name, "command": options.command,
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "commit": commit_of(options.hb),
            "machine": first_match("/proc/cpuinfo", r"^model name\s*: (.*)$", "unknown processor")
            + f", {os.cpu_count()} processors",
            "driver": "simulated" if options.simulated else driver_version(),
            "gpu": "h200, simulated" if options.simulated else "unknown", "simulated": options.simulated,
            "rounds": options.rounds, "window_s": None if options.requests else options.seconds, "cases": []}


class Suite:
    """A suite that runs."""

    def __init__(self, options, keep):
        self.options, self.keep = options, keep
        self.limits, self.result = Limits(), new_result(options)
        self.company = measure.Company(options.simulated)
        self.end = cases_end(time.monotonic(), options.deadline)

    def make_runner(self, plan, span_s):
        """The runner of the plan's world; None when a program of the case lacks a module, which skips the case."""
        if plan.world == "virtual":
            return measure.VirtualRunner(plan, self.options, self.limits, span_s)
        if not self.company.stage:
            self.company.stage = Stage(self.options.hb, self.options.simulated, self.options.peers, self.limits)
        for name, program in dict(plan.programs()).items():
            lacks = self.company.stage.missing_modules(name, program) if name in plan.needs_python() else ""
            if lacks:
                plan.skip(lacks)
                return None
        return measure.ProcessRunner(plan, self.options, self.limits, span_s, self.company)

    def measure_case(self, plan, cost, rest):
        """The case as it goes into the result."""
        begin = time.monotonic()
        if self.limits.interrupted:
            plan.skip("interrupted")
        elif self.end and begin >= self.end and plan.world != "skipped":
            plan.skip("the time that --limit gives was over")
        if plan.world == "skipped":
            return measure.Outcome(plan).case
        self.limits.end = case_end(begin, self.end, cost, rest)
        logging.info("%s/%s (%s) begins, has %.0f s", self.options.suite.name, plan.case.name, plan.world, self.limits.end - begin)
        if sys.stderr.isatty():
            print(f"hb bench: {self.options.suite.name}/{plan.case.name} ({plan.world})", file=sys.stderr)
        try:
            runner = self.make_runner(plan, self.limits.end - begin)
            if not runner:
                return measure.Outcome(plan).case
            runner.run()
            return runner.outcome.case
        except (Failed, Interrupted) as why:
            if isinstance(why, Interrupted) and not self.result["cases"]:
                raise
            case = measure.Outcome(plan).case
            case["failed"] = str(why)
            return case

    def run_cases(self):
        plans = [Plan(case, self.options.simulated) for case in CASES
                 if case.suite == self.options.suite.name and (not self.options.only or case.name in self.options.only)]
        costs = [measure.cost_s(plan, self.options) for plan in plans]
        for i, plan in enumerate(plans):
            begin = time.monotonic()
            case = self.measure_case(plan, costs[i], sum(costs[i:]))
            how = case["failed"] or case["skipped"] or case["unfinished"] or "complete"
            logging.info("%s/%s ended after %.1f s: %s", self.options.suite.name, case["name"], time.monotonic() - begin, how)
            if self.company.gpu and not self.options.simulated:
                self.result["gpu"] = self.company.gpu
            self.result["cases"].append(case)
            self.keep(results.summarize(self.result))

    def close(self, well):
        """Ends everything that still runs; with a limit, within it."""
        deadline = self.options.deadline
        self.limits.end = deadline and max(deadline, time.monotonic() + LAST_END_S)
        self.company.end(lambda member: True, well)
        if self.company.stage:
            self.company.stage.close()


def run_suite(options, keep):
    """The result; cases in it may have failed. keep(result) is called after each case. Raises Interrupted when nothing
    was measured."""
    if options.simulated:
        find_part(options.hb, "cuda-tenant")
    suite = Suite(options, keep)
    suite.limits.watch_signals()
    well = False
    try:
        suite.run_cases()
        well = not suite.limits.interrupted
    finally:
        suite.close(well)
    return suite.result, suite.limits.interrupted

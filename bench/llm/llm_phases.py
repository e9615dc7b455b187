#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures how fast low priority gets its share back when a service changes its kind of request.

  llm_phases.py measure --out phases.json [--places temporal,spatial] [--seconds 8] [--rounds 1] [--budget 300]
  llm_phases.py report phases.json

For each engine three services run one after another, each beside an LLM prefill job of its own: one that only serves text, one
that only serves graphs, and one that changes: text, graphs, text, graphs. The share of the job after a change is compared with
the share that it has beside the service that only knows this phase. The table is printed last.
"""
import argparse
import json
import os
import signal
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]
import llm_results  # noqa: E402  pylint: disable=wrong-import-position
from hbbench import core_split, run, stats, tables  # noqa: E402  pylint: disable=wrong-import-position
from hbbench.process import Failed, Interrupted, Limits, Process, TimeIsUp  # noqa: E402  pylint: disable=C0413
from hbbench.stage import Stage  # noqa: E402  pylint: disable=wrong-import-position
from llm_suite import PLACES, words_of  # noqa: E402  pylint: disable=wrong-import-position

RATES = {"cuda": {"text": 3, "graphs": 150}, "cpu": {"text": 1, "graphs": 4}}
KINDS = ["text", "graphs", "both"]
SEQUENCE = ["text", "graphs", "text", "graphs"]
BUCKET_S = 0.5
CHANGE_S = 2.0          # the time in which the share must be reached
SHARE = 0.9             # of the share beside a process that started in this phase
START_S, ANSWER_S, END_S, KEPT_S = 150, 20, 3, 15
BETWEEN_S = 1.6         # until the daemon no longer counts the service before as at work
LOW_ALONE_S, ALONE_S = 1.5, 3.0
PREFILL = ["torch_program.py", "prefill", "llama8", "--batch", "4"]


# --- figures ---------------------------------------------------------------------------------------------------------

def shares(ends_ns, begin, seconds, alone):
    """The job's speed relative to alone in each bucket of a phase."""
    count = round(seconds / BUCKET_S)
    return [round(llm_results.iterations_between(ends_ns, begin + i * BUCKET_S, begin + (i + 1) * BUCKET_S) / BUCKET_S / alone, 4)
            for i in range(count)]


def mean_between(series, begin_s, end_s):
    part = series[round(begin_s / BUCKET_S):round(end_s / BUCKET_S)]
    return round(sum(part) / len(part), 4) if part else None


def reached_after(series, wanted):
    """Seconds from the beginning of the phase until the mean of a second is at least `wanted`; None = never."""
    width = round(1 / BUCKET_S)
    for i in range(len(series) - width + 1):
        if sum(series[i:i + width]) / width >= wanted:
            return i * BUCKET_S
    return None


def within(values, limit):
    return round(sum(value <= limit for value in values) / len(values), 4) if values and limit else None


def latency_of(phase):
    """Returns the times that the objective is about: those of tokens, or of graphs."""
    return phase["token_ns"] or phase["latency_ns"]


def summarize(raw):
    """Rows of phases.json: one for each phase of a process that changes, and the reference phases."""
    rows = []
    for place in dict.fromkeys(phase["place"] for phase in raw["phases"]):
        here = [phase for phase in raw["phases"] if phase["place"] == place]
        for phase in here:
            kind = phase["kind"]
            alone = [value for one in here if one["kind"] == kind and not one["beside"] for value in latency_of(one)]
            limit = stats.quantile(alone, 0.99) if alone else 0
            fresh = [one for one in here if one["service"] == kind and one["kind"] == kind and one["beside"]]
            row = {key: phase[key] for key in ("place", "round", "service", "kind", "number", "beside")}
            row |= {"requests": len(phase["latency_ns"]), "within_p99_alone": within(latency_of(phase), limit),
                    **{f"p{share}_us": round(stats.quantile(latency_of(phase), share / 100) / 1e3) if latency_of(phase) else None
                       for share in (50, 99)}}
            if phase["beside"] and fresh:
                length = phase["seconds"]
                base = stats.mean(mean_between(one["shares"], CHANGE_S, length) for one in fresh)
                row |= {"low_first_2s": mean_between(phase["shares"], 0, CHANGE_S),
                        "low_2s_to_4s": mean_between(phase["shares"], CHANGE_S, 2 * CHANGE_S),
                        "low_rest": mean_between(phase["shares"], CHANGE_S, length), "low_fresh": round(base, 4),
                        "of_fresh_2s_to_4s": llm_results.ratio(mean_between(phase["shares"], CHANGE_S, 2 * CHANGE_S), base),
                        "reached_after_s": reached_after(phase["shares"], SHARE * base)}
            rows.append(row)
    return rows


def table(rows):
    head = ("engine", "round", "service", "phase", "LP", "requests", "p50 us", "p99 us", "in p99 alone", "LP 0-2s", "2-4s",
            "fresh", "2-4s/fresh", "90% after s")
    lines = [head]
    for row in rows:
        lines.append((row["place"], str(row["round"]), row["service"], f"{row['number']} {row['kind']}",
                      "yes" if row["beside"] else "-", str(row["requests"]), str(row["p50_us"]), str(row["p99_us"]),
                      llm_results.percent(row["within_p99_alone"]), *(llm_results.percent(row.get(key)) for key in (
                          "low_first_2s", "low_2s_to_4s", "low_fresh", "of_fresh_2s_to_4s")),
                      str(row.get("reached_after_s", "-"))))
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    return ["  ".join(word.rjust(width) for word, width in zip(line, widths)) for line in lines]


# --- measuring -------------------------------------------------------------------------------------------------------

class Engine:
    """The processes of one way of sharing: three services, each with a job of its own."""

    def __init__(self, name, stage, args):
        self.name, self.stage, self.args = name, stage, args
        self.way = tables.find_way(PLACES[name])
        self.services = {kind: self.start("phase_service", ["phase_service.py", kind, "--device", args.device], True)
                         for kind in KINDS}
        low = PREFILL if args.device == "cuda" else ["llm_jobs.py", "generate", "--device", "cpu", "--model", "tiny"]
        self.jobs = {kind: self.start("prefill", low, False) for kind in KINDS}

    def start(self, label, command, high):
        before, environment = self.stage.place(self.way, high, ())
        script = os.path.join(HERE if command[0] != "torch_program.py" else os.path.dirname(HERE), command[0])
        return Process(f"{label} {command[1]} ({self.name})", before + ["python3", script, *command[1:]],
                       self.stage.environment(**environment), self.stage.folder, self.stage.limits, signal.SIGTERM,
                       core_split.choose(high))

    def wait_ready(self):
        for process in [*self.services.values(), *self.jobs.values()]:
            process.hear("ready", START_S)

    def serve(self, service, kind, seconds):
        """(moment of the beginning, the service's answer)."""
        process = self.services[service]
        process.send(f"phase {kind} {seconds} {RATES[self.args.device][kind]}")
        begin = process.hear("begun", ANSWER_S)["at"]
        process.hear("served", seconds + ANSWER_S)
        return begin, process.hear("phase", ANSWER_S)

    def stop(self):
        for process in [*self.services.values(), *self.jobs.values()]:
            process.quit()
        for process in [*self.services.values(), *self.jobs.values()]:
            process.stop(END_S)


class Measurement:
    def __init__(self, args):
        self.args, self.limits = args, Limits()
        self.limits.watch_signals()
        self.limits.end = time.monotonic() + args.budget - KEPT_S
        self.stage = Stage(args.hb, False, None, self.limits)
        self.engines, self.alone = [], None
        self.raw = {"kind": "llm-phases", "version": 1, "command": "bench/llm/llm_phases.py " + " ".join(sys.argv[1:]),
                    "commit": run.commit_of(args.hb), "driver": run.driver_version(), "rates": RATES[args.device], "bucket_s": BUCKET_S,
                    "low_alone": {}, "dropped": [], "phases": []}

    def keep(self, engine, number, service, order, kind, begin, answer, series):
        self.raw["phases"].append({"place": engine.name, "round": number, "service": service, "number": order, "kind": kind,
                                   "beside": series is not None, "seconds": self.args.seconds if series is not None else ALONE_S,
                                   "shares": series or [], **{key: answer[key] for key in ("due_ns", "latency_ns", "token_ns")}})

    def measure_alone(self, engine, number):
        """Each kind of request without a job, and the job without requests."""
        for kind in ("text", "graphs"):
            begin, answer = engine.serve(kind, kind, ALONE_S)
            self.keep(engine, number, kind, 0, kind, begin, answer, None)
        self.limits.sleep_until(time.monotonic() + BETWEEN_S)
        job = engine.jobs["text"]
        job.send("work 60")
        begin = time.monotonic() + 0.2
        self.limits.sleep_until(begin + LOW_ALONE_S)
        job.send("rest")
        ends = job.hear("rested", ANSWER_S)["ends_ns"]
        speed = llm_results.iterations_between(ends, begin, begin + LOW_ALONE_S) / LOW_ALONE_S
        self.raw["low_alone"].setdefault(engine.name, round(speed, 3))

    def measure_service(self, engine, number, service, sequence):
        self.limits.sleep_until(time.monotonic() + BETWEEN_S)
        job, found = engine.jobs[service], []
        begin_low = time.monotonic_ns()
        job.send("work 120")
        for kind in sequence:
            found.append((kind, *engine.serve(service, kind, self.args.seconds)))
        job.send("rest")
        ends = [begin_low] + job.hear("rested", ANSWER_S)["ends_ns"]
        if engine.way.engine:
            self.stage.daemon_of(engine.way).verify()
        for order, (kind, begin, answer) in enumerate(found):
            self.keep(engine, number, service, order, kind, begin, answer,
                      shares(ends, begin, self.args.seconds, self.raw["low_alone"][engine.name]))

    def measure_engine(self, engine, number):
        self.measure_alone(engine, number)
        for service, sequence in (("text", ["text"]), ("graphs", ["graphs"]), ("both", SEQUENCE)):
            self.measure_service(engine, number, service, sequence)

    def run(self):
        try:
            self.engines = [Engine(name, self.stage, self.args) for name in self.args.places]
            for engine in list(self.engines):
                try:
                    engine.wait_ready()
                except Failed as why:
                    self.drop(engine, why)
            for number in range(self.args.rounds):
                for engine in list(self.engines):
                    try:
                        self.measure_engine(engine, number)
                    except Failed as why:
                        self.drop(engine, why)
        except (TimeIsUp, Interrupted, Failed) as why:
            self.raw["dropped"].append(f"the rest: {why}")

    def drop(self, engine, why):
        self.raw["dropped"].append(f"{engine.name}: {why}")
        self.engines.remove(engine)
        engine.stop()

    def close(self):
        self.limits.end, self.limits.interrupted = time.monotonic() + KEPT_S, False
        for engine in self.engines:
            engine.stop()
        self.stage.close()


def show(raw):
    print("\n".join(table(raw["rows"]) + [f"left out: {one}" for one in raw["dropped"]]), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    measure = verbs.add_parser("measure")
    measure.add_argument("--out", required=True)
    measure.add_argument("--hb", default=os.path.join(HERE, "../../build/hb"))
    measure.add_argument("--places", type=words_of(PLACES), default=["temporal", "spatial"])
    measure.add_argument("--seconds", type=float, default=8, help="of a phase (8); at least 4")
    measure.add_argument("--rounds", type=int, default=1)
    measure.add_argument("--budget", type=float, default=300, help="seconds after which the call ends (300)")
    measure.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: to try this script")
    verbs.add_parser("report").add_argument("file")
    args = parser.parse_args()
    if args.verb == "report":
        with open(args.file, encoding="utf-8") as file:
            show(json.load(file))
        return 0
    if args.seconds < 2 * CHANGE_S:
        parser.error(f"--seconds {args.seconds:g}: a phase needs {2 * CHANGE_S:g} s at least")
    measurement = Measurement(args)
    try:
        measurement.run()
    finally:
        measurement.close()
    raw = measurement.raw
    raw["rows"] = summarize(raw)
    llm_results.write_json(args.out, raw)
    show(raw)
    return 1 if raw["dropped"] else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures an LLM service beside low-priority jobs under all ways of sharing a GPU, in one run.

  llm_suite.py measure --raw FILE [--models 1b,8b] [--low JOB,...] [--loads 50,80] [--places ...] [--rounds N] [--budget S]
  llm_suite.py merge --raw FILE OTHER...        adds other calls' raw files
  llm_suite.py report FILE [--out llm.json]     the table, and the results file

A call measures the chosen part and adds it to the raw file, so several short calls make one result. The table is printed last.
docs/bench.md describes windows, jobs and ways of sharing.
"""
import argparse
import glob
import importlib.util
import json
import os
import signal
import sys
import time
import urllib.error
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]
import llm_results  # noqa: E402  pylint: disable=wrong-import-position
from hbbench import core_split, run, tables  # noqa: E402  pylint: disable=wrong-import-position
from hbbench.command import Refused, read_peers  # noqa: E402  pylint: disable=C0413
from hbbench.process import Failed, Interrupted, Limits, Process, TimeIsUp  # noqa: E402  pylint: disable=C0413
from hbbench.stage import Stage, free_port  # noqa: E402  pylint: disable=wrong-import-position

# Place -> the way of sharing of hbbench whose processes it uses. Ways: native beside LP is the driver's time slices.
PLACES = {"native": "timeslice", "mps": "mps_prio", "temporal": "temporal", "spatial": "spatial"}
# Other systems and the rules of papers have the same name in both. They are measured if --places names them.
MORE_PLACES = {way.name: way.name for way in tables.WAYS if way.high in tables.PEERS or way.name in ("reef", "orion")}
JOBS = ["train", "lora", "generate", "train-compiled", "lora-compiled", "generate-compiled"]
LOADS = "50,80"
START_S, ANSWER_S, END_S = 240, 20, 3
CAPACITY_S, CAPACITY_SETTLE_S = 6.0, 2.0
LOW_ALONE_S = 1.5
LOW_BEGIN_S = 0.2     # before the load begins
KEPT_S = 15           # of the budget, for ending programs and the table
SKIP_STEP = 137       # requests of the trace between the pieces of two rounds


class Place:
    """The processes of one way of sharing: the service, and one low-priority job at a time."""

    def __init__(self, name, stage, args):
        self.name, self.stage, self.args = name, stage, args
        self.way = tables.find_way((PLACES | MORE_PLACES)[name])
        self.server = self.job = self.port = None
        self.told_ns = 0

    def start(self, label, command, high, more):
        before, environment = self.stage.place(self.way, high, ())
        return Process(f"{label} ({self.name})", before + command, self.stage.environment(**environment, **more),
                       self.stage.folder, self.stage.limits, signal.SIGTERM, core_split.choose(high))

    def start_server(self, model):
        if self.args.server == "llama":
            self.port = free_port()
            more = {"LD_LIBRARY_PATH": library_path()}
            if self.name == "mps":  # its stream has no priority of its own; MPS can give one to a client
                more["CUDA_MPS_CLIENT_PRIORITY"] = "0"
            self.server = self.start("llama-server", llama_command(self.args, model, self.port), True, more)
            return
        command = ["python3", os.path.join(HERE, "llm_server.py"), "--model", model, "--batch", str(self.args.batch),
                   "--kv-tokens", str(self.args.kv_tokens), "--device", self.args.device]
        self.server = self.start("llm_server", command + (["--eager"] if self.args.server == "eager" else []), True, {})

    def wait_server(self):
        """Waits until the server serves; returns its own words about the start."""
        if self.args.server != "llama":
            ready = self.server.hear("ready", START_S)
            self.port = ready["port"]
            return ready
        begin = time.monotonic()
        while not answers_health(self.port):
            self.server.check()
            if time.monotonic() > begin + START_S:
                raise Failed(self.server.complaint("does not serve in time"))
            self.stage.limits.sleep_until(time.monotonic() + 0.1)
        return {"model": "llama-server"}

    def start_job(self, job):
        kind, _, compiled = job.partition("-")
        more = {"CUDA_MPS_CLIENT_PRIORITY": "1"} if self.name == "mps" and self.args.server == "llama" else {}
        command = ["python3", os.path.join(HERE, "llm_jobs.py"), kind, "--device", self.args.device,
                   "--model", "tiny" if self.args.device == "cpu" else "1b"]
        self.job = self.start(job, command + (["--compile"] if compiled else []), False, more)

    def stop_job(self):
        if self.job:
            self.job.stop(END_S)
        self.job = None

    def stop(self):
        self.stop_job()
        if self.server:
            self.server.stop(END_S, signal.SIGTERM)

    def counters(self):
        """Counters of the service's tenant, such as takeovers; {} where no daemon schedules it."""
        if not self.way.engine:
            return {}
        return next((tenant["counters"] for tenant in self.stage.daemon_of(self.way).status()["tenants"]
                     if tenant["pid"] == self.server.pid), {})

    def tell(self, objective_ns):
        """Makes the daemon's settings those of this place, and sets the service's objective; 0 = none."""
        if not self.way.engine:
            return
        self.stage.daemon_of(self.way).set(self.way.settings)
        if objective_ns != self.told_ns:
            self.stage.daemon_of(self.way).set_slo(self.server.pid, objective_ns)
            self.told_ns = objective_ns

    def takes_objective(self):
        return self.way.kind == tables.ENGINE


def answers_health(port):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2) as answer:
            return answer.status == 200
    except (OSError, urllib.error.URLError):
        return False


def library_path():
    """Folders with the CUDA libraries that llama-server needs: of the toolkit or of PyTorch's packages."""
    found = glob.glob("/usr/local/cuda*/lib64/libcublas.so.1[23]")
    package = importlib.util.find_spec("torch")
    if package:
        site = os.path.dirname(os.path.dirname(package.origin))
        found += glob.glob(f"{site}/nvidia/*/lib/libcublas.so.1[23]") + glob.glob(f"{site}/nvidia/*/lib/libcudart.so.1[23]")
    return ":".join(dict.fromkeys([os.path.dirname(path) for path in found] + os.environ.get("LD_LIBRARY_PATH", "").split(":")))


def llama_command(args, model, port):
    """Options of llama-server that correspond to those of llm_server.py."""
    return [args.llama_server, "-m", args.gguf.replace("MODEL", model), "-ngl", "99", "--port", str(port), "--parallel",
            str(args.batch), "-c", str(args.kv_tokens), "--kv-unified", "-fa", "on", "-fit", "off", "-cram", "0", "--no-webui",
            "--log-disable"]


class Suite:
    def __init__(self, args, raw, keep):
        self.args, self.raw, self.keep = args, raw, keep
        self.limits = Limits()
        self.limits.watch_signals()
        self.limits.end = time.monotonic() + args.budget - KEPT_S
        self.call = max([window["call"] for window in raw["windows"]], default=-1) + 1
        self.stage = Stage(args.hb, False, args.peers, self.limits)
        self.places = []

    # --- starting

    def start_servers(self, model):
        """All at once; a place whose server fails is left out."""
        self.places = []
        for name in self.args.places:
            place = Place(name, self.stage, self.args)
            try:
                place.start_server(model)
                self.places.append(place)
            except Failed as why:
                self.drop(name, why)
        for place, why in self.hear_all(self.places, lambda place: place.wait_server(), "server"):
            place.stop()
            self.places.remove(place)
            self.drop(place.name, why)
        if "native" not in [place.name for place in self.places]:
            raise Failed("the native service failed; without it there is no capacity and nothing to compare with")

    def hear_all(self, places, hear, what):
        """Notes what each place says when it is ready; returns those that failed, and why."""
        begin, failed = time.monotonic(), []
        for place in list(places):
            try:
                said = hear(place)
                said.pop("event", None)
                start = {"call": self.call, "what": what, "place": place.name, **said,
                         "after_s": round(time.monotonic() - begin, 1)}
                self.raw["starts"].append(start)
                print("ready:", json.dumps(start), file=sys.stderr, flush=True)
            except Failed as why:
                failed.append((place, why))
        return failed

    def drop(self, name, why):
        self.raw["dropped"].append(f"{name}: {why}")
        print(f"left out: {name}: {why}", file=sys.stderr, flush=True)

    def start_jobs(self, job):
        """A place whose job fails has no windows with it. With torch.compile the first job fills the compiler's cache for the
        others, which start after it."""
        alone = self.places[:1] if job.endswith("-compiled") else []
        for group in (alone, [place for place in self.places if place not in alone]):
            for place in group:
                place.start_job(job)
            for place, why in self.hear_all(group, lambda place: place.job.hear("ready", START_S), job):
                place.stop_job()
                self.drop(f"{job} in {place.name}", why)

    # --- measuring

    def run_load(self, place, options):
        """Starts the load; (process, moment at which it began)."""
        words = ["python3", os.path.join(HERE, "llm_load.py"), "--port", str(place.port), "--most-prompt",
                 str(self.args.most_prompt), "--most-answer", str(self.args.most_answer), *map(str, options)]
        load = Process("llm_load", words, dict(os.environ), self.stage.folder, self.limits, cpus=core_split.choose(False))
        return load, load.hear("begun", ANSWER_S)["at"]

    def measure_capacity(self, model):
        name = f"{model}/{self.args.server}"
        if name in self.raw["capacity"] and not self.args.again:
            return
        place = next(place for place in self.places if place.name == "native")
        load, _ = self.run_load(place, ["--closed", 2 * self.args.batch, "--seconds", CAPACITY_S, "--wait", 30])
        try:
            results = load.hear("results", CAPACITY_S + 40)
        finally:
            load.kill()
        capacity = llm_results.capacity_of(results["requests"], CAPACITY_SETTLE_S * 1e6, CAPACITY_S * 1e6)
        if not capacity:
            raise Failed(f"the service answered no request after the first {CAPACITY_SETTLE_S:g} s; {results['failed_count']} failed: "
                         f"{results['failed'][:2]}")
        self.raw["capacity"][name] = round(capacity, 3)
        print(f"{name}: capacity {self.raw['capacity'][name]:.2f} requests/s", file=sys.stderr, flush=True)

    def measure_low_alone(self, job):
        """Adds a speed of the job with no request present, native. It varies, so each round measures it before and after."""
        place = next((place for place in self.places if place.name == "native" and place.job), None)
        if not place:
            return
        place.job.send("work 60")
        begin = time.monotonic() + LOW_BEGIN_S
        self.limits.sleep_until(begin + LOW_ALONE_S)
        ends = self.rest(place)
        speed = llm_results.iterations_between(ends, begin, begin + LOW_ALONE_S) / LOW_ALONE_S
        self.raw["low_alone"].setdefault(job, []).append(round(speed, 4))

    @staticmethod
    def rest(place):
        place.job.send("rest")
        return place.job.hear("rested", ANSWER_S)["ends_ns"]

    def window(self, place, model, load, number, job, objective):
        """One window; appends it to the raw results."""
        name = f"{model}/{self.args.server}"
        rate = self.raw["capacity"][name] * load / 100
        same = {"model": model, "server": self.args.server, "load": load}
        told = self.objective_ns(same) if objective else 0
        place.tell(told)
        before = place.counters()
        begin_low = time.monotonic()
        if job:
            place.job.send("work 60")
            self.limits.sleep_until(begin_low + LOW_BEGIN_S)
        seconds = self.args.settle + self.args.seconds
        process, begin = self.run_load(place, ["--rate", f"{rate:.4f}", "--seconds", seconds, "--skip", number * SKIP_STEP,
                                               "--wait", self.args.wait])
        try:
            results = process.hear("results", seconds + self.args.wait + ANSWER_S)
        finally:
            process.kill()
        ends = [round(1e9 * begin_low)] + self.rest(place) if job else []
        low = llm_results.iterations_between(ends, begin + self.args.settle, begin + seconds) / self.args.seconds
        self.raw["windows"].append({
            **same, "rate_per_s": round(rate, 3), "place": place.name, "low": job, "objective": bool(objective),
            "told_us": told / 1e3 if objective else None, "round": number, "call": self.call, "settle_s": self.args.settle,
            "seconds": self.args.seconds, "low_rate": round(low, 4),
            "counters": {name: value - before.get(name, 0) for name, value in place.counters().items()},
            **{key: results[key] for key in ("requests", "failed", "failed_count", "token_gaps_us")}})
        self.print_window(self.raw["windows"][-1])
        place.server.check()
        if place.way.engine:
            self.stage.daemon_of(place.way).verify()

    @staticmethod
    def print_window(window):
        tokens = llm_results.latencies([window], llm_results.time_per_token)
        print(f"{window['model']} {window['load']}% {window['place']} {window['low'] or 'alone'}"
              f"{' with objective' if window['objective'] else ''}: TPOT p50 "
              f"{llm_results.ms(llm_results.at_share(tokens, 0.5))} ms, LP {window['low_rate']}/s, "
              f"{len(window['requests'])} answers, {window['failed_count']} failed", file=sys.stderr, flush=True)

    def objective_ns(self, same):
        alone = llm_results.find(self.raw["windows"], **same, place="native", low="")
        values = llm_results.latencies(alone, llm_results.time_per_token)
        if not values:
            raise Failed("no window of the service alone was measured, so there is no objective to tell")
        return round(1e3 * llm_results.OBJECTIVE * llm_results.stats.quantile(values, 0.99))

    def measure_place(self, place, model, load, number, job):
        """The windows of one way of sharing: without the job, with it, and with it and an objective."""
        if self.args.only_objective:
            if place.name == "native":
                self.window(place, model, load, number, "", False)
            elif place.job and place.takes_objective():
                self.window(place, model, load, number, job, True)
            return
        self.window(place, model, load, number, "", False)
        if place.job:
            for objective in (False, True) if place.takes_objective() and self.args.objective else (False,):
                self.window(place, model, load, number, job, objective)

    def measure_round(self, model, number, job):
        """Each round begins with another place, the first with the native one, whose figures make the objective."""
        for load in self.args.loads:
            shift = number % len(self.places)
            for place in self.places[shift:] + self.places[:shift]:
                try:
                    self.measure_place(place, model, load, number, job)
                except Failed as why:
                    self.drop(f"{model}, {place.name}, {job or 'no job'}", why)
                    place.stop()
                    self.places.remove(place)
            if not self.places:
                raise Failed("no service is left")

    def measure_model(self, model):
        self.start_servers(model)
        self.measure_capacity(model)
        for job in self.args.low or [""]:
            if job:
                self.start_jobs(job)
            for number in range(self.args.first_round, self.args.first_round + self.args.rounds):
                if job:
                    self.measure_low_alone(job)
                self.measure_round(model, number, job)
                if job:
                    self.measure_low_alone(job)
                self.keep()
            for place in self.places:
                place.stop_job()

    def run(self):
        """True when everything was measured."""
        try:
            for model in self.args.models:
                self.measure_model(model)
                self.stop_places()
            return not self.raw["dropped"]
        except (TimeIsUp, Interrupted) as why:
            self.drop("the rest", why)
        except Failed as why:
            self.drop("the rest", why)
        return False

    def stop_places(self):
        for place in self.places:
            place.stop()
        self.places = []

    def close(self):
        self.limits.end = time.monotonic() + KEPT_S
        self.limits.interrupted = False
        self.stop_places()
        self.stage.close()


# --- command line ----------------------------------------------------------------------------------------------------

def words_of(known):
    def read(text):
        words = [word for word in text.split(",") if word]
        for word in words:
            if word not in known:
                raise argparse.ArgumentTypeError(f"there is no '{word}'; there are {', '.join(known)}")
        return words
    return read


def numbers(text):
    found = [float(word) for word in text.split(",")]
    if not all(0 < one <= 200 for one in found):
        raise argparse.ArgumentTypeError("loads are percentages from 1 to 200")
    return [int(one) if one == int(one) else one for one in found]


def parse(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    measure = verbs.add_parser("measure")
    measure.add_argument("--raw", required=True, help="FILE.json or FILE.json.gz; results are added to it")
    measure.add_argument("--hb", default=os.path.join(HERE, "../../build/hb"))
    measure.add_argument("--models", type=words_of(["tiny", "1b", "8b"]), default=["1b"])
    measure.add_argument("--server", choices=("graphs", "eager", "llama"), default="graphs")
    measure.add_argument("--places", type=words_of(PLACES | MORE_PLACES), default=list(PLACES))
    for peer, (_, what) in tables.PEERS.items():
        measure.add_argument(f"--{peer}", metavar="DIR", help=f"where {what}, for --places")
    measure.add_argument("--low", type=words_of(JOBS), default=JOBS[:3], help=f"of {', '.join(JOBS)}; \"\" = none")
    measure.add_argument("--loads", type=numbers, default=numbers(LOADS), help="percent of the capacity (50,80)")
    measure.add_argument("--rounds", type=int, default=1)
    measure.add_argument("--first-round", type=int, default=0, help="number of the first round: another piece of the trace")
    measure.add_argument("--seconds", type=float, default=2.5, help="of a window")
    measure.add_argument("--settle", type=float, default=1.0, help="seconds of each window that do not count")
    measure.add_argument("--wait", type=float, default=15, help="seconds to wait for answers after a window")
    measure.add_argument("--no-objective", dest="objective", action="store_false")
    measure.add_argument("--only-objective", action="store_true", help="measure only windows with an objective, and the native "
                         "ones without a job")
    measure.add_argument("--batch", type=int, default=32)
    measure.add_argument("--kv-tokens", type=int, default=32768)
    measure.add_argument("--most-prompt", type=int, default=2048)
    measure.add_argument("--most-answer", type=int, default=256)
    measure.add_argument("--budget", type=float, default=480, help="seconds after which the call ends (480)")
    measure.add_argument("--again", action="store_true", help="measure the capacity again")
    measure.add_argument("--llama-server", default="llama-server", help="path of the program, with --server llama")
    measure.add_argument("--gguf", default="/dev/shm/MODEL.gguf", help="path of the model's file; MODEL stands for its name")
    measure.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: to try this script, with --models tiny "
                         "--places native")
    for name in ("merge", "report"):
        verb = verbs.add_parser(name)
        verb.add_argument("files", nargs="+")
        verb.add_argument("--raw" if name == "merge" else "--out", required=name == "merge")
    args = parser.parse_args(argv)
    if args.verb == "measure":
        try:
            args.peers = read_peers(args)
        except Refused as why:
            parser.error(str(why))
        for name in args.places:
            peer = tables.find_way((PLACES | MORE_PLACES)[name]).high
            if peer in tables.PEERS and peer not in args.peers:
                parser.error(f"--places {name} needs --{peer} DIR")
    return args


def measure(args):
    raw = llm_results.read_raw(args.raw)
    raw["commands"].append("bench/llm/llm_suite.py " + " ".join(sys.argv[1:]))
    raw["about"] = {"commit": run.commit_of(args.hb), "driver": run.driver_version(),
                    "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                    "machine": run.first_match("/proc/cpuinfo", r"^model name\s*: (.*)$", "unknown processor")
                    + f", {os.cpu_count()} processors"}
    suite = Suite(args, raw, lambda: llm_results.write_json(args.raw, raw))
    try:
        complete = suite.run()
    finally:
        suite.close()
        llm_results.write_json(args.raw, raw)
    print("\n".join(llm_results.table(llm_results.report_of(raw))), flush=True)
    return 0 if complete else 1


def main():
    args = parse(sys.argv[1:])
    try:
        if args.verb == "measure":
            return measure(args)
        raw = llm_results.read_raw(args.raw) if args.verb == "merge" else llm_results.new_raw()
        for path in args.files:
            if not os.path.exists(path):
                raise llm_results.BadFile(f"{path}: there is no such file")
            other = llm_results.read_raw(path)
            raw = llm_results.merge(raw, other) if args.verb == "merge" else other
        report = llm_results.report_of(raw)
        if args.verb == "merge":
            llm_results.write_json(args.raw, raw)
        elif args.out:
            llm_results.write_json(args.out, report)
        print("\n".join(llm_results.table(report)))
        return 0
    except (llm_results.BadFile, Failed) as why:
        print(f"llm_suite.py: {why}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())

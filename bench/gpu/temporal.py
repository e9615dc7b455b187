#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the temporal engine on a real GPU: the table of bench/results/GPU/temporal.json.

  bench/gpu/temporal.py --build build --out DIR [--part torch,kernel,copy,launch] [--rounds 3] [--window 4]

All programs of a part run at the same time, natively and under `hb run`, and
are measured in turns: those that are not measured are paused, so drift hits all
alike. Writes DIR/temporal-PART.json (rows: what, measured, baseline, unit,
target, met, command, commit, driver) and the raw distributions beside it.
Needs PyTorch, timm and transformers for the parts `torch` and `kernel`.
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

HERE = os.path.dirname(os.path.abspath(__file__))


def quantile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


class Bench:
    def __init__(self, args):
        self.args = args
        self.dir = tempfile.mkdtemp(prefix="hb-bench-")
        self.hb = os.path.join(os.path.abspath(args.build), "hb")
        self.micro_folder = os.path.join(os.path.abspath(args.build), "bench", "gpu")
        self.micro_path = os.path.join(self.micro_folder, "gpu-micro")
        self.processes = []
        self.rows = []
        self.raw = {}
        self.env = dict(os.environ, HB_LOG="info", PYTHONUNBUFFERED="1")

    def wrap(self, how, extra=()):
        if how in ("native", "mps"):
            return []
        return [self.hb, "run", "--priority", how, *extra, "--"]

    def spawn(self, name, how, command, extra=(), env=None, **streams):
        log = open(os.path.join(self.dir, name + ".log"), "w")
        streams.setdefault("stdout", log)
        process = subprocess.Popen(self.wrap(how, extra) + command, stderr=log if "stderr" not in streams else
                                   streams.pop("stderr"), env=env or self.env, start_new_session=True, **streams)
        self.processes.append((name, process))
        return process

    def torch(self, name, how, role, model, graph=False, env=None):
        if role == "train":
            self.pause(name)
        command = [sys.executable, os.path.join(HERE, "torch_tenant.py"), role, "--model", model, "--dir", self.dir,
                   "--name", name] + (["--graph"] if graph else [])
        self.spawn(name, how, command, env=env)

    def path(self, name, suffix):
        return os.path.join(self.dir, name + suffix)

    def pause(self, *names):
        for name in names:
            open(self.path(name, ".pause"), "w").close()

    def resume(self, *names):
        for name in names:
            if os.path.exists(self.path(name, ".pause")):
                os.unlink(self.path(name, ".pause"))

    def wait_ready(self, names, seconds=180):
        end = time.monotonic() + seconds
        for name in names:
            while not os.path.exists(self.path(name, ".ready")):
                for other, process in self.processes:
                    if other == name and process.poll() is not None:
                        raise RuntimeError("%s ended: %s" % (name, open(self.path(name, ".log")).read()[-1500:]))
                if time.monotonic() > end:
                    raise RuntimeError("%s is not ready: %s" % (name, open(self.path(name, ".log")).read()[-1500:]))
                time.sleep(0.05)

    def lines(self, name):
        """Whole ones: the last may be being written."""
        path = self.path(name, ".out")
        return open(path).read().split("\n")[:-1] if os.path.exists(path) else []

    def serve(self, name, label, rate, seconds):
        before = len(self.lines(name))
        with open(self.path(name, ".cmd"), "a") as out:
            out.write("%s %g %g\n" % (label.replace(" ", "_"), rate, seconds))
        end = time.monotonic() + 6 * seconds + 20
        while len(self.lines(name)) == before:
            if time.monotonic() > end:
                raise RuntimeError("%s does not answer: %s" % (name, open(self.path(name, ".log")).read()[-1500:]))
            time.sleep(0.01)
        return json.loads(self.lines(name)[before])

    def run_micro(self, how, arguments, extra=(), env=None, program="gpu-micro"):
        command = self.wrap(how, extra) + [os.path.join(self.micro_folder, program), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=env or self.env)
        if done.returncode:
            raise RuntimeError("%s: %s" % (" ".join(command), done.stderr[-1500:]))
        return json.loads(done.stdout)

    def row(self, what, measured, baseline, unit, target, met):
        self.rows.append({"what": what, "measured": measured, "baseline": baseline, "unit": unit, "target": target,
                          "met": bool(met)})
        print("%-78s %12s (baseline %s) %-8s target %-22s %s" % (what, measured, baseline, unit, target,
                                                                 "met" if met else "MISSED"), flush=True)

    def status(self):
        done = subprocess.run([self.hb, "status", "--json"], capture_output=True, text=True, timeout=20)
        return done.stdout or done.stderr

    def terminate(self, *names):
        """Those that do not look for the stop file; they end as at Ctrl-C or a service manager's word."""
        for name, process in self.processes:
            if name in names and process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)

    def stop(self):
        open(os.path.join(self.dir, "stop"), "w").close()
        end = time.monotonic() + 15
        for name, process in self.processes:
            try:
                process.wait(max(0.1, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                try:
                    process.send_signal(signal.SIGUSR1)
                    time.sleep(0.2)
                    print("%s does not end: %s" % (name, open(self.path(name, ".log")).read()[-1500:]), flush=True)
                    os.killpg(process.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass

    def train_rate(self, name, begun, ended):
        ends = [at for at in map(float, self.lines(name)) if begun <= at <= ended]
        return (len(ends) - 1) / (ends[-1] - ends[0]) if len(ends) > 1 else 0.0


class Windows:
    """Measurement windows in turns; what LP did in them is read off after everybody has stopped."""

    def __init__(self, bench):
        self.bench = bench
        self.windows = {}
        self.latencies = {}
        self.moments = {} # of gpu-micro's trials, a dict a round

    def measure(self, label, low, high=None, rate=60.0, micro=None):
        bench = self.bench
        bench.resume(*low)
        time.sleep(0.5 if low else 0.1)
        begun = time.monotonic()
        if high:
            answer = bench.serve(high, label, rate, bench.args.window)
            self.latencies.setdefault(label, []).extend(answer["latency_us"])
        elif micro:
            answer = bench.run_micro(*micro)
            self.moments.setdefault(label, []).append(answer["moments"])
            begun, ended = answer["began_ns"] / 1e9, answer["ended_ns"] / 1e9
            self.latencies.setdefault(label, []).extend(v / 1e3 for v in answer["latency"]["raw_ns"])
        else:
            time.sleep(bench.args.window)
        ended = time.monotonic() if not micro else ended
        bench.pause(*low)
        time.sleep(0.15)
        self.windows.setdefault(label, []).append((begun, ended, list(low)))

    def low_rate(self, label, name):
        """The fastest of the rounds: what disturbs a window only slows it. 0: none was measured."""
        return max((self.bench.train_rate(name, begun, ended) for begun, ended, _ in self.windows.get(label, [])),
                   default=0.0)

    def low_mean(self, label, name):
        rates = [self.bench.train_rate(name, begun, ended) for begun, ended, _ in self.windows[label]]
        return sum(rates) / len(rates)

    def p(self, label, share):
        return quantile(self.latencies[label], share)


def part_torch(bench):
    """HP service and LP training, PyTorch."""
    turns = Windows(bench)
    models = {"resnet": "resnet50_train_b128", "llama": "llama8_train_b4"}
    bench.torch("hp-native", "native", "serve", "resnet50_b1", graph=True)
    bench.torch("hp-hb", "high", "serve", "resnet50_b1", graph=True)
    names = ["hp-native", "hp-hb"]
    for short, model in models.items():
        for how, kind in (("native", "native"), ("hb", "low")):
            bench.torch("%s-%s" % (short, how), kind, "train", model)
            names.append("%s-%s" % (short, how))
    bench.wait_ready(names)
    bench.raw["status"] = bench.status()
    for _ in range(bench.args.rounds):
        for how in ("native", "hb"):
            turns.measure("hp alone " + how, [], "hp-" + how)
            for short in models:
                low = "%s-%s" % (short, how)
                turns.measure("alone " + low, [low])
                turns.measure("hp beside " + low, [low], "hp-" + how)
    bench.stop()
    for share, name in ((0.5, "p50"), (0.99, "p99")):
        native, ours = turns.p("hp alone native", share), turns.p("hp alone hb", share)
        bench.row("HP alone under --priority high, resnet50 b1 graph, %s" % name, round(ours, 1), round(native, 1), "us",
                  "within 1 % of native", ours <= native * 1.01)
    for short, model in models.items():
        native = turns.low_rate("alone %s-native" % short, "%s-native" % short)
        ours = turns.low_rate("alone %s-hb" % short, "%s-hb" % short)
        bench.row("LP alone under --priority low, %s" % model, round(100 * ours / native, 2), 100, "%", ">= 98.5 %",
                  ours >= 0.985 * native)
        label, alone = "hp beside %s-hb" % short, "hp alone native"
        p50, p99 = turns.p(label, 0.5), turns.p(label, 0.99)
        bench.row("HP resnet50 b1 graph, 60/s, beside %s, p50" % model, round(p50, 1), round(turns.p(alone, 0.5), 1),
                  "us", "<= alone + 230 us", p50 <= turns.p(alone, 0.5) + 230)
        bench.row("HP resnet50 b1 graph, 60/s, beside %s, p99" % model, round(p99, 1), round(turns.p(alone, 0.99), 1),
                  "us", "<= alone x 1.6", p99 <= turns.p(alone, 0.99) * 1.6)
        kept = turns.low_mean(label, "%s-hb" % short) / native
        bench.row("LP %s beside it, of alone" % model, round(100 * kept, 2), 100, "%", ">= 93 %", kept >= 0.93)
        bench.raw["LP %s beside it, of alone under Hummingbird" % model] = kept * native / ours
        label = "hp beside %s-native" % short
        bench.raw["native slicing beside " + short] = {
            "p50_us": turns.p(label, 0.5), "p99_us": turns.p(label, 0.99),
            "low_of_alone": turns.low_mean(label, "%s-native" % short) / native}
    bench.raw["latency_us"] = turns.latencies


def part_kernel(bench):
    """A 20 us HP kernel beside 1, 2 and 4 LP processes; those together against plain MPS."""
    turns = Windows(bench)
    pipe = tempfile.mkdtemp(prefix="hb-mps-")
    mps_env = dict(bench.env, CUDA_MPS_PIPE_DIRECTORY=pipe, CUDA_MPS_LOG_DIRECTORY=pipe)
    subprocess.run(["nvidia-cuda-mps-control", "-d"], env=mps_env, check=True, timeout=30)
    try:
        ours = ["hb%d" % i for i in range(4)]
        plain = ["mps%d" % i for i in range(4)]
        for name in ours:
            bench.torch(name, "low", "train", "resnet50_train_b128")
        for name in plain:
            bench.torch(name, "mps", "train", "resnet50_train_b128", env=mps_env)
        bench.torch("native", "native", "train", "resnet50_train_b128")
        bench.wait_ready(ours + plain + ["native"])
        bench.raw["status"] = bench.status()
        trials = str(bench.args.trials)
        for _ in range(bench.args.rounds):
            turns.measure("hp alone", [], micro=("native", ["kernel", "20", "264", trials]))
            turns.measure("hp beside native", ["native"], micro=("native", ["kernel", "20", "264", trials]))
            for n in (1, 2, 4):
                turns.measure("hp beside %d" % n, ours[:n], micro=("high", ["kernel", "20", "264", trials]))
                if n > 1:
                    turns.measure("%d ours" % n, ours[:n])
                    turns.measure("%d plain" % n, plain[:n])
        bench.stop()
    finally:
        subprocess.run(["nvidia-cuda-mps-control"], input="quit\n", text=True, env=mps_env, timeout=30, check=False)
        shutil.rmtree(pipe, ignore_errors=True)
    for n in (1, 2, 4):
        label = "hp beside %d" % n
        bench.row("20 us HP kernel beside %d LP PyTorch training, p99" % n, round(turns.p(label, 0.99), 1),
                  round(turns.p("hp beside native", 0.99), 1), "us", "<= 260 us", turns.p(label, 0.99) <= 260)
        bench.raw[label + " p50_us"] = turns.p(label, 0.5)
    for n in (2, 4):
        ours_rate = sum(turns.low_rate("%d ours" % n, name) for name in ours[:n])
        plain_rate = sum(turns.low_rate("%d plain" % n, name) for name in plain[:n])
        bench.row("%d LP processes together, of plain MPS" % n, round(100 * ours_rate / plain_rate, 2), 100, "%",
                  ">= 98 %", ours_rate >= 0.98 * plain_rate)
    bench.raw["alone p50_us"] = turns.p("hp alone", 0.5)
    bench.raw["latency_us"] = turns.latencies


def bandwidth(marks, begun, ended):
    inside = [(at / 1e9, done) for at, done in marks if begun <= at / 1e9 <= ended]
    return (inside[-1][1] - inside[0][1]) / (inside[-1][0] - inside[0][0]) / 1e9 if len(inside) > 1 else 0.0


def copy_round(bench, how_low, how_high, direction, lows):
    """`lows`: (name, extra arguments of hb run). Returns latencies in us and GB/s by name."""
    size = str(16 << 20)
    streams = [(name, bench.spawn("copy-" + name, how_low, [bench.micro_path, "stream", size, direction, "9"], extra,
                                  stdout=subprocess.PIPE, text=True)) for name, extra in lows]
    time.sleep(3.0)
    answer = bench.run_micro(how_high, ["copy", "600000", direction, str(bench.args.trials)])
    begun, ended = answer["began_ns"] / 1e9, answer["ended_ns"] / 1e9
    rates = {}
    for name, process in streams:
        marks = json.loads(process.communicate(timeout=60)[0])["marks"]
        rates[name] = bandwidth(marks, begun, ended)
    return [v / 1e3 for v in answer["latency"]["raw_ns"]], rates


def part_copy(bench):
    """600 KB copies of HP beside LP copying without pause."""
    for direction in ("h2d", "d2h"):
        native_alone = copy_round(bench, "native", "native", direction, [])[0]
        native, native_rate = copy_round(bench, "native", "native", direction, [("a", ())])
        ours, rate = copy_round(bench, "low", "high", direction, [("a", ())])
        bench.row("HP copy 600 KB %s beside one LP copying, p99" % direction, round(quantile(ours, 0.99), 1),
                  round(quantile(native, 0.99), 1), "us", "<= 60 us", quantile(ours, 0.99) <= 60)
        bench.row("LP %s bandwidth beside it, of native" % direction, round(100 * rate["a"] / native_rate["a"], 2), 100,
                  "%", ">= 99 %", rate["a"] >= 0.99 * native_rate["a"])
        bench.raw[direction] = {"alone_us": native_alone, "native_us": native, "ours_us": ours, "native_gb_s": native_rate,
                                "ours_gb_s": rate}
    weighted = [("a", ("--pcie-weight", "1")), ("b", ("--pcie-weight", "3"))]
    both, rates = copy_round(bench, "low", "high", "h2d", weighted)
    share = rates["b"] / rates["a"] if rates["a"] else 0
    bench.row("two LP copying with weights 1:3, ratio", round(share, 3), 3, "ratio", "3 within 10 %", 2.7 <= share <= 3.3)
    bench.row("HP copy 600 KB h2d beside both, p99", round(quantile(both, 0.99), 1), None, "us", "<= 100 us",
              quantile(both, 0.99) <= 100)
    bench.raw["weighted"] = {"us": both, "gb_s": rates}


def part_launch(bench):
    """What the shim adds to a call."""
    runs = {"native": [], "low": [], "high": []}
    order = list(runs)
    for i in range(4 * bench.args.rounds):
        for how in order[i % 3:] + order[:i % 3]: # no way of running always comes first
            runs[how].append(bench.run_micro(how, ["launch", "30"]))
    for kind in runs["native"][0]:
        for key, limit in (("p50_ns", 60), ("p99_ns", 150)):
            # The quietest of many short runs: what else the machine does only adds.
            native = min(run[kind][key] for run in runs["native"])
            for how in ("low", "high"):
                added = min(run[kind][key] for run in runs[how]) - native
                bench.row("launch cost added, %s, --priority %s, %s" % (kind, how, key[:3]), added, native, "ns",
                          "<= %d ns" % limit, added <= limit)
    bench.raw["runs"] = runs


PARTS = {"torch": part_torch, "kernel": part_kernel, "copy": part_copy, "launch": part_launch}


def describe(args):
    def first_line(*command):
        try:
            return subprocess.run(command, capture_output=True, text=True, timeout=20).stdout.splitlines()[0].strip()
        except (OSError, IndexError, subprocess.TimeoutExpired):
            return "unknown"
    driver = first_line("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader")
    return {"driver": driver, "commit": args.commit or first_line("git", "-C", HERE, "rev-parse", "HEAD")}


def make_parser(parts):
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default="build")
    parser.add_argument("--out", required=True)
    parser.add_argument("--part", default=",".join(parts))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--window", type=float, default=4.0)
    parser.add_argument("--trials", type=int, default=500)
    parser.add_argument("--commit", help="commit that was built, where the sources are no checkout")
    return parser


def run_part(table, part, measure, args, facts):
    """True when the part ran and met its targets. Writes OUT/TABLE-PART.json in any case."""
    bench = Bench(args)
    failure = None
    try:
        measure(bench)
    except (RuntimeError, subprocess.SubprocessError, OSError, ValueError, KeyError) as error:
        failure = repr(error)
        print("%s FAILED: %s" % (part, failure), flush=True)
    finally:
        bench.stop()
    rows = [dict(row, **facts) for row in bench.rows]
    with open(os.path.join(args.out, "%s-%s.json" % (table, part)), "w") as out:
        json.dump({"part": part, "failure": failure, "rows": rows, "raw": bench.raw}, out)
    if failure:
        for name, _ in bench.processes:
            log = bench.path(name, ".log")
            if os.path.exists(log):
                print("--- %s\n%s" % (name, open(log).read()[-600:]), flush=True)
    shutil.rmtree(bench.dir, ignore_errors=True)
    return failure is None and all(row["met"] for row in rows)


def run_parts(table, parts, args):
    """`table` names the results. Returns an exit status."""
    command = "bench/gpu/%s %s" % (os.path.basename(sys.argv[0]), " ".join(sys.argv[1:]))
    facts = dict(command=command, **describe(args))
    met = [run_part(table, part, parts[part], args, facts) for part in args.part.split(",")]
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(run_parts("temporal", PARTS, make_parser(PARTS).parse_args()))

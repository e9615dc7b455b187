#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ways of sharing a GPU in halves: HP serves without pause, LP comes and goes every 0.8 s.

  bench/gpu/spatial_paired.py --build build --out DIR [--part paired|side|gpcs] [--window 1] [--until 125]

  paired   both engines; then the spatial one as REEF and Orion would decide
  side     time slicing, MPS, with priorities, with a limit of 88 and 60 % of the SMs for LP
  gpcs     the spatial engine with `masks: gpcs` and `masks: spread` in turns, after what `hb doctor --gpcs` has
           found and how it proved it

An eager service's time is mostly that of its CPU, and on a shared host that
changes by half from one second to the next. So

- each window begins with HP alone outside the engines, and its rate is that
  which keeps HP as busy as the nominal one does on a quiet CPU (resnet50_b1
  3.4 ms a request: 220/s 75 %, 60/s 20 %; LLM decode 5.4 ms: 130/s 70 %, 60/s 32 %),
  by its mean there or in the halves without LP of the window before, whichever is longer;
- what LP does to HP is judged against the halves without LP of the same window,
  with the same arrivals: the SLO is the p99 of those. What the CPU alone does to that
  share is shown by a control: each half without LP judged in the same way by the other
  two. What the engine itself costs HP is its service time in those halves against that
  outside, a second earlier;
- what HP waits for the GPU, from its last launch on, is told apart from its time: that
  is the GPU's part, whatever the CPU does;
- a window in which HP could not keep up without LP either (most requests waited more than
  three times as long as they were served) says nothing of LP; such are counted and left out.

LP's speed is taken of that alone, outside. Windows go on until --until seconds
after the start, the most important first, then again; every window is written at
once, and SIGTERM ends the measurement as the time limit does. Needs PyTorch, timm
and transformers; else as spatial.py.
"""
import json
import os
import signal
import statistics
import subprocess
import sys
import time

from spatial import RULES, TRAINING, Hummingbird, Mps, Table, ended_with
from temporal import make_parser, quantile, run_parts

STARTED = time.monotonic()
HALF_S = 0.8
SETTLE_S = 0.2
HALVES = 6
ALONE, BESIDE = {0, 2, 4}, {1, 3, 5}
ALONE_S = 0.8
SERVICE_US = {"resnet50_b1": 3400, "llama8_decode_b8": 5400}
FAST, SLOW = ("resnet50_b1", 220), ("resnet50_b1", 60)
DECODE, DECODE_SLOW = ("llama8_decode_b8", 130), ("llama8_decode_b8", 60)
# Who serves, whose training, and the settings of the spatial engine; None: it is not in it.
WAYS = {"spatial": ("hp-space", "space", {}), "temporal": ("hp-time", "time", None),
        "reef": ("hp-space", "space", RULES["gate"]), "orion": ("hp-space", "space", {"low_rule": "orion"}),
        "gpcs": ("hp-space", "space", {"masks": "gpcs"}), "spread": ("hp-space", "space", {"masks": "spread"}),
        "timeslice": ("hp-native", "native", None), "mps": ("hp-mps", "mps", None),
        "mps_prio": ("hp-first", "mps", None), "mps_88": ("hp-first", "mps88", None),
        "mps_60": ("hp-first", "mps60", None)}
# In this order, for both trainings, and again while there is time.
ENGINES_ORDER = (("spatial", FAST), ("spatial", SLOW), ("temporal", FAST), ("temporal", SLOW), ("spatial", DECODE),
                 ("spatial", DECODE_SLOW), ("spatial", FAST), ("spatial", SLOW), ("reef", FAST), ("orion", FAST),
                 ("temporal", DECODE), ("temporal", DECODE_SLOW), ("reef", SLOW), ("orion", SLOW))
SIDE_ORDER = tuple((mode, load) for load in (FAST, SLOW) for mode in ("mps_prio", "mps_60", "timeslice", "mps", "mps_88"))
# Both kinds of masks, the other one first in the next round.
MASKS_ORDER = (("gpcs", FAST), ("spread", FAST), ("gpcs", SLOW), ("spread", SLOW), ("spread", FAST), ("gpcs", FAST),
               ("spread", SLOW), ("gpcs", SLOW))
LOW_TARGETS = {("resnet", FAST): 80, ("llama", FAST): 75, ("resnet", SLOW): 92, ("llama", SLOW): 90}


class TimeIsUp(Exception):
    """The limit, or SIGTERM: what was measured so far is the result."""


class Paired:
    def __init__(self, bench, table, space=None):
        self.bench, self.table, self.space = bench, table, space
        self.slowness, self.inside_us = {}, {}
        self.windows = []

    def command(self, service, load, seconds):
        """As busy as at the nominal rate on a quiet CPU."""
        model, rate = load
        real = rate / max(1.0, self.slowness.get(model, 1.0))
        with open(self.bench.path(service, ".cmd"), "a") as out:
            out.write("paired %g %g %s %g\n" % (real, seconds, model, HALF_S))
        return real

    def answer(self, service, before, seconds):
        end = time.monotonic() + 6 * seconds + 20
        while len(self.bench.lines(service)) == before:
            if time.monotonic() > end:
                raise RuntimeError("%s does not answer" % service)
            yield
        self.last = json.loads(self.bench.lines(service)[before])

    def alone(self, load, seconds=ALONE_S):
        """HP outside the engines, which also says how slow the CPU is now."""
        before = len(self.bench.lines("hp-native"))
        self.command("hp-native", load, seconds)
        for _ in self.answer("hp-native", before, seconds):
            time.sleep(0.01)
        time_us = statistics.mean(self.last["service_us"])
        self.slowness[load[0]] = max(time_us, self.inside_us.get(load[0], 0)) / SERVICE_US[load[0]]
        return [time_us, quantile(self.last["service_us"], 0.95)]

    def beacons(self, mode):
        """What HP allows at this moment: whether LP is kept out, and how many SMs are left free."""
        if self.space is None or mode == "temporal":
            return None
        gpus = self.space.status().get("gpus", [])
        return [[one["terms_ppm"], one["allow_ns"], one["reserve_sms"], one["gaps"], one["gap_ns"], one["excess_ns"], one["judged"]]
                for gpu in gpus for one in gpu.get("beacons", [])]

    def window(self, mode, service, load, low):
        """HP without pause; LP paused in the even halves."""
        bench = self.bench
        native_us = self.alone(load)
        before, seconds = len(bench.lines(service)), HALVES * HALF_S
        real = self.command(service, load, seconds)
        turns, beacons = [(time.monotonic(), False)], []
        for _ in self.answer(service, before, seconds):
            time.sleep(0.005)
            now, on = time.monotonic(), turns[-1][1]
            if now - turns[0][0] >= len(turns) * HALF_S and len(turns) < HALVES:
                (bench.pause if on else bench.resume)(low)
                turns.append((now, not on))
                beacons.append(self.beacons(mode))
        bench.pause(low)
        turns.append((turns[0][0] + seconds, False))
        window = {"mode": mode, "high": load[0], "nominal": load[1], "rate": real, "low": low, "turns": turns,
                  "native_us": native_us, "beacons": beacons, "answer": self.last}
        self.windows.append(window)
        self.inside_us[load[0]] = statistics.mean(self.requests(window, ALONE, "service_us") or [0])
        self.tell(window)
        time.sleep(0.2)

    def requests(self, window, halves, what="latency_us"):
        """Of those that arrived well inside these halves. Arrivals are the same in each half."""
        answer = window["answer"]
        return [value for arrival, value in zip(answer["arrival_s"], answer[what])
                if int(arrival / HALF_S) in halves and arrival % HALF_S >= SETTLE_S]

    def is_overloaded(self, window):
        """Without LP most requests already wait more than three times as long for their turn as they are served: at 75 % busy it is 0.9."""
        return (quantile(self.requests(window, ALONE), 0.5) >
                4 * quantile(self.requests(window, ALONE, "service_us"), 0.5))

    def kept(self, window, halves, judged_by):
        """(requests of these halves within the p99 of those, all of them)."""
        slo = quantile(self.requests(window, judged_by), 0.99)
        own = self.requests(window, halves)
        return sum(latency <= slo for latency in own), len(own)

    def attainment(self, windows, pairs):
        """Mean over windows and pairs of (halves, halves that judge them)."""
        counts = [self.kept(window, *pair) for window in windows for pair in pairs]
        return sum(met for met, _ in counts) / sum(n for _, n in counts)

    def low_rate(self, window):
        """Iterations a second while LP is on. Where only a few fit into a half they count from its begin to the end of
        the last one, which may lie in the next half: LP pauses between iterations only."""
        done = seconds = 0
        every = list(map(float, self.bench.lines(window["low"])))
        for (begun, on), (ended, _) in zip(window["turns"], window["turns"][1:]):
            ends = [at for at in every if begun + SETTLE_S <= at <= ended]
            if on and len(ends) > 4:
                done += len(ends) - 1
                seconds += ends[-1] - ends[0]
            elif on:
                ends = [at for at in every if begun <= at <= ended + HALF_S]
                done += len(ends)
                seconds += (max(ends) if ends else ended) - begun
        return done / seconds if seconds else 0.0

    def judge(self, windows):
        """One line of windows of the same kind, each against its own halves without LP."""
        first = windows[0]
        rate = statistics.mean(self.low_rate(window) for window in windows)
        line = {"mode": first["mode"], "high": first["high"], "rate": first["nominal"], "low": first["low"],
                "real_rate": statistics.mean(window["rate"] for window in windows), "windows": len(windows),
                "native_p50_us": statistics.mean(window["native_us"][0] for window in windows),
                "attainment": self.attainment(windows, [(BESIDE, ALONE)]),
                "control": self.attainment(windows, [({half}, ALONE - {half}) for half in ALONE]),
                "low_per_s": rate, "low_of_alone": rate / self.native_rate(first)}
        for what in ("latency", "service", "wait"):
            for name, halves in (("alone_", ALONE), ("", BESIDE)):
                values = [value for window in windows for value in self.requests(window, halves, what + "_us")]
                line["%s_%sus" % (what, name)] = [quantile(values, share) for share in (0.5, 0.95, 0.99)]
                line["n_alone" if name else "n"] = len(values)
        return line

    def tells(self, window):
        """Whether requests fell into all halves, HP could keep up, and LP's speed alone is known."""
        return (all(self.requests(window, {half}) for half in ALONE | BESIDE) and self.native_rate(window) > 0
                and not self.is_overloaded(window))

    def native_rate(self, window):
        name = "%s-native" % window["low"].split("-")[0]
        return self.table.turns.low_rate("native||" + name, name)

    def lines(self):
        kinds = {}
        for window in filter(self.tells, self.windows):
            kinds.setdefault((window["mode"], window["high"], window["nominal"], window["low"]), []).append(window)
        return [self.judge(windows) for windows in kinds.values()]

    def tell(self, window):
        line = self.judge([window]) if self.tells(window) else None
        if line:
            print_line(line)
            print("  beacons:", *(window["beacons"] or []), flush=True)
        else:
            print("%(mode)s %(high)s %(nominal)d/s %(low)s: HP could not keep up, or too few requests to tell" % window,
                  flush=True)
        with open(os.path.join(self.bench.args.out, "spatial-paired.jsonl"), "a") as out:
            out.write(json.dumps(dict(window, line=line)) + "\n")


def print_line(line):
    print("%-9s %-17s %3d (%5.1f)/s %-12s service outside %6.0f, inside %6.0f -> %6.0f  wait %4.0f %5.0f -> %4.0f %5.0f  "
          "in SLO %5.1f -> %5.1f %%  LP %5.1f %%  n %d" % (
              line["mode"], line["high"], line["rate"], line["real_rate"], line["low"], line["native_p50_us"],
              line["service_alone_us"][0], line["service_us"][0], line["wait_alone_us"][0], line["wait_alone_us"][2],
              line["wait_us"][0], line["wait_us"][2], 100 * line["control"], 100 * line["attainment"],
              100 * line["low_of_alone"], line["n"]), flush=True)


def low_alone(table, where):
    """LP without any HP at work, outside and in the engine, in turns."""
    for _ in range(2):
        for short in TRAINING:
            for how in where:
                table.alone(how, "%s-%s" % (short, how))


def measure(bench, paired, order, space=None):
    for load in sorted({load for _, load in order}):
        paired.alone((load[0], 50))
    settings = None
    while True:
        for mode, load in order:
            service, low, wanted = WAYS[mode]
            if wanted is not None and wanted != settings:
                space.set(wanted)
                settings = wanted
            for short in TRAINING:
                if time.monotonic() - STARTED > bench.args.until - HALVES * HALF_S:
                    raise TimeIsUp
                paired.window(mode, service, load, "%s-%s" % (short, low))


def low_rows(bench, table):
    for short, model in TRAINING.items():
        native, ours = (table.turns.low_rate("%s||%s-%s" % (how, short, how), "%s-%s" % (short, how))
                        for how in ("native", "space"))
        if not native or not ours:
            continue
        bench.row("spatial: LP alone, %s" % model, round(100 * ours / native, 2), 100, "%", ">= 97 %", ours >= 0.97 * native)


def rows(bench, lines):
    for line in lines:
        short, load = line["low"].split("-")[0], (line["high"], line["rate"])
        what = "%s: %s eager at the load of %d/s beside %s" % (line["mode"], line["high"], line["rate"], TRAINING[short])
        bench.row(what + ", requests within the p99 of the halves without LP; baseline: the control",
                  round(100 * line["attainment"], 2), round(100 * line["control"], 2), "%", "within 1 point",
                  line["attainment"] >= line["control"] - 0.01)
        target = LOW_TARGETS.get((short, load)) if line["mode"] in ("spatial", "gpcs", "spread") else None
        if target:
            bench.row(what + ", LP of alone", round(100 * line["low_of_alone"], 2), 100, "%", ">= %d %%" % target,
                      100 * line["low_of_alone"] >= target)
    kept = {(line["mode"], line["low"].split("-")[0]): line["low_of_alone"] for line in lines
            if (line["high"], line["rate"]) == FAST}
    for short, model in TRAINING.items():
        if ("spatial", short) in kept and ("temporal", short) in kept:
            ratio = kept[("spatial", short)] / max(kept[("temporal", short)], 1e-3)
            bench.row("spatial: LP %s beside resnet50_b1 at the load of 220/s, of temporal" % model, round(ratio, 2), 1,
                      "ratio", ">= 1.5", ratio >= 1.5)


def conclude(bench, paired, table, space=None):
    if space:
        space.tell("at the end")
        bench.raw["status"] = space.status()
    told = [window for window in paired.windows if paired.tells(window)]
    bench.raw["windows"] = {"judged": len(told), "left out": len(paired.windows) - len(told)}
    print("windows: %(judged)d judged, %(left out)d left out" % bench.raw["windows"], flush=True)
    lines = bench.raw["lines"] = paired.lines()
    low_rows(bench, table)
    rows(bench, lines)


def doctor_gpcs(bench):
    """What the trial says on this GPU, with nobody else on it."""
    try:
        done = subprocess.run([bench.hb, "doctor", "--gpcs"], env=bench.env, capture_output=True, text=True, timeout=60,
                              check=False)
        found = json.loads(done.stdout)
    except (subprocess.TimeoutExpired, ValueError) as error:
        found = {"works": False, "state": "NO_TRIAL", "found": str(error), "groups": []}
    print("GPCs: %(state)s: %(found)s" % found, flush=True)
    if "looks" in found:
        print("  %(looks)d looks, %(launches)d launches, %(took_ms).0f ms" % found, flush=True)
    for group in found["groups"]:
        print("  %(sms)3d SMs, bits %(bits)s" % group, flush=True)
    return found


def why_masks(space):
    """What LP's processes say of their masks."""
    return [one["why"] for tenant in space.status().get("tenants", []) if tenant.get("priority") == "low"
            for gpu in tenant.get("gpus", []) for one in gpu.get("mechanisms", []) if one["mechanism"] == "SM masks"]


def mask_rows(bench, found, lines):
    bench.row("GPCs found and proven", sum(group["sms"] for group in found["groups"]), None, "SMs", "all", found["works"])
    kept = {(line["mode"], line["low"].split("-")[0], line["rate"]): line["low_of_alone"] for line in lines}
    for (mode, short, rate), share in kept.items():
        if mode == "gpcs" and kept.get(("spread", short, rate)):
            ratio = share / kept[("spread", short, rate)]
            bench.row("masks of whole GPCs: LP %s beside resnet50_b1 at the load of %d/s, of spread" %
                      (TRAINING[short], rate), round(ratio, 3), 1, "ratio", "> 1", ratio > 1)


def told_to_end(signal_number, frame):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise TimeIsUp


def run(bench, table, paired, order, engines, start):
    """`engines`: of Hummingbird, by name, or an MPS server; `start` starts all programs."""
    space = engines.get("spatial")
    os.sched_setaffinity(0, table.others)
    signal.signal(signal.SIGTERM, told_to_end)
    with ended_with(bench, *engines.values()):
        try:
            start()
            table.ready()
            print("all programs run after %.0f s" % (time.monotonic() - STARTED), flush=True)
            for name, engine in engines.items():
                if isinstance(engine, Hummingbird):
                    engine.demand_engine(name)
            low_alone(table, ("native", "space") if space else ("native",))
            measure(bench, paired, order, space)
        except TimeIsUp:
            print("the time is up", flush=True)
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            conclude(bench, paired, table, space)


def part_paired(bench):
    space, times = Hummingbird(bench, "space", {"engine": "spatial"}), Hummingbird(bench, "time", {"engine": "temporal"})
    table = Table(bench)

    def start():
        table.service("hp-native")
        table.service("hp-space", "high", space.env, ("--slo", "auto"))
        table.service("hp-time", "high", times.env, ("--slo", "auto"))
        for how, env in (("native", None), ("space", space.env), ("time", times.env)):
            table.training(how, "native" if how == "native" else "low", env)

    run(bench, table, Paired(bench, table, space), ENGINES_ORDER, {"spatial": space, "temporal": times}, start)


def part_side(bench):
    mps = Mps(bench)
    table = Table(bench)

    def start():
        table.service("hp-native")
        table.service("hp-mps", env=mps.env)
        table.service("hp-first", env=mps.env, options=("--stream-priority", "-3"))
        table.training("native")
        table.training("mps", env=mps.env)
        table.training("mps88", env=mps.limited(88))
        table.training("mps60", env=mps.limited(60))

    run(bench, table, Paired(bench, table), SIDE_ORDER, {"mps": mps}, start)


def part_gpcs(bench):
    found = bench.raw["gpcs"] = doctor_gpcs(bench)
    space = Hummingbird(bench, "space", {"engine": "spatial"})
    space.set({"masks": "gpcs"}) # its own trial runs when the first program comes, before anything is measured
    table = Table(bench)

    def start():
        table.service("hp-native")
        table.service("hp-space", "high", space.env, ("--slo", "auto"))
        for how, env in (("native", None), ("space", space.env)):
            table.training(how, "native" if how == "native" else "low", env)

    run(bench, table, Paired(bench, table, space), MASKS_ORDER, {"spatial": space}, start)
    mask_rows(bench, found, bench.raw["lines"])


PARTS = {"paired": part_paired, "side": part_side, "gpcs": part_gpcs}

if __name__ == "__main__":
    PARSER = make_parser(PARTS)
    PARSER.set_defaults(part="paired")
    PARSER.add_argument("--until", type=float, default=125.0, help="seconds after the start: the last window ends then")
    sys.exit(run_parts("spatial", PARTS, PARSER.parse_args()))

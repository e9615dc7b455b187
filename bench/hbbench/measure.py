# SPDX-License-Identifier: Apache-2.0
"""Measuring one case, in one of two worlds.

With real processes, all programs of all ways of sharing are started first and wait. Then, round by round, each way gets
its window: its low-priority programs begin, settle, and the services measure. In virtual time a round is one run of
`hb sim` with arrivals of its own. docs/bench.md describes both, and the lines that programs are sent.
"""
import json
import logging
import subprocess
import time

from hbbench import stats
from hbbench.energy import Energy
from hbbench.process import Failed, Hangs, Interrupted, TimeIsUp
from hbbench.stage import place_name
from hbbench.tables import REFERENCE

# A simulated GPU may be on a busy machine; the time of a real one is expensive.
ANSWER_S = {True: 60, False: 6}
SPLIT_COUNTERS = ("kernels", "split", "parts", "unsplit")
TAKEOVER_COUNTERS = ("requests", "requests_with_takeover", "signs", "takeovers", "takeovers_not_possible")
READY_S, READY_TORCH_S, READY_SIMULATED_S = 30, 120, 180
SETTLE_MAX_S = 0.2
QUIT_S, QUIT_HUNG_S = 10, 1
LATENCIES_MAX = 20000
HALVES = 6        # parts of a window with --halves: low priority is paused in the first, third and fifth
REQUESTS_MARGIN = 1.1  # the number of random arrivals in a window varies; of 1,000, by 3 % (one standard deviation)
TENANTS_STEP = 8  # services of one round draw their arrivals with different seeds


def window_s(plan, options):
    """Length of a window of this case."""
    rates = [service.rate_per_s for service in plan.high if service.rate_per_s]
    if not options.requests or not rates:
        return options.seconds
    return REQUESTS_MARGIN * options.requests / options.rounds / min(rates)


def keep_round(cell, index, latency_ns, seen, served_s, **more):
    """Adds one round of a service to its cell; an even choice of the latencies, ascending."""
    values = sorted(latency_ns)
    if len(values) > LATENCIES_MAX:
        values = [values[int(i * len(values) / LATENCIES_MAX)] for i in range(LATENCIES_MAX)]
    cell["high"][index]["rounds"].append({"seen": seen, "served_s": round(served_s, 6), "latency_ns": values, **more})


class Outcome:
    """The result of one case while it is measured; `case` has the form of the result file."""

    def __init__(self, plan):
        self.plan = plan
        self.case = {"name": plan.case.name, "world": plan.world, "skipped": plan.skipped or None, "failed": None,
                     "unfinished": None, "rounds": 0,
                     "high": [{"program": plan.label(s.name), "arrivals": s.arrivals} for s in plan.high],
                     "low": [plan.label(name) for name, _ in plan.low], "dropped": [], "sharing": []}

    def cell(self, way):
        for cell in self.case["sharing"]:
            if cell["name"] == way.name:
                return cell
        cell = {"name": way.name, "class": way.kind, "clock_error_ns": 0, "high": [{"rounds": []} for _ in self.plan.high],
                "low": [{"rounds_per_s": []} for _ in self.plan.low]}
        self.case["sharing"].append(cell)
        return cell

    def drop(self, way, why):
        self.case["dropped"].append({"name": way.name, "why": why})
        self.case["sharing"] = [cell for cell in self.case["sharing"] if cell["name"] != way.name]

    def is_dropped(self, way):
        return any(dropped["name"] == way.name for dropped in self.case["dropped"])

    def trials(self):
        return sum(one["seen"] for cell in self.case["sharing"] for high in cell["high"] for one in high["rounds"])

    def cut_to(self, rounds):
        """Removes what belongs to an incomplete round."""
        for cell in self.case["sharing"]:
            for high in cell["high"]:
                del high["rounds"][rounds:]
            for low in cell["low"]:
                del low["rounds_per_s"][rounds:]
            for row in stats.energy_rows(cell):
                del row["energy_mj"][rounds:]


def warm_up_ways(options):
    """The ways that learn, and the reference, which gives them their objectives."""
    return [way for way in options.ways if way.engine or way.kind == REFERENCE]


class Runner:
    """The part that both worlds share: rounds, each of which begins with another way of sharing, and the choice of results to
    keep when the time ends."""

    def __init__(self, plan, options, limits, span_s):
        self.plan, self.options, self.limits, self.span_s = plan, options, limits, span_s
        self.seconds = window_s(plan, options)
        self.outcome = Outcome(plan)
        self.outcome.case["window_s"] = self.seconds
        self.measured = set()  # ways measured in this round

    def takes_part(self, way):
        return self.plan.can(way) and not self.outcome.is_dropped(way)

    def prepare(self):
        """Called once, before the rounds."""

    def measure(self, way, number):
        """Measures one way of sharing in one round."""
        raise NotImplementedError

    def forget(self):
        """Removes what was measured in warm-up rounds."""
        self.outcome.cut_to(0)

    def run_round(self, number, ways):
        self.measured = set()
        for i in range(len(ways)):
            way = ways[(i + number) % len(ways)]
            if self.takes_part(way):
                self.measure(way, number)
                self.measured.add(way.name)

    def run_rounds(self):
        """No round begins that would not end before the time is over, except the first."""
        longest = 0.0
        for number in range(self.options.warm_up if self.plan.world == "processes" else 0):
            self.run_round(self.options.rounds + number, warm_up_ways(self.options))
            self.forget()
        for number in range(self.options.rounds):
            begin = time.monotonic()
            if number and self.limits.end and begin + longest > self.limits.end:
                return
            self.run_round(number, self.options.ways)
            self.outcome.case["rounds"] += 1
            longest = max(longest, time.monotonic() - begin)
            logging.info("%s: round %d of %d has ended after %.1f s", self.plan.case.name, number + 1, self.options.rounds,
                         time.monotonic() - begin)

    def run(self):
        """Fills self.outcome, also when the time ends; raises Failed, or Interrupted without a complete round."""
        case = self.outcome.case
        stopped = None
        try:
            self.prepare()
            self.run_rounds()
        except (TimeIsUp, Interrupted) as why:
            stopped = why
        if isinstance(stopped, TimeIsUp) or not stopped and case["rounds"] < self.options.rounds:
            case["unfinished"] = (f"not finished within {self.span_s:.3g} s: {case['rounds']} of {self.options.rounds} rounds, "
                                  f"{self.outcome.trials()} trials")
        if isinstance(stopped, TimeIsUp) and not case["rounds"] and any(
                way.kind == REFERENCE and way.name in self.measured for way in self.options.ways):
            self.keep_first_round()
        if stopped and not case["rounds"]:
            raise Failed(case["unfinished"]) if isinstance(stopped, TimeIsUp) else stopped
        self.outcome.cut_to(case["rounds"])

    def keep_first_round(self):
        """The first round is incomplete: the ways that were measured are kept, the others are named."""
        for way in self.options.ways:
            if self.takes_part(way) and way.name not in self.measured:
                self.outcome.drop(way, self.outcome.case["unfinished"])
        self.outcome.case["rounds"] = 1


# --- virtual time ----------------------------------------------------------------------------------------------------

class VirtualRunner(Runner):
    """Recorded programs in `hb sim`; nothing drifts, and the same numbers come out every time."""

    def mode_of(self, way):
        """A service with sockets is announced by bytes some 200 us before its first call of the driver, as in `hints=learned`;
        its latency counts from that call."""
        announced = any(service.program.has_sockets() for service in self.plan.high)
        chosen = any(text in way.mode for text in ("hints=", "without=foresight"))
        return way.mode + (":hints=learned" if announced and way.engine == "temporal" and not chosen else "")

    def measure(self, way, number):
        self.limits.check()
        words = [self.options.hb, "sim", "--json", "--jobs", "1", "--sharing", self.mode_of(way), "--seconds", f"{self.seconds:g}",
                 "--seed", str(number * TENANTS_STEP + 1)]
        for service in self.plan.high:
            words += ["--high", f"{service.program.trace}@{service.arrivals}"]
        for _, program in self.plan.low:
            words += ["--low", program.trace]
        done = subprocess.run(words + ["--latencies"], capture_output=True, text=True, check=False)
        if done.returncode:
            raise Failed(done.stderr.strip() or f"{' '.join(words)} ended with status {done.returncode}")
        found, cell = json.loads(done.stdout), self.outcome.cell(way)
        for i, high in enumerate(found["high"]):
            keep_round(cell, i, high["latency_ns"], high["requests"], self.seconds)
        for i, low in enumerate(found["low"]):
            cell["low"][i]["rounds_per_s"].append(low["iterations_per_s"])


# --- real processes --------------------------------------------------------------------------------------------------

class Member:
    """A program in one place; ways of sharing and neighbouring cases with the same place share it."""

    def __init__(self, name, program, high, way):
        self.name, self.program, self.high, self.way = name, program, high, way
        self.process, self.failed, self.slo_ns, self.needed = None, "", 0, True
        self.busy = False  # in a window that has not ended, so that it may not expect the next one

    def ready_s(self, simulated):
        return READY_SIMULATED_S if simulated else READY_TORCH_S if self.program.real.startswith("torch ") else READY_S

    def kill(self):
        if self.process:
            self.process.kill()
        self.process, self.busy = None, False


class Company:
    """All programs that run, across cases."""

    def __init__(self, simulated):
        self.simulated, self.members, self.stage, self.gpu = simulated, {}, None, None

    def member(self, name, program, index, high, way):
        key = (name, index, high, place_name(way, high))
        return self.members.setdefault(key, Member(name, program, high, way))

    def end(self, which, well):
        """Ends some members side by side, within one limit together."""
        deadline = time.monotonic() + (QUIT_S if well else QUIT_HUNG_S)
        gone = [(key, member) for key, member in self.members.items() if which(member)]
        for _, member in gone:
            if member.process:
                member.process.quit()
        for key, member in gone:
            if member.process:
                member.process.stop(max(0.0, deadline - time.monotonic()))
            del self.members[key]

    def wait_ready(self, member, begin):
        left = begin + member.ready_s(self.simulated) - time.monotonic()
        self.gpu = member.process.hear("ready", max(0.0, left)).get("gpu") or self.gpu

    def start(self, member):
        member.failed, member.slo_ns = "", 0
        member.process = self.stage.start_program(member.name, member.program, member.high, member.way)

    def gather(self):
        """Starts the needed members that do not run and ends the others, as well as those whose last window was not ended. A
        program that fails is marked."""
        for member in [member for member in self.members.values() if member.busy]:
            member.kill()
        self.end(lambda member: not member.needed, True)
        fresh = [member for member in self.members.values() if not member.process]
        for act in (lambda member, _: self.start(member), self.wait_ready):
            begin = time.monotonic()
            for member in fresh:
                try:
                    if not member.failed:
                        act(member, begin)
                except Failed as why:
                    member.kill()
                    member.failed = str(why)


def progress_at(ends_ns, at_ns):
    """Iterations that had ended by then, with the finished part of the current one."""
    for i, end in enumerate(ends_ns):
        if end >= at_ns:
            return i + (at_ns - ends_ns[i - 1]) / max(1, end - ends_ns[i - 1]) if i else 0.0
    return float(len(ends_ns))


def low_speed(ends_ns, begin_ns, end_ns):
    """Iterations a second in a window; None when the program has no iterations to count."""
    if len(ends_ns) < 2:
        return None
    return (progress_at(ends_ns, end_ns) - progress_at(ends_ns, begin_ns)) / ((end_ns - begin_ns) / 1e9)


class Cast:
    """The members that take part in one window, with their index in the case."""

    def __init__(self, high, low):
        self.high, self.low = high, low

    def members(self):
        return [member for _, member in self.high + self.low]


class ProcessRunner(Runner):
    def __init__(self, plan, options, limits, span_s, company):
        super().__init__(plan, options, limits, span_s)
        self.company = company
        self.alone_ns = [[] for _ in plan.high]  # what the requests alone took, as an engine measures it
        self.slo_ns = [0] * len(plan.high)
        self.window_end = 0.0
        self.energy = None if plan.simulated else Energy()

    def cast_of(self, way):
        high = [(i, self.company.member(s.name, s.program, i, True, way)) for i, s in enumerate(self.plan.high)]
        return Cast(high, [(i, self.company.member(name, program, i, False, way))
                           for i, (name, program) in enumerate(self.plan.low)])

    def forget(self):
        super().forget()
        self.alone_ns = [[] for _ in self.plan.high]

    # --- who takes part

    def check_way(self, way):
        """Every program runs, and the GPU is shared as the name says."""
        for member in self.cast_of(way).members():
            if member.failed:
                raise Failed(member.failed)
        if way.engine:
            self.company.stage.daemon_of(way).verify()

    def drop_way(self, way, why):
        """A way of sharing may fail alone, but without the reference nothing can be judged."""
        text = str(why)
        if isinstance(why, Hangs):
            cell = self.outcome.cell(way)
            trials = sum(one["seen"] for high in cell["high"] for one in high["rounds"])
            text = f"not finished within {time.monotonic() - self.window_begin:.3g} s, {trials} trials: {why}"
        if way.kind == REFERENCE:
            raise Failed(text)
        self.outcome.drop(way, text)
        logging.info("%s: %s failed: %s", self.plan.case.name, way.name, text)

    def prepare(self):
        for member in self.company.members.values():
            member.needed = False
        ways = [way for way in self.options.ways if self.takes_part(way)]
        for member in [member for way in ways for member in self.cast_of(way).members()]:
            member.needed = True
        self.window_begin = time.monotonic()
        self.company.gather()
        for way in ways:
            self.outcome.cell(way)
            try:
                self.check_way(way)
            except Failed as why:
                self.drop_way(way, why)

    # --- a window

    def answer_s(self):
        """All questions and answers of one window share one limit."""
        return max(0.0, self.window_end - time.monotonic())

    def finish_service(self, cell, index, member, served_s, half_s=None):
        member.process.send("finish")
        answer = member.process.hear("results", self.answer_s())
        if cell["class"] == REFERENCE:
            self.alone_ns[index] += answer.get("work_ns", answer["latency_ns"])
        if half_s and "due_ns" not in answer:
            raise Failed(f"{member.process.name} does not report when its requests were due, which --halves needs")
        if half_s:
            cell["high"][index]["rounds"].append({
                "seen": answer["seen"], "served_s": round(served_s, 6), "half_s": half_s,
                **{key: answer[key] for key in ("latency_ns", "due_ns", "wait_ns")}})
        else:
            keep_round(cell, index, answer["latency_ns"], answer["seen"], served_s)
        cell["clock_error_ns"] = max(cell["clock_error_ns"], answer.get("clock_error_ns", 0))

    def rest_low(self, cast, cell, begin_ns, end_ns):
        running = [(i, member) for i, member in cast.low if member.process]
        for _, member in running:
            member.process.send("rest")
        for i, member in cast.low:
            ends = member.process.hear("rested", self.answer_s())["ends_ns"] if member.process else []
            cell["low"][i]["rounds_per_s"].append(low_speed(ends, begin_ns, end_ns))

    def hear_served(self, cast, limit_s, heard):
        """Requests that were due in the window are waited for with low priority still at work, but not for ever."""
        deadline = time.monotonic() + limit_s
        for i, member in cast.high:
            if i not in heard:
                member.process.hear("served", max(0.0, deadline - time.monotonic()))
                heard[i] = time.monotonic()

    def read_energy(self):
        return self.energy.read() if self.energy else None

    def keep_energy(self, cast, cell, begin_mj):
        """In the reference each program has windows of its own."""
        end_mj = self.read_energy()
        if begin_mj is None or end_mj is None:
            return
        alone = cell["class"] == REFERENCE
        rows = [cell["high"][i] for i, _ in cast.high] + [cell["low"][i] for i, _ in cast.low] if alone else [cell]
        for row in rows:
            row.setdefault("energy_mj", []).append(end_mj - begin_mj)

    def end_window(self, cast, cell, begin, length, begin_mj):
        heard = {}
        self.limits.sleep_until(begin + length)
        self.keep_energy(cast, cell, begin_mj)
        try:
            self.hear_served(cast, length + 1, heard)
        except Hangs:
            pass
        self.rest_low(cast, cell, round(begin * 1e9), round((begin + length) * 1e9))
        self.hear_served(cast, self.answer_s(), heard)
        for i, member in cast.high:
            self.finish_service(cell, i, member, max(length, heard[i] - begin))

    def open_window(self, cast, length):
        self.window_begin = time.monotonic()
        self.window_end = self.window_begin + 2 * length + 1 + ANSWER_S[self.plan.simulated]
        for _, member in cast.high:
            member.process.send("prepare")
            member.process.hear("prepared", self.answer_s())

    def start_services(self, cast, number, length, repeat=""):
        for i, member in cast.high:
            service = self.plan.high[i]
            member.process.send(f"serve {length:.3f} {service.kind()} {service.rate_per_s:g} {service.phase:g} "
                                f"{number * TENANTS_STEP + i + 1}{repeat}")

    def run_halves(self, cast, cell, number):
        """Services run without pause, with the same arrivals in every half, and low priority runs in every second half. What
        low priority does to a request is then judged against the halves without it, a second before and after."""
        half, length, done, busy = self.seconds, HALVES * self.seconds, {}, {}
        self.open_window(cast, length)
        begin = time.monotonic()
        self.start_services(cast, number, length, f" {half:.3f}")
        for at in range(1, HALVES, 2):
            self.limits.sleep_until(begin + at * half)
            for _, member in cast.low:
                member.process.send(f"work {half:.3f}")
            self.limits.sleep_until(begin + (at + 1) * half)
            self.rest_low(cast, {"low": [{"rounds_per_s": done.setdefault(i, [])} for i in range(len(self.plan.low))]},
                          round((begin + at * half + min(half / 5, SETTLE_MAX_S)) * 1e9), round((begin + (at + 1) * half) * 1e9))
        self.hear_served(cast, self.answer_s(), busy)
        for i, _ in cast.low:
            cell["low"][i]["rounds_per_s"].append(stats.mean(done[i]))
        for i, member in cast.high:
            self.finish_service(cell, i, member, max(length, busy[i] - begin), half)

    def run_window(self, cast, cell, number):
        for member in cast.members():
            member.busy = True
        self.run_services(cast, cell, number)
        for member in cast.members():
            member.busy = False

    def run_services(self, cast, cell, number):
        if self.options.halves and cast.high and cast.low:
            self.run_halves(cast, cell, number)
            return
        length = self.seconds
        settle = min(length / 5, SETTLE_MAX_S) if cast.low else 0.0
        self.open_window(cast, length + settle)
        for _, member in cast.low:
            member.process.send(f"work {length + settle:.3f}")
        self.limits.sleep_until(time.monotonic() + settle)
        begin, begin_mj = time.monotonic(), self.read_energy()
        self.start_services(cast, number, length)
        victim = cast.low[0][1] if self.plan.case.kill and cast.high and cast.low else None
        if victim:
            self.limits.sleep_until(begin + length / 2)
            victim.kill()
        self.end_window(cast, cell, begin, length, begin_mj)
        if victim:
            self.company.start(victim)
            self.company.wait_ready(victim, time.monotonic())

    # --- ways of sharing

    def run_alone(self, way, number):
        """Each program with the GPU to itself, one after another; then the objectives that engines are given are known."""
        everyone, cell = self.cast_of(way), self.outcome.cell(way)
        for one in [Cast([high], []) for high in everyone.high] + [Cast([], [low]) for low in everyone.low]:
            self.run_window(one, cell, number)
        for i, service in enumerate(self.plan.high):
            # A closed loop measures single calls and kernels, which an engine does not take for requests.
            if self.alone_ns[i] and service.rate_per_s:
                self.slo_ns[i] = stats.quantile(self.alone_ns[i], 0.99)

    def note_counters(self, way, members, rows, key, names):
        """Keeps what the daemon has counted for these programs since they started."""
        for i, member in members:
            counters = self.company.stage.daemon_of(way).tenant(member.process.pid)["counters"]
            rows[i][key] = {name: counters[name] for name in names}

    def measure(self, way, number):
        try:
            if way.kind == REFERENCE:
                self.run_alone(way, number)
                return
            cast = self.cast_of(way)
            if way.engine:
                daemon = self.company.stage.daemon_of(way)
                daemon.set(way.settings)
                self.limits.sleep_until(time.monotonic() + daemon.note_services(way))
                for i, member in cast.high:
                    if member.slo_ns != self.slo_ns[i]:
                        daemon.set_slo(member.process.pid, self.slo_ns[i])
                        member.slo_ns = self.slo_ns[i]
            self.run_window(cast, self.outcome.cell(way), number)
            if way.engine and self.plan.case.suite == "splitting":
                # Without this the suite cannot tell "no gain" from "not split".
                self.note_counters(way, cast.low, self.outcome.cell(way)["low"], "split", SPLIT_COUNTERS)
            if way.engine == "temporal":
                self.note_counters(way, cast.high, self.outcome.cell(way)["high"], "takeovers", TAKEOVER_COUNTERS)
        except Failed as why:
            self.drop_way(way, why)
            # Its programs may hang, and other ways of sharing may need them.
            for member in self.cast_of(way).members():
                member.kill()
            self.prepare()


# --- what a case should cost -----------------------------------------------------------------------------------------

WINDOW_MORE_S = 0.2          # of a window beside its length: settling, comparing clocks, fetching results
START_S, START_TORCH_S = 5, 1.2 * 4  # until programs are ready; for each PyTorch program in about four places
VIRTUAL_SHARE = 0.2          # a window in virtual time, of its length


def cost_s(plan, options):
    """Seconds that the case should take, estimated from runs on an H200."""
    if plan.world == "skipped":
        return 0.0
    def windows(ways):
        return len(plan.high) + len(plan.low) + sum(plan.can(way) and way.kind != REFERENCE for way in ways)
    seconds, number = window_s(plan, options), options.rounds * windows(options.ways)
    if plan.world == "virtual":
        return number * seconds * VIRTUAL_SHARE
    number += options.warm_up * windows(warm_up_ways(options))
    length = seconds * (HALVES if options.halves else 1)
    return START_S + START_TORCH_S * len(plan.needs_python()) + number * (length + WINDOW_MORE_S)

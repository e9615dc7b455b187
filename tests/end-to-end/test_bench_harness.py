# SPDX-License-Identifier: Apache-2.0
"""The benchmark harness without a GPU: its tables, its statistics with known data, programs that die or hang, its files.

usage: test_bench_harness.py SOURCE_FOLDER
"""
import copy
import fnmatch
import gzip
import json
import os
import random
import signal
import sys
import tempfile
import time
import unittest
from unittest import mock

sys.path.insert(0, os.path.join(sys.argv.pop(1), "bench"))
from hbbench import core_split, measure, results, run, stats, tables, targets  # noqa: E402  pylint: disable=wrong-import-position
from hbbench.process import Failed, Hangs, Limits, Process, TimeIsUp, run_command  # noqa: E402  pylint: disable=C0413
from hbbench.tables import Case, Plan, Refused  # noqa: E402  pylint: disable=wrong-import-position


class Tables(unittest.TestCase):
    def test_every_case_runs_on_a_real_gpu_and_says_why_it_is_skipped_on_a_simulated_one(self):
        for case in tables.CASES:
            self.assertIn(case.suite, [suite.name for suite in tables.SUITES])
            for simulated in (False, True):
                plan = Plan(case, simulated)
                self.assertTrue(plan.high)
                self.assertTrue(simulated or plan.world == "processes")
                self.assertEqual(plan.world == "skipped", bool(plan.skipped))

    def test_every_way_of_sharing_that_a_suite_names_is_known(self):
        for suite in tables.SUITES:
            for name in suite.sharing.split(","):
                self.assertTrue(name == "all" or tables.find_way(name.removeprefix("-")), (suite.name, name))

    def test_wrong_rows_are_refused_and_named(self):
        for high, low in (("nothing@closed", ""), ("launch", ""), ("launch@often", ""), ("launch@-3/s", ""), ("launch@0/s", ""),
                          ("launch@closed", "nothing")):
            with self.assertRaisesRegex(Refused, "the case s/c is wrong"):
                Plan(Case("s", "c", high, low), True)

    def test_a_program_that_stands_for_another_one_is_named(self):
        plan = Plan(Case("s", "c", "vgg19@20/s", "resnet50_train_b128"), True)
        self.assertEqual((plan.label("vgg19"), plan.label("resnet50_train_b128")), ("vgg19 (as resnet50_b8)", "resnet50_train_b128"))
        self.assertEqual(Plan(plan.case, False).label("vgg19"), "vgg19")

    def test_arrivals_are_read(self):
        service = Plan(Case("s", "c", "vgg19@20/s:periodic=0.4", ""), True).high[0]
        self.assertEqual((service.rate_per_s, service.periodic, service.phase, service.kind()), (20, True, 0.4, "periodic"))

    def test_an_engine_can_have_other_settings(self):
        way = tables.find_way("spatial:masks=spread:HB_BENCH_ORION=x")
        self.assertEqual((way.settings, way.levers, way.mode), ((("masks", "spread"),), (("HB_BENCH_ORION", "x"),), ""))
        self.assertEqual(tables.find_way("spatial:window=1ms").mode, "spatial:window=1ms")
        way = tables.find_way("spatial:HB_MASKS=0:HB_SPLIT=0")
        self.assertEqual((way.mode, way.settings, way.levers, way.variables),
                         ("", (), (), (("HB_MASKS", "0"), ("HB_SPLIT", "0"))))
        self.assertIsNone(tables.find_way("spatial:masks"))
        self.assertIsNone(tables.find_way("mps:masks=spread"))


class TimeLimits(unittest.TestCase):
    def test_time_is_divided_by_cost(self):
        end = run.cases_end(100, 200)
        self.assertTrue(190 < end < 200)
        self.assertEqual(run.case_end(100, 190, 10, 30), 130)
        self.assertEqual(run.case_end(110, 190, 10, 20), 150)
        self.assertEqual(run.case_end(150, 190, 10, 10), 190)
        self.assertEqual(run.case_end(195, 190, 10, 10), 195)  # nothing is left
        self.assertIsNone(run.cases_end(100, None))
        self.assertTrue(100 < run.case_end(0, None, 20, 40) < 3600)  # no limit: bounded all the same

    def test_every_case_that_runs_has_a_cost(self):
        for case in tables.CASES:
            for simulated in (False, True):
                suite = next(suite for suite in tables.SUITES if suite.name == case.suite)
                plan = Plan(case, simulated)
                cost = measure.cost_s(plan, Asked(suite.rounds, suite.real_s, tables.WAYS))
                self.assertEqual(cost == 0, plan.world == "skipped")


class Asked:
    """Options of a run, as far as a runner reads them."""

    def __init__(self, rounds, seconds, ways, warm_up=0, requests=0):
        self.rounds, self.seconds, self.ways, self.halves = rounds, seconds, ways, False
        self.warm_up, self.requests = warm_up, requests


class Stops(measure.Runner):
    """A runner whose time is over after some measurements."""
    left = 0

    def measure(self, way, number):
        if not self.left:
            raise TimeIsUp("the time was over")
        self.left -= 1
        cell = self.outcome.cell(way)
        measure.keep_round(cell, 0, [1, 2, 3], 3, 1.0)
        cell["low"][0]["rounds_per_s"].append(1.0)


class WhatIsKept(unittest.TestCase):
    def run_for(self, measurements, warm_up=0):
        ways = [tables.find_way(name) for name in ("exclusive", "timeslice", "temporal")]
        runner = Stops(Plan(Case("s", "c", "preempt@closed", "spin_5us"), True), Asked(5, 1, ways, warm_up), Limits(), 26)
        runner.left = measurements
        runner.run()
        return runner.outcome.case

    def test_complete_rounds_are_kept_when_the_time_is_over(self):
        case = self.run_for(7)
        self.assertEqual((case["rounds"], case["unfinished"]), (2, "not finished within 26 s: 2 of 5 rounds, 21 trials"))
        self.assertEqual([len(cell["high"][0]["rounds"]) for cell in case["sharing"]], [2, 2, 2])

    def test_of_an_incomplete_first_round_the_measured_ways_are_kept(self):
        case = self.run_for(2)
        self.assertEqual([cell["name"] for cell in case["sharing"]], ["exclusive", "timeslice"])
        self.assertEqual((case["rounds"], case["dropped"][0]["name"]), (1, "temporal"))
        self.assertIn("not finished within 26 s", case["dropped"][0]["why"])

    def test_without_the_reference_nothing_is_kept(self):
        with self.assertRaisesRegex(Failed, "not finished within 26 s: 0 of 5 rounds"):
            self.run_for(0)

    def test_warm_up_rounds_are_measured_and_thrown_away(self):
        """timeslice does not learn, so it has no part in them: 2 measurements, and 3 of a round."""
        case = self.run_for(5, warm_up=1)
        self.assertEqual((case["rounds"], case["dropped"]), (1, []))
        self.assertEqual([len(cell["high"][0]["rounds"]) for cell in case["sharing"]], [1, 1, 1])

    def test_a_window_is_as_long_as_its_requests_need(self):
        plan = Plan(Case("s", "c", "vgg19@20/s,bert@100/s", ""), False)
        self.assertEqual(measure.window_s(plan, Asked(4, 9, [])), 9)
        # 100 requests at 20/s in 4 rounds: 1.25 s each, and a tenth more, because arrivals are random.
        self.assertAlmostEqual(measure.window_s(plan, Asked(4, 9, [], requests=100)), 1.375)
        self.assertEqual(measure.window_s(Plan(Case("s", "c", "launch@closed", ""), False), Asked(4, 9, [], requests=100)), 9)

    def test_bytes_announce_requests_in_virtual_time_too(self):
        def modes(service, *names):
            runner = measure.VirtualRunner(Plan(Case("s", "c", service, "resnet50_train_b128"), True), Asked(1, 1, []), Limits(), 1)
            return [runner.mode_of(tables.find_way(name)) for name in names]
        names = ("timeslice", "spatial", "temporal", "temporal:without=foresight")
        self.assertEqual(modes("resnet50_b1_sockets@60/s", *names),
                         ["timeslice", "spatial", "temporal:hints=learned", "temporal:without=foresight"])
        self.assertEqual(modes("resnet50_b1_graph@60/s", "temporal"), ["temporal"])

    def test_a_complete_case_is_not_called_unfinished(self):
        self.assertIsNone(self.run_for(100)["unfinished"])


class Fake:
    """A process and its stage: it only notes what is done with it."""

    def __init__(self):
        self.said = []

    def start_program(self, *_):
        self.said.append("started")
        return self

    def hear(self, *_):
        return {"gpu": "fake"}

    def kill(self):
        self.said.append("killed")


class Programs(unittest.TestCase):
    def test_a_program_whose_window_was_cut_off_starts_again(self):
        """Cases share it, and it would take the next window's first line for one of the last window."""
        plan = Plan(Case("s", "c", "preempt@closed", "spin_5us"), True)
        company = measure.Company(True)
        company.stage = fake = Fake()
        runner = measure.ProcessRunner(plan, Asked(1, 1, []), Limits(), 26, company)
        cast = runner.cast_of(tables.find_way("timeslice"))
        company.gather()
        self.assertEqual(fake.said, ["started"] * 2)
        company.gather()
        self.assertEqual(fake.said, ["started"] * 2)
        with mock.patch.object(runner, "run_services", side_effect=TimeIsUp("the time was over")), self.assertRaises(TimeIsUp):
            runner.run_window(cast, {}, 0)
        company.gather()
        self.assertEqual(fake.said[2:], ["killed"] * 2 + ["started"] * 2)
        with mock.patch.object(runner, "run_services"):
            runner.run_window(cast, {}, 0)
        company.gather()
        self.assertEqual(len(fake.said), 6)


class Cores(unittest.TestCase):
    def test_processors_are_divided_by_cores(self):
        for numbering, expected in ((lambda cpu: cpu & ~1, [0, 1, 2, 3, 4, 5, 6, 7]), (lambda cpu: cpu % 8, [0, 1, 2, 3, 8, 9, 10, 11])):
            core = {cpu: numbering(cpu) for cpu in range(16)}
            high, low = (core_split.split(set(core), core, side) for side in (True, False))
            self.assertEqual((sorted(high), high | low, high & low), (expected, set(core), set()))
            few = {cpu for cpu in core if core[cpu] in sorted(set(core.values()))[:3]}
            self.assertIsNone(core_split.split(few, core, True))


class Statistics(unittest.TestCase):
    def test_a_quantile_is_an_order_statistic_with_its_interval(self):
        ns = [1000 * (i + 1) for i in range(1000)]
        # 500 -+ 1.96 sqrt(250) = 469.01, 530.99; rounded outwards
        self.assertEqual(stats.quantile_us(ns, 0.5), [500, 469, 532])
        self.assertEqual(stats.quantile_us(ns, 0.99), [990, 983, 998])
        self.assertEqual(stats.quantile_us(ns[:20], 0.99)[2], None)
        self.assertEqual(stats.quantile_us([], 0.5), stats.UNKNOWN)

    def test_intervals_hold_the_true_value_as_often_as_they_say(self):
        draw, covered = random.Random(7), 0
        for _ in range(400):
            _, low, high = stats.quantile_us(sorted(draw.randrange(1000000) for _ in range(400)), 0.9)
            covered += low <= 900 <= high
        self.assertTrue(370 <= covered <= 396, covered)

    def test_speed_is_interpolated_between_iterations(self):
        ends = [1e9, 2e9, 3e9, 4e9]
        self.assertAlmostEqual(measure.low_speed(ends, 1.5e9, 3.5e9), 1.0)
        self.assertIsNone(measure.low_speed([1e9], 0, 1e9))


def cell_of(name, kind, rounds, n, by, speeds):
    """`n` latencies a round: 1, 2, ... us, each `by` us longer."""
    return {"name": name, "class": kind, "clock_error_ns": 0,
            "high": [{"rounds": [{"seen": n, "served_s": 2.0, "latency_ns": [(i + 1 + by) * 1000 for i in range(n)]}
                                 for _ in range(rounds)]}], "low": [{"rounds_per_s": list(speeds)}]}


def case_of(name, *cells):
    return {"name": name, "world": "processes", "skipped": None, "failed": None, "unfinished": None, "rounds": 4,
            "high": [{"program": "launch", "arrivals": "60/s"}], "low": ["endless"], "dropped": [], "sharing": list(cells)}


def result_of(*cases):
    head = {key: key for key in ("suite", "command", "time", "commit", "machine", "driver")}
    return results.summarize(dict(head, kind="bench", version=2, gpu="a <GPU>", simulated=False, rounds=4, window_s=2.0,
                                  cases=list(cases)))


def first_case():
    return case_of("one", cell_of("exclusive", "reference", 4, 100, 0, [100, 101, 102, 103]),
                   cell_of("timeslice", "temporal", 4, 100, 74, [90] * 4), cell_of("mps", "spatial", 4, 100, 89, [95] * 4),
                   cell_of("temporal", "engine", 4, 100, 1, [60.9] * 4))


class Summaries(unittest.TestCase):
    def test_attainment_speed_and_headline(self):
        case = result_of(first_case())["cases"][0]
        cells = {cell["name"]: cell for cell in case["sharing"]}
        self.assertEqual(case["high"][0]["slo_us"], 99)
        self.assertEqual(cells["exclusive"]["attainment"], 0.99)
        # All rounds are alike, so nothing is in doubt.
        self.assertEqual(cells["timeslice"]["high"][0]["summary"]["attainment"], [0.25, 0.25, 0.25])
        self.assertEqual(cells["timeslice"]["high"][0]["summary"]["rate_per_s"], 50)
        value, low, _ = cells["temporal"]["low_of_alone"]
        self.assertAlmostEqual(value, 60.9 / 101.5)
        # The speed alone differs between rounds, so this one is in doubt.
        self.assertLess(low, value)
        line = case["headline"]
        self.assertEqual((line["engine"], line["spatial"], line["temporal"]), ("temporal", "mps", "timeslice"))
        self.assertAlmostEqual(line["attainment_of_spatial"], 0.98 / 0.10)
        self.assertAlmostEqual(line["attainment_of_temporal"], 0.98 / 0.25)
        self.assertAlmostEqual(line["attainment_below_exclusive"], 0.01)
        self.assertAlmostEqual(line["low_of_temporal"], 60.9 / 90)

    def test_means_over_cases_compare_only_what_was_measured_in_all(self):
        second = case_of("two", cell_of("exclusive", "reference", 4, 100, 0, [100] * 4),
                         cell_of("timeslice", "temporal", 4, 100, 49, [50] * 4), cell_of("reef", "temporal", 4, 100, 0, [40] * 4),
                         cell_of("mps", "spatial", 4, 100, 9, [90] * 4), cell_of("temporal", "engine", 4, 100, 1, [80] * 4),
                         cell_of("spatial", "engine", 4, 100, 0, [99] * 4))
        overall = result_of(first_case(), second)["overall"]
        rows = {row["name"]: row for row in overall["sharing"]}
        self.assertEqual((overall["cases"], overall["temporal"], overall["spatial"]), (2, "timeslice", "mps"))
        ours = rows["temporal"]
        self.assertAlmostEqual(ours["attainment"], 0.98)
        self.assertAlmostEqual(ours["attainment_of_temporal"], 0.98 / ((0.25 + 0.5) / 2))
        self.assertAlmostEqual(ours["attainment_of_spatial"], 0.98 / ((0.1 + 0.9) / 2))
        self.assertAlmostEqual(ours["low_of_temporal"], (60.9 / 101.5 + 0.8) / (90 / 101.5 + 0.5))
        self.assertEqual(rows["spatial"]["cases"], 1)
        self.assertIsNone(rows["spatial"]["attainment_of_temporal"])

    def test_two_rounds_make_no_interval(self):
        case = first_case()
        case["rounds"] = 2
        self.assertEqual(result_of(case)["cases"][0]["sharing"][3]["low_of_alone"][1:], [None, None])

    def test_rounds_for_which_there_was_no_time_do_not_count(self):
        case = first_case()
        case["rounds"] = 3
        cell = result_of(case)["cases"][0]["sharing"][0]
        self.assertEqual((cell["high"][0]["summary"]["seen"], cell["low"][0]["summary"]["per_s"]), (300, 101))


class Halves(unittest.TestCase):
    def test_low_priority_is_judged_by_the_halves_without_it(self):
        """100 requests in each of six halves of a second; beside low priority every fourth takes twice as long."""
        due = [int(1e9 * (half + 0.25 + 0.007 * i)) for half in range(6) for i in range(100)]
        latency = [1000 * (100 + i) * (2 if half % 2 and i % 4 == 0 else 1) for half in range(6) for i in range(100)]
        one = {"seen": 600, "served_s": 6.0, "half_s": 1.0, "latency_ns": latency, "due_ns": due, "wait_ns": [5000] * 600}
        found = stats.summarize_service([one] * 3, 0, 1.0)
        # The p99 of 100 to 199 us is 198 us. All 25 slow requests take at least 200 us, and one of the others takes 199 us.
        self.assertAlmostEqual(found["attainment"][0], 0.74)
        self.assertAlmostEqual(found["control"][0], 0.99)
        self.assertEqual((found["rate_per_s"], found["alone"]["p50_us"][0], found["wait"]["p50_us"][0]), (100, 149, 5))

    def test_requests_right_after_a_change_do_not_count(self):
        one = {"half_s": 1.0, "latency_ns": [1, 2, 3, 4], "due_ns": [int(1e8), int(3e8), int(11e8), int(13e8)]}
        self.assertEqual((stats.in_halves(one, 0), stats.in_halves(one, 1)), ([2], [4]))


class Targets(unittest.TestCase):
    def compare(self, p99_us, low):
        case = case_of("graph-60-beside-training", cell_of("exclusive", "reference", 4, 100, 0, [100] * 4),
                       cell_of("temporal", "engine", 4, 100, p99_us - 99, [low] * 4))
        result = result_of(case)
        result.update(suite="engines", simulated=False)
        return {row["what"].split(", ")[1]: row for row in targets.compare(result)}

    def test_a_run_is_compared_with_its_targets(self):
        rows = self.compare(150, 95)
        self.assertEqual((rows["p99_us"]["measured"], rows["p99_us"]["baseline"], rows["p99_us"]["target"], rows["p99_us"]["met"]),
                         (150, 99, "<= 1.6 x exclusive", True))
        self.assertEqual((rows["low"]["measured"], rows["low"]["met"]), (95, True))
        rows = self.compare(159, 92)
        self.assertEqual((rows["p99_us"]["met"], rows["low"]["met"]), (False, False))

    def test_without_a_gpu_only_virtual_time_is_compared(self):
        case = case_of("gpreempt-a", cell_of("exclusive", "reference", 4, 100, 0, [100] * 4),
                       cell_of("temporal", "engine", 4, 100, 50, [90] * 4))
        result = result_of(case)
        result.update(suite="paper", simulated=True)
        result["cases"][0]["world"] = "virtual"
        self.assertEqual([(row["what"], row["met"]) for row in targets.compare(result)],
                         [("gpreempt-a: temporal, mean_us", False)])
        result["cases"][0]["world"] = "processes"  # their numbers depend on the host
        self.assertEqual(targets.compare(result), [])

    def test_every_target_names_a_case_and_ways_that_are_measured(self):
        for target in targets.TARGETS:
            suite = next(suite for suite in tables.SUITES if suite.name == target.suite)
            names = suite.sharing.split(",") + ["exclusive"]
            cases = [case.name for case in tables.CASES if case.suite == target.suite]
            self.assertTrue(fnmatch.filter(cases, target.case), target)
            self.assertIn(target.way, names)
            self.assertTrue(not target.baseline or target.baseline in names, target)
            self.assertTrue(not target.baseline_case or target.baseline_case in cases, target)


class Files(unittest.TestCase):
    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory())

    def write(self, data, name="a.json"):
        path = os.path.join(self.folder, name)
        with open(path, "wb") as file:
            file.write(data if isinstance(data, bytes) else data.encode())
        return path

    def test_a_file_shows_the_same(self):
        first = result_of(first_case())
        text = results.to_text(first)
        for path in (self.write(text), self.write(gzip.compress(text.encode()), "a.json.gz")):
            again = results.load(path)
            self.assertEqual(results.to_text(again), text)
            self.assertEqual(list(results.table_lines(again)), list(results.table_lines(first)))

    def test_a_file_of_version_1_is_read(self):
        data = json.loads(results.to_text(result_of(first_case())))
        del data["kind"]
        data["version"] = 1
        for cell in data["cases"][0]["sharing"]:
            for each in cell["high"][0]["rounds"]:
                del each["served_s"]
        again = results.load(self.write(json.dumps(data)))
        self.assertEqual(again["cases"][0]["sharing"][0]["high"][0]["summary"]["rate_per_s"], 50)

    def test_rows_of_older_scripts_are_read(self):
        rows = [{"what": "LP alone", "measured": 98, "baseline": 100, "unit": "%", "target": ">= 97 %", "met": True}]
        lines = list(results.table_lines(results.load(self.write(json.dumps(rows)))))
        self.assertEqual(lines, ["LP alone: 98 % (baseline 100), target >= 97 %: met"])

    def test_no_text_of_a_result_ends_the_page_s_script(self):
        page = results.page_text(results.EMPTY, result_of(first_case()))
        self.assertIn("a \\u003cGPU>", page)
        self.assertEqual(page.count("<"), 2)

    def test_bad_files_are_refused_and_named(self):
        good = results.to_text(result_of(first_case()))
        for old, new in (('"version": 2', '"version": 3'), ('"rounds": 4', '"rounds": 3'), ('"rounds": 4', '"rounds": 0'),
                         ('"class": "spatial"', '"class": "odd"'), ('"latency_ns": "1000 2000', '"latency_ns": "1000 x000'),
                         ('"suite"', '"sweet"'), ('"seen": 100', '"seen": "many"')):
            self.assertIn(old, good)
            path = self.write(good.replace(old, new, 1))
            with self.assertRaisesRegex(results.BadFile, path):
                results.load(path)
        for text in ("", "{", "3", "[]", '[{"what": 1}]', '{"rows": 3}'):
            with self.assertRaises(results.BadFile):
                results.load(self.write(text))
        with self.assertRaisesRegex(results.BadFile, "No such file"):
            results.load("/nonexistent/file")

    def test_reading_does_not_change_a_result(self):
        first = result_of(first_case())
        before = copy.deepcopy(first)
        results.to_text(first)
        self.assertEqual(first, before)


class Processes(unittest.TestCase):
    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory())
        self.limits = Limits()

    def start(self, script):
        process = Process("the program", ["sh", "-c", script], dict(os.environ), self.folder, self.limits)
        self.addCleanup(process.kill)
        return process

    def test_a_program_that_dies_or_hangs_is_named(self):
        for script, limit, kind, text in (
                ("echo first >&2; echo out of memory >&2; exit 3", 60, Failed,
                 r"the program ended with status 3; its last lines: first\|out of memory"),
                ("kill -SEGV $$", 60, Failed, "the program was ended by signal 11"),
                ("exec no-such-program", 60, Failed, "the program ended with status 127"),
                ("echo '{\"event\": \"served\"}'; read line", 60, Failed, "the program wrote the event 'served' instead of 'ready'"),
                ("echo '{nonsense'; read line", 60, Failed, "the program wrote a line that is no JSON"),
                ("echo stuck >&2; read line", 0.3, Hangs, "the program hangs: no answer 'ready'.*stuck")):
            with self.assertRaisesRegex(kind, text):
                self.start(script).hear("ready", limit)

    def test_lines_go_both_ways(self):
        process = self.start("echo noise; echo '{\"event\": \"ready\", \"gpu\": \"x\"}'; read a; "
                             "echo \"{\\\"event\\\": \\\"$a\\\"}\"; read b")
        self.assertEqual(process.hear("ready", 60)["gpu"], "x")
        process.send("echo1")
        process.hear("echo1", 60)
        process.check()
        process.stop(60)
        self.assertIsNotNone(process.child.returncode)

    def test_the_time_limit_ends_every_wait(self):
        process = self.start("echo '{\"event\": \"ready\"}'; while :; do sleep 1; done")
        process.hear("ready", 60)
        self.limits.end = time.monotonic() + 0.05
        with self.assertRaises(TimeIsUp):
            process.hear("more", 3600)
        with self.assertRaises(TimeIsUp):
            self.limits.sleep_until(time.monotonic() + 3600)
        self.assertEqual(self.limits.left(1), 0)
        process.stop(3600, signal.SIGTERM)
        self.assertEqual(process.child.returncode, -signal.SIGTERM)

    def test_a_program_that_does_not_stop_is_killed(self):
        process = self.start("trap '' TERM; echo '{\"event\": \"ready\"}'; while :; do sleep 1; done")
        process.hear("ready", 60)
        process.stop(0.1)
        self.assertEqual(process.child.returncode, -signal.SIGKILL)

    def test_a_command_gets_its_input_and_its_status_counts(self):
        words = ["sh", "-c", 'read line; test "$line" = "$WORD"']
        run_command("c", words, dict(os.environ, WORD="quit"), "quit\n", self.folder, self.limits, 60)
        with self.assertRaises(Failed):
            run_command("c", words, dict(os.environ, WORD="quit"), "other\n", self.folder, self.limits, 60)


if __name__ == "__main__":
    unittest.main()

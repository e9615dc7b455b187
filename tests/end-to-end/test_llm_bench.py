# SPDX-License-Identifier: Apache-2.0
"""The LLM benchmark without a GPU and without PyTorch: blocks and scheduler of the server, the trace and the load generator, the
suite's bookkeeping, and the model file for llama-server.

usage: test_llm_bench.py SOURCE_FOLDER
"""
import asyncio
import contextlib
import importlib.util
import io
import json
import os
import random
import struct
import sys
import tempfile
import types
import unittest

SOURCE = sys.argv.pop(1)
sys.path.insert(0, os.path.join(SOURCE, "bench/llm"))
import azure_excerpt  # noqa: E402  pylint: disable=wrong-import-position
import llm_imitate  # noqa: E402  pylint: disable=wrong-import-position
import llm_load  # noqa: E402  pylint: disable=wrong-import-position
import llm_phases  # noqa: E402  pylint: disable=wrong-import-position
import llm_results  # noqa: E402  pylint: disable=wrong-import-position
import llm_suite  # noqa: E402  pylint: disable=wrong-import-position
from llm_blocks import PADDING_BLOCK, BlockPool, Scheduler, Sequence, graph_sizes  # noqa: E402  pylint: disable=C0413

TRACE = os.path.join(SOURCE, "data/traces/azure-llm-2023-conv.csv")


class Blocks(unittest.TestCase):
    def test_blocks_are_given_out_once_and_never_the_one_for_padding(self):
        pool = BlockPool(5)
        taken = pool.take(3) + pool.take(1)
        self.assertEqual(sorted(taken), [1, 2, 3, 4])
        self.assertIsNone(pool.take(1))
        pool.give_back(taken[:2])
        self.assertEqual(sorted(pool.take(2)), sorted(taken[:2]))

    def test_blocks_that_are_free_are_refused(self):
        pool = BlockPool(3)
        for wrong in ([1], [PADDING_BLOCK]):
            self.assertRaises(ValueError, pool.give_back, wrong)

    def test_a_request_that_could_never_be_served_is_refused(self):
        scheduler = Scheduler(BlockPool(4), 4, 2, 8, 100)
        for prompt, answer in ((0, 1), (1, 0), (90, 20), (10, 10)):
            self.assertRaises(ValueError, scheduler.add, Sequence([1] * prompt, answer))


class Batching(unittest.TestCase):
    def run_all(self, scheduler, sequences, check=lambda step: None):
        """Executes all steps with made-up tokens; returns the steps."""
        for sequence in sequences:
            scheduler.add(sequence)
        steps = []
        while (step := scheduler.next_step()) is not None:
            check(step)
            steps.append((step.prefill, step.start, step.count, list(step.decode)))
            scheduler.complete(step, 7 if step.first_token else None, [8] * len(step.decode))
            self.assertLess(len(steps), 100000)
        return steps

    def test_prompts_come_in_parts_while_others_decode(self):
        scheduler = Scheduler(BlockPool(100), 4, 8, 10, 100)
        first, second = Sequence([1] * 5, 6), Sequence([1] * 25, 2)
        steps = self.run_all(scheduler, [first, second])
        self.assertEqual([(one is first, start, count) for one, start, count, _ in steps if one],
                         [(True, 0, 5), (False, 0, 10), (False, 10, 10), (False, 20, 5)])
        self.assertEqual(steps[1][3], [first])
        self.assertEqual((first.generated, second.generated), ([7] + [8] * 5, [7, 8]))

    def test_random_requests_all_end_and_give_their_blocks_back(self):
        draw = random.Random(3)
        scheduler = Scheduler(BlockPool(20), 4, 3, 7, 60)
        sequences = [Sequence([1] * draw.randint(1, 40), draw.randint(1, 20)) for _ in range(200)]

        def check(step):
            used = [block for one in scheduler.running for block in one.blocks]
            self.assertEqual(len(used), len(set(used)))
            self.assertEqual(sorted(used + scheduler.pool.free), list(range(1, 20)))
            self.assertLessEqual(len(scheduler.running), 3)
            for one in step.decode:
                self.assertLessEqual(one.length, 4 * len(one.blocks))
        self.run_all(scheduler, sequences, check)
        self.assertTrue(all(len(one.generated) == one.most_tokens for one in sequences))
        self.assertEqual(len(scheduler.pool.free), 19)

    def test_a_cancelled_request_leaves_at_once(self):
        scheduler = Scheduler(BlockPool(20), 4, 1, 7, 60)
        running, waiting, last = Sequence([1] * 9, 9), Sequence([1], 1), Sequence([1], 1)
        for one in (running, waiting, last):
            scheduler.add(one)
        scheduler.complete(scheduler.next_step(), None, [])
        running.cancelled = waiting.cancelled = True
        self.assertIs(scheduler.next_step().prefill, last)

    def test_graph_sizes_reach_the_largest_batch(self):
        self.assertEqual(graph_sizes(1), [1])
        self.assertEqual(graph_sizes(20), [1, 2, 4, 8, 12, 16, 20])


class Trace(unittest.TestCase):
    def test_the_committed_excerpt_is_complete(self):
        rows = llm_load.read_trace(TRACE)
        self.assertEqual(len(rows), 2000)
        self.assertEqual(rows[0], (0.0, 374, 44))
        with open(os.path.join(SOURCE, "data/traces/README.md"), encoding="utf-8") as file:
            text = file.read()
        self.assertIn(os.path.basename(TRACE), text)
        self.assertIn("Creative Commons Attribution 4.0", text)

    def test_the_excerpt_keeps_times_and_lengths(self):
        rows = [dict(zip(azure_excerpt.COLUMNS, row)) for row in (
            ("2023-11-16 18:15:46.6805900", "374", "44"), ("2023-11-16 18:15:50.9951690", "396", "109"),
            ("2023-11-16 18:16:00.0000000", "1", "1"))]
        self.assertEqual(azure_excerpt.excerpt(rows, 2), ["0.000,374,44", "4.315,396,109"])

    def test_bad_lines_are_named(self):
        for text, line in (("a,b\n", 1), ("arrival_s,prompt_tokens,answer_tokens\n0,1,1\nx,1,1\n", 3),
                           ("arrival_s,prompt_tokens,answer_tokens\n0,0,1\n", 2),
                           ("arrival_s,prompt_tokens,answer_tokens\n5,1,1\n4,1,1\n", 3)):
            with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
                file.write(text)
                file.flush()
                with self.assertRaisesRegex(ValueError, f"{file.name}:{line}: "):
                    llm_load.read_trace(file.name)

    def test_a_window_has_the_wanted_rate_and_the_lengths_of_the_trace(self):
        rows = llm_load.read_trace(TRACE)
        window = llm_load.open_loop(rows, 1990, 20.0, 3.0, (2048, 256))  # goes over the end of the trace
        self.assertEqual(len(window), 60)
        self.assertEqual(window[0][0], 0.0)
        self.assertLess(window[-1][0], 3.0)
        self.assertGreater(window[-1][0], 1.5)
        self.assertEqual([row[1:] for row in window[:10]], [(min(p, 2048), min(a, 256)) for _, p, a in rows[1990:]])
        self.assertEqual(window, llm_load.open_loop(rows, 1990, 20.0, 3.0, (2048, 256)))
        for before, after in zip(window, window[1:]):
            self.assertLessEqual(before[0], after[0])


class Streaming(unittest.TestCase):
    def measure(self, answer, wait=0.2):
        """Returns what the load generator measures of a server that gives this answer to every request."""
        async def both():
            async def serve(reader, writer):
                length = 0
                while (line := await reader.readline()) not in (b"\r\n", b""):
                    if line.startswith(b"Content-Length:"):
                        length = int(line.split(b":")[1])
                bodies.append(json.loads(await reader.readexactly(length)))
                await answer(writer, bodies[-1])
                writer.close()
            server = await asyncio.start_server(serve, "127.0.0.1", 0)
            args = types.SimpleNamespace(host="127.0.0.1", port=server.sockets[0].getsockname()[1], rate=20.0, seconds=0.2,
                                         closed=0, skip=0, most_prompt=30, most_answer=5, wait=wait)
            load = llm_load.Load(args)
            await load.run(llm_load.read_trace(TRACE))
            server.close()
            return load
        bodies, text = [], io.StringIO()
        with contextlib.redirect_stdout(text):
            load = asyncio.run(both())
            load.report()
        lines = [json.loads(line) for line in text.getvalue().splitlines()]
        self.assertEqual([line["event"] for line in lines], ["begun", "results"])
        return lines[1], bodies

    def test_each_token_is_counted_once(self):
        async def answer(writer, body):
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
            for _ in range(body["max_tokens"]):
                writer.write(b'data: {"choices":[{"text":"x","finish_reason":null}]}\n\n')
                await writer.drain()
            writer.write(b'data: {"choices":[{"text":"","finish_reason":"length"}]}\n\ndata: [DONE]\n\n')
        results, bodies = self.measure(answer, wait=30)
        self.assertEqual([row[5] for row in results["requests"]], [5, 5, 5, 5])
        self.assertEqual([len(body["prompt"]) for body in bodies], [30, 30, 30, 30])
        self.assertEqual(results["failed_count"], 0)
        for due, sent, first, last, _, _ in results["requests"]:
            self.assertTrue(due <= sent <= first <= last)
        self.assertEqual(len({json.dumps(body["prompt"]) for body in bodies}), 4)

    def test_failures_are_counted_and_named(self):
        async def refuse(writer, _):
            writer.write(b"HTTP/1.1 503 Service Unavailable\r\n\r\nno place")

        async def stop_early(writer, _):
            writer.write(b'HTTP/1.1 200 OK\r\n\r\ndata: {"finish_reason":null}\n\n')

        async def hang(_, __):
            with contextlib.suppress(asyncio.CancelledError):  # at the end of the loop
                await asyncio.get_running_loop().create_future()
        for answer, text, wait in ((refuse, "503", 30), (stop_early, "ended after 1 tokens", 30), (hang, "not answered", 0.1)):
            results, _ = self.measure(answer, wait)
            self.assertEqual((results["failed_count"], results["requests"]), (4, []))
            self.assertIn(text, results["failed"][0])


def window_of(place, low, objective, per_token_us, **more):
    """A window with 100 requests of 11 tokens each; every request has its own time per token."""
    rows = [[10000 * i, 10000 * i, 10000 * i + 5000, 10000 * i + 5000 + 10 * (per_token_us + i), 7, 11] for i in range(200)]
    return {"model": "1b", "server": "graphs", "load": 50, "rate_per_s": 100.0, "place": place, "low": low,
            "objective": objective, "told_us": 1550 if objective else None, "round": 0, "call": 0, "settle_s": 1.0, "seconds": 1.0,
            "low_rate": 3.0, "requests": rows, "failed": [], "failed_count": 0,
            "token_gaps_us": {"0.5": 1, "0.9": 2, "0.99": 3}, **more}


class Bookkeeping(unittest.TestCase):
    def raw(self):
        raw = llm_results.new_raw()
        raw["windows"] = [window_of("native", "", False, 1000), window_of("spatial", "", False, 1100),
                          window_of("spatial", "", False, 1100, round=1),
                          window_of("spatial", "lora", True, 1400), window_of("native", "lora", False, 5000)]
        raw["low_alone"]["lora"] = [5.0, 7.0]
        return raw

    def test_cells_compare_with_alone_and_with_their_own_place(self):
        report = llm_results.report_of(self.raw())
        cells = {(cell["place"], cell["low"], cell["objective"]): cell for cell in report["cells"]}
        self.assertEqual(len(cells), 4)
        beside = cells["spatial", "lora", True]
        self.assertEqual((beside["requests"], beside["tokens"]), (100, 1100))  # those of the time to settle do not count
        # Alone: 1100 to 1199 us; the 99th of 100 values is 1198.
        self.assertEqual(beside["objective_us"], round(1.25 * 1198))
        self.assertEqual(beside["attainment"], 0.51)  # 1500 to 1599 us; the objective of the window is 1550
        self.assertEqual(beside["of_alone"]["tpot_p99"], round(1598 / 1198, 4))
        self.assertEqual(beside["of_off"]["tpot_p99"], round(1598 / 1298, 4))
        self.assertEqual(beside["low_of_alone"], 0.5)
        self.assertEqual(beside["control"]["within_p99_of_others"], 0.99)
        self.assertEqual(cells["native", "lora", False]["attainment"], 0)
        self.assertIsNone(cells["native", "", False]["control"]["within_p99_of_others"])
        self.assertEqual([(one["what"], one["met"]) for one in beside["targets"]], [("tokens", True), ("attainment", False)])
        self.assertEqual(cells["native", "lora", False]["targets"], [])
        text = "\n".join(llm_results.table(report))
        self.assertIn("+objective", text)

    def test_a_request_without_an_answer_is_a_miss(self):
        window = window_of("native", "", False, 1000, failed_count=25)
        self.assertEqual(llm_results.attainment([window], 10000), 0.8)
        self.assertEqual(llm_results.attainment([dict(window, requests=[])], 10000), 0)
        self.assertIsNone(llm_results.attainment([dict(window, requests=[], failed_count=0)], 10000))

    def test_presence_is_the_time_with_a_request(self):
        rows = [[0, 0, 1, 1_200_000, 1, 2], [1_100_000, 1_150_000, 1, 1_300_000, 1, 2], [1_900_000, 1_900_000, 1, 2_500_000, 1, 2]]
        self.assertAlmostEqual(llm_results.presence({"settle_s": 1.0, "seconds": 1.0, "requests": rows}), 0.4)
        self.assertEqual(llm_results.presence({"settle_s": 1.0, "seconds": 1.0, "requests": []}), 0)

    def test_capacity_counts_requests_in_part(self):
        rows = [[0, 0, 1, 1_000_000, 1, 2], [0, 500_000, 1, 1_500_000, 1, 2], [0, 5_000_000, 1, 6_000_000, 1, 2]]
        self.assertAlmostEqual(llm_results.capacity_of(rows, 500_000, 1_500_000), 1.5)

    def test_what_was_served_counts_inside_the_window(self):
        rows = [[0, 0, 500_000, 1_500_000, 1, 10], [0, 0, 1_500_000, 1_500_000, 1, 1], [0, 0, 1_900_000, 2_100_000, 1, 4]]
        self.assertEqual(llm_results.served({"settle_s": 1.0, "seconds": 1.0, "requests": rows}), (2.0, 5 + 1 + 2))

    def test_targets_without_an_objective(self):
        cell = {"low": "train", "place": "temporal", "objective": False, "tokens": 999, "low_of_alone": 0.4, "absence": 0.45,
                "of_alone": {"ttft_p99": 1.04, "tpot_p99": None}}
        self.assertEqual([one["met"] for one in llm_results.targets_of(cell)], [False, True, False, False])
        self.assertEqual([one["met"] for one in llm_results.targets_of(dict(cell, tokens=1000, low_of_alone=0.41))],
                         [True, True, False, True])

    def test_iterations_count_in_part(self):
        ends = [0, 1_000_000_000, 2_000_000_000, 4_000_000_000]
        self.assertAlmostEqual(llm_results.iterations_between(ends, 0.5, 3.0), 0.5 + 1 + 0.5)
        self.assertEqual(llm_results.iterations_between(ends, 9, 10), 0)

    def test_calls_are_merged_and_numbered(self):
        raw = llm_results.merge(self.raw(), self.raw())
        self.assertEqual({window["call"] for window in raw["windows"]}, {0, 1})
        cells = {(cell["place"], cell["low"]): cell for cell in llm_results.report_of(raw)["cells"]}
        self.assertEqual(cells["native", ""]["windows"], 2)
        self.assertEqual(cells["native", ""]["requests"], 200)

    def test_the_raw_file_is_read_as_written_and_others_are_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "llm-raw.json.gz")
            llm_results.write_json(path, self.raw())
            self.assertEqual(llm_results.read_raw(path), self.raw())
            self.assertEqual(llm_results.read_raw(os.path.join(folder, "new.json")), llm_results.new_raw())
            wrong = os.path.join(folder, "wrong.json")
            with open(wrong, "w", encoding="utf-8") as file:
                file.write("[]")
            self.assertRaisesRegex(llm_results.BadFile, "wrong.json", llm_results.read_raw, wrong)

    def test_wrong_options_are_refused(self):
        for wrong in (["--low", "nothing"], ["--models", "70b"], ["--loads", "0"], ["--places", "moon"],
                      ["--places", "native,nvshare"], ["--nvshare", "/nowhere"]):
            with self.assertRaises(SystemExit), contextlib.redirect_stderr(io.StringIO()):
                llm_suite.parse(["measure", "--raw", "x.json", *wrong])
        self.assertEqual(llm_suite.parse(["measure", "--raw", "x.json", "--low", ""]).low, [])

    def test_other_systems_are_places_if_their_folder_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "nvshare-scheduler"), "w", encoding="utf-8"):
                pass
            args = llm_suite.parse(["measure", "--raw", "x.json", "--places", "native,nvshare,reef", "--nvshare", folder])
        self.assertEqual((args.places, args.peers), (["native", "nvshare", "reef"], {"nvshare": folder}))
        places = {name: llm_suite.Place(name, None, args) for name in args.places + ["spatial"]}
        self.assertEqual([name for name, place in places.items() if place.takes_objective()], ["spatial"])

    def test_a_service_without_answers_has_no_capacity(self):
        results = {"requests": [], "failed": ["request 3: the answer ended after 7 tokens"], "failed_count": 1}
        load = types.SimpleNamespace(hear=lambda event, wait_s: results, kill=lambda: None)
        suite = types.SimpleNamespace(raw={"capacity": {}}, places=[types.SimpleNamespace(name="native")],
                                      args=types.SimpleNamespace(server="llama", again=False, batch=32),
                                      run_load=lambda place, options: (load, 0.0))
        self.assertRaisesRegex(llm_suite.Failed, "1 failed.*after 7 tokens", llm_suite.Suite.measure_capacity, suite, "1b")
        # One that ends in the first seconds does not count.
        results["requests"] = [[0, 0, 100_000, 200_000, 16, 4]]
        self.assertRaises(llm_suite.Failed, llm_suite.Suite.measure_capacity, suite, "1b")
        results["requests"] = [[3_000_000, 3_000_000, 3_100_000, 3_200_000, 16, 4]]
        llm_suite.Suite.measure_capacity(suite, "1b")
        self.assertEqual(suite.raw["capacity"], {"1b/llama": 0.25})


class Imitation(unittest.TestCase):
    def test_steps_are_those_of_the_server(self):
        steps, answers = llm_imitate.plan_steps([(0.5, 600, 3), (0.5, 16, 2), (9.0, 16, 1)], 2.0, 10.0, 4096)
        # 600 tokens of a prompt are two mixed steps, the second prompt is one; then both decode, and the third comes alone.
        self.assertEqual([mixed for _, _, mixed in steps], [True, True, True, False, True])
        self.assertEqual([round(ms, 2) for _, ms, _ in steps], [14.0, 7.38, 6.25, 2.0, 6.25])
        self.assertEqual(steps[0][0], 0.5)
        self.assertAlmostEqual(steps[1][0], 0.5 + 0.01408)
        self.assertEqual(sorted(answers), [(1, 3, 3), (2, 3, 2), (4, 4, 1)])

    def test_answers_are_judged_by_their_mean(self):
        ends = [10e6, 20e6, 32e6]
        self.assertEqual(llm_imitate.times_per_token([(0, 2, 3), (1, 2, 2), (1, 1, 1), (2, 3, 2)], ends), [11, 12, float("inf")])

    def test_the_speed_of_low_priority_is_that_of_the_whole_seconds_with_steps(self):
        result = {"intervals": [{"low_relative": share} for share in (0.5, 0.7, 1.0)]}
        self.assertAlmostEqual(llm_imitate.low_until(result, 2.9), 0.6)
        self.assertEqual(llm_imitate.low_until({"low": [{"relative": 1.0}]}, 2.9), 1.0)

    def test_a_trace_has_an_iteration_for_each_step(self):
        lines = list(llm_imitate.trace_lines([(0, 2.0, False), (0.1, 6.0, True)]))
        self.assertEqual(len(lines), 1 + llm_imitate.DECODE_KERNELS + llm_imitate.MIXED_KERNELS)
        self.assertTrue(lines[1].startswith("llm_server,0,kernel,decode0,0.00,124.00,132x1x1"))
        self.assertTrue(lines[-1].startswith("llm_server,1,kernel,mixed3,5900.00,99.00,264x1x1"))

    def test_wrong_options_are_refused(self):
        good = ["--decode", "1", "--mixed", "5", "--rate", "20", "--slo", "4"]
        self.assertEqual(llm_imitate.parse(good).skip, [0, 137])
        for wrong in (["--skip", "a"], ["--rate", "0"], ["--kv-tokens", "2304"], ["--slo", "x"], ["--seconds", "1"]):
            with self.assertRaises(SystemExit), contextlib.redirect_stderr(io.StringIO()):
                llm_imitate.parse(good + wrong)


class Phases(unittest.TestCase):
    @staticmethod
    def phase(service, number, kind, shares):
        return {"place": "spatial", "round": 0, "service": service, "number": number, "kind": kind, "beside": shares is not None,
                "seconds": 4.0 if shares is not None else 3.0, "shares": shares or [], "due_ns": [0, 1],
                "latency_ns": [1000 * i for i in range(1, 101)], "token_ns": []}

    def test_a_share_counts_from_the_beginning_of_the_phase(self):
        ends = [int(1e9 * (10 + 0.1 * i)) for i in range(100)]
        self.assertEqual(llm_phases.shares(ends, 11.0, 2.0, 20.0), [0.5, 0.5, 0.5, 0.5])
        self.assertEqual(llm_phases.shares(ends, 30.0, 1.0, 20.0), [0, 0])

    def test_the_moment_is_found_at_which_the_share_is_back(self):
        series = [0.1, 0.1, 0.4, 0.5, 0.5, 0.5]
        self.assertEqual(llm_phases.reached_after(series, 0.45), 1.0)
        self.assertEqual(llm_phases.reached_after(series, 0.05), 0.0)
        self.assertIsNone(llm_phases.reached_after(series, 0.6))

    def test_a_changed_service_is_compared_with_one_that_began_in_the_phase(self):
        raw = {"phases": [self.phase("text", 0, "text", None), self.phase("text", 0, "text", [0.2] * 4 + [0.8] * 4),
                          self.phase("both", 0, "text", [0.1] * 4 + [0.4] * 4), self.phase("both", 1, "graphs", [0.3] * 8)]}
        alone, fresh, changed, unknown = llm_phases.summarize(raw)
        self.assertNotIn("low_fresh", alone)
        self.assertEqual((fresh["of_fresh_2s_to_4s"], fresh["reached_after_s"]), (1.0, 2.0))
        self.assertEqual((changed["low_first_2s"], changed["low_2s_to_4s"], changed["low_fresh"]), (0.1, 0.4, 0.8))
        self.assertEqual((changed["of_fresh_2s_to_4s"], changed["reached_after_s"]), (0.5, None))
        self.assertEqual(changed["within_p99_alone"], 0.99)
        self.assertNotIn("low_fresh", unknown)
        self.assertEqual(len(llm_phases.table([alone, fresh, changed, unknown])), 5)


@unittest.skipIf(importlib.util.find_spec("numpy") is None, "no numpy")
class ModelFile(unittest.TestCase):
    def test_tensors_lie_where_the_head_says(self):
        import write_gguf  # pylint: disable=import-outside-toplevel
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "tiny.gguf")
            write_gguf.write_model(write_gguf.SHAPES["tiny"], path)
            with open(path, "rb") as file:
                data = file.read()
        self.assertEqual(data[:4], b"GGUF")
        version, tensors, entries = struct.unpack_from("<IQQ", data, 4)
        self.assertEqual((version, tensors), (3, 2 * 9 + 2))
        self.assertEqual(entries, len(write_gguf.metadata(write_gguf.SHAPES["tiny"])))
        total = sum(write_gguf.bytes_of(dimensions) for _, dimensions in write_gguf.tensors(write_gguf.SHAPES["tiny"]))
        self.assertGreater(len(data), total)
        self.assertLess(len(data), total + 20000)
        self.assertEqual(len(data) % write_gguf.ALIGNMENT, 0)
        # The table of words comes first: zeros for bytes and marks, then random numbers.
        width, words = write_gguf.SHAPES["tiny"][1], write_gguf.SHAPES["tiny"][6]
        begin = len(data) - sum(write_gguf.bytes_of(dimensions) for _, dimensions in write_gguf.tensors(write_gguf.SHAPES["tiny"]))
        table = data[begin:begin + 2 * width * words]
        zeros = 2 * width * write_gguf.FIRST_WORD
        self.assertFalse(any(table[:zeros]))
        self.assertGreater(sum(map(bool, table[zeros:])), 0.9 * (len(table) - zeros))


if __name__ == "__main__":
    unittest.main()

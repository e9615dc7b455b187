# SPDX-License-Identifier: Apache-2.0
"""Parts of the benchmark harness, without a GPU: results that were measured in several calls, and requests over sockets.

usage: test_bench_parts.py SOURCE_FOLDER
"""
import os
import random
import struct
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(sys.argv.pop(1), "bench"))
import request_load  # noqa: E402  pylint: disable=wrong-import-position
import socket_service  # noqa: E402  pylint: disable=wrong-import-position
from hbbench import merge, results  # noqa: E402  pylint: disable=wrong-import-position

HEAD = {"kind": "bench", "version": 2, "suite": "pairs", "time": "t", "machine": "m", "driver": "1", "gpu": "a GPU",
        "simulated": False}


def cell_of(name, kind, latencies_us, speeds):
    """One round for each latency; all 100 requests of a round take that long."""
    return {"name": name, "class": kind, "clock_error_ns": 0, "low": [{"rounds_per_s": speeds}],
            "high": [{"rounds": [{"seen": 100, "served_s": 1.0, "latency_ns": [1000 * us] * 100} for us in latencies_us]}]}


def case_of(name, *cells, rounds=2, low="stencil", dropped=(), unfinished=None):
    return {"name": name, "world": "processes", "skipped": None, "failed": None, "unfinished": unfinished, "rounds": rounds,
            "high": [{"program": "resnet50_b1_sockets", "arrivals": "120/s"}], "low": [low], "dropped": list(dropped),
            "sharing": list(cells)}


def both(exclusive_us, temporal_us, speed=50.0):
    return [cell_of("exclusive", "reference", exclusive_us, [100.0] * len(exclusive_us)),
            cell_of("temporal", "engine", temporal_us, [speed] * len(temporal_us))]


class Merging(unittest.TestCase):
    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory())
        self.paths = []

    def write(self, *cases, **head):
        """Adds a file of these cases."""
        number = len(self.paths) + 1
        result = results.summarize(dict(HEAD, command=f"run {number}", commit="c", rounds=2, window_s=1.0, cases=list(cases)) | head)
        self.paths.append(os.path.join(self.folder, f"{number}.json.gz"))
        results.write_file(self.paths[-1], results.to_text(result))

    def merged(self):
        """The result, as it is read again from its file."""
        path = os.path.join(self.folder, "all.json")
        results.write_file(path, results.to_text(merge.merge_files(self.paths)))
        return results.load(path)

    def test_rounds_of_a_case_are_put_together_and_summarized_anew(self):
        self.write(case_of("a", *both([10, 20], [30, 40])))
        self.write(case_of("a", *both([60, 90], [10, 80], 70.0)), commit="d")
        result = self.merged()
        self.assertEqual((result["rounds"], result["command"], result["commit"]), (4, "run 1; run 2", "c; d"))
        case = result["cases"][0]
        alone, temporal = case["sharing"]
        self.assertEqual((case["rounds"], case["high"][0]["slo_us"], alone["high"][0]["summary"]["seen"]), (4, 90, 400))
        self.assertEqual(temporal["low"][0]["rounds_per_s"], [50, 50, 70, 70])
        self.assertEqual((temporal["high"][0]["summary"]["mean_us"][0], temporal["low_of_alone"][0]), (40, 0.6))
        self.assertEqual(temporal["attainment"], 1)

    def test_only_complete_rounds_count(self):
        self.write(case_of("a", *both([10, 20], [30, 40]), rounds=1))
        self.write(case_of("a", *both([60], [10]), rounds=1), rounds=1)
        cells = self.merged()["cases"][0]["sharing"]
        self.assertEqual([one["latency_ns"][0] for one in cells[0]["high"][0]["rounds"]], [10000, 60000])

    def test_cases_are_put_together(self):
        self.write(case_of("a", *both([10, 20], [30, 40])))
        self.write(case_of("b", *both([1, 2], [3, 4])), window_s=2.5)
        result = self.merged()
        self.assertEqual([(case["name"], case["window_s"]) for case in result["cases"]], [("a", 1), ("b", 2.5)])
        self.assertIsNone(result["window_s"])
        self.assertEqual(result["overall"]["cases"], 2)

    def test_a_case_that_failed_in_one_file_is_taken_from_the_other(self):
        failed = dict(case_of("a"), failed="no memory")
        self.write(failed)
        self.write(case_of("a", *both([10, 20], [30, 40])))
        self.write(failed)
        case = self.merged()["cases"][0]
        self.assertEqual((case["failed"], case["rounds"]), (None, 2))

    def test_a_way_of_sharing_that_lacks_rounds_is_left_out_and_named(self):
        self.write(case_of("a", *both([10, 20], [30, 40]), dropped=[{"name": "reef", "why": "no memory"}]))
        self.write(case_of("a", both([60, 90], [])[0], cell_of("reef", "temporal", [1, 2], [1.0, 2.0])))
        case = self.merged()["cases"][0]
        self.assertEqual([cell["name"] for cell in case["sharing"]], ["exclusive"])
        why = {one["name"]: one["why"] for one in case["dropped"]}
        self.assertEqual((sorted(why), why["reef"]), (["reef", "temporal"], "no memory"))
        self.assertIn("not measured in all parts", why["temporal"])

    def test_chosen_ways_of_sharing_are_kept(self):
        reef = cell_of("reef", "temporal", [1, 2], [1.0, 2.0])
        self.write(case_of("a", *both([10, 20], [30, 40]), reef, dropped=[{"name": "mps", "why": "no memory"}]))
        self.write(case_of("a", *both([60, 90], [10, 80])))
        case = merge.merge_files(self.paths, ["temporal"])["cases"][0]
        self.assertEqual([cell["name"] for cell in case["sharing"]], ["exclusive", "temporal"])
        self.assertEqual((case["dropped"], case["sharing"][1]["low"][0]["rounds_per_s"]), ([], [50, 50, 50, 50]))

    @staticmethod
    def with_energy(cells, high_mj, low_mj, shared_mj):
        cells[0]["high"][0]["energy_mj"], cells[0]["low"][0]["energy_mj"] = high_mj, low_mj
        cells[1]["energy_mj"] = shared_mj
        return cells

    def test_energy_is_compared_with_a_gpu_for_each_program(self):
        """Alone the service takes 100 J, low priority 400 J at full speed; together 270 J with low priority at half its speed."""
        self.write(case_of("a", *self.with_energy(both([10, 20], [30, 40]), [90000, 110000], [400000, 400000], [260000, 280000])))
        self.write(case_of("a", *self.with_energy(both([10], [30]), [100000], [400000], [270000]), rounds=1))
        self.assertEqual(self.merged()["cases"][0]["sharing"][1]["energy_mj"], [260000, 280000, 270000])
        self.assertEqual([cell.get("energy_of_alone") for cell in self.merged()["cases"][0]["sharing"]], [None, 0.9])
        self.assertIn("a GPU for each program: temporal 90 %", "\n".join(results.case_lines(self.merged()["cases"][0], 3)))

    def test_energy_that_only_one_file_has_is_left_out(self):
        self.write(case_of("a", *self.with_energy(both([10], [30]), [100000], [400000], [270000]), rounds=1))
        self.write(case_of("a", *both([10], [30]), rounds=1))
        cells = self.merged()["cases"][0]["sharing"]
        self.assertEqual([("energy_mj" in cell, cell.get("energy_of_alone")) for cell in cells], [(False, None)] * 2)

    def test_counts_of_the_daemon_are_added_or_left_out(self):
        def counted(requests, taken):
            cells = both([10], [30])
            cells[1]["high"][0]["takeovers"] = {"requests": requests, "requests_with_takeover": taken}
            return cells
        self.write(case_of("a", *counted(100, 90), rounds=1))
        self.write(case_of("a", *counted(60, 54), rounds=1))
        case = self.merged()["cases"][0]
        self.assertEqual(case["sharing"][1]["high"][0]["takeovers"], {"requests": 160, "requests_with_takeover": 144})
        self.assertIn("temporal: the GPU was taken over before 90 % of 160 requests", "\n".join(results.case_lines(case, 2)))
        self.write(case_of("a", *both([10], [30]), rounds=1))
        self.assertNotIn("takeovers", self.merged()["cases"][0]["sharing"][1]["high"][0])

    def test_results_that_cannot_be_compared_are_refused_and_named(self):
        self.write(case_of("a", *both([10, 20], [30, 40])))
        for head, low, text in (({"suite": "disb"}, "stencil", "suite: disb, but pairs in "), ({"gpu": "another"}, "stencil", "gpu: another"),
                                ({}, "transcode", "the case a has other programs")):
            self.write(case_of("a", *both([10, 20], [30, 40]), low=low), **head)
            with self.assertRaisesRegex(results.BadFile, f"{self.paths[-1]}: {text}"):
                merge.merge_files(self.paths)
            self.paths.pop()
        rows = os.path.join(self.folder, "rows.json")
        results.write_file(rows, '[{"what": "a", "measured": 1, "met": true}]')
        with self.assertRaisesRegex(results.BadFile, f"{rows}: a table of rows"):
            merge.merge_files([self.paths[0], rows])

    def test_the_targets_of_pairs_are_in_the_table(self):
        """Half of the requests take longer than the slowest one alone, but the mean is the same; low priority runs at half its speed."""
        reef = cell_of("reef", "temporal", [30, 30], [20.0, 20.0])
        self.write(case_of("resnet50-beside-stencil", *both([30, 30], [25, 35]), reef))
        lines = "\n".join(results.table_lines(self.merged()))
        for text in ("temporal, attainment: 50 % (baseline 100), target >= exclusive - 1 %: MISSED",
                     "temporal, low: 50 % of alone (baseline 20), target >= 2 x reef: met",
                     "temporal, mean_us: 30 us (baseline 30), target <= 1.05 x exclusive: met"):
            self.assertIn("resnet50-beside-stencil: " + text, lines)


class Requests(unittest.TestCase):
    def serve(self, kind, count, *windows):
        """(body, when it had come) of each request of each window."""
        sockets, room = socket_service.Sockets(kind, count), bytearray(count * struct.calcsize(kind))
        for due_ns in windows:
            sockets.order(due_ns)
            for number in range(len(due_ns)):
                connection = sockets.next_request(number, memoryview(room))
                yield bytes(room), time.monotonic_ns()
                connection.sendall(b"answer")
        sockets.clients.stdin.close()
        self.assertEqual(sockets.clients.wait(60), 0)
        for connection in sockets.connections:
            connection.close()

    def test_requests_come_when_they_are_due_and_not_before(self):
        draw, begun, served = random.Random(3), time.monotonic_ns() + 500000000, 0
        due = sorted(begun + draw.randrange(200000000) for _ in range(40))
        for (body, came), at in zip(self.serve("e", 1000, due), due):
            self.assertGreaterEqual(came, at)
            values = struct.unpack("<1000e", body)
            self.assertTrue(all(abs(value) < 10 for value in values) and len(set(values)) > 100)
            served += 1
        self.assertEqual(served, 40)

    def test_a_service_that_is_late_gets_all_requests_in_order(self):
        """All are due at once, more than fit into the buffers of the connections."""
        bodies = [body for body, _ in self.serve("e", 150528, [time.monotonic_ns()] * 100)]
        self.assertEqual((len(bodies), len(set(bodies))), (100, 1))

    def test_several_windows_one_of_them_without_requests(self):
        due = [time.monotonic_ns()] * 3
        bodies = [body for body, _ in self.serve("q", 8, due, [], due)]
        self.assertEqual((len(bodies), len(set(bodies))), (6, 1))
        self.assertTrue(all(0 <= token < request_load.TOKENS for token in struct.unpack("<8q", bodies[0])))

    def test_a_request_of_another_length_is_refused(self):
        sockets = socket_service.Sockets("q", 8)
        sockets.order([time.monotonic_ns()])
        with self.assertRaisesRegex(SystemExit, "a request has 64 bytes instead of 63"):
            sockets.next_request(0, memoryview(bytearray(63)))
        sockets.clients.stdin.close()
        sockets.clients.wait(60)
        for connection in sockets.connections:
            connection.close()


if __name__ == "__main__":
    unittest.main()

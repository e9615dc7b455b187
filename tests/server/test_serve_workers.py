#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Workers of `hb serve`: separate stages, batches that are paused, workers that die, the journal of batches and the errors
that bench/journal computes from it, policies changed while the server runs. Workers report through files where they are and
wait for files before they continue, so nothing depends on how fast the machine is."""
import ast
import ctypes
import json
import os
import signal
import subprocess
import tempfile
import threading
import unittest

from serve_process import BUILD, TENSORS, Requests, wait_until
from worker_programs import GATED, HAVE_NUMPY, HEAD, WORKER, appears, serve

STAGED = HEAD + """
def copy_in(x):
    time.sleep(0.02 * len(x))
    return {"x": x}

def infer(x):
    time.sleep(0.03)
    return x * 2

def copy_out(y):
    time.sleep(0.01)
    return y

worker.serve(infer, copy_in, copy_out)
"""
SCRIBBLES = HEAD + """
def infer(x):
    server = worker._server
    for wrong in (0, server.put + 5, server.put - 300):
        server.words[worker.COMPLETED_OFFSET // 4] = wrong & 0xFFFFFFFF
        server.ring()
        time.sleep(0.02)
    server.words[worker.COMPLETED_OFFSET // 4] = server.put
    return x * 2

worker.serve(infer)
"""
LIES = HEAD + """
def infer(x):
    server = worker._server
    for offset in (16, 24, 32, 40):  # bytes of a lane, places of its data, room for outputs
        server.set_word(offset + 4, 1 << 20)
    return x * 2

worker.serve(infer)
"""
LISTS_FILES = HEAD + """
numbers = [name for name in os.listdir("/proc/self/fd") if os.path.exists("/proc/self/fdinfo/" + name)]
there("files", repr({name: os.readlink("/proc/self/fd/" + name) for name in numbers}))
worker.serve(lambda x: x)
"""
NEVER_READY = HEAD + """
there("starts")
wait_for("never")
"""
WORDS = HEAD + """
import numpy

def infer(x):
    if x[0, 0] == 0:
        there("runs")
        wait_for("go")
    return {"y": numpy.array([["w" * int(row[0])] for row in x], dtype=object)}

worker.serve(infer)
"""
WORDS_TENSORS = """inputs: [{name: x, datatype: FP32, shape: [4]}]
outputs: [{name: y, datatype: BYTES, shape: [1]}]
"""
TEXTS = HEAD + """
import numpy

def infer(x):
    there("runs-%d" % len(x), " ".join(str(length[0]) for length in x))
    wait_for("go")
    return {"y": numpy.array([["w" * length[0]] for length in x])}

worker.serve(infer)
"""
LENGTHS = HEAD + """
import numpy

def infer(x):
    there("runs-%d" % len(x[0, 0]))
    wait_for("go")
    return {"y": numpy.array([[len(text[0])] for text in x], dtype=numpy.float32)}

worker.serve(infer)
"""
PAUSED = HEAD + """
def infer(x):
    there("runs-" + worker.priority())
    if worker.priority() == "high":
        wait_for("go")
    else:
        while not worker.paused():
            assert worker.interruptible()
            time.sleep(0.005)
        assert worker.held()  # the former name
        there("paused")
        while worker.paused():
            time.sleep(0.005)
    return x

worker.serve(infer)
"""
UNWANTED = HEAD + """
def infer(x):
    if x[0, 0] == 1:
        there("runs")
        while not worker.unwanted():
            time.sleep(0.005)
        there("stopped")
        raise worker.Unwanted
    return x

worker.serve(infer)
"""
class Held:
    """A process that does not end when it is killed, like one in a driver that hangs: it is traced and stops before its end.
    By the thread that made it."""
    SEIZE, DETACH, TRACE_EXIT, ANY_CHILD = 0x4206, 17, 0x40, 0x40000000
    libc = ctypes.CDLL(None, use_errno=True)

    def __init__(self, test, pid):
        self.pid = pid
        if self.libc.ptrace(self.SEIZE, pid, None, ctypes.c_void_p(self.TRACE_EXIT)) != 0:
            test.skipTest("ptrace: " + os.strerror(ctypes.get_errno()))
        test.addCleanup(self.let_go)

    def has_been_killed(self):
        with open("/proc/%d/stat" % self.pid, encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0] == "t"

    def let_go(self):
        if self.pid and os.waitpid(self.pid, self.ANY_CHILD | os.WNOHANG)[0]:
            self.libc.ptrace(self.DETACH, self.pid, None, None)
        self.pid = None


@unittest.skipUnless(HAVE_NUMPY, "python3-numpy is not installed")
class Workers(unittest.TestCase):
    def errors_of(self, journal):
        return subprocess.run([os.path.join(BUILD, "bench", "journal", "journal-errors"), journal], capture_output=True,
                              text=True, check=False)

    def intervals_of(self, journal):
        done = self.errors_of(journal)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)["intervals"]

    def test_stages_are_reported_separately_and_journalled(self):
        journal = os.path.join(self.folder(), "journal")
        with open(journal, "w", encoding="utf-8") as file:
            file.write("the journal of a run that crashed\n")
        server = serve(self, {"staged": ("transfer: [2MB, 1MB]\n", STAGED), "whole": ("", HEAD + "worker.serve(lambda x: x)")},
                       "--journal", journal)
        for _ in range(3):
            self.assertEqual(server.infer("staged")[1]["outputs"][0]["data"], [2, 4, 6, 8])
            self.assertEqual(server.infer("whole")[0], 200)
        self.assertTrue(any(self.stages_take_their_time(server) for _ in range(100)))
        self.assertEqual(server.call("POST", "/v2/policy/edf")[0], 200)
        for _ in range(4):
            self.assertEqual(server.infer("staged")[0], 200)
        self.assertEqual(server.call("POST", "/v2/policy/ours")[0], 200)
        with open(journal, encoding="utf-8") as file:
            lines = [line.split() for line in file]
        with open(journal + ".old", encoding="utf-8") as file:
            self.assertEqual(file.read(), "the journal of a run that crashed\n")
        numbers = {line[2]: line[1] for line in lines if line[0] == "model"}
        stages = {name: [line[0] + (line[3] if line[0] == "stage" else "") for line in lines
                         if line[0] in ("start", "stage", "end") and self.model_of(lines, line) == numbers[name]][:4]
                  for name in numbers}
        self.assertEqual(stages["staged"], ["start", "stage1", "stage2", "end"])
        self.assertEqual(stages["whole"], ["start", "stage1", "end", "start"])
        intervals = self.intervals_of(journal)
        self.assertEqual([one["policy"] for one in intervals], ["", "edf", "ours"])
        self.assertEqual([one["prediction_error"]["all_parts"]["batches"] for one in intervals[1:]], [4, 0])
        self.assertEqual(set(intervals[1]["prediction_error"]), {"all_parts", "no_transfer", "no_interference", "neither", "static_regression", "sgd", "ewma"})
        self.assertLess(intervals[1]["begin_ns"], intervals[2]["begin_ns"])

    def stages_take_their_time(self, server):
        """Times of one batch. The server notes a stage when it polls, so a pause of the machine can shift time between stages."""
        def statistics():
            stats = json.loads(server.call("GET", "/v2/models/staged/stats")[1])["model_stats"][0]["inference_stats"]
            return [stats[stage]["ns"] / 1e9 for stage in ("compute_input", "compute_infer", "compute_output")]
        before = statistics()
        self.assertEqual(server.infer("staged")[0], 200)
        took = [after - one for after, one in zip(statistics(), before)]
        return all(one >= least * 0.95 for one, least in zip(took, (0.02, 0.03, 0.01)))

    def folder(self):
        folder = tempfile.TemporaryDirectory()  # pylint: disable=consider-using-with
        self.addCleanup(folder.cleanup)
        return folder.name

    @staticmethod
    def model_of(lines, line):
        """The model of a line's batch: that of the last start in its slot."""
        if line[0] == "start":
            return line[3]
        before = lines[:next(i for i, other in enumerate(lines) if other is line)]
        return next(other[3] for other in reversed(before) if other[0] == "start" and other[2] == line[2])

    def test_an_error_in_a_journal_names_the_line(self):
        path = os.path.join(self.folder(), "journal")
        good = "model 0 a 4 0 0 0.5 1 0.3 0.5 1000 0.1\nstart 10 0 0 1 0\npause 12 0 1\npause 15 0 0\nend 20 0 1\n"
        good += "start 20 0 0 1 0\nend 25 0 1\n"
        for text, word in ((good + "end 30 0 1\n", ":8:"), (good + "nonsense\n", "word"), ("start 10 0 0 1 0\n", ":1:"),
                           (good + "start 30 99 0 1 0\n", "start"), (good + "start 30 1 0 77 0\n", "start"),
                           ("model 0 a 400 0 0 0.5 1 0.3 0.5 1000 0\n", "model"), (good + "pause 30 0 1\n", "pause"),
                           ("model 0 a 4 0 0 0.5 1 0.3 0.5 1000 2\n", "model"), (good + "profile 7 1 1 1 1\n", "profile")):
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            done = self.errors_of(path)
            self.assertEqual((done.returncode != 0, word in done.stderr, path in done.stderr), (True, True, True),
                             (text, done.stderr))
        with open(path, "w", encoding="utf-8") as file:
            file.write(good)
        # The end of a batch that was paused is not counted: the scheduler decided when it ended.
        self.assertEqual(self.intervals_of(path)[0]["prediction_error"]["all_parts"]["batches"], 1)

    def test_the_policy_changes_only_while_no_request_waits_or_runs(self):
        server = serve(self, {"gated": ("", GATED)})
        self.assertEqual(server.call("POST", "/v2/policy/nonsense")[0], 404)
        asked = Requests(server)
        asked.ask("one", "gated")
        appears(server, "gated/runs-1")
        self.assertEqual(server.call("POST", "/v2/policy/fifo")[0], 409)
        server.write("gated/go", "")
        asked.join()
        self.assertEqual(server.call("POST", "/v2/policy/fifo")[0], 200)

    def test_a_low_priority_batch_is_paused_while_high_priority_runs(self):
        server = serve(self, {"low": ("stop_share: 0.1\n", PAUSED), "high": ("", PAUSED)}, "--policy", "preempt")
        asked = Requests(server)
        asked.ask("low", "low", priority="low")
        appears(server, "low/runs-low")
        asked.ask("high", "high", priority="high")
        appears(server, "low/paused")  # without any other request
        self.assertEqual(asked.order, [])
        server.write("high/go", "")
        asked.join()
        self.assertEqual([status for status, _ in asked.answers.values()], [200, 200])
        self.assertEqual(server.metric("hb_serve_pauses_total"), 1)

    def test_counters_beyond_one_byte_keep_answers_apart(self):
        """The 256th batch, those around it and those after it get their own answers."""
        server = serve(self, {"double": ("", HEAD + "worker.serve(lambda x: x * 2)")})
        for i in range(600):
            status, answer = server.infer("double", (i, 0, 0, 0))
            self.assertEqual((status, answer["outputs"][0]["data"][0] if status == 200 else answer), (200, 2 * i))

    def test_an_impossible_counter_ends_no_batch(self):
        server = serve(self, {"scribbles": ("", SCRIBBLES)})
        for i in range(6):
            status, answer = server.infer("scribbles", (i, 0, 0, 0))
            self.assertEqual((status, answer["outputs"][0]["data"][0] if status == 200 else answer), (200, 2 * i))

    def test_a_worker_inherits_only_its_own_files(self):
        """The program that started the server left a file open."""
        with tempfile.TemporaryDirectory() as folder:
            program = os.path.join(folder, "starts-with-a-file")
            with open(program, "w", encoding="utf-8") as file:
                file.write('#!/bin/sh\nexec 9</etc/passwd\nexec "%s" serve "$@"\n' % os.path.join(BUILD, "hb"))
            os.chmod(program, 0o755)
            server = serve(self, {"m": ("", LISTS_FILES)}, program=program)
            found = ast.literal_eval(appears(server, "m/files"))
            kinds = [name.split(":")[0].split(" ")[0] for number, name in found.items() if int(number) > 2]
            # The memory and two doorbells that it shares with the server, and the pipe that ends it with the server.
            self.assertEqual(sorted(kinds), ["/memfd", "anon_inode", "anon_inode", "pipe"], found)

    def test_a_worker_that_overwrites_the_layout_does_no_harm(self):
        server = serve(self, {"lies": ("", LIES)})
        for i in range(4):
            status, answer = server.infer("lies", (i, 0, 0, 0))
            self.assertEqual((status, answer["outputs"][0]["data"][0] if status == 200 else answer), (200, 2 * i))

    def test_each_request_of_a_batch_gets_its_own_strings(self):
        server = serve(self, {"words": ("", WORDS)}, tensors=WORDS_TENSORS)
        asked = Requests(server)
        asked.ask(0, "words", (0, 0, 0, 0))
        appears(server, "words/runs")
        for length in (1, 9, 2):  # one batch, after the first has ended
            asked.ask(length, "words", (length, 0, 0, 0))
            wait_until("the request waits", lambda: server.pending("words") == 2 + len(asked.threads) - 2)
        server.write("words/go", "")
        asked.join()
        for length, (status, answer) in asked.answers.items():
            self.assertEqual((status, answer["outputs"][0]["data"] if status == 200 else answer), (200, ["w" * length]))

    def test_a_model_that_cannot_be_opened_does_not_replace_another(self):
        server = serve(self, {"good": ("", GATED)})
        server.write("good/go", "")
        pid = appears(server, "good/pid")
        server.write("bad/model.yaml", "platform: trace\nmax_batch: 4\ntrace: nothing-of-this-name\n" + TENSORS)
        for _ in range(2):
            self.assertEqual(server.call("POST", "/v2/repository/models/bad/load")[0], 400)
            self.assertEqual(server.infer("bad")[0], 503)
        self.assertEqual(server.call("POST", "/v2/repository/models/bad/unload")[0], 200)
        self.assertEqual(server.infer("bad")[0], 404)
        self.assertEqual(server.infer("good")[0], 200)
        self.assertEqual(appears(server, "good/pid"), pid)

    def test_a_load_ends_when_its_model_is_unloaded(self):
        server = serve(self, {"good": ("", GATED)})
        server.write("slow/model.yaml", WORKER + TENSORS)
        server.write("slow/model.py", NEVER_READY)
        answers = []
        load = threading.Thread(target=lambda: answers.append(server.call("POST", "/v2/repository/models/slow/load")))
        load.start()
        appears(server, "slow/starts")
        self.assertEqual(server.call("POST", "/v2/repository/models/slow/unload")[0], 200)
        load.join()
        self.assertEqual((answers[0][0], b"unloaded" in answers[0][1]), (400, True), answers)

    def test_inputs_that_do_not_fit_the_room_are_refused_with_their_name(self):
        tensors = "inputs: [{name: x, datatype: BYTES, shape: [1]}]\noutputs: [{name: y, datatype: BYTES, shape: [1]}]\n"
        server = serve(self, {"open": ("room: 1KiB\n", HEAD + "worker.serve(lambda x: x)")}, tensors=tensors)
        for length, status in ((500, 200), (5000, 413), (500, 200)):
            body = {"inputs": [{"name": "x", "datatype": "BYTES", "shape": [1, 1], "data": ["w" * length]}]}
            got, answer = server.call("POST", "/v2/models/open/infer", json.dumps(body))
            self.assertEqual((got, b"room" in answer), (status, status == 413), answer)

    def test_requests_that_fit_alone_are_not_refused_because_of_others(self):
        tensors = "inputs: [{name: x, datatype: BYTES, shape: [1]}]\noutputs: [{name: y, datatype: FP32, shape: [1]}]\n"
        server = serve(self, {"open": ("room: 1KiB\n", LENGTHS)}, tensors=tensors)
        answers = {}

        def ask(length):
            body = {"inputs": [{"name": "x", "datatype": "BYTES", "shape": [1, 1], "data": ["w" * length]}]}
            status, answer = server.call("POST", "/v2/models/open/infer", json.dumps(body))
            answers[length] = json.loads(answer)["outputs"][0]["data"] if status == 200 else answer
        threads = []
        for length in (1, 600, 700, 301):  # one runs; the others wait for it
            threads.append(threading.Thread(target=ask, args=(length,)))
            threads[-1].start()
            appears(server, "open/runs-1")
            wait_until("the request waits", lambda: server.pending("open") == len(threads))
        server.write("open/go", "")
        for thread in threads:
            thread.join()
        self.assertEqual(answers, {length: [length] for length in (1, 600, 700, 301)})

    def test_if_outputs_do_not_fit_only_the_largest_fail(self):
        tensors = "inputs: [{name: x, datatype: INT32, shape: [1]}]\noutputs: [{name: y, datatype: BYTES, shape: [1]}]\n"
        server = serve(self, {"open": ("room: 1KiB\n", TEXTS)}, tensors=tensors)
        answers = {}

        def ask(*lengths):
            body = {"inputs": [{"name": "x", "datatype": "INT32", "shape": [len(lengths), 1], "data": lengths}]}
            status, answer = server.call("POST", "/v2/models/open/infer", json.dumps(body))
            answers[lengths] = [len(text) for text in json.loads(answer)["outputs"][0]["data"]] if status == 200 else answer
        threads = []
        for lengths in ((1,), (600,), (10, 700), (300,)):  # one runs; the others wait for it and form one batch
            threads.append(threading.Thread(target=ask, args=lengths))
            threads[-1].start()
            appears(server, "open/runs-1")
            wait_until("the request waits", lambda: server.pending("open") == len(threads))
        server.write("open/go", "")
        for thread in threads:
            thread.join()
        self.assertEqual(appears(server, "open/runs-4"), "600 10 700 300")
        self.assertIn(b"room", answers.pop((10, 700)))
        self.assertEqual(answers, {lengths: list(lengths) for lengths in ((1,), (600,), (300,))})
        ask(5000)
        self.assertIn(b"more than there is room for", answers[(5000,)])

    def test_waiting_requests_of_a_failed_model_get_the_reason(self):
        server = serve(self, {"gated": ("", GATED)})
        asked = Requests(server)
        for value in (1, 2, 3):
            asked.ask(value, "gated", *[(value, 0, 0, 0)] * 4)
            appears(server, "gated/runs-1")
            wait_until("the request waits", lambda: server.pending("gated") == len(asked.threads))
        server.write("gated/model.py", "raise SystemExit(3)")
        os.kill(int(appears(server, "gated/pid")), signal.SIGKILL)
        asked.join()
        for value in (2, 3):
            self.assertIn("its worker ended 5 times: exit status 3", asked.answers[value][1]["error"])

    def test_a_worker_that_does_not_become_ready_is_killed(self):
        server = serve(self, {"good": ("", GATED)})
        server.write("slow/model.yaml", WORKER + "start_limit: 50ms\n" + TENSORS)
        server.write("slow/model.py", NEVER_READY)
        status, answer = server.call("POST", "/v2/repository/models/slow/load")
        self.assertEqual((status, b"ended 5 times" in answer, b"start_limit" in answer), (400, True, True), answer)

    def test_a_flood_of_low_priority_does_not_refuse_high_priority(self):
        server = serve(self, {"gated": ("", GATED)}, "--queue", "2")
        asked = Requests(server)
        for value in (1, 2):
            asked.ask(value, "gated", (value, 0, 0, 0), priority="low")
        wait_until("the queue of low priority is full", lambda: server.metric('hb_serve_admitted_requests{priority="low"}') == 2)
        status, answer = server.infer("gated", (3, 0, 0, 0), priority="low")
        self.assertEqual((status, "queue of low priority is full" in str(answer)), (503, True), answer)
        for value in (4, 5):
            asked.ask(value, "gated", (value, 0, 0, 0), priority="high")
        wait_until("the high-priority requests have arrived", lambda: server.metric('hb_serve_admitted_requests{priority="high"}') == 2)
        server.write("gated/go", "")
        asked.join()
        self.assertEqual({name: status for name, (status, _) in asked.answers.items()}, {1: 200, 2: 200, 4: 200, 5: 200})
        self.assertEqual([server.metric('hb_serve_queue_full_total{priority="%s"}' % priority) for priority in ("high", "low")],
                         [0, 1])
        self.assertEqual(server.metric("hb_serve_admitted_requests_limit"), 2)

    def test_a_worker_that_does_not_end_delays_no_other_model(self):
        server = serve(self, {"stuck": ("", GATED), "other": ("", GATED)})
        for name in ("stuck", "other"):
            server.write(name + "/go", "")
        held = Held(self, int(appears(server, "stuck/pid")))
        os.remove(os.path.join(server.folder, "stuck", "pid"))
        self.assertEqual(server.call("POST", "/v2/repository/models/stuck/unload")[0], 200)
        wait_until("the worker was killed", held.has_been_killed)
        self.assertEqual(server.infer("other")[0], 200)
        self.assertEqual(server.call("POST", "/v2/repository/models/stuck/load")[0], 200)
        self.assertNotEqual(int(appears(server, "stuck/pid")), held.pid)
        self.assertEqual(server.infer("stuck")[0], 200)
        self.assertTrue(held.has_been_killed())
        pid = held.pid
        held.let_go()
        wait_until("the server has waited for the end of the worker", lambda: not os.path.exists("/proc/%d" % pid))

    def test_a_model_whose_worker_does_not_end_gives_that_reason(self):
        server = serve(self, {"stuck": ("limit: 50ms\n", GATED), "other": ("", GATED)})
        server.write("other/go", "")
        held = Held(self, int(appears(server, "stuck/pid")))
        status, answer = server.infer("stuck")
        self.assertEqual((status, "limit" in answer["error"]), (500, True), answer)
        self.assertEqual(server.infer("other")[0], 200)
        status, answer = server.infer("stuck")  # waits for the next worker, unless a pause of the machine made the server give up
        self.assertIn((status, "process %d, does not end" % held.pid in answer["error"]), ((500, True), (503, True)), answer)
        self.assertEqual(server.infer("stuck")[0], 503)
        self.assertEqual(server.infer("other")[0], 200)

    def test_waiting_low_priority_requests_leave_memory_to_high_priority(self):
        server = serve(self, {"gated": ("", GATED)}, "--body", "1MiB", "--memory", "4MiB")
        statuses = []

        def ask(priority, padding):
            body = {"parameters": {"priority": priority},
                    "inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}]}
            status, _ = server.call("POST", "/v2/models/gated/infer", json.dumps(body) + " " * padding)
            statuses.append((priority, status))
        threads = []

        def send(priority, padding):
            threads.append(threading.Thread(target=ask, args=(priority, padding)))
            threads[-1].start()
            wait_until("the request waits or is refused", lambda: server.pending("gated") + len(statuses) == len(threads))
        while not statuses:
            send("low", 900 << 10)
        self.assertGreater(len(threads), 2)
        self.assertEqual(statuses, [("low", 503)])
        wait_until("the memory of refused requests is free again", lambda: server.memory() <= 3 << 20)
        send("high", 900 << 10)
        self.assertEqual(statuses, [("low", 503)])
        server.write("gated/go", "")
        for thread in threads:
            thread.join()
        self.assertEqual({status for _, status in statuses[1:]}, {200})

    @staticmethod
    def in_index(server, model):
        """The model's state and reason."""
        return next((one["state"], one["reason"]) for one in json.loads(server.call("POST", "/v2/repository/index")[1])
                    if one["name"] == model)

    def ask_two(self, server):
        """Sends two requests: one runs and the other waits for it."""
        asked = Requests(server)
        asked.ask("runs", "gated", (1, 0, 0, 0))
        appears(server, "gated/runs-1")
        asked.ask("waits", "gated", (2, 0, 0, 0))
        wait_until("the request waits", lambda: server.pending("gated") == 2)
        return asked

    def test_running_batches_end_before_their_model_is_unloaded(self):
        server = serve(self, {"gated": ("", GATED)}, "--drain", "1h")
        asked = self.ask_two(server)
        pid = int(appears(server, "gated/pid"))
        self.assertEqual(server.call("POST", "/v2/repository/models/gated/unload")[0], 200)
        wait_until("the waiting request is refused", lambda: asked.order == ["waits"])
        self.assertEqual((asked.answers["waits"][0], "unloaded" in str(asked.answers["waits"])), (503, True))
        self.assertEqual(self.in_index(server, "gated")[0], "UNLOADING")
        status, answer = server.infer("gated")
        self.assertEqual((status, "unloaded" in answer["error"]), (503, True), answer)
        server.write("gated/go", "")
        asked.join()
        self.assertEqual(asked.answers["runs"][0], 200)
        wait_until("the model is unloaded", lambda: self.in_index(server, "gated") == ("UNAVAILABLE", "unloaded"))
        self.assertEqual(server.infer("gated")[0], 404)
        wait_until("the worker has ended", lambda: not os.path.exists("/proc/%d" % pid))

    def test_batches_that_do_not_end_are_ended_after_the_drain_time(self):
        server = serve(self, {"gated": ("", GATED)}, "--drain", "100ms")
        asked = self.ask_two(server)
        self.assertEqual(server.call("POST", "/v2/repository/models/gated/unload")[0], 200)
        asked.join()
        self.assertEqual({name: status for name, (status, _) in asked.answers.items()}, {"waits": 503, "runs": 500})
        wait_until("the model is unloaded", lambda: self.in_index(server, "gated")[0] == "UNAVAILABLE")

    def test_running_batches_end_before_their_model_is_loaded_again(self):
        server = serve(self, {"gated": ("", GATED)}, "--drain", "1h")
        asked = self.ask_two(server)
        server.write("gated/model.yaml", "nonsense: 1\n")
        self.assertEqual(server.call("POST", "/v2/repository/models/gated/load")[0], 400)
        self.assertEqual(server.pending("gated"), 2)  # model.yaml was wrong, so nothing has changed
        server.write("gated/model.yaml", WORKER + TENSORS)
        server.write("gated/model.py", HEAD + "worker.serve(lambda x: x * 3)")
        loads = [threading.Thread(target=lambda: answers.append(server.call("POST", "/v2/repository/models/gated/load")))
                 for _ in range(2)]
        answers = []
        for load in loads:
            load.start()
        wait_until("the waiting request is refused", lambda: asked.order == ["waits"])
        status, answer = server.infer("gated")
        self.assertEqual((status, "unloaded" in answer["error"]), (503, True), answer)
        self.assertEqual(answers, [])
        server.write("gated/go", "")
        asked.join()
        self.assertEqual(asked.answers["runs"][1]["outputs"][0]["data"], [1, 0, 0, 0])
        for load in loads:
            load.join()
        self.assertIn(200, [status for status, _ in answers], answers)
        wait_until("the last loaded model is ready", lambda: server.is_ready("gated"))
        self.assertEqual(server.infer("gated", (1, 0, 0, 0))[1]["outputs"][0]["data"], [3, 0, 0, 0])

    def test_a_waiting_request_is_not_run_by_the_next_loaded_model(self):
        server = serve(self, {"gated": ("", GATED), "other": ("", GATED)})
        asked = Requests(server)
        for value in (1, 2, 3):  # one runs; some wait in the worker's lanes and some in the queue
            asked.ask(value, "gated", *[(value, 0, 0, 0)] * 4)
            appears(server, "gated/runs-1")
            wait_until("the request waits", lambda: server.pending("gated") == len(asked.threads))
        server.write("gated/model.yaml", WORKER + TENSORS.replace("[4]", "[2]"))
        server.write("gated/go", "")
        self.assertEqual(server.call("POST", "/v2/repository/models/gated/load")[0], 200)
        asked.join()
        for status, answer in asked.answers.values():
            self.assertIn((status, "unloaded" in str(answer)), ((503, True), (500, True), (200, False)), answer)

    def test_a_batch_without_clients_is_stopped(self):
        server = serve(self, {"long": ("", UNWANTED)})
        row = {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 0, 0, 0]}
        body = json.dumps({"inputs": [row]})
        with server.connect(("POST /v2/models/long/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s"
                             % (len(body), body)).encode()):
            appears(server, "long/runs")
        appears(server, "long/stopped")
        self.assertEqual(server.infer("long", (2, 0, 0, 0))[0], 200)

    def test_a_worker_that_a_client_loads_outlives_the_load_call(self):
        server = serve(self, {"gated": ("", GATED)})
        server.write("gated/go", "")
        for _ in range(3):
            os.remove(os.path.join(server.folder, "gated", "pid"))
            self.assertEqual(server.call("POST", "/v2/repository/models/gated/load")[0], 200)
            pid = appears(server, "gated/pid")
            for value in range(5):
                self.assertEqual(server.infer("gated", (value, 0, 0, 0))[0], 200)
            self.assertEqual(appears(server, "gated/pid"), pid)
        self.assertEqual([line for line in server.log if "its worker ended" in line], [])

    def test_a_killed_worker_loses_only_the_batch_that_it_ran(self):
        server = serve(self, {"gated": ("", GATED), "other": ("", GATED)})
        asked = Requests(server)
        asked.ask("lost", "gated", (1, 0, 0, 0))
        appears(server, "gated/runs-1")
        for value in (2, 3):
            asked.ask(value, "gated", (value, 0, 0, 0))
        asked.ask("other", "other", (5, 0, 0, 0))
        appears(server, "other/runs-5")
        wait_until("the requests wait", lambda: server.pending("gated") == 3)
        pid = int(appears(server, "gated/pid"))
        os.remove(os.path.join(server.folder, "gated", "pid"))
        os.kill(pid, signal.SIGKILL)
        self.assertNotEqual(int(appears(server, "gated/pid")), pid)
        server.write("gated/go", "")
        server.write("other/go", "")
        asked.join()
        self.assertEqual(asked.answers["other"][0], 200)
        self.assertEqual((asked.answers[2][0], asked.answers[3][0]), (200, 200))
        self.assertEqual(asked.answers["lost"][0], 500)
        self.assertIn("signal 9", asked.answers["lost"][1]["error"])
        wait_until("the end was logged", lambda: any("gated: its worker ended: signal 9" in line for line in server.log))


if __name__ == "__main__":
    unittest.main()

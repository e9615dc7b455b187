#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`hb trace record` of a running stack gives a timeline that a viewer can open, and a
recording whose replay through the core asks for the same actions."""
import json
import os
import signal
import subprocess
import unittest

from stack import HB, LIMIT, Stack, wait_until

CHECK = os.path.join(os.path.dirname(os.path.abspath(__file__)), "check_timeline.py")


def run(stack, *command):
    return subprocess.run(command, env=stack.environment, capture_output=True, text=True, timeout=LIMIT, check=False)


class Record(unittest.TestCase):
    def record(self, stack, name="incident.json"):
        """Starts a recording, which SIGINT ends."""
        path = os.path.join(stack.folder, name)
        recording = stack.spawn([HB, "trace", "record", path, "--seconds", 600, "--gpu", "sim"])
        recording.expect("recording for 600 s")
        self.assertIn("another recording is running",
                      run(stack, HB, "trace", "record", path + ".2", "--seconds", "1", "--gpu", "sim").stderr)
        return recording, path

    def end(self, recording):
        recording.signal(signal.SIGINT)
        self.assertIn("ui.perfetto.dev", recording.output()[-1])

    def events(self, stack, path):
        done = run(stack, CHECK, path)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        with open(path, encoding="utf-8") as file:
            return json.load(file)

    def work(self, stack):
        lows = [stack.start("low", "train", 300, 0) for _ in range(2)]
        for low in lows:
            low.expect("running")
        service = stack.start("high", "infer", "--rate", 50, "--seconds", 0.4, options=("--slo", "20ms"))
        self.assertIn("results=right", service.output()[-1])
        wait_until("tenants have taken turns", lambda: all(
            gpu["turns"] > 1 for tenant in stack.tenants() if tenant["priority"] == "low" for gpu in tenant["gpus"]))
        launched = [tenant["counters"]["kernels"] for tenant in stack.tenants() if tenant["priority"] == "low"]
        # A process notes its launches 0.1 s after the begin of a recording at the latest.
        wait_until("more kernels were launched", lambda: all(
            tenant["counters"]["kernels"] > before + 20
            for tenant, before in zip([t for t in stack.tenants() if t["priority"] == "low"], launched)))
        for low in lows:
            low.signal(signal.SIGTERM)
            self.assertTrue(low.result()["right"])

    def test_a_recording_shows_and_replays_what_happened(self):
        with Stack(mps=False) as stack:
            stack.start_daemon()
            recording, path = self.record(stack)
            self.work(stack)
            self.end(recording)
            timeline = self.events(stack, path)
            names = {event["name"] for event in timeline["traceEvents"]}
            self.assertTrue({"busy", "gate closed", "process_name", "thread_name"} <= names, names)
            self.assertTrue({"request", "request, GPU taken over"} & names, names)
            self.check_launches(timeline)
            self.check_replay(stack, path, timeline)

    def check_launches(self, timeline):
        """Checks that launches of low priority are on a row of their own, with kernel names, and none of high priority are."""
        rows = {event["tid"]: event["args"]["name"] for event in timeline["traceEvents"]
                if event["name"] == "thread_name"}
        launches = [rows[event["tid"]] for event in timeline["traceEvents"] if event["name"] == "step"]
        self.assertGreater(len(launches), 20)
        self.assertEqual({row.split(" (")[1] for row in launches}, {"low): launches"})

    def check_replay(self, stack, path, timeline):
        done = run(stack, HB, "sim", "--replay", path)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        self.assertRegex(done.stdout, r"^[1-9]\d* events, [1-9]\d* actions; 0 differ")
        self.assertIn("gate", run(stack, HB, "sim", "--replay", path, "--actions").stdout)
        # A replay can use another policy; a wrong name is an error.
        self.assertEqual(run(stack, HB, "sim", "--replay", path, "--policy", "gate").returncode, 0)
        self.assertIn("no policy 'magic'", run(stack, HB, "sim", "--replay", path, "--policy", "magic").stderr)
        # The replay reports an action that the core did not ask for.
        lines = timeline["hummingbird"]["recording"]
        spoiled = next(i for i, line in enumerate(lines) if " - gate" in line)
        lines[spoiled] = lines[spoiled].replace("closed", "open") if "closed" in lines[spoiled] \
            else lines[spoiled].replace("open", "closed")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(timeline, file)
        done = run(stack, HB, "sim", "--replay", path)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stdout, r"; [12] differ")
        lines[spoiled] = "0 zero = policy=temporal"
        with open(path, "w", encoding="utf-8") as file:
            json.dump(timeline, file)
        done = run(stack, HB, "sim", "--replay", path)
        self.assertEqual(done.returncode, 2)
        self.assertIn(f"{path}:{spoiled + 1}: a time in ns", done.stderr)

    def test_a_recording_can_begin_while_programs_run(self):
        with Stack(mps=False) as stack:
            stack.start_daemon()
            lows = [stack.start("low", "train", 300, 0) for _ in range(2)]
            for low in lows:
                low.expect("running")
            recording, path = self.record(stack)
            before = sum(t["gpus"][0]["turns"] for t in stack.tenants())
            wait_until("turns change", lambda: sum(t["gpus"][0]["turns"] for t in stack.tenants()) > before + 3)
            self.end(recording)
            names = [event["name"] for event in self.events(stack, path)["traceEvents"]]
            self.assertIn("gate closed", names)
            self.assertRegex(run(stack, HB, "sim", "--replay", path).stdout, r"^[1-9]\d* events")
            for low in lows:
                low.signal(signal.SIGTERM)
                low.output()

    def test_a_recording_survives_ctrl_z(self):
        """After Ctrl-Z and fg the waiting call ends early, but the recording continues."""
        with Stack(mps=False) as stack:
            stack.start_daemon()
            recording, path = self.record(stack)
            recording.signal(signal.SIGSTOP)
            wait_until("the command has stopped", lambda: self.state(recording) == "T")
            recording.signal(signal.SIGCONT)
            wait_until("the command waits again", lambda: self.state(recording) in "SZ")
            for _ in range(5):
                self.assertIn("another recording is running", run(stack, HB, "trace", "record", path + ".2", "--seconds", "1",
                                                              "--gpu", "sim").stderr)
            self.end(recording)

    def state(self, program):
        with open(f"/proc/{program.process.pid}/stat", encoding="utf-8") as file:
            return file.read().rsplit(")", 1)[1].split()[0]

    def test_a_file_that_is_not_a_recording_is_an_error(self):
        with Stack() as stack:
            path = os.path.join(stack.folder, "x.json")
            with open(path, "w", encoding="utf-8") as file:
                file.write("{}")
            done = run(stack, HB, "sim", "--replay", path)
            self.assertEqual((done.returncode, done.stderr), (2, f"hb sim: {path}: this is no recording of hb trace record\n"))
            self.assertEqual(run(stack, HB, "sim", "--replay").returncode, 2)
            self.assertIn("no daemon", run(stack, HB, "trace", "record", path, "--gpu", "sim").stderr)
            self.assertEqual(sorted(name for name in os.listdir(stack.folder) if name.startswith("x.json")), ["x.json"])

    def test_an_output_that_cannot_be_written_is_an_error_before_the_recording(self):
        with Stack() as stack:
            stack.start_daemon()
            path = os.path.join(stack.folder, "none", "x.json")
            done = run(stack, HB, "trace", "record", path, "--gpu", "sim", "--seconds", "3600")
            self.assertEqual((done.returncode, done.stdout, done.stderr),
                             (1, "", f"hb trace: {path}: No such file or directory\n"))


if __name__ == "__main__":
    unittest.main()

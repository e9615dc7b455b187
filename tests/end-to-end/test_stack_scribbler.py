#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A hostile tenant of one user writes random values into every field of every page that it can
map (scribbler.c). Programs of another user beside it allocate what they would get alone, pass
their gates, and are scheduled by the same rules, under each engine. The scribbler's own model of
the previous pages is the negative control. Needs root, setpriv and a mount namespace of its own;
skipped where these are missing."""
import json
import os
import re
import shutil
import signal
import subprocess
import unittest

from stack import BUILD, HB, LIMIT, TENANT, wait_until
from test_stack_system import SystemStack, as_nobody, own_mounts_work
from test_stack_users import as_user

SCRIBBLER = os.path.join(BUILD, "tests/end-to-end/scribbler")
HOSTILE, OTHER = 64901, 64902
MIB = 1 << 20
TOTAL, RESERVE, CHUNK = 2048 * MIB, 768 * MIB, 32 * MIB
LAUNCHES = 300


def as_other(*command):
    return as_user(OTHER, *command)


class ScribblerStack(SystemStack):
    def __init__(self, mps):
        super().__init__(config=f"reserve: {RESERVE}\nrules:\n  - {{name: other, user: {OTHER}, priority: high}}\n", mps=mps)
        self.environment |= {"HB_SIM_MEMORY": str(TOTAL)}
        shutil.chown(self.gpu_folder, OTHER, OTHER)

    def program(self, priority, *arguments, options=()):
        return self.spawn(as_other(HB, "run", "--gpu", "sim", "--priority", priority, *options, "--", TENANT, *arguments))

    def scribble(self):
        program = self.spawn(as_user(HOSTILE, SCRIBBLER, self.environment["HB_SOCKET"]))
        program.expect("scribbling")
        return program

    def counters(self, priority):
        """The counters of the honest tenant with this priority."""
        found = [tenant["counters"] for tenant in self.tenants()
                 if tenant["priority"] == priority and tenant["command"] != "scribbler"]
        return found[0] if found else {}


@unittest.skipIf(os.geteuid() != 0, "only root can run the system's daemon and programs of another user")
@unittest.skipUnless(shutil.which("setpriv") and own_mounts_work(), "needs setpriv and a mount namespace of its own")
class Scribbling(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if subprocess.run(as_nobody(HB, "--version"), capture_output=True, check=False).returncode:
            raise unittest.SkipTest(f"user nobody may not run {HB}")

    def end(self, scribbler):
        scribbler.go()
        self.assertEqual(scribbler.output()[-1], "writable: 0")

    def check_alive(self, stack):
        """The daemon lives and its figures are those of the driver and of the honest."""
        status = stack.status()
        self.assertEqual(status["gpus"][0]["memory_total"], TOTAL)
        self.assertLessEqual(status["gpus"][0]["low_memory"], TOTAL)
        self.assertEqual([gpu["beacons"] for gpu in status["gpus"] if gpu["high"] == 0][:1], [[]])

    # --- the negative control -----------------------------------------------------------------

    def model(self, which):
        done = subprocess.run([SCRIBBLER, "--model", which], capture_output=True, text=True, timeout=LIMIT, check=True)
        return [int(n) for n in re.findall(r"\d+", done.stdout)]

    def test_the_same_writer_defeats_the_previous_pages(self):
        refused, held = self.model("old")
        self.assertGreater(refused, 100)
        self.assertGreater(held, 100)
        self.assertEqual(self.model("new"), [0, 0])

    # --- memory -------------------------------------------------------------------------------

    def granted(self, stack):
        program = stack.program("low", "memory", CHUNK, 1, 1)
        said = program.expect("granted")
        program.expect("full")
        program.go()
        self.assertEqual(program.ended(), 0)
        self.assertIn("wrong: 0", said)
        return int(re.search(r"granted: (\d+)", said)[1])

    def test_a_bystander_allocates_its_honest_amount(self):
        with ScribblerStack(mps=False) as stack:
            alone = self.granted(stack)
            self.assertEqual(alone, TOTAL - RESERVE)
            scribbler = stack.scribble()
            self.assertEqual(self.granted(stack), alone)
            self.end(scribbler)
            self.assertEqual(self.granted(stack), alone)

    # --- gates and turns ----------------------------------------------------------------------

    def train(self, stack, launches=LAUNCHES):
        program = stack.program("low", "train", 300, launches)
        program.expect("running")
        return program

    def test_a_bystander_gets_its_turns(self):
        with ScribblerStack(mps=False) as stack:
            training = self.train(stack)
            self.assertEqual(training.result()["kernels"], LAUNCHES)
            scribbler = stack.scribble()
            training = self.train(stack, 0)
            before = wait_until("it launches", lambda: stack.counters("low").get("kernels"))
            # It waits at its gate, and each wait ends: no turn is kept for ever.
            wait_until("it launches more, after it waited", lambda: stack.counters("low")["kernels"] > before + LAUNCHES
                       and stack.counters("low")["gate_waits"] > 3)
            self.check_alive(stack)
            training.signal(signal.SIGTERM)
            self.assertTrue(training.result()["right"])
            self.end(scribbler)

    # --- beside high priority --------------------------------------------------------------------

    def beside_high(self, engine):
        """A service and a training of one user; the hostile tenant joins in the middle."""
        with ScribblerStack(mps=True) as stack:
            service = stack.program("high", "infer", "--rate", 100, "--seconds", 3600, "--eager",
                                    options=("--engine", engine))
            wait_until("requests are seen", lambda: stack.counters("high").get("requests"))
            training = self.train(stack, 0)
            wait_until("it launches", lambda: stack.counters("low").get("kernels"))
            alone = stack.status()["gpus"][0]["engine"]
            scribbler = stack.scribble()
            low, high = stack.counters("low"), stack.counters("high")
            wait_until("both continue", lambda: stack.counters("low")["kernels"] > low["kernels"] + LAUNCHES and
                       stack.counters("high")["requests"] > high["requests"] + 20)
            if engine == "spatial":
                masked = stack.counters("low")["masked"]
                wait_until("low still leaves SMs to high", lambda: stack.counters("low")["masked"] > masked)
            gpu = stack.status()["gpus"][0]
            self.assertEqual((gpu["engine"], gpu["high"]), (alone, 1))
            self.assertLessEqual(len(gpu["beacons"]), 1)
            service.signal(signal.SIGTERM)
            self.assertIn("results=right", service.output()[-1])
            # When HP has ended, no page can pretend that it still runs: LP has all SMs again.
            if engine == "spatial":
                wait_until("high has left", lambda: stack.status()["gpus"][0]["high"] == 0)
                self.check_alive(stack)
                self.check_low_is_free(stack)
            training.signal(signal.SIGTERM)
            self.assertTrue(training.result()["right"])
            self.end(scribbler)

    def check_low_is_free(self, stack):
        def without_masks():
            before = stack.counters("low")
            after = wait_until("it launches", lambda: stack.counters("low")["kernels"] > before["kernels"] + 20
                               and stack.counters("low"))
            return after["masked"] == before["masked"] and after["spatial_waits"] == before["spatial_waits"]
        wait_until("low launches without masks and waits", without_masks)

    def test_temporal(self):
        self.beside_high("temporal")

    def test_spatial(self):
        self.beside_high("spatial")


if __name__ == "__main__":
    unittest.main()

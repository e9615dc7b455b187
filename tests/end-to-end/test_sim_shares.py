#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Shares of low priority in `hb sim`, with the recorded programs of an H200. Simulated time: exact on every machine."""
import json
import subprocess
import sys
import unittest

HB = sys.argv.pop(1)


def simulate(sharing, *programs, seconds=20):
    done = subprocess.run([HB, "sim", "--sharing", sharing, "--seconds", str(seconds), "--json", *programs],
                          capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def speeds(sharing, *programs, seconds=20):
    return [low["relative"] for low in simulate(sharing, *programs, seconds=seconds)["low"]]


class Weights(unittest.TestCase):
    def test_programs_share_the_gpu_by_their_weights_within_a_tenth(self):
        for sharing in ("temporal", "spatial"):
            for heavy, light in (("llama8_train_b4", "resnet50_train_b128"), ("resnet50_train_b128", "llama8_train_b4")):
                with self.subTest(sharing=sharing, heavy=heavy):
                    low = ("--low", heavy + ",weight=3", "--low", light)
                    had = speeds(sharing, *low)
                    self.assertTrue(2.7 <= had[0] / had[1] <= 3.3, had)
                    self.assertGreater(sum(had), 0.95)  # turns cost little
                    had = speeds(sharing, "--high", "resnet50_b1@60/s", *low)
                    self.assertTrue(2.7 <= had[0] / had[1] <= 3.3, had)


unittest.main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the verdicts of tests/gpu/split_check.py about trainings with split kernels, without a GPU.

    test_split_verdicts.py split_check.py
"""

import copy
import importlib.util
import sys
import unittest

SCRIPT = sys.argv.pop(1)


def load():
    spec = importlib.util.spec_from_file_location("slices", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


slices = load()

RUN = {"losses": "a", "parameters": "b", "libraries": "c", "each_loss": [3.0, 2.0, 1.0]}


def runs_of(**changes):
    """Returns one run of a model for each way, all correct except for the given changes."""
    runs = {how: copy.deepcopy(RUN) for how in slices.HOWS}
    for how, run in runs.items():
        if how != "whole":
            run["launches"] = {"split": 5, "parts": 10}
        run.update(changes.get(how, {}))
    return {"gpt": runs}


class Verdicts(unittest.TestCase):
    def test_all_equal(self):
        self.assertEqual(slices.judge(runs_of()), [])

    def test_usual_settings_may_split_nothing(self):
        self.assertEqual(slices.judge(runs_of(usual={"launches": {"split": 0, "parts": 0}})), [])

    def test_forced_settings_must_split(self):
        wrong = slices.judge(runs_of(short={"launches": {"split": 0, "parts": 0}}))
        self.assertEqual(wrong, ["gpt short: no kernel was split"])

    def test_other_losses_are_reported(self):
        wrong = slices.judge(runs_of(forced={"losses": "x", "each_loss": [3.0, 2.5, 1.0]}))
        self.assertEqual(wrong, ["gpt forced: losses differ; first at step 1: 2.5 for 2.0"])

    def test_other_parameters_alone(self):
        self.assertEqual(slices.judge(runs_of(usual={"parameters": "x"})), ["gpt usual: parameters differ"])

    def test_a_run_that_failed(self):
        runs = runs_of()
        runs["gpt"]["whole"] = {"error": "not done after 10 s"}
        self.assertEqual(slices.judge(runs), ["gpt whole: not done after 10 s"])

    def test_a_run_without_the_shim_is_no_proof(self):
        runs = runs_of()
        del runs["gpt"]["forced"]["launches"]
        self.assertEqual(slices.judge(runs), ["gpt forced: the shim wrote no report"])


if __name__ == "__main__":
    unittest.main()

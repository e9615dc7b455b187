#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""hb-serve contains no simulation: the back end of `platform: trace` is a module that it loads when a model needs it."""
import os
import shutil
import subprocess
import tempfile
import unittest
from unittest import mock

from serve_process import BUILD, Server

MODULE = "hb-trace-backend.so"
SIMULATION = ("hb_gpu_model_", "hb_serving_", "hb_trace_", "hb_simulation_", "hb_sim_")


def simulation_symbols(program):
    names = subprocess.run(["nm", os.path.join(BUILD, program)], capture_output=True, text=True, check=True).stdout.split()
    return [name for name in names if name.startswith(SIMULATION)]


class TraceModule(unittest.TestCase):
    def serve(self, folder):
        server = Server({"recorded": "platform: trace\ntrace: bert\nmax_batch: 1\n", "echoed": "platform: echo\nmax_batch: 1\n"}, "--gpu", "none",
                        program=shutil.copy2(os.path.join(BUILD, "hb-serve"), folder))
        self.addCleanup(server.stop)
        return server

    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory(prefix="hb-trace-module-"))
        # The data folder is found from the build tree, which the copy is not in.
        self.enterContext(mock.patch.dict(os.environ, HB_DATA_DIR=os.path.join(os.environ["HB_SOURCE"], "data")))

    def test_the_server_contains_no_simulation_and_the_module_does(self):
        self.assertEqual(simulation_symbols("hb-serve"), [])
        self.assertNotEqual(simulation_symbols(MODULE), [])
        libraries = subprocess.run(["ldd", os.path.join(BUILD, "hb-serve")], capture_output=True, text=True, check=True).stdout
        self.assertNotIn(MODULE, libraries)

    def test_without_the_module_only_trace_models_fail_and_say_why(self):
        server = self.serve(self.folder)
        status, answer = server.infer("recorded")
        self.assertEqual(status, 503)
        self.assertIn(MODULE + " is not installed", answer["error"])
        self.assertEqual(server.infer("echoed")[0], 200)

    def test_a_file_that_is_no_module_is_refused(self):
        with open(os.path.join(self.folder, MODULE), "w", encoding="utf-8") as file:
            file.write("not a shared object")
        server = self.serve(self.folder)
        status, answer = server.infer("recorded")
        self.assertEqual(status, 503)
        self.assertIn(MODULE, answer["error"])

    def test_the_module_beside_the_program_is_loaded(self):
        shutil.copy2(os.path.join(BUILD, MODULE), self.folder)
        self.assertEqual(self.serve(self.folder).infer("recorded")[0], 200)


if __name__ == "__main__":
    unittest.main()

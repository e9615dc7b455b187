#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The models in examples/ are served as examples/README.md says, and answer what it shows."""
import os
import re
import sys
import unittest

os.environ["PATH"] = "/usr/bin:" + os.environ["PATH"]  # of the programs named python3 the one that has Debian's numpy
os.environ["PYTHONPATH"] = "/nowhere"  # which the server keeps, beside its own

from serve_process import SOURCE, Server, wait_until  # pylint: disable=wrong-import-position
from worker_programs import HAVE_NUMPY  # pylint: disable=wrong-import-position

FOLDER = os.path.join(SOURCE, "examples")


def text_of(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


class Examples(unittest.TestCase):
    def test_each_model_answers_what_is_shown(self):
        readme = text_of(os.path.join(FOLDER, "README.md"))
        asked = re.findall(r"^curl -s localhost:8000(/v2/models/(\w+)/infer) -d '(.*)'$", readme, re.MULTILINE)
        shown = re.findall(r"^\{.*\}$", readme, re.MULTILINE)
        models = sorted(os.listdir(os.path.join(FOLDER, "models")))
        self.assertEqual((sorted(name for _, name, _ in asked), len(shown)), (models, len(asked)))
        paths = [os.path.join(name, file) for name in models for file in os.listdir(os.path.join(FOLDER, "models", name))
                 if not file.startswith("__")]
        server = Server({}, "--gpu", "none", files=[(path, text_of(os.path.join(FOLDER, "models", path))) for path in paths])
        self.addCleanup(server.stop)
        for (path, name, body), answer in zip(asked, shown):
            wait_until(name + " is ready", lambda one=name: server.is_ready(one))
            self.assertEqual(server.call("POST", path, body), (200, answer.encode()))


if __name__ == "__main__":
    if not HAVE_NUMPY:
        print("skipped: python3-numpy is not installed")
        sys.exit(77)
    unittest.main()

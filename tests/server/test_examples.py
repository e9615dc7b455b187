#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The models in examples/ need nothing but Python 3 and answer as examples/README.md shows. A model whose Python lacks a
module says which Python and which module.

The first python3 on PATH is a wrapper here that finds no installed package, as on a machine where none is installed."""
import json
import os
import re
import shutil
import tempfile
import unittest

BARE_PYTHON = tempfile.mkdtemp(prefix="hb-bare-python-")
with open(os.path.join(BARE_PYTHON, "python3"), "w", encoding="utf-8") as wrapper:
    wrapper.write('#!/bin/sh\nexec /usr/bin/python3 -S "$@"\n')
os.chmod(wrapper.name, 0o755)
os.environ["PATH"] = BARE_PYTHON + ":" + os.environ["PATH"]
os.environ["PYTHONPATH"] = "/nowhere"  # the server must add the folder of `hummingbird` to an existing value

from serve_process import SOURCE, Server, wait_until  # pylint: disable=wrong-import-position

FOLDER = os.path.join(SOURCE, "examples")
WITH_ARRAYS = """from hummingbird import worker
worker.serve(lambda x: x)
"""
WITH_IMPORT = """from hummingbird import worker
import a_module_that_is_missing
"""
WITH_LISTS = """from hummingbird import worker

def infer(x, flag, words):
    if words == [[b"wrong"]]:
        return {"y": [[1, 2], [3]], "no": flag, "said": words}
    return {"y": [[2 * value for value in row] for row in x], "no": [[not one for one in row] for row in flag],
            "said": [[word.decode() + "!" for word in row] for row in words]}

worker.serve(infer, lists=True)
"""
LIST_TENSORS = """inputs:
  - {name: x, datatype: FP32, shape: [4]}
  - {name: flag, datatype: BOOL, shape: [1]}
  - {name: words, datatype: BYTES, shape: [1]}
outputs:
  - {name: y, datatype: INT32, shape: [4]}
  - {name: no, datatype: BOOL, shape: [1]}
  - {name: said, datatype: BYTES, shape: [1]}
"""


def text_of(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def tearDownModule():
    shutil.rmtree(BARE_PYTHON)


class Examples(unittest.TestCase):
    def test_each_model_answers_as_the_readme_shows(self):
        readme = text_of(os.path.join(FOLDER, "README.md"))
        requests = re.findall(r"^curl -s localhost:8000(/v2/models/(\w+)/infer) -d '(.*)'$", readme, re.MULTILINE)
        shown = re.findall(r"^\{.*\}$", readme, re.MULTILINE)
        models = sorted(os.listdir(os.path.join(FOLDER, "models")))
        self.assertEqual((sorted(name for _, name, _ in requests), len(shown)), (models, len(requests)))
        paths = [os.path.join(name, file) for name in models for file in os.listdir(os.path.join(FOLDER, "models", name))
                 if not file.startswith("__")]
        server = Server({}, "--gpu", "none", files=[(path, text_of(os.path.join(FOLDER, "models", path))) for path in paths])
        self.addCleanup(server.stop)
        for (path, name, body), answer in zip(requests, shown):
            wait_until(name + " is ready", lambda one=name: server.is_ready(one))
            self.assertEqual(server.call("POST", path, body), (200, answer.encode()))

    def test_a_missing_module_is_named_with_the_python_that_lacks_it(self):
        worker = "platform: worker\ncommand: python3 model.py\n"
        server = Server({"arrays": worker, "imports": worker}, "--gpu", "none",
                        files=[("arrays/model.py", WITH_ARRAYS), ("imports/model.py", WITH_IMPORT)])
        self.addCleanup(server.stop)

        def reason_of(model):
            index = json.loads(server.call("POST", "/v2/repository/index")[1])
            return next(one["reason"] for one in index if one["name"] == model)
        for model, module in (("arrays", "numpy"), ("imports", "a_module_that_is_missing")):
            wait_until(model + " has failed", lambda one=model: reason_of(one))
            self.assertRegex(reason_of(model), '^/.*python3.* has no module %s\\. .*"command" of model\\.yaml' % module)

    def test_a_model_can_use_lists_instead_of_arrays(self):
        server = Server({"lists": "platform: worker\ncommand: python3 model.py\nmax_batch: 4\n"}, "--gpu", "none",
                        files=[("lists/model.py", WITH_LISTS)], tensors=LIST_TENSORS)
        self.addCleanup(server.stop)
        wait_until("the model is ready", lambda: server.is_ready("lists"))

        def ask(word):
            inputs = [("x", "FP32", [2, 4], [1, 2, 3, 4, 5, 6, 7, 8]), ("flag", "BOOL", [2, 1], [True, False]),
                      ("words", "BYTES", [2, 1], [word, "b"])]
            if word == "wrong":
                inputs = [(name, dtype, [1] + shape[1:], data[:len(data) // 2]) for name, dtype, shape, data in inputs]
            body = {"inputs": [dict(zip(("name", "datatype", "shape", "data"), one)) for one in inputs]}
            status, answer = server.call("POST", "/v2/models/lists/infer", json.dumps(body))
            return status, json.loads(answer)
        status, answer = ask("a")
        self.assertEqual(status, 500, answer)  # floats for an INT32 output
        self.assertIn("integer", answer["error"])
        server.write("lists/model.yaml", "platform: worker\ncommand: python3 model.py\nmax_batch: 4\n" +
                     LIST_TENSORS.replace("INT32", "FP64"))
        self.assertEqual(server.call("POST", "/v2/repository/models/lists/load")[0], 200)
        status, answer = ask("a")
        self.assertEqual((status, [one["data"] for one in answer.get("outputs", [])]),
                         (200, [[2, 4, 6, 8, 10, 12, 14, 16], [False, True], ["a!", "b!"]]), answer)
        status, answer = ask("wrong")
        self.assertEqual((status, "same length" in answer["error"]), (500, True), answer)


if __name__ == "__main__":
    unittest.main()

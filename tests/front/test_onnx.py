#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`hb serve` with ONNX models: what they compute, in batches, what does not fit, a worker that is killed. onnxruntime and
onnx come from PyPI; where that cannot be reached only what is said without the library is tested, and the rest is skipped
(77). --missing: only that."""
import json
import os
import signal
import subprocess
import sys
import unittest

from serve_process import BUILD, Asked, Server, wait_until

FOLDER = os.path.join(BUILD, "onnx")
PYTHON = os.path.join(FOLDER, "bin", "python")
# y = 2x + 1 and n = the indices of x's largest, of any batch.
MAKE = r'''
import sys
import onnx
from onnx import TensorProto, helper
def value(name, kind, shape):
    return helper.make_tensor_value_info(name, kind, shape)
two, one = (helper.make_tensor(name, TensorProto.FLOAT, [], [number]) for name, number in (("two", 2), ("one", 1)))
graph = helper.make_graph([helper.make_node("Mul", ["x", "two"], ["d"]), helper.make_node("Add", ["d", "one"], ["y"]),
                           helper.make_node("ArgMax", ["x"], ["n"], axis=1)], "g",
                          [value("x", TensorProto.FLOAT, ["b", 4])],
                          [value("y", TensorProto.FLOAT, ["b", 4]), value("n", TensorProto.INT64, ["b", 1])], [two, one])
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), sys.argv[1])
'''
FIND = "import glob, os, onnxruntime; print(glob.glob(os.path.join(os.path.dirname(onnxruntime.__file__), 'capi/libonnxruntime.so.*'))[0])"
TENSORS = """inputs: [{name: x, datatype: %s, shape: [4]}]
outputs: [{name: %s, datatype: FP32, shape: [4]}, {name: n, datatype: INT64, shape: [1]}]
"""


class OnnxServer(Server):
    """models: name -> (model.yaml, path of a file to be there as model.onnx)."""

    def __init__(self, models):
        super().__init__({name: "platform: onnxruntime\nmodel: model.onnx\nmax_batch: 8\n" + text
                          for name, (text, _) in models.items()}, "--gpu", "none", tensors="",
                         links=[(name + "/model.onnx", model) for name, (_, model) in models.items() if model])

    def wait_for(self, name):
        wait_until("%s is ready" % name, lambda: self.is_ready(name))

    def reason(self, name):
        """Why the model cannot be served."""
        def failed():
            index = json.loads(self.call("POST", "/v2/repository/index", '{"ready": false}')[1])
            return next(one for one in index if one["name"] == name)
        wait_until("%s has failed" % name, lambda: failed()["state"] == "UNAVAILABLE")
        return failed()["reason"]

    def workers(self):
        """Processes that any thread of the server has started and that still run."""
        found = []
        for task in os.listdir("/proc/%d/task" % self.process.pid):
            try:
                with open("/proc/%d/task/%s/children" % (self.process.pid, task), encoding="utf-8") as file:
                    found += [int(pid) for pid in file.read().split()]
            except FileNotFoundError:
                continue  # a thread that has just ended
        return found


class Missing(unittest.TestCase):
    def test_a_library_that_is_not_there_is_named(self):
        server = OnnxServer({"m": ("library: /nowhere/libonnxruntime.so\n" + TENSORS % ("FP32", "y"), None),
                             "other": ("library: libc.so.6\n" + TENSORS % ("FP32", "y"), None)})
        try:
            self.assertIn("/nowhere/libonnxruntime.so", server.reason("m"))
            self.assertIn("libc.so.6 is no ONNX Runtime", server.reason("other"))
            status, answer = server.infer("m")
            self.assertEqual(status, 503)
            self.assertIn("/nowhere/libonnxruntime.so", answer["error"])
        finally:
            server.stop()


class Onnx(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        library = subprocess.run([PYTHON, "-c", FIND], check=True, capture_output=True, text=True).stdout.strip()
        model = os.path.join(FOLDER, "model.onnx")
        subprocess.run([PYTHON, "-c", MAKE, model], check=True)
        begin = "library: %s\n" % library
        cls.server = OnnxServer({"good": (begin + TENSORS % ("FP32", "y"), model),
                                 "type": (begin + TENSORS % ("FP64", "y"), model),
                                 "name": (begin + TENSORS % ("FP32", "z"), model),
                                 "text": (begin + TENSORS % ("BYTES", "y"), model),
                                 "none": (begin + TENSORS % ("FP32", "y"), None),
                                 "noise": (begin + TENSORS % ("FP32", "y"), __file__)})

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def test_models_compute(self):
        self.server.wait_for("good")
        status, answer = self.server.infer("good", [1, 2, 3, 4], [0, -1, 5, 0.5])
        self.assertEqual(status, 200, answer)
        outputs = {output["name"]: output for output in answer["outputs"]}
        self.assertEqual(outputs["y"]["data"], [3, 5, 7, 9, 1, -1, 11, 2])
        self.assertEqual((outputs["n"]["shape"], outputs["n"]["data"]), ([2, 1], [3, 2]))

    def test_requests_in_one_batch_get_their_own(self):
        self.server.wait_for("good")
        asked = Asked(self.server)
        for k in range(24):
            asked.ask(k, "good", [k] * 4)
        asked.join()
        self.assertEqual({k: answer["outputs"][0]["data"] for k, (_, answer) in asked.answers.items()},
                         {k: [2 * k + 1] * 4 for k in range(24)})

    def test_what_does_not_fit_is_said(self):
        for name, words in (("type", ("input x", "FP64")), ("name", ("output z",)), ("text", ("BYTES",)),
                            ("none", ("model.onnx",)), ("noise", ("model.onnx",))):
            for word in words:
                self.assertIn(word, self.server.reason(name), name)

    def test_a_worker_that_is_killed_comes_back(self):
        self.server.wait_for("good")
        for name in ("type", "name", "text", "none", "noise"):
            self.server.reason(name)
        wait_until("theirs are gone", lambda: len(self.server.workers()) == 1)
        (worker,) = self.server.workers()
        os.kill(worker, signal.SIGKILL)
        wait_until("there is another", lambda: self.server.workers() not in ([], [worker]))
        self.assertEqual(self.server.infer("good", [1, 1, 1, 1])[1]["outputs"][0]["data"], [3] * 4)


def install():
    if os.path.exists(os.path.join(FOLDER, "done")):
        return
    subprocess.run([sys.executable, "-m", "venv", FOLDER], check=True)
    done = subprocess.run([PYTHON, "-m", "pip", "install", "-q", "onnxruntime", "onnx"], check=False, capture_output=True,
                          text=True, timeout=400)
    if done.returncode:
        print("skipped: PyPI gives no onnxruntime: " + done.stderr[-400:])
        sys.exit(77)
    with open(os.path.join(FOLDER, "done"), "w", encoding="utf-8"):
        pass


if __name__ == "__main__":
    if "--missing" in sys.argv:
        sys.argv.remove("--missing")
        unittest.main(defaultTest="Missing")
    install()
    unittest.main()

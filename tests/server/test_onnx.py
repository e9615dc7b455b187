#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`hb serve` with ONNX models: what they compute, in batches, texts too, what does not fit, a run that nobody waits for, a
worker that is killed, a file that vanishes. `test_onnx.py Fake`: with fake_onnxruntime.c. `test_onnx.py Onnx`: with the real
library, which comes from PyPI with what makes models; skipped (77) where that cannot be reached."""
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import unittest

from serve_process import BUILD, Requests, Server, wait_until

FOLDER = os.path.join(BUILD, "onnx")
PYTHON = os.path.join(FOLDER, "bin", "python")
# good: y = 2x + 1 and n = the indices of x's largest, of any batch. one: the same of one item. two: sums and differences of
# numbers of two types. loops: y = x, or, where x begins with 1, after very long. all: each type of number, and texts.
MAKE = r'''
import sys
import onnx
from onnx import TensorProto, helper

def value(name, kind, shape):
    return helper.make_tensor_value_info(name, kind, shape)

def save(name, nodes, inputs, outputs, constants=()):
    graph = helper.make_graph(nodes, "g", inputs, outputs, list(constants))
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 16)], ir_version=8), sys.argv[1] + "/" + name)

F, I = TensorProto.FLOAT, TensorProto.INT64
two, one = (helper.make_tensor(name, F, [], [number]) for name, number in (("two", 2), ("one", 1)))
for name, batch in (("good.onnx", "b"), ("one.onnx", 1)):
    save(name, [helper.make_node("Mul", ["x", "two"], ["d"]), helper.make_node("Add", ["d", "one"], ["y"]),
                helper.make_node("ArgMax", ["x"], ["n"], axis=1)],
         [value("x", F, [batch, 4])], [value("y", F, [batch, 4]), value("n", I, [batch, 1])], [two, one])
save("two.onnx", [helper.make_node("Cast", ["k"], ["f"], to=F), helper.make_node("Add", ["x", "f"], ["sum"]),
                  helper.make_node("Sub", ["x", "f"], ["difference"])],
     [value("k", I, ["b", 4]), value("x", F, ["b", 4])], [value("difference", F, ["b", 4]), value("sum", F, ["b", 4])])
body = helper.make_graph([helper.make_node("Identity", ["go"], ["go_on"]), helper.make_node("Mul", ["v", "v"], ["w"])], "body",
                         [value("i", I, []), value("go", TensorProto.BOOL, []), value("v", F, ["b", 4])],
                         [value("go_on", TensorProto.BOOL, []), value("w", F, ["b", 4])])
save("loops.onnx", [helper.make_node("ReduceMin", ["x"], ["least"], keepdims=0),
                    helper.make_node("Equal", ["least", "one"], ["long"]), helper.make_node("Cast", ["long"], ["times"], to=I),
                    helper.make_node("Mul", ["times", "many"], ["m"]),
                    helper.make_node("Loop", ["m", "", "x"], ["y"], body=body)],
     [value("x", F, ["b", 4])], [value("y", F, ["b", 4])], [one, helper.make_tensor("many", I, [], [1 << 50])])
names = sys.argv[2].split(",")
kinds = [{"FP32": 1, "UINT8": 2, "INT8": 3, "UINT16": 4, "INT16": 5, "INT32": 6, "INT64": 7, "BYTES": 8, "BOOL": 9, "FP16": 10,
          "FP64": 11, "UINT32": 12, "UINT64": 13, "BF16": 16}[name] for name in names]
save("all.onnx", [helper.make_node("Identity", ["i" + name], ["o" + name]) for name in names],
     [value("i" + name, kind, ["b", 2]) for name, kind in zip(names, kinds)],
     [value("o" + name, kind, ["b", 2]) for name, kind in zip(names, kinds)])
'''
FIND = "import glob, os, onnxruntime; print(glob.glob(os.path.join(os.path.dirname(onnxruntime.__file__), 'capi/libonnxruntime.so.*'))[0])"
TENSORS = """inputs: [{name: x, datatype: %s, shape: [4]}]
outputs: [{name: %s, datatype: FP32, shape: [4]}, {name: n, datatype: INT64, shape: [1]}]
"""
PLAIN = """inputs: [{name: x, datatype: FP32, shape: [%s]}]
outputs: [{name: y, datatype: FP32, shape: [%s]}]
"""
TWO_TENSORS = """inputs: [{name: x, datatype: FP32, shape: [4]}, {name: k, datatype: INT64, shape: [4]}]
outputs: [{name: sum, datatype: FP32, shape: [4]}, {name: difference, datatype: FP32, shape: [4]}]
"""
ALL = {"FP32": 4, "UINT8": 1, "INT8": 1, "UINT16": 2, "INT16": 2, "INT32": 4, "INT64": 8, "BYTES": 0, "BOOL": 1, "FP16": 2,
       "FP64": 8, "UINT32": 4, "UINT64": 8, "BF16": 2}
ALL_TENSORS = "inputs: [%s]\noutputs: [%s]\n" % tuple(
    ", ".join("{name: %s%s, datatype: %s, shape: [2]}" % (letter, kind, kind) for kind in ALL) for letter in "io")


class OnnxServer(Server):
    """models: name -> (model.yaml, path of the file to use as model.onnx)."""

    def __init__(self, models):
        super().__init__({name: "platform: onnxruntime\nmodel: model.onnx\nmax_batch: 8\n" + text
                          for name, (text, _) in models.items()}, "--gpu", "none", "--drain", "1h", tensors="",
                         links=[(name + "/model.onnx", model) for name, (_, model) in models.items() if model])

    def wait_for(self, name):
        wait_until("%s is ready" % name, lambda: self.is_ready(name))

    def in_index(self, name):
        index = json.loads(self.call("POST", "/v2/repository/index", '{"ready": false}')[1])
        return next(one for one in index if one["name"] == name)

    def reason(self, name):
        """Waits until the model has failed. Returns its reason."""
        wait_until("%s has failed" % name, lambda: self.in_index(name)["state"] == "UNAVAILABLE")
        return self.in_index(name)["reason"]

    def infer_binary(self, model, tensors):
        """tensors: of two items of two elements: name -> (type, bytes). Answer's the same way, without types."""
        head = {"parameters": {"binary_data_output": True},
                "inputs": [{"name": name, "datatype": kind, "shape": [2, 2], "parameters": {"binary_data_size": len(data)}}
                           for name, (kind, data) in tensors.items()]}
        text = json.dumps(head).encode()
        status, data, headers = self.exchange("POST", "/v2/models/%s/infer" % model,
                                              text + b"".join(data for _, data in tensors.values()),
                                              {"Inference-Header-Content-Length": str(len(text))})
        assert status == 200, data
        at, found = int(headers["Inference-Header-Content-Length"]), {}
        for output in json.loads(data[:at])["outputs"]:
            size = output["parameters"]["binary_data_size"]
            found[output["name"]] = data[at:at + size]
            at += size
        return found

    def leave_running(self, name):
        """Sends a request whose run does not end, and disconnects as soon as it runs."""
        row = {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 1, 1, 1]}
        text = json.dumps({"inputs": [row]})
        return self.connect(("POST /v2/models/%s/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s"
                             % (name, len(text), text)).encode())

    def deaths(self):
        return [line for line in self.log if "worker ended" in line]

    def workers(self):
        """The processes that threads of the server have started and that still run."""
        found = []
        for task in os.listdir("/proc/%d/task" % self.process.pid):
            try:
                with open("/proc/%d/task/%s/children" % (self.process.pid, task), encoding="utf-8") as file:
                    found += [int(pid) for pid in file.read().split()]
            except FileNotFoundError:
                continue  # the thread has just ended
        return found


class Missing(unittest.TestCase):
    def test_a_missing_library_is_named(self):
        server = OnnxServer({"m": ("library: /nowhere/libonnxruntime.so\n" + TENSORS % ("FP32", "y"), None),
                             "other": ("library: libc.so.6\n" + TENSORS % ("FP32", "y"), None)})
        try:
            self.assertIn("/nowhere/libonnxruntime.so", server.reason("m"))
            self.assertIn("libc.so.6 is not ONNX Runtime", server.reason("other"))
            status, answer = server.infer("m")
            self.assertEqual(status, 503)
            self.assertIn("/nowhere/libonnxruntime.so", answer["error"])
        finally:
            server.stop()


def some_of_all():
    """Two items of two elements of each type, all different."""
    texts = b"".join(struct.pack("<I", len(text)) + text for text in (b"", b"a", "\u00e4\u20ac".encode(), b"x" * 300))
    return {"i" + kind: (kind, bytes(k % 2 if kind == "BOOL" else 16 + k for k in range(4 * size)) if size else texts)
            for kind, size in ALL.items()}


class Fake(unittest.TestCase):
    """hb-onnx-worker with a library that computes nothing."""
    @classmethod
    def setUpClass(cls):
        begin = "library: %s\n" % os.environ["HB_FAKE_ONNX"]
        kinds = dict(zip(("FP32", "UINT8", "INT8", "UINT16", "INT16", "INT32", "INT64", "BYTES", "BOOL", "FP16", "FP64", "UINT32",
                          "UINT64", "", "", "BF16"), range(1, 17)))
        models = {"all": (ALL_TENSORS, "".join("in i%s %d -1 2\nout o%s %d -1 2\n" % (kind, kinds[kind], kind, kinds[kind])
                                               for kind in ALL)),
                  "slow": (PLAIN % (4, 4), "slow\nin x 1 -1 4\nout y 1 -1 4\n"),
                  "breaks": (PLAIN % (4, 4), "breaks\nin x 1 -1 4\nout y 1 -1 4\n"),
                  "one": (PLAIN % (4, 4), "in x 1 1 4\nout y 1 1 4\n"),
                  "wide": (PLAIN % (4, 4), "in x 1 -1 5\nout y 1 -1 5\n"),
                  "deep": (PLAIN % (4, 4), "in x 1 -1 2 4\nout y 1 -1 4\n"),
                  "more": (PLAIN % (4, 4), "in x 1 -1 4\nin z 1 -1 4\nout y 1 -1 4\n"),
                  "output": (PLAIN % (4, 4), "in x 1 -1 4\nout y 1 -1 5\n"),
                  "unsaid": (PLAIN % (4, 4), "in x 1\nout y 1\n"),
                  "noise": (PLAIN % (4, 4), "noise\n")}
        cls.server = OnnxServer({name: (begin + text, None) for name, (text, _) in models.items()})
        for name, (_, model) in models.items():
            cls.server.write(name + "/model.onnx", model)
            cls.server.call("POST", "/v2/repository/models/%s/load" % name)  # it was started before its file existed

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def test_a_worker_whose_cuda_context_is_broken_is_replaced(self):
        def restarts():
            return self.server.metric('hb_serve_worker_restarts_total{model="breaks",version="1"}')
        before = restarts()
        self.assertEqual(self.server.infer("breaks", (1, 0, 0, 0))[0], 500)  # CUDA_ERROR_INVALID_VALUE breaks nothing
        self.assertEqual((self.server.infer("breaks", (0, 0, 0, 0))[0], restarts()), (200, before))
        self.assertEqual(self.server.infer("breaks", (700, 0, 0, 0))[0], 500)  # CUDA_ERROR_ILLEGAL_ADDRESS
        self.assertEqual((self.server.infer("breaks", (0, 0, 0, 0))[0], restarts()), (200, before + 1))

    def test_tensors_of_each_type_are_passed_on(self):
        given = some_of_all()
        for _ in range(3):
            self.assertEqual(self.server.infer_binary("all", given), {"o" + name[1:]: data for name, (_, data) in given.items()})

    def test_a_string_with_a_zero_byte_is_refused(self):
        given = some_of_all()
        kind, texts = given["iBYTES"]
        with self.assertRaisesRegex(AssertionError, "input iBYTES.*zero byte"):
            self.server.infer_binary("all", given | {"iBYTES": (kind, texts.replace(b"xx", b"\0x"))})

    def test_a_model_with_other_sizes_than_model_yaml_does_not_load(self):
        for name, words in (("one", "input x: the shape with the batch is -1x4 in model.yaml, but 1x4 in the model"),
                            ("wide", "but -1x5 in the model"), ("deep", "but -1x2x4 in the model"),
                            ("more", "the model has 2 inputs, model.yaml 1"),
                            ("output", "output y: the shape with the batch is -1x4"), ("noise", "no model: model.onnx")):
            self.assertIn(words, self.server.reason(name))
        self.assertEqual(self.server.infer("unsaid")[0], 200)  # a model without sizes may fit
        self.server.write("one/model.yaml", "platform: onnxruntime\nmodel: model.onnx\nmax_batch: 1\nlibrary: %s\n%s"
                          % (os.environ["HB_FAKE_ONNX"], PLAIN % (4, 4)))
        self.assertEqual(self.server.call("POST", "/v2/repository/models/one/load"), (200, b""))
        self.assertEqual(self.server.infer("one", [5, 6, 7, 8])[1]["outputs"][0]["data"], [5, 6, 7, 8])

    def test_a_run_without_clients_is_ended(self):
        for _ in range(3):
            runs = os.path.join(self.server.folder, "slow", "runs")
            with self.server.leave_running("slow"):
                wait_until("the model runs", lambda: os.path.exists(runs))
                os.remove(runs)
            self.assertEqual(self.server.infer("slow", [2, 2, 2, 2])[1]["outputs"][0]["data"], [2] * 4)
        self.assertEqual(self.server.deaths(), [])


    def held(self):
        """Descriptors, processes and shared memory of the server."""
        return [len(os.listdir("/proc/%d/%s" % (self.server.process.pid, what))) for what in ("fd", "task")] \
            + [len(self.server.workers())]

    def test_loading_a_model_often_leaks_nothing(self):
        self.server.wait_for("all")
        for name in ("slow", "unsaid"):
            self.server.wait_for(name)
        before = self.held()
        for _ in range(100):
            self.assertEqual(self.server.call("POST", "/v2/repository/models/unsaid/load"), (200, b""))
        self.assertEqual(self.server.infer("unsaid")[0], 200)
        # Connections that are being closed make the numbers vary a little.
        wait_until("the server holds no more than before", lambda: all(now < then + 20 for now, then in zip(self.held(), before)))


class Onnx(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        library = subprocess.run([PYTHON, "-c", FIND], check=True, capture_output=True, text=True).stdout.strip()
        subprocess.run([PYTHON, "-c", MAKE, FOLDER, ",".join(ALL)], check=True)
        good, one, two, loops, every = (os.path.join(FOLDER, name + ".onnx") for name in ("good", "one", "two", "loops", "all"))
        begin = cls.begin = "library: %s\n" % library
        cls.server = OnnxServer({"good": (begin + TENSORS % ("FP32", "y"), good),
                                 "two": (begin + TWO_TENSORS, two),
                                 "all": (begin + ALL_TENSORS, every),
                                 "loops": (begin + PLAIN % (4, 4), loops),
                                 "one": (begin + TENSORS % ("FP32", "y"), one),
                                 "type": (begin + TENSORS % ("FP64", "y"), good),
                                 "name": (begin + TENSORS % ("FP32", "z"), good),
                                 "text": (begin + TENSORS % ("BYTES", "y"), good),
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

    def test_several_inputs_and_outputs_keep_their_names(self):
        self.server.wait_for("two")
        body = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]},
                           {"name": "k", "datatype": "INT64", "shape": [1, 4], "data": [10, 20, 30, 40]}]}
        status, answer = self.server.call("POST", "/v2/models/two/infer", json.dumps(body))
        self.assertEqual(status, 200, answer)
        self.assertEqual({output["name"]: output["data"] for output in json.loads(answer)["outputs"]},
                         {"sum": [11, 22, 33, 44], "difference": [-9, -18, -27, -36]})

    def test_tensors_of_each_type_are_passed_on(self):
        self.server.wait_for("all")
        given = some_of_all()
        self.assertEqual(self.server.infer_binary("all", given), {"o" + name[1:]: data for name, (_, data) in given.items()})

    def test_requests_in_one_batch_get_their_own_outputs(self):
        self.server.wait_for("good")
        asked = Requests(self.server)
        for k in range(24):
            asked.ask(k, "good", [k] * 4)
        asked.join()
        self.assertEqual({k: answer["outputs"][0]["data"] for k, (_, answer) in asked.answers.items()},
                         {k: [2 * k + 1] * 4 for k in range(24)})

    def test_errors_of_a_model_are_its_reason(self):
        for name, words in (("type", ("input x", "FP64")), ("name", ("output z",)), ("text", ("input x", "BYTES")),
                            ("one", ("input x", "but 1x4 in the model")), ("none", ("model.onnx",)), ("noise", ("model.onnx",))):
            for word in words:
                self.assertIn(word, self.server.reason(name), name)

    def test_a_run_without_clients_is_ended(self):
        self.server.wait_for("loops")
        for _ in range(3):
            with self.server.leave_running("loops"):
                wait_until("the request has arrived", lambda: self.server.pending("loops") == 1)
            self.assertEqual(self.server.infer("loops", [2, 2, 2, 2])[1]["outputs"][0]["data"], [2] * 4)
        self.assertEqual([line for line in self.server.deaths() if "loops" in line], [])

    def test_a_killed_worker_is_started_again(self):
        self.server.wait_for("good")
        (worker,) = [pid for pid in self.server.workers() if self.folder_of(pid) == "good"]
        os.kill(worker, signal.SIGKILL)
        wait_until("another worker runs",
                   lambda: any(self.folder_of(pid) == "good" and pid != worker for pid in self.server.workers()))
        self.assertEqual(self.server.infer("good", [1, 1, 1, 1])[1]["outputs"][0]["data"], [3] * 4)

    @staticmethod
    def folder_of(pid):
        try:
            return os.path.basename(os.readlink("/proc/%d/cwd" % pid))
        except FileNotFoundError:
            return None

    def test_the_next_worker_notices_that_the_file_is_gone(self):
        self.server.write("leaves/model.yaml", "platform: onnxruntime\nmodel: model.onnx\nmax_batch: 8\n" + self.begin
                          + TENSORS % ("FP32", "y"))
        model = os.path.join(self.server.folder, "leaves", "model.onnx")
        shutil.copy(os.path.join(FOLDER, "good.onnx"), model)
        self.assertEqual(self.server.call("POST", "/v2/repository/models/leaves/load"), (200, b""))
        os.remove(model)
        self.assertEqual(self.server.infer("leaves", [1, 1, 1, 1])[1]["outputs"][0]["data"], [3] * 4)
        (worker,) = [pid for pid in self.server.workers() if self.folder_of(pid) == "leaves"]
        os.kill(worker, signal.SIGKILL)
        self.assertIn("model.onnx", self.server.reason("leaves"))
        self.assertEqual(self.server.infer("leaves")[0], 503)
        shutil.copy(os.path.join(FOLDER, "good.onnx"), model)
        self.assertEqual(self.server.call("POST", "/v2/repository/models/leaves/load"), (200, b""))
        self.assertEqual(self.server.infer("leaves", [1, 1, 1, 1])[1]["outputs"][0]["data"], [3] * 4)

    def test_a_model_that_is_loaded_again_answers_or_refuses_each_request(self):
        self.server.write("again/model.yaml", "platform: onnxruntime\nmodel: model.onnx\nmax_batch: 8\n" + self.begin
                          + TENSORS % ("FP32", "y"))
        shutil.copy(os.path.join(FOLDER, "good.onnx"), os.path.join(self.server.folder, "again", "model.onnx"))
        self.assertEqual(self.server.call("POST", "/v2/repository/models/again/load"), (200, b""))
        asked = Requests(self.server)
        for k in range(60):
            asked.ask(k, "again", [k] * 4)
            if k % 20 == 10:
                self.assertEqual(self.server.call("POST", "/v2/repository/models/again/load"), (200, b""))
        asked.join()
        for k, (status, answer) in asked.answers.items():
            if status == 200:
                self.assertEqual(answer["outputs"][0]["data"], [2 * k + 1] * 4)
            else:
                gone = "unloaded" in answer["error"] or "not ready" in answer["error"]  # the request waited, or arrived during the load
                self.assertEqual((status, gone), (503, True), answer)


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
    if "Onnx" in sys.argv:
        install()
    unittest.main(defaultTest=["Missing", "Fake"] if "Fake" in sys.argv else None, argv=[arg for arg in sys.argv if arg != "Fake"])

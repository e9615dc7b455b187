#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Workers of `hb serve` that misbehave: wrong answers, wrong strings, much output, children, a server that is killed. They
harm only their own batch, and the processes that they leave behind are ended."""
import json
import os
import signal
import struct
import unittest

from serve_process import TENSORS, Requests, wait_until
from worker_programs import HAVE_NUMPY, HEAD, appears, serve

ANSWERS = HEAD + """
import numpy

def overwrite_error(text):
    server = worker._server
    begin = server.base + worker.LANE_ERROR
    server.map[begin:begin + worker.LANE_ERROR_BYTES] = text.ljust(worker.LANE_ERROR_BYTES, b"?")
    server.set_word(server.base + worker.LANE_STATUS, 1)
    return numpy.zeros((0, 4))

class Tensor:  # the part of PyTorch's tensors that the worker module uses
    dtype = "torch.bfloat16"
    def detach(self):
        return self
    def float(self):
        self.dtype = "torch.float32"
        return self
    cpu = float
    def numpy(self):
        assert self.dtype == "torch.float32", "numpy has no such type"
        return numpy.array([[1, 2.5, -3, 1e30]], dtype=numpy.float32)

def infer(x):
    kind = int(x[0, 0])
    if kind == 1:
        return numpy.zeros((0, 4))
    if kind == 2:
        raise ValueError("\\u00e4" * 400 + " after an odd place")
    if kind == 3:
        raise ValueError("x" + "\\u00e4" * 400)
    if kind == 4:
        raise ValueError("half a pair: \\udcff")
    if kind == 5:
        return overwrite_error(b"\\xff\\xfe bytes\\n\\x01")
    if kind == 6:
        return Tensor()
    if kind == 7:
        return numpy.zeros((1,) * 9)
    return x

worker.serve(infer)
"""
ROUNDS = HEAD + """
import numpy
numpy.seterr(all="ignore")

def infer(x):
    if x[0] == 0:
        return numpy.array([1, 1.00390625, 1.01171875, -2.5, 3.4e38, numpy.nan])  # the second and third are half way between two values
    if x[0] == 1:
        return numpy.array([0x3F80, 0x4000, 0, 0, 0, 0xFFFF], dtype=numpy.uint16)
    return numpy.arange(6)[::-1]

worker.serve(infer)
"""
TEXTS = HEAD + """
import numpy
from hummingbird import tensors

def infer(x):
    kind = int(x[0])
    if kind == 0:
        return numpy.array(["one", b"two"], dtype=object)
    if kind == 1:
        return numpy.array([5, 6], dtype=object)
    raw = {2: b"", 3: b"\\1\\0\\0\\0a", 4: b"\\xff\\xff\\xff\\x7fabc", 5: b"\\1\\0\\0\\0a" * 3, 6: b"\\1\\0\\0\\0a\\1\\0"}[kind]
    tensors.join_strings = lambda values: raw
    return numpy.array(["is", "replaced"], dtype=object)

worker.serve(infer)
"""
CHATTY = HEAD + """
print("http: port 1", flush=True)

def infer(x):
    for _ in range(4096):
        print("x" * 1023)
    sys.stdout.flush()
    return x

worker.serve(infer)
"""
UNREAD = HEAD + """
ends = os.pipe()
os.dup2(ends[1], 2)
os.close(ends[0])

def infer(x):
    if x[0, 0] == 1:
        raise ValueError("one")
    return x

worker.serve(infer)
"""
# Reports that it loads, and becomes ready when the test allows it.
LOADS = HEAD + """
there("loads-%d" % os.getpid())
while not os.path.exists("ready"):
    time.sleep(0.005)
worker.serve(lambda x: x)
"""
# Fills the counter of the doorbell, so that the next writer would block.
FILLS = HEAD + """
take = worker._Server.take

def fill_and_take(server):
    if os.path.exists("once"):
        os.set_blocking(server.submitted_doorbell, False)
        full = False
        while not full:  # a late ring of the server may intervene
            try:
                os.read(server.submitted_doorbell, 8)
            except BlockingIOError:
                pass
            try:
                full = os.write(server.submitted_doorbell, b"\\xfe" + b"\\xff" * 7) == 8
            except BlockingIOError:
                pass
        os.set_blocking(server.submitted_doorbell, True)
        there("full")
        wait_for("go")
    there("once")
    return take(server)

worker._Server.take = fill_and_take
worker.serve(lambda x: x)
"""
# The worker is a child of the started process and has a child. Both report their process numbers.
PARENT = HEAD + """
child = os.fork()
if child == 0:
    there("child", str(os.getpid()))
    time.sleep(1000000)
there("pid", str(os.getpid()))

def infer(x):
    if x[0, 0] == 1:
        os._exit(0)
    if x[0, 0] == 2:
        os.closerange(0, 1000)
    return x

worker.serve(infer)
"""
ALONE = "platform: worker\ncommand: /usr/bin/python3 model.py\n"  # runs one request at a time


def body(datatype, shape, data):
    return json.dumps({"inputs": [{"name": "x", "datatype": datatype, "shape": shape, "data": data}]})


def is_gone(pid):
    """Whether the process has ended; it may still be a zombie."""
    try:
        with open("/proc/%d/stat" % pid, encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0] in ("Z", "X")
    except (FileNotFoundError, ProcessLookupError):
        return True


@unittest.skipUnless(HAVE_NUMPY, "python3-numpy is not installed")
class Answers(unittest.TestCase):
    def test_unusual_outputs_and_errors_are_answered(self):
        open_output = TENSORS.replace("y, datatype: FP32, shape: [4]", "y, datatype: FP32, shape: [-1, 4]")
        server = serve(self, {"odd": (ALONE, None)}, files=[("odd/model.py", ANSWERS)],
                       tensors=open_output.replace("shape: [4]", "shape: [1, 4]"))

        def ask(kind):
            status, answer = server.call("POST", "/v2/models/odd/infer", body("FP32", [1, 4], [kind, 0, 0, 0]))
            return status, json.loads(answer)
        status, answer = ask(1)
        self.assertEqual((status, answer.get("outputs", answer)[0]["shape"], answer["outputs"][0]["data"]), (200, [0, 4], []))
        for kind, words in ((2, "ValueError: \u00e4\u00e4"), (3, "ValueError: x\u00e4"), (4, "half a pair: ?"),
                            (5, "?? bytes\n\x01"), (7, "output y: 9 dimensions")):
            status, answer = ask(kind)
            self.assertEqual((status, words in answer["error"]), (500, True), answer)
        status, answer = ask(6)
        self.assertEqual((status, answer["outputs"][0]["data"][:3] if status == 200 else answer), (200, [1, 2.5, -3]))
        self.assertEqual([line for line in server.log if "worker ended" in line], [])

    def test_numbers_are_rounded_to_bf16(self):
        server = serve(self, {"rounds": (ALONE, None)}, files=[("rounds/model.py", ROUNDS)],
                       tensors="inputs: [{name: x, datatype: FP32, shape: [1]}]\n"
                       "outputs: [{name: y, datatype: BF16, shape: [6]}]\n")

        def ask(kind):
            asked = json.loads(body("FP32", [1], [kind]))
            asked["parameters"] = {"binary_data_output": True}
            status, data, headers = server.exchange("POST", "/v2/models/rounds/infer", json.dumps(asked))
            self.assertEqual(status, 200, data)
            return list(struct.unpack("<6H", data[int(headers["Inference-Header-Content-Length"]):]))
        self.assertEqual(ask(0), [0x3F80, 0x3F80, 0x3F82, 0xC020, 0x7F80, 0x7FC0])
        self.assertEqual(ask(1), [0x3F80, 0x4000, 0, 0, 0, 0xFFFF])
        self.assertEqual(ask(2), [0x40A0, 0x4080, 0x4040, 0x4000, 0x3F80, 0])

    def test_the_number_of_strings_must_match_the_shape(self):
        server = serve(self, {"texts": (ALONE, None)}, files=[("texts/model.py", TEXTS)],
                       tensors="inputs: [{name: x, datatype: FP32, shape: [1]}]\n"
                       "outputs: [{name: y, datatype: BYTES, shape: [2]}]\n")
        wrong = "strings that its shape needs"
        for kind, status, word in ((0, 200, '["one","two"]'), (1, 500, "not int"), (2, 500, wrong), (3, 500, wrong),
                                   (4, 500, wrong), (5, 500, wrong), (6, 500, wrong)):
            got, answer = server.call("POST", "/v2/models/texts/infer", body("FP32", [1], [kind]))
            self.assertEqual((got, word in answer.decode()), (status, True), (kind, answer))

    def test_output_of_a_worker_goes_to_the_log(self):
        server = serve(self, {"chatty": ("limit: 20s\n", CHATTY)})
        self.assertEqual(server.infer("chatty")[0], 200)
        wait_until("the output was logged", lambda: sum(line.startswith("xxx") for line in server.log) == 4096)
        self.assertIn("http: port 1\n", server.log)


    def test_an_error_that_cannot_be_logged_fails_its_batch_only(self):
        server = serve(self, {"unread": ("", UNREAD)})
        for value, status in ((1, 500), (2, 200)):
            self.assertEqual(server.infer("unread", (value, 0, 0, 0))[0], status)
        self.assertEqual([line for line in server.log if "worker ended" in line], [])

    def test_a_worker_that_fills_its_doorbell_does_not_block_the_server(self):
        server = serve(self, {"fills": ("", FILLS), "other": ("", HEAD + "worker.serve(lambda x: x)")})
        self.assertEqual(server.infer("fills")[0], 200)
        appears(server, "fills/full")
        asked = Requests(server)
        asked.ask("again", "fills")
        wait_until("the request has arrived", lambda: server.pending("fills") == 1)
        self.assertEqual(server.infer("other")[0], 200)
        server.write("fills/go", "")
        asked.join()
        self.assertEqual(asked.answers["again"][0], 200)


@unittest.skipUnless(HAVE_NUMPY, "python3-numpy is not installed")
class Ends(unittest.TestCase):
    def test_a_command_may_be_a_list_or_set_variables(self):
        program = HEAD + """
there("said", os.environ.get("WORD", "") + " " + str(os.getpid()))
worker.serve(lambda x: x)
"""
        commands = {"variable": "WORD='two words' /usr/bin/python3 model.py", "list": "export WORD=x && /usr/bin/python3 model.py",
                    "plain": "/usr/bin/python3 model.py --flag=1"}
        server = serve(self, {name: ("platform: worker\ncommand: %s\n" % command, None) for name, command in commands.items()},
                       files=[(name + "/model.py", program) for name in commands])
        words = {name: appears(server, name + "/said") for name in commands}
        self.assertEqual({name: text.rpartition(" ")[0] for name, text in words.items()},
                         {"variable": "two words", "list": "x", "plain": ""})

    def parent(self, server):
        """The process numbers of the worker and its child; removes the files that they wrote."""
        pids = [int(appears(server, "parent/" + name)) for name in ("child", "pid")]
        for name in ("child", "pid"):
            os.remove(os.path.join(server.folder, "parent", name))
        return pids

    def test_children_of_a_worker_end_with_it(self):
        server = serve(self, {"parent": ("", PARENT)})
        for kind, expected, word in ((1, 500, "exit status 0"), (2, 200, "exit status 1")):
            pids = self.parent(server)
            status, answer = server.infer("parent", (kind, 0, 0, 0))
            self.assertEqual(status, expected, answer)  # a worker that can no longer ring has completed its batch
            wait_until("the end was logged", lambda what=word: any("worker ended: " + what in line for line in server.log))
            wait_until("both processes have ended", lambda gone=pids: all(is_gone(pid) for pid in gone))
            self.assertEqual(server.infer("parent", (5, 0, 0, 0))[0], 200)

    def loading(self, server, killed):
        """The process number of a worker that loads and was not seen before."""
        found = []

        def look():
            found[:] = [int(name[6:]) for name in os.listdir(os.path.join(server.folder, "loads"))
                        if name.startswith("loads-") and not name.endswith(".new") and int(name[6:]) not in killed]
            return found
        wait_until("another worker loads", look)
        return found[0]

    def test_killing_workers_while_they_load_loses_no_request(self):
        server = serve(self, {"loads": ("", LOADS)}, files=[("loads/ready", "")])
        killed = []
        os.remove(os.path.join(server.folder, "loads", "ready"))
        asked = Requests(server)
        for k in range(3):  # the first worker waits for a request, the others load
            killed.append(self.loading(server, killed))
            os.kill(killed[-1], signal.SIGKILL)
            wait_until("the end was logged", lambda n=k: sum("ended: signal 9" in line for line in server.log) == n + 1)
            asked.ask(k, "loads", (k, 0, 0, 0))
        wait_until("all requests wait", lambda: server.pending("loads") == 3)
        server.write("loads/ready", "")
        asked.join()
        self.assertEqual({k: answer["outputs"][0]["data"][0] if status == 200 else answer
                          for k, (status, answer) in asked.answers.items()}, {0: 0, 1: 1, 2: 2})

    def test_workers_and_their_children_end_with_a_server_that_is_killed(self):
        for command in ("/usr/bin/python3 model.py", "sh start.sh"):
            server = serve(self, {"parent": ("platform: worker\nmax_batch: 4\ncommand: %s\n" % command, None)},
                           files=[("parent/model.py", PARENT), ("parent/start.sh", "/usr/bin/python3 model.py\n")])
            pids = self.parent(server)
            server.process.kill()
            wait_until("all processes have ended", lambda gone=pids: all(is_gone(pid) for pid in gone))
            server.end(signal.SIGKILL)


if __name__ == "__main__":
    unittest.main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`hb serve` measures the demand of its models on a simulated GPU. Kernels are long, so that what the host does besides hardly
counts, and tests compare demands with each other: a model that uses half of the SMs, one that uses all, one that needs memory
bandwidth. They also check what is measured again after a restart, and that a request interrupts the trial."""
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import unittest

from stack import HB, LIMIT, Stack, wait_until

HERE = os.path.dirname(os.path.abspath(__file__))
# A batch runs kernels, each given as BLOCKS:MEMORY_SHARE, and writes its priority and size into the file `batches` of the
# model's folder. A batch that begins with the number 1 waits for the file `go`. 8 blocks fit into an eighth of the SMs, 264 fill the GPU.
PROGRAM = """
import ctypes, os, sys, time
sys.path.append(%r)
from hummingbird import worker
cuda = ctypes.CDLL("libcuda.so.1")
KERNELS, OPTIONS = [kernel.split(":") for kernel in sys.argv[1].split(",")], sys.argv[2:]
IMAGE = "HBSIM1\\n" + "".join("kernel work%%d ns=1000000 memory_share=%%s\\n" %% (i, memory) for i, (_, memory) in enumerate(KERNELS))

def check(result):
    if result:
        raise RuntimeError("CUDA error %%d" %% result)

context, module, stream, buffer = (ctypes.c_void_p() for _ in range(4))
kernels = [ctypes.c_void_p() for _ in KERNELS]
check(cuda.cuInit(0))
check(cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0))
check(cuda.cuModuleLoadData(ctypes.byref(module), IMAGE.encode()))
for i, kernel in enumerate(kernels):
    check(cuda.cuModuleGetFunction(ctypes.byref(kernel), module, b"work%%d" %% i))
check(cuda.cuStreamCreate(ctypes.byref(stream), 1))
check(cuda.cuMemAlloc_v2(ctypes.byref(buffer), ctypes.c_size_t(64 << 20)))
host = ctypes.create_string_buffer(64 << 20)

def infer(x):
    if "fails" in OPTIONS and x[0][0] == 0:
        raise ValueError("zeros")
    while x[0][0] == 1 and not os.path.exists("go"):
        time.sleep(0.005)
    with open("batches", "a") as file:
        file.write("%%s %%d\\n" %% (os.environ["HB_PRIORITY"], len(x)))
    for kernel, (blocks, _) in zip(kernels, KERNELS):
        check(cuda.cuLaunchKernel(kernel, int(blocks), 1, 1, 1024, 1, 1, 0, stream, None, None))
    check(cuda.cuStreamSynchronize(stream))
    return x

def copy_in(x):
    check(cuda.cuMemcpyHtoD_v2(buffer, host, ctypes.c_size_t(len(x) * (8 << 20))))
    return {"x": x}

if "copies" in OPTIONS:
    worker.serve(infer, copy_in=copy_in, copy_out=lambda y: y, lists=True)
worker.serve(infer, lists=True)
""" % os.path.join(HERE, "../../python")
MODEL = """platform: worker
priority: high
command: %s model.py %s
inputs: [{name: x, datatype: FP32, shape: [1]}]
outputs: [{name: y, datatype: FP32, shape: [1]}]
max_batch: %d
%s"""
HALF, FULL = "8:0,264:0", "264:0,264:0"
# GPU time passes slowly: a batch of two kernels takes 20 ms.
SCALE = 10


class Server:
    """`hb serve` on the stack's GPU. models: name -> (blocks and other arguments, further lines of model.yaml)."""

    def __init__(self, stack, models, max_batch=1, options=()):
        self.stack, self.max_batch = stack, max_batch
        self.folder = os.path.join(stack.folder, "models")
        for name, (arguments, lines) in models.items():
            self.write(name, arguments, lines)
        self.program = stack.spawn([HB, "serve", "--models", self.folder, "--http", "127.0.0.1:0", "--grpc", "none", "--gpu", "sim",
                                    "--control", "loopback", *options], HB_LOG="info", PYTHONDONTWRITEBYTECODE="1")
        self.port = int(self.program.expect("http").split()[-1])

    def path(self, name, file):
        return os.path.join(self.folder, name, file)

    def write(self, name, arguments, lines=""):
        os.makedirs(os.path.join(self.folder, name), exist_ok=True)
        for file, text in (("model.yaml", MODEL % (sys.executable, arguments, self.max_batch, lines)), ("model.py", PROGRAM)):
            with open(self.path(name, file), "w", encoding="utf-8") as out:
                out.write(text)

    def ask(self, what, body=b""):
        with socket.create_connection(("127.0.0.1", self.port), timeout=LIMIT) as client:
            client.sendall(b"%s HTTP/1.0\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % (what.encode(), len(body)) + body)
            data = b""
            while part := client.recv(65536):
                data += part
        head, _, rest = data.partition(b"\r\n\r\n")
        return int(head.split()[1]), rest

    def infer(self, name, number=7):
        body = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 1], "data": [number]}]})
        return self.ask("POST /v2/models/%s/infer" % name, body.encode())[0]

    def trials(self):
        """Model -> whether its trial runs or is to come."""
        text = self.ask("GET /metrics")[1].decode()
        return {line.split('"')[1]: line.endswith(" 1") for line in text.splitlines()
                if line.startswith("hb_serve_model_demand_trial{")}

    def demands(self, *names):
        """Waits for the trials. Returns the demands of the models."""
        wait_until("all models are measured", lambda: not any(self.trials().values()))
        demands = []
        for name in names:
            wait_until("the model is ready", lambda: self.ask("GET /v2/models/%s/ready" % name)[0] == 200)
            status, text = self.ask("GET /v2/models/%s/stats" % name)
            assert status == 200, text
            demands.append(json.loads(text)["model_stats"][0]["demand"])
        return demands

    def pending(self, name):
        text = self.ask("GET /metrics")[1].decode()
        return 'nv_inference_pending_request_count{model="%s",version="1"} 1\n' % name in text

    def batches(self, name):
        """The lines that the workers of the model have written."""
        try:
            with open(self.path(name, "batches"), encoding="utf-8") as file:
                return file.read().splitlines()
        except FileNotFoundError:
            return []

    def end(self):
        self.program.signal(signal.SIGTERM)
        assert self.program.ended() == 0, self.program.stderr()
        return self.program.stderr()


class Demand(unittest.TestCase):
    def check_sources(self, demand, sm, memory, transfer):
        self.assertEqual([demand[key]["source"] for key in ("sm_share", "memory_share", "transfer")], [sm, memory, transfer])

    def test_models_that_need_more_have_larger_demands(self):
        models = {"half": (HALF, ""), "full": (FULL, ""), "memory": ("8:0.9,8:0.9", ""), "copies": (HALF + " copies", "")}
        with Stack(SCALE) as stack:
            server = Server(stack, models, 4)
            half, full, memory, copies = server.demands("half", "full", "memory", "copies")
            for demand in (half, full, memory, copies):
                self.check_sources(demand, "measured", "measured", "measured")
            for batch in ("one", "most"):
                self.assertLess(half["sm_share"][batch], 0.8 * full["sm_share"][batch])
                self.assertLess(half["memory_share"][batch], memory["memory_share"][batch])
            self.assertEqual(half["transfer"]["in"], 0)
            # 8 MiB for each item: more than its tensor has.
            self.assertGreater(copies["transfer"]["in"], 1 << 20)
            log = server.end()
            self.assertIn("model half: measured sm_share [", log)

    def test_a_restarted_server_does_not_measure_again(self):
        with Stack(SCALE) as stack:
            server = Server(stack, {"half": (HALF, "")})
            [first] = server.demands("half")
            server.end()
            batches = server.batches("half")
            self.assertTrue(batches)
            server = Server(stack, {})
            # Before any trial could have begun.
            self.assertEqual(server.trials(), {"half": False})
            [again] = server.demands("half")
            self.check_sources(again, "measured", "measured", "measured")
            for key in ("sm_share", "memory_share"):
                self.assertAlmostEqual(again[key]["one"], first[key]["one"], places=5)
            # Not the deadline, but the kernels that the command names decide the demand.
            server.write("half", HALF, "deadline: 10s\n")
            self.assertEqual(server.ask("POST /v2/repository/models/half/load")[0], 200)
            self.assertEqual(server.trials(), {"half": False})
            self.assertEqual(server.batches("half"), batches)
            server.write("half", FULL)
            self.assertEqual(server.ask("POST /v2/repository/models/half/load")[0], 200)
            [full] = server.demands("half")
            self.assertGreater(full["sm_share"]["one"], first["sm_share"]["one"])
            self.assertGreater(len(server.batches("half")), len(batches))
            server.end()

    def test_a_damaged_file_is_measured_again(self):
        with Stack(SCALE) as stack:
            file = os.path.join(stack.folder, "demands.json")
            with open(file, "w", encoding="utf-8") as out:
                out.write('{"version": 0}')
            server = Server(stack, {"one": ("8:0", ""), "two": ("8:0,8:0", "")}, options=("--demands", file))
            for demand in server.demands("one", "two"):
                self.check_sources(demand, "measured", "measured", "measured")
            self.assertEqual(server.end().count("demands are measured again"), 1)
            with open(file, encoding="utf-8") as text:
                self.assertEqual({model["name"] for model in json.load(text)["models"]}, {"one", "two"})

    def test_typed_keys_override_the_trial_or_replace_it(self):
        lines = {"both": "sm_share: [0.25]\nmemory_share: [0.1, 0.2]\n", "sm": "sm_share: [0.25]\n", "off": "measure_demand: false\n"}
        with Stack(SCALE) as stack:
            server = Server(stack, {name: ("8:0", text) for name, text in lines.items()})
            both, sm, off = server.demands("both", "sm", "off")
            self.check_sources(both, "typed", "typed", "default")
            self.check_sources(sm, "typed", "measured", "measured")
            self.check_sources(off, "default", "default", "default")
            self.assertEqual((sm["sm_share"]["one"], both["memory_share"]["most"]), (0.25, 0.2))
            self.assertEqual(off["sm_share"]["one"], 0.5)
            self.assertEqual((server.batches("both"), server.batches("off")), ([], []))
            text = server.ask("GET /metrics")[1].decode()
            self.assertIn('hb_serve_model_demand_ratio{model="sm",version="1",demand="sm_share",batch="one",source="typed"} 0.25', text)
            self.assertIn('hb_serve_model_transfer_bytes{model="sm",version="1",direction="in",source="measured"} 0', text)
            server.end()

    def test_the_trial_gives_way_to_a_request(self):
        """While a request is in the server, no batch of the trial begins; afterwards the trial continues."""
        with Stack(SCALE) as stack:
            server = Server(stack, {"held": (HALF, "")})
            wait_until("the trial runs a batch", lambda: server.batches("held"))
            answers = []
            request = threading.Thread(target=lambda: answers.append(server.infer("held", 1)))
            request.start()
            wait_until("the request is in the server", lambda: server.pending("held"))
            # A batch that had begun ends meanwhile; then there is time for many.
            self.assertTrue(stack.start("low", "train", 500, 20).result()["right"])
            before = server.batches("held")
            self.assertTrue(stack.start("low", "train", 500, 100).result()["right"])
            self.assertEqual(server.batches("held"), before)
            self.assertTrue(server.trials()["held"])
            with open(server.path("held", "go"), "w", encoding="utf-8"):
                pass
            request.join()
            self.assertEqual(answers, [200])
            [demand] = server.demands("held")
            self.check_sources(demand, "measured", "measured", "measured")
            self.assertIn("high 1", server.batches("held"))
            server.end()

    def test_a_model_whose_batch_fails_keeps_the_defaults(self):
        with Stack(SCALE) as stack:
            server = Server(stack, {"bad": ("8:0 fails", "")})
            [demand] = server.demands("bad")
            self.check_sources(demand, "default", "default", "default")
            self.assertEqual(server.infer("bad"), 200)
            self.assertIn("model bad: its demand could not be measured: a batch of zeros failed: model bad: ValueError: zeros",
                          server.end())

    def test_a_model_can_be_unloaded_during_its_trial(self):
        with Stack(SCALE) as stack:
            server = Server(stack, {"half": (HALF, "")})
            wait_until("the trial runs a batch", lambda: server.batches("half"))
            self.assertEqual(server.ask("POST /v2/repository/models/half/unload")[0], 200)
            wait_until("the trial has ended", lambda: not server.trials()["half"])
            wait_until("its processes have ended", lambda: not {"hb-demand-tenan", "hb-supervisor"} & set(stack.processes().values()))
            server.end()

    def test_without_mps_nothing_is_measured(self):
        with Stack(SCALE, mps=False) as stack:
            server = Server(stack, {"half": (HALF, "")})
            [demand] = server.demands("half")
            self.check_sources(demand, "default", "default", "default")
            self.assertIn("there is no MPS server", server.end())


if __name__ == "__main__":
    unittest.main()

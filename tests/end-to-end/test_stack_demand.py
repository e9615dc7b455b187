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
import unittest

from stack import HB, LIMIT, Stack, wait_until

HERE = os.path.dirname(os.path.abspath(__file__))
# A batch runs kernels, each given as BLOCKS:MEMORY_SHARE, and writes its priority and size into the file `batches` of the
# model's folder. 8 blocks fit into an eighth of the SMs, 264 fill the GPU.
PROGRAM = """
import ctypes, os, sys
sys.path.append(%r)
from hummingbird import worker
cuda = ctypes.CDLL("libcuda.so.1")
KERNELS, COPIES = [kernel.split(":") for kernel in sys.argv[1].split(",")], sys.argv[2:]
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
    with open("batches", "a") as file:
        file.write("%%s %%d\\n" %% (os.environ["HB_PRIORITY"], len(x)))
    for kernel, (blocks, _) in zip(kernels, KERNELS):
        check(cuda.cuLaunchKernel(kernel, int(blocks), 1, 1, 1024, 1, 1, 0, stream, None, None))
    check(cuda.cuStreamSynchronize(stream))
    return x

def copy_in(x):
    check(cuda.cuMemcpyHtoD_v2(buffer, host, ctypes.c_size_t(len(x) * (8 << 20))))
    return {"x": x}

if COPIES:
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
BODY = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 1], "data": [7]}]}).encode()
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
                                    "--control", "loopback", *options], PYTHONDONTWRITEBYTECODE="1")
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

    def infer(self, name):
        return self.ask("POST /v2/models/%s/infer" % name, BODY)[0]

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
            status, text = self.ask("GET /v2/models/%s/stats" % name)
            assert status == 200, text
            demands.append(json.loads(text)["model_stats"][0]["demand"])
        return demands

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
        models = {"half": (HALF, ""), "full": (FULL, ""), "memory": ("8:0.6,8:0.6", ""), "copies": (HALF + " copies", "")}
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


if __name__ == "__main__":
    unittest.main()

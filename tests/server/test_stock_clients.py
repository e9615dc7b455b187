#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Triton's own Python client (tritonclient from PyPI, HTTP and gRPC, sync, async and asyncio, binary, JSON and shared memory)
against `hb serve`, unchanged. Skipped (77) where PyPI cannot be reached."""
import os
import signal
import subprocess
import sys
import tempfile

BUILD = os.environ["HB_BUILD"]
FOLDER = os.path.join(BUILD, "stock-clients")
PYTHON = os.path.join(FOLDER, "bin", "python")
MODEL = """platform: echo
max_batch: 8
inputs: [{name: x, datatype: FP32, shape: [4]}]
outputs: [{name: y, datatype: FP32, shape: [4]}]
"""

CLIENT = r'''
import asyncio, sys, threading
import numpy as np
import tritonclient.grpc, tritonclient.grpc.aio, tritonclient.http, tritonclient.http.aio
import tritonclient.utils.shared_memory as shm
from tritonclient.utils import InferenceServerException

X = np.arange(8, dtype=np.float32).reshape(2, 4)

def refused(function, word):
    try:
        function()
    except InferenceServerException as error:
        assert word in str(error), error
        return
    raise AssertionError("was not refused")

def common(api, client):
    assert client.is_server_live() and client.is_server_ready() and client.is_model_ready("echo")
    assert not client.is_model_ready("none")
    tensor = api.InferInput("x", [2, 4], "FP32")
    tensor.set_data_from_numpy(X)
    answer = client.infer("echo", [tensor], outputs=[api.InferRequestedOutput("y")], request_id="7", priority=1,
                          timeout=10000000)
    assert (answer.as_numpy("y") == X).all()
    client.get_server_metadata(), client.get_model_metadata("echo"), client.get_inference_statistics("echo")
    client.get_model_repository_index()
    client.unload_model("echo")
    refused(lambda: client.infer("echo", [tensor]), "Request for unknown model")
    client.load_model("echo")
    for given in ({"config": '{"max_batch_size": 3}'}, {"config": "{}", "files": {"file:1/model.bin": b"1"}}):
        refused(lambda: client.load_model("echo", **given), "failed to load 'echo': a load request cannot bring a configuration or files")
    refused(lambda: client.load_model("nothing"), "failed to load 'nothing': ")
    refused(lambda: client.infer("echo", [tensor], sequence_id=5), "sequences are not supported")
    top = [api.InferRequestedOutput("y", class_count=1)]
    refused(lambda: client.infer("echo", [tensor], outputs=top), '"classification" is not supported')
    client.unregister_cuda_shared_memory()
    assert client.is_model_ready("echo")
    wrong = api.InferInput("x", [2, 5], "FP32")
    wrong.set_data_from_numpy(np.zeros([2, 5], np.float32))
    refused(lambda: client.infer("echo", [wrong]), "shape [2,5]")
    refused(lambda: client.register_cuda_shared_memory("gpu", b"AAAA", 0, 4), "CUDA shared memory is not supported")
    regions(api, client)
    return tensor

def regions(api, client):
    name = "/hb_stock_%s" % api.__name__.split(".")[-1]
    source, target = shm.create_shared_memory_region("in", name + "_in", 32), \
        shm.create_shared_memory_region("out", name + "_out", 32)
    shm.set_shared_memory_region(source, [X])
    client.register_system_shared_memory("in", name + "_in", 32)
    client.register_system_shared_memory("out", name + "_out", 32)
    tensor, output = api.InferInput("x", [2, 4], "FP32"), api.InferRequestedOutput("y")
    tensor.set_shared_memory("in", 32)
    output.set_shared_memory("out", 32)
    client.infer("echo", [tensor], outputs=[output])
    assert (shm.get_contents_as_numpy(target, np.float32, [2, 4]) == X).all()
    client.unregister_system_shared_memory()
    shm.destroy_shared_memory_region(source)
    shm.destroy_shared_memory_region(target)

def configured(config, types):
    "Triton's image client reads names, sizes and types."
    assert (config["name"], config["max_batch_size"]) == ("echo", 8), config
    for tensors, name in ((config["input"], "x"), (config["output"], "y")):
        assert [(one["name"], one["data_type"], [int(dim) for dim in one["dims"]]) for one in tensors] == [(name, types, [4])]
    assert int(config["dynamic_batching"]["priority_levels"]) == 2

def words(api, client):
    nothing = api.InferInput("x", [1, 0], "BYTES")
    nothing.set_data_from_numpy(np.zeros([1, 0], np.object_))
    assert client.infer("words", [nothing]).as_numpy("y").size == 0
    text = np.array([[b"one", b"", "\u00fc".encode(), b"he\x00llo"]], dtype=np.object_)
    tensor = api.InferInput("x", [1, 4], "BYTES")
    for given in ({}, {"binary_data": False}) if api == tritonclient.http else ({},):
        tensor.set_data_from_numpy(text, **given)
        answer = client.infer("words", [tensor], outputs=[api.InferRequestedOutput("y", **given)]).as_numpy("y")
        assert [word if isinstance(word, bytes) else word.encode() for word in answer.flat] == list(text.flat), answer

async def from_asyncio(aio, api, port):
    async with aio.InferenceServerClient("127.0.0.1:" + port) as client:
        assert await client.is_server_live() and await client.is_model_ready("echo")
        tensor = api.InferInput("x", [2, 4], "FP32")
        tensor.set_data_from_numpy(X)
        answers = await asyncio.gather(*[client.infer("echo", [tensor]) for _ in range(8)])
        assert all((answer.as_numpy("y") == X).all() for answer in answers)
        for document in (client.get_inference_statistics, client.get_model_repository_index, client.get_server_metadata):
            await document()

def compressed(client, api, codings):
    wide = np.arange(2048, dtype=np.float32).reshape(1, 2048)
    tensor = api.InferInput("x", [1, 2048], "FP32")
    tensor.set_data_from_numpy(wide)
    for given in codings:
        assert (client.infer("wide", [tensor], **given).as_numpy("y") == wide).all()

def over_http(port):
    api = tritonclient.http
    client = api.InferenceServerClient("127.0.0.1:" + port, concurrency=4)
    tensor = common(api, client)
    text = api.InferInput("x", [2, 4], "FP32")
    text.set_data_from_numpy(X, binary_data=False)
    for given in (tensor, text):
        for binary in (True, False):
            answer = client.infer("echo", [given], outputs=[api.InferRequestedOutput("y", binary_data=binary)])
            assert (answer.as_numpy("y") == X).all()
    configured(client.get_model_config("echo"), "TYPE_FP32")
    words(api, client)
    asyncio.run(from_asyncio(tritonclient.http.aio, api, port))
    compressed(client, api, [{"request_compression_algorithm": one, "response_compression_algorithm": other}
                             for one in ("gzip", "deflate", None) for other in ("gzip", "deflate", None)])
    for pending in [client.async_infer("echo", [tensor]) for _ in range(16)]:
        assert (pending.get_result().as_numpy("y") == X).all()

def over_grpc(port):
    api = tritonclient.grpc
    client = api.InferenceServerClient("127.0.0.1:" + port)
    tensor = common(api, client)
    configured(client.get_model_config("echo", as_json=True)["config"], "TYPE_FP32")
    words(api, client)
    asyncio.run(from_asyncio(tritonclient.grpc.aio, api, port))
    streamed(client, tensor)
    compressed(client, api, [{"compression_algorithm": one} for one in ("gzip", "deflate")])
    done, results = threading.Semaphore(0), []
    for _ in range(16):
        client.async_infer("echo", [tensor], lambda result, error: (results.append((result, error)), done.release()),
                           client_timeout=30)
    for _ in range(16):
        assert done.acquire(timeout=30)
    assert all(error is None and (result.as_numpy("y") == X).all() for result, error in results), results

def streamed(client, tensor):
    "Streams are not supported: a client that opens one gets an error at once."
    told, errors = threading.Semaphore(0), []
    client.start_stream(lambda result, error: (errors.append(error), told.release()))
    try:
        client.async_stream_infer("echo", [tensor])
    except InferenceServerException:
        pass  # the client library has already reported the error
    assert told.acquire(timeout=60)
    client.stop_stream()
    assert "ModelStreamInfer" in str(errors[0]), errors

over_http(sys.argv[1])
over_grpc(sys.argv[2])
print("ok")
'''


def install():
    if not os.path.exists(os.path.join(FOLDER, "done")):
        subprocess.run([sys.executable, "-m", "venv", FOLDER], check=True)
        done = subprocess.run([PYTHON, "-m", "pip", "install", "-q", "tritonclient[http,grpc]", "numpy"], check=False,
                              capture_output=True, text=True, timeout=400)
        if done.returncode:
            print("skipped: PyPI gives no tritonclient: " + done.stderr[-400:])
            sys.exit(77)
        with open(os.path.join(FOLDER, "done"), "w", encoding="utf-8"):
            pass


def main():
    install()
    with tempfile.TemporaryDirectory() as models:
        for name, text in (("echo", MODEL), ("wide", MODEL.replace("[4]", "[2048]")),
                           ("words", MODEL.replace("[4]", "[-1]").replace("FP32", "BYTES").replace("8", "1"))):
            os.mkdir(os.path.join(models, name))
            with open(os.path.join(models, name, "model.yaml"), "w", encoding="utf-8") as file:
                file.write(text)
        with subprocess.Popen([os.path.join(BUILD, "hb"), "serve", "--models", models, "--http", "127.0.0.1:0", "--grpc",
                               "127.0.0.1:0", "--control", "loopback", "--shared-memory", "loopback",
                               "--shared-memory-prefix", "hb_stock_"], stdout=subprocess.PIPE, text=True) as server:
            ports = [server.stdout.readline().split()[-1] for _ in range(2)]
            client = subprocess.run([PYTHON, "-c", CLIENT, *ports], check=False, timeout=120)
            server.send_signal(signal.SIGTERM)
            status = server.wait(60)
    sys.exit(client.returncode or status)


if __name__ == "__main__":
    main()

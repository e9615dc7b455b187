# SPDX-License-Identifier: Apache-2.0
"""A running `hb serve` with a folder of models, for tests: started on free ports, ended and checked by stop()."""
import http.client
import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time

BUILD, SOURCE = os.environ["HB_BUILD"], os.environ["HB_SOURCE"]
LIMIT = 120
TENSORS = """inputs: [{name: x, datatype: FP32, shape: [4]}]
outputs: [{name: y, datatype: FP32, shape: [4]}]
"""


def wait_until(what, condition):
    end = time.monotonic() + LIMIT
    while not condition():
        if time.monotonic() > end:
            raise AssertionError("not within %d s: %s" % (LIMIT, what))
        time.sleep(0.01)


class Server:
    def __init__(self, models, *options, files=(), env=None):
        """models: name -> text of model.yaml without tensors; files: (path in the folder, text)."""
        self.folder = tempfile.mkdtemp(prefix="hb-serve-")
        for name, text in models.items():
            self.write(name + "/model.yaml", text + TENSORS)
        for path, text in files:
            self.write(path, text)
        self.process = subprocess.Popen(
            [os.path.join(BUILD, "hb"), "serve", "--models", self.folder, "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0",
             *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ, **(env or {})))
        self.port = int(self.process.stdout.readline().split()[-1])
        self.grpc_port = int(self.process.stdout.readline().split()[-1])
        self.log = []
        self.reader = threading.Thread(target=lambda: self.log.extend(self.process.stderr))
        self.reader.start()

    def write(self, path, text):
        path = os.path.join(self.folder, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(LIMIT)
        self.reader.join()
        self.process.stdout.close()
        self.process.stderr.close()
        shutil.rmtree(self.folder)
        text = "".join(self.log)
        assert status == 0, (status, text)
        assert "Sanitizer" not in text and "runtime error" not in text, text

    def call(self, method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LIMIT)
        connection.request(method, path, body)
        response = connection.getresponse()
        data = response.read()
        connection.close()
        return response.status, data

    def infer(self, model, values=(1, 2, 3, 4), **parameters):
        body = {"parameters": parameters, "inputs": [
            {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": list(values)}]}
        status, data = self.call("POST", "/v2/models/%s/infer" % model, json.dumps(body))
        return status, json.loads(data)

    def metric(self, name):
        lines = [line for line in self.call("GET", "/metrics")[1].decode().splitlines() if line.startswith(name + " ")]
        assert len(lines) == 1, name
        return float(lines[0].split()[-1])

    def pending(self, model):
        return self.metric('nv_inference_pending_request_count{model="%s",version="1"}' % model)


class Asked:
    """Requests in threads of their own; `order` has their names as they were answered."""

    def __init__(self, server):
        self.server, self.order, self.answers, self.threads = server, [], {}, []
        self.lock = threading.Lock()

    def ask(self, name, model, **parameters):
        def run():
            answer = self.server.infer(model, **parameters)
            with self.lock:
                self.order.append(name)
                self.answers[name] = answer
        thread = threading.Thread(target=run)
        thread.start()
        self.threads.append(thread)

    def join(self):
        for thread in self.threads:
            thread.join()

# SPDX-License-Identifier: Apache-2.0
"""Starts `hb serve` with a folder of models on free ports, sends it requests, and ends and checks it with stop()."""
import http.client
import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time

BUILD, SOURCE = os.environ["HB_BUILD"], os.environ["HB_SOURCE"]
LIMIT = 120
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup ignores it, and the server would inherit that
TENSORS = """inputs: [{name: x, datatype: FP32, shape: [4]}]
outputs: [{name: y, datatype: FP32, shape: [4]}]
"""


def wait_until(what, condition):
    end = time.monotonic() + LIMIT
    while not condition():
        if time.monotonic() > end:
            raise AssertionError("not true after %d s: %s" % (LIMIT, what))
        time.sleep(0.01)


def is_closed(connection):
    """Whether the server has closed the connection. Reads what it sent before."""
    connection.settimeout(LIMIT)
    try:
        while connection.recv(65536):
            pass
    except ConnectionError:
        pass
    except socket.timeout:
        return False
    return True


class Server:
    def __init__(self, models, *options, files=(), links=(), tensors=TENSORS, open_files=None, program=None):
        """models: name -> text of model.yaml without tensors; files: (path in the folder, text); links: (path, target);
        open_files: soft and hard limit of open files of the server; program: instead of `hb serve`. Without an option
        --control, processes of this machine may control the server."""
        self.folder = tempfile.mkdtemp(prefix="hb-serve-")
        for name, text in models.items():
            self.write(name + "/model.yaml", text + tensors)
        for path, text in files:
            self.write(path, text)
        for path, target in links:
            os.symlink(target, os.path.join(self.folder, path))
        command = [program] if program else [os.path.join(BUILD, "hb"), "serve"]
        command += ["--models", self.folder, "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", *options]
        command += [] if "--control" in options else ["--control", "loopback"]
        if open_files and os.geteuid() == 0:
            command = ["setpriv", "--bounding-set", "-sys_resource", "--inh-caps", "-sys_resource"] + command
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            preexec_fn=open_files and (lambda: resource.setrlimit(resource.RLIMIT_NOFILE, open_files)))
        self.port, self.grpc_port = self.read_port(), self.read_port()
        self.log = []
        self.reader = threading.Thread(target=lambda: self.log.extend(self.process.stderr))
        self.reader.start()

    def read_port(self):
        line = self.process.stdout.readline()
        assert line, "hb serve does not start: " + self.process.stderr.read()
        return int(line.split()[-1])

    def write(self, path, text):
        path = os.path.join(self.folder, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)

    def end(self, signal_number):
        """Ends the server and all processes that write to its log. Returns its exit status."""
        self.process.send_signal(signal_number)
        status = self.process.wait(LIMIT)
        self.reader.join(LIMIT)
        self.process.stdout.close()
        self.process.stderr.close()
        shutil.rmtree(self.folder)
        return status

    def stop(self):
        if self.process.returncode is not None:
            return  # the test ended the server itself
        status = self.end(signal.SIGTERM)
        text = "".join(self.log)
        assert status == 0, (status, text)
        assert "Sanitizer" not in text and "runtime error" not in text, text

    def connect(self, data=b"", port=None):
        connection = socket.create_connection(("127.0.0.1", port or self.port), timeout=LIMIT)
        connection.sendall(data)
        return connection

    def exchange(self, method, path, body=None, headers=None):
        """Returns status, body and headers of the answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LIMIT)
        connection.request(method, path, body, headers or {})
        response = connection.getresponse()
        data = response.read()
        connection.close()
        return response.status, data, response.headers

    def call(self, method, path, body=None):
        return self.exchange(method, path, body)[:2]

    def infer(self, model, *rows, **parameters):
        """Sends rows of four numbers in one request. Returns the status and the parsed answer."""
        rows = rows or ((1, 2, 3, 4),)
        body = {"id": "7", "parameters": parameters, "inputs": [
            {"name": "x", "datatype": "FP32", "shape": [len(rows), 4], "data": [value for row in rows for value in row]}]}
        status, data = self.call("POST", "/v2/models/%s/infer" % model, json.dumps(body))
        return status, json.loads(data)

    def metric(self, name):
        lines = [line for line in self.call("GET", "/metrics")[1].decode().splitlines() if line.startswith(name + " ")]
        assert len(lines) == 1, name
        return float(lines[0].split()[-1])

    def memory(self):
        return self.metric("hb_serve_request_memory_bytes")

    def is_ready(self, model):
        return self.call("GET", "/v2/models/%s/ready" % model)[0] == 200

    def pending(self, model):
        return self.metric('nv_inference_pending_request_count{model="%s",version="1"}' % model)


class Requests:
    """Sends each request in a thread of its own. `order` has the names of the answered requests, in that order."""

    def __init__(self, server):
        self.server, self.order, self.answers, self.threads = server, [], {}, []
        self.lock = threading.Lock()

    def ask(self, name, model, *rows, **parameters):
        def run():
            answer = self.server.infer(model, *rows, **parameters)
            with self.lock:
                self.order.append(name)
                self.answers[name] = answer
        thread = threading.Thread(target=run)
        thread.start()
        self.threads.append(thread)

    def join(self):
        for thread in self.threads:
            thread.join()

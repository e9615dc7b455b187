# SPDX-License-Identifier: Apache-2.0
"""Worker programs for the tests: their common beginning, a worker that waits for a file, and a server whose models run such
programs."""
import os
import subprocess

from serve_process import SOURCE, Server, wait_until

HAVE_NUMPY = subprocess.run(["/usr/bin/python3", "-c", "import numpy"], check=False, capture_output=True).returncode == 0
HEAD = """
import os, sys, time
sys.path.insert(0, %r)
from hummingbird import worker

def there(name, text=""):
    with open(name + ".new", "w") as file:
        file.write(text)
    os.rename(name + ".new", name)

def wait_for(name):
    while not os.path.exists(name):
        time.sleep(0.005)
""" % os.path.join(SOURCE, "python")
GATED = HEAD + """
there("pid", str(os.getpid()))

def infer(x):
    there("runs-%d" % x[0, 0], worker.priority())
    wait_for("go")
    return x

worker.serve(infer)
"""
WORKER = "platform: worker\nmax_batch: 4\ncommand: /usr/bin/python3 model.py\n"


def serve(test, models, *options, **more):
    """models: name -> (text of model.yaml, worker program; None if the text is complete). more: arguments of Server."""
    files = [(name + "/model.py", program) for name, (_, program) in models.items() if program] + list(more.pop("files", []))
    server = Server({name: (WORKER + text if program else text) for name, (text, program) in models.items()}, "--gpu", "none",
                    *options, files=files, **more)
    test.addCleanup(server.stop)
    for name in models:
        wait_until("%s is ready" % name, lambda one=name: server.is_ready(one))
    return server


def appears(server, path):
    path = os.path.join(server.folder, path)
    wait_until(path, lambda: os.path.exists(path))
    with open(path, encoding="utf-8") as file:
        return file.read()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`hb serve --gpus`: replicas of models on several GPUs, where requests go, and what happens to them when a worker ends. Workers
report through files where they are and wait for files, so nothing depends on how fast the machine is."""
import os
import signal
import unittest

from serve_process import Requests, wait_until
from worker_programs import HAVE_NUMPY, HEAD, appears, serve

# The file "runs-N-GPU" says that the worker on that GPU runs the request with the number N; it waits for "go-N".
REPLICA = HEAD + """
gpu = os.environ.get("CUDA_VISIBLE_DEVICES", "all")
there("pid-" + gpu, str(os.getpid()))

def infer(x):
    there("runs-%d-%s" % (x[0, 0], gpu))
    if x[0, 0] == 66:
        os._exit(3)
    wait_for("go-%d" % x[0, 0])
    return x

worker.serve(infer)
"""


@unittest.skipUnless(HAVE_NUMPY, "NumPy is not installed for /usr/bin/python3")
class Gpus(unittest.TestCase):
    def start(self, text="", *options):
        self.server = serve(self, {"m": (text, REPLICA)}, "--gpus", "2", *options)
        for gpu in self.devices(text):
            appears(self.server, "m/pid-%s" % gpu)
        wait_until("all replicas run", lambda: self.replicas() == len(self.devices(text)))
        return self.server

    @staticmethod
    def devices(text):
        return [1] if "gpus: [1]" in text else [0] if "replicas: 1" in text else [0, 1]

    def there(self, name):
        return os.path.exists(os.path.join(self.server.folder, "m", name))

    def pid(self, gpu):
        return int(appears(self.server, "m/pid-%s" % gpu))

    def gpu_of(self, number):
        """The GPU on which the request runs first."""
        wait_until("%d runs" % number, lambda: any(self.there("runs-%d-%d" % (number, gpu)) for gpu in (0, 1)))
        return 0 if self.there("runs-%d-0" % number) else 1

    def moved(self):
        return self.server.metric('hb_serve_moved_requests_total{model="m",version="1"}')

    def replicas(self):
        return self.server.metric('hb_serve_model_replicas{model="m",version="1"}')

    def run_two(self):
        """Two requests run at the same time. Returns their GPUs."""
        requests = Requests(self.server)
        requests.ask("1", "m", (1, 0, 0, 0))
        first = self.gpu_of(1)
        requests.ask("2", "m", (2, 0, 0, 0))
        second = self.gpu_of(2)
        return requests, first, second

    def test_two_requests_run_at_once_on_two_gpus(self):
        self.start()
        requests, first, second = self.run_two()
        self.assertEqual({first, second}, {0, 1})
        self.server.write("m/go-1", "")
        self.server.write("m/go-2", "")
        requests.join()
        self.assertEqual([answer[0] for answer in requests.answers.values()], [200, 200])
        self.assertEqual(self.moved(), 0)

    def test_a_killed_worker_loses_no_accepted_request(self):
        self.start()
        requests, first, second = self.run_two()
        for number in (3, 4, 5, 6):
            requests.ask(str(number), "m", (number, 0, 0, 0))
        wait_until("all are accepted", lambda: self.server.pending("m") == 6)
        os.kill(self.pid(first), signal.SIGKILL)
        for number in (2, 1, 3, 4, 5, 6):
            self.server.write("m/go-%d" % number, "")
        requests.join()
        self.assertEqual({name: answer[0] for name, answer in requests.answers.items()}, {str(n): 200 for n in range(1, 7)})
        self.assertTrue(self.there("runs-1-%d" % second) or self.there("runs-1-%d" % first))
        self.assertGreaterEqual(self.moved(), 1)
        self.assertEqual([answer[1]["outputs"][0]["data"][0] for answer in requests.answers.values()],
                         [float(name) for name in requests.answers])

    def test_the_other_gpu_serves_while_a_worker_does_not_start_again(self):
        self.start()
        requests, first, second = self.run_two()
        # The next worker on this GPU cannot start.
        self.server.write("m/model.py", REPLICA.replace("gpu = os", "if os.environ['CUDA_VISIBLE_DEVICES'] == '%d':\n"
                                                        "    sys.exit(4)\ngpu = os" % first))
        os.kill(self.pid(first), signal.SIGKILL)
        self.server.write("m/go-2", "")
        appears(self.server, "m/runs-1-%d" % second)
        self.server.write("m/go-1", "")
        requests.join()
        self.assertEqual({answer[0] for answer in requests.answers.values()}, {200})
        self.assertTrue(self.server.is_ready("m"))
        for number in (7, 8):
            self.server.write("m/go-%d" % number, "")
            self.assertEqual(self.server.infer("m", (number, 0, 0, 0))[0], 200)
            self.assertTrue(self.there("runs-%d-%d" % (number, second)))

    def test_a_request_that_ends_its_workers_gets_two_of_them(self):
        self.start()
        status, answer = self.server.infer("m", (66, 0, 0, 0))
        self.assertEqual(status, 500, answer)
        self.assertIn("died in this batch", answer["error"])
        self.assertTrue(self.there("runs-66-0") and self.there("runs-66-1"))
        self.server.write("m/go-9", "")
        self.assertEqual(self.server.infer("m", (9, 0, 0, 0))[0], 200)

    def test_an_idle_gpu_takes_waiting_requests(self):
        self.start()
        requests, first, second = self.run_two()
        for number in range(3, 19):
            requests.ask(str(number), "m", (number, 0, 0, 0))
        wait_until("all are accepted", lambda: self.server.pending("m") == 18)
        for number in range(3, 19):  # only one of the two GPUs continues
            self.server.write("m/go-%d" % number, "")
        self.server.write("m/go-1", "")
        wait_until("all but one are answered", lambda: len(requests.order) == 17)
        self.assertNotIn("2", requests.order)
        self.server.write("m/go-2", "")
        requests.join()
        self.assertEqual({answer[0] for answer in requests.answers.values()}, {200})
        self.assertNotEqual(first, second)

    def test_a_model_uses_the_gpus_of_its_file(self):
        self.start("gpus: [1]\n")
        self.server.write("m/go-1", "")
        self.assertEqual(self.server.infer("m", (1, 0, 0, 0))[0], 200)
        self.assertTrue(self.there("runs-1-1"))
        self.assertFalse(self.there("pid-0"))

    def test_a_second_model_goes_where_fewer_replicas_are(self):
        server = serve(self, {"a": ("replicas: 1\n", REPLICA), "b": ("replicas: 1\n", REPLICA)}, "--gpus", "2")
        for name in ("a", "b"):
            wait_until("its worker runs", lambda one=name: server.metric(
                'hb_serve_model_replicas{model="%s",version="1"}' % one) == 1)
        devices = {name for name in os.listdir(os.path.join(server.folder, "a")) + os.listdir(os.path.join(server.folder, "b"))
                   if name.startswith("pid-")}
        self.assertEqual(devices, {"pid-0", "pid-1"})

    def test_wrong_values_are_refused_with_file_and_key(self):
        models = {"good": ("", REPLICA), "far": ("gpus: [2]\n", None), "many": ("replicas: 3\n", None),
                  "twice": ("gpus: [0, 0]\n", None), "more": ("gpus: [0]\nreplicas: 2\n", None)}
        server = serve(self, {"good": models["good"]}, "--gpus", "2")
        for name, (text, _) in models.items():
            if name != "good":
                server.write(name + "/model.yaml", "platform: echo\n" + text +
                             "inputs: [{name: x, datatype: FP32, shape: [4]}]\noutputs: [{name: y, datatype: FP32, shape: [4]}]\n")
        for name, wanted in (("far", "/far/model.yaml: gpus: 2: the server uses 2 GPUs, numbered from 0"),
                             ("many", "/many/model.yaml: replicas: 3: the model can use 2 GPUs, with one replica on each"),
                             ("twice", "/twice/model.yaml: gpus: 0 occurs twice"),
                             ("more", '/more/model.yaml: replicas: 2, but "gpus" has 1: each replica needs its own')):
            status, answer = server.call("POST", "/v2/repository/models/%s/load" % name)
            self.assertGreaterEqual(status, 400)
            self.assertIn(wanted, answer.decode().replace('\\"', '"'))


if __name__ == "__main__":
    unittest.main()

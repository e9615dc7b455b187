#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A PyTorch program that `hb bench` starts and talks to: random weights, random inputs.

  torch_program.py infer MODEL [--batch N] [--graph]     one forward pass
  torch_program.py train MODEL [--batch N]               one optimizer step
  torch_program.py decode|prefill|finetune llama8 [--batch N] [--graph]
  torch_program.py http resnet50 [--hostile]               an aiohttp server of a graph, and its client
  torch_program.py gemm SIZE                             one matrix product (persistent kernels on Hopper)
  torch_program.py pool|reduce|softmax SIZE              one kernel with a long grid: a stencil, sums, a Triton kernel
  torch_program.py --check KIND MODEL                    which modules are missing, as a line of JSON

The same program serves requests and runs without pause; the lines on its standard
input decide, and docs/bench.md describes them. It does not know of Hummingbird.
HB_BENCH_STREAM=high puts its work on a stream of the highest priority.
"""
import argparse
import gc
import importlib.util
import json
import logging
import os
import random
import select
import subprocess
import sys
import time
import warnings

warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)


class Input:
    """Lines of standard input; its end ends the program."""

    def __init__(self):
        self.buffer = b""

    def line(self, wait):
        while b"\n" not in self.buffer:
            if not wait and not select.select([0], [], [], 0)[0]:
                return None
            got = os.read(0, 4096)
            if not got:
                os._exit(0)
            self.buffer += got
        line, self.buffer = self.buffer.split(b"\n", 1)
        return line.decode()


def say(**what):
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def vision_model(name):
    """timm's, or torchvision's of the same name."""
    # inception's auxiliary head is for training on real data only
    options = {"aux_logits": False} if name.startswith("inception") else {}
    try:
        import timm
        return timm.create_model(name, pretrained=False, **options)
    except ImportError:
        import torchvision
        return torchvision.models.get_model(name, weights=None, **options)


def vision(torch, args):
    size = 299 if args.model.startswith("inception") else 224
    with torch.device("cuda"): # random weights are drawn there, too, which is much faster
        model = vision_model(args.model).cuda().to(memory_format=torch.channels_last)
    images = torch.randn(args.batch, 3, size, size, device="cuda").to(memory_format=torch.channels_last)
    return model, images


def with_input(step, tensor):
    """The step of a service; requests over sockets are copied into `tensor`, and the result of the step is their answer."""
    step.input = tensor
    return step


def infer(torch, args):
    if args.model == "bert":
        from transformers import BertConfig, BertModel
        model = BertModel(BertConfig()).eval().half().cuda()
        tokens = torch.randint(0, 30000, (args.batch, 128), device="cuda")
        return with_input(torch.inference_mode()(lambda: model(tokens)[0]), tokens)
    model, images = vision(torch, args)
    model, images = model.eval().half(), images.half()
    return with_input(torch.inference_mode()(lambda: model(images)), images)


def train(torch, args, wrap=lambda model: model):
    """`wrap` makes what is trained of the model."""
    model, images = vision(torch, args)
    model = wrap(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    labels = torch.randint(0, 1000, (args.batch,), device="cuda")
    model.train()

    def step():
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return step


def llama(torch):
    """8 layers of the shape of Llama 8B."""
    from transformers import LlamaConfig, LlamaForCausalLM
    config = LlamaConfig(hidden_size=4096, intermediate_size=14336, num_hidden_layers=8, num_attention_heads=32,
                         num_key_value_heads=8, vocab_size=32000)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device("cuda"):
            return LlamaForCausalLM(config).to(torch.bfloat16).cuda()
    finally:
        torch.set_default_dtype(before)


def prefill(torch, args):
    model = llama(torch).eval()
    tokens = torch.randint(0, 30000, (args.batch, 512), device="cuda")
    return with_input(torch.inference_mode()(lambda: model(tokens, use_cache=True).logits[:, -1].argmax(-1)), tokens)


def decode(torch, args):
    model = llama(torch).eval()
    with torch.inference_mode():
        cache = model(torch.randint(0, 30000, (args.batch, 512), device="cuda"), use_cache=True).past_key_values
    token = torch.randint(0, 30000, (args.batch, 1), device="cuda")

    def step():
        logits = model(token, past_key_values=cache, use_cache=True).logits
        cache.crop(512)
        return logits[:, -1].argmax(-1)
    return with_input(torch.inference_mode()(step), token)


def finetune(torch, args):
    model = llama(torch)
    tokens = torch.randint(0, 30000, (args.batch, 1024), device="cuda")
    optimizer = torch.optim.SGD(model.parameters(), 1e-4)

    def step():
        model(tokens, labels=tokens).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return step


def gemm(torch, args):
    size = int(args.model)
    left, right = (torch.randn(size, size, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    return lambda: torch.matmul(left, right)


def pool(torch, args):
    """A stencil: means of 3 x 3 neighbours. args.model: the number of pictures of 8192 x 8192."""
    pictures = torch.randn(1, int(args.model), 8192, 8192, device="cuda", dtype=torch.bfloat16)
    return lambda: torch.nn.functional.avg_pool2d(pictures, 3, 1, 1)


def reduce(torch, args):
    """Sums of rows, each by one block: sums of columns would need several blocks, which wait for each other. args.model: how
    many Mi numbers there are."""
    values = torch.randn(int(args.model) << 8, 1 << 12, device="cuda")
    return lambda: values.sum(1)


def softmax(torch, args):
    """A Triton kernel: softmax of rows of 4096 numbers. args.model: the number of rows."""
    from triton_softmax import make_softmax
    return make_softmax(torch, int(args.model), 4096)


KINDS = {"pool": pool, "reduce": reduce, "softmax": softmax, "infer": infer, "train": train, "prefill": prefill, "decode": decode, "finetune": finetune, "gemm": gemm, "http": lambda torch, args: lambda: None}


def missing_modules(kind, model):
    """Alternatives are separated by " or ". Looks for them without the seconds that importing takes."""
    needed = ["torch"]
    if model == "bert" or kind in ("prefill", "decode", "finetune"):
        needed.append("transformers")
    elif kind == "softmax":
        needed.append("triton")
    elif kind in ("infer", "train", "http"):
        needed.append("timm or torchvision")
    if kind == "http":
        needed.append("aiohttp")
    return [name for name in needed if not any(importlib.util.find_spec(one) for one in name.split(" or "))]


def captured(torch, step, stream, mode="global"):
    """`mode`: which other threads may call the driver during the capture."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream, capture_error_mode=mode):
        output = step()

    def replay():
        graph.replay()
        return output
    replay.captured = step  # keeps the model: the graph's kernels read its weights
    return with_input(replay, getattr(step, "input", None))


class Program:
    """Serves requests or works without pause, as the lines on standard input say."""
    COLUMNS = ("due_ns", "latency_ns", "wait_ns")  # of self.requests; wait: for the GPU, from the last launch on

    def __init__(self, torch, step, stream):
        self.torch, self.step, self.stream = torch, step, stream
        self.input = Input()
        self.requests = []

    def wait(self):
        self.stream.synchronize()

    def request(self, begun, due):
        self.step()
        launched = time.monotonic()
        self.wait()
        done = time.monotonic()
        self.requests.append(tuple(round(1e9 * value) for value in (due - begun, done - due, done - launched)))

    def serve(self, seconds, arrivals, rate, phase, seed, repeat=None):
        """Open loop (poisson, periodic): a request that finds the previous one running waits, and the wait counts. With
        `repeat` the same arrivals come again every so many seconds."""
        begun = time.monotonic()
        for due in self.arrivals(seconds, arrivals, rate, phase, seed, repeat or seconds):
            due = time.monotonic() if due is None else begun + due
            if due >= begun + seconds:
                break
            while time.monotonic() < due:
                pass
            self.request(begun, due)
        say(event="served")

    @staticmethod
    def arrivals(seconds, arrivals, rate, phase, seed, repeat):
        """When requests are due, in seconds; None = at once."""
        while arrivals == "closed":
            yield None
        start = 0.0
        while start < seconds:
            draws, due = random.Random(seed), phase / rate if arrivals == "periodic" else 0.0
            while True:
                due += 1 / rate if arrivals == "periodic" else draws.expovariate(rate)
                if due >= repeat:
                    break
                yield start + due
            start += repeat

    def work(self):
        ends = []
        while (line := self.input.line(False)) is None:
            self.step()
            self.wait()
            ends.append(time.monotonic_ns())
        if line != "rest":
            sys.exit("torch_program.py: '%s' while it works" % line)
        say(event="rested", ends_ns=ends)

    def report(self):
        columns = zip(*self.requests) if self.requests else [()] * len(self.COLUMNS)
        say(event="results", seen=len(self.requests), clock_error_ns=0, **dict(zip(self.COLUMNS, columns)))

    def run(self):
        while (line := self.input.line(True)) != "quit":
            words = line.split()
            if words[0] == "prepare":
                self.requests = []
                say(event="prepared")
            elif words[0] == "serve":
                repeat = float(words[6]) if len(words) > 6 else None
                self.serve(float(words[1]), words[2], float(words[3]), float(words[4]), int(words[5]), repeat)
            elif words[0] == "finish":
                self.report()
            elif words[0] == "work":
                self.work()
            else:
                sys.exit("torch_program.py: '%s' is no command" % line)


class HttpProgram(Program):
    """An unmodified HTTP server beside it serves the requests, which a client sends: a process of its own, http_load.py,
    that is not under Hummingbird. Latencies are the server's own: from the graph's launch to the end of the synchronize."""

    def __init__(self, torch, step, stream, hostile):
        super().__init__(torch, step, stream)
        from http_server import start_server
        self.port, self.take_times = start_server(torch, stream)
        self.hostile = ["--hostile"] if hostile else []

    def serve(self, seconds, arrivals, rate, phase, seed, repeat=None):
        environment = {key: value for key, value in os.environ.items() if key not in ("LD_LIBRARY_PATH", "LD_PRELOAD")}
        subprocess.run([sys.executable, os.path.join(os.path.dirname(os.path.abspath(__file__)), "http_load.py"), "--port",
                        str(self.port), "--seconds", str(seconds), "--rate", str(rate), *self.hostile], env=environment, check=True,
                       stdout=subprocess.DEVNULL, timeout=6 * seconds + 20)
        self.requests = [(0, ns, ns) for ns in self.take_times()]
        say(event="served")


class SocketProgram(Program):
    """Its requests come over sockets (socket_service.py). A latency ends when the answer has been sent."""
    COLUMNS = (*Program.COLUMNS, "work_ns")

    def __init__(self, torch, step, stream):
        super().__init__(torch, step, stream)
        from socket_service import SocketService
        self.service = SocketService(torch, step, stream)

    def serve(self, seconds, arrivals, rate, phase, seed, repeat=None):
        if arrivals == "closed":
            sys.exit("torch_program.py: --sockets needs a rate; the arrivals 'closed' have none")
        begun = time.monotonic_ns()
        due_ns = [round(1e9 * due) for due in self.arrivals(seconds, arrivals, rate, phase, seed, repeat or seconds) if due < seconds]
        served = self.service.serve([begun + due for due in due_ns])
        for due, (done, work, wait) in zip(due_ns, served):
            self.requests.append((due, done - begun - due, wait, work))
        say(event="served")


def make_program(torch, args, step, stream):
    if args.kind == "http":
        return HttpProgram(torch, step, stream, args.hostile)
    return (SocketProgram if args.sockets else Program)(torch, step, stream)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=sorted(KINDS))
    parser.add_argument("model")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--graph", action="store_true")
    parser.add_argument("--sockets", action="store_true", help="infer, prefill, decode: requests come over sockets")
    parser.add_argument("--hostile", action="store_true", help="http: the client sends bytes that lead to no request")
    parser.add_argument("--check", action="store_true", help="only say which modules are missing")
    args = parser.parse_args()
    if args.check:
        say(event="lacks", modules=", ".join(missing_modules(args.kind, args.model)))
        return
    import torch
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.set_num_threads(2)
    priority = -5 if os.environ.get("HB_BENCH_STREAM") == "high" else 0
    stream = torch.cuda.Stream(priority=priority)
    with torch.cuda.stream(stream):
        step = KINDS[args.kind](torch, args)
        for _ in range(5):
            step()
        torch.cuda.synchronize()
        if args.graph:
            step = captured(torch, step, stream)
            for _ in range(5):
                step()
            torch.cuda.synchronize()
        # Objects that live as long as the program are not collected, so the collector skips them.
        gc.collect()
        gc.freeze()
        program = make_program(torch, args, step, stream)
        say(event="ready", gpu=torch.cuda.get_device_name())
        program.run()


if __name__ == "__main__":
    main()

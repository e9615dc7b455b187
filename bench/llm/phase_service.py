#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A service that changes its kind of request, for llm_phases.py: random weights, no HTTP. It does not know of Hummingbird.

  phase_service.py text|graphs|both [--device cuda|cpu]

  text     a request is 17 tokens of eager decoding with a model of 24 layers; the host reads each token
  graphs   a request is one CUDA graph of about 1 ms (BERT-base, batch 1); on a CPU one token

The argument says which kinds are prepared. The program reads lines: `phase KIND SECONDS RATE` serves requests that come at
fixed intervals, and answers {"event": "begun", "at": moment} (CLOCK_MONOTONIC) at the beginning and {"event": "phase", "due_ns",
"latency_ns", "token_ns"} at the end; `quit` ends it. Latencies count from when a request was due; `token_ns` are the times that
single tokens took.
"""
import argparse
import dataclasses
import gc
import os
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]
import torch  # noqa: E402  pylint: disable=wrong-import-position
from llm_jobs import build  # noqa: E402  pylint: disable=wrong-import-position
from llm_model import SHAPES  # noqa: E402  pylint: disable=wrong-import-position
from torch_program import Program, captured, infer, say  # noqa: E402  pylint: disable=wrong-import-position

TOKENS, CACHED = 17, 256
LAYERS = 24


class Text:
    """Eager decoding of one text."""

    def __init__(self, args):
        shape = SHAPES["tiny"] if args.device == "cpu" else dataclasses.replace(SHAPES["1b"], layers=LAYERS)
        self.model = build(shape, args, length=CACHED, batch=1, cached=CACHED).eval()
        self.places = torch.arange(CACHED, device=args.device)
        self.text = torch.ones(1, 1, dtype=torch.int64, device=args.device)
        self.token_ns = []

    @torch.inference_mode()
    def request(self, tokens=TOKENS):
        for number in range(tokens):
            begin = time.monotonic_ns()
            place = self.places[128 + number:129 + number]
            self.text = self.model(self.text, place, (self.places <= place)[None, None, None])[:, -1].argmax(-1, keepdim=True)
            self.text.item()
            self.token_ns.append(time.monotonic_ns() - begin)


class Service(Program):
    def __init__(self, args, stream):
        super().__init__(torch, None, stream)
        self.kinds, self.text = {}, None
        if args.kind in ("text", "both"):
            self.text = Text(args)
            self.kinds["text"] = self.text.request
        if args.kind in ("graphs", "both"):
            self.kinds["graphs"] = self.make_graph(args)
        for request in self.kinds.values():
            for _ in range(5):
                request()
        self.wait()

    def make_graph(self, args):
        if args.device == "cpu":
            return lambda text=Text(args): text.request(1)
        step = infer(torch, argparse.Namespace(model="bert", batch=1))
        for _ in range(3):
            step()
        self.wait()
        return captured(torch, step, self.stream)

    def wait(self):
        if self.stream:
            self.stream.synchronize()

    def phase(self, kind, seconds, rate):
        self.step, self.requests = self.kinds[kind], []
        if self.text:
            self.text.token_ns = []
        say(event="begun", at=time.monotonic())
        self.serve(seconds, "periodic", rate, 0.5, 0)
        due, latency, _ = zip(*self.requests) if self.requests else ((), (), ())
        say(event="phase", due_ns=due, latency_ns=latency, token_ns=self.text.token_ns if kind == "text" else [])

    def run(self):
        while (line := self.input.line(True)) != "quit":
            words = line.split()
            if len(words) != 4 or words[0] != "phase" or words[1] not in self.kinds:
                sys.exit(f"phase_service.py: '{line}' is no command")
            self.phase(words[1], float(words[2]), float(words[3]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=("text", "graphs", "both"))
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    args = parser.parse_args()
    torch.set_num_threads(2)
    stream = None
    if args.device == "cuda":
        stream = torch.cuda.Stream(priority=-5 if os.environ.get("HB_BENCH_STREAM") == "high" else 0)
        torch.cuda.set_stream(stream)
    service = Service(args, stream)
    gc.collect()
    gc.freeze()
    say(event="ready")
    service.run()


if __name__ == "__main__":
    main()

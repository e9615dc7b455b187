#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One PyTorch program for measurements: a service or a training job, random weights.

  torch_tenant.py serve --model resnet50_b1[,MODEL...] [--graph] [--stream-priority P] --dir D --name N
  torch_tenant.py train --model resnet50_train_b128 --dir D --name N

Programs of one measurement share a folder D. `serve` obeys lines appended to
D/N.cmd, "LABEL RATE SECONDS [MODEL [REPEAT]]": it serves Poisson arrivals (same seed each
time, and again every REPEAT seconds; open loop, one at a time, latency from the arrival)
and appends one JSON line to D/N.out. `train` trains until D/stop appears, pauses while D/N.pause exists, and
writes the end time (monotonic) of each iteration to D/N.out, one a line. Both create
D/N.ready first. Started by temporal.py; knows nothing of Hummingbird.
"""
import argparse
import faulthandler
import gc
import json
import logging
import os
import random
import signal
import time
import warnings

warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)


def resnet(torch, batch, train):
    import timm
    model = timm.create_model("resnet50", pretrained=False).cuda().to(memory_format=torch.channels_last)
    images = torch.randn(batch, 3, 224, 224, device="cuda").to(memory_format=torch.channels_last)
    if not train:
        model, images = model.eval().half(), images.half()

        @torch.inference_mode()
        def infer():
            return model(images)
        return infer
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    labels = torch.randint(0, 1000, (batch,), device="cuda")
    model.train()

    def step():
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return step


def llama(torch, batch, train):
    from transformers import LlamaConfig, LlamaForCausalLM
    config = LlamaConfig(hidden_size=4096, intermediate_size=14336, num_hidden_layers=8, num_attention_heads=32,
                         num_key_value_heads=8, vocab_size=32000)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"): # made there: on the CPU that takes half a minute
        model = LlamaForCausalLM(config).to(torch.bfloat16)
    torch.set_default_dtype(torch.float32)
    if train:
        tokens = torch.randint(0, 30000, (batch, 1024), device="cuda")
        optimizer = torch.optim.SGD(model.parameters(), 1e-4)

        def step():
            model(tokens, labels=tokens).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        return step
    model = model.eval()
    with torch.inference_mode():
        cache = model(torch.randint(0, 30000, (batch, 512), device="cuda"), use_cache=True).past_key_values
    token = torch.randint(0, 30000, (batch, 1), device="cuda")

    @torch.inference_mode()
    def decode():
        model(token, past_key_values=cache, use_cache=True)
        cache.crop(512)
    return decode


MODELS = {
    "resnet50_b1": lambda torch: resnet(torch, 1, False),
    "llama8_decode_b8": lambda torch: llama(torch, 8, False),
    "resnet50_train_b128": lambda torch: resnet(torch, 128, True),
    "llama8_train_b4": lambda torch: llama(torch, 4, True),
}


def capture(torch, work, stream):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        work()
    return graph.replay


def serve_once(torch, work, rate, seconds, repeat=0.0):
    random.seed(1)
    begun = time.monotonic()
    due, again = begun, begun + (repeat or 2 * seconds)
    latencies, services, waits, arrivals = [], [], [], []
    while due < begun + seconds:
        due += random.expovariate(rate)
        if due >= again:
            random.seed(1)
            due, again = again + random.expovariate(rate), again + repeat
        while time.monotonic() < due:
            pass
        served = time.monotonic()
        work()
        launched = time.monotonic()
        torch.cuda.current_stream().synchronize()
        done = time.monotonic()
        arrivals.append(round(due - begun, 5))
        latencies.append(round((done - due) * 1e6, 1))
        services.append(round((done - served) * 1e6, 1))
        waits.append(round((done - launched) * 1e6, 1))
    return {"begun": begun, "ended": time.monotonic(), "latency_us": latencies, "service_us": services,
            "wait_us": waits, "arrival_s": arrivals}


def prepare(torch, model, graph, stream):
    work = MODELS[model](torch)
    for _ in range(10):
        work()
    torch.cuda.synchronize()
    if graph:
        work = capture(torch, work, stream)
        for _ in range(10):
            work()
        torch.cuda.synchronize()
    return work


def serve(torch, args, path):
    stream = torch.cuda.Stream(priority=args.stream_priority)
    with torch.cuda.stream(stream):
        works = {model: prepare(torch, model, args.graph, stream) for model in args.model.split(",")}
        first = next(iter(works))
        # As services do: what lives as long as the program is not looked through again and again.
        gc.collect()
        gc.freeze()
        open(path + ".ready", "w").close()
        done = 0
        deadline = time.monotonic() + 900
        while time.monotonic() < deadline and not os.path.exists(os.path.join(args.dir, "stop")):
            lines = open(path + ".cmd").read().split("\n")[:-1] if os.path.exists(path + ".cmd") else []
            if done == len(lines):
                time.sleep(0.01)
                continue
            label, rate, seconds, *model = lines[done].split()
            work = works[model[0] if model else first]
            served = serve_once(torch, work, float(rate), float(seconds), float(model[1]) if len(model) > 1 else 0.0)
            with open(path + ".out", "a") as out:
                out.write(json.dumps(dict(served, label=label)) + "\n")
            done += 1


def train(torch, args, path):
    step = MODELS[args.model](torch)
    for _ in range(4):
        step()
    torch.cuda.synchronize()
    open(path + ".ready", "w").close()
    deadline = time.monotonic() + 900
    out = open(path + ".out", "w", buffering=1)
    while time.monotonic() < deadline and not os.path.exists(os.path.join(args.dir, "stop")):
        if os.path.exists(path + ".pause"):
            time.sleep(0.002)
            continue
        step()
        torch.cuda.synchronize()
        out.write("%.6f\n" % time.monotonic())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("role", choices=("serve", "train"))
    parser.add_argument("--model", required=True, help="of %s; serve: several, the first by default" % ", ".join(MODELS))
    parser.add_argument("--stream-priority", type=int, default=0)
    parser.add_argument("--graph", action="store_true")
    parser.add_argument("--dir", required=True)
    parser.add_argument("--name", required=True)
    args = parser.parse_args()
    faulthandler.register(signal.SIGUSR1) # where it hangs, if it does
    import torch
    torch.backends.cuda.matmul.allow_tf32 = True
    (serve if args.role == "serve" else train)(torch, args, os.path.join(args.dir, args.name))


if __name__ == "__main__":
    main()

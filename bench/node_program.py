#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch programs on two GPUs that bench/node.py starts; they know nothing of Hummingbird. Random weights.

  node_program.py data [--batch N]                data-parallel training of resnet50: NCCL all-reduces of the gradients
  node_program.py tensor [--layers N] [--eager]   tensor-parallel decoding of a model of Llama's shape: two all-reduces a layer
  node_program.py pipeline [--layers N]           two stages of such a model, one on each GPU, in one process

They read the same lines as torch_program.py. Data- and tensor-parallel programs consist of a process for each GPU; the first
tells the second each step, and the second ends with it.
"""
import argparse
import os
import signal
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from hbbench.process import die_with_parent  # noqa: E402  pylint: disable=wrong-import-position
from hbbench.stage import free_port  # noqa: E402  pylint: disable=wrong-import-position
from torch_program import Program, captured, say, train  # noqa: E402  pylint: disable=wrong-import-position

HIDDEN, INNER, BATCH = 4096, 14336, 8
END_S = 10


def data(torch, args):
    return train(torch, args, lambda model: torch.nn.parallel.DistributedDataParallel(model, device_ids=[args.rank]))


def make_layers(torch, layers, shares, device):
    """(attention in, attention out, up, down) of each layer: what one of `shares` GPUs holds."""
    def weight(rows, columns):
        return torch.randn(rows, columns, device=device, dtype=torch.bfloat16) * rows ** -0.5
    return [(weight(HIDDEN, HIDDEN // shares), weight(HIDDEN // shares, HIDDEN), weight(HIDDEN, INNER // shares),
             weight(INNER // shares, HIDDEN)) for _ in range(layers)]


def run_layers(layers, x, reduce):
    for into, out, up, down in layers:
        part = x @ into @ out
        reduce(part)
        x = x + part
        part = (x @ up).relu_() @ down
        reduce(part)
        x = (x + part) * 0.5
    return x


def tensor(torch, args):
    layers = make_layers(torch, args.layers, 2, "cuda")
    x = torch.randn(BATCH, HIDDEN, device="cuda", dtype=torch.bfloat16)
    return torch.inference_mode()(lambda: run_layers(layers, x, torch.distributed.all_reduce))


def pipeline(torch, args):
    stages = [make_layers(torch, args.layers // 2, 1, f"cuda:{device}") for device in range(2)]
    x = torch.randn(BATCH, HIDDEN, device="cuda:0", dtype=torch.bfloat16)
    between = torch.empty(BATCH, HIDDEN, device="cuda:1", dtype=torch.bfloat16)
    ready = torch.cuda.Event()
    second = torch.cuda.Stream(device=1)

    @torch.inference_mode()
    def step():
        between.copy_(run_layers(stages[0], x, lambda part: None), non_blocking=True)
        ready.record()
        with torch.cuda.device(1), torch.cuda.stream(second):
            second.wait_event(ready)
            run_layers(stages[1], between, lambda part: None)
        second.synchronize()
    return step


def start_second(args, port):
    """The process of the second GPU. It does not outlive this one."""
    words = [sys.executable, os.path.abspath(__file__), *sys.argv[1:], "--rank", "1", "--port", str(port)]
    return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                            preexec_fn=die_with_parent(signal.SIGKILL))


def join(torch, args, port):
    torch.cuda.set_device(args.rank)
    torch.distributed.init_process_group("nccl", init_method=f"tcp://127.0.0.1:{port}", rank=args.rank, world_size=2)


def prepare(torch, args, stream):
    """The step of this GPU. Both processes make the same collectives in the same order."""
    step = {"data": data, "tensor": tensor, "pipeline": pipeline}[args.kind](torch, args)
    for _ in range(5):
        step()
    torch.cuda.synchronize()
    if args.kind == "tensor" and not args.eager:
        step = captured(torch, step, stream, "thread_local")  # NCCL's own threads call the driver meanwhile
        for _ in range(5):
            step()
        torch.cuda.synchronize()
    return step


def follow(step, stream):
    """The second process: one step for each byte."""
    while os.read(0, 1):
        step()
        stream.synchronize()
    os._exit(0)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=["data", "tensor", "pipeline"])
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--eager", action="store_true", help="tensor: without CUDA graphs")
    parser.set_defaults(model="resnet50")
    parser.add_argument("--rank", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, default=0, help=argparse.SUPPRESS)
    args = parser.parse_args()
    port = args.port or free_port()
    second = start_second(args, port) if args.kind != "pipeline" and args.rank == 0 else None
    import torch
    torch.set_num_threads(2)
    if args.kind != "pipeline":
        join(torch, args, port)
    stream = torch.cuda.Stream(priority=-5 if os.environ.get("HB_BENCH_STREAM") == "high" else 0)
    with torch.cuda.stream(stream):
        step = prepare(torch, args, stream)
        if args.rank:
            follow(step, stream)
            return

        def step_both():
            second.stdin.write(b"s")
            second.stdin.flush()
            step()
        say(event="ready", gpu=torch.cuda.get_device_name())
        Program(torch, step_both if second else step, stream).run()
    if second:
        second.stdin.close()
        second.wait(END_S)
    os._exit(0)  # NCCL's own end would wait for both


if __name__ == "__main__":
    main()

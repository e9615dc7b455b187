#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A worker of `hb serve` for bench/serving.py: one of the six models of the evaluation, in PyTorch with random weights.

  serve_worker.py NAME [IN OUT]         classify, detect, stream, bert, speech, decode

IN and OUT are bytes that an item copies to the GPU and back in addition, as a service does that keeps its cache on the host.

A request holds one number for each item. The bytes that go over the link for the item are those of such a model's input and
output (MODELS below, and `transfer` in model.yaml). They lie in pinned memory of the worker, so that the server's copies of
bodies are not part of the measurement. Each batch size is captured as CUDA graphs, PIECES for each model, which are launched
at once, or one by one where the policy interrupts low priority (worker.paused()). Without CUDA the model runs uncaptured, for
tests; HB_SERVE_SMALL=1 makes the models tiny.
"""
import gc
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "python"))
from hummingbird import worker  # noqa: E402  pylint: disable=wrong-import-position

import torch  # noqa: E402  pylint: disable=wrong-import-position
from torch import nn  # noqa: E402  pylint: disable=wrong-import-position

SMALL = bool(os.environ.get("HB_SERVE_SMALL"))
CUDA = torch.cuda.is_available()
TYPE = torch.bfloat16
PIECES, AHEAD = 8, 2
HELD_NAP = 30e-6


class Bottleneck(nn.Module):
    """A block of ResNet with its batch normalisation folded into the convolutions, as for inference."""

    def __init__(self, inside, width, stride):
        super().__init__()
        self.first, self.last = nn.Conv2d(inside, width, 1), nn.Conv2d(width, 4 * width, 1)
        self.middle = nn.Conv2d(width, width, 3, stride, 1)
        self.beside = nn.Conv2d(inside, 4 * width, 1, stride) if stride > 1 or inside != 4 * width else nn.Identity()

    def forward(self, x):
        y = torch.relu_(self.middle(torch.relu_(self.first(x))))
        return torch.relu_(self.last(y) + self.beside(x))


class Images(nn.Module):
    """Converts bytes as they arrive over the link to the input of the first convolution."""

    def forward(self, x):
        return x.to(TYPE).contiguous(memory_format=torch.channels_last)


def resnet50():
    layers = [Images(), nn.Conv2d(3, 64, 7, 2, 3), nn.ReLU(True), nn.MaxPool2d(3, 2, 1)]
    inside = 64
    for width, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for i in range(1 if SMALL else blocks):
            layers.append(Bottleneck(inside, width, stride if i == 0 else 1))
            inside = 4 * width
    return layers


class Classes(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(2048, 1000)

    def forward(self, x):
        return self.linear(x.mean((2, 3))).float()


class Boxes(nn.Module):
    """A detection head's last layer: four numbers and a score for three anchors at each place."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(256, 27, 3, 1, 1)

    def forward(self, x):
        return self.conv(x).float().contiguous()


def segmenter():
    """A small network on large frames, as for video, so that copies take a good part of its time."""
    layers = [Images(), nn.Conv2d(3, 32, 3, 2, 1), nn.ReLU(True), nn.Conv2d(32, 64, 3, 2, 1), nn.ReLU(True)]
    inside = 64
    for width, blocks in ((32, 6), (64, 4)):
        for i in range(blocks):
            layers.append(Bottleneck(inside, width, 2 if i == 0 else 1))
            inside = 4 * width
    return layers + [Mask(inside)]


class Mask(nn.Module):
    """A class for each pixel."""

    def __init__(self, inside):
        super().__init__()
        self.conv = nn.Conv2d(inside, 19, 1)

    def forward(self, x):
        return nn.functional.interpolate(self.conv(x), scale_factor=16, mode="bilinear").argmax(1)


class Block(nn.Module):
    """A block of a transformer encoder; with a cache of keys and values, of one decoding step of a Llama."""

    def __init__(self, width, heads, inner, cached=0, key_heads=0):
        super().__init__()
        self.heads, self.key_heads, self.size = heads, key_heads or heads, width // heads
        self.query = nn.Linear(width, width, bias=False)
        self.keys = nn.Linear(width, 2 * self.key_heads * self.size, bias=False)
        self.out, self.up, self.down = nn.Linear(width, width), nn.Linear(width, inner), nn.Linear(inner, width)
        self.gate = nn.Linear(width, inner) if cached else None
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(2)])
        self.cached, self.caches = cached, {}

    def cache(self, x, n):
        if n not in self.caches:
            self.caches[n] = torch.zeros(2, n, self.key_heads, self.cached, self.size, dtype=x.dtype, device=x.device)
        return self.caches[n]

    def attend(self, x):
        n, tokens, width = x.shape
        query = self.query(x).view(n, tokens, self.heads, self.size).transpose(1, 2)
        keys, values = self.keys(x).view(n, tokens, 2, self.key_heads, self.size).permute(2, 0, 3, 1, 4)
        if self.cached:
            cache = self.cache(x, n)
            cache[0, :, :, -1:] = keys
            cache[1, :, :, -1:] = values
            keys, values = (part.repeat_interleave(self.heads // self.key_heads, 1) for part in cache)
        y = nn.functional.scaled_dot_product_attention(query, keys, values)
        return self.out(y.transpose(1, 2).reshape(n, tokens, width))

    def forward(self, x):
        x = x + self.attend(self.norms[0](x))
        y = self.norms[1](x)
        inner = nn.functional.silu(self.gate(y)) * self.up(y) if self.gate else nn.functional.gelu(self.up(y))
        return x + self.down(inner)


class Tokens(nn.Module):
    """Converts token numbers (the received bytes, as int64) to vectors."""

    def __init__(self, width):
        super().__init__()
        self.table = nn.Embedding(30000, width)

    def forward(self, x):
        return self.table(x.remainder(30000))


class Frames(nn.Module):
    """Converts a spectrogram to vectors, one for two frames."""

    def __init__(self, width):
        super().__init__()
        self.conv = nn.Conv1d(80, width, 3, 2, 1)

    def forward(self, x):
        return self.conv(x.to(TYPE)).transpose(1, 2)


class Float(nn.Module):
    def forward(self, x):
        return x.float().contiguous()


def bert():
    return [Tokens(1024)] + [Block(1024, 16, 4096) for _ in range(2 if SMALL else 24)] + [Pooled(1024, 1024)]


class Pooled(nn.Module):
    def __init__(self, width, out):
        super().__init__()
        self.linear = nn.Linear(width, out)

    def forward(self, x):
        return self.linear(x[:, 0]).float()


def speech():
    return ([Frames(1024)] + [Block(1024, 16, 4096) for _ in range(2 if SMALL else 24)]
            + [nn.Linear(1024, 512), Float()])


def decode():
    layers = 1 if SMALL else 8
    return ([Tokens(4096)] + [Block(4096, 32, 14336, 512, 8) for _ in range(layers)] + [Pooled(4096, 32000), Best()])


class Best(nn.Module):
    """Returns the most likely tokens."""

    def forward(self, x):
        return x.topk(128).indices


# name -> layers, shape and type of an item's input, largest batch. The output's shape is that of the result.
MODELS = {
    "classify": (lambda: resnet50() + [Classes()], (3, 224, 224), torch.float32, 16),
    "detect": (lambda: resnet50() + [nn.Conv2d(2048, 256, 1), nn.ReLU(True)]
               + [layer for _ in range(4) for layer in (nn.Conv2d(256, 256, 3, 1, 1), nn.ReLU(True))] + [Boxes()],
               (3, 800, 1344), torch.float32, 4),
    "stream": (segmenter, (3, 1024, 2048), torch.float32, 2),
    "bert": (bert, (128,), torch.int64, 16),
    "speech": (speech, (80, 3000), torch.float32, 4),
    "decode": (decode, (1,), torch.int64, 16),
}


def sizes(most):
    """Batch sizes that are captured as graphs; other sizes run as the next larger one."""
    return [n for n in (1, 2, 3, 4, 6, 8, 12, 16) if n <= most]


class Program:
    """One batch size: its input, graphs and output."""

    def __init__(self, layers, shape, dtype, n, device):
        self.host_in = torch.zeros(n, *shape, dtype=dtype, pin_memory=CUDA)
        self.device_in = torch.zeros(n, *shape, dtype=dtype, device=device)
        step = -(-len(layers) // PIECES)
        self.groups = [layers[i:i + step] for i in range(0, len(layers), step)]
        self.graphs = []
        self.result = self.calculate()
        self.host_out = torch.zeros(self.result.shape, dtype=self.result.dtype, pin_memory=CUDA)

    def calculate(self):
        x = self.device_in
        for group in self.groups:
            for layer in group:
                x = layer(x)
        return x

    def capture(self, stream, pool):
        for _ in range(2):
            self.calculate()
        stream.synchronize()
        x = self.device_in
        for group in self.groups:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=stream, pool=pool):
                for layer in group:
                    x = layer(x)
            self.graphs.append(graph)
        self.result = x


class Besides:
    """Bytes that each item copies to the GPU and back besides input and output; the network does not use them."""

    def __init__(self, in_bytes, out_bytes, most, device):
        self.ways = []
        for n_bytes in (in_bytes, out_bytes):
            host = torch.zeros(most, n_bytes, dtype=torch.uint8, pin_memory=CUDA and n_bytes > 0)
            self.ways.append((host, torch.zeros(most, n_bytes, dtype=torch.uint8, device=device)))

    def copy_in(self, n):
        host, there = self.ways[0]
        if host.numel():
            there[:n].copy_(host[:n], non_blocking=True)

    def copy_out(self, n):
        host, there = self.ways[1]
        if host.numel():
            host[:n].copy_(there[:n], non_blocking=True)


class Model:
    def __init__(self, name, in_bytes=0, out_bytes=0, most_besides=8):
        gc.freeze()  # capturing collects garbage each time
        layers, shape, dtype, most = MODELS[name]
        self.device = "cuda" if CUDA else "cpu"
        torch.set_num_threads(1)
        order = torch.channels_last if len(shape) == 3 else torch.preserve_format
        with torch.device(self.device):
            layers = [layer.eval().to(TYPE).to(memory_format=order) for layer in layers()]
        self.streams = {priority: torch.cuda.Stream(priority=number) for priority, number in (("high", -5), ("low", 0))} \
            if CUDA else {}
        self.program, self.programs = None, {}
        pool = torch.cuda.graph_pool_handle() if CUDA else None
        for n in reversed(sizes(most)):
            if CUDA:
                with torch.cuda.stream(self.streams["low"]):
                    program = Program(layers, shape, dtype, n, self.device)
                    program.capture(self.streams["low"], pool)
            else:
                program = Program(layers, shape, dtype, n, self.device)
            self.programs[n] = program
        self.besides = Besides(in_bytes, out_bytes, min(most, most_besides), self.device)
        self.done = [torch.cuda.Event() for _ in range(PIECES)] if CUDA else []

    def wait(self, stream):
        if stream:
            stream.synchronize()

    def stream(self):
        return self.streams.get(worker.priority())

    def copy_in(self, x):
        n = len(x)
        self.program = self.programs[min(size for size in self.programs if size >= n)]
        with torch.cuda.stream(self.stream()):
            self.program.device_in[:n].copy_(self.program.host_in[:n], non_blocking=True)
            self.besides.copy_in(n)
        self.wait(self.stream())
        return {"n": n}

    def infer(self, n):
        stream = self.stream()
        if not CUDA:
            self.program.result = self.program.calculate()
            return n
        with torch.cuda.stream(stream):
            if worker.interruptible():
                self.launch_slowly(stream)
            else:
                for graph in self.program.graphs:
                    graph.replay()
        self.wait(stream)
        return n

    def launch_slowly(self, stream):
        """Keeps AHEAD pieces in flight; the next piece waits while the batch is paused."""
        for i, graph in enumerate(self.program.graphs):
            if i >= AHEAD:
                self.done[i - AHEAD].synchronize()
            while worker.paused():
                time.sleep(HELD_NAP)
            graph.replay()
            self.done[i].record(stream)

    def copy_out(self, n):
        with torch.cuda.stream(self.stream()):
            self.program.host_out[:n].copy_(self.program.result[:n], non_blocking=True)
            self.besides.copy_out(n)
        self.wait(self.stream())
        return self.program.host_out[:n].reshape(n, -1)[:, :1].float().numpy()


def main():
    with torch.inference_mode():
        model = Model(sys.argv[1], *map(int, sys.argv[2:4]))
        worker.serve(model.infer, model.copy_in, model.copy_out)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Low-priority jobs beside the benchmark's LLM server: PyTorch, random weights, random inputs.

  llm_jobs.py train|lora|generate [--compile] [--model 1b|tiny] [--device cuda|cpu]

  train      all weights of a decoder of 12 layers, AdamW; an iteration is a step with 4 x 1024 tokens
  lora       matrices of rank 16 beside the frozen weights of a model of the shape 1b; a step with 4 x 512 tokens
  generate   offline generation with batch 32, model of the shape 1b; an iteration is one token of all 32 texts

It reads the lines `work`, `rest` and `quit` that docs/bench.md describes. --compile uses torch.compile.
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
from llm_model import ROPE_BASE, SHAPES  # noqa: E402  pylint: disable=wrong-import-position
from torch import nn  # noqa: E402  pylint: disable=wrong-import-position
from torch.nn import functional as F  # noqa: E402  pylint: disable=wrong-import-position
from torch_program import Program, say  # noqa: E402  pylint: disable=wrong-import-position

RANK = 16
BATCH, GENERATE_BATCH = 4, 32
TRAIN_TOKENS, LORA_TOKENS = 1024, 512
PROMPT, CACHED = 256, 512  # offline generation: tokens of the prompt, and of prompt and answer


class Rotation(nn.Module):
    """Turns queries and keys by their position."""

    def __init__(self, size, length):
        super().__init__()
        turns = ROPE_BASE ** (-torch.arange(0, size, 2, dtype=torch.float32) / size)
        angles = torch.outer(torch.arange(length, dtype=torch.float32), turns)
        self.register_buffer("cosine", angles.cos())
        self.register_buffer("sine", angles.sin())

    def forward(self, x, positions):
        c, s = self.cosine[positions][None, :, None], self.sine[positions][None, :, None]
        first, second = x.float().chunk(2, -1)
        return torch.cat([first * c - second * s, second * c + first * s], -1).to(x.dtype)


class Lora(nn.Module):
    """A frozen linear layer with a trained correction of low rank."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer
        kind = {"dtype": layer.weight.dtype, "device": layer.weight.device}
        self.into = nn.Parameter(torch.randn(RANK, layer.in_features, **kind) * layer.in_features ** -0.5)
        self.out = nn.Parameter(torch.zeros(layer.out_features, RANK, **kind))

    def forward(self, x):
        return self.layer(x) + F.linear(F.linear(x, self.into), self.out)


class Layer(nn.Module):
    def __init__(self, shape, batch, cached):
        super().__init__()
        s = self.shape = shape
        self.qkv = nn.Linear(s.width, (s.heads + 2 * s.kv_heads) * s.size, bias=False)
        self.o = nn.Linear(s.heads * s.size, s.width, bias=False)
        self.gate_up = nn.Linear(s.width, 2 * s.inner, bias=False)
        self.down = nn.Linear(s.inner, s.width, bias=False)
        self.before, self.after = nn.RMSNorm(s.width), nn.RMSNorm(s.width)
        if cached:
            for name in ("keys", "values"):
                self.register_buffer(name, torch.zeros(batch, s.kv_heads, cached, s.size))

    def attend(self, x, rotation, positions, mask):
        s, (batch, tokens, _) = self.shape, x.shape
        q, k, v = self.qkv(x).view(batch, tokens, -1, s.size).split([s.heads, s.kv_heads, s.kv_heads], 2)
        q, k, v = (part.transpose(1, 2) for part in (rotation(q, positions), rotation(k, positions), v))
        if mask is None:
            repeat = s.heads // s.kv_heads
            y = F.scaled_dot_product_attention(q, k.repeat_interleave(repeat, 1), v.repeat_interleave(repeat, 1), is_causal=True)
            return self.o(y.transpose(1, 2).reshape(batch, tokens, -1))
        self.keys[:, :, positions] = k
        self.values[:, :, positions] = v
        # One token for each text: queries of one key head are the rows of a product.
        q = q.reshape(batch, s.kv_heads, s.heads // s.kv_heads, s.size)
        scores = (q @ self.keys.transpose(2, 3)).float() * s.size ** -0.5
        y = scores.masked_fill(~mask, -1e30).softmax(-1).to(x.dtype) @ self.values
        return self.o(y.reshape(batch, tokens, -1))

    def forward(self, x, rotation, positions, mask):
        x = x + self.attend(self.before(x), rotation, positions, mask)
        gate, up = self.gate_up(self.after(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


class Decoder(nn.Module):
    """`cached` > 0: with a KV cache of that length, for one token at a time."""

    def __init__(self, shape, length, batch=0, cached=0):
        super().__init__()
        self.table = nn.Embedding(shape.vocabulary, shape.width)
        self.layers = nn.ModuleList([Layer(shape, batch, cached) for _ in range(shape.layers)])
        self.norm = nn.RMSNorm(shape.width)
        self.head = nn.Linear(shape.width, shape.vocabulary, bias=False)
        self.rotation = Rotation(shape.size, length)

    def forward(self, tokens, positions, mask=None):
        x = self.table(tokens)
        for layer in self.layers:
            x = layer(x, self.rotation, positions, mask)
        return self.head(self.norm(x))


def build(shape, args, **more):
    """A model on the device; on a GPU in bf16, except the table of cosines."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16 if args.device == "cuda" else torch.float32)
    try:
        with torch.device(args.device):
            return Decoder(shape, **more)
    finally:
        torch.set_default_dtype(before)


def training_step(model, args, tokens, vocabulary, optimizer):
    text = torch.randint(0, vocabulary, (BATCH, tokens), device=args.device)
    positions = torch.arange(tokens, device=args.device)
    forward = torch.compile(model) if args.compile else model

    def step():
        logits = forward(text, positions)
        F.cross_entropy(logits[:, :-1].flatten(0, 1).float(), text[:, 1:].flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()
    return step


def train(shape, args):
    if shape.layers > 12:
        shape = dataclasses.replace(shape, layers=12, inner=5632, vocabulary=32000)
    model = build(shape, args, length=TRAIN_TOKENS)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, fused=args.device == "cuda")
    return training_step(model, args, TRAIN_TOKENS, shape.vocabulary, optimizer)


def lora(shape, args):
    model = build(shape, args, length=LORA_TOKENS)
    model.requires_grad_(False)
    for layer in model.layers:
        layer.qkv, layer.o = Lora(layer.qkv), Lora(layer.o)
    optimizer = torch.optim.AdamW([one for one in model.parameters() if one.requires_grad], 1e-4)
    return training_step(model, args, LORA_TOKENS, shape.vocabulary, optimizer)


def generate(shape, args):
    model = build(shape, args, length=CACHED, batch=GENERATE_BATCH, cached=CACHED).eval()
    forward = torch.compile(model, mode="reduce-overhead", fullgraph=True) if args.compile else model
    places = torch.arange(CACHED, device=args.device)
    text = torch.randint(0, shape.vocabulary, (GENERATE_BATCH, 1), device=args.device)
    # The place of the next token and the mask change on the device, so no step needs a copy from the host.
    place = torch.full((1,), PROMPT, device=args.device)

    def step():
        nonlocal text
        logits = forward(text, place, (places <= place)[None, None, None])
        text = logits[:, -1].argmax(-1, keepdim=True)
        place.copy_(torch.where(place + 1 < CACHED, place + 1, PROMPT))
    return torch.no_grad()(step)


KINDS = {"train": train, "lora": lora, "generate": generate}


class Job(Program):
    def wait(self):
        if self.stream:
            self.stream.synchronize()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--model", choices=SHAPES, default="1b")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    args = parser.parse_args()
    begin = time.monotonic()
    torch.set_num_threads(2)
    stream = torch.cuda.Stream() if args.device == "cuda" else None
    if stream:
        torch.cuda.set_stream(stream)
    step = KINDS[args.kind](SHAPES[args.model], args)
    built = time.monotonic()
    for number in range(5):
        step()
        if stream:
            stream.synchronize()
        if number == 2:
            warm = time.monotonic()
    step_ms = round(1e3 * (time.monotonic() - warm) / 2, 2)
    gc.collect()
    gc.freeze()
    say(event="ready", build_s=round(built - begin, 1), first_steps_s=round(warm - built, 1), step_ms=step_ms,
        gpu_bytes=torch.cuda.memory_reserved() if stream else 0)
    Job(torch, step, stream).run()


if __name__ == "__main__":
    main()

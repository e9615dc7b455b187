# SPDX-License-Identifier: Apache-2.0
"""A decoder of Llama's shape with random weights and a KV cache in blocks, for the benchmark's LLM server and its batch jobs.

`Llama.decode` makes one token for each row of a batch, `Llama.prefill` processes a part of one prompt.
"""
import dataclasses

import llm_kernels
import torch


@dataclasses.dataclass(frozen=True)
class Shape:
    """Sizes of a model."""
    layers: int
    width: int
    heads: int
    kv_heads: int
    size: int       # of a head
    inner: int
    vocabulary: int
    tied: bool      # whether the output matrix is the table of the input

    def parameters(self):
        layer = self.width * self.size * (2 * self.heads + 2 * self.kv_heads) + 3 * self.width * self.inner
        return self.layers * layer + self.vocabulary * self.width * (1 if self.tied else 2)


SHAPES = {
    "tiny": Shape(2, 64, 4, 2, 16, 128, 512, True),
    "1b": Shape(16, 2048, 16, 4, 128, 8192, 128256, True),
    "8b": Shape(32, 4096, 32, 8, 128, 14336, 128256, False),
}
ROPE_BASE = 500000.0


def random_weight(generator, rows, columns, dtype, device):
    weight = torch.empty(rows, columns, dtype=dtype, device=device)
    return weight.normal_(0, columns ** -0.5, generator=generator)


class Llama:
    """Weights are [outputs, inputs]. `caches` has keys and values of all layers: [layers, 2, slots, kv heads, size]."""

    def __init__(self, shape, blocks, block_size, most_length, device, dtype=None, seed=0):
        self.shape, self.block_size, self.device = shape, block_size, device
        self.dtype = dtype or (torch.bfloat16 if device == "cuda" else torch.float32)
        generator = torch.Generator(device).manual_seed(seed)

        def weight(rows, columns):
            return random_weight(generator, rows, columns, self.dtype, device)
        s = shape
        self.table = weight(s.vocabulary, s.width)
        self.output = self.table if s.tied else weight(s.vocabulary, s.width)
        ones = torch.ones(s.width, dtype=self.dtype, device=device)
        self.norm = ones
        self.layers = [{"qkv": weight((s.heads + 2 * s.kv_heads) * s.size, s.width), "o": weight(s.width, s.heads * s.size),
                        "gate_up": weight(2 * s.inner, s.width), "down": weight(s.width, s.inner),
                        "before": ones.clone(), "after": ones.clone()} for _ in range(s.layers)]
        self.caches = torch.zeros(s.layers, 2, blocks * block_size, s.kv_heads, s.size, dtype=self.dtype, device=device)
        turns = ROPE_BASE ** (-torch.arange(0, s.size, 2, dtype=torch.float64) / s.size)
        angles = torch.outer(torch.arange(most_length, dtype=torch.float64), turns)
        self.cosine, self.sine = (part.float().to(device) for part in (angles.cos(), angles.sin()))

    def run_layers(self, tokens, positions, slots, attend):
        """Hidden states after all layers; attend(layer number, queries) -> [rows, heads, size]."""
        s = self.shape
        x, delta = torch.nn.functional.embedding(tokens, self.table), None
        for number, layer in enumerate(self.layers):
            y = llm_kernels.add_norm(x, delta, layer["before"])
            q = llm_kernels.rotate_store(torch.nn.functional.linear(y, layer["qkv"]), positions, slots, self.cosine, self.sine,
                                         s.heads, s.kv_heads, self.caches[number])
            delta = torch.nn.functional.linear(attend(number, q).reshape(len(x), s.heads * s.size), layer["o"])
            y = llm_kernels.add_norm(x, delta, layer["after"])
            delta = torch.nn.functional.linear(llm_kernels.gate(torch.nn.functional.linear(y, layer["gate_up"])), layer["down"])
        return x, delta

    def choose(self, x, delta):
        """The most likely next token of each row."""
        y = llm_kernels.add_norm(x.contiguous(), delta.contiguous(), self.norm)
        return torch.nn.functional.linear(y, self.output).argmax(-1)

    def decode(self, tokens, positions, slots, tables, lengths):
        """One token for each row. `tables`: blocks of each row; `lengths`: tokens of each row, the new one included."""
        return self.choose(*self.run_layers(tokens, positions, slots, lambda number, q: llm_kernels.attend_blocks(
            q, self.caches[number], tables, lengths, self.block_size)))

    def prefill(self, tokens, positions, slots):
        """A part of one prompt. `slots`: of all tokens of the sequence up to the part's end. Returns the token that follows."""
        def attend(number, q):
            return llm_kernels.attend_prompt(q, *self.caches[number].index_select(1, slots))
        x, delta = self.run_layers(tokens, positions, slots[-len(tokens):], attend)
        return self.choose(x[-1:], delta[-1:])

# SPDX-License-Identifier: Apache-2.0
"""Executes the scheduler's steps on the GPU: eager prefill, decoding eager or as one CUDA graph for each batch size.

The host reads the tokens of every step, because they are streamed. Called by llm_server.py from one thread.
"""
import os
import time

import numpy
import torch
from llm_blocks import PADDING_BLOCK, graph_sizes
from llm_model import Llama

HIGHEST_PRIORITY = -5  # of a CUDA stream


def table_of(sequence):
    """The sequence's blocks as an array, made once, because lists are slow to copy."""
    if sequence.table is None:
        sequence.table = numpy.array(sequence.blocks, dtype=numpy.int32)
    return sequence.table


class Batch:
    """Decoding of one batch size: its inputs, which one copy fills, and its graph (None = eager).

    Inputs are one tensor of int32, so that one copy brings all: token, position, slot, length and blocks of each row."""
    FIXED = 4

    def __init__(self, model, rows, table_width, device):
        self.rows, self.graph = rows, None
        self.model, width = model, self.FIXED + table_width
        self.host = torch.zeros(rows, width, dtype=torch.int32, pin_memory=device == "cuda")
        self.values = self.host.numpy()
        self.there = torch.zeros(rows, width, dtype=torch.int32, device=device)
        self.result = torch.zeros(rows, dtype=torch.int64, device=device)
        self.answer = torch.zeros(rows, dtype=torch.int64, pin_memory=device == "cuda")

    def fill(self, sequences, block_size):
        self.values[:, 0:3] = 0
        self.values[:, 3] = 1
        self.values[:, self.FIXED] = PADDING_BLOCK
        for row, sequence in enumerate(sequences):
            place = sequence.length - 1
            self.values[row, :self.FIXED] = (sequence.generated[-1], place,
                                             sequence.blocks[place // block_size] * block_size + place % block_size, place + 1)
            self.values[row, self.FIXED:self.FIXED + len(sequence.blocks)] = table_of(sequence)

    def calculate(self):
        tokens, positions, slots, lengths = (self.there[:, column].contiguous() for column in range(self.FIXED))
        self.result.copy_(self.model.decode(tokens, positions, slots, self.there[:, self.FIXED:].contiguous(), lengths))

    def capture(self, stream, pool):
        self.fill([], 1)
        self.there.copy_(self.host)
        for _ in range(2):
            self.calculate()
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream, pool=pool):
            self.calculate()
        self.graph = graph

    def launch(self):
        self.there.copy_(self.host, non_blocking=True)
        if self.graph:
            self.graph.replay()
        else:
            self.calculate()
        self.answer.copy_(self.result, non_blocking=True)


class Engine:
    """A model with its blocks on one device. All GPU work is on one stream."""

    def __init__(self, shape, scheduler, graphs, device):
        self.device, self.scheduler, self.block_size = device, scheduler, scheduler.block_size
        self.stream = None
        if device == "cuda":
            self.stream = torch.cuda.Stream(priority=HIGHEST_PRIORITY if os.environ.get("HB_BENCH_STREAM") == "high" else 0)
            torch.cuda.set_stream(self.stream)
            torch.backends.cuda.enable_cudnn_sdp(False)  # it builds a plan for each new length of a prompt: 50 ms
        self.model = Llama(shape, scheduler.pool.blocks, self.block_size, scheduler.most_length, device)
        width = -(-scheduler.most_length // self.block_size)
        self.first = torch.zeros(1, dtype=torch.int64, pin_memory=device == "cuda")
        self.chunk = torch.zeros(2 * scheduler.chunk + scheduler.most_length, dtype=torch.int64, pin_memory=device == "cuda")
        self.batches = {rows: Batch(self.model, rows, width, device) for rows in graph_sizes(scheduler.most_sequences)}
        if graphs and self.stream:
            pool = torch.cuda.graph_pool_handle()
            for rows in sorted(self.batches, reverse=True):
                self.batches[rows].capture(self.stream, pool)

    def wait(self):
        if self.stream:
            self.stream.synchronize()

    def launch_prefill(self, step):
        """Launches a part of a prompt; its inputs are one copy."""
        sequence, count, end = step.prefill, step.count, step.start + step.count
        values = self.chunk.numpy()
        values[:count] = sequence.prompt[step.start:end]
        values[count:2 * count] = numpy.arange(step.start, end)
        slots = table_of(sequence)[:, None] * self.block_size + numpy.arange(self.block_size)
        values[2 * count:2 * count + end] = slots.reshape(-1)[:end]
        there = self.chunk[:2 * count + end].to(self.device, non_blocking=True)
        token = self.model.prefill(there[:count], there[count:2 * count], there[2 * count:])
        if step.first_token:
            self.first.copy_(token, non_blocking=True)

    def run(self, step):
        """Executes a step; returns (the prompt's first token or None, tokens of the sequences that decode)."""
        if step.prefill:
            self.launch_prefill(step)
        batch = None
        if step.decode:
            batch = self.batches[min(rows for rows in self.batches if rows >= len(step.decode))]
            batch.fill(step.decode, self.block_size)
            batch.launch()
        self.wait()
        tokens = batch.answer[:len(step.decode)].tolist() if batch else []
        return int(self.first[0]) if step.first_token else None, tokens

    def measure_step(self, rows, length, steps):
        """Microseconds of a decoding step of that many rows with that many tokens each, for the line that says ready."""
        batch = self.batches[rows]
        batch.fill([], self.block_size)
        batch.values[:, 1] = batch.values[:, 3] = length - 1
        for _ in range(3):
            batch.launch()
        self.wait()
        begin = time.monotonic()
        for _ in range(steps):
            batch.launch()
            self.wait()
        return round(1e6 * (time.monotonic() - begin) / steps)

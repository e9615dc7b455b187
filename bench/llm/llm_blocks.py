# SPDX-License-Identifier: Apache-2.0
"""The KV cache's blocks and the order of work of the benchmark's LLM server: continuous batching, as servers of today do it.

Pure: no PyTorch, no clock, no threads. llm_engine.py executes the steps.
"""
import collections
import dataclasses

PADDING_BLOCK = 0  # rows of a batch that no sequence uses write here


class BlockPool:
    """Numbers of free blocks. Block 0 is never given out."""

    def __init__(self, blocks):
        if blocks < 2:
            raise ValueError(f"the KV cache has {blocks} blocks; it needs 2 at least")
        self.blocks = blocks
        self.free = list(range(blocks - 1, PADDING_BLOCK, -1))

    def take(self, count):
        """A list of `count` blocks, or None when fewer are free."""
        if count > len(self.free):
            return None
        taken = self.free[len(self.free) - count:]
        del self.free[len(self.free) - count:]
        return taken

    def give_back(self, blocks):
        if set(blocks) & set(self.free) or PADDING_BLOCK in blocks:
            raise ValueError(f"blocks {sorted(blocks)} are not in use")
        self.free.extend(blocks)


class Sequence:
    """A request: its prompt, what was generated, and its blocks."""

    def __init__(self, prompt, most_tokens):
        self.prompt, self.most_tokens = prompt, most_tokens
        self.blocks, self.prefilled, self.generated = [], 0, []
        self.cancelled = False
        self.table = None  # the engine's copy of `blocks`

    @property
    def length(self):
        """Tokens whose keys and values are in the cache once the next step has run."""
        return len(self.prompt) + len(self.generated)

    @property
    def prefill_left(self):
        return len(self.prompt) - self.prefilled

    @property
    def finished(self):
        return self.cancelled or len(self.generated) >= self.most_tokens


@dataclasses.dataclass
class Step:
    """A step has at most one part of a prompt and one token for each sequence of `decode`."""
    prefill: Sequence = None
    start: int = 0
    count: int = 0
    decode: list = dataclasses.field(default_factory=list)

    @property
    def first_token(self):
        """Whether the prompt ends in this step, so that it also gives a token."""
        return self.prefill is not None and self.start + self.count == len(self.prefill.prompt)


class Scheduler:
    """Requests in the order of arrival. A request is admitted when blocks for its prompt and its longest answer are free, so
    no sequence has to be thrown out later. Each step has at most `chunk` tokens of one prompt, so that long prompts delay the
    other answers by one part only."""

    def __init__(self, pool, block_size, most_sequences, chunk, most_length):
        self.pool, self.block_size, self.most_sequences = pool, block_size, most_sequences
        self.chunk, self.most_length = chunk, most_length
        self.waiting, self.running = collections.deque(), []

    def blocks_for(self, sequence):
        return -(-(len(sequence.prompt) + sequence.most_tokens) // self.block_size)

    def check(self, sequence):
        """Raises ValueError when the request could never be served."""
        total = len(sequence.prompt) + sequence.most_tokens
        if not sequence.prompt or sequence.most_tokens < 1:
            raise ValueError("a request needs a prompt and at least one token to generate")
        if total > self.most_length:
            raise ValueError(f"prompt and answer have {total} tokens together; the limit is {self.most_length}")
        if self.blocks_for(sequence) > self.pool.blocks - 1:
            raise ValueError(f"the request needs {self.blocks_for(sequence)} blocks; the KV cache has {self.pool.blocks - 1}")

    def add(self, sequence):
        self.check(sequence)
        self.waiting.append(sequence)

    def drop_finished(self):
        for sequence in [one for one in self.running if one.finished]:
            self.running.remove(sequence)
            self.pool.give_back(sequence.blocks)
            sequence.blocks = []
        while self.waiting and self.waiting[0].cancelled:
            self.waiting.popleft()

    def admit(self):
        while self.waiting and len(self.running) < self.most_sequences:
            blocks = self.pool.take(self.blocks_for(self.waiting[0]))
            if blocks is None:
                return
            sequence = self.waiting.popleft()
            sequence.blocks = blocks
            self.running.append(sequence)

    def next_step(self):
        """The next step, or None without work."""
        self.drop_finished()
        self.admit()
        if not self.running:
            return None
        step = Step(decode=[one for one in self.running if not one.prefill_left])
        prefill = next((one for one in self.running if one.prefill_left), None)
        if prefill:
            step.prefill, step.start = prefill, prefill.prefilled
            step.count = min(prefill.prefill_left, self.chunk)
        return step

    def complete(self, step, first_token, tokens):
        """Notes the results of a step: the prompt's first token (None if it has not ended) and one token for each sequence of
        `decode`. Returns (sequence, token) of all of them."""
        given = list(zip(step.decode, tokens))
        if step.prefill:
            step.prefill.prefilled += step.count
        if step.first_token:
            given.append((step.prefill, first_token))
        for sequence, token in given:
            sequence.generated.append(token)
        return given


def graph_sizes(most):
    """Batch sizes for which decoding is captured as a CUDA graph; a batch runs as the next larger one."""
    return [size for size in (1, 2, 4, 8, 12, 16, 24, 32, 48, 64) if size < most] + [most]

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a model with random weights in GGUF, version 3, for llama.cpp: architecture "llama", 16-bit weights.

  write_gguf.py 1b|8b|tiny FILE

The shapes are those of llm_model.py. The vocabulary has the 256 bytes and made-up words. Needs numpy.
"""
import os
import struct
import sys

import numpy

U32, I32, F32, STRING, ARRAY = 4, 5, 6, 8, 9
TYPE_F32, TYPE_F16 = 0, 1
ALIGNMENT = 32
BLOCK = 1 << 24  # random numbers that are drawn once and used again for each matrix
FIRST_WORD = 3 + 256
NORMAL, UNKNOWN, CONTROL, BYTE = 1, 2, 3, 6
# layers, width, heads, heads of keys and values, size of a head, inner width, vocabulary, whether input and output share a table
SHAPES = {"tiny": (2, 256, 2, 1, 128, 512, 512, True), "1b": (16, 2048, 16, 4, 128, 8192, 128256, True),
          "8b": (32, 4096, 32, 8, 128, 14336, 128256, False)}
CONTEXT = 131072


def text(value):
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def entry(key, kind, value):
    if kind == STRING:
        return text(key) + struct.pack("<I", kind) + text(value)
    return text(key) + struct.pack("<I" + {U32: "I", F32: "f"}[kind], kind, value)


def array(key, kind, values):
    head = text(key) + struct.pack("<IIQ", ARRAY, kind, len(values))
    if kind == STRING:
        return head + b"".join(text(value) for value in values)
    return head + struct.pack(f"<{len(values)}{'i' if kind == I32 else 'f'}", *values)


def vocabulary(size):
    """(words, scores, kinds)"""
    words = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)]
    words += [f"w{number}" for number in range(size - len(words))]
    kinds = [UNKNOWN, CONTROL, CONTROL] + [BYTE] * 256 + [NORMAL] * (size - FIRST_WORD)
    return words, [-float(number) for number in range(size)], kinds


def metadata(shape):
    layers, width, heads, kv_heads, size, inner, words_count, _ = shape
    words, scores, kinds = vocabulary(words_count)
    return [entry("general.architecture", STRING, "llama"), entry("general.name", STRING, "random"),
            entry("general.file_type", U32, 1), entry("general.alignment", U32, ALIGNMENT),
            entry("llama.context_length", U32, CONTEXT), entry("llama.embedding_length", U32, width),
            entry("llama.block_count", U32, layers), entry("llama.feed_forward_length", U32, inner),
            entry("llama.attention.head_count", U32, heads), entry("llama.attention.head_count_kv", U32, kv_heads),
            entry("llama.attention.key_length", U32, size), entry("llama.attention.value_length", U32, size),
            entry("llama.attention.layer_norm_rms_epsilon", F32, 1e-5), entry("llama.rope.dimension_count", U32, size),
            entry("llama.rope.freq_base", F32, 500000.0), entry("llama.vocab_size", U32, words_count),
            entry("tokenizer.ggml.model", STRING, "llama"), array("tokenizer.ggml.tokens", STRING, words),
            array("tokenizer.ggml.scores", F32, scores), array("tokenizer.ggml.token_type", I32, kinds),
            entry("tokenizer.ggml.bos_token_id", U32, 1), entry("tokenizer.ggml.eos_token_id", U32, 2),
            entry("tokenizer.ggml.unknown_token_id", U32, 0)]


def tensors(shape):
    """[(name, dimensions with the inner one first)]; one dimension = a norm."""
    layers, width, heads, kv_heads, size, inner, words, tied = shape
    found = [("token_embd.weight", (width, words))]
    for number in range(layers):
        at = f"blk.{number}."
        found += [(at + "attn_norm.weight", (width,)), (at + "attn_q.weight", (width, heads * size)),
                  (at + "attn_k.weight", (width, kv_heads * size)), (at + "attn_v.weight", (width, kv_heads * size)),
                  (at + "attn_output.weight", (heads * size, width)), (at + "ffn_norm.weight", (width,)),
                  (at + "ffn_gate.weight", (width, inner)), (at + "ffn_up.weight", (width, inner)),
                  (at + "ffn_down.weight", (inner, width))]
    return found + [("output_norm.weight", (width,))] + ([] if tied else [("output.weight", (width, words))])


def bytes_of(dimensions):
    return 4 * dimensions[0] if len(dimensions) == 1 else 2 * dimensions[0] * dimensions[1]


def padding(position):
    return -position % ALIGNMENT


def write_matrix(file, unit, scaled, dimensions):
    """Random numbers with the spread that keeps the sizes of activations."""
    columns, left = dimensions[0], dimensions[0] * dimensions[1]
    if columns not in scaled:
        scaled[columns] = (unit * columns ** -0.5).astype(numpy.float16)
    begin = (dimensions[1] * 7919 + file.tell()) % (len(unit) // 2)
    while left:
        piece = scaled[columns][begin:begin + left]
        file.write(memoryview(piece))
        left, begin = left - len(piece), 0


def write_words(file, unit, scaled, dimensions):
    """A table of words. Its rows of bytes and marks are zero, so that none of them is the most likely word: a server sends
    nothing for a byte that is no complete character."""
    file.write(bytes(2 * dimensions[0] * FIRST_WORD))
    write_matrix(file, unit, scaled, (dimensions[0], dimensions[1] - FIRST_WORD))


def write_model(shape, path):
    infos, position = b"", 0
    for name, dimensions in tensors(shape):
        kind = TYPE_F32 if len(dimensions) == 1 else TYPE_F16
        infos += text(name) + struct.pack(f"<I{len(dimensions)}QIQ", len(dimensions), *dimensions, kind, position)
        position += bytes_of(dimensions)
        position += padding(position)
    entries = metadata(shape)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors(shape)), len(entries)) + b"".join(entries) + infos
    unit, scaled = numpy.random.default_rng(0).standard_normal(BLOCK, dtype=numpy.float32), {}
    with open(path, "wb") as file:
        file.write(head + bytes(padding(len(head))))
        for name, dimensions in tensors(shape):
            if len(dimensions) == 1:
                file.write(numpy.ones(dimensions[0], numpy.float32).tobytes())
            elif name in ("token_embd.weight", "output.weight"):
                write_words(file, unit, scaled, dimensions)
            else:
                write_matrix(file, unit, scaled, dimensions)
            file.write(bytes(padding(bytes_of(dimensions))))


def main():
    if len(sys.argv) != 3 or sys.argv[1] not in SHAPES:
        sys.exit(__doc__)
    write_model(SHAPES[sys.argv[1]], sys.argv[2])
    print(f"{sys.argv[2]}: {os.path.getsize(sys.argv[2])} bytes")


if __name__ == "__main__":
    main()

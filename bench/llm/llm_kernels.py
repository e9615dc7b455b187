# SPDX-License-Identifier: Apache-2.0
"""Kernels of the benchmark's language model beside matrix products: in Triton on a GPU, in plain PyTorch elsewhere.

The KV cache of a layer is one tensor [slots, heads, size]; a slot is block * block size + place in the block. Both forms of a
function compute the same, and tests/end-to-end/test_llm_model.py compares them in Triton's interpreter.
"""
import os

import torch

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
EPSILON = 1e-5
TILE = 64              # tokens that one step of the attention kernel reads
ATTENTION_BLOCKS = 264  # thread blocks that fill an H200 twice


def uses_triton(tensor):
    return triton is not None and (tensor.is_cuda or INTERPRETED)


if triton is not None:
    @triton.jit
    def add_norm_kernel(x, delta, weight, out, width, epsilon, HAS_DELTA: tl.constexpr, BLOCK: tl.constexpr):
        row = tl.program_id(0).to(tl.int64)
        at = tl.arange(0, BLOCK)
        inside = at < width
        value = tl.load(x + row * width + at, mask=inside, other=0.0).to(tl.float32)
        if HAS_DELTA:
            value += tl.load(delta + row * width + at, mask=inside, other=0.0).to(tl.float32)
            tl.store(x + row * width + at, value.to(x.dtype.element_ty), mask=inside)
        scale = 1.0 / tl.sqrt(tl.sum(value * value, axis=0) / width + epsilon)
        gain = tl.load(weight + at, mask=inside, other=0.0).to(tl.float32)
        tl.store(out + row * width + at, (value * scale * gain).to(out.dtype.element_ty), mask=inside)

    @triton.jit
    def rotate_store_kernel(qkv, positions, slots, cosine, sine, q_out, k_cache, v_cache, HEADS: tl.constexpr,
                            KV_HEADS: tl.constexpr, HALF: tl.constexpr):
        row = tl.program_id(0).to(tl.int64)
        head = tl.program_id(1)
        at = tl.arange(0, HALF)
        source = qkv + (row * (HEADS + 2 * KV_HEADS) + head) * 2 * HALF
        first = tl.load(source + at).to(tl.float32)
        second = tl.load(source + HALF + at).to(tl.float32)
        slot = tl.load(slots + row).to(tl.int64)
        if head < HEADS + KV_HEADS:
            position = tl.load(positions + row).to(tl.int64)
            c = tl.load(cosine + position * HALF + at)
            s = tl.load(sine + position * HALF + at)
            left = first * c - second * s
            second = second * c + first * s
            first = left
        if head < HEADS:
            to = q_out + (row * HEADS + head) * 2 * HALF
        elif head < HEADS + KV_HEADS:
            to = k_cache + (slot * KV_HEADS + head - HEADS) * 2 * HALF
        else:
            to = v_cache + (slot * KV_HEADS + head - HEADS - KV_HEADS) * 2 * HALF
        tl.store(to + at, first.to(q_out.dtype.element_ty))
        tl.store(to + HALF + at, second.to(q_out.dtype.element_ty))

    @triton.jit
    def gate_kernel(gate_up, out, inner, BLOCK: tl.constexpr):
        row = tl.program_id(0).to(tl.int64)
        at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
        inside = at < inner
        gate = tl.load(gate_up + row * 2 * inner + at, mask=inside, other=0.0).to(tl.float32)
        up = tl.load(gate_up + row * 2 * inner + inner + at, mask=inside, other=0.0).to(tl.float32)
        tl.store(out + row * inner + at, (gate / (1.0 + tl.exp(-gate)) * up).to(out.dtype.element_ty), mask=inside)

    @triton.jit
    def attend_kernel(q, k_cache, v_cache, tables, lengths, part_out, part_max, part_sum, scale, table_width,
                      BLOCK_SIZE: tl.constexpr, GROUP: tl.constexpr, ROWS: tl.constexpr, KV_HEADS: tl.constexpr,
                      SIZE: tl.constexpr, PARTS: tl.constexpr, TILE: tl.constexpr):
        row = tl.program_id(0).to(tl.int64)
        kv_head = tl.program_id(1)
        part = tl.program_id(2)
        length = tl.load(lengths + row)
        tiles = (length + TILE - 1) // TILE
        each = (tiles + PARTS - 1) // PARTS
        begin = part * each * TILE
        end = tl.minimum(begin + each * TILE, length)
        heads = tl.arange(0, ROWS)
        dims = tl.arange(0, SIZE)
        used = heads < GROUP
        query_at = (row * KV_HEADS + kv_head) * GROUP + heads
        query = tl.load(q + query_at[:, None] * SIZE + dims[None, :], mask=used[:, None], other=0.0)
        most = tl.full([ROWS], -1e30, tl.float32)
        total = tl.zeros([ROWS], tl.float32)
        out = tl.zeros([ROWS, SIZE], tl.float32)
        for start in range(begin, end, TILE):
            tokens = start + tl.arange(0, TILE)
            inside = tokens < end
            block = tl.load(tables + row * table_width + tokens // BLOCK_SIZE, mask=inside, other=0).to(tl.int64)
            at = ((block * BLOCK_SIZE + tokens % BLOCK_SIZE) * KV_HEADS + kv_head) * SIZE
            keys = tl.load(k_cache + at[:, None] + dims[None, :], mask=inside[:, None], other=0.0)
            values = tl.load(v_cache + at[:, None] + dims[None, :], mask=inside[:, None], other=0.0)
            scores = tl.dot(query, tl.trans(keys)) * scale
            scores = tl.where(inside[None, :], scores, -1e30)
            new_most = tl.maximum(most, tl.max(scores, axis=1))
            weight = tl.exp(scores - new_most[:, None])
            weight = tl.where(inside[None, :], weight, 0.0)
            shrink = tl.exp(most - new_most)
            total = total * shrink + tl.sum(weight, axis=1)
            out = out * shrink[:, None] + tl.dot(weight.to(values.dtype), values)
            most = new_most
        part_at = query_at * PARTS + part
        tl.store(part_out + part_at[:, None] * SIZE + dims[None, :], out, mask=used[:, None])
        tl.store(part_max + part_at, most, mask=used)
        tl.store(part_sum + part_at, total, mask=used)

    @triton.jit
    def join_kernel(part_out, part_max, part_sum, out, SIZE: tl.constexpr, PARTS: tl.constexpr):
        head = tl.program_id(0).to(tl.int64)
        parts = tl.arange(0, PARTS)
        dims = tl.arange(0, SIZE)
        most = tl.load(part_max + head * PARTS + parts)
        weight = tl.exp(most - tl.max(most, axis=0))
        total = tl.sum(weight * tl.load(part_sum + head * PARTS + parts), axis=0)
        values = tl.load(part_out + (head * PARTS + parts)[:, None] * SIZE + dims[None, :])
        tl.store(out + head * SIZE + dims, (tl.sum(values * weight[:, None], axis=0) / total).to(out.dtype.element_ty))


def add_norm(x, delta, weight):
    """x += delta (if there is one), then the RMS norm of x."""
    if uses_triton(x):
        out = torch.empty_like(x)
        width = x.shape[1]
        add_norm_kernel[(x.shape[0],)](x, x if delta is None else delta, weight, out, width, EPSILON, delta is not None,
                                       triton.next_power_of_2(width), num_warps=8 if width >= 2048 else 4)
        return out
    if delta is not None:
        x += delta
    value = x.float()
    return (value * torch.rsqrt(value.square().mean(-1, keepdim=True) + EPSILON) * weight.float()).to(x.dtype)


def rotate_store(qkv, positions, slots, cosine, sine, heads, kv_heads, caches):
    """Rotates queries and keys by their position, stores keys and values in the cache, and returns the queries."""
    rows, half = qkv.shape[0], cosine.shape[1]
    k_cache, v_cache = caches
    if uses_triton(qkv):
        q = torch.empty(rows, heads, 2 * half, dtype=qkv.dtype, device=qkv.device)
        rotate_store_kernel[(rows, heads + 2 * kv_heads)](qkv, positions, slots, cosine, sine, q, k_cache, v_cache, heads,
                                                          kv_heads, half, num_warps=1)
        return q
    parts = qkv.view(rows, heads + 2 * kv_heads, 2 * half)
    first, second = parts[:, :heads + kv_heads, :half].float(), parts[:, :heads + kv_heads, half:].float()
    c, s = cosine[positions.long()][:, None], sine[positions.long()][:, None]
    turned = torch.cat([first * c - second * s, second * c + first * s], -1).to(qkv.dtype)
    k_cache[slots.long()] = turned[:, heads:]
    v_cache[slots.long()] = parts[:, heads + kv_heads:]
    return turned[:, :heads]


def gate(gate_up):
    """silu of the first half times the second half."""
    inner = gate_up.shape[1] // 2
    if uses_triton(gate_up):
        out = torch.empty(gate_up.shape[0], inner, dtype=gate_up.dtype, device=gate_up.device)
        gate_kernel[(gate_up.shape[0], triton.cdiv(inner, 1024))](gate_up, out, inner, 1024, num_warps=4)
        return out
    left, right = gate_up.float().split(inner, -1)
    return (torch.nn.functional.silu(left) * right).to(gate_up.dtype)


def attention_parts(rows, kv_heads):
    """How many thread blocks share the tokens of one row and head; a power of two."""
    parts = 1
    while parts < 32 and rows * kv_heads * parts * 2 <= ATTENTION_BLOCKS:
        parts *= 2
    return parts


def attend_blocks(q, caches, tables, lengths, block_size):
    """Attention of one new token for each row over the row's blocks; `lengths` counts the new token."""
    rows, heads, size = q.shape
    k_cache, v_cache = caches
    kv_heads = k_cache.shape[1]
    if uses_triton(q):
        parts = attention_parts(rows, kv_heads)
        out = torch.empty_like(q)
        part_out = torch.empty(rows * heads * parts * size, dtype=torch.float32, device=q.device)
        part_max, part_sum = torch.empty(2, rows * heads * parts, dtype=torch.float32, device=q.device)
        attend_kernel[(rows, kv_heads, parts)](q, k_cache, v_cache, tables, lengths, part_out, part_max, part_sum,
                                               size ** -0.5, tables.shape[1], block_size, heads // kv_heads,
                                               max(16, triton.next_power_of_2(heads // kv_heads)), kv_heads, size, parts,
                                               TILE, num_warps=4, num_stages=2)
        join_kernel[(rows * heads,)](part_out, part_max, part_sum, out, size, parts, num_warps=4)
        return out
    out = torch.empty_like(q)
    for row in range(rows):
        length = int(lengths[row])
        slots = slots_of(tables[row], length, block_size)
        out[row] = attend_prompt(q[row:row + 1], k_cache[slots], v_cache[slots])[0]
    return out


def slots_of(table, length, block_size):
    """The slots of a sequence's first `length` tokens."""
    at = torch.arange(length, device=table.device)
    return table.long()[at // block_size] * block_size + at % block_size


def attend_prompt(q, keys, values):
    """Attention of the last len(q) tokens of a sequence over all its tokens, causal."""
    from torch.nn.attention.bias import causal_lower_right  # pylint: disable=import-outside-toplevel
    repeat = q.shape[1] // keys.shape[1]
    q, keys, values = (part.transpose(0, 1)[None] for part in (q, keys.repeat_interleave(repeat, 1),
                                                             values.repeat_interleave(repeat, 1)))
    if q.shape[2] == keys.shape[2]:
        out = torch.nn.functional.scaled_dot_product_attention(q, keys, values, is_causal=True)
    else:
        out = torch.nn.functional.scaled_dot_product_attention(q, keys, values, causal_lower_right(q.shape[2], keys.shape[2]))
    return out[0].transpose(0, 1)

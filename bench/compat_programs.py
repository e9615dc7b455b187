#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Small programs of each framework that print what they computed; run by compat.py.

  compat_programs.py NAME    every program is deterministic: the same text each time
"""
import hashlib
import os
import sys

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
os.environ.setdefault("XLA_FLAGS", "--xla_gpu_deterministic_ops=true")


def digest(array):
    return hashlib.sha256(memoryview(array).tobytes()).hexdigest()[:16]


def seeded_torch():
    import torch
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True)
    return torch


def small_net(torch):
    return torch.nn.Sequential(torch.nn.Conv2d(3, 16, 3, padding=1), torch.nn.BatchNorm2d(16), torch.nn.ReLU(),
                               torch.nn.AvgPool2d(8), torch.nn.Flatten(), torch.nn.Linear(256, 10)).cuda()


def torch_eager():
    torch = seeded_torch()
    x = torch.randn(512, 512, device="cuda")
    for _ in range(50):
        x = torch.tanh(x @ x * 0.01 + 0.1)
    print("eager", digest(x.cpu().numpy()))


def torch_train():
    torch = seeded_torch()
    net = small_net(torch)
    optimizer = torch.optim.SGD(net.parameters(), 0.01)
    images, labels = torch.randn(32, 3, 32, 32, device="cuda"), torch.arange(32, device="cuda") % 10
    losses = []
    for _ in range(30):
        loss = torch.nn.functional.cross_entropy(net(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss))
    print("train", losses[0], losses[-1])


def torch_compile():
    torch = seeded_torch()
    function = torch.compile(lambda x: (torch.sin(x) * 2 + torch.cos(x)).sum(dim=1))
    print("compile", digest(function(torch.randn(256, 1024, device="cuda")).cpu().numpy()))


def torch_graphs():
    torch = seeded_torch()
    net, x = small_net(torch).eval(), torch.randn(8, 3, 32, 32, device="cuda")
    stream = torch.cuda.Stream()
    with torch.no_grad(), torch.cuda.stream(stream):
        for _ in range(3):
            net(x)
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            y = net(x)
        for _ in range(20):
            graph.replay()
        stream.synchronize()
    print("graphs", digest(y.cpu().numpy()))


def torch_streams():
    torch = seeded_torch()
    base, streams, results = torch.randn(256, 256, device="cuda"), [torch.cuda.Stream() for _ in range(4)], []
    torch.cuda.synchronize()
    for i, stream in enumerate(streams):
        with torch.cuda.stream(stream):
            x = base * (i + 1)
            for _ in range(20):
                x = torch.tanh(x @ base * 0.01)
            results.append(x)
            stream.record_event().synchronize()
    pinned = torch.empty(256, 256, pin_memory=True)
    pinned.copy_(sum(results), non_blocking=True)
    torch.cuda.synchronize()
    print("streams", digest(pinned.numpy()))


def torch_allocators():
    torch = seeded_torch()
    blocks = [torch.full((1 << 20,), float(i), device="cuda") for i in range(64)]
    total = float(sum(block[0] for block in blocks))
    del blocks
    torch.cuda.empty_cache()
    free, all_of_it = torch.cuda.mem_get_info()
    print("allocators", total, 0 < free <= all_of_it)


def torch_cudnn_attention():
    torch = seeded_torch()
    q, k, v = (torch.randn(2, 8, 256, 64, device="cuda", dtype=torch.float16) for _ in range(3))
    out = torch.nn.functional.scaled_dot_product_attention(q, k, v)
    print("attention", digest(out.float().cpu().numpy()))


def torch_workers():
    torch = seeded_torch()

    class Numbers(torch.utils.data.Dataset):
        def __len__(self):
            return 64

        def __getitem__(self, index):
            return torch.full((8,), float(index))
    x = torch.zeros(1, device="cuda")
    for batch in torch.utils.data.DataLoader(Numbers(), batch_size=8, num_workers=2, pin_memory=True):
        x += batch.cuda(non_blocking=True).sum()
    print("workers", float(x))


def torch_nccl():
    torch = seeded_torch()
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(20000 + os.getpid() % 20000))
    torch.distributed.init_process_group("nccl", rank=0, world_size=1)
    x = torch.arange(1024, device="cuda", dtype=torch.float32)
    torch.distributed.all_reduce(x)
    torch.cuda.synchronize()
    torch.distributed.destroy_process_group()
    print("nccl", float(x.sum()))


def jax_jit():
    import jax
    import jax.numpy as jnp
    step = jax.jit(lambda x: jnp.tanh(x @ x * 0.01) + 0.1)
    x = jnp.ones((256, 256)) * 0.3
    for _ in range(20):
        x = step(x)
    gradient = jax.grad(lambda w: jnp.sum(jnp.sin(w) ** 2))(jnp.arange(100.0))
    print("jax", jax.devices()[0].platform, float(x.sum()), float(gradient.sum()))


def cupy_raw():
    import cupy
    kernel = cupy.RawKernel(r"""extern "C" __global__ void scale(float *x, float by, int n) {
        int i = blockDim.x * blockIdx.x + threadIdx.x; if (i < n) x[i] *= by; }""", "scale")
    x = cupy.arange(100000, dtype=cupy.float32)
    kernel((391,), (256,), (x, cupy.float32(1.5), cupy.int32(x.size)))
    y = cupy.fft.fft(x[:1024])
    print("cupy", digest(cupy.asnumpy(x)), round(float(abs(y).sum()), 1), float((x[:512].reshape(16, 32) @ x[:32]).sum()))


def triton_kernel():
    import torch
    import triton
    import triton.language as tl

    @triton.jit
    def add(x_pointer, y_pointer, out_pointer, n, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        inside = at < n
        tl.store(out_pointer + at, tl.load(x_pointer + at, mask=inside) * 2 + tl.load(y_pointer + at, mask=inside),
                 mask=inside)
    x = torch.arange(100000, device="cuda", dtype=torch.float32)
    out = torch.empty_like(x)
    add[(triton.cdiv(x.numel(), 1024),)](x, x, out, x.numel(), BLOCK=1024)
    print("triton", digest(out.cpu().numpy()))


def numba_kernel():
    import numpy
    if not hasattr(numpy, "row_stack"):  # numba-cuda still asks for what NumPy 2.5 has dropped
        numpy.row_stack = numpy.vstack
    from numba import cuda

    @cuda.jit
    def square(x):
        i = cuda.grid(1)
        if i < x.size:
            x[i] = x[i] * x[i]
    x = cuda.to_device(numpy.arange(10000, dtype=numpy.float32))
    square[40, 256](x)
    print("numba", digest(x.copy_to_host()))


def profiler():
    torch = seeded_torch()
    from torch.profiler import ProfilerActivity, profile
    with profile(activities=[ProfilerActivity.CUDA]) as recorded:
        x = torch.randn(256, 256, device="cuda")
        (x @ x).sum().item()
    kernels = [event for event in recorded.events() if event.device_type == torch.autograd.DeviceType.CUDA]
    print("profiler", len(kernels) > 0)


PROGRAMS = [torch_eager, torch_train, torch_compile, torch_graphs, torch_streams, torch_allocators,
            torch_cudnn_attention, torch_workers, torch_nccl, jax_jit, cupy_raw, triton_kernel, numba_kernel, profiler]


if __name__ == "__main__":
    {program.__name__: program for program in PROGRAMS}[sys.argv[1]]()

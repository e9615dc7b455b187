#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs kernels of a module in PTX text and prints a JSON object whose digests must not depend on splitting.

    split_text.py [STEPS]

Started by tests/gpu/split_check.py with and without the shim, as split_training.py is. NVRTC compiles the source below to
PTX, and the module is loaded with cuModuleLoadData, as programs with a compiler of their own do. The kernels divide, take
roots and use long chains of additions, where another choice of the compiler would change the last bits.
"""

import ctypes
import glob
import hashlib
import json
import os
import sys
import time

import torch

SIDE = 2048
SOURCE = b"""
extern "C" __global__ void line(float *out, const float *in, int side)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	float x = in[i];
	for (int k = 0; k < 600; k++)
		x = sqrtf(x * x + 1.0f) / (1.0f + 0.5f * x) + 0.001f * k;
	out[i] = x;
}
extern "C" __global__ void stencil(float *out, const float *in, int side)
{
	int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
	float sum = 0.0f;
	for (int dy = -9; dy <= 9; dy++)
		for (int dx = -9; dx <= 9; dx++)
			sum += in[((y + dy) & (side - 1)) * side + ((x + dx) & (side - 1))] / (1.0f + dx * dx + dy * dy);
	out[y * side + x] = 0.3f * sum;
}
extern "C" __global__ void cube(float *out, const float *in, int side)
{
	__shared__ float tile[256];
	int i = ((blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x) * blockDim.x + threadIdx.x;
	tile[threadIdx.x] = in[i];
	__syncthreads();
	float sum = 0.0f;
	for (int k = 0; k < 256; k++)
		sum += __expf(-fabsf(tile[(threadIdx.x + k) & 255] - tile[threadIdx.x])) / (k + 1);
	out[i] = sum;
}
"""
# Kernel -> grid and block. Each thread computes one of SIDE * SIDE elements.
SHAPES = {"line": ((SIDE * SIDE // 256, 1, 1), (256, 1, 1)), "stencil": ((SIDE // 32, SIDE // 8, 1), (32, 8, 1)),
          "cube": ((16, 32, SIDE * SIDE // 256 // 512), (256, 1, 1))}


def checked(result):
    if result:
        sys.exit(f"split_text.py: a call of NVRTC or of the driver failed with error {result}")


def compile_to_ptx():
    """The text of the module."""
    site = os.path.dirname(os.path.dirname(torch.__file__))
    found = glob.glob(os.path.join(site, "nvidia", "*", "lib", "libnvrtc.so.[0-9]*"))
    nvrtc = ctypes.CDLL(found[0] if found else "libnvrtc.so")
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    checked(nvrtc.nvrtcCreateProgram(ctypes.byref(program), SOURCE, b"kernels.cu", 0, None, None))
    option = b"--gpu-architecture=compute_%d%d" % torch.cuda.get_device_capability()
    checked(nvrtc.nvrtcCompileProgram(program, 1, (ctypes.c_char_p * 1)(option)))
    checked(nvrtc.nvrtcGetPTXSize(program, ctypes.byref(size)))
    text = ctypes.create_string_buffer(size.value)
    checked(nvrtc.nvrtcGetPTX(program, text))
    return text


def load():
    """(driver, kernel name -> function) of the module."""
    driver = ctypes.CDLL("libcuda.so.1")
    module = ctypes.c_void_p()
    checked(driver.cuModuleLoadData(ctypes.byref(module), compile_to_ptx()))
    functions = {}
    for name in SHAPES:
        functions[name] = ctypes.c_void_p()
        checked(driver.cuModuleGetFunction(ctypes.byref(functions[name]), module, name.encode()))
    return driver, functions


def launch(driver, function, shape, out, given):
    arguments = [ctypes.c_void_p(out.data_ptr()), ctypes.c_void_p(given.data_ptr()), ctypes.c_int(SIDE)]
    pointers = (ctypes.c_void_p * 3)(*(ctypes.addressof(argument) for argument in arguments))
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    checked(driver.cuLaunchKernel(function, *shape[0], *shape[1], 0, stream, pointers, None))


def digest(tensor):
    return hashlib.sha256(tensor.cpu().view(torch.uint8).numpy().tobytes()).hexdigest()


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    torch.manual_seed(1)
    values, next_values = torch.rand(SIDE * SIDE, device="cuda"), torch.empty(SIDE * SIDE, device="cuda")
    driver, functions = load()
    sums = []
    torch.cuda.synchronize()
    begin = time.monotonic()
    for _ in range(steps):
        for name, shape in SHAPES.items():
            launch(driver, functions[name], shape, next_values, values)
            values, next_values = next_values, values
        sums.append(values.view(torch.int32).sum())  # of integers, so that the order does not matter
    torch.cuda.synchronize()
    took = time.monotonic() - begin
    print(json.dumps({"model": "text", "steps": steps, "losses": digest(torch.stack(sums)), "parameters": digest(values),
                      "libraries": None, "each_loss": [one.item() for one in sums], "step_ms": 1e3 * took / steps}))


if __name__ == "__main__":
    main()

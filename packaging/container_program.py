#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A CUDA program for the containers of try_containers.sh: Python and the driver on the simulated GPU, nothing else.

usage: container_program.py train        kernels of 1 ms without pause, until SIGTERM; then it prints how many
       container_program.py serve        50 requests of four kernels a second, until SIGTERM; then it prints how many
       container_program.py memory GIB   allocates 1 GiB at a time; prints what was granted, and waits for SIGTERM
"""
import ctypes
import signal
import sys
import time

IMAGE = b"HBSIM1\nkernel work ns_param=0 params=8\n"
asked_to_end = []


def call(name, *arguments):
    status = getattr(cuda, name)(*arguments)
    if status:
        sys.exit(f"{name}: error {status}")


def launch(function, ns):
    value = ctypes.c_uint64(ns)
    parameters = (ctypes.c_void_p * 1)(ctypes.addressof(value))
    call("cuLaunchKernel", function, 8, 1, 1, 256, 1, 1, 0, None, parameters, None)


def prepare():
    context, module, function, device = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_int()
    call("cuInit", 0)
    call("cuDeviceGet", ctypes.byref(device), 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    call("cuCtxSetCurrent", context)
    call("cuModuleLoadData", ctypes.byref(module), IMAGE)
    call("cuModuleGetFunction", ctypes.byref(function), module, b"work")
    return function


def train(function):
    rounds = 0
    while not asked_to_end:
        for _ in range(8):
            launch(function, 1_000_000)
        call("cuCtxSynchronize")
        rounds += 1
    return f"{8 * rounds} kernels"


def serve(function):
    requests = 0
    while not asked_to_end:
        time.sleep(0.02)
        for _ in range(4):
            launch(function, 50_000)
        call("cuCtxSynchronize")
        requests += 1
    return f"{requests} requests"


def allocate(gib):
    granted = 0
    address = ctypes.c_uint64()
    while granted < gib and cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(1 << 30)) == 0:
        granted += 1
    print(f"granted {granted} GiB", flush=True)
    while not asked_to_end:
        time.sleep(0.02)
    return "ended"


cuda = ctypes.CDLL("libcuda.so.1")
signal.signal(signal.SIGTERM, lambda *_: asked_to_end.append(True))
work = prepare()
print("running", flush=True)
print({"train": lambda: train(work), "serve": lambda: serve(work), "memory": lambda: allocate(int(sys.argv[2]))}[sys.argv[1]](),
      flush=True)

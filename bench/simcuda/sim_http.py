#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""sim_http.c in Python, over the standard library's server: sim_http.py KERNEL_US PREPARE_US prints "port N"."""
import ctypes
import http.server
import sys
import time


def check(result):
    if result:
        raise RuntimeError(f"CUDA error {result}")


class Gpu:
    def __init__(self, kernel_us):
        self.cuda = ctypes.CDLL("libcuda.so.1")
        context, module, self.kernel, self.stream = (ctypes.c_void_p() for _ in range(4))
        image = f"HBSIM1\nkernel work ns={kernel_us * 1000}\n".encode()
        check(self.cuda.cuInit(0))
        check(self.cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0))
        check(self.cuda.cuModuleLoadData(ctypes.byref(module), image))
        check(self.cuda.cuModuleGetFunction(ctypes.byref(self.kernel), module, b"work"))
        check(self.cuda.cuStreamCreate(ctypes.byref(self.stream), 1))

    def infer(self):
        check(self.cuda.cuLaunchKernel(self.kernel, 132, 1, 1, 256, 1, 1, 0, self.stream, None, None))
        check(self.cuda.cuStreamSynchronize(self.stream))


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        ready = time.monotonic() + self.server.prepare_us / 1e6
        while time.monotonic() < ready:
            pass
        self.server.gpu.infer()
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, *args):
        pass


def main():
    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    server.gpu, server.prepare_us = Gpu(int(sys.argv[1])), int(sys.argv[2])
    server.gpu.infer()
    print("port", server.server_address[1], flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()

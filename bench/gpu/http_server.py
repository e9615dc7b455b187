#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An HTTP inference server as people write them: aiohttp, a resnet50 graph, batch 1. Knows nothing of Hummingbird.

  http_server.py --port PORT --ready FILE

POST /infer with 150,528 bytes (224 x 224 x 3) answers with the class. GET
/times gives what the handler measured since the last time: microseconds from
the graph's launch to the end of the synchronize, and the moment (monotonic
seconds) of each launch. Started by foresight_gpu.py.
"""
import argparse
import logging
import time
import warnings

warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)
SIZE = 224 * 224 * 3


class Service:
    def __init__(self):
        import timm
        import torch
        self.torch = torch
        self.stream = torch.cuda.Stream()
        with torch.cuda.stream(self.stream), torch.inference_mode():
            model = timm.create_model("resnet50", pretrained=False).cuda().to(memory_format=torch.channels_last)
            model = model.eval().half()
            self.input = torch.zeros(1, 3, 224, 224, device="cuda", dtype=torch.half).to(
                memory_format=torch.channels_last)
            for _ in range(10):
                model(self.input)
            torch.cuda.synchronize()
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph, stream=self.stream):
                self.output = model(self.input)
        self.pinned = torch.zeros(1, 3, 224, 224, dtype=torch.half).pin_memory()
        self.mean = torch.tensor([0.485, 0.456, 0.406]).view(1, 3, 1, 1)
        self.deviation = torch.tensor([0.229, 0.224, 0.225]).view(1, 3, 1, 1)
        self.times = []

    def infer(self, body):
        torch = self.torch
        with torch.inference_mode(), torch.cuda.stream(self.stream):
            pixels = torch.frombuffer(bytearray(body), dtype=torch.uint8).view(1, 224, 224, 3).permute(0, 3, 1, 2)
            self.pinned.copy_((pixels.float() / 255 - self.mean) / self.deviation)
            self.input.copy_(self.pinned, non_blocking=True)
            begin = time.monotonic()
            self.graph.replay()
            self.stream.synchronize()
            self.times.append([round((time.monotonic() - begin) * 1e6, 1), begin])
            return int(self.output.argmax())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--ready", required=True)
    args = parser.parse_args()
    import torch
    from aiohttp import web
    torch.set_num_threads(2)
    service = Service()
    for _ in range(10):
        service.infer(bytes(SIZE))

    async def infer(request):
        return web.json_response({"class": service.infer(await request.read())})

    async def times(request):
        taken, service.times = service.times, []
        return web.json_response(taken)

    async def ready(app):
        open(args.ready, "w").close()

    app = web.Application()
    app.add_routes([web.post("/infer", infer), web.get("/times", times)])
    app.on_startup.append(ready)
    web.run_app(app, host="127.0.0.1", port=args.port, print=None, access_log=None)


if __name__ == "__main__":
    main()

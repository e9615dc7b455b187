# SPDX-License-Identifier: Apache-2.0
"""An HTTP inference server as people write them: aiohttp, a resnet50 graph, batch 1. It does not know of Hummingbird.

POST /infer with 150,528 bytes (224 x 224 x 3) answers with the class. torch_program.py starts it in a thread and takes
from it the time of each request from the graph's launch to the end of the synchronize.
"""
import asyncio
import threading
import time

SIZE = 224 * 224 * 3


class Service:
    def __init__(self, torch, stream):
        import timm
        self.torch, self.stream = torch, stream
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
            self.times.append(round((time.monotonic() - begin) * 1e9))
            return int(self.output.argmax())


async def serve_http(service, ready):
    """Runs until the process ends; `ready` is called with the port."""
    from aiohttp import web

    async def infer(request):
        return web.json_response({"class": service.infer(await request.read())})
    app = web.Application()
    app.add_routes([web.post("/infer", infer)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    ready(runner.addresses[0][1])
    await asyncio.Event().wait()


def start_server(torch, stream):
    """(port, function that returns the times in ns since its last call)"""
    service, started, port = Service(torch, stream), threading.Event(), []
    for _ in range(10):
        service.infer(bytes(SIZE))
    service.times = []

    def ready(number):
        port.append(number)
        started.set()
    threading.Thread(target=lambda: asyncio.run(serve_http(service, ready)), daemon=True).start()
    if not started.wait(60):
        raise RuntimeError("the HTTP server does not start")

    def take_times():
        taken, service.times = service.times, []
        return taken
    return port[0], take_times

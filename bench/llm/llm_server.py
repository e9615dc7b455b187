#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An LLM server as people run them, for benchmarks: continuous batching, KV cache in blocks, CUDA graphs for decoding, tokens
streamed over HTTP. Random weights. It does not know of Hummingbird; HB_BENCH_STREAM=high puts its work on a stream of the
highest priority.

  llm_server.py --model 1b|8b|tiny [--port N] [--eager] [--device cuda|cpu]

  POST /v1/completions  {"prompt": [token, ...], "max_tokens": N, "stream": true|false}
  GET  /health          200 when it serves

The answer to a request has exactly max_tokens tokens. The first line on standard output is a JSON object with the port.
"""
import argparse
import asyncio
import collections
import gc
import json
import os
import signal
import socket
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from llm_blocks import BlockPool, Scheduler, Sequence  # noqa: E402  pylint: disable=wrong-import-position

BODY_MOST = 1 << 20
HEAD_S = 30
WARM_PROMPTS = [4, 16, 24, 40, 64, 90, 128, 190, 256, 320, 390, 450, 512, 700, 1024, 1400, 2048]
WARM_ANSWER = 4
SWITCH_S = 0.0002  # how long one thread may keep the other from running
REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 413: "Content Too Large", 503: "Service Unavailable"}


class Refused(Exception):
    """A request that cannot be served: (status, text)."""


class Worker(threading.Thread):
    """The thread that runs the model. New requests and cancellations come through `inbox`; tokens go to the event loop."""

    def __init__(self, engine, loop):
        super().__init__(daemon=True)
        self.engine, self.loop = engine, loop
        self.inbox, self.wake = collections.deque(), threading.Event()
        self.steps = 0

    def submit(self, sequence):
        self.inbox.append(sequence)
        self.wake.set()

    def take_new(self):
        while self.inbox:
            self.engine.scheduler.add(self.inbox.popleft())

    @staticmethod
    def deliver(given):
        for sequence, token in given:
            sequence.listener(token, sequence.finished)

    def run(self):
        import torch  # pylint: disable=import-outside-toplevel
        if self.engine.stream:
            torch.cuda.set_stream(self.engine.stream)  # the current stream belongs to a thread
        with torch.inference_mode():
            while True:
                self.take_new()
                step = self.engine.scheduler.next_step()
                if step is None:
                    self.wake.wait()
                    self.wake.clear()
                    continue
                given = self.engine.scheduler.complete(step, *self.engine.run(step))
                self.steps += 1
                if given:
                    self.loop.call_soon_threadsafe(self.deliver, given)


def read_request(body, scheduler, vocabulary):
    """(Sequence, whether to stream) of the JSON body."""
    try:
        wanted = json.loads(body)
        prompt, most, stream = wanted["prompt"], wanted.get("max_tokens", 16), wanted.get("stream", False)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise Refused(400, f"the body is no JSON object with a prompt: {error}") from error
    if not isinstance(prompt, list) or not all(isinstance(one, int) and 0 <= one < vocabulary for one in prompt):
        raise Refused(400, f"prompt: it must be a list of token numbers below {vocabulary}")
    if not isinstance(most, int):
        raise Refused(400, "max_tokens: it must be a number")
    sequence = Sequence(prompt, most)
    try:
        scheduler.check(sequence)
    except ValueError as error:
        raise Refused(400, str(error)) from error
    return sequence, bool(stream)


def token_event(token):
    return b'data: {"choices":[{"index":0,"text":"t%d ","finish_reason":null}]}\n\n' % token


LAST_EVENT = b'data: {"choices":[{"index":0,"text":"","finish_reason":"length"}]}\n\ndata: [DONE]\n\n'


class Server:
    def __init__(self, worker, vocabulary):
        self.worker, self.vocabulary = worker, vocabulary

    async def read_head(self, reader):
        """(method, path, length of the body)."""
        line = (await reader.readline()).split()
        if len(line) != 3:
            return None
        length = 0
        while (header := await reader.readline()) not in (b"\r\n", b"\n", b""):
            name, _, value = header.partition(b":")
            if name.strip().lower() == b"content-length":
                length = int(value) if value.strip().isdigit() else -1
        if not 0 <= length <= BODY_MOST:
            raise Refused(413, f"a body needs a Content-Length of at most {BODY_MOST} bytes")
        return line[0].decode("latin-1"), line[1].decode("latin-1"), length

    async def serve(self, reader, writer):
        """One connection, one request."""
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            head = await asyncio.wait_for(self.read_head(reader), HEAD_S)
            if head:
                body = await asyncio.wait_for(reader.readexactly(head[2]), HEAD_S)
                await self.answer(head[0], head[1], body, reader, writer)
        except Refused as refused:
            self.respond(writer, refused.args[0], {"error": {"message": refused.args[1]}})
        except (OSError, ValueError, asyncio.IncompleteReadError, asyncio.TimeoutError):
            pass
        finally:
            writer.close()

    @staticmethod
    def respond(writer, status, what):
        text = json.dumps(what).encode()
        writer.write(b"HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s"
                     % (status, REASONS[status].encode(), len(text), text))

    async def answer(self, method, path, body, reader, writer):
        if (method, path) == ("GET", "/health"):
            self.respond(writer, 200, {"status": "ok", "steps": self.worker.steps})
        elif (method, path) == ("POST", "/v1/completions"):
            sequence, stream = read_request(body, self.worker.engine.scheduler, self.vocabulary)
            await (self.stream if stream else self.whole)(sequence, reader, writer)
        else:
            raise Refused(404, f"{method} {path}: there are POST /v1/completions and GET /health")

    async def run_sequence(self, sequence, reader, on_token):
        """Until the last token, or until the client has closed its connection."""
        done = asyncio.get_running_loop().create_future()

        def listener(token, finished):
            on_token(token)
            if finished and not done.done():
                done.set_result(None)
        sequence.listener = listener
        self.worker.submit(sequence)
        gone = asyncio.ensure_future(reader.read(1))
        await asyncio.wait((done, gone), return_when=asyncio.FIRST_COMPLETED)
        gone.cancel()
        if not done.done():
            sequence.cancelled = True

    async def stream(self, sequence, reader, writer):
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
        await self.run_sequence(sequence, reader, lambda token: writer.write(token_event(token)))
        writer.write(LAST_EVENT)

    async def whole(self, sequence, reader, writer):
        tokens = []
        await self.run_sequence(sequence, reader, tokens.append)
        self.respond(writer, 200, {"choices": [{"index": 0, "text": "".join(f"t{token} " for token in tokens),
                                                "finish_reason": "length"}],
                                   "usage": {"prompt_tokens": len(sequence.prompt), "completion_tokens": len(tokens)}})


def warm_up(engine, scheduler, longest):
    """Serves one prompt of each length, so that the libraries load and choose their kernels before the first request."""
    for length in [length for length in WARM_PROMPTS if length < longest] + [longest]:
        scheduler.add(Sequence([1] * length, WARM_ANSWER))
        while (step := scheduler.next_step()) is not None:
            scheduler.complete(step, *engine.run(step))


def build_engine(args):
    """(engine, what the ready line says)."""
    begin = time.monotonic()
    import torch  # pylint: disable=import-outside-toplevel
    from llm_engine import Engine  # pylint: disable=import-outside-toplevel
    from llm_model import SHAPES  # pylint: disable=import-outside-toplevel
    torch.set_num_threads(2)
    imported = time.monotonic()
    scheduler = Scheduler(BlockPool(args.kv_tokens // args.block + 1), args.block, args.batch, args.chunk, args.length)
    with torch.inference_mode():
        engine = Engine(SHAPES[args.model], scheduler, not args.eager, args.device)
        warm_up(engine, scheduler, args.length - WARM_ANSWER)
        steps = {rows: engine.measure_step(rows, min(1024, args.length), 20) for rows in (1, 8) if rows in engine.batches}
    about = {"model": args.model, "parameters": SHAPES[args.model].parameters(), "graphs": not args.eager and args.device == "cuda",
             "import_s": round(imported - begin, 1), "start_s": round(time.monotonic() - begin, 1), "decode_us": steps}
    if args.device == "cuda":
        about |= {"gpu": torch.cuda.get_device_name(), "gpu_bytes": torch.cuda.memory_reserved()}
    return engine, about


async def serve_forever(args, engine, about):
    from llm_model import SHAPES  # pylint: disable=import-outside-toplevel
    loop = asyncio.get_running_loop()
    worker = Worker(engine, loop)
    worker.start()
    server = await asyncio.start_server(Server(worker, SHAPES[args.model].vocabulary).serve, args.host, args.port,
                                        limit=BODY_MOST, backlog=1024)
    print(json.dumps({"event": "ready", "port": server.sockets[0].getsockname()[1], **about}), flush=True)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await stop.wait()


def parse(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=("tiny", "1b", "8b"), default="1b")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 = any free one")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--eager", action="store_true", help="decode without CUDA graphs")
    parser.add_argument("--batch", type=int, default=32, help="most sequences at one time (32)")
    parser.add_argument("--chunk", type=int, default=512, help="most tokens of a prompt in one step (512)")
    parser.add_argument("--block", type=int, default=16, help="tokens of a block of the KV cache (16)")
    parser.add_argument("--kv-tokens", type=int, default=32768, help="tokens that the KV cache holds (32768)")
    parser.add_argument("--length", type=int, default=4096, help="most tokens of a prompt and its answer (4096)")
    return parser.parse_args(argv)


def main():
    args = parse(sys.argv[1:])
    sys.setswitchinterval(SWITCH_S)
    engine, about = build_engine(args)
    # Objects that live as long as the program are not collected, so the collector skips them.
    gc.collect()
    gc.freeze()
    asyncio.run(serve_forever(args, engine, about))
    os._exit(0)  # without waiting for the worker's thread


if __name__ == "__main__":
    main()

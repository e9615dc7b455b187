#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sends requests of a recorded trace to an LLM server and measures each token's arrival.

  llm_load.py --port N --rate R --seconds S [--skip N] [--trace FILE] ...       open loop: arrivals of the trace, scaled to R/s
  llm_load.py --port N --closed K --seconds S ...                              K requests at any time: the server's capacity

Arrivals, prompt lengths and answer lengths are those of successive requests of the trace, beginning with number --skip; only
time is scaled. The server must know POST /v1/completions with streaming, as llm_server.py and llama.cpp's llama-server do.
Standard output: a line {"event": "begun", "at": moment} when sending begins (CLOCK_MONOTONIC), then {"event": "results", ...}
with one row for each request: [due, sent, first token, last token, prompt tokens, answer tokens], in microseconds from the
beginning. Latencies count from when a request was due.
"""
import argparse
import asyncio
import csv
import json
import os
import random
import sys
import time

TRACE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../data/traces/azure-llm-2023-conv.csv")
COLUMNS = ["arrival_s", "prompt_tokens", "answer_tokens"]
TOKEN, LAST = b'"finish_reason":null', b"data: [DONE]"
WORDS = (260, 500)  # token numbers that are words in every model
CONNECT_S = 10


def read_trace(path):
    """[(arrival in seconds, prompt tokens, answer tokens)]; raises ValueError with the line's number."""
    with open(path, encoding="utf-8", newline="") as file:
        reader = csv.reader(file)
        if next(reader, None) != COLUMNS:
            raise ValueError(f"{path}:1: the columns must be {','.join(COLUMNS)}")
        rows = []
        for row in reader:
            try:
                at, prompt, answer = float(row[0]), int(row[1]), int(row[2])
            except (ValueError, IndexError) as error:
                raise ValueError(f"{path}:{reader.line_num}: {error}") from error
            if prompt < 1 or answer < 1 or rows and at < rows[-1][0]:
                raise ValueError(f"{path}:{reader.line_num}: lengths must be 1 at least and arrivals must not go back")
            rows.append((at, prompt, answer))
    if len(rows) < 2 or rows[-1][0] <= rows[0][0]:
        raise ValueError(f"{path}: it needs at least two requests at different times")
    return rows


def cut(prompt, answer, most_prompt, most_answer):
    return min(prompt, most_prompt), min(answer, most_answer)


def open_loop(trace, skip, rate, seconds, most):
    """[(due in seconds, prompt, answer)] for a window: successive requests of the trace with their gaps scaled so that the
    whole piece has the rate. The trace repeats after its end."""
    count = max(1, round(rate * seconds))
    chosen = [trace[(skip + i) % len(trace)] for i in range(count)]
    mean_gap = (trace[-1][0] - trace[0][0]) / (len(trace) - 1)
    gaps = [max(0.0, after[0] - before[0]) if after[0] >= before[0] else mean_gap
            for before, after in zip([trace[(skip - 1) % len(trace)]] + chosen, chosen)]
    scale = seconds / sum(gaps) if sum(gaps) else 0.0
    due, found = 0.0, []
    for gap, (_, prompt, answer) in zip(gaps, chosen):
        found.append((due, *cut(prompt, answer, *most)))
        due += gap * scale
    return found


def prompt_tokens(count, seed):
    """Different tokens for each request, so that no server can reuse another request's cache."""
    draw = random.Random(seed)
    return [draw.randrange(*WORDS) for _ in range(count)]


def body_of(number, prompt, answer):
    return json.dumps({"prompt": prompt_tokens(prompt, number), "max_tokens": answer, "stream": True, "ignore_eos": True,
                       "cache_prompt": False, "temperature": 0, "top_k": 1}).encode()


class Load:
    def __init__(self, args):
        self.args, self.begin = args, 0.0
        self.rows, self.gaps, self.failed = [], [], []

    def now_us(self):
        return round(1e6 * (time.monotonic() - self.begin))

    async def request(self, number, due_us, prompt, body):
        """One request on a connection of its own."""
        if due_us is not None:
            await asyncio.sleep(max(0.0, self.begin + due_us / 1e6 - time.monotonic()))
        sent = self.now_us()
        writer = None
        try:
            reader, writer = await asyncio.wait_for(asyncio.open_connection(self.args.host, self.args.port, limit=1 << 22),
                                                    CONNECT_S)
            writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n"
                         b"Connection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
            times = await self.read_tokens(reader)
            self.rows.append((sent if due_us is None else round(due_us), sent, times[0], times[-1], prompt, len(times)))
            self.gaps.extend((times[0], at - before) for before, at in zip(times, times[1:]))
        except (OSError, ValueError, asyncio.TimeoutError, asyncio.IncompleteReadError) as error:
            self.failed.append(f"request {number}: {type(error).__name__} {error}"[:200])
        finally:
            if writer:
                writer.close()

    async def read_tokens(self, reader):
        """When each token came."""
        status = await reader.readline()
        if b" 200 " not in status:
            rest = await reader.read(2000)
            raise ValueError(f"{status.decode(errors='replace').strip()}: {rest[-150:].decode(errors='replace')}")
        times = []
        while True:
            line = await reader.readline()
            if line.startswith(LAST):
                break
            if not line:
                raise ValueError(f"the answer ended after {len(times)} tokens")
            if TOKEN in line:
                times.append(self.now_us())
        if not times:
            raise ValueError("the answer has no tokens")
        return times

    async def run(self, trace):
        args = self.args
        most = (args.most_prompt, args.most_answer)
        requests = [] if args.closed else open_loop(trace, args.skip, args.rate, args.seconds, most)
        bodies = [body_of(args.skip + i, prompt, answer) for i, (_, prompt, answer) in enumerate(requests)]
        self.begin = time.monotonic() + 0.02
        print(json.dumps({"event": "begun", "at": self.begin}), flush=True)
        if args.closed:
            tasks = [asyncio.ensure_future(self.client(trace, i, most)) for i in range(args.closed)]
        else:
            tasks = [asyncio.ensure_future(self.request(args.skip + i, 1e6 * due, prompt, bodies[i]))
                     for i, (due, prompt, _) in enumerate(requests)]
        _, late = await asyncio.wait(tasks, timeout=args.seconds + args.wait)
        for task in late:
            task.cancel()
        self.failed += [f"not answered {args.wait:g} s after the window"] * len(late)

    async def client(self, trace, number, most):
        """Sends one request after another until the time is over."""
        while time.monotonic() < self.begin + self.args.seconds:
            _, prompt, answer = trace[(self.args.skip + number) % len(trace)]
            prompt, answer = cut(prompt, answer, *most)
            await self.request(self.args.skip + number, None, prompt, body_of(self.args.skip + number, prompt, answer))
            number += self.args.closed

    def report(self):
        gaps = sorted(gap for _, gap in self.gaps)
        print(json.dumps({"event": "results", "begin": self.begin, "requests": sorted(self.rows), "failed": self.failed[:20],
                          "failed_count": len(self.failed), "token_gaps_us": {
                              str(share): gaps[min(len(gaps) - 1, int(share * len(gaps)))] if gaps else None
                              for share in (0.5, 0.9, 0.99)}}), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--trace", default=TRACE)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--rate", type=float, help="requests a second")
    parser.add_argument("--closed", type=int, default=0)
    parser.add_argument("--skip", type=int, default=0)
    parser.add_argument("--most-prompt", type=int, default=2048, help="longer prompts are cut (2048)")
    parser.add_argument("--most-answer", type=int, default=512, help="longer answers are cut (512)")
    parser.add_argument("--wait", type=float, default=20, help="seconds to wait for answers after the window (20)")
    args = parser.parse_args()
    if not args.closed and not (args.rate and args.rate > 0):
        parser.error("--rate: it must be above 0")
    try:
        trace = read_trace(args.trace)
    except (OSError, ValueError) as error:
        sys.exit(f"llm_load.py: {error}")
    load = Load(args)
    asyncio.run(load.run(trace))
    load.report()


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A small HTTP load generator: open loop, Poisson, keep-alive connections, standard library only.

  http_load.py --port PORT --rate 60 --seconds 4 [--bytes 150528] [--path /infer] [--connections 8] [--seed 1]
  http_load.py --port PORT --hostile --rate 10000 --seconds 4

Prints {"begun", "ended", "sent", "latency_us": [...]}; the latency counts from
the moment the request was due. --hostile sends single bytes of a request that
never ends, which the server has to read and which lead to nothing.
"""
import argparse
import asyncio
import json
import random
import socket
import time


async def read_answer(reader):
    length = 0
    while True:
        line = await reader.readline()
        if not line:
            raise ConnectionError("the server has closed the connection")
        if line == b"\r\n":
            break
        if line.lower().startswith(b"content-length:"):
            length = int(line.split(b":")[1])
    return await reader.readexactly(length)


async def send_one(idle, args, message, due, latencies):
    reader, writer = await idle.get()
    writer.write(message)
    await writer.drain()
    await read_answer(reader)
    latencies.append(round((time.monotonic() - due) * 1e6, 1))
    idle.put_nowait((reader, writer))


async def load(args):
    head = "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % (args.path, args.bytes)
    message = head.encode() + bytes(args.bytes)
    idle = asyncio.Queue()
    for _ in range(args.connections):
        idle.put_nowait(await asyncio.open_connection("127.0.0.1", args.port))
    random.seed(args.seed)
    latencies, tasks = [], []
    begun = due = time.monotonic()
    while due < begun + args.seconds:
        due += random.expovariate(args.rate)
        while time.monotonic() < due - 0.0005:
            await asyncio.sleep(due - time.monotonic() - 0.0004)
        while time.monotonic() < due:
            pass
        tasks.append(asyncio.create_task(send_one(idle, args, message, due, latencies)))
        await asyncio.sleep(0)
    await asyncio.gather(*tasks)
    return {"begun": begun, "ended": time.monotonic(), "sent": len(tasks), "latency_us": latencies}


def hostile(args):
    connection = socket.create_connection(("127.0.0.1", args.port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.sendall(b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 900000\r\n\r\n" % args.path.encode())
    begun = time.monotonic()
    sent = 0
    while time.monotonic() < begun + args.seconds and sent < 800000:
        while time.monotonic() < begun + sent / args.rate:
            pass
        connection.send(b"x")
        sent += 1
    connection.close()
    return {"begun": begun, "ended": time.monotonic(), "sent": sent, "latency_us": []}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--rate", type=float, default=60)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--bytes", type=int, default=150528)
    parser.add_argument("--path", default="/infer")
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--hostile", action="store_true")
    args = parser.parse_args()
    print(json.dumps(hostile(args) if args.hostile else asyncio.run(load(args))))


if __name__ == "__main__":
    main()

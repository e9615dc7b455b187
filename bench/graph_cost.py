#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures what the replay of one CUDA graph costs in each place where a service can run, without any other program.

  bench/graph_cost.py --build build [--rounds 2] [--replays 250] [--places 'NAME; NAME'] [--budget SECONDS] [--out FILE]

The graph is one forward pass of BERT (batch 1, random weights). Each place is a new process, and the places take turns in each
round, because the processors of a host are shared. `shim off` and `masks off` show which part of the shim costs time; `two streams
used` is a program that ran one kernel on another stream (src/decide/takeover_steps.h). Needs a GPU,
PyTorch, transformers and MPS; prints a table of medians in microseconds last.
"""
import argparse
import json
import os
import signal
import statistics
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
from hbbench import tables  # noqa: E402  pylint: disable=wrong-import-position
from hbbench.process import Limits, Process  # noqa: E402  pylint: disable=wrong-import-position
from hbbench.stage import Stage  # noqa: E402  pylint: disable=wrong-import-position

LIMIT_S = 60
# Name: way of sharing, whether with high priority, variables of the service.
PLACES = {
    "native": ("timeslice", True, {}),
    "native, two streams used": ("timeslice", True, {"GRAPH_OTHER_STREAM": "1"}),
    "native, two used, default stream": ("timeslice", True, {"GRAPH_OTHER_STREAM": "1", "GRAPH_ON_DEFAULT": "1"}),
    "MPS": ("mps", True, {}),
    "MPS, default stream": ("mps", True, {"GRAPH_ON_DEFAULT": "1"}),
    "MPS, high stream priority": ("mps", True, {"GRAPH_PRIORITY": "-5"}),
    "temporal": ("temporal", True, {}),
    "spatial": ("spatial", True, {}),
    "spatial, masks off": ("spatial", True, {"HB_MASKS": "0"}),
    "spatial, shim off": ("spatial", True, {"HB_OFF": "1"}),
    "low priority alone": ("temporal", False, {}),
}
COLUMNS = ["with pauses", "launch call", "back to back", "on the GPU"]


def serve(replays):
    """The service: prints the medians of its replays."""
    import torch  # pylint: disable=import-outside-toplevel
    import transformers  # pylint: disable=import-outside-toplevel
    torch.manual_seed(0)
    own = torch.cuda.Stream(priority=int(os.environ.get("GRAPH_PRIORITY", "0")))
    stream = torch.cuda.default_stream() if os.environ.get("GRAPH_ON_DEFAULT") else own
    if os.environ.get("GRAPH_OTHER_STREAM"):
        with torch.cuda.stream(torch.cuda.Stream()):
            torch.ones(1, device="cuda")
    model = transformers.BertModel(transformers.BertConfig(attn_implementation="sdpa")).eval().cuda().half()
    words = torch.randint(0, 30000, (1, 128), device="cuda")
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    paused, calls, chained, on_gpu = [], [], [], []
    with torch.no_grad(), torch.cuda.stream(stream):
        for _ in range(3):
            model(words)
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=own):
            kept = model(words)
        for _ in range(replays):
            time.sleep(0.002)
            start = time.perf_counter()
            graph.replay()
            called = time.perf_counter()
            stream.synchronize()
            paused.append(time.perf_counter() - start)
            calls.append(called - start)
        for _ in range(replays // 4):
            start = time.perf_counter()
            for _ in range(4):
                graph.replay()
            stream.synchronize()
            chained.append((time.perf_counter() - start) / 4)
        for _ in range(replays):
            begin.record(stream)
            graph.replay()
            end.record(stream)
            stream.synchronize()
            on_gpu.append(begin.elapsed_time(end) / 1e3)
    del kept
    medians = [round(1e6 * statistics.median(values), 1) for values in (paused, calls, chained, on_gpu)]
    print(json.dumps({"event": "medians", "us": medians}), flush=True)


def measure(args, stage, name):
    """The medians of one process of a place."""
    way, high, variables = PLACES[name]
    before, environment = stage.place(tables.find_way(way), high, ())
    command = before + ["python3", os.path.abspath(__file__), "--serve", "--replays", str(args.replays)]
    process = Process(name, command, stage.environment(**environment, **variables), stage.folder, stage.limits, signal.SIGTERM)
    try:
        return process.hear("medians", LIMIT_S)["us"]
    finally:
        process.stop(LIMIT_S)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--build", default="build")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--replays", type=int, default=250)
    parser.add_argument("--places", default="", help=f"of: {'; '.join(PLACES)} (separated by ';'; default: all)")
    parser.add_argument("--budget", type=float, default=500, help="seconds after which no other process is started (500)")
    parser.add_argument("--out", help="write all medians to this file")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        serve(args.replays)
        return
    limits = Limits()
    limits.watch_signals()
    stage = Stage(os.path.abspath(os.path.join(args.build, "hb")), False, None, limits)
    chosen = [name.strip() for name in args.places.split(";") if name.strip()] or list(PLACES)
    for name in chosen:
        if name not in PLACES:
            parser.error(f"--places: there is no '{name}'")
    rows, end = {name: [] for name in chosen}, time.monotonic() + args.budget
    try:
        for name in chosen * args.rounds:
            if time.monotonic() < end:
                rows[name].append(measure(args, stage, name))
    finally:
        stage.close()
    if args.out:
        with open(args.out, "w", encoding="utf-8") as file:
            json.dump({"command": " ".join(sys.argv), "columns": COLUMNS, "medians_us": rows}, file, indent=1)
    print(f"{'us, median of each round':28}" + "".join(f"{column:>22}" for column in COLUMNS))
    for name, medians in rows.items():
        print(f"{name:28}" + "".join(f"{' '.join(str(row[i]) for row in medians):>22}" for i in range(len(COLUMNS))))


if __name__ == "__main__":
    main()

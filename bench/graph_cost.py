#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures what the replay of one CUDA graph costs in each place where a service can run, without any other program.

  bench/graph_cost.py --build build [--rounds 2] [--replays 250] [--out FILE]

The graph is one forward pass of BERT (batch 1, random weights). Each place is a new process, and the places take turns in each
round, because the processors of a host are shared. `off` and `no masks` show which part of the shim costs time. Needs a GPU,
PyTorch, transformers and MPS; prints a table of medians in microseconds last.
"""
import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

LIMIT_S = 60
# Name: options of `hb run`, None = without Hummingbird; variables of the service; whether it runs in a plain MPS server.
PLACES = {
    "native": (None, {}, False),
    "MPS": (None, {}, True),
    "MPS, high stream priority": (None, {"GRAPH_PRIORITY": "-5"}, True),
    "temporal": (["--engine", "temporal", "--priority", "high"], {}, False),
    "spatial": (["--engine", "spatial", "--priority", "high"], {}, False),
    "spatial, no masks": (["--engine", "spatial", "--priority", "high"], {"HB_MASKS": "0"}, False),
    "spatial, shim off": (["--engine", "spatial", "--priority", "high"], {"HB_OFF": "1"}, False),
    "low priority alone": (["--priority", "low"], {}, False),
}
COLUMNS = ["with pauses", "launch call", "back to back", "on the GPU"]


def serve(replays):
    """The service: prints the medians of its replays."""
    import torch  # pylint: disable=import-outside-toplevel
    import transformers  # pylint: disable=import-outside-toplevel
    torch.manual_seed(0)
    stream = torch.cuda.Stream(priority=int(os.environ.get("GRAPH_PRIORITY", "0")))
    model = transformers.BertModel(transformers.BertConfig(attn_implementation="sdpa")).eval().cuda().half()
    words = torch.randint(0, 30000, (1, 128), device="cuda")
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    paused, calls, chained, on_gpu = [], [], [], []
    with torch.no_grad(), torch.cuda.stream(stream):
        for _ in range(3):
            model(words)
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
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
    print(json.dumps([round(1e6 * statistics.median(values), 1) for values in (paused, calls, chained, on_gpu)]))


def measure(args, name, folder):
    """One process of a place: its medians, or what went wrong."""
    options, variables, in_mps = PLACES[name]
    environment = dict(os.environ, XDG_RUNTIME_DIR=folder, HOME=folder, **variables)
    command = [sys.executable, os.path.abspath(__file__), "--serve", "--replays", str(args.replays)]
    if options is not None:
        command = [os.path.join(args.build, "hb"), "run", *options, "--", *command]
    pipe = os.path.join(folder, "plain-mps")
    if in_mps:
        os.makedirs(pipe, exist_ok=True)
        environment |= {"CUDA_MPS_PIPE_DIRECTORY": pipe, "CUDA_MPS_LOG_DIRECTORY": pipe}
        subprocess.run(["nvidia-cuda-mps-control", "-d"], env=environment, check=True, timeout=LIMIT_S)
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    finally:
        if in_mps:
            subprocess.run(["nvidia-cuda-mps-control"], input="quit -t 2\n", text=True, env=environment, check=False,
                           timeout=LIMIT_S, capture_output=True)
    if done.returncode != 0:
        raise RuntimeError(f"{name}: status {done.returncode}: {done.stderr[-600:]}")
    return json.loads(done.stdout.splitlines()[-1])


def stop_daemon(args, folder):
    environment = dict(os.environ, XDG_RUNTIME_DIR=folder, HOME=folder)
    done = subprocess.run([os.path.join(args.build, "hb"), "status", "--json"], env=environment, capture_output=True, text=True,
                          timeout=LIMIT_S, check=False)
    if done.returncode == 0:
        daemon = json.loads(done.stdout)["daemon"]
        os.kill(daemon["pid"], signal.SIGTERM)
        if daemon.get("mps", {}).get("pipe"):
            environment["CUDA_MPS_PIPE_DIRECTORY"] = daemon["mps"]["pipe"]
            subprocess.run(["nvidia-cuda-mps-control"], input="quit -t 2\n", text=True, env=environment, check=False,
                           timeout=LIMIT_S, capture_output=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--build", default="build")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--replays", type=int, default=250)
    parser.add_argument("--out", help="write all medians to this file")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        serve(args.replays)
        return
    args.build = os.path.abspath(args.build)
    folder = tempfile.mkdtemp(prefix="hb-graph-")
    rows = {name: [] for name in PLACES}
    try:
        for _ in range(args.rounds):
            for name, medians in rows.items():
                medians.append(measure(args, name, folder))
    finally:
        stop_daemon(args, folder)
        shutil.rmtree(folder, ignore_errors=True)
    if args.out:
        with open(args.out, "w", encoding="utf-8") as file:
            json.dump({"command": " ".join(sys.argv), "columns": COLUMNS, "medians_us": rows}, file, indent=1)
    print(f"{'us, median of each round':28}" + "".join(f"{column:>22}" for column in COLUMNS))
    for name, medians in rows.items():
        print(f"{name:28}" + "".join(f"{' '.join(str(row[i]) for row in medians):>22}" for i in range(len(COLUMNS))))


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Simulates an LLM server beside low priority with `hb sim`, and judges whole answers instead of single tokens.

  llm_imitate.py --decode 1.3 --mixed 6.5 --rate 22 --slo 4.4 [--sharing spatial,temporal] [--hb build/hb] ...

The steps are those of the benchmark's server (llm_blocks.py) under the arrivals and lengths of the Azure trace: a step that only
decodes takes --decode ms. One that also reads n tokens of a prompt, at most 512, takes 0.6 + 0.4 n / 256 times --mixed ms. The
steps are planned as if each took its time alone. If the GPU is late, steps queue; they do not serve more texts then, as real
ones do. The simulation continues until they have ended. The output has one line for each way of sharing: LP relative to alone in
the whole seconds until the last step was due, the share of answers whose time per token is within --slo, and the median and
the p99 of that time. docs/decisions/0049-more-credit.md compares it with an H200.
"""
import argparse
import json
import math
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
sys.path.insert(0, HERE)
import llm_load  # noqa: E402  pylint: disable=wrong-import-position
from hbbench import stats  # noqa: E402  pylint: disable=wrong-import-position
from llm_blocks import BlockPool, Scheduler, Sequence  # noqa: E402  pylint: disable=wrong-import-position

NAME = "llm_server"
HEADER = "workload,iteration,kind,name,start_us,duration_us,grid,block,registers,shared_bytes,bytes"
BLOCK, BATCH, CHUNK, LONGEST = 16, 32, 512, 4096  # as llm_server.py by default
MOST = (2048, 256)                 # tokens of a prompt and of an answer
HOST_MS = 0.08                     # between two steps
DECODE_KERNELS, MIXED_KERNELS = 16, 60
LEAST_MIXED = 0.6                  # time of a mixed step with few tokens of a prompt, relative to one with TYPICAL tokens
TYPICAL = 256
ENOUGH = 2                         # simulated time, relative to the time until the last step was due


def plan_steps(requests, decode_ms, mixed_ms, kv_tokens):
    """Plans the steps of `requests` (due in seconds, prompt, answer). Returns the steps (begin in seconds, ms, mixed or not)
    and the answers (first step, last step, tokens)."""
    scheduler = Scheduler(BlockPool(kv_tokens // BLOCK + 1), BLOCK, BATCH, CHUNK, LONGEST)
    steps, answers, first, waiting, now = [], [], {}, list(requests), 0.0
    while True:
        while waiting and waiting[0][0] <= now:
            _, prompt, answer = waiting.pop(0)
            scheduler.add(Sequence([1] * prompt, answer))
        step = scheduler.next_step()
        if step is None:
            if not waiting:
                return steps, answers
            now = waiting[0][0]
            continue
        mixed = step.prefill is not None
        took_ms = mixed_ms * (LEAST_MIXED + (1 - LEAST_MIXED) * step.count / TYPICAL) if mixed else decode_ms
        for sequence, _ in scheduler.complete(step, 1, [1] * len(step.decode)):
            first.setdefault(id(sequence), len(steps))
            if sequence.finished:
                answers.append((first.pop(id(sequence)), len(steps), len(sequence.generated)))
        steps.append((now, took_ms, mixed))
        now += (took_ms + HOST_MS) / 1000


def trace_lines(steps):
    """Lines of a trace in which each step is an iteration."""
    yield HEADER
    for number, (_, took_ms, mixed) in enumerate(steps):
        kernels = MIXED_KERNELS if mixed else DECODE_KERNELS
        for i in range(kernels):
            yield (f"{NAME},{number},kernel,{'mixed' if mixed else 'decode'}{i % 8},{1000 * took_ms / kernels * i:.2f},"
                   f"{1000 * took_ms / kernels - 1:.2f},{264 if i % 2 else 132}x1x1,128x1x1,96,4096,0")


def times_per_token(answers, ends_ns):
    """Milliseconds for each token of the answers, in ascending order; infinite for one that did not end."""
    return sorted((ends_ns[last] - ends_ns[begin]) / (tokens - 1) / 1e6 if last < len(ends_ns) else math.inf
                  for begin, last, tokens in answers if tokens > 1)


def low_until(result, seconds):
    """Mean speed of low priority relative to alone in the whole seconds until this moment. Alone there are no intervals."""
    if "intervals" not in result:
        return result["low"][0]["relative"]
    shares = [one["low_relative"] for one in result["intervals"][:int(seconds)]]
    return sum(shares) / len(shares)


def simulate(args, folder, steps):
    """Runs `hb sim`; returns its results, one for each way of sharing."""
    trace, arrivals = os.path.join(folder, "steps.csv"), os.path.join(folder, "arrivals.txt")
    with open(trace, "w", encoding="utf-8") as file:
        file.writelines(line + "\n" for line in trace_lines(steps))
    with open(arrivals, "w", encoding="utf-8") as file:
        file.writelines(f"{begin:.6f}\n" for begin, _, _ in steps)
    service = f"{NAME}:graph@file:{arrivals},slo={args.slo}ms"
    command = [args.hb, "sim", "--trace", args.trace, "--trace", trace, "--high", service, "--low", args.low, "--sharing",
               args.sharing, "--seconds", f"{ENOUGH * steps[-1][0]:.0f}", "--every", "1s", "--json", "--latencies"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"llm_imitate.py: {' '.join(command)}: {done.stderr.strip()}")
    found = json.loads(done.stdout)
    return found if isinstance(found, list) else [found]


def parse(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--decode", type=float, required=True, help="ms of a step that only decodes")
    parser.add_argument("--mixed", type=float, required=True, help="ms of a step that also reads a prompt")
    parser.add_argument("--rate", type=float, required=True, help="requests each second")
    parser.add_argument("--slo", type=float, required=True, help="objective: ms for each token")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--skip", default="0,137", help="first requests of the pieces of the trace, one simulation for each")
    parser.add_argument("--kv-tokens", type=int, default=16384)
    parser.add_argument("--sharing", default="exclusive,mps_prio,temporal,spatial")
    parser.add_argument("--low", default="llama8_train_b4")
    parser.add_argument("--trace", default=os.path.join(HERE, "../../data/traces/h200-pytorch-2.11.csv.gz"),
                        help="where the program --low is recorded")
    parser.add_argument("--hb", default=os.path.join(HERE, "../../build/hb"))
    args = parser.parse_args(argv)
    try:
        args.skip = [int(word) for word in args.skip.split(",")]
    except ValueError:
        parser.error(f"--skip {args.skip}: must be whole numbers with commas between")
    if min(args.decode, args.mixed, args.rate, args.slo) <= 0:
        parser.error("times and the rate must be more than 0")
    if args.seconds < 2:
        parser.error(f"--seconds {args.seconds}: must be at least 2")
    if args.kv_tokens < sum(MOST) + BLOCK:
        parser.error(f"--kv-tokens {args.kv_tokens}: must be at least {sum(MOST) + BLOCK}, for the longest request")
    return args


def main():
    args = parse(sys.argv[1:])
    rows = {}
    for skip in args.skip:
        requests = llm_load.open_loop(llm_load.read_trace(llm_load.TRACE), skip, args.rate, args.seconds, MOST)
        steps, answers = plan_steps(requests, args.decode, args.mixed, args.kv_tokens)
        with tempfile.TemporaryDirectory() as folder:
            for result in simulate(args, folder, steps):
                low, times = rows.setdefault(result["sharing"], ([], []))
                low.append(low_until(result, steps[-1][0]))
                times += times_per_token(answers, result["high"][0]["end_ns"])
    print("sharing      LP   answers in SLO   ms/token: p50    p99")
    for name, (low, times) in rows.items():
        kept = sum(time <= args.slo for time in times) / len(times)
        print(f"{name:10} {100 * sum(low) / len(low):3.0f} % {100 * kept:14.1f} % {stats.quantile(times, 0.5):15.2f} "
              f"{stats.quantile(times, 0.99):6.1f}")


if __name__ == "__main__":
    main()

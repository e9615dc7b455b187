#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Proves on an NVIDIA GPU that split kernels compute the same as unsplit ones, and measures what splitting costs.

    tests/gpu/split_check.py --build build [--out FILE] [--only exact,broken,library,cost,training]

exact    runs every kernel of tests/cubin unsplit and in 1 to 64 parts, in 1, 2 and 3 dimensions: each block ran once
broken   does the same with parts that omit a block or overlap: the check must fail
library  splices every cubin of PyTorch, cuBLAS and cuDNN, and has the driver load the copies
cost     measures unsplit and split launches
training trains with PyTorch for 200 steps in each way of HOWS: losses, parameters and outputs of cuBLAS and cuDNN must
         be identical bit for bit; a difference is reported with its first step and both values
Exits with 1 if a check failed, with 77 without a GPU.
"""

import argparse
import glob
import importlib.util
import json
import os
import subprocess
import sys
import time


def libraries():
    spec = importlib.util.find_spec("torch")
    if not spec:
        return []
    site = os.path.dirname(os.path.dirname(spec.origin))
    patterns = ["torch/lib/libtorch_cuda.so", "nvidia/cu13/lib/libcublas.so.*", "nvidia/cu13/lib/libcublasLt.so.*",
                "nvidia/cudnn/lib/libcudnn_ops.so.*", "nvidia/cudnn/lib/libcudnn_engines_precompiled.so.*"]
    return [path for pattern in patterns for path in glob.glob(os.path.join(site, pattern))]


def proof(program, arguments, timeout_s, env=None):
    """Runs the program. Returns its exit status and the JSON object that it printed."""
    try:
        done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=timeout_s, check=False,
                              env={**os.environ, **(env or {})})
    except subprocess.TimeoutExpired:
        return 124, {"error": f"not done after {timeout_s} s"}
    try:
        return done.returncode, json.loads(done.stdout)
    except ValueError:
        return done.returncode or 1, {"error": (done.stderr or done.stdout).strip()[-500:]}


# The ways to train: without the shim; with one part for each wave of blocks, at any cost; with the few parts that the planner
# chooses if parts may be short and expensive; with the usual settings, where these small models may have nothing to split.
HOWS = {"whole": {}, "forced": {"HB_BENCH_SPLIT_US": "1", "HB_BENCH_SPLIT_COST_PERCENT": "1000000"},
        "short": {"HB_BENCH_SPLIT_US": "10", "HB_BENCH_SPLIT_COST_PERCENT": "200"}, "usual": {"HB_BENCH_SPLIT_US": "50"}}
MUST_SLICE = ("forced", "short")
DIGESTS = ("losses", "parameters", "libraries")


def start_training(options, model, how):
    env, report = dict(os.environ), f"/tmp/hb-slices-{os.getpid()}-{model}-{how}.json"
    if how != "whole":
        shim = os.path.join(os.path.abspath(options.build), "bench", "shim")
        env.update(HOWS[how], LD_LIBRARY_PATH=shim + ":" + env.get("LD_LIBRARY_PATH", ""), HB_BENCH_SPLIT_REPORT=report)
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "split_training.py")
    log = open(f"{report}.log", "w+", encoding="utf-8")
    return report, log, subprocess.Popen([sys.executable, script, model, str(options.steps)], text=True, env=env,
                                         stdout=subprocess.PIPE, stderr=log)


def end_training(report, log, program, timeout_s):
    try:
        out, _ = program.communicate(timeout=timeout_s)
        result = json.loads(out)
    except subprocess.TimeoutExpired:
        program.kill()
        program.communicate()
        return {"error": f"not done after {timeout_s} s"}
    except ValueError:
        log.seek(0)
        return {"error": log.read().strip()[-800:]}
    finally:
        log.close()
    if os.path.exists(report):
        with open(report, encoding="utf-8") as lines:
            result["launches"] = json.loads(lines.readlines()[-1])
    return result


def difference(model, how, run, whole):
    """Describes what the run computed differently from the run without the shim. Returns None if nothing differs."""
    wrong = [key for key in DIGESTS if run.get(key, "missing") != whole.get(key)]
    if not wrong:
        return None
    pairs = enumerate(zip(run.get("each_loss", []), whole.get("each_loss", [])))
    first = next((f"; first at step {step}: {ours!r} for {theirs!r}" for step, (ours, theirs) in pairs
                  if ours != theirs), "")
    return f"{model} {how}: {', '.join(wrong)} differ{first}"


def judge(results):
    """Returns one line for each failure in the results of training(). Pure."""
    wrong = []
    for model, runs in results.items():
        for how, run in runs.items():
            if "error" in run:
                wrong.append(f"{model} {how}: {run['error']}")
            elif how != "whole" and "launches" not in run:
                wrong.append(f"{model} {how}: the shim wrote no report")
            elif how in MUST_SLICE and not run["launches"]["split"]:
                wrong.append(f"{model} {how}: no kernel was split")
            elif how != "whole" and "error" not in runs["whole"]:
                found = difference(model, how, run, runs["whole"])
                wrong += [found] if found else []
    return wrong


def training(options):
    """Runs all trainings at the same time: only their results are compared, not their speed."""
    hows = ["whole", *(how for how in options.hows.split(",") if how != "whole")]
    programs = {(model, how): start_training(options, model, how) for model in options.models.split(",")
                for how in hows}
    by_when = time.monotonic() + options.limit_s
    results = {}
    for (model, how), program in programs.items():
        left_s = max(1.0, by_when - time.monotonic())
        results.setdefault(model, {})[how] = end_training(*program, left_s)
    wrong = judge(results)
    for line in wrong:
        print(line, file=sys.stderr)
    return not wrong, {**results, "wrong": wrong}


def training_table(results):
    lines = ["model    how      split    parts  step ms  losses"]
    for model, runs in results.items():
        for how, run in runs.items() if isinstance(runs, dict) else ():
            launches = run.get("launches", {})
            lines.append(f"{model:8} {how:7} {launches.get('split', 0):6} {launches.get('parts', 0):8} "
                         f"{run.get('step_ms', 0):8.1f}  {run.get('losses', 'none')[:16]}")
    return "\n".join(lines + [f"wrong: {line}" for line in results["wrong"]])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default="build")
    parser.add_argument("--kernels", default=os.path.join(os.path.dirname(__file__), "..", "cubin", "kernels.fatbin"))
    parser.add_argument("--out")
    parser.add_argument("--only", default="exact,broken,library,cost,training")
    parser.add_argument("--models", default="resnet50,gpt")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--hows", default=",".join(HOWS))
    parser.add_argument("--limit-s", type=float, default=200, help="for all trainings together")
    options = parser.parse_args()
    program = os.path.join(options.build, "tests", "gpu", "split-proof")
    results, failed = {}, []
    for part in options.only.split(","):
        if part == "exact":
            status, results[part] = proof(program, ["exact", options.kernels], 60)
            ok = status == 0
        elif part == "broken":
            runs = [proof(program, ["exact", options.kernels], 60, {"HB_PROOF_BREAK": how}) for how in ("once", "twice")]
            results[part] = [result for _, result in runs]
            ok = all(status == 1 and result.get("wrong", 0) > 0 for status, result in runs)
        elif part == "library":
            found = libraries()
            status, results[part] = proof(program, ["library", *found], 200) if found else (0, {"skipped": "no PyTorch"})
            ok = status == 0
        elif part == "training":
            ok, results[part] = training(options)
        else:
            status, results[part] = proof(program, ["cost", options.kernels], 60)
            ok = status == 0
        if part == "exact" and status == 77:
            return 77
        if not ok:
            failed.append(part)
    results["failed"] = failed
    text = json.dumps(results, indent=1)
    if options.out:
        with open(options.out, "w", encoding="utf-8") as out:
            out.write(text + "\n")
    print(text)
    if "training" in results:
        print(training_table(results["training"]))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

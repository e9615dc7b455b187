#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Proof on an NVIDIA GPU that sliced kernels do the same as whole ones, and what slicing costs.

    tests/gpu/slices.py --build build [--out FILE] [--only exact,broken,library,cost,training]

exact    every kernel of tests/cubin, whole and in 1 to 64 pieces, in 1, 2 and 3 dimensions: each block ran once
broken   the same with pieces that leave a block out, or overlap: must be found wrong (the test can fail)
library  every cubin of PyTorch, cuBLAS and cuDNN is spliced, and the driver loads the copies
cost     times of whole and sliced launches
training PyTorch, 200 steps, without the shim, in as many pieces as there are waves, and in pieces of 100 us: losses,
         parameters and outputs of cuBLAS and cuDNN are the same bit for bit
Exits with 1 when something is not as it should be, 77 without a GPU.
"""

import argparse
import glob
import importlib.util
import json
import os
import subprocess
import sys


def libraries():
    spec = importlib.util.find_spec("torch")
    if not spec:
        return []
    site = os.path.dirname(os.path.dirname(spec.origin))
    patterns = ["torch/lib/libtorch_cuda.so", "nvidia/cu13/lib/libcublas.so.*", "nvidia/cu13/lib/libcublasLt.so.*",
                "nvidia/cudnn/lib/libcudnn_ops.so.*", "nvidia/cudnn/lib/libcudnn_engines_precompiled.so.*"]
    return [path for pattern in patterns for path in glob.glob(os.path.join(site, pattern))]


def proof(program, arguments, timeout_s, env=None):
    """Runs the program; its exit status and the JSON object it printed."""
    try:
        done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=timeout_s, check=False,
                              env={**os.environ, **(env or {})})
    except subprocess.TimeoutExpired:
        return 124, {"error": f"not done after {timeout_s} s"}
    try:
        return done.returncode, json.loads(done.stdout)
    except ValueError:
        return done.returncode or 1, {"error": (done.stderr or done.stdout).strip()[-500:]}


# How training runs: without the shim; in as many pieces as there are waves, whatever that costs; as in use.
HOWS = {"whole": {}, "forced": {"HB_SLICE_US": "1", "HB_SLICE_COST_PERCENT": "1000000"}, "usual": {"HB_SLICE_US": "100"}}


def start_training(options, model, how):
    env, report = dict(os.environ), f"/tmp/hb-slices-{os.getpid()}-{model}-{how}.json"
    if how != "whole":
        shim = os.path.join(os.path.abspath(options.build), "src", "shim")
        env.update(HOWS[how], LD_LIBRARY_PATH=shim + ":" + env.get("LD_LIBRARY_PATH", ""), HB_SLICE_REPORT=report)
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "slice_training.py")
    log = open(f"{report}.log", "w+", encoding="utf-8")
    return report, log, subprocess.Popen([sys.executable, script, model, str(options.steps)], text=True, env=env,
                                         stdout=subprocess.PIPE, stderr=log)


def end_training(report, log, program, timeout_s):
    try:
        out, _ = program.communicate(timeout=timeout_s)
        result = json.loads(out)
    except subprocess.TimeoutExpired:
        program.kill()
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


def training(options):
    """All at once: only what they compute is looked at, not how fast."""
    programs = {(model, how): start_training(options, model, how) for model in options.models.split(",")
                for how in options.hows.split(",")}
    ended = {key: end_training(*program, 100) for key, program in programs.items()}
    results, ok = {}, True
    for (model, how), result in ended.items():
        results.setdefault(model, {})[how] = result
        ok &= "error" not in result and (how == "whole" or result["launches"]["sliced"] > 0)
    for runs in results.values():
        for key in ("losses", "parameters", "libraries"):
            ok &= len({run.get(key, "missing") for run in runs.values()}) == 1
    return ok, results


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default="build")
    parser.add_argument("--kernels", default=os.path.join(os.path.dirname(__file__), "..", "cubin", "kernels.fatbin"))
    parser.add_argument("--out")
    parser.add_argument("--only", default="exact,broken,library,cost,training")
    parser.add_argument("--models", default="resnet50,gpt")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--hows", default="whole,forced,usual")
    options = parser.parse_args()
    program = os.path.join(options.build, "tests", "gpu", "slice-proof")
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
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

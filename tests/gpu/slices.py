#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Proof on an NVIDIA GPU that sliced kernels do the same as whole ones, and what slicing costs.

    tests/gpu/slices.py --build build [--out FILE] [--only exact,broken,library,cost]

exact    every kernel of tests/cubin, whole and in 1 to 64 pieces, in 1, 2 and 3 dimensions: each block ran once
broken   the same with pieces that leave a block out, or overlap: must be found wrong (the test can fail)
library  every cubin of PyTorch, cuBLAS and cuDNN is spliced, and the driver loads the copies
cost     times of whole and sliced launches
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


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default="build")
    parser.add_argument("--kernels", default=os.path.join(os.path.dirname(__file__), "..", "cubin", "kernels.fatbin"))
    parser.add_argument("--out")
    parser.add_argument("--only", default="exact,broken,library,cost")
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

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures what the Slurm plugin adds to the start of a job step: `srun true` in a
partition with tenants and in one without, alternately, in a small cluster on this
machine (tests/slurm/cluster.py). Needs root and Slurm; no GPU.

usage: HB_BUILD=build bench/slurm_start.py [ROUNDS]
"""
import os
import statistics
import sys
import time

sys.path[:0] = [os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", folder) for folder in ("slurm", "end-to-end")]
from cluster import Cluster, missing  # noqa: E402


def seconds(cluster, partition):
    begin = time.monotonic()
    done = cluster.run("srun", f"--partition={partition}", "--nodelist=n1", "true")
    assert done.returncode == 0, done.stderr
    return time.monotonic() - begin


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 30
    if missing():
        sys.exit(f"slurm_start.py: {missing()}")
    with Cluster() as cluster:
        seconds(cluster, "plain"), seconds(cluster, "batch")
        pairs = [(seconds(cluster, "plain"), seconds(cluster, "batch")) for _ in range(rounds)]
    plain, managed = ([1e3 * pair[i] for pair in pairs] for i in range(2))
    added = sorted(b - a for a, b in zip(plain, managed))
    print(f"{rounds} pairs: srun without {statistics.median(plain):.0f} ms, with {statistics.median(managed):.0f} ms; "
          f"added: median {statistics.median(added):.0f} ms, p90 {added[int(0.9 * len(added))]:.0f} ms")


if __name__ == "__main__":
    main()

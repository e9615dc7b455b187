#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""bench/own_cost.py on a simulated GPU: it measures each place, compares with native, and says what fails.

usage: test_own_cost.py BUILD
"""
import json
import os
import subprocess
import sys
import tempfile

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../bench/own_cost.py")
PLACES = ["native", "temporal, high", "spatial, low", "temporal, high, shim off"]


def run(*options):
    return subprocess.run([sys.executable, SCRIPT, "--build", sys.argv[1], "--gpu", "sim", "--rounds", "1", "--calls", "64", "--idle", "20",
                           *options], capture_output=True, text=True, timeout=200, check=False)


def main():
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "own.json")
        done = run("--places", "; ".join(PLACES), "--start", "true", "--busy", "5", "--out", out)
        assert done.returncode == 0, done.stderr
        with open(out, encoding="utf-8") as file:
            found = json.load(file)
        assert list(found["medians"]) == PLACES and list(found["added_to_native"]) == PLACES[1:] and found["simulated"]
        for name, row in found["medians"].items():
            assert all(row[key] > 0 for key in ("launch_ns", "graph_launch_ns", "round_trip_ns", "allocation_ns", "ready_ms", "start_ms")), name
            assert row["pss_kib"] > 100 and "uj_per_kernel" not in row, (name, row)
        # The shim maps a page and starts a thread, so a tenant has more memory of its own.
        assert found["added_to_native"]["temporal, high"]["private_kib"] > 0, found["added_to_native"]
        assert set(found["daemons"]) == {"temporal", "spatial"} and all(row["pss_kib"] > 100 for row in found["daemons"].values())
        failed = run("--places", "native", "--start", "false")
        assert failed.returncode == 1 and "--start false: native: ended with status 1" in failed.stderr, failed.stderr
        assert run("--places", "moon").returncode == 2 and run("--calls", "0").returncode == 2
        short = run("--budget", "0.001")
        assert short.returncode == 0 and "the budget was over" in short.stderr, short


if __name__ == "__main__":
    main()

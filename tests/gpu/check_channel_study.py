#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that channel-study measures every pair in both ways, and refuses wrong options.

usage: check_channel_study.py CHANNEL_STUDY
"""
import json
import subprocess
import sys


def run(*options):
    return subprocess.run([sys.argv[1], *options], capture_output=True, text=True, timeout=120, check=False)


def main():
    done = run("--pages", "2", "--rounds", "2", "--requests", "5", "--limit", "100")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["rounds"] == 2 and found["pages"] == 2 and found["classes"] == 16 and found["repeated"] == 1, found
    names = {(pair["high"], pair["low"]) for pair in found["pairs"]}
    assert names == {(high, low) for high in ("read", "half", "chase", "atomics") for low in ("none", "read", "write", "atomics")}
    for pair in found["pairs"]:
        for cell in (pair["anywhere"], pair["apart"]):
            assert 19 <= cell["p50_us"] <= cell["p99_us"] and len(cell["p99_us_of_rounds"]) == 2, pair
            assert pair["low"] != "none" or cell["low_bytes_per_s"] == 0, pair
        assert not (pair["pays"] and pair["low"] == "none"), pair
    assert run("--rounds", "0").returncode == 2
    flat = subprocess.run(["env", "HB_SIM_CHANNELS=flat", sys.argv[1]], capture_output=True, text=True, timeout=120, check=False)
    assert flat.returncode == 1 and "no map" in flat.stderr and not flat.stdout, flat


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""`hb bench report` reads every committed result: those of `hb bench run` with all raw values, and the rows of older scripts.

usage: test_bench_results.py HB FOLDER
"""
import glob
import gzip
import json
import os
import subprocess
import sys

hb, folder = sys.argv[1:]


def report(path, *options):
    return subprocess.run([hb, "bench", "report", path, *options], check=True, capture_output=True, text=True).stdout


def load(path):
    with (gzip.open if path.endswith(".gz") else open)(path, "rt", encoding="utf-8") as file:
        return json.load(file)


def latencies(result):
    """Every raw value, in order."""
    return [each["latency_ns"] for case in result["cases"] for cell in case["sharing"] for high in cell["high"]
            for each in high["rounds"] if each["latency_ns"]]


runs = tables = 0
for path in sorted(glob.glob(os.path.join(folder, "**/*.json*"), recursive=True)):
    data = load(path) if not path.endswith(".jsonl.gz") else {}
    if isinstance(data, dict) and "suite" in data:
        again = json.loads(report(path, "--json"))
        assert latencies(again) == latencies(data), f"{path}: raw values differ"
        text = report(path)
        assert all(case["name"] in text for case in data["cases"]), path
        runs += 1
    elif isinstance(data, list):
        text = report(path)
        assert all(row["what"] in text for row in data), path
        tables += 1
    else:
        continue
    print("read:", os.path.relpath(path, folder))
assert runs and tables, f"{runs} runs and {tables} tables in {folder}"

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the inputs of `hb sim-cluster` into data/.

cluster_data.py pods CSV OUTPUT     the pods of openb (data/csv/openb_pod_list_default.csv), with fewer columns
cluster_data.py fleet CSV OUTPUT    a summary of the GPU duty cycles of a serving fleet: 101 quantiles
cluster_data.py pairs OUTPUT        pairs that were measured (bench/results/h200), and pairs of `hb sim` (--hb PROGRAM)
"""
import argparse
import csv
import gzip
import io
import json
import os
import subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MEASURED = ["engines", "engines-60", "pairs-short"]
SHARING = ["timeslice", "mps_prio", "mps_88", "mps_60", "temporal", "spatial"]
SERVICES = {"resnet50_b1": [6, 30, 100, 180], "resnet50_b1:graph": [20, 60, 200, 500], "llama8_decode_b8": [6, 30, 80, 120]}
LOW = ["resnet50_train_b128", "llama8_train_b4"]
PAIR_COLUMNS = ["source", "sharing", "high", "rate_per_s", "duty", "low", "alone", "attainment", "low_speed", "requests"]


def write_rows(path, header, rows):
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    data = text.getvalue().encode()
    with open(path, "wb") as file:  # no time and no name in the header: the same input gives the same bytes
        file.write(gzip.compress(data, 9, mtime=0) if path.endswith(".gz") else data)


def write_pods(arguments):
    with open(arguments.input, encoding="utf-8") as file:
        pods = list(csv.DictReader(file))
    rows = []
    for pod in pods:
        started = pod["scheduled_time"]
        seconds = max(0, int(pod["deletion_time"]) - int(started)) if started else ""
        rows.append([pod["creation_time"], seconds, pod["num_gpu"], pod["gpu_milli"], pod["qos"]])
    write_rows(arguments.output, ["created_s", "run_s", "gpus", "gpu_milli", "qos"], rows)


def quantile(values, share):
    return values[min(len(values) - 1, int(share * len(values)))]


def write_fleet(arguments):
    with open(arguments.input, encoding="utf-8") as file:
        values = sorted(float(row["value"]) / 100 for row in csv.DictReader(file))
    write_rows(arguments.output, ["share", "duty"], [[i / 100, f"{quantile(values, (i + 0.5) / 101):.4f}"] for i in range(101)])


def first_of(value):
    return value[0] if isinstance(value, list) else value


def measured_rows():
    for name in MEASURED:
        with gzip.open(f"{ROOT}/bench/results/h200/{name}.json.gz") as file:
            cases = json.load(file)["cases"]
        for case in cases:
            service, rate = case["high"][0]["program"], float(case["high"][0]["arrivals"].split("/")[0])
            ways = {way["name"]: way for way in case["sharing"]}
            alone = ways["exclusive"]["high"][0]["summary"]
            busy_s = first_of(alone["p50_us"]) / 1e6
            for sharing in [name for name in SHARING if name in ways]:
                summary = ways[sharing]["high"][0]["summary"]
                low = ways[sharing]["low"][0]
                speed = first_of((low.get("summary") or low)["of_alone"])
                yield ["measured", sharing, service.replace("_graph", ":graph"), f"{rate:g}", f"{min(1, rate * busy_s):.4f}",
                       case["low"][0], first_of(alone["attainment"]), first_of(summary["attainment"]), speed, summary["seen"]]


def simulated_rows(program):
    for service, rates in SERVICES.items():
        for low in LOW:
            for rate in rates:
                seconds = max(4, min(30, 1200 / rate))
                text = subprocess.run([program, "sim", "--high", f"{service}@{rate}/s", "--low", low, "--sharing",
                                       ",".join(["exclusive"] + SHARING), "--seconds", f"{seconds:g}", "--json"],
                                      check=True, capture_output=True, text=True).stdout
                results = {result["sharing"]: result for result in json.loads(text)}
                alone = results["exclusive"]["high"][0]
                for sharing in SHARING:
                    high, tenant = results[sharing]["high"][0], results[sharing]["low"][0]
                    yield ["simulated", sharing, service, rate, f"{min(1, rate * alone['p50_us'] / 1e6):.4f}", low,
                           alone["attainment"], high["attainment"], tenant["relative"], high["requests"]]


def write_pairs(arguments):
    write_rows(arguments.output, PAIR_COLUMNS, [*measured_rows(), *simulated_rows(arguments.hb)])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["pods", "fleet", "pairs"])
    parser.add_argument("input", nargs="?")
    parser.add_argument("output")
    parser.add_argument("--hb", default=f"{ROOT}/build/hb")
    arguments = parser.parse_args()
    {"pods": write_pods, "fleet": write_fleet, "pairs": write_pairs}[arguments.what](arguments)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes data/traces/azure-llm-2023-conv.csv: the first requests of the trace AzureLLMInferenceTrace_conv.csv.

  azure_excerpt.py AzureLLMInferenceTrace_conv.csv [--requests 2000] > data/traces/azure-llm-2023-conv.csv

The trace: https://github.com/Azure/AzurePublicDataset (data/AzureLLMInferenceTrace_conv.csv), licence CC BY 4.0.
"""
import argparse
import csv
import datetime
import sys

COLUMNS = ["TIMESTAMP", "ContextTokens", "GeneratedTokens"]


def seconds_of(text):
    """The trace has seven digits of a second; Python reads six."""
    return datetime.datetime.fromisoformat(text[:26]).timestamp()


def excerpt(rows, requests):
    """Lines of the excerpt, the first arrival at 0."""
    found = [(seconds_of(row["TIMESTAMP"]), int(row["ContextTokens"]), int(row["GeneratedTokens"]))
             for row, _ in zip(rows, range(requests))]
    begin = found[0][0]
    return [f"{at - begin:.3f},{prompt},{answer}" for at, prompt, answer in found]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace")
    parser.add_argument("--requests", type=int, default=2000)
    args = parser.parse_args()
    with open(args.trace, encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file)
        if rows.fieldnames != COLUMNS:
            sys.exit(f"{args.trace}: the columns are {rows.fieldnames} instead of {COLUMNS}")
        print("arrival_s,prompt_tokens,answer_tokens", *excerpt(rows, args.requests), sep="\n")


if __name__ == "__main__":
    main()

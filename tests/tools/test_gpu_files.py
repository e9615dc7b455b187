#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""docs/gpu-files.md lists the keys of src/gpumodel/spec.def, says how to measure each,
and every file of data/gpus holds exactly them, each with its origin.

usage: test_gpu_files.py [--refresh]     --refresh writes the list anew
"""
import glob
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DOC = os.path.join(ROOT, "docs", "gpu-files.md")
BEGIN, END = "<!-- keys -->\n", "<!-- end of keys -->\n"


def read(*path):
    with open(os.path.join(ROOT, *path), encoding="utf-8") as file:
        return file.read()


def fields():
    rows = re.findall(r'^HB_SPEC_FIELD\((\w+), "([^"]*)", ([^,]*), ([^,]*), "([^"]*)"\)', read("src/gpumodel/spec.def"), re.M)
    if len(rows) != read("src/gpumodel/spec.def").count("\nHB_SPEC_FIELD("):
        sys.exit("src/gpumodel/spec.def: a row is not understood")
    return rows


def table(rows):
    lines = ["| key | unit | range | meaning |", "|---|---|---|---|"]
    lines += [f"| `{key}` | {unit} | {low} to {high} | {what} |" for key, unit, low, high, what in rows]
    return "\n".join(lines) + "\n"


def parts_of_doc():
    text = read(DOC)
    before, rest = text.split(BEGIN)
    listed, after = rest.split(END)
    return before, listed, after


def main():
    rows = fields()
    keys = [row[0] for row in rows]
    before, listed, after = parts_of_doc()
    if "--refresh" in sys.argv:
        with open(DOC, "w", encoding="utf-8") as file:
            file.write(before + BEGIN + table(rows) + END + after)
        return 0
    errors = []
    if listed != table(rows):
        errors.append("docs/gpu-files.md: the list of keys is not spec.def's; run tests/tools/test_gpu_files.py --refresh")
    errors += [f"docs/gpu-files.md: does not say how to measure {key}" for key in keys if f"`{key}`" not in after]
    files = glob.glob(os.path.join(ROOT, "data", "gpus", "*.yaml"))
    if not files:
        errors.append("data/gpus: no file")
    for path in files:
        found = re.findall(r"^(\w+):", read(path), re.M)
        if sorted(found) != sorted(["name"] + keys):
            errors.append(f"{path}: keys differ from spec.def: {sorted(set(found) ^ set(['name'] + keys))}")
    print("\n".join(errors) or f"{len(keys)} keys")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())

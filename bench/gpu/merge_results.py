#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Joins the parts that temporal.py, or a script that uses it, wrote into the committed files of one GPU.

  bench/gpu/merge_results.py --out bench/results/h200 [--table temporal] DIR/temporal-*.json

Writes OUT/TABLE.json (all rows, those of a later file replace earlier ones
of the same name) and OUT/TABLE-raw.json.gz (distributions by part).
"""
import argparse
import gzip
import json
import os


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True)
    parser.add_argument("--table", default="temporal")
    parser.add_argument("files", nargs="+")
    args = parser.parse_args()
    target = os.path.join(args.out, args.table + ".json")
    raw_target = os.path.join(args.out, args.table + "-raw.json.gz")
    rows = {row["what"]: row for row in json.load(open(target))} if os.path.exists(target) else {}
    raw = json.load(gzip.open(raw_target, "rt")) if os.path.exists(raw_target) else {}
    for path in args.files:
        part = json.load(open(path))
        if part["failure"]:
            raise SystemExit("%s: this part failed: %s" % (path, part["failure"]))
        rows.update((row["what"], row) for row in part["rows"])
        raw[part["part"]] = part["raw"]
    os.makedirs(args.out, exist_ok=True)
    with open(target, "w") as out:
        out.write("[\n" + ",\n".join(json.dumps(row) for row in rows.values()) + "\n]\n")
    with open(raw_target, "wb") as file, gzip.GzipFile(fileobj=file, mode="wb", mtime=0, filename="") as out:
        out.write(json.dumps(raw).encode())


if __name__ == "__main__":
    main()

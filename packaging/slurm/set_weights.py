#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sets the weights of Slurm's nodes by what `hb place` predicts, so that Slurm starts the next job where it is fastest among the
nodes on which it may run. Runs as Slurm's administrator, for example every minute; Slurm prefers nodes of the smallest weight.

usage: set_weights.py [--hb PROGRAM] [--job JSON] [--print] NODE=FILE...

  NODE=FILE    what `hb status --json` printed on the node, such as n1=/shared/n1.json
  --job JSON   more about the job: program, memory, speed (docs/placing.md), such as '{"memory": "40GiB"}'
  --jobs FILE  jobs that run already, an array in JSON
  --print      prints the weights and changes nothing
"""
import argparse
import json
import subprocess
import sys

UNSUITED = 2001  # a weight above all of hb place --prefer speed


def read_json(path):
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError) as error:
        sys.exit(f"set_weights.py: {path}: {error}")


def run(*command, **options):
    try:
        return subprocess.run(command, check=False, text=True, **options)
    except OSError as error:
        sys.exit(f"set_weights.py: {command[0]}: {error.strerror}")


def find_weights(arguments):
    nodes = [node.partition("=") for node in arguments.nodes]
    for name, _, path in nodes:
        if not path:
            sys.exit(f"set_weights.py: '{name}' is not NODE=FILE")
    try:
        job = json.loads(arguments.job)
    except ValueError as error:
        sys.exit(f"set_weights.py: --job: {error}")
    if not isinstance(job, dict):
        sys.exit("set_weights.py: --job: is not an object")
    question = {"nodes": [{"name": name, "status": read_json(path)} for name, _, path in nodes],
                "jobs": [*(read_json(arguments.jobs) if arguments.jobs else []), {"name": "next", "priority": "low", **job}]}
    done = run(arguments.hb, "place", "--prefer", "speed", "--options", str(len(nodes)), input=json.dumps(question), stdout=subprocess.PIPE)
    if done.returncode:
        sys.exit("set_weights.py: hb place failed; no weight was changed")
    weights = {name: UNSUITED for name, _, _ in nodes}
    for option in json.loads(done.stdout)["jobs"][-1]["options"]:
        weights[option["node"]] = option["weight"]
    return weights


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hb", default="hb")
    parser.add_argument("--job", default="{}")
    parser.add_argument("--jobs")
    parser.add_argument("--print", action="store_true")
    parser.add_argument("nodes", nargs="+", metavar="NODE=FILE")
    arguments = parser.parse_args()
    failed = False
    for node, weight in find_weights(arguments).items():
        print(f"{node} {weight}")
        if not arguments.print:
            failed |= run("scontrol", "update", f"NodeName={node}", f"Weight={weight}").returncode != 0
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()

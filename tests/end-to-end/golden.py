#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the commands of a golden file and compares what they print.

In a golden file lines indented by two spaces are commands and their output,
all other lines are prose:

    A word that is nearly a command gets a suggestion.

      $ hb smi
      hb: no command 'smi'; did you mean 'sim'?
      [2]

The output is standard output and standard error together; "[N]" follows when
the exit status N is not 0. Commands run one after the other in sh, in an empty
folder, with $HB's folder first on the PATH and $TESTS naming this folder.

usage: golden.py --hb BINARY FILE          compare (exit 1 on a difference)
       golden.py --hb BINARY --refresh FILE    replace the outputs by those of now
"""
import argparse
import difflib
import os
import subprocess
import sys
import tempfile


def run(command, environment, folder):
    done = subprocess.run(["sh", "-c", command], env=environment, cwd=folder,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=300)
    lines = done.stdout.decode("utf-8", "backslashreplace").splitlines()
    if done.returncode:
        lines.append(f"[{done.returncode}]")
    return lines


def replay(lines, environment, folder):
    """The golden file's lines, with each output replaced by the one of now."""
    result, i = [], 0
    while i < len(lines):
        line = lines[i]
        i += 1
        if line.startswith("  ") and not line.startswith("  $ "):
            continue
        result.append(line)
        if not line.startswith("  $ "):
            continue
        command = line[4:]
        while i < len(lines) and lines[i].startswith("  > "):
            command += "\n" + lines[i][4:]
            result.append(lines[i])
            i += 1
        result += ["  " + out if out else "  " for out in run(command, environment, folder)]
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hb", required=True)
    parser.add_argument("--refresh", action="store_true")
    parser.add_argument("file")
    arguments = parser.parse_args()
    path = os.path.abspath(arguments.file)
    environment = {
        "PATH": os.path.dirname(os.path.abspath(arguments.hb)) + ":" + os.environ["PATH"],
        "TESTS": os.path.dirname(path),
        "LC_ALL": "C.UTF-8",
        "COLUMNS": "100",
    }
    for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS"):
        if name in os.environ:
            environment[name] = os.environ[name]
    with open(path, encoding="utf-8") as file:
        expected = file.read().splitlines()
    with tempfile.TemporaryDirectory() as folder:
        actual = replay(expected, environment, folder)
    if arguments.refresh:
        with open(path, "w", encoding="utf-8") as file:
            file.write("\n".join(actual) + "\n")
        return 0
    difference = list(difflib.unified_diff(expected, actual, "expected", "printed", lineterm=""))
    print("\n".join(difference))
    return 1 if difference else 0


if __name__ == "__main__":
    sys.exit(main())

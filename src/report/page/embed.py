#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes text files as C string constants: embed.py OUTPUT FILE...

FILE name.ext becomes `static const char name_ext[]`. Called by the build only.
"""
import os
import sys


def literal(line):
    escaped = line.replace("\\", "\\\\").replace('"', '\\"').replace("\t", "\\t")
    return f'\t"{escaped}\\n"'


def constant(path):
    name = "".join(c if c.isalnum() else "_" for c in os.path.basename(path).removesuffix(".in"))
    with open(path, encoding="utf-8") as file:
        lines = [literal(line) for line in file.read().splitlines()]
    return f"static const char {name}[] =\n" + "\n".join(lines) + ";\n"


def main():
    with open(sys.argv[1], "w", encoding="utf-8") as out:
        out.write("/* Written by embed.py; edit the files it was made from. */\n")
        for path in sys.argv[2:]:
            out.write(constant(path))


if __name__ == "__main__":
    main()

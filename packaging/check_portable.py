#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that the programs and libraries below FOLDER run on any x86-64 Linux with the chosen glibc (2.28): they ask for no newer
symbols and for no libraries but glibc's, have no search path of their own, and copy no variable that glibc knows by two
names. Prints what is wrong; exits 1 if anything is. Wheels of manylinux_2_28 obey stricter rules only for C++.

usage: check_portable.py FOLDER [--glibc VERSION]
"""
import argparse
import os
import re
import subprocess
import sys

# Parts of glibc. All are present on every system, those that are empty today included.
GLIBC = {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "ld-linux-x86-64.so.2"}
# The compiler that builds releases copies a variable with two names (`environ` and `__environ`) under one of them only, so the
# program sees NULL under the other. The variables of this list have one name.
COPIED = {"stdin", "stdout", "stderr", "in6addr_any", "in6addr_loopback", "optarg", "optind", "optopt", "opterr"}


def read_elf(path, *options):
    return subprocess.run(["readelf", "--wide", *options, path], check=True, capture_output=True, text=True,
                          env={**os.environ, "LC_ALL": "C"}).stdout


def number(version):
    return tuple(int(part) for part in version.split("."))


def check_file(path, newest):
    """Yields what is wrong with one program or library."""
    for line in read_elf(path, "--dyn-syms").splitlines():
        symbol = re.search(r" UND (\w+)@(\w+?)_([0-9.]+|PRIVATE)\b", line)
        if not symbol:
            continue
        name, kind, version = symbol.groups()
        if kind != "GLIBC" or version == "PRIVATE":
            yield f"needs {name} of version {kind}_{version}"
        elif number(version) > number(newest):
            yield f"needs {name} of glibc {version}, newer than {newest}"
    dynamic = read_elf(path, "--dynamic")
    for library in re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic):
        if library not in GLIBC:
            yield f"needs the library {library}"
    for folder in re.findall(r"\((?:RPATH|RUNPATH)\).*\[(.*)\]", dynamic):
        yield f"searches libraries in {folder}"
    for variable in re.findall(r"R_X86_64_COPY\s+\w+\s+(\w+)@", read_elf(path, "--relocs")):
        if variable not in COPIED:
            yield f"copies the variable {variable}"


def find_elf(folder):
    for where, _, names in os.walk(folder):
        for path in (os.path.join(where, name) for name in names):
            if os.path.isfile(path) and not os.path.islink(path):
                with open(path, "rb") as file:
                    if file.read(4) == b"\x7fELF":
                        yield path


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder")
    parser.add_argument("--glibc", default="2.28")
    options = parser.parse_args()
    paths = sorted(find_elf(options.folder))
    wrong = [f"{path}: {what}" for path in paths for what in check_file(path, options.glibc)]
    if not paths:
        wrong.append(f"{options.folder}: contains no program")
    print("\n".join(wrong) if wrong else f"{len(paths)} programs and libraries need glibc {options.glibc} or older, and nothing else")
    sys.exit(1 if wrong else 0)


main()

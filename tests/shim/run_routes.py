#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs a caller program without the shim, with it, and with it switched off, and compares what it prints.

usage: run_routes.py SHIM_FOLDER FAKE_DRIVER PLUGIN CALLER ARGUMENT...

The fake driver's file must be called libcuda.so.1. "Without the shim" its
folder is on the library path; "with" the shim the shim's folder is, and HB_REAL_LIBCUDA names
the driver. Everything the program prints must be the same, byte for byte;
the program itself checks that the shim is (or is not) what it found.
"""
import difflib
import os
import subprocess
import sys


def run(command, library_folder, shim_folder, fake, plugin, extra):
    environment = {"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": library_folder, "HB_REAL_LIBCUDA": fake,
                   "HB_TEST_PLUGIN": plugin, "HB_TEST_SHIM": shim_folder} | extra
    for name in ("ASAN_OPTIONS", "TSAN_OPTIONS", "UBSAN_OPTIONS", "LSAN_OPTIONS"):
        if name in os.environ:
            environment[name] = os.environ[name]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    return f"{done.stdout}exit {done.returncode}\n", done.stderr


def main():
    shim_folder, fake, plugin, *command = sys.argv[1:]
    fake = os.path.realpath(fake)
    bare, bare_errors = run(command, os.path.dirname(fake), shim_folder, fake, plugin, {})
    if not bare.endswith("exit 0\n") or "driver saw" not in bare:
        sys.exit(f"the caller does not work without the shim:\n{bare}{bare_errors}")
    failed = False
    for title, extra in (("with the shim", {"HB_TEST_SHIM_EXPECTED": "1"}), ("with HB_OFF=1", {"HB_OFF": "1"})):
        shimmed, errors = run(command, shim_folder, shim_folder, fake, plugin, extra)
        if shimmed != bare or errors != bare_errors:
            failed = True
            print(f"{title}, this changed:")
            print("".join(difflib.unified_diff(bare.splitlines(True), shimmed.splitlines(True), "bare", title)), errors)
    print(bare)
    sys.exit(1 if failed else 0)


main()

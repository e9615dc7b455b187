#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The shim exports what exports.def and shim.map promise, and exports.def is the CUDA stub library's list.

usage: check_exports.py NM SHIM EXPORTS_DEF [STUB_LIBRARY]
"""
import re
import subprocess
import sys

OURS = {"hb_shim_version", "hb_shim_request_begin", "hb_shim_hint", "hb_shim_request_end"}


def exported(nm, library):
    lines = subprocess.run([nm, "-D", "--defined-only", library], check=True, capture_output=True, text=True).stdout
    return {line.split()[-1].split("@")[0] for line in lines.splitlines()}


def main():
    nm, shim, table = sys.argv[1:4]
    text = open(table, encoding="utf-8").read()
    stub_part, extra_part = text.split("#ifndef HB_EXPORTS_STUB_ONLY")
    rows = [re.findall(r"^X\((\w+)\)$", part, re.M) for part in (stub_part, extra_part)]
    wanted = set(rows[0]) | set(rows[1]) | OURS
    found = exported(nm, shim)
    problems = [f"listed twice in exports.def: {n}" for n in set(rows[0]) & set(rows[1])]
    if len(set(rows[0])) != len(rows[0]) or len(set(rows[1])) != len(rows[1]):
        problems.append("exports.def lists a name twice")
    problems += [f"in exports.def, not exported: {n}" for n in sorted(wanted - found)]
    problems += [f"exported, in no list: {n}" for n in sorted(found - wanted)]
    if len(sys.argv) > 4:
        stub = exported(nm, sys.argv[4])
        problems += [f"in the stub library, not in exports.def: {n}" for n in sorted(stub - set(rows[0]))]
        problems += [f"in exports.def, not in the stub library: {n}" for n in sorted(set(rows[0]) - stub)]
    print("\n".join(problems) or f"{len(found)} names, as listed")
    sys.exit(1 if problems else 0)


main()

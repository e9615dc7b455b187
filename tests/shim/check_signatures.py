#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The argument numbers of hooks.def are those of cuda.h: which argument is the stream, which the byte count.

usage: check_signatures.py HOOKS_DEF CUDA_H
"""
import re
import sys


# The first CUDA_VERSION whose cuda.h declares the name, if that is after 13.0.
NEWER = {"cuMemcpyWithAttributesAsync": 13020, "cuMemcpy3DWithAttributesAsync": 13020}


def read_prototypes(text):
    """Every declared signature of each name: cuda.h declares a base name in its newest and in older forms."""
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    found = {}
    for match in re.finditer(r"CUresult\s+CUDAAPI\s+(cu\w+)\s*\(([^;{]*)\)\s*;", text):
        arguments = [a.strip() for a in re.sub(r"\s+", " ", match[2]).split(",")]
        found.setdefault(match[1], []).append(arguments)
    return found


def signatures_of(name, prototypes):
    bare = re.sub(r"_pt[sd][sz]$", "", name)
    # The newest form of a call may be declared under the plain name only, by a macro.
    for candidate in (name, bare, re.sub(r"_v\d$", "", bare), re.sub(r"WithFlags$", "", bare)):
        if candidate in prototypes:
            return prototypes[candidate]
    return []


def stream_of(arguments):
    for number, argument in enumerate(arguments):
        if re.fullmatch(r"CUstream \w+", argument):
            return str(number)
        if argument.startswith("const CUlaunchConfig"):
            return "HB_STREAM_IN_CONFIG"
    return "HB_NO_STREAM"


def check(name, stream, size, prototypes, version):
    signatures = signatures_of(name, prototypes)
    if not signatures:
        is_elsewhere = name.startswith(("cuGL", "cuVDPAU")) or NEWER.get(re.sub(r"_ptsz$", "", name), 0) > version
        return [] if is_elsewhere else [f"{name}: not in cuda.h"]
    problems = []
    if stream not in {stream_of(s) for s in signatures}:
        problems.append(f"{name}: stream is {stream} here and {sorted({stream_of(s) for s in signatures})} there")
    if size.isdigit() and not any(re.fullmatch(r"size_t (ByteCount|size)", s[int(size)]) for s in signatures):
        problems.append(f"{name}: argument {size} is no byte count")
    return problems


def main():
    rows = re.findall(r"^HB_FORWARD\((\w+), (\w+), ([\w| ]+), (\w+), (\w+)\)$", open(sys.argv[1], encoding="utf-8").read(),
                      re.M)
    header = open(sys.argv[2], encoding="utf-8", errors="replace").read()
    prototypes = read_prototypes(header)
    version = int(re.search(r"#define CUDA_VERSION (\d+)", header)[1])
    problems = [p for name, _, _, stream, size in rows for p in check(name, stream, size, prototypes, version)]
    if len(rows) < 150:
        problems.append(f"only {len(rows)} rows read from hooks.def")
    print("\n".join(problems) or f"{len(rows)} rows agree with cuda.h")
    sys.exit(1 if problems else 0)


main()

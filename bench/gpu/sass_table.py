#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes and checks the instruction tables of src/cubin with NVIDIA's disassembler; needs no GPU.

  slice-survey --arch 80 --samples samples.80 LIBRARY...
  bench/gpu/sass_table.py --arch 80 --nvdisasm PATH samples.80                   check src/cubin/sass_sm8x.def
  bench/gpu/sass_table.py --arch 100 --nvdisasm PATH --write samples.100 >rows   print rows for a new table

The check compares, for every sampled instruction whose opcode has a row: its name; whether it reads a constant bank, and
which bits say so; and, for each load, the meaning of all sixteen memory orders. An instruction form that has no row is
counted and allowed: a kernel that has one is not split. --write takes the treatment of an instruction from sass_sm90.def
by opcode and name, or by name alone if that name has one treatment there. Names that sass_sm90.def does not know are
printed as comments: a person has to decide about them.
"""
import argparse
import collections
import pathlib
import re
import struct
import subprocess
import sys
import tempfile

TABLES = pathlib.Path(__file__).resolve().parents[2] / "src" / "cubin"
TABLE_OF = {80: "sass_sm8x.def", 86: "sass_sm8x.def", 89: "sass_sm8x.def", 90: "sass_sm90.def", 100: "sass_sm100.def"}
ORDERS = {0: "", 4: "CONSTANT", 5: "STRONG.SM"}  # what sass.c accepts: memory orders of loads that cannot wait
ORDER_SHIFT, BANK_SHIFT = 13, 54  # in the high and the low word of an instruction


def read_table(path):
    rows = re.findall(r"^HB_SASS\((0x\w+), (\w+), (\w+)\)", path.read_text(), re.MULTILINE)
    return {int(opcode, 16): (name, treatment) for opcode, name, treatment in rows}


def read_samples(paths):
    samples = collections.defaultdict(list)
    for path in paths:
        data = pathlib.Path(path).read_bytes()
        for at in range(0, len(data), 16):
            word = struct.unpack_from("<QQ", data, at)
            samples[word[0] & 0xFFF].append(word)
    return samples


def disassemble(nvdisasm, arch, words):
    """The text of each instruction, without predicate."""
    with tempfile.NamedTemporaryFile(suffix=".bin") as file:
        file.write(b"".join(struct.pack("<QQ", *word) for word in words))
        file.flush()
        done = subprocess.run([nvdisasm, "-b", f"SM{arch}", "-hex", file.name], capture_output=True, text=True)
    lines = re.findall(r"/\*[0-9a-f]{4,}\*/\s+(.*?);\s*/\* 0x", done.stdout)
    if len(lines) != len(words):
        sys.exit(f"{nvdisasm}: {len(lines)} lines for {len(words)} instructions: {done.stderr.strip()[:400]}")
    return [re.sub(r"^@!?U?P\w+\s+", "", line.strip()) for line in lines]


def check_sample(row, word, text):
    name, treatment = row
    if text.split()[0].split(".")[0] != name:
        return f"is {text}, not {name}"
    bank = re.search(r"\bc\[0x(\w+)\]", text)
    if (bank is not None) != treatment.startswith("CONSTANT"):
        return f"has treatment {treatment}: {text}"
    if bank and int(bank[1], 16) != word[0] >> BANK_SHIFT & 0x1F:
        return f"has its bank elsewhere: {text}"
    return None


def order_words(word):
    return [(word[0], word[1] & ~(0xF << ORDER_SHIFT) | order << ORDER_SHIFT) for order in range(16)]


def check_orders(texts):
    for order, text in enumerate(texts):
        found = re.search(r"\.((?:CONSTANT|STRONG|MMIO)[A-Z.]*)", text.split()[0])
        if order in ORDERS and (found[1] if found else "") != ORDERS[order]:
            return f"has order {order}: {text}"
    return None


def check(options, samples, table):
    """One call of the disassembler for all, because a call takes a second."""
    listed = [opcode for opcode in sorted(samples) if opcode in table]
    loads = [opcode for opcode in listed if table[opcode][1] == "LOAD"]
    words = [word for opcode in listed for word in samples[opcode]]
    texts = disassemble(options.nvdisasm, options.arch, words + [w for op in loads for w in order_words(samples[op][0])])
    owners = [opcode for opcode in listed for _ in samples[opcode]]
    problems = [(op, check_sample(table[op], *pair)) for op, *pair in zip(owners, words, texts)]
    for i, opcode in enumerate(loads):
        problems.append((opcode, check_orders(texts[len(words) + 16 * i :][:16])))
    problems = [(opcode, problem) for opcode, problem in problems if problem]
    for opcode, problem in problems:
        print(f"opcode 0x{opcode:03x} {problem}")
    print(f"sm_{options.arch}: {len(samples)} opcodes, {len(listed)} have a row, {len(words)} samples, {len(problems)} errors")
    print("no row:", " ".join(f"0x{opcode:03x}" for opcode in sorted(samples) if opcode not in table) or "none")
    return 1 if problems else 0


def propose(known, opcode, name, text):
    """The treatment of an instruction, or None."""
    by_name = {treatment for other, treatment in known.values() if other == name}
    treatment = known[opcode][1] if known.get(opcode, ("",))[0] == name else by_name.pop() if len(by_name) == 1 else None
    if treatment == "PLAIN" and "c[0x" in text:
        return "CONSTANT"
    return treatment


def write(options, samples):
    known = read_table(TABLES / "sass_sm90.def")
    opcodes = sorted(samples)
    texts = disassemble(options.nvdisasm, options.arch, [samples[opcode][0] for opcode in opcodes])
    for opcode, text in zip(opcodes, texts):
        name = text.split()[0].split(".")[0]
        treatment = propose(known, opcode, name, text)
        row = f"HB_SASS(0x{opcode:03x}, {name}, {treatment})"
        print(row if treatment else f"/* {row} {text} */")
    return 0


def main():
    parser = argparse.ArgumentParser(description="Makes and checks the instruction tables.")
    parser.add_argument("--arch", type=int, required=True, choices=sorted(TABLE_OF))
    parser.add_argument("--nvdisasm", default="nvdisasm", help="path of NVIDIA's disassembler")
    parser.add_argument("--write", action="store_true", help="print rows instead of checking the table")
    parser.add_argument("samples", nargs="+", help="files of slice-survey --samples")
    options = parser.parse_args()
    samples = read_samples(options.samples)
    if options.write:
        return write(options, samples)
    return check(options, samples, read_table(TABLES / TABLE_OF[options.arch]))


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the manual page of a program or command from its --help and a hand-written
supplement. Usage, options and exit status come from --help, so they are written only once.

usage: make_man.py OUTPUT.N NAME "ONE LINE" SUPPLEMENT|- PROGRAM [ARGUMENT...]
A supplement is mdoc text; it is placed before SEE ALSO. Called by the build.
"""
import os
import re
import subprocess
import sys

SEE_ALSO = [("hb", 1), ("hummingbird.yaml", 5), ("hbd", 8)]
FILES = {"hb-sim": ["hb-gpu-file", "hb-recording", "hb-trace-file"], "hb-trace": ["hb-recording", "hb-trace-file"],
         "hb-serve": ["hb-model.yaml"], "hb-sim-serve": ["hb-gpu-file"]}  # pages of what a command reads or writes
OPTION = re.compile(r"^  (-\S.*?)(?:  +(\S.*))?$")


def escape(text):
    """Returns the text for mdoc: escapes what mdoc would interpret."""
    text = text.replace("\\", "\\e").replace("--", "\\-\\-").replace(" -", " \\-")
    return "\\&" + text if text[:1] in (".", "'", "-") else text


def sentences(text):
    """Returns running text; each sentence begins on a new line, as mandoc requires."""
    return [escape(part) for part in re.split(r"(?<=[.?!]) +(?=[A-Z])", text.strip())]


def option_word(text):
    """Returns an option with its values as one literal item."""
    return '.It Li "' + escape(text).replace('"', "\\(dq") + '"'


class Page:
    def __init__(self):
        self.lines, self.listing, self.literal = [], False, False

    def add(self, *lines):
        self.lines += lines

    def end_blocks(self):
        if self.listing:
            self.add(".El")
        if self.literal:
            self.add(".Ed")
        self.listing = self.literal = False

    def option(self, words, text):
        if self.literal:
            self.end_blocks()
        if not self.listing:
            self.add(".Bl -tag -width Ds")
        self.listing = True
        self.add(option_word(words))
        if text:
            self.add(*sentences(text))

    def paragraph(self, lines):
        self.end_blocks()
        if all(line.startswith("  ") for line in lines):
            self.add(".Bd -literal -offset indent", *[escape(line.strip()) for line in lines], ".Ed")
            return
        if self.lines and not self.lines[-1].startswith((".Sh", ".Ed", ".El")):
            self.add(".Pp")
        elif self.lines and self.lines[-1] in (".Ed", ".El"):
            self.add(".Pp")
        for line in lines:
            if line.startswith("  "):
                self.add(".Dl " + escape(line.strip()))
            else:
                self.add(*sentences(line))


def blocks(text):
    """Returns the paragraphs of the help as lists of lines."""
    block = []
    for line in text.splitlines() + [""]:
        if line.strip():
            block.append(line)
        elif block:
            yield block
            block = []


def write_block(page, block):
    """Returns a list of options if the lines are options, else a paragraph. Indented lines continue the previous option."""
    plain = []
    for line in block:
        match = OPTION.match(line)
        if match:
            if plain:
                page.paragraph(plain)
                plain = []
            page.option(match[1], match[2])
        elif page.listing and line.startswith("    "):
            page.add(*sentences(line))
        else:
            plain.append(line)
    if plain:
        page.paragraph(plain)


def write_page(name, section, line, text, supplement):
    page = Page()
    title = name.upper()
    page.add('.\\" SPDX-License-Identifier: Apache-2.0', '.\\" Made by make_man.py from the program\'s own help.',
             ".Dd November 21, 2026", f".Dt {title} {section}", ".Os Hummingbird", ".Sh NAME", f".Nm {name}", f".Nd {line}")
    found = list(blocks(text))
    usage = [words.removeprefix("usage:").strip() for words in found[0]]
    page.add(".Sh SYNOPSIS", ".Bd -literal", *[escape(words) for words in usage], ".Ed", ".Sh DESCRIPTION")
    status = None
    for block in found[1:]:
        if block[0].startswith("exit status:"):
            status = block
        else:
            write_block(page, block)
    page.end_blocks()
    examples = supplement.index(".Sh EXAMPLES") if ".Sh EXAMPLES" in supplement else len(supplement)
    page.add(*supplement[:examples])
    if status:
        page.add(".Sh EXIT STATUS", *[escape(words.removeprefix("exit status:").strip()) for words in status])
    page.add(*supplement[examples:])
    others = [other for other in SEE_ALSO if other != (name, int(section))]
    others += [(file, 5) for file in FILES.get(name, [])] + ([("hummingbird", 3)] if name == "hb-run" else [])
    others.sort(key=lambda other: (other[1], other[0]))
    page.add(".Sh SEE ALSO", *[f".Xr {other} {number}{' ,' if i + 1 < len(others) else ''}"
                               for i, (other, number) in enumerate(others)])
    return "\n".join(page.lines) + "\n"


def main():
    output, name, line, extra = sys.argv[1:5]
    # A program that is built for a package does not find its data in the build folder.
    data = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "data")
    text = subprocess.run(sys.argv[5:], capture_output=True, text=True, check=True, env={**os.environ, "HB_DATA_DIR": data}).stdout
    supplement = []
    if extra != "-":
        with open(extra, encoding="utf-8") as file:
            supplement = [line for line in file.read().splitlines() if not line.startswith('.\\"')]
    with open(output, "w", encoding="utf-8") as file:
        file.write(write_page(name, output[-1], line, text, supplement))


if __name__ == "__main__":
    main()

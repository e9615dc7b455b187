#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that programs print the messages that docs/troubleshooting.md explains: every message in its
tables must be in the strings of the source. Gaps ("...", and N for a number) match anything.
usage: test_messages.py SOURCE"""
import glob
import os
import re
import sys

STRING = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
CONVERSION = re.compile(r"%[-+ #0]*[\d*]*(?:\.[\d*]+)?(?:hh|ll|[hljzt])?[a-zA-Z]")
LEAST = 4  # letters; shorter parts of a message are not checked


def strings(source):
    """Returns all string literals; adjacent literals are joined, format conversions are gaps."""
    found = []
    for path in glob.glob(os.path.join(source, "src", "**", "*"), recursive=True):
        if path.endswith((".c", ".h", ".def")):
            with open(path, encoding="utf-8") as file:
                text = re.sub(r'"\s*\n?\s*"', "", file.read())
            found += [CONVERSION.sub("\0", literal) for literal in STRING.findall(text)]
    return found


def messages(source):
    with open(os.path.join(source, "docs/troubleshooting.md"), encoding="utf-8") as file:
        text = file.read()
    for row in text.splitlines():
        if row.startswith("| `"):
            yield from re.findall(r"`([^`]+)`", row.split(" | ", 1)[0])


def pieces(message):
    message = re.sub(r"^(hb|hbd)( [a-z]+)?: ", "", message)
    for piece in re.split(r"\.\.\.|\bN\b|: ", message):
        piece = piece.strip()
        if sum(letter.isalpha() for letter in piece) >= LEAST:
            yield piece


def said(piece, literals):
    """Returns whether one literal contains the part. A conversion may replace a word or its end; a third must be literal."""
    words = [f"(?:{re.escape(word)}|{'|'.join(re.escape(word[:n]) + chr(0) for n in range(len(word)))})[:;,]?"
             for word in piece.rstrip(":").split()]
    pattern = re.compile(" ".join(words))
    for literal in literals:
        match = pattern.search(literal)
        if match and sum(letter.isalpha() for letter in match.group()) >= len(piece) / 3:
            return True
    return False


def main():
    literals = strings(sys.argv[1])
    assert said("no daemon answers there", literals) and not said("this is never said", literals)
    checked, missing = 0, []
    for message in messages(sys.argv[1]):
        if re.fullmatch(r"hbd?( [a-z]+)?|systemctl status|turns|ejected|metrics:", message):
            continue  # a command or a word, not a message
        for piece in pieces(message):
            checked += 1
            if not said(piece, literals) and os.strerror(98).lower() != piece:
                missing.append(f"'{piece}' of '{message}'")
    for text in missing:
        print(f"docs/troubleshooting.md: no program prints {text}")
    print(f"{checked} parts of messages checked")
    sys.exit(1 if missing or checked < 30 else 0)


if __name__ == "__main__":
    main()

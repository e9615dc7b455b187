#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Puts style sheets and scripts into the page: make_page.py OUTPUT TEMPLATE FILE...

Replaces {{name.ext}} in TEMPLATE by the content of the FILE of that name. Called by the build only.
"""
import os
import re
import sys


def read_file(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def main():
    output, template, *paths = sys.argv[1:]
    parts = {os.path.basename(path): read_file(path) for path in paths}
    page = re.sub(r"\{\{([\w.]+)\}\}", lambda match: parts.pop(match[1]), read_file(template))
    if parts:
        sys.exit(f"{template} uses no {', '.join(parts)}")
    with open(output, "w", encoding="utf-8") as file:
        file.write(page)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Saves a chart of a page of results (hb sim --report) as an SVG file, with a headless Chromium.

usage: save_chart.py PAGE.html FILE.svg [NUMBER]

NUMBER counts the charts of the page from 0; 0 of hb sim's page is attainment against speed. The button
"save as SVG" beside each chart writes the same file.
"""
import html
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

LIMIT_S = 120


def find_browser():
    names = ("chromium", "chromium-browser", "google-chrome")
    return next(filter(None, map(shutil.which, names)), None) or sys.exit("save_chart.py: no chromium is installed")


def read_chart(page, number):
    address = pathlib.Path(page).resolve().as_uri() + f"#svg={number}"
    with tempfile.TemporaryDirectory(prefix="hb-browser-") as folder:
        dump = subprocess.run(
            [find_browser(), "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
             "--no-first-run", f"--user-data-dir={folder}", "--dump-dom", address],
            check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, encoding="utf-8", timeout=LIMIT_S,
            env=os.environ | {"HOME": folder}).stdout
    found = re.search(r'<pre id="svg">(.*?)</pre>', dump, re.DOTALL)
    return html.unescape(found[1]) if found and found[1] else sys.exit(f"save_chart.py: {page} has no chart {number}")


def main():
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    chart = read_chart(sys.argv[1], int(sys.argv[3]) if len(sys.argv) == 4 else 0)
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        file.write(chart)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws docs/sim-h200.svg: the first chart of `hb sim`'s page for LLM training, saved with a headless Chromium.

usage: tools/draw_pages.py [HB]    (default build/hb)

Run it after the GPU model, a policy, a default or the traces change. docs/h200-colocation.svg, which shows
measurements, comes from docs/plot_colocation.py.
"""
import os
import subprocess
import sys
import tempfile

import save_chart
import update_readme

PICTURE = os.path.join(update_readme.ROOT, "docs", "sim-h200.svg")
COMMENT = "<!-- SPDX-License-Identifier: Apache-2.0; drawn by hb sim (tools/draw_pages.py) -->\n"


def main():
    binary = sys.argv[1] if len(sys.argv) > 1 else os.path.join(update_readme.ROOT, "build", "hb")
    arguments = update_readme.ARGUMENTS.format(low=update_readme.LOWS[1]).split()
    with tempfile.TemporaryDirectory(prefix="hb-draw-") as folder:
        page = os.path.join(folder, "page.html")
        subprocess.run([binary] + arguments + ["--report", page], check=True, stdout=subprocess.DEVNULL)
        chart = save_chart.read_chart(page, 0)
    with open(PICTURE, "w", encoding="utf-8") as file:
        file.write(COMMENT + chart)


if __name__ == "__main__":
    main()

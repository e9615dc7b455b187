# SPDX-License-Identifier: Apache-2.0
"""Every page of a committed measurement is what `hb bench report` makes of the
committed values beside it, byte for byte.

usage: test_bench_results.py HB FOLDER
"""
import glob
import os
import subprocess
import sys
import tempfile

hb, folder = sys.argv[1:]
pages = sorted(glob.glob(os.path.join(folder, "**/*.html"), recursive=True))
assert pages, f"no page in {folder}"
for page in pages:
    values = page.removesuffix(".html") + ".json.gz"
    with tempfile.TemporaryDirectory() as temporary:
        again = os.path.join(temporary, "again.html")
        subprocess.run([hb, "bench", "report", values, "--report", again], check=True, stdout=subprocess.DEVNULL)
        with open(again, "rb") as new, open(page, "rb") as old:
            assert new.read() == old.read(), f"{page}: refresh it: hb bench report {values} --report {page}"
    print("same:", os.path.relpath(page, folder))

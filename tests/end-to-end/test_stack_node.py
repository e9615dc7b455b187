# SPDX-License-Identifier: Apache-2.0
"""bench/node.py over two simulated GPUs: what it measures and writes. Speeds are not judged: the machine may be busy."""
import json
import os
import subprocess
import sys
import tempfile

from stack import BUILD, KEPT_VARIABLES, LIMIT

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../bench/node.py")


def run(folder, *arguments):
    environment = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
    return subprocess.run([sys.executable, SCRIPT, "--build", BUILD, "--gpu", "sim", *arguments], capture_output=True, text=True,
                          env=environment | {"TMPDIR": folder, "HOME": folder}, timeout=6 * LIMIT, check=False)


def test_rows(folder):
    out = os.path.join(folder, "node.json")
    done = run(folder, "--only", "data-parallel,bubbles,gangs", "--rounds", "1", "--seconds", "0.5", "--gang-seconds", "3",
               "--budget", "150", "--out", out)
    assert done.returncode == 0, done
    with open(out, encoding="utf-8") as file:
        rows = {row["row"]: row for row in json.load(file)["rows"]}
    os.unlink(out)
    assert list(rows) == ["data-parallel", "bubbles", "gangs"], rows
    for name in ("data-parallel", "bubbles"):
        cells = rows[name]["cells"]
        assert [cell["way"] for cell in cells] == ["timeslice", "temporal", "spatial"], cells
        for cell in cells:
            assert cell["requests"] and cell["rate"] and cell["p50_ms"] and len(cell["low_per_s"]) == 1, cell
            assert cell["low_alone_per_s"][0] > 0 and cell["slo_ms"] == cells[0]["slo_ms"], cell
    for engine in rows["gangs"]["runs"]:
        assert engine["started"] and engine["requests"] and not engine["hung"] and not engine["harmed"], engine


def test_bad_arguments(folder):
    done = run(folder, "--only", "data-paralel")
    assert done.returncode == 2 and "there is no row data-paralel" in done.stderr, done
    done = run(folder, "--rounds", "0")
    assert done.returncode == 2 and "--rounds" in done.stderr, done


with tempfile.TemporaryDirectory(prefix="hb-tn-", dir="/tmp") as place:
    for test in (test_rows, test_bad_arguments):
        test(place)
        print("ok", test.__name__, flush=True)
    assert not os.listdir(place), os.listdir(place)

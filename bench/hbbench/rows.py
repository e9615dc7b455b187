# SPDX-License-Identifier: Apache-2.0
"""Rows of a measurement that has its own script: chosen by name, measured one after another, written after each, printed last."""
import json
import subprocess
import sys
import time

from hbbench.process import Failed, TimeIsUp
from hbbench.run import commit_of, driver_version


def choose(parser, names, rows):
    """The names of a comma-separated list; all for None."""
    chosen = names.split(",") if names else list(rows)
    if unknown := set(chosen) - set(rows):
        parser.error(f"--only: there is no row {', '.join(sorted(unknown))}; rows are {', '.join(rows)}")
    return chosen


def measure(function, machine):
    """(result as text, whether the targets are met). On a simulated GPU times have no meaning."""
    try:
        result, right, fast = function(machine)
        return result, right and (fast or machine.simulated)
    except (Failed, TimeIsUp, OSError, subprocess.SubprocessError) as error:
        return f"failed: {error}", False
    finally:
        machine.stop_programs()


def run(machine, rows, chosen, out, suffix=""):
    """Measures the chosen rows, {name: (function, target)}. A function gets the machine and returns (result, whether it is right,
    whether it is fast enough); what it puts into machine.details goes into the file as well. Returns whether all targets are met."""
    done = []
    for name in chosen:
        function, target = rows[name]
        begin, machine.details = time.monotonic(), {}
        result, met = measure(function, machine)
        done.append({"row": name + suffix, "what": function.__doc__, "target": target, "result": result, "met": met,
                     "took_s": round(time.monotonic() - begin, 1)} | machine.details)
        print(f"{name}: {result}", file=sys.stderr, flush=True)
        if out:
            with open(out, "w", encoding="utf-8") as file:
                json.dump({"command": " ".join(sys.argv), "commit": commit_of(machine.stage.hb),
                           "driver": "simulated" if machine.simulated else driver_version(), "rows": done}, file, indent=1)
    for row in done:
        print(f"{row['row']:22} {'ok ' if row['met'] else 'NO '} {row['took_s']:6.1f} s  target {row['target']}: {row['result']}")
    return all(row["met"] for row in done)

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes hb-gpu-file(5) from the table of keys of the GPU model, so that each
key is described only once. usage: make_gpu_man.py OUTPUT SPEC.DEF. Called by the build."""
import re
import sys

FIELD = re.compile(r'HB_SPEC_FIELD\((\w+), "([^"]+)", ([^,]+), ([^,]+), "((?:[^"\\]|\\.)*)"\)')
HEAD = r""".\" SPDX-License-Identifier: Apache-2.0
.\" Made by make_gpu_man.py from the table of the GPU model's keys.
.Dd November 22, 2026
.Dt HB-GPU-FILE 5
.Os Hummingbird
.Sh NAME
.Nm hb-gpu-file
.Nd constants of a GPU for the simulator
.Sh DESCRIPTION
A GPU of
.Ic hb sim --gpu Ar NAME
is a file
.Pa NAME.yaml
with one
.Li key: value
on each line:
.Cm name
and every key below.
All keys are required.
A key that is unknown, given twice or out of range
is an error that names file, line and key.
Numbers may be written 4.3e12.
.Bl -tag -width Ds
"""
TAIL = r""".El
.Sh FILES
.Bl -tag -width Ds
.It Pa /usr/share/hummingbird/gpus/h200.yaml
The file to copy; it says where each value comes from.
.El
.Sh SEE ALSO
.Xr hb-sim 1
.Pp
.Pa /usr/share/doc/hummingbird/docs/gpu-files.md
says how to measure them.
"""


def escape(text):
    text = text.replace("\\", "\\e")
    return "\\&" + text if text[:1] in (".", "'") else text


def main():
    with open(sys.argv[2], encoding="utf-8") as file:
        text = file.read()
    fields = FIELD.findall(text)
    assert len(fields) == len(re.findall(r"^HB_SPEC_FIELD\(", text, re.MULTILINE)), "a row was not understood"
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        file.write(HEAD)
        for key, unit, least, most, what in fields:
            file.write(f".It Cm {key} : Ar {unit}\n{escape(what[:1].upper() + what[1:])}.\n{least.strip()} to {most.strip()}.\n")
        file.write(TAIL)


if __name__ == "__main__":
    main()

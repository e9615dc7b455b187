#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that a file is a timeline that Perfetto opens, and prints its contents.

The rules of the Chrome trace event format that a viewer relies on: every event
has its keys, times are numbers >= 0 in microseconds that are whole nanoseconds,
processes and threads have names, and events of one thread nest or follow each
other. usage: check_timeline.py FILE
"""
import collections
import json
import sys


def fail(text):
    sys.exit(f"{sys.argv[1]}: {text}")


def check_complete(event):
    for key in ("ts", "dur"):
        if not isinstance(event.get(key), (int, float)) or event[key] < 0:
            fail(f"{key} is no time: {event}")
        if abs(event[key] * 1000 - round(event[key] * 1000)) > 1e-3:
            fail(f"{key} is no whole nanosecond: {event}")
    return round(event["ts"] * 1000), round((event["ts"] + event["dur"]) * 1000)


def check_nesting(thread, spans):
    open_ends = []
    for start, end in sorted(spans, key=lambda span: (span[0], -span[1])):
        while open_ends and open_ends[-1] <= start:
            open_ends.pop()
        if open_ends and end > open_ends[-1]:
            fail(f"events of thread {thread} overlap at {start} ns without nesting")
        open_ends.append(end)


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        root = json.load(file)
    threads, names = collections.defaultdict(list), {}
    for event in root["traceEvents"]:
        if not isinstance(event.get("name"), str) or not event["name"]:
            fail(f"no name: {event}")
        place = (event["pid"], event["tid"])
        if event["ph"] == "M":
            names[(event["name"],) + (place if event["name"] == "thread_name" else place[:1])] = event["args"]["name"]
        elif event["ph"] == "X":
            threads[place].append(check_complete(event))
        elif event["ph"] == "i" and event["s"] == "t":
            check_complete(event | {"dur": 0})
        else:
            fail(f"unexpected phase: {event}")
    for place, spans in sorted(threads.items()):
        if ("process_name", place[0]) not in names or ("thread_name",) + place not in names:
            fail(f"process or thread of {place} has no name")
        check_nesting(place, spans)
        print(f"{names[('process_name', place[0])]}: {names[('thread_name',) + place]}: {len(spans)} events")


if __name__ == "__main__":
    main()

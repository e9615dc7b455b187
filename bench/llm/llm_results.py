# SPDX-License-Identifier: Apache-2.0
"""Results of the LLM suite: raw windows, their file, summaries and the table. Pure except for reading and writing the file.

A window: {"model", "server", "load", "rate_per_s", "place", "low", "objective", "round", "settle_s", "seconds", "requests",
"low_rate"}. `low` is "" without low priority; `objective` is true when an objective was told. Rows of `requests` are
[due, sent, first token, last token, prompt tokens, answer tokens] in microseconds from the window's beginning.
"""
import gzip
import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from hbbench import stats  # noqa: E402  pylint: disable=wrong-import-position

VERSION = 2
KEY = ("model", "server", "load", "place", "low", "objective")
OBJECTIVE = 1.25  # of the p99 of the time per output token alone
US = 1e-6


class BadFile(Exception):
    """A file cannot be read; the text names it."""


def new_raw():
    return {"kind": "llm-raw", "version": VERSION, "commands": [], "capacity": {}, "low_alone": {}, "starts": [],
            "dropped": [], "windows": []}


def read_raw(path):
    """The raw file, or an empty one where there is none."""
    if not os.path.exists(path):
        return new_raw()
    try:
        with (gzip.open if path.endswith(".gz") else open)(path, "rt", encoding="utf-8") as file:
            raw = json.load(file)
    except (OSError, ValueError) as error:
        raise BadFile(f"{path}: {error}") from error
    if not isinstance(raw, dict) or raw.get("kind") != "llm-raw" or raw.get("version") != VERSION:
        raise BadFile(f"{path}: this is no raw file of the LLM suite, version {VERSION}")
    return raw


def write_json(path, value):
    text = json.dumps(value, separators=(",", ":")) if path.endswith(".gz") else json.dumps(value, indent=1)
    with open(path + ".part", "wb") as file:
        file.write(gzip.compress(text.encode(), mtime=0) if path.endswith(".gz") else text.encode() + b"\n")
    os.replace(path + ".part", path)


def merge(into, other):
    """Adds other calls' raw results, with new numbers of the calls."""
    shift = max((window["call"] for window in into["windows"]), default=-1) + 1
    into["windows"] += [dict(window, call=window["call"] + shift) for window in other["windows"]]
    into["capacity"] |= {name: value for name, value in other["capacity"].items() if name not in into["capacity"]}
    for job, speeds in other["low_alone"].items():
        into["low_alone"][job] = into["low_alone"].get(job, []) + speeds
    for key in ("commands", "starts", "dropped"):
        into[key] += other[key]
    into.setdefault("about", other.get("about"))
    return into


# --- one window ------------------------------------------------------------------------------------------------------

def counted(window):
    """Requests that were due after the time to settle."""
    return [row for row in window["requests"] if row[0] >= window["settle_s"] / US]


def time_to_first(row):
    return row[2] - row[0]


def time_per_token(row):
    """Microseconds between tokens of a request; None for an answer of one token."""
    return (row[3] - row[2]) / (row[5] - 1) if row[5] > 1 else None


def presence(window):
    """Share of the window in which a request is present."""
    begin, end = window["settle_s"] / US, (window["settle_s"] + window["seconds"]) / US
    total, reached = 0.0, begin
    for sent, last in sorted((row[1], row[3]) for row in window["requests"]):
        sent, last = max(sent, reached), min(last, end)
        if last > sent:
            total, reached = total + last - sent, last
    return total / (end - begin)


def share_inside(begin, end, begin_us, end_us):
    """The share of a piece of time that lies in another one."""
    return max(0.0, min(end, end_us) - max(begin, begin_us)) / (end - begin) if end > begin else float(begin_us <= begin < end_us)


def capacity_of(requests, begin_us, end_us):
    """Requests a second that a closed loop completed in that time; a request that was only partly inside counts in part."""
    return sum(share_inside(row[1], row[3], begin_us, end_us) for row in requests) / ((end_us - begin_us) * US)


def served(window):
    """(answers that ended in the window, tokens that came in it), a second."""
    begin, end = window["settle_s"] / US, (window["settle_s"] + window["seconds"]) / US
    ended = sum(begin <= row[3] < end for row in window["requests"])
    tokens = sum(row[5] * share_inside(row[2], row[3], begin, end) for row in window["requests"])
    return ended / window["seconds"], tokens / window["seconds"]


def iterations_between(ends_ns, begin, end):
    """Iterations of a low-priority program in that time (seconds, the clock of `ends_ns`), the first and last in part."""
    total = 0.0
    for before, after in zip(ends_ns, ends_ns[1:]):
        before, after = before / 1e9, after / 1e9
        overlap = min(after, end) - max(before, begin)
        if overlap > 0 and after > before:
            total += overlap / (after - before)
    return total


# --- cells -----------------------------------------------------------------------------------------------------------

def latencies(windows, of):
    return sorted(value for window in windows for row in counted(window) for value in [of(row)] if value is not None)


def at_share(values, share):
    return round(stats.quantile(values, share)) if values else None


def describe(windows):
    """Returns the service's figures over the windows of one cell."""
    first, token = latencies(windows, time_to_first), latencies(windows, time_per_token)
    rows = [row for window in windows for row in counted(window)]
    seconds = sum(window["seconds"] for window in windows)
    gaps = [window["token_gaps_us"] for window in windows]
    return {"windows": len(windows), "requests": len(rows), "tokens": sum(row[5] for row in rows),
            "failed": sum(window["failed_count"] for window in windows),
            "arrived_per_s": round(len(rows) / seconds, 2),
            "served_per_s": round(stats.mean(served(window)[0] for window in windows), 2),
            "tokens_per_s": round(stats.mean(served(window)[1] for window in windows)),
            "ttft_us": {"p50": at_share(first, 0.5), "p99": at_share(first, 0.99)},
            "tpot_us": {"p50": at_share(token, 0.5), "p99": at_share(token, 0.99)},
            "token_gap_us": {name: round(stats.mean(one[share] for one in gaps) or 0)
                             for name, share in (("p50", "0.5"), ("p99", "0.99"))},
            "presence": round(stats.mean(presence(window) for window in windows), 4)}


def attainment(windows, limit_us):
    """Share of requests whose time per token is within the objective that the daemon got for their window, or within
    the limit where it got none. A request without a complete answer is not."""
    total = met = 0
    for window in windows:
        values = latencies([window], time_per_token)
        total += len(values) + window["failed_count"]
        met += sum(value <= (window.get("told_us") or limit_us) for value in values)
    return round(met / total, 4) if total else None


def find(windows, **wanted):
    return [window for window in windows if all(window[key] == value for key, value in wanted.items())]


def judge_control(windows, limit_us):
    """Attainment of windows without low priority when each window is judged by the p99 of the others: 0.99 is ideal. With one
    window there is no control."""
    met = total = 0
    for window in windows:
        others = latencies([one for one in windows if one is not window], time_per_token)
        own = latencies([window], time_per_token)
        if others:
            limit = stats.quantile(others, 0.99)
            met, total = met + sum(value <= limit for value in own), total + len(own)
    return {"within_p99_of_others": round(met / total, 4) if total else None, "attainment": attainment(windows, limit_us)}


def ratio(value, base):
    return round(value / base, 4) if value is not None and base else None


def make_cell(raw, key, windows):
    """A row of llm.json."""
    at = dict(zip(KEY, key))
    same = {name: at[name] for name in ("model", "server", "load")}
    alone = find(raw["windows"], **same, place="native", low="")
    off = find(raw["windows"], **same, place=at["place"], low="")
    limit = OBJECTIVE * stats.quantile(latencies(alone, time_per_token), 0.99) if latencies(alone, time_per_token) else 0
    here, base, own = describe(windows), describe(alone) if alone else None, describe(off) if off else None
    cell = dict(at, **here, attainment=attainment(windows, limit), objective_us=round(limit),
                told_us=windows[0].get("told_us") if at["objective"] else None, asked_per_s=windows[0]["rate_per_s"])
    for name, other in (("alone", base), ("off", own)):
        if other:
            cell["of_" + name] = {f"{what}_{share}": ratio(here[what + "_us"][share], other[what + "_us"][share])
                                  for what in ("ttft", "tpot") for share in ("p50", "p99")}
    if off:
        cell["control"] = judge_control(off, limit)
    if at["low"]:
        speed = stats.mean(window["low_rate"] for window in windows)
        cell["low_per_s"] = round(speed, 3)
        cell["low_of_alone"] = ratio(speed, stats.mean(raw["low_alone"].get(at["low"], [])))
        cell["absence"] = round(1 - here["presence"], 4)
    return cell


def cells_of(raw):
    keys = list(dict.fromkeys(tuple(window[name] for name in KEY) for window in raw["windows"]))
    return [make_cell(raw, key, find(raw["windows"], **dict(zip(KEY, key)))) for key in sorted(keys)]


# Targets: of TTFT and TPOT p99 relative to the service alone without an objective; of LP relative to the time without a
# request; with an objective, of attainment, and of LP at 80 % load for each model.
TTFT_MOST, TPOT_MOST, ABSENCE_LEAST, ATTAINED_LEAST = 1.05, 1.02, 0.9, 0.99
OBJECTIVE_LOAD, OBJECTIVE_LOW = 80, {"1b": 0.60, "8b": 0.45}
TOKENS_LEAST = 1000


def targets_of(cell):
    """[(what, measured, target, met)] of a cell of an engine beside a job."""
    if not cell["low"] or cell["place"] not in ("temporal", "spatial"):
        return []
    rows = [("tokens", cell["tokens"], f">= {TOKENS_LEAST}", cell["tokens"] >= TOKENS_LEAST)]

    def most(what, value, limit):
        rows.append((what, value, f"<= {limit}", value is not None and value <= limit))

    def least(what, value, limit):
        rows.append((what, value, f">= {round(limit, 4)}", value is not None and value >= limit))
    if cell["objective"]:
        least("attainment", cell["attainment"], ATTAINED_LEAST)
        if cell["load"] == OBJECTIVE_LOAD and cell["model"] in OBJECTIVE_LOW:
            least("LP of alone", cell["low_of_alone"], OBJECTIVE_LOW[cell["model"]])
    elif "of_alone" in cell:
        most("TTFT p99 of alone", cell["of_alone"]["ttft_p99"], TTFT_MOST)
        most("TPOT p99 of alone", cell["of_alone"]["tpot_p99"], TPOT_MOST)
        least("LP of alone", cell["low_of_alone"], ABSENCE_LEAST * cell["absence"])
    return [{"what": what, "measured": value, "target": target, "met": met} for what, value, target, met in rows]


def report_of(raw):
    cells = [dict(cell, targets=targets_of(cell)) for cell in cells_of(raw)]
    return {"kind": "llm", "version": VERSION, **{key: raw.get(key) for key in ("commands", "about", "capacity", "low_alone",
                                                                              "starts", "dropped")},
            "objective_of_alone_p99": OBJECTIVE, "cells": cells}


def percent(value):
    return "-" if value is None else f"{100 * value:.1f}%"


def ms(value):
    return "-" if value is None else f"{value / 1e3:.2f}"


def change(value):
    return "-" if value is None else f"{100 * (value - 1):+.1f}%"


def table(report):
    """Lines for a terminal."""
    head = ("model", "server", "load", "way", "low", "req/s", "tokens", "TTFT p50", "p99 ms", "TPOT p50", "p99 ms", "TTFT p99",
            "TPOT p99", "attain", "control", "LP", "absent", "targets")
    lines = [head]
    for cell in report["cells"]:
        way = cell["place"] + (" +objective" if cell["objective"] else "")
        alone = cell.get("of_alone", {})
        lines.append((cell["model"], cell["server"], f"{cell['load']}%", way, cell["low"] or "-", str(cell["served_per_s"]),
                      str(cell["tokens"]), ms(cell["ttft_us"]["p50"]), ms(cell["ttft_us"]["p99"]), ms(cell["tpot_us"]["p50"]),
                      ms(cell["tpot_us"]["p99"]), change(alone.get("ttft_p99")), change(alone.get("tpot_p99")),
                      percent(cell["attainment"]), percent(cell.get("control", {}).get("within_p99_of_others")),
                      percent(cell.get("low_of_alone")), percent(cell.get("absence")),
                      f"{sum(one['met'] for one in cell['targets'])} of {len(cell['targets'])}" if cell["targets"] else "-"))
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    text = ["  ".join(word.ljust(width) if i < 5 else word.rjust(width) for i, (word, width) in enumerate(zip(line, widths)))
            for line in lines]
    text += ["", "TTFT p99, TPOT p99 without ms: relative to the service alone, native. attain: time per token within "
             f"{OBJECTIVE} x p99 alone; with an objective, within the one that the daemon had.",
             "control: windows without LP, each judged by the p99 of the others.",
             "LP: speed relative to alone. absent: share of the time in which no request is present."]
    for name, value in report["capacity"].items():
        text.append(f"capacity of {name}: {value:.2f} requests/s")
    text += [f"left out: {one}" for one in report["dropped"]]
    return text

# SPDX-License-Identifier: Apache-2.0
"""Putting results of one suite together that were measured in several calls: other cases, or more rounds of the same cases."""
import copy

from hbbench import results
from hbbench.tables import Refused

SAME = ("suite", "gpu", "driver", "simulated")  # a result is only one result where these are equal
SAME_IN_CASE = ("world", "low")


def services(case):
    return [(one["program"], one["arrivals"]) for one in case["high"]]


def is_measured(case):
    return bool(case["sharing"])


def refuse_unless(condition, path, what):
    if not condition:
        raise results.BadFile(f"{path}: {what}")


def drop_incomplete(case, other, path):
    """A way of sharing needs all rounds of a case, because the speed alone is that of the same rounds."""
    both = [{cell["name"] for cell in one["sharing"]} for one in (case, other)]
    dropped = {one["name"] for one in case["dropped"]}
    case["dropped"] += [one for one in other["dropped"] if one["name"] not in dropped]
    dropped |= {one["name"] for one in other["dropped"]}
    case["dropped"] += [{"name": name, "why": f"not measured in all parts that have this case (the last one is {path})"}
                        for name in sorted((both[0] ^ both[1]) - dropped)]
    for one in (case, other):
        one["sharing"] = [cell for cell in one["sharing"] if cell["name"] in both[0] & both[1]]


def add_energy(cell, another, rounds, more):
    """Adds the energy of another file's rounds; drops it if only one of the two files has energy."""
    for here, there in zip([cell, *cell["high"], *cell["low"]], [another, *another["high"], *another["low"]]):
        both = here.pop("energy_mj", None), there.get("energy_mj")
        if None not in both:
            here["energy_mj"] = both[0][:rounds] + both[1][:more]


def add_counts(cell, another):
    """Adds what a daemon has counted in both files; drops what only one of them has."""
    for kind, key in (("high", "takeovers"), ("low", "split")):
        for here, there in zip(cell[kind], another[kind]):
            both = here.pop(key, None), there.get(key)
            if None not in both:
                here[key] = {name: both[0][name] + both[1][name] for name in both[0]}


def add_rounds(case, other, path):
    """Adds the rounds of the same case in another file."""
    refuse_unless(services(case) == services(other) and all(case[key] == other[key] for key in SAME_IN_CASE), path,
                  f"the case {other['name']} has other programs than in the files before")
    drop_incomplete(case, other, path)
    more = {cell["name"]: cell for cell in other["sharing"]}
    for cell in case["sharing"]:
        another = more[cell["name"]]
        cell["clock_error_ns"] = max(cell["clock_error_ns"], another["clock_error_ns"])
        for kind, key in (("high", "rounds"), ("low", "rounds_per_s")):
            for here, there in zip(cell[kind], another[kind]):
                here[key] = here[key][:case["rounds"]] + there[key][:other["rounds"]]
        add_energy(cell, another, case["rounds"], other["rounds"])
        add_counts(cell, another)
    case["rounds"] += other["rounds"]
    case["unfinished"] = None  # how many rounds there are is shown with the case


def add_case(cases, case, path):
    at = next((i for i, one in enumerate(cases) if one["name"] == case["name"]), None)
    if at is None:
        cases.append(case)
    elif not is_measured(cases[at]):
        cases[at] = case
    elif is_measured(case):
        add_rounds(cases[at], case, path)


def refuse_unknown_ways(ways, parts):
    known = {cell["name"] for part in parts for case in part["cases"] for cell in case["sharing"]}
    for way in ways:
        if way not in known:
            raise Refused(f"--sharing {way}: not in these files; they have {', '.join(sorted(known))}")


def keep_ways(case, ways):
    """Leaves only `exclusive` and these ways of sharing in a case."""
    case["sharing"] = [cell for cell in case["sharing"] if cell["name"] in ("exclusive", *ways)]
    case["dropped"] = [one for one in case["dropped"] if one["name"] in ways]


def joined(texts):
    """Different texts in their order, as one."""
    return "; ".join(dict.fromkeys(texts))


def merge_files(paths, ways=()):
    """One result of all files. With `ways` it has only these ways of sharing and `exclusive`."""
    parts = [results.load(path) for path in paths]
    for path, part in zip(paths, parts):
        refuse_unless("cases" in part, path, "a table of rows cannot be merged; give results of hb bench run")
    refuse_unknown_ways(ways, parts)
    cases = []
    for path, part in zip(paths, parts):
        for key in SAME:
            refuse_unless(part[key] == parts[0][key], path, f"{key}: {part[key]}, but {parts[0][key]} in {paths[0]}")
        for case in part["cases"]:
            case = copy.deepcopy(case)
            case["window_s"] = case.get("window_s") or part["window_s"]
            if ways:
                keep_ways(case, ways)
            add_case(cases, case, path)
    lengths = {part["window_s"] for part in parts}
    head = {key: joined(part[key] for part in parts) for key in ("command", "time", "commit", "machine")}
    return results.summarize(dict(parts[0], **head, rounds=max(case["rounds"] for case in cases) or parts[0]["rounds"],
                                  window_s=lengths.pop() if len(lengths) == 1 else None, cases=cases))

# SPDX-License-Identifier: Apache-2.0
"""Result files: writing and reading JSON, also files of older versions, and the table for a terminal.

docs/bench.md describes the fields. Summaries are computed anew when a file is read.
"""
import gzip
import json
import os

from hbbench import stats, targets
from hbbench.tables import CLASSES, Refused

VERSION = 2  # version 1 has no "kind" and no "served_s"
NAME_WIDTH, CELL_WIDTH, SHARE_WIDTH = 12, 27, 24
# Places of the page that draws results, seen from the folder of `hb`: the build tree first, then an installation.
PAGES = ("src/report/page/report.html", "../share/hummingbird/report.html")
EMPTY = '<script type="application/json" id="data">null</script>'
LISTS = ("latency_ns", "due_ns", "wait_ns")  # written as one text of numbers each, which keeps files small


class BadFile(Refused):
    """A file cannot be read or written; the text names it."""


# --- out -------------------------------------------------------------------------------------------------------------

def rounded(value):
    """The same object with numbers cut to six decimals, so that no digit depends on the order of a sum."""
    if isinstance(value, float):
        return round(value, 6)
    if isinstance(value, dict):
        return {key: rounded(one) for key, one in value.items()}
    return [rounded(one) for one in value] if isinstance(value, list) else value


def packed(result):
    """The object that is written: latencies of a round are one text."""
    cases = []
    for case in result["cases"]:
        sharing = []
        for cell in case["sharing"]:
            high = [dict(one, rounds=[{key: " ".join(map(str, value)) if key in LISTS else value for key, value in each.items()}
                                      for each in one["rounds"]]) for one in cell["high"]]
            sharing.append(dict(cell, high=high))
        cases.append(dict(case, sharing=sharing))
    return rounded(dict(result, cases=cases))


def to_text(result):
    """The JSON text of a result file."""
    return json.dumps(packed(result), indent=2) + "\n"


def write_file(path, text):
    """Replaces the file at once and durably, compressed where its name ends in .gz."""
    part = path + ".part"
    try:
        with open(part, "wb") as file:
            file.write(gzip.compress(text.encode(), mtime=0) if path.endswith(".gz") else text.encode())
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except OSError as error:
        raise BadFile(f"{path}: {error.strerror}") from error


# --- in --------------------------------------------------------------------------------------------------------------

def check(condition, path, what):
    if not condition:
        raise BadFile(f"{path}: {what}")


def read_numbers(path, each):
    for key in LISTS:
        if key in each:
            try:
                each[key] = [int(word) for word in each[key].split()]
            except (ValueError, AttributeError):
                raise BadFile(f"{path}: {key}: not a list of numbers") from None


def read_cell(path, case, cell, rounds):
    check(cell["class"] in CLASSES, path, f"class: none of {', '.join(CLASSES)}")
    check(len(cell["high"]) == len(case["high"]) and len(cell["low"]) == len(case["low"]), path,
          "sharing: not the programs of the case")
    for high in cell["high"]:
        check(case["rounds"] <= len(high["rounds"]) <= rounds, path, "rounds: not as many as the file says")
        for each in high["rounds"]:
            check(isinstance(each["seen"], int), path, "seen: not a number")
            read_numbers(path, each)
    for low in cell["low"]:
        check(case["rounds"] <= len(low["rounds_per_s"]) <= rounds, path, "rounds_per_s: not as many as the file says")
    for row in stats.energy_rows(cell):
        check(all(isinstance(one, int) for one in row["energy_mj"]), path, "energy_mj: not numbers")
        check(case["rounds"] <= len(row["energy_mj"]) <= rounds, path, "energy_mj: not as many as the file says")


def read_result(path, data):
    check(data.get("version") in (1, VERSION), path, f"version: not 1 or {VERSION}")
    try:
        check(isinstance(data["rounds"], int) and data["rounds"] > 0, path, "rounds: not a positive number")
        for key in ("suite", "command", "time", "commit", "machine", "driver", "gpu"):
            check(isinstance(data[key], str), path, f"{key}: not a text")
        for case in data["cases"]:
            case.setdefault("rounds", data["rounds"])
            case.setdefault("unfinished", None)
            case.setdefault("dropped", [])
            check(0 <= case["rounds"] <= data["rounds"], path, "rounds: a case has more than the file")
            for cell in case["sharing"]:
                read_cell(path, case, cell, data["rounds"])
    except KeyError as missing:
        raise BadFile(f"{path}: {missing.args[0]} is missing") from None
    except (TypeError, AttributeError):
        raise BadFile(f"{path}: not a result of hb bench") from None
    return summarize(dict(data, kind="bench", version=VERSION))


def load(path):
    """A result: of `hb bench run`, or {"rows": [...]} of an older script (bench/results/h200/temporal.json and others)."""
    try:
        with open(path, "rb") as file:
            data = file.read()
        data = json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
    except (OSError, EOFError) as error:
        raise BadFile(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error
    except ValueError as error:
        raise BadFile(f"{path}: not JSON: {error}") from error
    if isinstance(data, dict) and "cases" not in data and isinstance(data.get("rows"), list):
        data = data["rows"]
    if isinstance(data, list):
        check(data and all(isinstance(row, dict) and {"what", "measured", "met"} <= set(row) for row in data), path,
              "not a result of hb bench")
        return {"kind": "bench", "rows": data}
    check(isinstance(data, dict), path, "not a result of hb bench")
    return read_result(path, data)


def summarize(result):
    """Fills all summaries from the raw values."""
    for case in result["cases"]:
        stats.summarize_case(case, case.get("window_s") or result["window_s"])
    result["overall"] = stats.summarize_all(result["cases"])
    result["rows"] = targets.compare(result)
    return result


# --- the table -------------------------------------------------------------------------------------------------------

def number_text(value):
    """About five significant digits."""
    return "-" if value is None else f"{value:.{2 if abs(value) < 100 else 1 if abs(value) < 1000 else 0}f}"


def share_text(value):
    return "-" if value is None else f"{100 * value:.1f}"


def estimate_text(estimate, text=number_text):
    """12.3 [12.1, 12.6]"""
    value, low, high = estimate
    return text(value) + (f" [{text(low)}, {text(high)}]" if low is not None or high is not None else "")


def name_width(rows):
    """Width of the first column: settings of an engine make long names."""
    return max([NAME_WIDTH] + [len(row["name"]) + 1 for row in rows])


def case_rows(case):
    width = name_width(case["sharing"])
    halves = any("control" in high["summary"] for cell in case["sharing"] for high in cell["high"])
    yield (f"  {'sharing':<{width}}{'n':>9}{'rate/s':>9}{'p50 us':>{CELL_WIDTH}}{'p99 us':>{CELL_WIDTH}}"
           f"{'in SLO %':>{SHARE_WIDTH}}" + (f"{'control %':>{SHARE_WIDTH}}" if halves else "") + (f"{'low, % of alone':>{SHARE_WIDTH}}" if case["low"] else ""))
    for cell in case["sharing"]:
        for i, high in enumerate(cell["high"]):
            found = high["summary"]
            line = (f"  {cell['name'] if i == 0 else '':<{width}}{found['seen']:>9}{number_text(found['rate_per_s']):>9}"
                    f"{estimate_text(found['p50_us']):>{CELL_WIDTH}}{estimate_text(found['p99_us']):>{CELL_WIDTH}}"
                    f"{estimate_text(found['attainment'], share_text):>{SHARE_WIDTH}}")
            if halves:
                line += f"{estimate_text(found.get('control', stats.UNKNOWN), share_text):>{SHARE_WIDTH}}"
            yield line + (f"{estimate_text(cell['low_of_alone'], share_text):>{SHARE_WIDTH}}" if i == 0 and case["low"] else "")


def split_lines(case):
    """Which launches of low priority were split, where that was noted."""
    for cell in case["sharing"]:
        for low in cell["low"]:
            if "split" in low:
                yield (f"  {cell['name']}: {low['split']['split']} of {low['split']['kernels']} launches of low priority were split, into "
                       f"{low['split']['parts']} parts")


def takeover_lines(case):
    """How many requests of each service found the GPU taken over, in the ways with takeovers."""
    for cell in case["sharing"]:
        shares = [f"{100 * counts['requests_with_takeover'] / counts['requests']:.0f} % of {counts['requests']}"
                  for counts in (high.get("takeovers") for high in cell["high"]) if counts and counts["requests"]]
        if shares:
            yield f"  {cell['name']}: the GPU was taken over before {', '.join(shares)} requests since the services started"


def energy_lines(case):
    found = [f"{cell['name']} {100 * cell['energy_of_alone']:.0f} %" for cell in case["sharing"] if cell.get("energy_of_alone")]
    if found:
        yield "  energy relative to the same work with a GPU for each program: " + ", ".join(found)


def headline_text(case):
    line = case["headline"]
    if not line:
        return None
    cells = {cell["name"]: cell for cell in case["sharing"]}
    text = f"  {line['engine']}: {share_text(cells[line['engine']]['attainment'])} % in SLO"
    if line["attainment_below_exclusive"] is not None:
        text += f", {100 * line['attainment_below_exclusive']:.1f} points below exclusive"
    for kind in ("spatial", "temporal"):
        if line[kind]:
            text += (f"; best {kind} {line[kind]} {share_text(cells[line[kind]]['attainment'])} % "
                     f"({number_text(line['attainment_of_' + kind])}x)")
    if line["low_of_temporal"] is not None:
        text += f"; low priority {number_text(line['low_of_temporal'])}x of {line['temporal']}"
    return text


def case_lines(case, rounds):
    yield f"\n{case['name']} ({case['world']})"
    if case["unfinished"]:
        yield f"  {case['unfinished']}"
    elif case["sharing"] and 0 < case["rounds"] < rounds:
        yield f"  only {case['rounds']} rounds: the time was over"
    for service in case["high"]:
        yield f"  high  {service['program']}, {service['arrivals']}, SLO {number_text(service.get('slo_us'))} us (p99 alone)"
    for name in case["low"]:
        yield f"  low   {name}"
    yield ""
    for how in ("failed", "skipped"):
        if case[how]:
            yield f"  {how}: {case[how]}"
            return
    yield from case_rows(case)
    lines = [*split_lines(case), *takeover_lines(case), *energy_lines(case)]
    yield from ["", *lines] if lines else []
    if headline_text(case):
        yield "\n" + headline_text(case)
    error = max((cell["clock_error_ns"] for cell in case["sharing"]), default=0)
    if error:
        yield f"\n  the GPU's clock was compared to +- {error / 1e3:.2f} us"
    for dropped in case["dropped"]:
        yield f"\n  {dropped['name']} failed: {dropped['why']}"


def overall_lines(overall):
    yield (f"\nall {overall['cases']} cases together: best spatial baseline {overall['spatial'] or 'none'}, "
           f"best temporal baseline {overall['temporal'] or 'none'}\n")
    width = name_width(overall["sharing"])
    yield (f"  {'sharing':<{width}}{'cases':>6}{'in SLO %':>12}{'least':>8}{'below excl.':>12}{'x spatial':>12}"
           f"{'x temporal':>12}{'low, %':>12}{'x temporal':>12}")
    for row in overall["sharing"]:
        yield (f"  {row['name']:<{width}}{row['cases']:>6}{share_text(row['attainment']):>12}{share_text(row['least']):>8}"
               f"{share_text(row['attainment_below_exclusive']):>12}{number_text(row['attainment_of_spatial']):>12}"
               f"{number_text(row['attainment_of_temporal']):>12}{share_text(row['low_of_alone']):>12}"
               f"{number_text(row['low_of_temporal']):>12}")


def row_lines(rows):
    for row in rows:
        measured, baseline = (f"{value:.5g}" if isinstance(value, float) else value for value in (row["measured"], row.get("baseline")))
        yield (f"{row['what']}: {measured} {row.get('unit', '')}" + (f" (baseline {baseline})" if baseline is not None else "")
               + f", target {row.get('target')}: {'met' if row['met'] else 'MISSED'}")


def table_lines(result):
    if "rows" in result and "cases" not in result:
        yield from row_lines(result["rows"])
        return
    length = f" of {result['window_s']:g} s" if result["window_s"] else ""
    yield (f"{result['suite']} on {result['gpu']}, driver {result['driver']}: {result['rounds']} rounds{length}, "
           f"95 % intervals in brackets")
    for case in result["cases"]:
        yield from case_lines(case, result["rounds"])
    if result["overall"]["cases"] > 1:
        yield from overall_lines(result["overall"])
    if result.get("rows"):
        yield ""
        yield from row_lines(result["rows"])


def print_table(result):
    for line in table_lines(result):
        print(line)


# --- the page --------------------------------------------------------------------------------------------------------

def page_text(frame, result):
    """The static page with the result inside; `<` is escaped, so that no text of the result ends the script element."""
    data = json.dumps(packed(result) if "cases" in result else result).replace("<", "\\u003c")
    check(EMPTY in frame, "the page", "it has no place for the data")
    return frame.replace(EMPTY, EMPTY.replace("null", data), 1)


def page_frame(hb):
    """Text of the page that draws results."""
    folder = os.path.dirname(os.path.realpath(hb))
    for place in PAGES:
        path = os.path.join(folder, place)
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                return file.read()
    raise BadFile(f"report.html is not found beside {hb}")

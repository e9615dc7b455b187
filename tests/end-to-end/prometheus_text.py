# SPDX-License-Identifier: Apache-2.0
"""A strict reader of Prometheus' text format 0.0.4 and of its rules for names, for
tests. Text that a scraper would accept silently, although it breaks a rule, is an
error here. read() gives {name: Family}; the samples of a histogram belong to its
family."""
import re

NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"')
# Words in names that repeat the unit, or name a unit other than the base unit.
BAD_UNITS = re.compile(r"_(ns|us|ms|milliseconds|microseconds|nanoseconds|kib|mib|gib|percent|ppm)(_total)?$")


class Family:
    def __init__(self, name, kind, text):
        self.name, self.kind, self.help = name, kind, text
        self.samples = []  # (name, {label: value}, value)

    def values(self, suffix="", **labels):
        return [value for name, found, value in self.samples
                if name == self.name + suffix and all(found.get(key) == text for key, text in labels.items())]


def read_labels(text):
    labels, at = {}, 0
    while at < len(text):
        match = LABEL.match(text, at)
        assert match, f"label: {text[at:]!r}"
        assert match[1] not in labels, f"repeated label: {match[1]}"
        labels[match[1]] = match[2]
        at = match.end()
        if at < len(text):
            assert text[at] == ",", f"between labels: {text[at:]!r}"
            at += 1
    return labels


def read_sample(line):
    match = re.fullmatch(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? ([0-9.eE+-]+|NaN|[+-]Inf)", line)
    assert match, f"no sample: {line!r}"
    return match[1], read_labels(match[2] or ""), float(match[3])


def base_name(name, family):
    if family.kind == "histogram":
        for suffix in ("_bucket", "_sum", "_count"):
            if name == family.name + suffix:
                return family.name
        return None
    return name


def check_histogram(family):
    series = {}
    for name, labels, value in family.samples:
        key = tuple(sorted((k, v) for k, v in labels.items() if k != "le"))
        series.setdefault(key, {"buckets": []})
        if name.endswith("_bucket"):
            series[key]["buckets"].append((float(labels["le"]), value))
        else:
            series[key][name.rsplit("_", 1)[1]] = value
    for key, found in series.items():
        bounds, counts = zip(*found["buckets"])
        assert list(bounds) == sorted(set(bounds)) and bounds[-1] == float("inf"), f"{family.name}{key}: bounds"
        assert list(counts) == sorted(counts), f"{family.name}{key}: buckets are not cumulative"
        assert counts[-1] == found["count"], f"{family.name}{key}: count"
        assert found["sum"] >= 0, f"{family.name}{key}: sum"


def check_names(family):
    name = family.name
    assert name.startswith("hb_"), f"{name}: prefix"
    assert name == name.lower() and "__" not in name, f"{name}: form"
    assert not BAD_UNITS.search(name), f"{name}: not a base unit"
    assert (family.kind == "counter") == name.endswith("_total"), f"{name}: _total is for counters"
    assert family.help and not family.help.endswith("."), f"{name}: help"


def read(text):
    assert text.endswith("\n"), "the last line has no end"
    families, current, helped = {}, None, None
    for line in text[:-1].split("\n"):
        if line.startswith("# HELP "):
            _, _, name, words = line.split(" ", 3)
            assert NAME.fullmatch(name) and name not in families, f"repeated or bad: {name}"
            helped = (name, words)
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert helped and helped[0] == name, f"TYPE without HELP: {name}"
            assert kind in ("counter", "gauge", "histogram"), line
            current = families[name] = Family(name, kind, helped[1])
        else:
            name, labels, value = read_sample(line)
            assert current and base_name(name, current) == current.name, f"{name} outside its family"
            same = [found for found in current.samples if found[:2] == (name, labels)]
            assert not same, f"twice: {line}"
            current.samples.append((name, labels, value))
    for family in families.values():
        check_names(family)
        if family.kind == "histogram":
            check_histogram(family)
    return families

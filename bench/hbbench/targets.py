# SPDX-License-Identifier: Apache-2.0
"""Targets of Hummingbird on a real GPU, with which the results of a run are compared."""
import dataclasses
import fnmatch

METRICS = {"mean_us": "us", "p50_us": "us", "p99_us": "us", "attainment": "%", "low": "% of alone", "low_per_s": "1/s",
           "low_ratio": "times the first"}


@dataclasses.dataclass(frozen=True)
class Target:
    """In each matching case `metric` of `way` is at most (or at least) factor * baseline + plus. The baseline is the same
    metric of another way, which may be in another case; without a baseline the limit is `plus`."""
    suite: str
    case: str
    way: str
    metric: str
    relation: str  # "<=" or ">="
    plus: float = 0.0
    baseline: str = ""
    factor: float = 1.0
    baseline_case: str = ""

    def text(self):
        """The limit in words: "<= 1.6 x exclusive + 5 us"."""
        unit = METRICS[self.metric]
        if not self.baseline:
            return f"{self.relation} {self.plus:g} {unit}"
        factor = "" if self.factor == 1 else f"{self.factor:g} x "
        where = f" in {self.baseline_case}" if self.baseline_case else ""
        plus = f" {'+' if self.plus > 0 else '-'} {abs(self.plus):g} {unit.split()[0]}" if self.plus else ""
        return f"{self.relation} {factor}{self.baseline}{where}{plus}"


def paper_targets():
    """The papers' figures as targets: (case, metric, relation, plus, baseline, factor). docs/evaluation.md has the sources."""
    for way in ("temporal", "spatial"):
        for case, metric, relation, plus, baseline, factor in (
                ("hummingbird-*", "attainment", ">=", 0, "mps_prio", 9.7), ("hummingbird-*", "attainment", ">=", 0, "timeslice", 3.5),
                ("hummingbird-*", "attainment", ">=", -1, "exclusive", 1), ("hummingbird-*", "low", ">=", 0, "reef", 2.4),
                ("gpreempt-*", "mean_us", "<=", 0, "exclusive", 1.024), ("gpreempt-*", "low", ">=", 0, "mps", 0.886),
                ("missile-*", "attainment", ">=", 99, "", 1), ("missile-*", "p99_us", "<=", 0, "orion", 0.5),
                ("missile-*", "low", ">=", 0, "orion", 2.36)):
            yield Target("paper", case, way, metric, relation, plus, baseline, factor)


TARGETS = [
    *paper_targets(),
    *(Target("calls", "*", way, metric, "<=", plus, "exclusive") for way in ("temporal", "spatial")
      for metric, plus in (("p50_us", 0.06), ("p99_us", 0.15))),
    *(Target("pairs", "*", way, metric, relation, plus, baseline, factor) for way in ("temporal", "spatial")
      for metric, relation, plus, baseline, factor in (
          ("attainment", ">=", -1, "exclusive", 1), ("low", ">=", 0, "reef", 2), ("mean_us", "<=", 0, "exclusive", 1.05))),
    *(Target("splitting", "*", way, metric, relation, 0, f"{way}:HB_SPLIT=0", factor)
      for way in ("spatial", "spatial:HB_MASKS=0") for metric, relation, factor in (("p99_us", "<=", 1 / 3), ("low", ">=", 0.97))),
    *(Target("preparation", f"hint-{us}us", "temporal", "p50_us", "<=", 6, "exclusive") for us in (200, 250, 400)),
    Target("engines", "graph-60-*", "temporal", "p50_us", "<=", 230, "exclusive"),
    Target("engines", "graph-60-*", "temporal", "p99_us", "<=", 0, "exclusive", 1.6),
    Target("engines", "graph-60-*", "temporal", "low", ">=", 93),
    Target("engines", "*", "spatial", "attainment", ">=", -1, "exclusive"),
    Target("engines", "*-60-beside-training", "spatial", "low", ">=", 92),
    Target("engines", "*-60-beside-llm-training", "spatial", "low", ">=", 90),
    *(Target("combinations", f"{high}-beside-{low}", "spatial", "low", ">=", least) for high, low, least in (
        ("resnet50_b1-220", "resnet50", 80), ("resnet50_b1-220", "llama8", 75),
        ("resnet50_b1-60", "resnet50", 92), ("resnet50_b1-60", "llama8", 90))),
    Target("combinations", "*", "spatial", "attainment", ">=", -1, "exclusive"),
    Target("combinations", "*", "spatial", "low", ">=", 0, "temporal"),
    Target("kernels", "beside-*", "temporal", "p99_us", "<=", 260),
    *(Target("kernels", f"beside-{n}", "temporal", "low_per_s", ">=", 0, "mps", 0.98) for n in (2, 4)),
    Target("kernels", "16-blocks", "spatial", "p50_us", "<=", 15, "exclusive"),
    Target("kernels", "16-blocks", "spatial", "p99_us", "<=", 25, "exclusive"),
    Target("kernels", "16-blocks", "spatial", "low", ">=", 90),
    Target("kernels", "last-block-leaves", "reef", "p50_us", "<=", 30, "exclusive"),
    Target("kernels", "last-block-leaves", "reef", "p99_us", "<=", 150, "exclusive"),
    *(Target("copies", case, way, metric, relation, limit) for way in ("temporal", "spatial")
      for case, metric, relation, limit in (
          ("?2?", "p99_us", "<=", 60), ("?2?", "low", ">=", 99), ("weights", "p99_us", "<=", 100),
          ("weights", "low_ratio", ">=", 2.7), ("weights", "low_ratio", "<=", 3.3))),
    Target("foresight", "hinted-kernel", "temporal", "p50_us", "<=", 6, "exclusive", baseline_case="plain-kernel"),
    Target("foresight", "hinted-kernel", "temporal", "p99_us", "<=", 15, "exclusive", baseline_case="plain-kernel"),
    Target("foresight", "hinted-kernel", "temporal", "low_per_s", ">=", 0, "temporal", 0.97, "plain-kernel"),
    Target("foresight", "http-beside-*", "temporal", "p50_us", "<=", 15, "exclusive"),
    Target("foresight", "http-beside-*", "temporal", "p99_us", "<=", 0, "exclusive", 1.05),
    Target("foresight", "http-beside-*", "temporal", "attainment", ">=", -0.5, "exclusive"),
    Target("foresight", "http-beside-*", "temporal", "low_per_s", ">=", 0, "no_signs", 0.97),
    Target("foresight", "http-hostile", "temporal", "low_per_s", ">=", 0, "temporal", 0.98, "http-quiet"),
]


def value_of(cases, case, way, metric):
    """The measured number in the unit of METRICS, or None. Of several services the worst counts."""
    cell = next((cell for one in cases if one["name"] == case for cell in one["sharing"] if cell["name"] == way), None)
    if not cell:
        return None
    if metric == "low_per_s":
        speeds = [low["summary"]["per_s"] for low in cell["low"]]
        return sum(speeds) if speeds and None not in speeds else None
    if metric == "low_ratio":
        speeds = [low["summary"]["per_s"] for low in cell["low"]]
        return speeds[-1] / speeds[0] if len(speeds) > 1 and None not in speeds and speeds[0] else None
    if metric in ("low", "attainment"):
        share = cell["low_of_alone"][0] if metric == "low" else cell["attainment"]
        return None if share is None else 100 * share
    return max((high["summary"][metric][0] for high in cell["high"] if high["summary"][metric][0] is not None), default=None)


def compare(result):
    """Rows for the result: {what, measured, baseline, unit, target, met}."""
    rows, cases = [], result["cases"]
    for target in TARGETS:
        if target.suite != result["suite"] or result["simulated"] and target.suite not in ("combinations", "paper"):
            continue
        # The numbers of a simulated GPU depend on the host, except those of recorded programs.
        shown = [case for case in cases if not result["simulated"] or case["world"] == "virtual"]
        for case in (case["name"] for case in shown if fnmatch.fnmatch(case["name"], target.case)):
            measured = value_of(cases, case, target.way, target.metric)
            baseline = value_of(cases, target.baseline_case or case, target.baseline, target.metric) if target.baseline else None
            if measured is None or target.baseline and baseline is None:
                continue
            limit = target.plus + (target.factor * baseline if target.baseline else 0)
            rows.append({"what": f"{case}: {target.way}, {target.metric}", "measured": measured, "baseline": baseline,
                         "unit": METRICS[target.metric], "target": target.text(),
                         "met": measured <= limit if target.relation == "<=" else measured >= limit})
    return rows

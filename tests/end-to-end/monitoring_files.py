# SPDX-License-Identifier: Apache-2.0
"""The Grafana dashboard and the alert rules that are installed, for tests: their queries, and whether each metric, label
and value in them exists in a scrape of the daemon."""
import json
import os
import re

PACKAGING = os.path.join(os.path.dirname(__file__), "..", "..", "packaging")
DASHBOARD = os.path.join(PACKAGING, "grafana", "hummingbird.json")
RULES = os.path.join(PACKAGING, "prometheus", "hummingbird.rules.yml")
RULE_TESTS = os.path.join(PACKAGING, "prometheus", "hummingbird.rules.test.yml")
# Prometheus itself adds these labels and makes this metric; buckets have `le`.
OWN_LABELS, OWN_METRICS = {"instance", "job", "le"}, {"up"}
SELECTOR = re.compile(r"\b([a-z_]+)\{([^}]*)\}")
MATCHER = re.compile(r'([A-Za-z_]+)(=~|!=|!~|=)"([^"]*)"')


def dashboard_queries():
    """{title of panel and letter: (query, labels that its legend names)}"""
    with open(DASHBOARD, encoding="utf-8") as file:
        panels = json.load(file)["panels"]
    return {f"{panel['title']} {target['refId']}": (target["expr"], re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            for panel in panels for target in panel.get("targets", [])}


def variable_queries():
    with open(DASHBOARD, encoding="utf-8") as file:
        variables = json.load(file)["templating"]["list"]
    return [re.fullmatch(r"label_values\((.*), (\w+)\)", v["query"]["query"]).groups() for v in variables if v["type"] == "query"]


def rule_queries():
    """{alert: (query, labels that its texts name)}"""
    with open(RULES, encoding="utf-8") as file:
        text = re.sub(r"^\s*#.*\n", "", file.read(), flags=re.M)
    alerts = {}
    for part in text.split("- alert: ")[1:]:
        folded = re.search(r"expr: >-\n((?: {10}.*\n)+)", part)
        query = " ".join(folded[1].split()) if folded else re.search(r"expr: (.*)", part)[1]
        alerts[part.split()[0]] = (query, re.findall(r"\$labels\.(\w+)", part))
    return alerts


def all_queries():
    return dashboard_queries() | rule_queries() | {f"variable {label}": (query, [label]) for query, label in variable_queries()}


def find_samples(families, metric):
    """The labels of the metric's samples; None if the daemon has no such metric."""
    name = re.sub(r"_(bucket|sum|count)$", "", metric)
    family = families.get(metric) or families.get(name)
    return family and [labels for sample, labels, _ in family.samples if sample == metric]


def check_selectors(query, samples):
    """Returns what is wrong: labels that a metric lacks, and values that no sample has."""
    wrong = []
    for metric, matchers in SELECTOR.findall(query):
        for label, how, value in MATCHER.findall(matchers):
            found = {labels[label] for labels in samples.get(metric, []) if label in labels}
            if metric in OWN_METRICS or label in OWN_LABELS:
                continue
            if not found:
                wrong.append(f"{metric} has no label {label}")
            elif how == "=" and value not in found:
                wrong.append(f"{metric} has no {label}={value}")
    return wrong


def check(families, queries):
    """Compares queries with the families of a scrape (prometheus_text.py). Returns texts that say what is wrong."""
    wrong = []
    for title, (query, named) in queries.items():
        bare = re.sub(r'"[^"]*"', '""', query)
        metrics = set(re.findall(r"\bhb_\w+", bare))
        samples = {metric: find_samples(families, metric) for metric in metrics}
        wrong += [f"{title}: the daemon has no metric {metric}" for metric, found in samples.items() if found is None]
        known = {metric: found for metric, found in samples.items() if found}
        wrong += [f"{title}: {text}" for text in check_selectors(query, known)]
        # A metric without samples cannot show its labels, so what groups and names needs one that has some.
        labels = set(OWN_LABELS).union(*(labels for found in known.values() for labels in found))
        grouped = [word for words in re.findall(r"\b(?:by|on|ignoring|group_left|group_right) ?\(([^)]*)\)", bare)
                   for word in re.findall(r"\w+", words)]
        wrong += [f"{title}: no metric has the label {label}" for label in {*named, *grouped} - labels]
    return wrong

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The installed dashboard and alert rules with a Prometheus that scrapes the daemon: promtool accepts the rules, their
tests pass, and each query of the dashboard has an answer. Skipped (77) where no Prometheus is installed (Debian:
prometheus). test_stack_metrics.py compares the names without it."""
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import unittest
import urllib.parse
import urllib.request

import monitoring_files
from stack import LIMIT, Stack, wait_until


def promtool(*arguments):
    done = subprocess.run(["promtool", *arguments], capture_output=True, text=True, timeout=LIMIT, check=False)
    return done.returncode, done.stdout + done.stderr


def fill_in(query):
    """The query with Grafana's variables replaced."""
    return query.replace("$__rate_interval", "5s").replace("$host", ".*").replace("$gpu", ".*")


class Rules(unittest.TestCase):
    def test_promtool_accepts_the_rules(self):
        status, text = promtool("check", "rules", monitoring_files.RULES)
        self.assertEqual(status, 0, text)
        status, text = promtool("test", "rules", monitoring_files.RULE_TESTS)
        self.assertEqual(status, 0, text)

    def test_the_tests_of_the_rules_can_fail(self):
        with tempfile.TemporaryDirectory() as folder:
            for path in (monitoring_files.RULES, monitoring_files.RULE_TESTS):
                shutil.copy(path, folder)
            rules = os.path.join(folder, os.path.basename(monitoring_files.RULES))
            with open(rules, encoding="utf-8") as file:
                text = file.read()
            with open(rules, "w", encoding="utf-8") as file:
                file.write(text.replace("(1 - hb_tenant_slo_target_ratio)", "(2 - hb_tenant_slo_target_ratio)"))
            status, text = promtool("test", "rules", os.path.join(folder, os.path.basename(monitoring_files.RULE_TESTS)))
            self.assertNotEqual(status, 0, text)
            self.assertIn("HummingbirdSloMissed", text)


class Scrape(unittest.TestCase):
    def start_prometheus(self, folder, target):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        config = os.path.join(folder, "prometheus.yml")
        with open(config, "w", encoding="utf-8") as file:
            file.write(f"global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: ['{os.path.abspath(monitoring_files.RULES)}']\n"
                       f"scrape_configs: [{{job_name: hummingbird, static_configs: [{{targets: ['{target}']}}]}}]\n")
        return subprocess.Popen(["prometheus", f"--config.file={config}", f"--storage.tsdb.path={folder}/data",
                                 f"--web.listen-address={self.address}", "--log.level=error"])

    def ask(self, path, **parameters):
        try:
            with urllib.request.urlopen(f"http://{self.address}/api/v1/{path}?{urllib.parse.urlencode(parameters)}", timeout=LIMIT) as answer:
                return json.load(answer)["data"]
        except OSError as error:
            if getattr(error, "code", 0) == 400:
                raise AssertionError(f"{parameters}: {error.read().decode()}") from None
            return None

    def answers(self, query):
        data = self.ask("query", query=fill_in(query))
        return data and data["result"]

    def test_each_query_of_the_dashboard_has_an_answer(self):
        with Stack(config="metrics: 127.0.0.1:0\n", mps=False) as stack, tempfile.TemporaryDirectory() as folder:
            stack.start_daemon()
            high = stack.start("high", "infer", "--rate", 50, "--seconds", 3600, "--kernels", 8, options=("--slo", "10ms"))
            low = stack.start("low", "train", 300, 0)
            low.expect("running")
            server = self.start_prometheus(folder, stack.status()["daemon"]["metrics"]["address"])
            try:
                for title, (query, _) in monitoring_files.dashboard_queries().items():
                    wait_until(f"{title} has an answer: {query}", lambda query=query: self.answers(query))
                rules = [rule for group in self.ask("rules")["groups"] for rule in group["rules"]]
                self.assertEqual({rule["name"] for rule in rules}, set(monitoring_files.rule_queries()))
                wait_until("every rule was evaluated", lambda: all(rule["health"] == "ok" for group in self.ask("rules")["groups"]
                                                                   for rule in group["rules"]))
            finally:
                server.terminate()
                server.wait()
            for program in (high, low):
                program.signal(signal.SIGTERM)
                program.ended()


if __name__ == "__main__":
    if not shutil.which("prometheus") or not shutil.which("promtool"):
        print("no Prometheus is installed (Debian: prometheus): only the names in dashboard and rules are checked elsewhere")
        sys.exit(77)
    unittest.main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The page of `hb sim --report` and `hb bench --report` in a headless Chromium: it draws the numbers of
its data, shows names of programs as text, and saves charts. Skipped (77) where
no Chromium is installed (Debian: chromium).

usage: test_report_page.py HB EMPTY_PAGE SAVE_CHART
"""
import json
import math
import os
import subprocess
import sys
import tempfile
import unittest

import browser

HB, EMPTY_PAGE, SAVE_CHART = sys.argv[1:4]
TESTS = os.path.dirname(os.path.abspath(__file__))
HOSTILE = "</script><img src=x onerror=\"document.title='stolen'\">&amp;'<b>"
BEGIN, END = '<script type="application/json" id="data">', "</script>"

CELLS = "[...document.querySelectorAll('table')].map(t => [...t.tBodies[0].rows].map(r => [...r.cells].map(c => c.textContent)))"
# Name and place of every dot, and the places of the labelled grid lines, of the first chart.
DOTS = """(() => {
  const svg = document.querySelector("svg.plot"), center = e => { const b = e.getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / 2]; };
  const ticks = [...svg.querySelectorAll("text.tick")].map(t => [t.getAttribute("text-anchor"), parseFloat(t.textContent) / 100, ...center(t)]);
  return { ticks, dots: [...svg.querySelectorAll("g.s")].map(g => [g.dataset.name, ...center(g.querySelector(".m"))]) };
})()"""


def number(value):
    """hb.number() of page/charts.js."""
    small = 0 < abs(value) < 0.1
    places = 0 if value >= 100 else 1 if value >= 10 else 2 if not small else 3 if value >= 0.01 else 4
    return f"{value:.{places}f}"


def nines(share):
    """The position of a share on a scale on which 0, 90 and 99 % are equal steps."""
    return -math.log10(1 - share)


def embed(path, data):
    """Puts data into the page as any program may: "<" must not appear in it."""
    with open(EMPTY_PAGE, encoding="utf-8") as file:
        page = file.read()
    head, rest = page.split(BEGIN)
    with open(path, "w", encoding="utf-8") as file:
        file.write(head + BEGIN + json.dumps(data).replace("<", "\\u003c") + rest[rest.index(END):])


def made_up(name):
    """Two modes; the request has one switch, a takeover, a kernel in two parts, and another program at the gate."""
    def result(sharing, attainment, relative):
        return {"gpu": "h200", "sharing": sharing, "seconds": 1, "seed": 1, "gpu_busy": 0.5,
                "high": [{"workload": name, "rate_per_s": 60, "requests": 2, "p50_us": 1500, "p90_us": 2500, "p99_us": 2500,
                          "max_us": 2500, "slo_us": 2000, "attainment": attainment, "distribution": [[1500, 0.5], [2500, 1]]}],
                "low": [{"workload": name + "2", "iterations_per_s": 3, "relative": relative}]}
    spans = [[0, 0, 0, 1000000, 0], [3, 0, 1000, 190000, 0], [4, 0, 2000, 180000, 0], [1, 0, 200000, 100000, 1],
             [1, 0, 500000, 50000, 1], [1, 1, -50000, 60000, 0], [5, 1, 200000, 900000, 0]]
    mode = {"name": name, "latency_ns": 1000000, "from_ns": -100000, "to_ns": 1200000, "spans": spans}
    return {"kind": "sim", "command": name, "reading": name, "slo_kept": 0.95,
            "results": [result("timeslice", 0.5, 0.9), result(name, 1, 0.8)],
            "request": {"programs": [{"name": name, "high": True}, {"name": name + "2", "high": False}], "names": [name, "kernel"],
                        "slo_ns": 2000000, "shown": [0, 0], "modes": [mode]}}


class ReportPage(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.page = browser.Browser().__enter__()

    @classmethod
    def tearDownClass(cls):
        cls.page.__exit__(None, None, None)

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.path = os.path.join(self.folder, "page.html")
        self.page.errors.clear()

    def simulate(self):
        command = [HB, "sim", "--trace", os.path.join(TESTS, "tiny.csv"), "--high", "tiny_service@100/s", "--low", "tiny_train",
                   "--seconds", "2", "--report", self.path, "--json"]
        return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)

    def open(self, path):
        """Loads a file. Every test has a folder of its own, so the path tells the page from that of the test before."""
        self.page.open("file://" + path)
        self.page.wait_for(f"location.pathname === {json.dumps(path)} && document.readyState === 'complete'")

    def show(self):
        self.open(self.path)
        self.page.wait_for("document.querySelectorAll('main > *').length > 1")

    def bench(self, *arguments):
        return subprocess.run([HB, "bench", *arguments], check=True, stdout=subprocess.PIPE, text=True).stdout

    def test_the_page_draws_results_of_hb_bench_and_shows_names_as_text(self):
        data = json.loads(self.bench("run", "pairs", "--gpu", "sim", "--case", "resnet50-beside-training", "--rounds", "2",
                                     "--seconds", "0.3", "--sharing", "timeslice,temporal", "--json"))
        case = data["cases"][0]
        data["gpu"] = HOSTILE
        case["low"] = [HOSTILE]
        data["cases"].append(dict(case, name="again"))
        with open(self.path + ".json", "w", encoding="utf-8") as file:
            json.dump(data, file)
        self.bench("report", self.path + ".json", "--report", self.path)
        self.show()
        together, *cases = self.page.run(CELLS)
        self.assertEqual([row[0] for row in together], ["exclusive", "timeslice", "temporal"])
        for rows in cases:
            self.assertEqual([row[0] for row in rows], [cell["name"] for cell in case["sharing"]])
            self.assertEqual([row[1] for row in rows], [str(cell["high"][0]["summary"]["seen"]) for cell in case["sharing"]])
        self.assertEqual(len(cases), 2)
        self.assertEqual(self.page.run("document.querySelectorAll('svg.plot').length"), 5)
        self.assertEqual(self.page.run("document.querySelectorAll('img').length"), 0)
        self.assertIn(HOSTILE, self.page.run("document.title"))
        self.assertEqual(self.page.errors, [])

    def test_the_page_draws_the_numbers_of_its_data(self):
        results = self.simulate()
        self.show()
        self.check_table(results, self.page.run(CELLS)[0])
        self.check_dots(results, self.page.run(DOTS))
        legend = self.page.run("[...document.querySelectorAll('svg.plot')[1].querySelectorAll('g.s')].map(g => [...g.querySelectorAll('text')]"
                               ".map(t => t.textContent))")
        self.assertEqual(legend, [[one["sharing"], number(one["high"][0]["p99_us"] / 1e3)] for one in results])
        self.assertGreater(self.page.run("document.querySelectorAll('.lanes rect').length"), 2)
        self.assertEqual(self.page.errors, [])

    def check_table(self, results, rows):
        self.assertEqual(len(rows), len(results))
        for row, result in zip(rows, results):
            high, low = result["high"][0], result["low"][0]
            self.assertEqual(row[0], result["sharing"])
            self.assertEqual(row[1:5], [number(high[key] / 1e3) for key in ("p50_us", "p90_us", "p99_us", "max_us")])
            self.assertEqual(row[6], number(low["iterations_per_s"]))
            for text, share in ((row[5], high["attainment"]), (row[7], low["relative"]), (row[8], result["gpu_busy"])):
                self.assertAlmostEqual(float(text.rstrip("\u202f%")), 100 * share, delta=0.051)

    def check_dots(self, results, chart):
        """A dot's place between labelled grid lines is its speed and, on a scale of nines, its attainment."""
        across = sorted((x, share) for anchor, share, x, _ in chart["ticks"] if anchor == "middle")
        (left, low), (right, high) = across[0], across[-1]
        up = sorted((y, share) for anchor, share, _, y in chart["ticks"] if anchor == "end")
        (top, most), (bottom, least) = up[0], up[-1]
        places = {name: (x, y) for name, x, y in chart["dots"]}
        self.assertEqual(list(places), [one["sharing"] for one in results])
        for one in results:
            x, y = places[one["sharing"]]
            self.assertAlmostEqual(low + (x - left) / (right - left) * (high - low), one["low"][0]["relative"], delta=0.01)
            share = min(most, one["high"][0]["attainment"])
            part = (nines(share) - nines(least)) / (nines(most) - nines(least))
            # The middle of a triangle's box is a pixel from its center.
            self.assertAlmostEqual(y, bottom + part * (top - bottom), delta=2.5)

    def test_hostile_names_are_shown_as_text(self):
        embed(self.path, made_up(HOSTILE))
        self.show()
        self.assertEqual(self.page.run("document.querySelectorAll('img, b').length"), 0)
        self.assertEqual(self.page.run("document.querySelector('h1').textContent"), f"{HOSTILE} beside {HOSTILE}2 on one h200")
        self.assertEqual(self.page.run("document.querySelector('p.reading').textContent"), HOSTILE)
        self.assertIn(HOSTILE, self.page.run("document.querySelector('.lanes rect title').textContent"))
        self.assertEqual(self.page.errors, [])

    def test_the_costs_of_a_request_are_sums_within_it(self):
        embed(self.path, made_up("program"))
        self.show()
        costs = self.page.run(CELLS)[1]
        self.assertEqual(costs, [["program", "1.000", "0.150", "0.010", "1", "0.190", "0.180", "0.800"]])

    def test_families_share_a_color_and_differ_otherwise(self):
        embed(self.path, made_up("program"))
        self.show()
        names = ["exclusive", "mps", "reef", "mps_prio", "mps_88"]
        _, mps, reef, priority, limit = self.page.run(f"{json.dumps(names)}.map((name, i, all) => hb.style(all, i))")
        self.assertEqual({mps["color"], priority["color"], limit["color"]}, {mps["color"]})
        self.assertNotEqual(mps["color"], reef["color"])
        self.assertEqual(len({mps["dash"], priority["dash"], limit["dash"]}), 3)
        self.assertNotEqual(mps["marker"], reef["marker"])

    def test_every_nine_gets_the_same_room(self):
        self.simulate()
        self.show()
        ticks = dict(self.page.run("[...document.querySelectorAll('svg.plot')[1].querySelectorAll('text.tick')]"
                                   ".map(t => [t.textContent, +t.getAttribute('y')])"))
        self.assertAlmostEqual(ticks["0%"] - ticks["90%"], ticks["90%"] - ticks["99%"], delta=0.2)
        self.assertAlmostEqual(ticks["90%"] - ticks["99%"], ticks["99%"] - ticks["99.9%"], delta=0.2)

    def test_a_page_without_results_says_so(self):
        embed(self.path, None)
        self.open(self.path)
        self.page.wait_for("document.body && document.body.innerText.includes('This page has no results')")
        self.assertEqual(self.page.errors, [])

    def test_a_saved_chart_stands_alone(self):
        results = self.simulate()
        chart = os.path.join(self.folder, "chart.svg")
        subprocess.run([SAVE_CHART, self.path, chart], check=True)
        with open(chart, encoding="utf-8") as file:
            text = file.read()
        self.assertTrue(text.startswith('<svg xmlns="http://www.w3.org/2000/svg"'))
        self.assertIn("<style", text)
        for one in results:
            self.assertIn(f">{one['sharing']}", text)
        self.open(chart)
        self.page.wait_for("document.documentElement.tagName === 'svg'")
        self.assertEqual(self.page.run("document.querySelectorAll('g.s').length"), len(results))
        self.assertNotEqual(subprocess.run([SAVE_CHART, self.path, chart, "9"], stderr=subprocess.DEVNULL).returncode, 0)


if __name__ == "__main__":
    if not browser.find():
        print("no chromium")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1])

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The daemon's live page in a headless Chromium: its view of a running
stack, sorted, filtered, one tenant opened, its charts on a desktop, a phone and
a dark screen, and the daemon's end. Skipped (77) where no Chromium is installed
(Debian: chromium). HB_SCREENSHOTS names a folder for pictures."""
import base64
import os
import signal
import sys
import unittest

import browser
from stack import Stack

CHART = "document.querySelector('[data-chart=\"%s\"]')"
# The contrast of two colors of the style sheet, as WCAG defines it.
CONTRAST = """(name => {
  const light = key => {
    const hex = getComputedStyle(document.documentElement).getPropertyValue(key).trim().slice(1);
    const [r, g, b] = [0, 2, 4].map(i => parseInt(hex.slice(i, i + 2), 16) / 255).map(c => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const [a, b] = [light(name), light("--paper")].sort((x, y) => y - x);
  return (a + 0.05) / (b + 0.05);
})"""
ROWS = "[...document.querySelectorAll('#tenants tbody tr')].map(r => r.innerText)"


class LivePage(unittest.TestCase):
    def test_the_page_lives(self):
        with Stack(config="metrics: 127.0.0.1:0\n", mps=False) as stack:
            stack.start_daemon()
            high = stack.start("high", "infer", "--rate", 50, "--seconds", 3600, "--kernels", 8, options=("--slo", "10ms"))
            low = stack.start("low", "train", 300, 0)
            low.expect("running")
            with browser.Browser() as page:
                page.open(f"http://{stack.status()['daemon']['metrics']['address']}/")
                page.wait_for(f"{ROWS}.length === 2")
                self.check_contents(page, stack)
                self.check_clicks(page, stack)
                self.check_history(page)
                for name, width, dark in (("desktop", 1280, False), ("dark", 1280, True), ("phone", 360, False)):
                    self.check_screen(page, name, width, dark)
                self.assertEqual(page.errors, [])
                for program in (high, low):
                    program.signal(signal.SIGTERM)
                    program.ended()
                page.wait_for(f"{ROWS}.length === 0")
                page.wait_for("!document.querySelector('#services figure')")
                self.assertEqual(page.run("document.querySelectorAll('#past figure').length"), 4)
                stack.daemon.signal(signal.SIGTERM)
                stack.daemon.ended()
                page.wait_for("document.querySelector('#daemon').innerText.includes('does not answer')")

    def check_contents(self, page, stack):
        self.assertIn(stack.status()["gpus"][0]["name"], page.run("document.querySelector('#gpus').innerText"))
        page.wait_for(f"{ROWS}.some(r => /cuda-tenant.*high.*10 ms/.test(r.replaceAll('\\t', ' ')))")
        page.wait_for("/^~?[0-9]+ %$/.test(document.querySelector('#gpus tbody').rows[0].cells[6].innerText)")
        # Every column has a help line: over its head, and in the list below the tables.
        self.assertEqual(page.run("[...document.querySelectorAll('th')].filter(th => !th.title || th.title === 'undefined').map(th => th.innerText)"), [])
        for table, texts in (("gpus", "gpu-help"), ("tenants", "help")):
            heads, terms = (page.run(f"[...document.querySelectorAll('{selector}')].map(e => e.textContent)")
                            for selector in (f"#{table} th", f"#{texts} dt"))
            self.assertEqual(heads, terms)
        # Every cause of a missed request that the daemon counts has a text.
        counted = {name for tenant in stack.tenants() for gpu in tenant["gpus"] for name in gpu["scheduling"] if name.startswith("missed_")}
        self.assertEqual(set(page.run("Object.keys(causes)")), counted)
        # Launches continue, so their rate is above zero once there are two answers.
        page.wait_for("[...document.querySelectorAll('#tenants tbody tr')].every(r => +r.cells[9].innerText > 0)")

    def check_history(self, page):
        use = CHART % "gpu 0 use"
        for area in (".area.c1", ".area.c3"):
            page.wait_for(f"!!({use} && {use}.querySelector('{area}'))")
        page.wait_for("document.querySelectorAll('#services figure').length === 2")
        # The names below a chart have the numbers of the last step, and of an earlier one when a key asks for it.
        shown, text = page.run(f"[percent(lately.gpus[0].history.high_ppm.at(-1)), {use}.querySelector('.keys').innerText]")
        self.assertIn(f"cuda-tenant {shown}", text)
        latency = CHART % next(name for name in page.run("[...document.querySelectorAll('figure')].map(f => f.dataset.chart)")
                               if name.endswith("latency"))
        self.assertRegex(page.run(f"{latency}.querySelector('svg').textContent"), "SLO 10 ms")
        self.assertRegex(page.run(f"{latency}.innerText"), r"p99 [0-9.]+ [um]?s\s+p50 [0-9.]+ [um]?s\s+requests [0-9.]+/s")
        page.wait_for("lately.gpus[0].history.high_ppm.length > 1")
        page.run(f"{use}.querySelector('svg').focus()")
        page.call("Input.dispatchKeyEvent", type="keyDown", key="ArrowLeft")
        self.assertIn("5 s ago", page.run(f"{use}.innerText"))
        self.assertTrue(page.run(f"{use}.querySelector('svg').getAttribute('aria-valuetext')").startswith("5 s ago: "))
        self.assertEqual(page.run("[...document.querySelectorAll('svg.plot')].filter(s => !s.getAttribute('aria-label') || !s.getAttribute('aria-valuetext')).length"), 0)

    def check_screen(self, page, name, width, dark):
        page.call("Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=width < 500)
        page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.assertLessEqual(page.run("document.documentElement.scrollWidth"), width)
        self.assertEqual(page.run("[...document.querySelectorAll('.scroll')].filter(e => e.scrollWidth > e.clientWidth).map(e => e.firstChild.id)"), [],
                         f"{name}: tables that are cut off")
        # The drawing is scaled to the screen, its texts as well.
        self.assertGreaterEqual(page.run("Math.min(...[...document.querySelectorAll('svg.plot .tick')].map(t => t.getBoundingClientRect().height))"), 11)
        colors = [f"--c{i}" for i in range(1, 8)] + ["--grey"]
        contrast = page.run(f"Object.fromEntries({colors + ['--soft', '--bad', '--ink']}.map(c => [c, {CONTRAST}(c)]))")
        self.assertEqual([c for c in contrast if contrast[c] < (3 if c in colors else 4.5)], [], contrast)
        if "HB_SCREENSHOTS" in os.environ:
            with open(os.path.join(os.environ["HB_SCREENSHOTS"], name + ".png"), "wb") as file:
                file.write(base64.b64decode(page.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)["data"]))

    def check_keys(self, page, tenant):
        """The row with the keyboard focus keeps it when the page reads the status again."""
        page.run(f"window.oldRow = document.querySelector('tr[data-tenant=\"{tenant}\"]'); oldRow.focus()")
        page.wait_for("!oldRow.isConnected")
        self.assertEqual(page.run("document.activeElement.dataset.tenant"), str(tenant))

    def check_clicks(self, page, stack):
        low = next(t["id"] for t in stack.tenants() if t["priority"] == "low")
        page.click("#tenants th:nth-child(4) button")
        page.wait_for(f"/high/.test({ROWS}[0])")
        page.click("#tenants th:nth-child(4) button")
        page.wait_for(f"/low/.test({ROWS}[0])")
        page.click("#filter")
        page.type("lo")
        page.wait_for(f"{ROWS}.length === 1")
        self.assertTrue(page.run("document.querySelector('#detail').hidden"))
        page.click(f"tr[data-tenant='{low}']")
        page.wait_for("!document.querySelector('#detail').hidden")
        self.assertIn("compute slice", page.run("document.querySelector('#mechanisms').innerText"))
        self.assertEqual(page.run("document.querySelector('#tenants th[aria-sort]').innerText"), "priority")
        self.check_keys(page, low)
        page.click(f"tr[data-tenant='{low}']")
        page.wait_for("document.querySelector('#detail').hidden")
        page.run("document.querySelector('#filter').value = ''; document.querySelector('#filter').oninput()")


if __name__ == "__main__":
    if not browser.find():
        print("no Chromium is installed (Debian: chromium): the live page was not looked at")
        sys.exit(77)
    unittest.main()

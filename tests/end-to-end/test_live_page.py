#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The daemon's live page in a headless Chromium: its view of a running
stack, sorted, filtered, one tenant opened, and the daemon's end. Skipped (77)
where no Chromium is installed (Debian: chromium)."""
import signal
import sys
import unittest

import browser
from stack import Stack

ROWS = "[...document.querySelectorAll('#tenants tbody tr')].map(r => r.innerText)"


class LivePage(unittest.TestCase):
    def test_the_page_lives(self):
        with Stack(config="metrics: 127.0.0.1:0\n", mps=False) as stack:
            stack.start_daemon()
            high = stack.start("high", "train", 300, 0, options=("--slo", "10ms"))
            low = stack.start("low", "train", 300, 0)
            for program in (high, low):
                program.expect("running")
            with browser.Browser() as page:
                page.open(f"http://{stack.status()['daemon']['metrics']['address']}/")
                page.wait_for(f"{ROWS}.length === 2")
                self.check_contents(page, stack)
                self.check_clicks(page, stack)
                self.assertEqual(page.errors, [])
                for program in (high, low):
                    program.signal(signal.SIGTERM)
                    program.output()
                page.wait_for(f"{ROWS}.length === 0")
                stack.daemon.signal(signal.SIGTERM)
                stack.daemon.ended()
                page.wait_for("document.querySelector('#daemon').innerText.includes('does not answer')")

    def check_contents(self, page, stack):
        self.assertIn(stack.status()["gpus"][0]["name"], page.run("document.querySelector('#gpus').innerText"))
        page.wait_for(f"{ROWS}.some(r => /cuda-tenant.*high.*10 ms/.test(r.replaceAll('\\t', ' ')))")
        page.wait_for("/^~?[0-9]+ %$/.test(document.querySelector('#gpus tbody').rows[0].cells[6].innerText)")
        # Every cause of a missed request that the daemon counts has a text.
        counted = {name for tenant in stack.tenants() for gpu in tenant["gpus"] for name in gpu["scheduling"] if name.startswith("missed_")}
        self.assertEqual(set(page.run("Object.keys(causes)")), counted)
        # Launches continue, so their rate is above zero once there are two answers.
        page.wait_for("[...document.querySelectorAll('#tenants tbody tr')].every(r => +r.cells[9].innerText > 0)")

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

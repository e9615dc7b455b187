#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""hb report has what a bug report needs, and nothing that must stay on the machine."""
import os
import subprocess
import unittest

from stack import HB, LIMIT, Stack, wait_until

SECRETS = ("argument-of-the-tenant", "comment-of-the-file", "value-of-a-variable", "NAME_OF_A_VARIABLE", "private-folder")


def report(stack, *options, **variables):
    done = subprocess.run([HB, "report", "--gpu", "sim", "--quick", *options], cwd=stack.folder,
                          env=stack.environment | variables, capture_output=True, text=True, timeout=LIMIT, check=False)
    return done.stdout, done.stderr, done.returncode


class Report(unittest.TestCase):
    def test_a_report_is_complete_and_keeps_secrets(self):
        config = "# comment-of-the-file\nreserve: 1GiB # comment-of-the-file\n"
        with Stack(scale=0.1, config=config) as stack:
            tenant = stack.start("low", "-c", "echo joined; read line", "argument-of-the-tenant", program="/bin/sh")
            tenant.expect("joined")
            wait_until("the tenant is listed", stack.tenants)
            self.assertIn("argument-of-the-tenant", stack.tenants()[0]["command"])
            text, errors, status = report(
                stack, "--output", "-", NAME_OF_A_VARIABLE="value-of-a-variable", CUDA_VISIBLE_DEVICES="0,1",
                LD_LIBRARY_PATH=os.path.join(stack.folder, "private-folder") + ":/usr/lib")
            self.assertEqual((errors, status), ("", 0))
            for word in SECRETS:
                self.assertNotIn(word, text)
            self.assertNotIn(stack.folder, text)
            sections = [line[4:] for line in text.splitlines() if line.startswith("=== ")]
            self.assertEqual(sections[:5], ["versions", "hb status --json", "hb doctor --quick",
                                            "configuration of the system", "configuration of the user"])
            self.assertIn('"command": "sh [left out]"', text)
            self.assertIn("CUDA_VISIBLE_DEVICES=0,1\n", text)
            self.assertIn("LD_LIBRARY_PATH=~/[left out]:/usr/lib\n", text)
            self.assertIn("\nreserve: 1GiB \n", text)
            self.assertIn("\nmps: true\n", text)
            self.assertIn("everything that is required works\n", text)
            tenant.go()
            self.assertEqual(tenant.ended(), 0)

    def test_without_a_daemon_there_is_a_file_for_this_user_only(self):
        with Stack() as stack:
            old = os.path.join(stack.folder, "report.txt")
            with open(old, "w", encoding="utf-8"):
                os.chmod(old, 0o644)
            text, errors, status = report(stack, "--output", "report.txt")
            self.assertEqual((text, errors, status),
                             ("report.txt was written: read it, then attach it to your bug report\n", "", 0))
            self.assertEqual(os.stat(old).st_mode & 0o777, 0o600)
            with open(old, encoding="utf-8") as file:
                self.assertIn("no daemon answers there", file.read())
            text, errors, status = report(stack)
            name = text.split()[0]
            self.assertRegex(name, r"^hb-report-\d{8}-\d{6}\.txt$")
            self.assertEqual(os.stat(os.path.join(stack.folder, name)).st_mode & 0o777, 0o600)
            text, errors, status = report(stack, "--output", "missing/report.txt")
            self.assertEqual((text, status), ("", 1))
            self.assertIn("missing/report.txt", errors)


if __name__ == "__main__":
    unittest.main()

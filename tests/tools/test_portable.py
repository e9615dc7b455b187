#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""packaging/check_portable.py accepts libraries for old systems and says what other ones need. usage: test_portable.py
CHECK_PORTABLE"""
import os
import subprocess
import sys
import tempfile
import unittest

CHECK = sys.argv.pop(1)


class Portable(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def build(self, code, *options):
        subprocess.run(["gcc", "-x", "c", "-", "-o", os.path.join(self.folder.name, "program"), *options], check=True,
                       input=code, text=True)

    def check(self, *options):
        result = subprocess.run([CHECK, self.folder.name, *options], text=True, stdout=subprocess.PIPE, check=False)
        return result.returncode, result.stdout.replace(os.path.join(self.folder.name, "program: "), "")

    def test_a_library_with_old_symbols_passes(self):
        self.build("#include <stdio.h>\nvoid say(void) { puts(\"yes\"); }", "-shared", "-fPIC")
        self.assertEqual(self.check(),
                         (0, "1 programs and libraries need glibc 2.28 or older, and nothing else\n"))

    def test_a_newer_symbol_is_named(self):
        self.build("#include <stdlib.h>\nvoid *make(void) { return reallocarray(0, 2, 2); }", "-shared", "-fPIC")
        self.assertEqual(self.check("--glibc", "2.26")[0], 0)
        self.assertEqual(self.check("--glibc", "2.25"), (1, "needs reallocarray of glibc 2.26, newer than 2.25\n"))

    def test_versions_are_compared_as_numbers(self):
        self.build("#include <stdlib.h>\nvoid *make(void) { return reallocarray(0, 2, 2); }", "-shared", "-fPIC")
        self.assertEqual(self.check("--glibc", "2.3")[0], 1)

    def test_another_library_is_named(self):
        self.build("const char *zlibVersion(void);\nconst char *version(void) { return zlibVersion(); }", "-shared", "-fPIC", "-lz")
        self.assertEqual(self.check(), (1, "needs the library libz.so.1\n"))

    def test_a_search_path_is_named(self):
        self.build("int nothing;", "-shared", "-fPIC", "-Wl,-rpath,/opt/lib")
        self.assertEqual(self.check(), (1, "searches libraries in /opt/lib\n"))

    def test_a_copied_variable_with_two_names_is_named(self):
        # As a static library that was compiled for programs reads it.
        self.build("extern char **environ;\nint main(void) { return environ == 0; }", "-fno-pic", "-no-pie")
        status, output = self.check("--glibc", "2.99")
        self.assertEqual(status, 1)
        self.assertRegex(output, "^copies the variable _*environ\n$")

    def test_a_folder_without_programs_is_an_error(self):
        self.assertEqual(self.check(), (1, f"{self.folder.name}: contains no program\n"))


unittest.main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""bench/build_peers.sh builds from a checkout without changing it, and says what is wrong. The checkout here has the files of
nvshare's build with other contents."""
import os
import shutil
import subprocess
import tempfile
import unittest

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../bench/build_peers.sh")
PROGRAMS = ["libnvshare.so", "nvshare-scheduler", "nvsharectl"]


def run(*words, **variables):
    return subprocess.run([SCRIPT, *words], env=dict(os.environ, **variables), capture_output=True, text=True, timeout=60, check=False)


class BuildPeers(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="hb-peers-")
        self.addCleanup(shutil.rmtree, self.folder)
        self.checkout, self.out = os.path.join(self.folder, "checkout"), os.path.join(self.folder, "out")
        os.makedirs(os.path.join(self.checkout, "src"))

    def write(self, name, text):
        with open(os.path.join(self.checkout, "src", name), "w", encoding="utf-8") as file:
            file.write(text)

    @unittest.skipUnless(shutil.which("make"), "make is not installed")
    def test_nvshare_is_built_outside_its_checkout(self):
        self.write("scheduler.c", "int main(void) { return 7; }\n")
        self.write("Makefile", f"all: {' '.join(PROGRAMS)}\n" + "".join(f"{name}: scheduler.c\n\tcc -o $@ scheduler.c\n" for name in PROGRAMS))
        done = run("nvshare", self.checkout, self.out)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(sorted(os.listdir(self.out)), sorted(PROGRAMS + ["commit"]))
        self.assertEqual(subprocess.run([os.path.join(self.out, "nvshare-scheduler")], check=False).returncode, 7)
        self.assertEqual(sorted(os.listdir(os.path.join(self.checkout, "src"))), ["Makefile", "scheduler.c"])
        self.write("scheduler.c", "this is no C\n")
        self.assertNotEqual(run("nvshare", self.checkout, os.path.join(self.folder, "other")).returncode, 0)

    def test_errors_name_what_is_missing(self):
        for words, message in ((("nvshare", self.checkout, self.out), "scheduler.c is missing; name a checkout of nvshare"),
                               (("hami", self.checkout, self.out), "libvgpu.c is missing; name a checkout of HAMi-core"),
                               (("nvshare", self.folder + "/none", self.out), "there is no such folder"),
                               (("nvshare", self.checkout, self.checkout + "/out"), "OUT must not be inside the checkout"),
                               (("moon", self.checkout, self.out), "moon: it can build nvshare, hami and xsched"),
                               (("xsched", self.checkout, self.out), "shim is missing; name a checkout of XSched")):
            done = run(*words)
            self.assertEqual((done.returncode, message in done.stderr), (1, True), done.stderr)
        self.write("libvgpu.c", "")
        done = run("hami", self.checkout, self.out, CUDA_HOME=self.folder)
        self.assertEqual((done.returncode, "include/cuda.h is missing; set CUDA_HOME" in done.stderr), (1, True), done.stderr)
        os.makedirs(self.folder + "/include")
        with open(self.folder + "/include/cuda.h", "w", encoding="utf-8"):
            pass
        done = run("hami", self.checkout, self.out, CUDA_HOME=self.folder, NVML_INCLUDE=self.folder)
        self.assertEqual((done.returncode, "nvml.h is missing; set NVML_INCLUDE" in done.stderr), (1, True), done.stderr)
        os.makedirs(os.path.join(self.checkout, "platforms/cuda/shim"))
        done = run("xsched", self.checkout, self.out, JSONCPP="")
        self.assertEqual((done.returncode, "set JSONCPP to a checkout of jsoncpp" in done.stderr), (1, True), done.stderr)
        self.assertEqual(run("nvshare").returncode, 2)


if __name__ == "__main__":
    unittest.main()

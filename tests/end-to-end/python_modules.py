# SPDX-License-Identifier: Apache-2.0
"""Finds Python modules that Debian's minimal Python lacks."""
import fcntl
import importlib
import os
import subprocess
import sys


def make_python(folder, python, package):
    """Makes a Python with the packages. Returns whether that worked."""
    if subprocess.run([sys.executable, "-m", "venv", folder], check=False, capture_output=True).returncode:
        return False
    return not subprocess.run([python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--retries", "1", *package.split()],
                              check=False).returncode


def find_module(name, package, debian, install=True):
    """Imports the module; else starts the test again with a Python that has the packages, in a folder of the build, and which it
    makes unless `install` is False. Ends with 77, which means skipped, where there is none."""
    try:
        return importlib.import_module(name)
    except ImportError:
        pass
    folder = os.path.join(os.environ["HB_BUILD"], "python-" + package.split()[0])
    python = os.path.join(folder, "bin", "python")
    if sys.executable != python:
        with open(folder + ".lock", "w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # another test must not load a library that this one is writing
            has = os.path.exists(python) and not subprocess.run([python, "-c", "import " + name], check=False, capture_output=True).returncode
            if install and not has:
                has = make_python(folder, python, package)
        if has:
            os.execv(python, [python, *sys.argv])
    print(f"skipped: {debian} is not installed, " + (
        "and PyPI does not answer" if install else f"run: python3 -m venv {folder} && {python} -m pip install {package}"))
    sys.exit(77)

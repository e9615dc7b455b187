#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the wheel hummingbird-gpu from an installation: `pip install` puts hb, hbd, the shim and the Python module
`hummingbird` into a virtual environment, and they work from there.

usage: make_wheel.py PREFIX OUTPUT --version VERSION [--platform TAG]

PREFIX contains bin/hb (packaging/make_tarball.sh makes one). Prints the path of the wheel.
"""
import argparse
import base64
import glob
import hashlib
import os
import stat
import zipfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
DISTRIBUTION = "hummingbird_gpu"
# Folder of the installation: folder of the wheel. `**` is there because Debian puts a folder of the architecture under lib.
# The rest (units, configuration, completion, headers) has no place in a virtual environment.
PARTS = {
    "bin": "scripts",
    "sbin": "scripts",
    "lib/**/hummingbird": "data/lib/hummingbird",
    "libexec/hummingbird": "data/libexec/hummingbird",
    "share/hummingbird": "data/share/hummingbird",
    "share/man": "data/share/man",
}
MODULE = "share/hummingbird/python/hummingbird"
METADATA = """Metadata-Version: 2.1
Name: hummingbird-gpu
Version: {version}
Summary: Shares one NVIDIA GPU between programs
License: Apache-2.0
Classifier: License :: OSI Approved :: Apache Software License
Classifier: Operating System :: POSIX :: Linux
Requires-Python: >=3.8
Description-Content-Type: text/markdown

{description}"""
WHEEL = """Wheel-Version: 1.0
Generator: make_wheel.py
Root-Is-Purelib: false
Tag: py3-none-{platform}
"""
DESCRIPTION = """# Hummingbird

Hummingbird lets a latency-critical service and batch jobs share one NVIDIA GPU. The service keeps the latency that it has
alone; the jobs use the remaining GPU time. Applications, frameworks, libraries and drivers stay unchanged.

```
pip install hummingbird-gpu
hb run --priority high --slo 10ms -- python serve.py
hb run --priority low -- python train.py
hb status
```

Without a GPU, add `--gpu sim`. `hb doctor` tells what this machine can do. The package contains programs for any x86-64
Linux with glibc 2.28 or newer, and the Python module `hummingbird` (hints, and workers of `hb serve`).
"""


class Wheel:
    """Writes files of one date and in order, so that the same installation gives the same bytes."""

    def __init__(self, path, information):
        self.zip = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED)
        self.record, self.information = [], information

    def add(self, name, data, executable=False):
        entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
        entry.external_attr = (stat.S_IFREG | (0o755 if executable else 0o644)) << 16
        entry.compress_type = zipfile.ZIP_DEFLATED
        self.zip.writestr(entry, data)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        self.record.append("%s,sha256=%s,%d\n" % (name, digest, len(data)))

    def add_folder(self, folder, name):
        for where, folders, files in os.walk(folder):
            folders[:] = sorted(one for one in folders if one != "__pycache__")
            for path in (os.path.join(where, file) for file in sorted(files)):
                # libcuda.so is a link for compilers, and wheels have no links.
                if not os.path.islink(path):
                    with open(path, "rb") as file:
                        self.add(os.path.join(name, os.path.relpath(path, folder)), file.read(), os.access(path, os.X_OK))

    def close(self):
        name = self.information + "/RECORD"
        self.add(name, ("".join(self.record) + name + ",,\n").encode())
        self.zip.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("prefix")
    parser.add_argument("output")
    parser.add_argument("--version", required=True)
    parser.add_argument("--platform", default="manylinux_2_28_x86_64")
    options = parser.parse_args()
    information = f"{DISTRIBUTION}-{options.version}.dist-info"
    path = os.path.join(options.output, f"{DISTRIBUTION}-{options.version}-py3-none-{options.platform}.whl")
    wheel = Wheel(path, information)
    wheel.add_folder(os.path.join(options.prefix, MODULE), "hummingbird")
    for folder, target in PARTS.items():
        found = [one for one in glob.glob(os.path.join(options.prefix, folder), recursive=True) if "python3" not in one]
        if not found:
            parser.error(f"{options.prefix} contains no folder {folder}")
        wheel.add_folder(found[0], f"{DISTRIBUTION}-{options.version}.data/{target}")
    wheel.add(information + "/METADATA", METADATA.format(version=options.version, description=DESCRIPTION).encode())
    wheel.add(information + "/WHEEL", WHEEL.format(platform=options.platform).encode())
    with open(os.path.join(ROOT, "LICENSE"), "rb") as file:
        wheel.add(information + "/licenses/LICENSE", file.read())
    licences = os.path.join(options.prefix, "share/doc/hummingbird/licences")
    if os.path.isdir(licences):
        wheel.add_folder(licences, information + "/licenses")
    wheel.close()
    print(path)


main()

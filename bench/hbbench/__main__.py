# SPDX-License-Identifier: Apache-2.0
"""Entry of the harness: python3 bench/hbbench ARGUMENT..., which is what `hb bench ARGUMENT...` executes."""
import os
import sys

if sys.version_info < (3, 11):
    sys.exit("hb bench: this python3 is %d.%d; the harness needs Python 3.11 or newer" % sys.version_info[:2])
sys.dont_write_bytecode = True  # the folder may be read-only, and a source tree stays clean
sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
from hbbench import command  # noqa: E402  pylint: disable=wrong-import-position

sys.exit(command.main(sys.argv[1:]))

# SPDX-License-Identifier: Apache-2.0
"""Entry of the harness: python3 bench/hbbench ARGUMENT..., which is what `hb bench ARGUMENT...` executes."""
import os
import sys

sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
from hbbench import command  # noqa: E402  pylint: disable=wrong-import-position

sys.exit(command.main(sys.argv[1:]))

"""Run the command line as ``python -m clawback``."""

import sys

from clawback.cli import main

sys.exit(main())

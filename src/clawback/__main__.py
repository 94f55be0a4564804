"""``python -m clawback`` is ``clawback``."""

import sys

from clawback.cli import main

sys.exit(main())

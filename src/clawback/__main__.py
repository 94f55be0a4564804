"""Run the command line as ``python -m clawback``."""

from clawback.cli import console

console()

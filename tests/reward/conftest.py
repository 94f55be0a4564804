"""Commands called as the console script calls them."""

from ..cli.conftest import Run, run

__all__ = ["Run", "run"]

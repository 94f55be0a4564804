"""The small real model of the tests of hosted training, twice: what learns, and what draws."""

from tests.hosted.conftest import base, loaded, other, policy

__all__ = ["base", "loaded", "other", "policy"]

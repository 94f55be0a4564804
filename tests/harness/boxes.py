"""Whether a box with a network of its own can be made here."""

from functools import cache

from clawback.errors import SandboxRefused
from clawback.extensions.sandbox import Limits, open_sandbox


@cache
def boxes():
    try:
        open_sandbox(Limits(), network=True).close()
    except SandboxRefused:
        return False
    return True

"""Whether this kernel has Landlock, and which version of it. The keeper applies it."""

from __future__ import annotations

import ctypes
import sys
from functools import cache


@cache
def abi() -> int:
    """The version of Landlock's interface: 0 without it; 4 brings TCP, 6 signals and abstract sockets."""
    if sys.platform != "linux":
        return 0
    libc = ctypes.CDLL(None, use_errno=True)
    return max(0, int(libc.syscall(444, None, ctypes.c_size_t(0), 1)))

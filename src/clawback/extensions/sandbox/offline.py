"""Starts a program that cannot open network sockets. Run as ``python -I -S offline.py FILTER PROGRAM ARGUMENT…``.

FILTER is a seccomp program in hexadecimal (``seccomp.offline``). It is inherited by all that the program starts and cannot be
taken back. Open descriptors are passed on. If the filter cannot be loaded, the program is not started.
"""

from __future__ import annotations

import ctypes
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from clawback.extensions.sandbox import keeper
else:
    sys.path.append(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120
    import keeper

_PR_SET_NO_NEW_PRIVS = 38


def main(filter: str, argv: list[str]) -> None:
    try:
        if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0:
            raise keeper.Refused("cannot give up new privileges")
        keeper.install_filter(bytes.fromhex(filter))
    except keeper.Refused as error:
        sys.exit(f"{argv[0]} is not started: {error}.")
    os.execvp(argv[0], argv)  # noqa: S606


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])

"""Which process a number stands for: numbers are used again, so the time at which it started belongs to it."""

from __future__ import annotations

from pathlib import Path

BOOT = Path("/proc/sys/kernel/random/boot_id")


def identity(pid: int | None) -> str:
    """The process behind a number, in a text that no other process ever has; "" where there is none.

    On Linux it is made of the boot and of the clock ticks since then: neither changes when somebody sets the clock.
    """
    if pid is None or pid <= 0:
        return ""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
        state, *fields = stat[stat.rindex(b")") + 2 :].split()
        return "" if state in (b"Z", b"X") else f"{boot_identity()}:{fields[18].decode()}"
    except FileNotFoundError:
        if Path("/proc/self/stat").exists():
            return ""
    except (OSError, ValueError, IndexError):
        pass
    import psutil

    try:
        process = psutil.Process(pid)
        return "" if process.status() == psutil.STATUS_ZOMBIE else f"{process.create_time():.2f}"
    except psutil.Error:
        return ""


def is_alive(pid: int | None, known: str = "") -> bool:
    """Whether that very process runs. ``known``: its identity as it was noted; "" where none was, then any process of that number counts."""
    found = identity(pid)
    return bool(found) and (not known or found == known)


def boot_identity() -> str:
    """Of this start of the machine; "" where it cannot be told."""
    try:
        return BOOT.read_text("ascii").strip()[:8]
    except OSError:
        return ""

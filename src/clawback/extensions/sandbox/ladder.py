"""Finds the isolation methods (*rungs*) that work on this machine, by running a program that tries to break out, once per process."""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass
from functools import cache
from typing import Any

from clawback.errors import ClawbackError, SandboxRefused
from clawback.extensions.sandbox import container, disk
from clawback.extensions.sandbox.box import BoxOptions, Sandbox
from clawback.extensions.sandbox.container import Image, find_image
from clawback.extensions.sandbox.limits import Limits
from clawback.extensions.sandbox.rungs import ENGINES, NAMES, SIZED, RungName, landlock_abi
from clawback.extensions.sandbox.seccomp import ARCHITECTURES

_TRIAL = """
import os, socket, sys
open("written", "w").write("x")
for family, address in ((socket.AF_INET, ("192.0.2.1", 9)), (socket.AF_UNIX, sys.argv[1] + "/none")):
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as s:
            s.connect(address)
        sys.exit("a way to the network is open")
    except OSError:
        pass
try:
    open(sys.argv[1] + "/secret").read()
    sys.exit("files outside can be read")
except OSError:
    pass
room = os.statvfs(".")
if 0 < int(sys.argv[2]) < room.f_blocks * room.f_frsize:
    sys.exit("its disk is larger than its limit")
print("kept in")
"""
_FIXED, _COUNTED = "a disk of fixed size", "a disk that the keeper counts"


@dataclass(frozen=True, slots=True)
class Rung:
    """One rung: whether it holds here, what it keeps apart, and, where it does not hold, why and what to do."""

    name: RungName
    usable: bool
    walls: str
    why: str = ""
    sized: bool = False
    """Whether the kernel holds the limit of the box's disk (a file system of a fixed size); else the keeper looks."""


_WALLS: dict[RungName, str] = {
    "bubblewrap": "own files, processes, network, users; seccomp; limits",
    "landlock": "own files, no network; seccomp; limits; names and sizes of files outside can be seen",
    "seatbelt": "own files, no network; limits of each process",
    "podman": "an image's own files, processes, network, users; seccomp; limits by control groups",
    "docker": "an image's own files, processes, network; seccomp; limits by control groups",
    "none": "NO WALLS: limits alone; programs can read and write all that you can",
}
_HINTS = {
    "setting up uid map": "AppArmor forbids user namespaces; a profile for bwrap allows them",
    "RTM_NEWADDR": "AppArmor forbids network namespaces; a profile for bwrap allows them",
    "new namespace": "user namespaces are switched off on this machine",
    "No space left": "the limit of user namespaces is 0 (sysctl user.max_user_namespaces)",
    "mount proc": "this runs inside a container that may not mount /proc",
}


@cache
def probe() -> tuple[Rung, ...]:
    """Every rung, strongest first. ``none`` is last and never chosen unless it is named."""
    return tuple(_try(name) for name in NAMES)


def _try(name: RungName) -> Rung:
    walls = _WALLS[name]
    missing = _missing(name)
    if missing:
        return Rung(name, False, walls, missing)
    if name == "none":
        return Rung(name, True, walls)
    problem = ""
    for sized in [True] * (name in SIZED and not disk.usable()) + [False]:
        problem = _trial(name, sized)
        if not problem:
            disk_limit = "" if name not in SIZED else f"; {_FIXED if sized else _COUNTED}"
            return Rung(name, True, walls + disk_limit, sized=sized)
    return Rung(name, False, walls, problem)


def _trial(name: RungName, sized: bool) -> str:
    """What is wrong with a rung ("" if it holds)."""
    limits = Limits(seconds=20, memory=512 << 20)
    try:
        with Sandbox(name, limits, sized=sized) as box, Sandbox("none", Limits()) as outside:
            outside.write("secret", b"seen")
            result = box.exec(
                ["python3", "-I", "-S", "-c", _TRIAL, outside.path("."), str(limits.disk * sized)]
            )
            # a socket of ours that listens outside would need a listener; a name without one must be refused as well
    except ClawbackError as error:
        return _hinted(str(error))
    if result.stdout.strip() == "kept in" and result.ok:
        return ""
    return (result.stderr.strip().splitlines() or [f"exit code {result.exit_code}"])[-1]


def _missing(name: RungName) -> str:
    linux = sys.platform == "linux"
    if name == "seatbelt":
        return "" if sys.platform == "darwin" else "only macOS has it"
    if name in ("bubblewrap", "landlock"):
        import os

        if not linux:
            return "only Linux has it"
        if os.uname().machine not in ARCHITECTURES:
            return f"no seccomp filter for {os.uname().machine}"
    if name == "bubblewrap" and shutil.which("bwrap") is None:
        return "bwrap is not installed (Debian, Ubuntu, Fedora, Arch: package bubblewrap)"
    if name == "landlock" and landlock_abi() < 1:
        return "this kernel has no Landlock (Linux 5.13 and later can have it)"
    return ""


def _hinted(text: str) -> str:
    return next((f"{hint} ({text})" for sign, hint in _HINTS.items() if sign in text), text)


def choose(rung: str | None = None) -> RungName:
    """The strongest rung that holds here, or the named one if it does. Nothing weaker is ever taken in its place."""
    rungs = probe()
    if rung is None:
        for one in rungs:
            if one.usable and one.name != "none":
                return one.name
        why = "; ".join(f"{one.name}: {one.why}" for one in rungs if not one.usable and "only" not in one.why)
        raise SandboxRefused(
            f"This machine has no sandbox, so nothing that a model wrote is run on it ({why}). "
            "Fix one of these, or do without isolation by naming the rung: none (`terminal?rung=none`)."
        )
    for one in rungs:
        if one.name == rung:
            if one.usable:
                return one.name
            raise SandboxRefused(f"The sandbox {rung!r} does not hold on this machine: {one.why}.")
    if rung in ENGINES:
        raise SandboxRefused(
            f"The sandbox {rung!r} runs images, and here is none. The others are {', '.join(NAMES)}."
        )
    raise SandboxRefused(f"There is no sandbox {rung!r}. There are {', '.join((*NAMES, *ENGINES))}.")


@cache
def engines() -> tuple[Rung, ...]:
    """The rungs for tasks that name an image, and whether their programs answer here. Their walls are tried with each image."""
    return tuple(Rung(name, not (why := container.unusable(name)), _WALLS[name], why) for name in ENGINES)


def choose_for_image(image: str, rung: str | None = None, cpus: int | None = None) -> Image:
    """The image, and the engine that has it. Neither is taken on trust: a program in the image looks for ways out first, once
    per process."""
    found = find_image(image, rung)
    _prove(found, cpus)
    return found


@cache
def _prove(image: Image, cpus: int | None) -> None:
    limits = Limits(seconds=60, memory=512 << 20, cpus=cpus)
    try:
        with (
            Sandbox(image.engine, limits, BoxOptions(image=image.name)) as box,
            Sandbox("none", Limits()) as outside,
        ):
            outside.write("secret", b"seen")
            process = box.start(container.trial(limits, outside.path("secret")))
            result = process.wait()
            kept = result.stdout.strip() == "kept in" and box.read("written") == b"x\n"
    except ClawbackError as error:
        raise SandboxRefused(f"{image.engine} does not isolate the image {image.name}: {error}") from error
    said = (result.stdout + result.stderr).strip()
    why = "" if kept else said.splitlines()[-1] if said else f"exit code {result.exit_code}"
    if kept and not process.watched:
        why = "its processes cannot be seen from here, and so their limits not be watched"
    if why:
        raise SandboxRefused(f"{image.engine} does not isolate the image {image.name}: {why}.")


def open_sandbox(limits: Limits | None = None, rung: str | None = None, **options: Any) -> Sandbox:
    """A box on the strongest rung, or on the named one. ``options``: fields of ``BoxOptions``."""
    wanted = BoxOptions(**options)
    image = wanted.image
    limits = limits or Limits()
    chosen = choose(rung) if image is None else choose_for_image(image, rung, limits.cpus).engine
    sized = image is None and next(one.sized for one in probe() if one.name == chosen)
    return Sandbox(chosen, limits, wanted, sized=sized)

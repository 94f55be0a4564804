"""One page of what the benchmarks said: ``bench-results/report.md``, a section each, with its command, machine, time and revision.

A section is kept when its benchmark has ended, so that the page has the newest run of each, whether they were started together
or one by one. Tables are those that the benchmarks print: each names its peers, ratios and spreads itself.
"""

from __future__ import annotations

import io
import os
import platform
import resource
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

FOLDER = Path("bench-results")


@dataclass(frozen=True)
class Ran:
    """A benchmark that has ended."""

    name: str
    about: str
    arguments: Sequence[str]
    said: str
    status: int
    seconds: float
    cpu: float
    """Seconds of this process and of those that it waited for."""


def record(
    name: str, about: str, arguments: Sequence[str], main: Callable[[list[str]], int], folder: Path = FOLDER
) -> int:
    """Run a benchmark, with what it prints also on the page. Its exit status; raises what it raises."""
    began, cpu = time.perf_counter(), _cpu()
    status = 1
    with _copied() as said:
        try:
            status = main(list(arguments))
        finally:
            ran = Ran(
                name, about, arguments, said.getvalue(), status, time.perf_counter() - began, _cpu() - cpu
            )
            keep(ran, folder)
    return status


def keep(ran: Ran, folder: Path = FOLDER) -> None:
    """A section, and the page with it."""
    sections = folder / "sections"
    sections.mkdir(parents=True, exist_ok=True)
    (sections / f"{ran.name}.md").write_text(section(ran), "utf-8")
    parts = [path.read_text("utf-8") for path in sorted(sections.glob("*.md"))]
    head = "# Benchmarks\n\nThe newest run of each. What a figure means is said in `docs/benchmarks`.\n"
    (folder / "report.md").write_text("\n".join([head, *parts]), "utf-8")


def section(ran: Ran) -> str:
    command = shlex.join(["python", "-m", "benchmarks", ran.name, *ran.arguments])
    said = ran.said.strip()
    if said.startswith(("{", "[")):
        said = f"```json\n{said}\n```"
    facts = f"`{command}`, {time.strftime('%Y-%m-%d %H:%M')}, {ran.seconds:,.0f} s ({ran.cpu:,.0f} CPU seconds), {machine()}, revision {revision()}."
    failed = "" if ran.status == 0 else f"\n**It failed (exit status {ran.status}).**\n"
    return f"## {ran.name}\n\n{ran.about}\n\n{facts}\n{failed}\n{said or 'It printed nothing.'}\n"


def machine() -> str:
    """Processor, cores, memory, load, system, and the versions that figures depend on."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    versions = [f"Python {platform.python_version()}"]
    for name in ("torch", "transformers"):
        try:
            versions.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            continue
    return f"{_processor()}, {os.cpu_count()} cores (load {os.getloadavg()[0]:.1f}), {memory:.0f} GB, {platform.system()}, {', '.join(versions)}"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def revision() -> str:
    """Of the checkout, with a + where it was changed."""
    asked = ["git", "describe", "--always", "--dirty=+", "--exclude=*"]
    try:
        found = subprocess.run(asked, cwd=Path(__file__).parent, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return found.stdout.strip()


def _cpu() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


@contextmanager
def _copied() -> Iterator[io.StringIO]:
    """What is printed, printed as before and kept."""
    kept = io.StringIO()

    class Both(io.TextIOBase):
        def write(self, text: str) -> int:
            kept.write(text)
            return out.write(text)

        def flush(self) -> None:
            out.flush()

    out = sys.stdout
    with redirect_stdout(Both()):
        yield kept

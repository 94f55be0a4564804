"""One page of what the benchmarks said: ``bench-results/report.md``, a section each, with its command, machine, time and revision.

A section is kept when its benchmark has ended, so that the page has the newest run of each, whether they were started together
or one by one. The table at its head has what was measured beside another system: those benchmarks hand their rounds to ``compare``.
"""

from __future__ import annotations

import io
import json
import math
import os
import platform
import resource
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path

FOLDER = Path("bench-results")
FEW = 10
"""Rounds, below which the spread is that of all of them."""


@dataclass(frozen=True)
class Compared:
    """The same work by Clawback and by a peer, in turns: a figure of each round."""

    what: str
    peer: str
    unit: str
    ours: tuple[float, ...]
    theirs: tuple[float, ...]
    more: bool
    """Whether more of the unit is better."""

    def __post_init__(self) -> None:
        if not self.ours or len(self.ours) != len(self.theirs):
            raise ValueError(f"{self.what}: rounds are compared in pairs, not {len(self.ours)} with {len(self.theirs)}.")  # fmt: skip

    @property
    def ratios(self) -> list[float]:
        """Of each round; above 1 where Clawback is the better."""
        pairs = zip(self.ours, self.theirs, strict=True) if self.more else zip(self.theirs, self.ours, strict=True)  # fmt: skip
        return [up / down if down else math.inf for up, down in pairs]

    def row(self, command: str, when: str) -> str:
        ratios = sorted(self.ratios)
        low, high = (ratios[0], ratios[-1]) if len(ratios) < FEW else _inner(ratios)
        mine, other = (figure(statistics.median(side)) for side in (self.ours, self.theirs))
        ratio = f"**{statistics.median(ratios):.2f}** | {low:.2f} to {high:.2f} | {len(ratios)}"
        return (
            f"| {self.what} | {self.peer} | {mine} | {other} | {self.unit} | {ratio} | `{command}`, {when} |"
        )


_compared: list[Compared] = []
"""What the benchmark that runs now has measured beside others."""


def compare(
    what: str, *, peer: str, unit: str, ours: Sequence[float], theirs: Sequence[float], more: bool = True
) -> None:
    """A line for the head of the page. Raises ValueError where the rounds are not pairs."""
    _compared.append(Compared(what, peer, unit, tuple(ours), tuple(theirs), more))


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
    compared: Sequence[Compared] = ()

    @property
    def command(self) -> str:
        return shlex.join(["python", "-m", "benchmarks", self.name, *self.arguments])


def record(
    name: str, about: str, arguments: Sequence[str], main: Callable[[list[str]], int], folder: Path = FOLDER
) -> int:
    """Run a benchmark, with what it prints also on the page. Its exit status; raises what it raises."""
    began, cpu = time.perf_counter(), _cpu()
    status = 1
    _compared.clear()
    with _copied() as said:
        try:
            status = main(list(arguments))
        finally:
            seconds, used = time.perf_counter() - began, _cpu() - cpu
            keep(
                Ran(name, about, arguments, said.getvalue(), status, seconds, used, tuple(_compared)), folder
            )
    return status


def keep(ran: Ran, folder: Path = FOLDER) -> None:
    """A section, and the page with it. What a run that failed compared is not on the page."""
    sections = folder / "sections"
    sections.mkdir(parents=True, exist_ok=True)
    (sections / f"{ran.name}.md").write_text(section(ran), "utf-8")
    kept = {"command": ran.command, "when": time.strftime("%Y-%m-%d"), "machine": machine(), "compared": [asdict(one) for one in ran.compared if not ran.status]}  # fmt: skip
    (sections / f"{ran.name}.json").write_text(json.dumps(kept, indent=1), "utf-8")
    parts = [path.read_text("utf-8") for path in sorted(sections.glob("*.md"))]
    (folder / "report.md").write_text("\n".join([head(sections), *parts]), "utf-8")


def head(sections: Path) -> str:
    """What was measured beside others, from the newest run of each."""
    lines = [
        "# Benchmarks",
        "",
        "The newest run of each. What a figure means is said in `research/benchmarks`.",
        "",
    ]
    rows = []
    for path in sorted(sections.glob("*.json")):
        kept = json.loads(path.read_text("utf-8"))
        rows += [Compared(**one).row(kept["command"], kept["when"]) for one in kept["compared"]]
    if rows:
        lines += [
            "Beside others, each in an environment of its own, both sides in turns within one run. A ratio above 1 means that Clawback is the better;",
            f"its median over the rounds, and how far they spread (all of them, or from {FEW} rounds on the inner 80 %). The machine of each is in its section.",
            "",
            "| what | beside | Clawback | the other | unit | ratio | spread | rounds | command, day |",
            "|" + " --- |" * 9,
            *rows,
            "",
        ]
    return "\n".join(lines)


def section(ran: Ran) -> str:
    said = ran.said.strip()
    if said.startswith(("{", "[")):
        said = f"```json\n{said}\n```"
    facts = f"`{ran.command}`, {time.strftime('%Y-%m-%d %H:%M')}, {ran.seconds:,.0f} s ({ran.cpu:,.0f} CPU seconds), {machine()}, revision {revision()}."
    failed = "" if ran.status == 0 else f"\n**It failed (exit status {ran.status}).**\n"
    return f"## {ran.name}\n\n{ran.about}\n\n{facts}\n{failed}\n{said or 'It printed nothing.'}\n"


def figure(value: float) -> str:
    """Three digits that count."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _inner(ordered: Sequence[float]) -> tuple[float, float]:
    """The tenth and the ninetieth percentile."""
    tenths = statistics.quantiles(ordered, n=10, method="inclusive")
    return tenths[0], tenths[-1]


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

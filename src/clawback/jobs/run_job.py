"""What runs on feedback and runs on episodes share: the run's folder, its progress, and how failures are recorded."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from clawback import config
from clawback.errors import ClawbackError, Interrupted, Stopped, TrainingError
from clawback.paths import Home
from clawback.policy.memory import give_back
from clawback.progress import ANNOUNCEMENTS, OnProgress, Pace, Progress, curve, describe
from clawback.records import Run

if TYPE_CHECKING:
    from clawback.store import Store

PROGRESS_SECONDS = 0.5


def plays(run: Run) -> bool:
    """Whether a run learns from episodes; `clawback env train` goes on with those."""
    return run.kind == "episodes"


class RunJob:
    """One call that makes a version."""

    sentence_on_failure: ClassVar[str]
    """What a run that fails has not lost, as a sentence."""
    again: ClassVar[str]
    """The command that goes on with run ``{id}``."""
    stopped_by: ClassVar[tuple[type[BaseException], ...]] = (Stopped,)
    """What leaves a run ``stopped``, as does whatever interrupts it. Anything else that is no error leaves it as a killed process does."""
    stops_in: ClassVar[frozenset[str] | None] = None
    """Phases in which somebody's wish to stop is heard; None: in all."""

    def __init__(self, home: Home, db: Store, on_progress: OnProgress | None) -> None:
        self.home, self.db, self.on_progress = home, db, on_progress
        self.settings = config.load(home.config)
        self.pace, self.told, self.phase = Pace(), 0.0, ""
        self.steps: list[tuple[str, int, dict[str, float]]] = []
        """Figures that are not in the store yet."""

    def folder(self, run: Run) -> Path:
        """Where the run's checkpoints are, and its adapter until it is a version."""
        return self.home.runs / str(run.id)

    @contextmanager
    def entered(self, run: Run) -> Iterator[None]:
        """A context manager: however the run ends within it, the store records it. Errors that are not ours become ``TrainingError``."""
        try:
            yield
        except self.stopped_by + (Interrupted,) as error:  # noqa: RUF005
            self.keep_steps(run)
            why = str(error) if isinstance(error, Interrupted) else ""
            self.db.update_run(run.id, status="stopped", error=why)
            if why:  # what failed does not know of what it is a part
                error.args = (f"{why} What was done is kept: `{self.again.format(id=run.id)}` continues it.",)
            raise
        except ClawbackError as error:
            self.fail(run, str(error))
            raise
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
            self.fail(run, why)
            raise TrainingError(f"The run failed ({why}). {self.sentence_on_failure}") from error
        self.keep_steps(run)
        self.db.update_run(run.id, status="done", progress={"phase": "done"})
        self.clear(run)

    def fail(self, run: Run, why: str) -> None:
        self.keep_steps(run)
        self.db.update_run(run.id, status="failed", error=why)
        self.clear(run)

    def clear(self, run: Run) -> None:
        shutil.rmtree(self.folder(run), ignore_errors=True)

    def sweep(self, run: Run) -> None:
        """Remove, as ``run`` begins, the checkpoints of runs that can no longer be resumed. A run on feedback
        can be resumed until the next one begins, one on episodes for as long as it is stopped.
        """
        for left in self.home.runs.glob("*"):
            if left.name == str(run.id):
                continue
            old = next((r for r in self.db.runs(limit=10_000, ids=False) if str(r.id) == left.name), None)
            if old is None or old.status not in ("stopped", "running") or not plays(old):
                shutil.rmtree(left, ignore_errors=True)

    # ---------------------------------------------------------------------------------------------- progress

    def enter(self, run: Run, progress: Progress) -> None:
        """Into the run's row, a few times a second at most, for ``clawback status``; and to who asked for it.

        Raises ``Stopped`` where somebody wants the run to stop.
        """
        progress = self.pace(progress)
        phase, now = str(progress.get("phase", "")), time.monotonic()
        if figures := curve(progress):
            self.steps.append((phase, progress["step"], figures))
        if phase != self.phase:
            give_back()
        if phase not in ANNOUNCEMENTS and (phase != self.phase or now - self.told >= PROGRESS_SECONDS):
            self.told, self.phase = now, phase
            self.db.update_run(run.id, progress=progress)
            self.keep_steps(run)
        self.tell(progress)
        stoppable = phase not in ANNOUNCEMENTS if self.stops_in is None else phase in self.stops_in
        if stoppable and self.db.stop_wanted(run.id):
            self.db.update_run(run.id, progress=progress)
            raise Stopped(
                f"Run {run.id} was stopped ({describe(progress)}). Its checkpoint is kept: `{self.again.format(id=run.id)}` continues it."
            )

    def keep_steps(self, run: Run) -> None:
        if self.steps:
            self.db.add_steps(run.id, self.steps)
            self.steps = []

    def tell(self, progress: Progress) -> None:
        if self.on_progress:
            self.on_progress(progress)

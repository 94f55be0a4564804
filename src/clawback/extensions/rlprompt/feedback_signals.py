"""Converts a person's feedback on an answer to numbers for prompt learning; and a collector that waits for it.

RLPrompt asks on a page of its own, before the answer exists. Here the answer comes first, is kept in
Clawback's store, and is rated wherever the person is: ``/rl`` in their agent, the page, ``clawback good``, a
channel. The rating finds its answer by the turn's number.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from clawback import installed, paths
from clawback.errors import ClawbackError, MissingExtra, UsageError
from clawback.feedback import hints_of, reward
from clawback.feedback.hints import wanted_instead
from clawback.records import Turn
from clawback.store import connect

if TYPE_CHECKING:
    from clawback.paths import Home

AGENT = "prompts"
PORT = 7860
_POLL = 0.2


class NoFeedback(ClawbackError):
    """Nobody rated the answer in time. It stays in the store, and can be rated later."""


@dataclass(frozen=True, slots=True)
class HumanFeedbackResult:
    """What was said of one answer. ``score`` is in [0, 1], ``value`` the same in [-1, 1]; ``remarks`` and ``edit`` are their words."""

    turn_id: int
    value: float
    remarks: tuple[str, ...] = ()
    edit: str = ""

    @property
    def score(self) -> float:
        return (self.value + 1) / 2

    @property
    def thumbs_up(self) -> bool:
        return self.value > 0

    @property
    def rating(self) -> int:
        """From 1 to 5."""
        return round(1 + 4 * self.score)


class HumanFeedbackCollector:
    """Keeps answers in the store and waits until they are rated.

    Args:
        server_name, server_port: where ``start`` opens the page.
        home: whose store; ``$CLAWBACK_HOME`` by default.
        timeout: seconds that ``get_feedback`` waits; None: for ever.
        tell: is told where the answer can be rated.
    """

    def __init__(
        self,
        server_name: str = "127.0.0.1",
        server_port: int = PORT,
        *,
        home: Home | None = None,
        timeout: float | None = None,
        tell: Callable[[str], None] = print,
    ) -> None:
        self.server_name, self.server_port = server_name, server_port
        self.home, self.timeout, self.tell = home or paths.home(), timeout, tell
        self._server: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Open Clawback's own page in a process beside this one. Not needed where it is open already, or ratings come from elsewhere."""
        self._server = _serve(self.server_name, self.server_port)

    def stop(self) -> None:
        """Close the page again."""
        if self._server is not None:
            self._server.terminate()
            self._server.wait()
            self._server = None

    def ask(self, query: str, response: str) -> int:
        """Keep an answer, to be rated whenever the person likes. Its turn's number."""
        with connect(self.home.database) as store:
            messages = ({"role": "user", "content": query},)
            return store.add_turn(Turn(AGENT, messages, response, agent=AGENT)).id

    def result(self, turn_id: int) -> HumanFeedbackResult | None:
        """What was said of it so far, None for nothing that is a rating. Raises ``NotFound``."""
        with connect(self.home.database) as store:
            turn = store.turn(turn_id)
            said, usual = store.feedback(turn_id=turn.id), store.middles()
        value, parts = reward(turn_id, said, middles=usual)
        if not parts:
            return None
        notes = [
            f.text.strip() for f in said if f.kind == "rating" and f.turn_id == turn_id and f.text.strip()
        ]
        return HumanFeedbackResult(
            turn_id, value, tuple(dict.fromkeys((*hints_of(said), *notes))), wanted_instead(turn, said)
        )

    def get_feedback(self, query: str, response: str) -> HumanFeedbackResult:
        """Keep the answer and wait until somebody rates it. Raises ``NoFeedback`` after ``timeout``."""
        turn_id = self.ask(query, response)
        page = f" or at http://{self.server_name}:{self.server_port}/" if self._server is not None else ""
        self.tell(f"Rate this answer: `clawback good --turn {turn_id}` (or bad, or rate 1 to 10){page}")
        until = None if self.timeout is None else time.monotonic() + self.timeout
        while (found := self.result(turn_id)) is None:
            if until is not None and time.monotonic() >= until:
                raise NoFeedback(f"Nobody rated turn {turn_id} in {self.timeout:g} s. It is kept: rate it later with `clawback good --turn {turn_id}`.")  # fmt: skip
            time.sleep(_POLL)
        return found

    def __enter__(self) -> HumanFeedbackCollector:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def launch_standalone(server_name: str = "127.0.0.1", server_port: int = PORT) -> int:
    """Clawback's page, where answers are asked for and rated, until it is stopped. Its exit code."""
    return _serve(server_name, server_port).wait()


def _serve(host: str, port: int) -> subprocess.Popen[bytes]:
    import importlib.util

    if importlib.util.find_spec("starlette") is None or importlib.util.find_spec("uvicorn") is None:
        raise MissingExtra(f"The page needs more parts: {installed.add('serve')}. Without it, rate with `clawback good`.")  # fmt: skip
    return subprocess.Popen([sys.executable, "-m", "clawback", "serve", "--host", host, "--port", str(port)])


def thumbs_to_score(thumbs_up: bool) -> float:
    """1 or 0."""
    return float(thumbs_up)


def rating_to_score(rating: float, min_r: float = 1.0, max_r: float = 5.0) -> float:
    """1 to 5 → 0 to 1. Raises ``UsageError`` outside."""
    if not min_r <= rating <= max_r:
        raise UsageError(f"A rating here is from {min_r:g} to {max_r:g}, not {rating:g}.")
    return (rating - min_r) / (max_r - min_r)


def preference_to_scores(chosen_index: int, num_candidates: int = 2) -> list[float]:
    """1 for the chosen one, 0 for the others. Raises ``UsageError`` for one that is not there."""
    if not 0 <= chosen_index < num_candidates:
        raise UsageError(f"There are {num_candidates} candidates; there is none at {chosen_index}.")
    return [float(i == chosen_index) for i in range(num_candidates)]


_WEIGHTS = {"explicit": 1.0, "preference": 0.9, "implicit": 0.5}


@dataclass(frozen=True, slots=True)
class FeedbackAggregator:
    """What was said of one answer in several ways, as one score in [0, 1]: the mean by weight of what is there."""

    weights: Mapping[str, float] = field(default_factory=lambda: dict(_WEIGHTS))

    def aggregate(
        self, explicit: float | None = None, implicit: float | None = None, preferred: bool | None = None
    ) -> float | None:
        """``preferred``: whether this one was chosen over another. None where nothing was said."""
        given = {
            "explicit": explicit,
            "implicit": implicit,
            "preference": None if preferred is None else float(preferred),
        }
        there = {name: value for name, value in given.items() if value is not None}
        total = sum(self.weights[name] for name in there)
        return sum(self.weights[name] * value for name, value in there.items()) / total if total else None

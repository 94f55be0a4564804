"""A judge compares the tries at one task, and its scores are their rewards: no reward function is written.

A model tells which of several tries is better with less error than how good one is by itself, and a group-relative
advantage needs no more than that (RULER, OpenPipe 2025). One call judges a group. The tries stand in an order that is
drawn by seed, so that none gains by its place.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from clawback.environments.core import EnvironmentFailure
from clawback.environments.tools.task_rewards import message_text
from clawback.environments.world_helpers import mixed
from clawback.errors import JudgeError
from clawback.feedback.endpoint import Ask, NoAnswer
from clawback.feedback.passes import readings
from clawback.feedback.verdict import MATERIAL_RULES, fenced
from clawback.records import Episode, Message

PARALLEL = 8
"""Groups that are judged at once."""
HIGHEST = 10
COMPARE = f"""You compare several tries of an assistant at one task. You see the task, and of each try what the assistant did and what came back.

Give each try a score from 0 to {HIGHEST} by how well it did the task, compared with the others: what counts is what was achieved, then how
directly. The best need not get {HIGHEST}, nor the worst 0. Tries that did equally well get the same score.
{MATERIAL_RULES}
Reply with one JSON object and nothing else: from the number of each try to its score, such as {{"1": 7, "2": 3.5}}."""


class GroupJudge:
    """Scores episodes of one task against each other, from 0 to 1."""

    def __init__(self, ask: Ask, votes: int = 1) -> None:
        self.ask, self.votes = ask, votes

    def scores(self, tries: Sequence[Episode]) -> list[float] | None:
        """Of each try, the mean over votes; None where no answer could be read. Raises ``EnvironmentFailure``."""
        order = list(range(len(tries)))
        random.Random(mixed(tries[0].task, *(episode.number for episode in tries))).shuffle(order)
        opening, _ = _split(tries[0])
        pieces = [("TASK", _text(opening))]
        pieces += [(f"TRY {place}", _text(_split(tries[i])[1])) for place, i in enumerate(order, 1)]
        try:
            votes = readings(
                self.ask, COMPARE, fenced(pieces), self.votes, lambda text: read_scores(text, len(tries))
            )
        except NoAnswer:
            return None
        except JudgeError as error:
            raise EnvironmentFailure(f"The judge of the tries cannot be asked: {error}") from error
        means = [sum(vote[place] for vote in votes) / len(votes) for place in range(len(order))]
        return [means[order.index(i)] for i in range(len(tries))]

    def grade(self, groups: Sequence[Sequence[Episode]]) -> Iterator[list[Episode]]:
        """The same episodes with their scores as rewards, group by group. Groups that are graded already stay as they are; one that the judge
        gives no verdict on, and one of a single try, is empty."""
        with ThreadPoolExecutor(PARALLEL) as pool:
            yield from pool.map(self._graded, groups)

    def _graded(self, group: Sequence[Episode]) -> list[Episode]:
        if all(graded(episode) for episode in group):
            return list(group)
        if len(group) < 2 or (scores := self.scores(group)) is None:
            return []
        return [rewarded(episode, score) for episode, score in zip(group, scores, strict=True)]


def graded(episode: Episode) -> bool:
    """Whether a reward came at the end."""
    return bool(episode.steps) and episode.steps[-1].reward is not None


def rewarded(episode: Episode, reward: float) -> Episode:
    """With this reward for its last step."""
    return replace(episode, steps=(*episode.steps[:-1], replace(episode.steps[-1], reward=reward)))


def read_scores(text: str, count: int) -> list[float] | None:
    """``{"1": 7, …}`` with a score for each of ``count`` tries, as shares of the highest; None for anything else."""
    start, end = text.find("{"), text.rfind("}")
    try:
        values = json.loads(text[start : end + 1])
    except ValueError:
        return None
    if not isinstance(values, dict) or values.keys() != {str(n) for n in range(1, count + 1)}:
        return None
    scores = [values[str(n)] for n in range(1, count + 1)]
    if not all(isinstance(s, int | float) and not isinstance(s, bool) and 0 <= s <= HIGHEST for s in scores):
        return None
    return [float(score) / HIGHEST for score in scores]


def _split(episode: Episode) -> tuple[Sequence[Message], Sequence[Message]]:
    """What the policy read before its first reply, worked examples included, and what follows from there on."""
    first = next(iter(episode.replies), len(episode.messages))
    return episode.messages[:first], episode.messages[first:]


def _text(messages: Sequence[Message]) -> str:
    return "\n\n".join(f"{m.get('role')}: {message_text(m)}" for m in messages)

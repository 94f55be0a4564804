"""An answer of the live version in a terminal: one draw, or the best of several while such a trial is on (``release.best_of``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from clawback import config
from clawback.paths import Home
from clawback.records import Message, Turn
from clawback.release import best_of

if TYPE_CHECKING:
    from clawback.models import Completion
    from clawback.paths import Home
    from clawback.policy import Policy
    from clawback.records import Version
    from clawback.store import Store

Pick = Callable[[str, "Sequence[Completion]"], "list[Completion]"]


@dataclass(frozen=True, slots=True)
class Draw:
    """An answer, of how many draws it is the best (1: it is the only one), and what the person should know about that."""

    completion: Completion
    count: int = 1
    notice: str = ""

    def turn(self, session: str, messages: Sequence[Message], version: int, cwd: str) -> Turn:
        """The answer as a turn. One that was chosen is no sample of the version: it has no log-probs and no version."""
        completion = self.completion
        chosen = self.count > 1
        return Turn(
            session=session,
            messages=tuple(messages),
            response=completion.text,
            agent="clawback",
            model=best_of.model_name(version, self.count) if chosen else "",
            version=None if chosen else version,
            cwd=cwd,
            response_ids=None if chosen else completion.ids,
            response_logprobs=None if chosen else completion.logprobs,
            thinking=completion.thinking,
            ending=completion.ending,
        )


class Answering:
    """Draws answers; what the ratings say is read again as they grow."""

    def __init__(self, home: Home, store: Store) -> None:
        self.store, self.reading = store, best_of.AnswerReading(config.load(home.config))

    def draw(
        self,
        policy: Policy,
        version: Version,
        messages: Sequence[Message],
        seed: int,
        max_tokens: int | None = None,
    ) -> Draw:
        """The answer to a conversation."""
        trial, notice = best_of.running(self.store), self.reading.notice(self.store)
        if trial is None or notice or version.number != trial.live or policy.sampling.temperature == 0:
            [[completion]] = policy.generate([messages], seed=seed, max_tokens=max_tokens)
            return Draw(completion, notice=notice)
        [drawn] = policy.generate([messages], samples=trial.count, seed=seed, max_tokens=max_tokens)
        question = Turn("", tuple(messages), "").prompt
        texts, ended = [one.text for one in drawn], [one.finished for one in drawn]
        return Draw(drawn[self.reading.best(question, texts, ended)], trial.count)


def picker(home: Home, settings: config.Config, count: int) -> Pick:
    """(prompt, answers) → of every ``count`` in a row the best one, by the members' mean less their doubt.

    An answer that was cut off is taken only where all were. Raises ``UsageError`` where the best of so many moves further from the
    version than the gate allows a version to move from the base; ``NotFound``, ``ModelError`` without a usable reward model.
    """
    from clawback.rewards import reward_model

    best_of.check_distance(settings, count)
    model = reward_model.load(home)

    def pick(prompt: str, completions: Sequence[Completion]) -> list[Completion]:
        scores = model.score([(prompt, c.text) for c in completions], settings.reward.pessimism)
        order = [(c.finished, float(s)) for c, s in zip(completions, scores, strict=True)]
        return [
            completions[max(range(start, start + count), key=lambda i: order[i])]
            for start in range(0, len(completions), count)
        ]

    return pick

"""What all rows and people of ``benchmarks.meaning`` share: a real model, its own answers, and how they are looked at; each drawn or read once and kept."""

from __future__ import annotations

import argparse
import functools
import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks._people import Graded, graded
from benchmarks.reading import auc
from benchmarks.real import RESULTS, ROOM, World, user

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
LOOKED_AT = 512
"""Tokens of another model's answer that are read."""


class Room(World):
    """The model and its answers to the person's own prompts (``own``) and to those that they never rate (``held``)."""

    def __init__(self, model: str, prompts: Path, dtype: str = "auto") -> None:
        super().__init__(argparse.Namespace(model=model, prompts=prompts, dtype=dtype))
        self.model, self.data = model, prompts
        self.key = self.policy.info.revision[-12:]
        self.asked = [*self.own, *self.held]
        self.count = len(self.own)

    @functools.cached_property
    def base(self) -> dict[str, Any]:
        """The base's answers to prompts that nobody rates: ``texts``, ``ids``, ``figures`` (``World._answers``)."""
        path = RESULTS / f"held-{self.key}.json"
        if not path.is_file():
            self.policy.put(None)
            made, figures = self._answers([user(p) for p in self.held])
            found = {"texts": [one.text for one in made], "ids": [list(one.ids) for one in made]}
            path.write_text(json.dumps(found | {"figures": figures}))
        return dict(json.loads(path.read_text()))

    @functools.cached_property
    def texts(self) -> list[str]:
        """The base's answers to the person's own prompts."""
        return [one["text"] for one in self.captured]

    @functools.cached_property
    def answers(self) -> Any:
        """The same as a reader looks at them."""
        return self.looked("own", self.own, self.texts, [one["ids"] for one in self.captured])

    @functools.cached_property
    def graded(self) -> list[Graded]:
        """One graded answer of some chat model to each prompt, prompts in the order of ``asked``."""
        by: dict[str, list[Graded]] = {}
        for one in graded(self.data):
            by.setdefault(one.prompt, []).append(one)
        return [by[prompt][i % len(by[prompt])] for i, prompt in enumerate(self.asked)]

    def of_models(self, models: Sequence[str]) -> list[Graded]:
        """An answer of one of these models to each of the person's own prompts, the models in turn."""
        by = {(one.prompt, one.model): one for one in graded(self.data, models)}
        return [by[prompt, models[i % len(models)]] for i, prompt in enumerate(self.own)]

    def looked(self, name: str, prompts: Sequence[str], texts: Sequence[str], ids: Any = None) -> Any:
        """Answers as a reader looks at them; the base's hidden states are kept under ``name``."""
        from clawback.rewards.views import Answers

        asked = [user(p) for p in prompts]
        ids = ids or [list(self.policy.chat.encode(list(m), t, None).response)[:LOOKED_AT] for m, t in zip(asked, texts, strict=True)]  # fmt: skip
        path = RESULTS / f"states-{name}-{self.key}.npy"
        if not path.is_file():
            self.policy.put(None)
            np.save(path, self.policy.features(asked, ids).double().numpy())
        return Answers(ids, list(texts), np.load(path), list(prompts), words=self.policy.word_vectors)

    def grades_by(self, remark: str) -> Floats:
        """What a run adds to the reader's grades of the base's own answers for a remark that the reader does not know."""
        from clawback.sources.rule_grades import UNIT

        return np.clip(UNIT * self._scores_by(remark), -1.0, 1.0)

    def _scores_by(self, remark: str) -> Floats:
        """How much likelier the remark makes each of the base's own answers, in standard deviations; kept."""
        from clawback import engine
        from clawback.sources.graded import Grading, GradingSettings
        from clawback.sources.instructed import PromptMessages
        from clawback.sources.rule_grades import RuleGrades
        from clawback.templates import Encoded
        from clawback.trainer.run import TrainingRun

        path = RESULTS / f"scores-{hashlib.sha256(remark.encode()).hexdigest()[:12]}-{self.key}.npy"
        if not path.is_file():
            self.policy.put(None)
            recipe = engine.recipe(self.policy.info, "balanced", "auto", {})
            grading = Grading(TrainingRun(self.policy, (), recipe), GradingSettings.of(recipe), ROOM)
            conversations = PromptMessages({tuple(self.policy.chat.prompt(m, self.policy.max_prompt)): m for m in map(user, self.own)})  # fmt: skip
            grading.base = [Encoded(prompt, tuple(one["ids"])) for prompt, one in zip(conversations.messages, self.captured, strict=True)]  # fmt: skip
            grades = RuleGrades(grading, conversations, [remark], None, [], [remark])
            ratios = grades.ratios(grading.base)
            np.save(path, (ratios - ratios.mean()) / ratios.std())
        return np.asarray(np.load(path), dtype=np.float64)

    def holds(self, likes: Callable[[str, str], bool]) -> Bools:
        """Of each of the base's answers, whether it is liked."""
        return np.array([likes(q, a) for q, a in zip(self.own, self.texts, strict=True)])


def rows(answers: Any, places: Sequence[int]) -> Any:
    """Some of the answers."""
    from clawback.rewards.views import Answers

    return Answers(
        [answers.ids[i] for i in places],
        [answers.texts[i] for i in places],
        answers.hidden[list(places)],
        [answers.prompts[i] for i in places],
    )


def read(
    room: Room,
    rated: Any,
    rewards: Sequence[float],
    remarks: Sequence[str] = (),
    *,
    changes: bool = False,
    judge: Any = None,
) -> Any:
    """The product's reward ensemble, from rated answers and what was said about each; how answers vary it sees of the base's own.

    ``changes``: the ratings are in the order in which they were given, and a change of mind may be found in them. ``judge``: whose verdicts on answers are
    features of the reader.
    """
    from clawback.rewards.reward_ensemble import Ratings, learn

    said = [(ids, text, remark) for ids, text, remark in zip(rated.ids, rated.texts, remarks, strict=False) if remark]  # fmt: skip
    order = range(len(rewards)) if changes else ()
    return learn(
        room.answers.with_others(rated), rated, Ratings(np.array(rewards), order=order), said, judge=judge
    )


def told_apart(made: Any, answers: Any, liked: Bools, more: Floats | float = 0.0) -> float:
    """AUC of the reader's grades, with ``more`` added to them."""
    from clawback.rewards.reward_ensemble import RULES

    if not 0 < liked.sum() < len(liked):
        return np.nan
    return round(auc(made.reward(answers, RULES, 0.0) + more, liked), 3)


__all__ = ["ROOM", "Room", "read", "rows", "told_apart"]

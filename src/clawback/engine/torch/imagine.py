"""Learning from a few dozen taps: imagine answers to the person's own prompts, and grade them by a head fitted on the taps.

A rating says that one answer was good, and not what about it. Pushing that answer up or down mostly pushes around what
it happened to say. So:

1. The base answers the person's prompts a few times over. That shows how its answers vary (``Lens``) and costs seconds.
2. Two experts are fitted on what rated answers look like and how they were rated, and on what was said about them (``experts.py``). If the
   first one's leave-one-out predictions do not beat chance and no remark was understood, the run falls back to ``reinforce`` on the
   ratings themselves, and says so.
3. Rounds: some prompts, several fresh answers of the policy to each, graded by the mean of the two less their uncertainty, each against
   the others of its prompt (GRPO), some optimizer steps.

What holds the drift down, and facts with it (measured in docs/studies/0001-keeping-facts.md):

* The KL to the base is exact and over the whole vocabulary (``drift.py``). Where the base is sure, which is where facts are,
  it holds every token in place; where style is decided, it costs the few nats that a change of style has to cost.
* Advantages are divided by one number, the spread of rewards among the base's answers, instead of each group's own. Once
  all answers to a prompt are good, nothing is left to push, where GRPO's own division would blow up what noise remains.
* A fifth of what is learned from are answers of the base. An answer that the policy gives no more is held in place by nothing else, and whoever
  begins it for the model (a template, a quotation) finds it broken: two fifths of the perplexity that runs added to ordinary text were of that kind
  (docs/studies/0003-what-is-no-longer-said.md).
* The learning rate falls to zero, and the head sees everyday tokens: no topic's own words.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from clawback.engine.torch.chat import Encoded
from clawback.engine.torch.examples import Plan, from_ratings
from clawback.engine.torch.imagination import Imagination, Imagining
from clawback.errors import TrainingError
from clawback.records import BETTER, Turn
from clawback.rewards.remarks import wishes
from clawback.rl import advantages
from clawback.rl.algorithms.grpo import Grpo
from clawback.rl.algorithms.reinforce import Reinforce

if TYPE_CHECKING:
    from clawback.engine.recipe import Recipe
    from clawback.engine.torch.policy import Policy
    from clawback.engine.types import Grader
    from clawback.records import Message, Sample
    from clawback.rewards.terms import Terms

NAME = "imagine"


def plan(
    policy: Policy,
    samples: Sequence[Sample],
    recipe: Recipe,
    prompts: Sequence[Sequence[Message]] = (),
    *,
    seed: int = 0,
    baseline: float = 0.0,
    tell: Callable[[Mapping[str, Any]], None] = lambda _: None,
    grader: Grader | None = None,
    terms: Terms | None = None,
) -> Plan:
    """How to learn from these ratings: by imagining, where the head can be trusted, else by ``reinforce``.

    Args:
        samples: the rated answers, in the order in which they were rated.
        prompts: further conversations of the person, up to their question, to imagine answers to.
        baseline: moving average of ratings, kept up to date either way.
        grader: a trained reward model that grades in place of the head; nothing is fitted then, and there is no falling back.
        terms: what counts beside head or grader. The head is fitted on what was said alone, or it would learn them a second time.

    A recipe whose algorithm is ``imagine`` does not fall back; it raises ``TrainingError`` where all ratings are the same.
    """
    settings = Imagining.of(recipe)
    words = [(one, hint) for one in samples for hint in one.hints if not hint.startswith(BETTER)]
    samples = [one for one in samples if one.rated]
    if not samples:
        raise TrainingError("Nothing can be imagined without ratings: words alone are for opd and combined.")
    rated = [policy.encode(one) for one in samples]
    rewards = np.array([one.said for one in samples], dtype=np.float64)
    fallback = Reinforce(kl=recipe.kl, ema_decay=recipe.ema_decay, importance_cap=recipe.importance_cap)
    remarks = [(policy.encode(one), hint) for one, hint in words if wishes(hint)]
    alike = ""
    if np.ptp(rewards) == 0 and grader is None:
        alike = f"all {len(rewards)} ratings are {'good' if rewards[0] > 0 else 'bad'}, so there is nothing to compare"
    if alike and not remarks:
        return _fall_back(policy, samples, recipe, fallback, seed, baseline, alike)

    imagination = Imagination(
        policy, _asked(policy, rated, prompts), settings, seed, _room(policy, rated), grader, terms
    )
    if grader is not None or terms is not None:
        imagination.questions = _questions(policy, samples, rated, prompts)
    tell({"phase": "imagine", "answers": settings.grounding})
    if grader is None:
        experts = imagination.learn(rated, rewards, remarks)
        trust = experts.ridge.trust
        if not experts.heard and (alike or (not trust.trusted and recipe.algorithm != NAME)):
            return _fall_back(policy, samples, recipe, fallback, seed, baseline, alike or trust.reason)
        note = f"imagined answers, graded by a head fitted on {len(rated)} ratings: {trust.reason}"
        note += f"; remarks understood: {experts.heard}" if experts.heard else ""
    else:
        imagination.look_round()
        note = f"imagined answers, graded by {grader.name}"
    _, moved = advantages.ema(torch.tensor(rewards), baseline, recipe.ema_decay)
    algorithm = Grpo(
        kl=settings.exact_kl, clip_low=recipe.clip_low, clip_high=recipe.clip_high, scale_advantages=False
    )
    rate = recipe.learning_rate * settings.rate
    return Plan(algorithm, imagination, NAME, note, moved, rate=rate, cover=settings.cover, decay=True)


def _fall_back(
    policy: Policy,
    samples: Sequence[Sample],
    recipe: Recipe,
    algorithm: Reinforce,
    seed: int,
    baseline: float,
    why: str,
) -> Plan:
    if recipe.algorithm == NAME:
        raise TrainingError(
            f"Nothing can be imagined from these ratings: {why}. Rate some of the other kind."
        )
    made = from_ratings(policy, samples, recipe, algorithm, seed=seed, baseline=baseline)
    return dataclasses.replace(made, note=f"reinforce on the ratings themselves: {why}")


def _asked(
    policy: Policy, rated: Sequence[Encoded], prompts: Sequence[Sequence[Message]]
) -> list[tuple[int, ...]]:
    """Every different prompt once, rated ones first."""
    every = [one.prompt for one in rated]
    every += [tuple(policy.chat.prompt(messages, policy.max_prompt)) for messages in prompts]
    return list(dict.fromkeys(prompt for prompt in every if prompt))


def _questions(
    policy: Policy,
    samples: Sequence[Sample],
    rated: Sequence[Encoded],
    prompts: Sequence[Sequence[Message]],
) -> dict[tuple[int, ...], str]:
    """Token ids of a prompt → what the person said in it, for a grader that reads text."""
    found = {tuple(e.prompt): Turn("", s.messages, "").prompt for e, s in zip(rated, samples, strict=True)}
    for messages in prompts:
        found[tuple(policy.chat.prompt(messages, policy.max_prompt))] = Turn("", tuple(messages), "").prompt
    return found


def _room(policy: Policy, rated: Sequence[Encoded]) -> int:
    """Tokens that an imagined answer may have: twice those of the longest that was rated."""
    return min(policy.max_response, max(64, 2 * max(len(one.response) for one in rated)))

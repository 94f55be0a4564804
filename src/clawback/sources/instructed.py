"""Search for the instruction that, added to the prompts, makes the base answer as the person likes.

Candidate sentences come from what ratings and remarks are believed to ask for (``rewards.instructions``).
Answers drawn under each are graded by the reward ensemble, on the same prompts, and compared with the base's
own. Half of the sentences, the worse ones, are dropped each round (successive halving: Karnin, Koren & Somekh
2013; Jamieson & Talwalkar 2016, arXiv:1502.07943), so that most answers are drawn under those that may win.

A sentence is used alone only if it gains more than chance would (``follows``). Where none does, answers are drawn
under several, and without any, each as often as it pays (``picked``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from clawback.features.style_features import Floats
from clawback.records import Message, under
from clawback.rewards.overoptimization import quotes
from clawback.sources.graded import Graded, Grading, Prompt
from clawback.sources.teacher import appended
from clawback.templates import Encoded

if TYPE_CHECKING:
    from clawback.rewards.instructions import Instruction


SURE = 2.0
"""Standard errors by which a sentence has to gain."""
WORTH = 0.5
"""Standard deviations of the base's rewards by which a sentence has to gain: the better of two answers of the base gains 0.56."""

OPENING = 48
"""Tokens of an answer that show what it is about."""


@dataclass
class Arm:
    """One sentence and what was drawn under it so far."""

    instruction: Instruction
    answers: list[Graded] = field(default_factory=list)
    gains: list[float] = field(default_factory=list)
    """Of each answer: its reward less the mean of the base's to the same prompt; 0 where it is broken, for then nothing can be learned from it."""
    shortest: float = 0.0
    """Tokens that its answers have in the mean; 0 is gained where they are shorter."""

    def add(self, answers: Sequence[Graded], base: Mapping[Prompt, float]) -> None:
        """More that was drawn under it. ``base``: mean reward of the base's own answers, by prompt."""
        self.answers += answers
        self.gains += [one.complete * (one.reward - base[one.encoded.question]) for one in answers]

    @property
    def stubs(self) -> bool:
        return sum(len(one.encoded.response) for one in self.answers) < self.shortest * len(self.answers)

    @property
    def gain(self) -> float:
        return 0.0 if self.stubs or not self.gains else float(np.mean(self.gains))

    @property
    def error(self) -> float:
        return float(np.std(self.gains) / np.sqrt(len(self.gains))) if self.gains else float("inf")


@dataclass(frozen=True)
class PromptMessages:
    """The person's own prompts: token ids → the messages they were made of."""

    messages: Mapping[Prompt, Sequence[Message]]
    system: bool = False
    """Whether what is said stands where a learned prompt does, and not after the question."""

    def under(self, grading: Grading, prompt: Prompt, sentence: str) -> Prompt:
        """The prompt with a sentence after it."""
        if not sentence:
            return prompt
        policy = grading.policy
        if self.system:
            return tuple(policy.chat.prompt(under(self.messages[prompt], sentence), policy.max_prompt))
        return tuple(policy.chat.prompt(appended(self.messages[prompt], sentence), policy.max_prompt))


def answer_after(answer: Encoded, prompt: Prompt) -> Encoded:
    """The same answer, with its thought, after another form of its prompt."""
    return replace(answer, prompt=(*prompt, *answer.prompt[len(answer.question) :]))


def draw_under(
    grading: Grading,
    conversations: PromptMessages,
    prompts: Sequence[tuple[Prompt, str]],
    each: int,
    generator: torch.Generator,
) -> list[Graded]:
    """``each`` answers of the base to each prompt with its sentence after it, graded as answers to the prompt alone."""
    with grading.policy.base():
        said = [conversations.under(grading, *one) for one in prompts]
        return answers_to(grading, [prompt for prompt, _ in prompts], said, each, generator)


def answers_to(
    grading: Grading,
    plain: Sequence[Prompt],
    instructed: Sequence[Prompt],
    each: int,
    generator: torch.Generator,
) -> list[Graded]:
    """``each`` answers of the model as it stands to each of the prompts ``instructed``, graded as answers to the ``plain`` that they are made of. One that
    repeats what it was instructed counts as broken: learned after the plain prompt, it would be said there, too."""
    drawn = grading.draw(instructed, each, generator)
    asked = [prompt for prompt in plain for _ in range(each)]
    answers = [Encoded(prompt, one.response) for prompt, one in zip(asked, drawn.answers, strict=True)]
    additions = [_added(*pair) for pair in zip(plain, instructed, strict=True)]
    sentences = grading.texts([Encoded((), one) for one in additions])
    return [
        replace(answer, complete=answer.complete and not quotes(text, sentences[i // each]))
        for i, (answer, text) in enumerate(
            zip(grading.judged(answers, drawn.ended), grading.texts(answers), strict=True)
        )
    ]


def _added(plain: Prompt, instructed: Prompt) -> Prompt:
    """The tokens that one prompt has and the other has not; none where the longer one was cut."""
    start = _alike(plain, instructed)
    end = _alike(plain[start:][::-1], instructed[start:][::-1])
    added = instructed[start : len(instructed) - end]
    return added if len(plain) - end - start <= 1 else ()


def _alike(a: Prompt, b: Prompt) -> int:
    """How many tokens two prompts have in common at their beginnings."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def search(
    grading: Grading,
    conversations: PromptMessages,
    base: Mapping[Prompt, float],
    instructions: Sequence[Instruction],
    *,
    first: int,
    most: int,
) -> list[Arm]:
    """Try the sentences; the best first. Those that were given up early have fewer answers.

    Args:
        base: mean reward of the base's own answers, by prompt: what is compared with.
        first: prompts that each sentence is tried on at first; doubled each time half of the sentences go.
        most: prompts in all that the last ones are tried on.
    """
    order = list(base)
    shuffled = torch.randperm(len(order), generator=_generator(grading.seed, 0)).tolist()
    order = [order[i] for i in shuffled]
    arms = [Arm(one, shortest=grading.shortest) for one in instructions]
    racing, done, size, number = list(arms), 0, first, 1
    while racing and done < min(most, len(order)):
        some = order[done : min(done + size, most)]
        grading.tell({"phase": "choose", "step": done, "steps": most, "sentences": len(racing)})
        asked = [(prompt, arm.instruction.text) for arm in racing for prompt in some]
        made = draw_under(grading, conversations, asked, 1, _generator(grading.seed, number))
        for place, arm in enumerate(racing):
            arm.add(made[place * len(some) : (place + 1) * len(some)], base)
        racing.sort(key=lambda arm: -arm.gain)
        done, size, number = done + len(some), 2 * size, number + 1
        half = max(1, len(racing) // 2)
        # A few answers must not drop what the owner said: the best of their sentences is tried on all prompts.
        first_owned = next((i for i, arm in enumerate(racing) if arm.instruction.by_owner), 0)
        racing = racing[:half] + ([racing[first_owned]] if first_owned >= half else [])
        if len(racing) == 1 and done >= 2 * first:
            break
    return sorted(arms, key=lambda arm: (-len(arm.answers), -arm.gain))


def picked(arms: Sequence[Arm], least: float, count: int, chance: np.random.Generator) -> list[Arm]:
    """``count`` sentences, each as often as it is likely to be the one under which most answers are worth more than ``least``: Thompson sampling
    (Thompson 1933; Chapelle & Li 2011) with a uniform prior of that share."""
    fair = [arm for arm in arms if not arm.stubs]
    good = np.array([sum(one.complete and one.reward > least for one in arm.answers) for arm in fair])
    tried = np.array([len(arm.answers) for arm in fair])
    shares = chance.beta(1 + good, 1 + tried - good, size=(count, len(fair)))
    return [fair[i] for i in shares.argmax(axis=1)]


def follows(arm: Arm, scale: float) -> bool:
    """Whether answers under a sentence are liked better than the base's own, significantly and by enough.

    Args:
        scale: standard deviation of rewards among the base's answers to one prompt.
    """
    # What the owner said themselves, or said yes to, only has to be followed by the model.
    ease = 2 if arm.instruction.by_owner else 1
    return arm.gain > SURE / ease * arm.error and arm.gain > WORTH / ease * scale


@torch.no_grad()
def relevance(grading: Grading, answers: Sequence[Encoded], logprobs: Sequence[Tensor]) -> Floats:
    """``[S]`` nats a token by which each answer is likelier after its own prompt than after the next one's: is it about what was asked?

    The pointwise mutual information of answer and prompt under the base (Li et al. 2016, arXiv:1510.03055), a token. Of long answers the beginning
    is read: there it shows what is spoken of, and reading all of it again would take as long as to score it.

    Args:
        logprobs: log-probs ``[T]`` of each answer after its own prompt, under the base, on the CPU (``Seen.ref``).
    """
    others = list(answers[1:]) + list(answers[:1])
    swapped = [Encoded(b.prompt, a.response[:OPENING]) for a, b in zip(answers, others, strict=True)]
    with grading.policy.base():
        odd = [part.cpu() for part in grading.policy.scorer(swapped).split()]
    return np.array(
        [float((a[: len(b)] - b).mean()) if len(b) else 0.0 for a, b in zip(logprobs, odd, strict=True)]
    )


def _generator(seed: int, number: int) -> torch.Generator:
    return torch.Generator().manual_seed((seed * 1_000_003 + number) * 8 + 5)

"""Episodes as training examples, with their pictures.

The pictures of episodes, for the learner: what a policy saw is looked at again, from the messages that stand in the episode.

An episode keeps its pictures once, in its messages; its sequences name them by hash. The processor makes tokens and
inputs of them again, which must be the tokens that the policy read. Where they are not (a picture is gone or changed,
another model), nothing says what was seen, and the episode is left out with a warning.

Episodes as training examples: each round of episodes arrives as token ids with log-probs and leaves with an advantage per token.

Where episodes come from does not matter here: ``collect(round)`` returns them (``rollouts/concurrent.py``).
The log-probs recorded at sampling time are the old policy of the ratio, so that episodes which were begun
under older weights are corrected for; the collector limits how old they may be. A log-prob of the round's own
weights must equal the learner's, up to rounding: otherwise the wrong adapter, template or temperature was
used, and the run stops before it learns from text that its policy never produced. A sample of the round is
compared; beside it the policy reads no reply again before it learns from it.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import torch
from torch import Tensor

from clawback.errors import TrainingError
from clawback.records import Episode
from clawback.rl import turn_advantages
from clawback.rl.turn_advantages import AdvantageSettings
from clawback.templates import Chat, Encoded, Pixels
from clawback.trainer.examples import SourceState, TrainingExample
from clawback.trainer.torch_learner import ValueHead

if TYPE_CHECKING:
    from clawback.policy import Policy
    from clawback.scoring import Scorer
    from clawback.trainer.best_weights import BestWeights
    from clawback.trainer.recipe import Recipe


log = logging.getLogger("clawback.engine")
Seen = dict[tuple[int, int], Pixels]
"""(Place of an episode, place of its branch) → what was seen there."""


def look_again(chat: Chat, episodes: Sequence[Episode]) -> tuple[list[Episode], Seen]:
    """The episodes that can be learned from, and what was seen in each of their sequences that has pictures."""
    whole: list[Episode] = []
    seen: Seen = {}
    alike: dict[tuple[tuple[int, ...], str], Pixels] = {}
    """What was seen in several sequences is kept once."""
    for episode in episodes:
        found = _looked(chat, episode) if any(one.pictures for one in episode.branches) else {}
        if found is None:
            log.warning(
                "Episode %d of %s is left out: its pictures are not those that the policy saw.",
                episode.number,
                episode.environment,
            )
            continue
        for place, pixels in found.items():
            start = next(step.start for step in episode.steps if step.branch == place)
            ids = episode.branches[place].ids[:start]
            seen[len(whole), place] = alike.setdefault((ids, pixels.digest), pixels)
        whole.append(episode)
    return whole, seen


def _looked(chat: Chat, episode: Episode) -> dict[int, Pixels] | None:
    """Place of a branch → what was seen in it; None where that cannot be found out."""
    found: dict[int, Pixels] = {}
    for place, branch in enumerate(episode.branches):
        steps = [i for i, step in enumerate(episode.steps) if step.branch == place]
        if not branch.pictures or not steps:
            continue
        begin = episode.steps[steps[0]].start
        # With room for what it was and no more, the conversation is cut where it was cut then.
        ids, pixels = chat.looked(episode.messages[: episode.replies[steps[0]]], begin)
        if pixels is None or pixels.pictures != branch.pictures or tuple(ids) != branch.ids[:begin]:
            return None
        found[place] = pixels
    return found


CHECKED = 512
"""Tokens of a round, about, whose recorded log-probs are compared with the learner's: of whole sequences, drawn anew each round."""

Collect = Callable[[int], Sequence[Episode]]
"""The number of a round → the episodes that it learns from, played with the policy as it is."""


@runtime_checkable
class Resumable(Protocol):
    """A collector that keeps something from round to round."""

    def state(self) -> SourceState: ...

    def restore(self, state: SourceState) -> None: ...


@dataclass(frozen=True)
class EpisodeSettings:
    """Settings; any of them can be set in ``training.options.episodes``."""

    rounds: int = 40
    round_steps: int = 4
    """Optimizer steps that the episodes of a round are shared out over."""
    passes: int = 1
    """How often a round's episodes are gone over."""
    estimator: turn_advantages.Estimator = "gae"
    gamma: float = 0.99
    """Discount from a turn to the next."""
    lam: float = 0.95
    ridge: float = 0.05
    """Of the values, in units of the number of turns that they are fitted to."""
    memory: int = 4096
    """Newest turns that the values are fitted to."""
    calm: float = 0.97
    """Advantages of ``gae`` and ``returns`` are in units of the largest standard deviation that a round of them had, which is forgotten
    at this rate a round. In units of their own round's, a policy that nearly always wins would learn noise at full strength."""
    decay: bool = False
    """The learning rate falls to zero over the run, on a straight line: the policy in the end swings less from round to round, and has learned less."""
    kl_start: float = 100.0
    """The KL to the base weighs this many times as much in the first step, and falls to its own weight on a straight line over the run. Without it
    a policy keeps to the first thing that pays before it has tried the others often enough to know them (Blackjack: it only ever stands)."""
    explore: int = 0
    """Episodes with replies at random that a first policy is fitted to, where replies are held to actions and random episodes are
    short (``sources/warm_starts.py``)."""
    max_gap: float = 0.3
    """Nats a token, on average, by which what was recorded may differ from what the same weights say now."""

    @classmethod
    def of(cls, recipe: Recipe) -> EpisodeSettings:
        settings = recipe.part("episodes")
        given = {f.name: settings[f.name] for f in dataclasses.fields(cls) if f.name in settings}
        return cls(**given)

    @property
    def steps_a_round(self) -> int:
        return self.round_steps * self.passes


@dataclass(frozen=True)
class BranchPart:
    """One branch as prompt and response, and which of its steps are in it."""

    episode: int
    encoded: Encoded
    mask: Tensor
    """[response tokens] bool: what the policy wrote."""
    old: Tensor
    """[response tokens] as recorded."""
    steps: tuple[int, ...]
    """Places of its steps among all of the round's."""
    spans: tuple[tuple[int, int], ...]
    """Where each of them is in the response."""


def sequences(
    episodes: Sequence[Episode], seen: Mapping[tuple[int, int], Pixels] = {}, *, held: bool = False
) -> list[BranchPart]:
    """One packed sequence a branch: from its first token to the last that the policy wrote in it.

    Args:
        seen: by the places of an episode and a branch.
        held: whether replies are held to choices, so that it matters where each begins.
    """
    made: list[BranchPart] = []
    first = 0
    for number, episode in enumerate(episodes):
        for place, branch in enumerate(episode.branches):
            of = [(first + i, s) for i, s in enumerate(episode.steps) if s.branch == place]
            if not of:
                continue
            begin, end = of[0][1].start, of[-1][1].end
            made.append(
                BranchPart(
                    number,
                    Encoded(
                        branch.ids[:begin],
                        branch.ids[begin:end],
                        pixels=seen.get((number, place)),
                        starts=tuple(s.start - begin for _, s in of) if held else (),
                    ),
                    torch.tensor(branch.mask[begin:end], dtype=torch.bool),
                    torch.tensor(branch.logprobs[begin:end], dtype=torch.float32),
                    tuple(i for i, _ in of),
                    tuple((s.start - begin, s.end - begin) for _, s in of),
                )
            )
        first += len(episode.steps)
    return made


def states_before(scorer: Scorer, parts: Sequence[BranchPart]) -> Tensor:
    """[steps, H] what the policy makes of all that came before each step. Sequences are read up to their last step, those that are alike until then once."""
    alike: dict[tuple[Encoded, tuple[int, ...]], list[BranchPart]] = {}
    for one in parts:
        starts = tuple(a for a, _ in one.spans)
        # The last token is predicted and not read: what it is does not matter.
        until = dataclasses.replace(one.encoded, response=(*one.encoded.response[: starts[-1]], 0))
        alike.setdefault((until, starts), []).append(one)
    places = list(alike)
    found: dict[int, Tensor] = {}
    for piece in scorer.pieces([until for until, _ in places]):
        some = [places[i][0] for i in piece]
        states = scorer.states(some).split([len(one.response) for one in some])
        for i, state in zip(piece, states, strict=True):
            before = state[torch.tensor(places[i][1], device=state.device)].float().cpu()
            for one in alike[places[i]]:
                found |= zip(one.steps, before, strict=True)
    return torch.stack([found[step] for step in sorted(found)])


class Episodes:
    """A source of examples. All it draws follows from the seed and the number of the round; its state is the round that is being learned from,
    and what the values were fitted to."""

    fresh = True
    critic = None

    def __init__(self, policy: Policy, collect: Collect, settings: EpisodeSettings, seed: int) -> None:
        self.policy, self.collect, self.settings, self.seed = policy, collect, settings, seed
        self.steps = settings.rounds * settings.steps_a_round
        self.round: list[TrainingExample] = []
        self.groups: list[int] = []
        """Of each of these, the group that its episode is of."""
        self.figures: dict[str, float] = {}
        """Of the round: what the curves show beside the loss."""
        self.seen: tuple[Tensor, Tensor] | None = None
        """[turns, H] states before turns of earlier rounds, and [turns] what came of them."""
        self.spread = 0.0
        """Of advantages: their unit."""
        self.best: BestWeights | None = None
        """Set where the weights of the best rounds are wanted."""

    # ---------------------------------------------------------------------------------------------- the source

    def examples(self, step: int) -> list[TrainingExample]:
        number, place = divmod(step, self.settings.steps_a_round)
        if place == 0 or not self.round:
            self.round = self._begin(number)
        turn, place = divmod(place, self.settings.round_steps)
        generator = torch.Generator().manual_seed((self.seed * 1_000_003 + number) * 31 + turn)
        order = torch.randperm(len(self.round), generator=generator).tolist()
        # Tries at one task are in one step, where what they share is computed once, and where they are held against each other. Tasks that only
        # begin alike are not: a step would have a few kinds of situation, and push all others along with them.
        alike: dict[int, list[int]] = {}
        for i in order:
            alike.setdefault(self.groups[i], []).append(i)
        order = [i for some in alike.values() for i in some]
        parts = torch.tensor(order).tensor_split(self.settings.round_steps)
        return self._held([self.round[int(i)] for i in parts[place]] or self.round[:1], step)

    def _held(self, some: list[TrainingExample], step: int) -> list[TrainingExample]:
        """With the weight that the KL has at this step."""
        weight = 1.0 + (self.settings.kl_start - 1.0) * max(0.0, 1.0 - step / self.steps)
        if weight == 1.0:
            return some
        return [dataclasses.replace(one, kl_weight=torch.full_like(one.old, weight)) for one in some]

    @torch.no_grad()
    def _begin(self, number: int) -> list[TrainingExample]:
        episodes, seen = look_again(self.policy.chat, self.collect(number))
        parts = sequences(episodes, seen, held=self.policy.choices is not None)
        if not parts:
            raise TrainingError(f"Round {number + 1} has no episode that can be learned from.")
        steps = [step for episode in episodes for step in episode.steps]
        gap, entropy = self._check(parts, [step.update == number for step in steps], number)
        advantages = self._advantages(episodes, parts)
        ref = self._reference([one.encoded for one in parts])
        if self.best is not None:
            self.best.see([episode.total for episode in episodes])
        self.groups = [episodes[one.episode].group for one in parts]
        self.figures = _figures(episodes, number) | {
            "entropy": entropy,
            **({"gap": gap} if gap is not None else {}),
        }
        return [
            TrainingExample(
                encoded=one.encoded,
                advantage=float(advantages[list(one.steps)].mean()),
                old=one.old,
                ref=r,
                reward=episodes[one.episode].total,
                mask=one.mask,
                token_advantages=_spread(one, advantages),
            )
            for one, r in zip(parts, ref, strict=True)
        ]

    def _reference(self, encoded: Sequence[Encoded]) -> list[Tensor]:
        """Log-probs that the KL is measured against: the base's, or those of a policy without preference among the replies that it is held to."""
        if self.policy.choices is not None:
            return self.policy.choices.uniform(encoded)
        with self.policy.base():
            return self.policy.scorer(encoded).split() if encoded else []

    def _check(
        self, parts: Sequence[BranchPart], fresh: Sequence[bool], number: int
    ) -> tuple[float | None, float]:
        """The gap and the mean entropy in some of the sequences, those with steps of these very weights first. Raises ``TrainingError``."""
        some = [one for one in parts if any(fresh[step] for step in one.steps)] or parts
        tokens = sum(int(one.mask.sum()) for one in some)
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + number)
        order = torch.randperm(len(some), generator=generator).tolist()
        chosen = [some[i] for i in order[: -(-len(some) * CHECKED // max(1, tokens))]]
        scored = self.policy.scorer([one.encoded for one in chosen], entropy=True)
        assert scored.entropy is not None
        wrote = torch.cat([one.mask for one in chosen])
        now = [value.cpu() for value in scored.split()]
        return self._gap(chosen, now, fresh), float(scored.entropy.cpu()[wrote].mean())

    def _gap(self, parts: Sequence[BranchPart], now: Sequence[Tensor], fresh: Sequence[bool]) -> float | None:
        """Mean |recorded − learner| over tokens that these very weights wrote; None where there are none. Raises ``TrainingError``."""
        apart = [
            (value[a:b] - one.old[a:b]).abs()
            for one, value in zip(parts, now, strict=True)
            for step, (a, b) in zip(one.steps, one.spans, strict=True)
            if fresh[step]
        ]
        if not apart:
            return None
        gap = float(torch.cat(apart).mean())
        if not gap <= self.settings.max_gap:
            raise TrainingError(
                f"The sampled policy is not the trained one: log-probs recorded during play differ from the learner's by {gap:.2f} nats a token "
                f"on average (limit {self.settings.max_gap:.2f}). The wrong adapter, chat template or temperature answers, or its "
                "tokens were changed on the way. Nothing was learned from this round."
            )
        return gap

    def _advantages(self, episodes: Sequence[Episode], parts: Sequence[BranchPart]) -> Tensor:
        """[steps] by the settings' estimator. Values are fitted to earlier rounds alone: this one's rewards are no part of what was expected of it."""
        chosen = self.settings
        rewards, episode, group = flat(episodes)
        values = None
        if chosen.estimator == "gae":
            states = states_before(self.policy.scorer, parts)
            if self.seen is not None:
                head = ValueHead(states.shape[1])
                head.fit(*self.seen, ridge=chosen.ridge)
                values = head(states)
                if float(self.seen[1].std(unbiased=False)) < 1e-6:
                    values = None
            came = turn_advantages.discounted(rewards, episode, chosen.gamma)
            before = (states, came) if self.seen is None else (
                torch.cat([self.seen[0], states]), torch.cat([self.seen[1], came])
            )  # fmt: skip
            self.seen = (before[0][-chosen.memory :], before[1][-chosen.memory :])
        own_unit = chosen.estimator in ("group", "step_wise")
        settings = AdvantageSettings(chosen.estimator, chosen.gamma, chosen.lam, scale=own_unit)
        found = turn_advantages.advantages(rewards, episode, group, settings, values)
        if own_unit:
            return found
        self.spread = max(float(found.std(unbiased=False)), chosen.calm * self.spread)
        return found / (self.spread + 1e-6) if self.spread > 1e-6 else found

    # ----------------------------------------------------------------------------------------------- the state

    def state(self) -> SourceState:
        """The round under way. What the base says of it is asked again."""
        kept: object = self.collect
        return {
            "figures": dict(self.figures),
            "collected": kept.state() if isinstance(kept, Resumable) else {},
            "seen": None if self.seen is None else list(self.seen),
            "spread": self.spread,
            "best": {} if self.best is None else self.best.state(),
            "groups": list(self.groups),
            "round": [
                [list(e.encoded.prompt), list(e.encoded.response), e.advantage, e.reward, e.old, e.mask, e.token_advantages,
                 e.encoded.pixels.plain() if e.encoded.pixels else [], list(e.encoded.starts)]
                for e in self.round
            ],
        }  # fmt: skip

    @torch.no_grad()
    def restore(self, state: SourceState) -> None:
        self.figures = dict(state["figures"])
        kept: object = self.collect
        if isinstance(kept, Resumable):
            kept.restore(state["collected"])
        self.spread = float(state.get("spread", 0.0))
        if self.best is not None and state.get("best"):
            self.best.restore(state["best"])
        self.seen = None if state["seen"] is None else (state["seen"][0], state["seen"][1])
        self.groups = list(state.get("groups", range(len(state["round"]))))
        encoded = [
            Encoded(
                tuple(row[0]),
                tuple(row[1]),
                pixels=Pixels.of(row[7] if len(row) > 7 else ()),
                starts=tuple(row[8]) if len(row) > 8 else (),
            )
            for row in state["round"]
        ]
        ref = self._reference(encoded)
        self.round = [
            TrainingExample(one, float(gain), old, r, float(reward), mask=mask, token_advantages=token)
            for one, r, (_, _, gain, reward, old, mask, token, *_) in zip(
                encoded, ref, state["round"], strict=True
            )
        ]


def flat(episodes: Sequence[Episode]) -> tuple[Tensor, Tensor, Tensor]:
    """[T] rewards with penalties, and [T] int64 of the episode and the group of each step."""
    rewards = [(s.reward or 0.0) + s.penalty for e in episodes for s in e.steps]
    episode = [number for number, e in enumerate(episodes) for _ in e.steps]
    group = [e.group for e in episodes for _ in e.steps]
    return (
        torch.tensor(rewards, dtype=torch.float32),
        torch.tensor(episode, dtype=torch.int64),
        torch.tensor(group, dtype=torch.int64),
    )


def _spread(part: BranchPart, advantages: Tensor) -> Tensor:
    """[response tokens]: each step's advantage on all that was written in it."""
    tokens = torch.zeros(len(part.encoded.response))
    for step, (a, b) in zip(part.steps, part.spans, strict=True):
        tokens[a:b] = advantages[step]
    return tokens


def _figures(episodes: Sequence[Episode], number: int) -> dict[str, float]:
    steps = [s for e in episodes for s in e.steps]
    return {
        "return": sum(e.total for e in episodes) / len(episodes),
        "success": sum(e.total > 0 for e in episodes) / len(episodes),
        "turns": len(steps) / len(episodes),
        "unparsable": sum(s.unparsable for s in steps) / max(1, len(steps)),
        "stale": float(max(number - s.update for s in steps)),
    }

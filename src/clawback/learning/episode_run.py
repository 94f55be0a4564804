"""A whole training run on episodes, alone or beside ratings.

Episodes and ratings in one run: each optimizer step has a share of both.

Ratings take part as they do in a run of their own (``plan.py``): a reward ensemble is fitted on them, and
grades fresh answers of the policy to the person's own prompts. So both halves of a step are the policy's
current answers, one graded by an environment and one by what the person rated, and neither is unlearned for
the other without a loss of reward. The KL term of the fresh answers has the weight that it has in a run on
ratings (``lm_head``), but on the sampled tokens instead of the whole vocabulary, because an environment's
replies have a KL term of their own.

A whole training run on episodes: takes a function that collects episodes, writes a PEFT folder.
"""

from __future__ import annotations

import dataclasses
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clawback import files
from clawback.errors import UsageError
from clawback.learning.episode_examples import Episodes
from clawback.models import ModelInfo, TrainResult
from clawback.trainer.best_weights import BestWeights
from clawback.trainer.examples import TrainingExample
from clawback.trainer.recipe import Recipe, changed, recipe
from clawback.trainer.run import (
    CHECKPOINT,
    TrainingRun,
    attach_weights,
    fingerprint,
    finished,
    policy_state,
    result_of,
    write_adapter,
    write_result,
)

if TYPE_CHECKING:
    from torch import nn

    from clawback.policy import Policy
    from clawback.records import Episode
    from clawback.sources.fresh_answers import RolloutSource
    from clawback.trainer.examples import Source
    from clawback.trainer.training_loop import Fitted, LoopSettings


class EpisodesBeside:
    """A source of examples: a round of episodes and a round of graded answers, distributed over the same steps."""

    fresh = True
    critic: nn.Module | None = None

    def __init__(self, episodes: Episodes, rated: RolloutSource, kl: float) -> None:
        """``kl``: the weight that the algorithm gives to the KL of all tokens."""
        self.episodes, self.rated, self.kl = episodes, rated, kl
        self.steps = episodes.steps

    @property
    def figures(self) -> dict[str, float]:
        graded = [one.reward for one in self.rated.round]
        return {**self.episodes.figures, "rated": sum(graded) / max(1, len(graded))}

    def examples(self, step: int) -> list[TrainingExample]:
        played = self.episodes.examples(step)
        return [*played, *map(self._as_episode, self.rated.examples(step))]

    def _as_episode(self, example: TrainingExample) -> TrainingExample:
        """A graded answer in the form of an episode's reply: an advantage for each token, and a KL that is estimated on the tokens."""
        import torch

        share = self.rated.settings.exact_kl / max(self.kl, 1e-9)
        weight = example.kl_weight if example.kl_weight is not None else torch.ones_like(example.old)
        return dataclasses.replace(
            example,
            base=None,
            kl_weight=weight * share,
            token_advantages=torch.full_like(example.old, example.advantage),
        )

    def state(self) -> dict[str, Any]:
        return {"episodes": self.episodes.state(), "rated": self.rated.state()}

    def restore(self, state: dict[str, Any]) -> None:
        self.episodes.restore(state["episodes"])
        self.rated.restore(state["rated"])


Form = Callable[[int], "tuple[Sequence[Episode], int]"]
"""How many episodes → so many whose replies name actions at random, and how many such replies there are."""
FORM_EPISODES = 64
"""That show the form."""
FORM = "form"
"""The phase in which the form of actions is learned, its folder in a run's, and its name in the version's record."""
FIRST_POLICY = (
    "{count} episodes with replies at random: a first policy was fitted to them in {steps:.0f} steps."
)
EXPLORED = "explored_steps"
"""Of its figures: steps towards what random episodes say."""
REFINED = 0.3
"""Learning rate after these steps, in units of the usual: rounds of a few hundred episodes know less than the random ones did."""
FORM_MISSED = 1.0
"""Nats a reply above the loss of the form alone, from which on the form counts as not learned."""
FORM_NOT_LEARNED = (
    "{base} does not learn to write these replies ({loss:.1f} nats a reply are left), so their rewards teach it little: their words are hardly "
    "among those that it writes. Take a larger base (`clawback model list`), or other words for the actions."
)
ALGORITHMS = ("grpo", "ppo", "reinforce")
"""Those whose loss takes an advantage for each token, or one for each answer that is the same for all of its tokens."""
RATE = 3.0
"""Learning rate, in units of the recipe's: there are fresh episodes every few steps, and a world's reward has no noise of taste in it."""
KL = 0.002
HELD_KL_START = 10.0
"""Weight of the KL in the first step, in units of its own, where replies are held to actions: its reference is the uniform distribution, which
is no policy that is worth keeping to."""
WARM_UP = 20
"""Optimizer steps; a fifth of a run's where it has fewer than 100."""
ACTIVATIONS = 256 << 20
"""Bytes that those of one piece may take on a CPU, where the model is so small that pieces of ``CPU_MICRO_TOKENS`` take less."""
MOST_AT_ONCE = 4096
MAX_DRIFT = 6.0
"""Nats a token. An action that was one of several and is now the only one has moved far, and should have."""


def episode_recipe(
    info: ModelInfo, preset: str = "balanced", overrides: Mapping[str, object] | None = None, **extra: object
) -> Recipe:
    """The recipe of a run on episodes. ``extra``: of ``EpisodeSettings``."""
    made = recipe(info, preset, "grpo")
    strength = made.kl / recipe(info, "balanced", "grpo").kl
    made = dataclasses.replace(
        made, learning_rate=made.learning_rate * RATE, kl=KL * strength, max_drift=MAX_DRIFT
    )
    return dataclasses.replace(changed(made, overrides or {}), extra=extra)


def train_episodes(
    run: TrainingRun,
    collect: Callable[[int], Sequence[Episode]],
    *,
    about: Mapping[str, object],
    form: Form | None = None,
) -> TrainResult:
    """Train an adapter on episodes that ``collect`` brings round by round.

    Args:
        run: its ``recipe`` is from ``episode_recipe``; its ``samples``, where it has any, are ratings to be learned from in the same steps
            (``EpisodesBeside``), with fresh answers to its ``prompts``. It needs ``out``: a run that was interrupted goes on from it.
        collect: the number of a round → its episodes, played with the policy as it is at the call.
        about: what is played, by name: part of the run's identity, and of the version's provenance.
        form: plays episodes whose replies name actions at random: their form is learned first.

    Raises:
        TrainingError: nothing was played, what answers is not what learns (``sources/episode_examples.py``), or the ratings are all the same.
    """
    from clawback.rl import algorithms
    from clawback.trainer.torch_learner import TorchLearner
    from clawback.trainer.training_loop import fit

    policy, recipe, out, started = run.policy, run.recipe, run.out, time.perf_counter()
    assert out is not None
    if recipe.algorithm not in ALGORITHMS:
        raise UsageError(
            f"{recipe.algorithm} does not learn from episodes. Choose one of: {', '.join(ALGORITHMS)}."
        )
    if not policy.has_adapter:
        attach_weights(policy, recipe, run.seed)
    identity = _identity(run, about)
    out.mkdir(parents=True, exist_ok=True)
    done = finished(out, identity)
    if done is not None:
        policy.put(Path(done.path))
        return done
    continued = policy.moved
    learned = _learn_form(run, form, out / FORM) if form else {}
    _prepare(policy, recipe)
    episodes = _episodes(run, collect, continued, learned)
    source: Source = _with_ratings(run, episodes) if run.samples else episodes
    run.tell({"phase": "plan", "algorithm": recipe.algorithm, "note": str(about.get("environment", ""))})
    settings = _loop_settings(run, source.steps, learned, identity)
    algorithm = algorithms.make(recipe.algorithm, recipe.settings())
    fitted = fit(TorchLearner(policy, settings, source.critic), source, algorithm, settings, [run.tell])
    if not fitted.stopped and episodes.best is not None and (notice := episodes.best.restore_best()):
        run.tell({"phase": "alert", "text": notice, "step": fitted.steps})
    result = _result(run, fitted, started, {**about, **({FORM: learned} if learned else {})})
    run.tell({"phase": "save"})
    write_adapter(policy.save, out)
    write_result(out, result, identity)
    return result


def _result(run: TrainingRun, fitted: Fitted, started: float, episodes: dict[str, Any]) -> TrainResult:
    assert run.out is not None
    return result_of(
        run.policy.info,
        fitted,
        run.out,
        started,
        algorithm=run.recipe.algorithm,
        note=f"on episodes of {episodes.get('environment', 'an environment')}",
        seed=run.seed,
        turn_ids=tuple(sample.turn_id for sample in run.samples),
        baseline=0.0,
        metrics={},
        episodes=episodes,
    )


def _prepare(policy: Policy, recipe: Recipe) -> None:
    """Memory for the steps; a tiny model on a CPU takes larger pieces."""
    from clawback.learning.run_budget import prepare
    from clawback.policy.memory import keep_freed

    prepare(policy, recipe)
    if policy.device.type == "cpu":
        keep_freed(ACTIVATIONS)
    if policy.device.type == "cpu" and not recipe.micro_tokens:
        policy.scorer.micro_tokens = at_once(policy.info)


def _episodes(
    run: TrainingRun,
    collect: Callable[[int], Sequence[Episode]],
    continued: bool,
    learned: Mapping[str, float],
) -> Episodes:
    """The episodes as examples. ``continued``: the adapter had learned before the run; ``learned``: figures of the form's learning."""
    from clawback.learning.episode_examples import Episodes, EpisodeSettings

    settings = EpisodeSettings.of(run.recipe)
    held = run.policy.choices is not None
    if held and "kl_start" not in run.recipe.part("episodes"):
        settings = dataclasses.replace(settings, kl_start=HELD_KL_START)
    if continued or (learned and not held) or learned.get(EXPLORED):
        # The strong KL of the first rounds would undo what the adapter has learned before.
        settings = dataclasses.replace(settings, kl_start=1.0)
    episodes = Episodes(run.policy, collect, settings, run.seed)
    if not run.samples:
        episodes.best = BestWeights(run.policy)
    return episodes


def _loop_settings(run: TrainingRun, steps: int, learned: Mapping[str, float], identity: str) -> LoopSettings:
    from clawback.learning.episode_examples import EpisodeSettings
    from clawback.trainer.training_loop import LoopSettings

    assert run.out is not None
    recipe = run.recipe
    # The form alone may be far from the base.
    free = bool(learned) or run.policy.choices is not None
    return LoopSettings(
        learning_rate=recipe.learning_rate * (REFINED if learned.get(EXPLORED) else 1.0),
        grad_clip=recipe.grad_clip,
        weight_decay=recipe.weight_decay,
        max_drift=math.inf if free else recipe.max_drift,
        decay=EpisodeSettings.of(recipe).decay,
        warm_up=min(WARM_UP, steps // 5),
        seed=run.seed,
        checkpoint=run.out / CHECKPOINT,
        fingerprint=identity,
    )


def _learn_form(run: TrainingRun, form: Form, folder: Path) -> dict[str, float]:
    """The policy with the form of actions learned, and what random episodes say of them; a run that is resumed takes it from ``folder``. Figures
    of the learning."""
    from clawback.learning.episode_examples import EpisodeSettings
    from clawback.learning.warm_starts import imitate, improve, is_short

    policy, recipe, seed, tell = run.policy, run.recipe, run.seed, run.tell
    figures = folder / "figures.json"
    if figures.is_file():
        policy.put(folder)
        known: dict[str, float] = json.loads(figures.read_text())
        return known
    tell({"phase": FORM})
    episodes, replies = form(FORM_EPISODES)
    learned = imitate(policy, episodes, replies, learning_rate=recipe.learning_rate, seed=seed)
    if learned["loss"] > math.log(replies) + FORM_MISSED:
        tell({"phase": "alert", "text": FORM_NOT_LEARNED.format(base=policy.info.base, loss=learned["loss"])})
    playing = EpisodeSettings.of(recipe)
    if policy.choices is not None and is_short(episodes) and playing.explore:
        episodes, _ = form(playing.explore)
        found = improve(policy, episodes, gamma=playing.gamma, learning_rate=recipe.learning_rate, seed=seed)
        learned |= {EXPLORED: found["steps"], "explained": found["explained"]}
        tell({"phase": "alert", "text": FIRST_POLICY.format(count=len(episodes), steps=found["steps"])})
    folder.mkdir(parents=True, exist_ok=True)
    policy.save(folder)
    files.replace(figures, json.dumps(learned).encode())
    return learned


def at_once(info: ModelInfo) -> int:
    """Tokens that go through a model at once on a CPU. A tiny one is all overhead in pieces of a few hundred: as many as keep its activations small."""
    from clawback.policy.memory import CPU_MICRO_TOKENS, need

    some, none = (
        need(info, bits=32, rank=1, micro_tokens=n, checkpointing=False, on_cpu=True) for n in (1024, 0)
    )
    return min(MOST_AT_ONCE, max(CPU_MICRO_TOKENS, ACTIVATIONS * 1024 // (some - none)))


def _with_ratings(run: TrainingRun, episodes: Episodes) -> Source:
    """The same steps with graded fresh answers beside the episodes. Raises ``TrainingError`` where the ratings cannot grade any."""
    from clawback.sources.plan import NAME, plan

    if run.recipe.algorithm != "grpo":
        raise UsageError(f"Ratings beside episodes are for grpo, not for {run.recipe.algorithm}.")
    rated = plan(dataclasses.replace(run, recipe=dataclasses.replace(run.recipe, algorithm=NAME), out=None))
    run.tell({"phase": "plan", "algorithm": NAME, "note": rated.note})
    return EpisodesBeside(episodes, rated.source, run.recipe.kl)  # type: ignore[arg-type]


def _identity(run: TrainingRun, about: Mapping[str, object]) -> str:
    inputs = {"recipe": dataclasses.asdict(run.recipe), "seed": run.seed, "about": dict(about)}
    if run.samples:
        inputs["ratings"] = [dataclasses.asdict(sample) for sample in run.samples]
        inputs["prompts"] = [list(map(dict, prompt)) for prompt in run.prompts]
    return fingerprint(policy_state(run.policy) | {"device": run.policy.device.type} | inputs)


MOST_EPISODES = 2048
"""Random episodes that are worth playing."""
FEWEST_EPISODES = 128
"""Random episodes that values can be fitted to."""


def exploration(episodes: int) -> int:
    """How many random episodes a run of so many is worth: half of them, ``MOST_EPISODES`` at most; 0 where these are too few to fit values to."""
    half = min(MOST_EPISODES, episodes // 2)
    return half if half >= FEWEST_EPISODES else 0

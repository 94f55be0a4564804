"""The learner behind ``clawback.Agent``: a policy, its replies token by token, and updates from whole episodes."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clawback.errors import ModelError, UsageError
from clawback.learning.best_weights import BestWeights
from clawback.learning.episodes import HELD_KL_START, WARM_UP, episode_recipe
from clawback.records import Episode, Message

if TYPE_CHECKING:
    from clawback.environments.token_record import TokenRecord
    from clawback.extensions.llamagym.agent_settings import AgentSettings
    from clawback.learning.recipe import Recipe
    from clawback.policy.policy import Policy

STATE = "agent.pt"
_ENDLESS = 10**9
STEPS = 4
"""Optimizer steps of an update at least, where it has as many mini-batches, as those of ``clawback env train`` have."""


class Learner:
    """One policy that plays and learns."""

    def __init__(self, model: Any, tokenizer: Any, device: Any, settings: AgentSettings, seed: int) -> None:
        from clawback.sampling.conversations import Conversations

        self.policy = policy_of(model, tokenizer, device)
        self.settings, self.seed = settings, seed
        self.policy.sampling = settings.sampling
        self.recipe = self._recipe()
        if not self.policy.has_adapter:
            self.policy.attach(rank=self.recipe.rank, alpha=self.recipe.alpha, seed=seed)
        self.conversations = Conversations(self.policy, sampling=settings.sampling)
        self.batch: Sequence[Episode] = ()
        self.loop = self._loop()

    def _recipe(self) -> Recipe:
        """The settings' own figures above the recipe's."""
        given = self.settings
        made = episode_recipe(self.policy.info)
        chosen: dict[str, Any] = {
            "learning_rate": given.learning_rate,
            "kl": given.kl,
            "grad_clip": given.max_grad_norm,
            "clip_low": None if given.clip is None else 1 - given.clip,
            "clip_high": None if given.clip is None else 1 + given.clip,
        }
        return dataclasses.replace(made, **{k: v for k, v in chosen.items() if v is not None})

    def _loop(self) -> Any:
        from clawback.learning.loop.trainer import Loop, Settings
        from clawback.learning.sources.episodes import Episodes, EpisodeSettings
        from clawback.rl import algorithms
        from clawback.rl.turns import ESTIMATORS

        given, recipe = self.settings, self.recipe
        if given.estimator not in ESTIMATORS:
            raise UsageError(
                f"There is no estimator {given.estimator!r}. Choose one of: {', '.join(ESTIMATORS)}."
            )
        chosen = EpisodeSettings(
            rounds=_ENDLESS,
            round_steps=max(1, math.ceil(given.batch / given.mini_batch)),
            passes=given.passes,
            estimator=given.estimator,
            gamma=given.gamma,
            lam=given.lam,
            kl_start=1.0,  # a loop of one's own has no end that it could fall towards
        )
        source = Episodes(self.policy, lambda _: self.batch, chosen, self.seed)
        settings = Settings(
            learning_rate=recipe.learning_rate,
            grad_clip=recipe.grad_clip,
            max_drift=recipe.max_drift,
            warm_up=WARM_UP,
            seed=self.seed,
            fingerprint="agent",
        )
        return Loop(self.policy, source, algorithms.make("grpo", recipe.settings("grpo")), settings)

    @property
    def update(self) -> int:
        """Batches that were learned from."""
        return int(self.loop.step // self.loop.source.settings.steps_a_round)

    def pace(self, left: float | None) -> None:
        """Set the weight of the KL to the base for the next update. ``left``: the share of a planned run that is to come, with which the
        weight falls; None: the end is not known, and it has its own."""
        weight = 1.0 if left is None else 1.0 + (HELD_KL_START - 1.0) * left
        self.loop.source.settings = dataclasses.replace(self.loop.source.settings, kl_start=weight)

    def _set_steps(self) -> None:
        """Optimizer steps of this update: more than the settings' own where many episodes were played at once."""
        updates, source, given = self.update, self.loop.source, self.settings
        mini_batches = sum(len(e.steps) for e in self.batch) // given.mini_batch
        steps = max(math.ceil(given.batch / given.mini_batch), min(STEPS, mini_batches))
        source.settings = dataclasses.replace(source.settings, round_steps=steps)
        self.loop.step = updates * source.settings.steps_a_round

    def watch_best(self) -> None:
        """Keep the weights that play best from now on."""
        self.loop.source.best = BestWeights(self.policy)

    def restore_best(self) -> str:
        """The weights that played best since ``watch_best``, where the newest are worse: a sentence about it; "" where they are not."""
        best, self.loop.source.best = self.loop.source.best, None
        notice: str = best.restore_best()
        if notice:
            self.loop.remember()
            self.conversations.refresh()
        return notice

    # ------------------------------------------------------------------------------------------------- replies

    def reply(self, record: TokenRecord, seed: int) -> str:
        """The next reply of an episode, as text."""
        [drawn] = self.conversations.draw([record.turn("episode", seed)])
        return str(record.write(drawn, self.update)["content"])

    def answer(self, messages: Sequence[Message], seed: int) -> str:
        """A reply that no episode is made of."""
        [[drawn]] = self.policy.generate([messages], sampling=self.settings.sampling, max_tokens=self.settings.max_tokens, seed=seed % 2**63)  # fmt: skip
        return drawn.text

    def forget(self) -> None:
        """The episode is over."""
        self.conversations.forget("episode")

    # ------------------------------------------------------------------------------------------------ learning

    def learn(self, episodes: Sequence[Episode]) -> dict[str, Any]:
        """One update from whole episodes; figures of it. Where the policy drifted too far its last good weights are taken, and it goes on."""
        self.batch = [e for e in episodes if e.steps and e.status in ("completed", "truncated")]
        if not self.batch:
            return {}
        self._set_steps()
        loop, steps = self.loop, self.loop.source.settings.steps_a_round
        rows, began = [], loop.step
        while loop.step < began + steps and not loop.fitted.stopped:
            rows.append(loop.advance())
        figures = {name: sum(row[name] for row in rows) / len(rows) for name in rows[-1]}
        figures |= {
            "episodes_trained": len(self.batch),
            "turns_trained": sum(len(e.steps) for e in self.batch),
        }
        if loop.fitted.stopped:
            figures["stopped"] = loop.fitted.stopped
            loop.fitted.stopped = ""
            loop.step = began + steps
        loop.source.round, self.batch = [], ()
        self._set_steps()  # between updates, and in what is saved, steps are counted in the settings' own
        loop.fitted.history.clear()
        self.conversations.refresh()
        # As the scripts of others know them.
        figures["objective/kl"] = figures.get("kl_loss", 0.0)
        figures["objective/entropy"] = figures.get("entropy", 0.0)
        figures["ppo/mean_scores"] = figures.get("return", 0.0)
        figures["ppo/loss/total"] = figures.get("loss", 0.0)
        return figures

    def hold_to(self, replies: Sequence[str]) -> bool:
        """Replies are one of these from now on, in drawing and in learning. False where this model cannot be held to them."""
        if not self.policy.hold_to(replies):
            return False
        self.conversations.refresh()
        return True

    def imitate(self, episodes: Sequence[Episode], replies: int) -> dict[str, float]:
        """Learn the form of the replies of these episodes, one of ``replies`` each (``learning/sources/imitation.py``)."""
        from clawback.learning.sources.imitation import imitate

        figures = imitate(
            self.policy, episodes, replies, learning_rate=self.recipe.learning_rate, seed=self.seed
        )
        self.loop.remember()  # the weights that a guard goes back to
        self.loop.settings = dataclasses.replace(self.loop.settings, max_drift=math.inf)
        self.conversations.refresh()
        return figures

    # --------------------------------------------------------------------------------------------- checkpoints

    def save(self, folder: Path, state: dict[str, Any]) -> None:
        from clawback.learning.loop import checkpoint

        folder.mkdir(parents=True, exist_ok=True)
        self.policy.save(folder)
        checkpoint.write(
            folder / STATE, self.loop.state() | {"agent": _plain(state), "fingerprint": self._whose()}
        )

    def load(self, folder: Path) -> dict[str, Any]:
        """What was handed to ``save``. Raises ``ModelError``."""
        from clawback.learning.loop import checkpoint

        state = checkpoint.read(folder / STATE, self._whose())
        if state is None:
            raise ModelError(
                f"{folder} holds no agent of {self.policy.info.base}: nothing there, damaged, or made with another base."
            )
        self.loop.take(state)
        self.conversations.refresh()
        found: dict[str, Any] = state["agent"]
        return found

    def _whose(self) -> str:
        info = self.policy.info
        return f"agent of {info.revision or info.base} {info.total_parameters}"


def _plain(value: Any) -> Any:
    """Lists and dicts in place of tuples and mappings: a checkpoint holds nothing else."""
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    return value


def policy_of(model: Any, tokenizer: Any, device: Any) -> Policy:
    """A policy of whatever a script has: its name, a policy, or a transformers model (PEFT's and TRL's wrappers included)."""
    from clawback import engine

    if isinstance(model, (str, Path)):
        return engine.load(str(model), device=None if device is None else str(device))
    from clawback.policy.policy import Policy

    if isinstance(model, Policy):
        return model
    if tokenizer is None:
        raise UsageError("An agent of a transformers model needs its tokenizer: Agent(model, tokenizer).")
    from clawback import devices
    from clawback.models.loading import describe

    model = getattr(model, "pretrained_model", model)
    if device is not None:
        model.to(devices.choose(str(device)))
    inner = model.get_base_model() if hasattr(model, "get_base_model") else model
    info = describe(inner, str(getattr(inner.config, "_name_or_path", "") or type(inner).__name__), "")
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("lora_" in name)
    model.eval()
    return Policy(model, tokenizer, info)

"""The learner behind ``clawback.Agent``: a policy, its replies token by token, and updates from whole episodes."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clawback.errors import ModelError, UsageError
from clawback.records import Episode, Message

if TYPE_CHECKING:
    from clawback.extensions.llamagym.agent_settings import AgentSettings
    from clawback.learning import EpisodeSettings
    from clawback.policy import Policy
    from clawback.rollouts.token_record import TokenRecord
    from clawback.trainer import Recipe

STATE = "agent.pt"
STEPS = 4
"""Optimizer steps of an update at least, where it has as many mini-batches, as those of ``clawback env train`` have."""


class AgentLearner:
    """One policy that plays and learns."""

    def __init__(
        self, model: object, tokenizer: object, device: object, settings: AgentSettings, seed: int
    ) -> None:
        from clawback.learning import EpisodeTrainer
        from clawback.sampling import Conversations

        self.policy = policy_of(model, tokenizer, device)
        self.settings, self.seed = settings, seed
        self.policy.sampling = settings.sampling
        self.recipe = self._recipe()
        if not self.policy.has_adapter:
            self.policy.attach(rank=self.recipe.rank, alpha=self.recipe.alpha, seed=seed)
        self.conversations = Conversations(self.policy, sampling=settings.sampling)
        self.trainer = EpisodeTrainer(self.policy, self.recipe, self._episode_settings(), seed)

    def _recipe(self) -> Recipe:
        """The settings' own figures above the recipe's."""
        from clawback.engine import episode_recipe

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

    def _episode_settings(self) -> EpisodeSettings:
        from clawback.learning import EpisodeSettings
        from clawback.rl.turn_advantages import ESTIMATORS

        given = self.settings
        if given.estimator not in ESTIMATORS:
            raise UsageError(
                f"There is no estimator {given.estimator!r}. Choose one of: {', '.join(ESTIMATORS)}."
            )
        return EpisodeSettings(
            round_steps=max(1, math.ceil(given.batch / given.mini_batch)),
            passes=given.passes,
            estimator=given.estimator,
            gamma=given.gamma,
            lam=given.lam,
        )

    def _steps(self, batch: Sequence[Episode]) -> int:
        """Optimizer steps of an update: more than the settings' own where many episodes were played at once."""
        given = self.settings
        mini_batches = sum(len(e.steps) for e in batch) // given.mini_batch
        return max(math.ceil(given.batch / given.mini_batch), min(STEPS, mini_batches))

    def restore_best(self) -> str:
        """The weights that played best since ``trainer.watch_best``, where the newest are worse: a sentence about it; "" where they are not."""
        notice = self.trainer.restore_best()
        if notice:
            self.conversations.refresh()
        return notice

    # ------------------------------------------------------------------------------------------------- replies

    def reply(self, record: TokenRecord, seed: int) -> str:
        """The next reply of an episode, as text."""
        [drawn] = self.conversations.draw([record.turn("episode", seed)])
        return str(record.write(drawn, self.trainer.update)["content"])

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
        batch = [e for e in episodes if e.steps and e.status in ("completed", "truncated")]
        if not batch:
            return {}
        figures = self.trainer.learn(batch, self._steps(batch))
        figures |= {"episodes_trained": len(batch), "turns_trained": sum(len(e.steps) for e in batch)}
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
        """Learn the form of the replies of these episodes, one of ``replies`` each."""
        figures = self.trainer.imitate(episodes, replies)
        self.conversations.refresh()
        return figures

    def improve(self, episodes: Sequence[Episode]) -> dict[str, float]:
        """A first policy from episodes with replies at random."""
        figures = self.trainer.improve(episodes)
        self.conversations.refresh()
        return figures

    # --------------------------------------------------------------------------------------------- checkpoints

    def save(self, folder: Path, state: dict[str, Any]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.policy.save(folder)
        self.trainer.save(folder / STATE, self._whose(), _plain(state))

    def load(self, folder: Path) -> dict[str, Any]:
        """What was handed to ``save``. Raises ``ModelError``."""
        state = self.trainer.load(folder / STATE, self._whose())
        if state is None:
            raise ModelError(
                f"{folder} holds no agent of {self.policy.info.base}: nothing there, damaged, or made with another base."
            )
        self.conversations.refresh()
        return state

    def _whose(self) -> str:
        info = self.policy.info
        return f"agent of {info.revision or info.base} {info.total_parameters}"


def _plain(value: object) -> Any:
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
    from clawback.policy import Policy

    if isinstance(model, Policy):
        return model
    if tokenizer is None:
        raise UsageError("An agent of a transformers model needs its tokenizer: Agent(model, tokenizer).")
    from clawback import devices
    from clawback.models import describe

    model = getattr(model, "pretrained_model", model)
    if device is not None:
        model.to(devices.choose(str(device)))
    inner = model.get_base_model() if hasattr(model, "get_base_model") else model
    info = describe(inner, str(getattr(inner.config, "_name_or_path", "") or type(inner).__name__), "")
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("lora_" in name)
    model.eval()
    return Policy(model, tokenizer, info)

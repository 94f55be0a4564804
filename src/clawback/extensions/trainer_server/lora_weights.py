"""The verbs on weights: one base model, and any number of LoRAs that take turns on it.

A model here is its LoRA weights, its gradient and its optimizer, kept aside and copied in when it is its turn (as SkyRL does): nothing of the base is held
twice. Losses are the sums that Tinker's documents define, over all tokens of a request:

    cross_entropy         −Σ w·log p
    importance_sampling   −Σ (p/q)·A
    ppo                   −Σ min(p/q·A, clip(p/q, low, high)·A)         low = 0.8, high = 1.2 unless given
    cispo                 −Σ sg(clip(p/q, low, high))·A·log p
"""

from __future__ import annotations

import copy
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from clawback.errors import UsageError
from clawback.extensions.hosted.trainer_records import (
    AdamParams,
    Datum,
    ForwardScores,
    SampledSequence,
    SamplingParams,
)
from clawback.files import replace_folder
from clawback.models import Sampling
from clawback.policy import Policy
from clawback.sampling import DrawSettings, sample, stop_ids
from clawback.scoring import token_logprobs
from clawback.templates import Encoded
from clawback.trainer import read_checkpoint, write_checkpoint

if TYPE_CHECKING:
    from clawback.records import JsonObject

LOSSES: Mapping[str, frozenset[str]] = {
    "cross_entropy": frozenset({"weights"}),
    "importance_sampling": frozenset({"logprobs", "advantages"}),
    "ppo": frozenset({"logprobs", "advantages"}),
    "cispo": frozenset({"logprobs", "advantages"}),
}
"""Loss → what it reads beside the targets."""
CLIPPED = frozenset({"ppo", "cispo"})
MOST_RANK = 256
STATE = "state.pt"


@dataclass
class Slot:
    """A model while it is not its turn."""

    rank: int
    weights: dict[str, Tensor] = field(default_factory=dict)
    gradient: dict[str, Tensor] = field(default_factory=dict)
    optimizer: JsonObject = field(default_factory=dict)


class StandInLearner:
    """Owns the base model. Not thread-safe: one worker calls it."""

    def __init__(self, policy: Policy, *, alpha: int = 32, seed: int = 0) -> None:
        # Everything over there is at temperature 1.
        policy.sampling = Sampling()
        self.policy, self.alpha, self.seed = policy, alpha, seed
        self.slots: dict[str, Slot] = {}
        self.active = ""
        self.optimizer: torch.optim.Optimizer | None = None

    # ---------------------------------------------------------------------------------------------- models

    def create(self, model: str, rank: int, seed: int | None) -> None:
        if not 0 < rank <= MOST_RANK:
            raise UsageError(f"A rank is 1 to {MOST_RANK}, not {rank}.")
        self._put_aside()
        if self.policy.has_adapter:
            self.policy.put(None)
        self.policy.attach(rank=rank, alpha=self.alpha, seed=self.seed if seed is None else seed)
        self.slots[model], self.active, self.optimizer = Slot(rank), model, None

    def unload(self, model: str) -> None:
        self.slots.pop(model, None)
        if self.active == model:
            self.policy.put(None)
            self.active, self.optimizer = "", None

    def turn(self, model: str) -> None:
        """Make a model the one whose weights are on the base. Raises ``KeyError``."""
        slot = self.slots[model]
        if self.active == model:
            return
        self._put_aside()
        if self.policy.has_adapter:
            self.policy.put(None)
        self.policy.attach(rank=slot.rank, alpha=self.alpha, seed=0)
        with torch.no_grad():
            for name, weight in self._trained():
                weight.copy_(slot.weights[name])
                if name in slot.gradient:
                    weight.grad = slot.gradient[name]
        self.active, self.optimizer = model, None
        if slot.optimizer:
            self._adam().load_state_dict(slot.optimizer)

    def _put_aside(self) -> None:
        slot = self.slots.get(self.active)
        if slot is None:
            return
        slot.weights = {name: w.detach().clone() for name, w in self._trained()}
        slot.gradient = {name: w.grad for name, w in self._trained() if w.grad is not None}
        slot.optimizer = {} if self.optimizer is None else copy.deepcopy(self.optimizer.state_dict())

    def _trained(self) -> list[tuple[str, nn.Parameter]]:
        return sorted((n, p) for n, p in self.policy.model.named_parameters() if p.requires_grad)

    def _adam(self) -> torch.optim.Optimizer:
        if self.optimizer is None:
            self.optimizer = torch.optim.AdamW([w for _, w in self._trained()], lr=0.0, fused=True)
        return self.optimizer

    # ---------------------------------------------------------------------------------------------- verbs

    def forward(self, model: str, data: Sequence[Datum]) -> ForwardScores:
        self.turn(model)
        with torch.no_grad():
            return self._passed(data, "cross_entropy", {}, backward=False)

    def forward_backward(
        self, model: str, data: Sequence[Datum], loss: str, config: Mapping[str, float]
    ) -> ForwardScores:
        self.turn(model)
        return self._passed(data, loss, config, backward=True)

    def _passed(
        self, data: Sequence[Datum], loss: str, config: Mapping[str, float], backward: bool
    ) -> ForwardScores:
        scorer = self.policy.scorer
        if not scorer.fused_head:
            raise UsageError("This model's head cannot be scored by the stand-in.")
        whole = [(*one.tokens, int(one.inputs["target_tokens"][-1])) for one in data]
        encoded = [Encoded(ids[:1], ids[1:]) for ids in whole]
        found: list[Tensor] = [torch.empty(0)] * len(data)
        total = 0.0
        with scorer.engaged():
            for piece in scorer.pieces(encoded):
                states = scorer.states([encoded[i] for i in piece])
                begins = [_begin(data[i], loss) for i in piece]
                # Rows whose weight is 0 get no gradient, so their log-probs need none: the head is asked for them apart.
                counted = torch.cat(
                    [torch.arange(len(data[i].tokens)) >= b for i, b in zip(piece, begins, strict=True)]
                ).to(states.device)
                targets = torch.tensor(
                    [int(t) for i in piece for t in data[i].inputs["target_tokens"]], device=states.device
                )
                values = states.new_zeros(len(targets), dtype=torch.float32)
                chosen, _ = token_logprobs(scorer.head, states[counted], targets[counted])
                if not bool(counted.all()):
                    with torch.no_grad():
                        rest, _ = token_logprobs(scorer.head, states[~counted].detach(), targets[~counted])
                        values[~counted] = rest
                values[counted] = chosen.detach()
                inputs = {
                    name: torch.tensor(
                        [float(v) for i in piece for v in data[i].inputs[name]], device=states.device
                    )[counted]
                    for name in LOSSES[loss]
                    if all(name in data[i].inputs for i in piece)
                }
                sum_ = _loss(loss, chosen, inputs, config)
                total += float(sum_.detach())
                if backward and sum_.requires_grad:
                    sum_.backward()
                parts = values.cpu().split([len(data[i].tokens) for i in piece])
                for i, part in zip(piece, parts, strict=True):
                    found[i] = part
        return ForwardScores(tuple(tuple(one.tolist()) for one in found), {"loss:sum": total})

    def optim_step(self, model: str, params: AdamParams) -> dict[str, float]:
        self.turn(model)
        weights = [w for _, w in self._trained()]
        norm = float(
            nn.utils.clip_grad_norm_(
                weights, params.grad_clip_norm if params.grad_clip_norm > 0 else torch.inf
            )
        )
        optimizer = self._adam()
        for group in optimizer.param_groups:
            group.update(
                lr=params.learning_rate,
                betas=(params.beta1, params.beta2),
                eps=params.eps,
                weight_decay=params.weight_decay,
            )
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return {"grad_norm": norm}

    def save(self, model: str, folder: Path) -> None:
        """Adapter, and with it all that training goes on from."""
        self.turn(model)
        beside = folder.with_name(f".{folder.name}.new")
        shutil.rmtree(beside, ignore_errors=True)
        beside.mkdir(mode=0o700, parents=True)
        self.policy.save(beside)
        self._put_aside()
        slot = self.slots[model]
        state = {"rank": slot.rank, "weights": slot.weights, "optimizer": slot.optimizer}
        write_checkpoint(beside / STATE, {"fingerprint": STATE, **state})
        replace_folder(beside, folder)

    def load(self, model: str, folder: Path, optimizer: bool) -> None:
        """Raises ``UsageError`` for weights of another shape."""
        state = read_checkpoint(folder / STATE, STATE)
        if state is None:
            raise UsageError("That checkpoint cannot be read.")
        self.turn(model)
        with torch.no_grad():
            for name, weight in self._trained():
                if name not in state["weights"] or state["weights"][name].shape != weight.shape:
                    raise UsageError("That checkpoint is of a LoRA of another shape.")
                weight.copy_(state["weights"][name])
                weight.grad = None
        self.optimizer = None
        if optimizer and state["optimizer"]:
            self._adam().load_state_dict(state["optimizer"])

    def sample(
        self, adapter: Path | None, prompt: Sequence[int], count: int, params: SamplingParams
    ) -> tuple[SampledSequence, ...]:
        """From a saved adapter, or from the base."""
        self._put_aside()
        self.policy.put(adapter)
        self.active, self.optimizer = "", None
        stop = (
            params.stop if params.stop is not None else stop_ids(self.policy.model, self.policy.chat.end_id)
        )
        made = sample(
            self.policy.model,
            [list(prompt)],
            DrawSettings(
                samples=count,
                max_tokens=params.max_tokens,
                sampling=Sampling(params.temperature, params.top_p, max(0, params.top_k)),
                stop=stop,
                seed=self.seed if params.seed is None else params.seed,
            ),
        )[0]
        return tuple(SampledSequence(o.ids, o.logprobs, "stop" if o.finished else "length") for o in made)

    def prompt_logprobs(self, adapter: Path | None, prompt: Sequence[int]) -> list[float | None]:
        """Of each token of a prompt but the first."""
        self._put_aside()
        self.policy.put(adapter)
        self.active, self.optimizer = "", None
        if len(prompt) < 2:
            return [None] * len(prompt)
        ids = tuple(prompt)
        with torch.no_grad():
            return [None, *self.policy.scorer([Encoded(ids[:1], ids[1:])]).logprobs.tolist()]


def _begin(datum: Datum, loss: str) -> int:
    """The first position that the loss counts."""
    name = "weights" if loss == "cross_entropy" else "advantages"
    given = datum.inputs.get(name)
    if given is None:
        return 0
    return next((i for i, value in enumerate(given) if value), len(datum.tokens) - 1)


def _loss(name: str, now: Tensor, inputs: Mapping[str, Tensor], config: Mapping[str, float]) -> Tensor:
    if name == "cross_entropy":
        return -(now * inputs["weights"]).sum() if "weights" in inputs else -now.sum()
    ratio = (now - inputs["logprobs"]).exp()
    gain = inputs["advantages"]
    if name == "importance_sampling":
        return -(ratio * gain).sum()
    low, high = config.get("clip_low_threshold", 0.8), config.get("clip_high_threshold", 1.2)
    held = ratio.clamp(low, high)
    if name == "cispo":
        return -(held.detach() * gain * now).sum()
    return -torch.minimum(ratio * gain, held * gain).sum()

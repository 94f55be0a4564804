"""A federated round on this machine: train B or A on one's own ratings, share the change, combine, adopt the result."""

from __future__ import annotations

import dataclasses
import gc
import secrets
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from clawback import config, feedback, release, store
from clawback.errors import Busy, StoreError, TrainingError, UsageError
from clawback.federated import exchange, privacy
from clawback.federated.aggregate import Array, Update, aggregate, followed, step_for
from clawback.federated.exchange import Terms
from clawback.jobs import checks, inputs
from clawback.paths import Home
from clawback.progress import OnProgress
from clawback.records import Run, Version
from clawback.release.registry import LOCK_SECONDS

if TYPE_CHECKING:
    from clawback.engine.torch.models.policy import Policy
    from clawback.records import Feedback, Sample
    from clawback.store import Store


@dataclass(frozen=True, slots=True)
class Combined:
    """The result of a round. ``epsilon``: spent so far by a participant of all rounds (None without noise); ``refused``: whose update, and why."""

    round: int
    people: tuple[str, ...]
    weights: tuple[float, ...]
    norm: float
    epsilon: float | None
    refused: tuple[str, ...]


def begin(
    home: Home, folder: Path, *, rank: int, seed: int, rule: str, clip: float, noise: float, step: float = 0.0
) -> Terms:
    """Agree on the base of this home's settings, and on the rest."""
    settings = config.load(home.config)
    policy = inputs.policy(settings, settings.model.base)
    base, revision = settings.model.base, policy.info.weights or policy.info.revision
    terms = Terms(base, revision, rank, 2 * rank, seed, rule, clip, noise, step=step)  # type: ignore[arg-type]
    exchange.begin(folder, terms)
    return terms


def contribute(
    home: Home,
    folder: Path,
    name: str,
    *,
    algorithm: str = "",
    seed: int = 0,
    on_progress: OnProgress | None = None,
) -> Path:
    """Learn from this home's ratings, from where the federation is, and put the change of the round's factor into it. No word leaves the home.

    Raises ``UsageError`` where the base is another, ``TrainingError`` without ratings, ``Busy``.
    """
    from filelock import FileLock, Timeout

    from clawback import engine

    terms, settings = exchange.read_terms(folder), config.load(home.config)
    try:
        with FileLock(home.train_lock, timeout=LOCK_SECONDS), store.connect(home.database) as db:
            train, held, _ = _rated(db, settings)
            checks.enough([*train, *held])
            if not train:
                raise TrainingError("All rated turns are held out for the gate: rate a few more answers.")
            policy = _policy(settings, terms, folder)
            number = exchange.rounds(folder) + 1
            trained = exchange.factor(number)
            before = _weights(policy, trained)
            for name_, parameter in policy.model.named_parameters():
                if "lora_" in name_:
                    parameter.requires_grad_(trained in name_)
            chosen = algorithm or (
                "reinforce" if settings.training.algorithm == "auto" else settings.training.algorithm
            )
            checks.algorithm(chosen)
            made = inputs.making(settings) | {"rank": terms.rank, "alpha": terms.alpha, "full": False}
            recipe = engine.recipe(policy.info, settings.training.preset, chosen, made)
            with tempfile.TemporaryDirectory(dir=home.root) as out:
                engine.train(
                    policy,
                    train,
                    recipe,
                    seed=seed,
                    out=Path(out) / "run",
                    on_progress=on_progress,
                    resume=False,
                )
            change = Update({}, {n: after - before[n] for n, after in _weights(policy, trained).items()})
            if terms.clip:
                change = privacy.clipped(change, terms.clip)
    except Timeout:
        raise Busy("A run is training. `clawback status` shows how far it is.") from None
    return exchange.put(
        folder, number, name, change.b, {"ratings": str(len(train)), "base": terms.base_revision}
    )


def combine(folder: Path, *, rule: str | None = None, least: int = 2) -> Combined:
    """Put the updates of the next round together. An update that cannot be used is left out and named.

    Raises ``UsageError`` with fewer than ``least``: the mean of one is that one's.
    """
    terms, number = exchange.read_terms(folder), exchange.rounds(folder) + 1
    people, updates, weights, refused = [], [], [], []
    trained = exchange.factor(number)
    before = so_far(folder)
    like = {n: v.shape for n, v in before.items() if trained in n}
    for name in exchange.names(folder, number):
        path = exchange.place(folder, number) / f"{name}.safetensors"
        try:
            arrays, said = exchange.get(path, like or own_shapes(path))
            if said.get("base") != terms.base_revision:
                raise UsageError(f"{name} has another base")
            if not all(trained in one for one in arrays):
                raise UsageError(f"{name} has trained something else than {trained}")
        except (UsageError, StoreError) as error:
            refused.append(f"{name}: {error}")
            continue
        like = like or {n: v.shape for n, v in arrays.items()}
        update = Update({n: np.zeros((v.shape[1], 1)) for n, v in arrays.items()}, arrays)
        # Clients say how much they know: believed up to a limit, and not at all where a person's share must be bounded.
        ratings = min(float(said["ratings"]) if said.get("ratings", "").isdecimal() else 1.0, terms.most)
        updates.append(privacy.clipped(update, terms.clip) if terms.clip else update)
        weights.append(1.0 if terms.noise else max(ratings, 1.0))
        people.append(name)
    if len(updates) < least:
        raise UsageError(
            f"Round {number} has {len(updates)} usable updates, and {least} are wanted. {' '.join(refused)}".strip()
        )
    made = aggregate(updates, weights, rule or terms.rule)  # type: ignore[arg-type]
    paid = None
    if terms.noise:
        made = privacy.noised(
            made, len(updates), terms.clip, terms.noise, np.random.default_rng(secrets.randbits(128))
        )
        paid = privacy.epsilon(terms.noise, number, 1 / (10 * len(updates)))
    # A person's norm is private where there is noise: what is known of it is the clip.
    usual = terms.clip if terms.noise else float(np.median([privacy.size(u.b) for u in updates]))
    change = followed(made.b, terms.step or step_for(len(updates), rule or terms.rule), usual)
    total = before | {n: v + before.get(n, 0.0) for n, v in change.items()}
    done = Combined(number, tuple(people), tuple(weights), privacy.size(change), paid, tuple(refused))
    exchange.note(folder, number, dataclasses.asdict(done) | {"rule": rule or terms.rule})
    exchange.put(folder, number, exchange.COMBINED, total, {"base": terms.base_revision})
    return done


def adopt(home: Home, folder: Path) -> Version:
    """Enter what the federation has learned as a candidate of this home; `clawback gate` judges it by one's own ratings. Raises ``UsageError``."""
    from clawback import engine
    from clawback.engine.types import TrainResult

    terms, settings, number = exchange.read_terms(folder), config.load(home.config), exchange.rounds(folder)
    if not number:
        raise UsageError(f"No round of {folder} is combined yet: `clawback federated combine`.")
    policy = _policy(settings, terms, folder)
    like = engine.recipe(policy.info, settings.training.preset, "reinforce", {"rank": terms.rank, "alpha": terms.alpha})  # fmt: skip
    recipe = dataclasses.asdict(like) | {"algorithm": "federated", "extra": dataclasses.asdict(terms)}
    with store.connect(home.database) as db, tempfile.TemporaryDirectory(dir=home.root) as out:
        # What this home contributed from is no evidence for the gate; what it held out is.
        train, held, said = _rated(db, settings)
        run = db.add_ended_run(
            Run(
                terms.base,
                terms.base_revision,
                "federated",
                recipe,
                terms.seed,
                db.live().number,
                train_ids=inputs.feedback_of(train, said),
                held_out_ids=inputs.feedback_of(held, said),
            )
        )
        policy.save(Path(out))
        result = TrainResult(
            path=out, algorithm="federated", note=f"{number} rounds of {folder.name}", base=terms.base,
            base_revision=terms.base_revision, seed=terms.seed, steps=number, stopped="", turn_ids=(), baseline=0.0, metrics={}, history=(),
        )  # fmt: skip
        made = release.propose(db, home, run, result)
    del policy
    gc.collect()
    return made


def _rated(db: Store, settings: config.Config) -> tuple[list[Sample], list[Sample], list[Feedback]]:
    """What a contribution learns from, what is kept for the gate, and the feedback that both come from."""
    said = inputs.settled(db, settings)
    samples = feedback.samples(db, [f.id for f in said], raters=settings.training.raters)
    before = db.splits(s.turn_id for s in samples)
    return (*feedback.split(samples, settings.gate.held_out, before=before), said)


def _policy(settings: config.Config, terms: Terms, folder: Path) -> Policy:
    """The base with the agreed A and B = 0, and what the federation has changed of both."""
    import torch

    policy = inputs.policy(settings, terms.base)
    if terms.base_revision not in policy.info.names:
        raise UsageError(
            f"The federation's base is {terms.base} of another revision than yours: its updates would mean something else."
        )
    policy.attach(rank=terms.rank, alpha=terms.alpha, seed=terms.seed)
    named = {n: p for n, p in policy.model.named_parameters() if "lora_" in n}
    for name, change in so_far(folder).items():
        if name not in named or tuple(named[name].shape) != change.shape:
            raise UsageError(f"{folder} was made for another base, or another rank.")
        named[name].data += torch.from_numpy(change).to(named[name])
    return policy


def so_far(folder: Path) -> dict[str, Array]:
    """What the federation has changed of A and B; empty before the first round."""
    number = exchange.rounds(folder)
    path = exchange.place(folder, number) / f"{exchange.COMBINED}.safetensors"
    return exchange.get(path, own_shapes(path))[0] if number else {}


def own_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """The shapes in an update's file, by which it is read where nothing else says what it should hold. Raises ``UsageError``."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise UsageError(f"The update {path} cannot be read: {error}.") from error


def _weights(policy: Policy, factor: str) -> dict[str, Array]:
    named = policy.model.named_parameters()
    return {n: p.detach().cpu().double().numpy().copy() for n, p in named if factor in n}


def cleared(folder: Path, number: int) -> None:
    """Remove the single updates of a combined round: the combining side need not keep them."""
    for name in exchange.names(folder, number):
        (exchange.place(folder, number) / f"{name}.safetensors").unlink()


__all__ = ["Combined", "adopt", "begin", "cleared", "combine", "contribute", "own_shapes", "so_far"]

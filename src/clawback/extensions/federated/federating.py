"""A federated round on this machine: join, train B or A on one's own ratings, sign and share the change, combine, adopt the result."""

from __future__ import annotations

import dataclasses
import gc
import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clawback import config, feedback, release, store
from clawback.errors import Busy, StoreError, TrainingError, UsageError
from clawback.extensions.federated import differential_privacy, exchange, rounds
from clawback.extensions.federated.aggregate import Array, Rule, Update
from clawback.extensions.federated.exchange import Federation, FederationState
from clawback.extensions.federated.federation_terms import (
    Roster,
    Terms,
    read_terms,
    write_roster,
    write_terms,
)
from clawback.extensions.federated.member_keys import Signer, load_signer
from clawback.extensions.federated.rounds import RoundResult
from clawback.files import replace
from clawback.jobs import inputs
from clawback.paths import Home
from clawback.progress import OnProgress
from clawback.records import Run, Version
from clawback.release.version_registry import LOCK_SECONDS

if TYPE_CHECKING:
    from clawback.policy import Policy
    from clawback.records import Feedback, JsonObject, Sample
    from clawback.store import Store

JOINED = "federations.json"
"""Of the home: the federations it takes part in, by the hash of their terms, and the newest list of members that it has seen."""


@dataclass(frozen=True, slots=True)
class Membership:
    """What somebody who joins should see. ``member``: the name that the founder has given to the key; None before that."""

    terms: Terms
    digest: str
    key: str
    member: str | None


def signer(home: Home) -> Signer:
    """The home's own key, made on first use."""
    home.create()
    return load_signer(home.root / "federated.key")


@dataclass(frozen=True, slots=True)
class Aggregation:
    """How the members' changes become one."""

    rule: Rule
    clip: float = 0.0
    """Norm that one person's update may have; 0: any."""
    noise: float = 0.0
    """In clips, for differential privacy."""
    step: float = 0.0
    """How far the combined change is followed; 0: the square root of the number of people."""


def begin(
    home: Home, folder: Path, aggregation: Aggregation, *, rank: int, seed: int, name: str = ""
) -> Terms:
    """Agree on the base of this home's settings, and on the rest. This home founds the federation: its key signs who is a member."""
    founder = signer(home)
    settings = config.load(home.config)
    policy = inputs.policy(settings, settings.model.base)
    policy.attach(rank=rank, alpha=2 * rank, seed=seed)
    terms = Terms(
        settings.model.base,
        policy.info.weights or policy.info.revision,
        rank,
        2 * rank,
        seed,
        **dataclasses.asdict(aggregation),
        shapes=_shapes(policy),
        founder=founder.public,
    )
    write_terms(folder, terms)
    if _joined(home).get(terms.digest) is None:
        roster = Roster(1)
        _set_roster(
            home, folder, terms, roster.with_member(name, founder.public) if name else roster, founder
        )
    return terms


def join(home: Home, folder: Path) -> Membership:
    """Trust the terms as they are in the folder now: with others, this home refuses to take part."""
    terms, own = read_terms(folder), signer(home)
    _note(home, terms.digest, folder, 0)
    member = None
    if (folder / exchange.MEMBERS).exists():
        member = exchange.load_federation(folder).roster.name_of(own.public)
    return Membership(terms, terms.digest, own.public, member)


def invite(home: Home, folder: Path, name: str, public: str) -> Roster:
    """Make that key a member. Raises ``UsageError`` unless this home founded the federation."""
    return _change_roster(home, folder, lambda roster: roster.with_member(name, public))


def remove(home: Home, folder: Path, name: str) -> Roster:
    """Take a member out. Raises ``UsageError`` unless this home founded the federation, ``NotFound``."""
    return _change_roster(home, folder, lambda roster: roster.without_member(name))


def contribute(
    home: Home,
    folder: Path,
    name: str = "",
    *,
    algorithm: str = "",
    seed: int = 0,
    on_progress: OnProgress | None = None,
) -> Path:
    """Learn from this home's ratings, from where the federation is, and put the signed change of the round's factor into it. No word leaves
    the home. ``name``: under which the founder enters, on the founder's first contribution; others have the name that they were given.

    Raises ``UsageError`` where the base is another or the key is no member's, ``TrainingError`` without ratings, ``Busy``.
    """
    federation, own = _member(home, folder, name)
    state = rounds.latest(federation)
    change, ratings = _trained_change(home, federation, state, algorithm, seed, on_progress)
    signed = exchange.sign_update(federation, state, own, change, ratings)
    member = federation.roster.name_of(own.public)
    assert member is not None
    return exchange.write_update(federation, state, member, change, *signed)


def combine(home: Home, folder: Path, *, least: int = 2) -> RoundResult:
    """Put the updates of the next round together, and sign the result. An update that cannot be used is left out and named.

    Raises ``UsageError`` with fewer than ``least``: the mean of one is that one's.
    """
    federation = load(home, folder)
    return rounds.combine(federation, rounds.latest(federation), signer(home), least)


def adopt(home: Home, folder: Path) -> Version:
    """Enter what the federation has learned as a candidate of this home; `clawback versions check` judges it by one's own ratings. Raises ``UsageError``."""
    from clawback import engine
    from clawback.models import TrainResult

    federation, settings = load(home, folder), config.load(home.config)
    terms, state = federation.terms, rounds.latest(federation)
    if not state.round:
        raise UsageError(f"No round of {folder} is combined yet: `clawback lab federated combine`.")
    policy = _policy(settings, federation, state)
    like = engine.recipe(policy.info, settings.training.preset, "reinforce", {"rank": terms.rank, "alpha": terms.alpha})  # fmt: skip
    agreed = {name: value for name, value in dataclasses.asdict(terms).items() if name != "shapes"}
    recipe = dataclasses.asdict(like) | {
        "algorithm": "federated",
        "extra": agreed | {"terms": federation.digest},
    }
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
                kind="federated",
            )
        )
        policy.save(Path(out))
        result = TrainResult(
            path=out, algorithm="federated", note=f"{state.round} rounds of {folder.name}", base=terms.base,
            base_revision=terms.base_revision, seed=terms.seed, steps=state.round, stopped="", turn_ids=(), baseline=0.0, metrics={}, history=(),
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
    return (*feedback.split(samples, settings.gate.held_out, splits=before), said)


def load(home: Home, folder: Path) -> Federation:
    """The federation in that folder, if this home has joined it. Raises ``UsageError`` where the terms are others, or the list of members is an
    older one."""
    terms = read_terms(folder)
    entry = _joined(home).get(terms.digest)
    if entry is None:
        replaced = any(one.get("folder") == str(folder.resolve()) for one in _joined(home).values())
        why = (
            "The terms in it are not those that you joined: somebody has changed them"
            if replaced
            else "You have not joined it"
        )
        raise UsageError(
            f"{folder} is a federation with the terms {terms.digest[:16]}, founded by the key {terms.founder[:16]}…. {why}."
            " If the founder tells you the same, `clawback lab federated join` takes part in it."
        )
    federation = exchange.load_federation(folder)
    if federation.roster.number < entry["roster"]:
        raise UsageError(
            f"The list of members in {folder} is an older one (number {federation.roster.number}, and you have seen {entry['roster']}):"
            " somebody has put it back. Ask the founder to restore it."
        )
    if federation.roster.number > entry["roster"]:
        _note(home, terms.digest, folder, federation.roster.number)
    return federation


def clear(home: Home, folder: Path, number: int) -> None:
    """Remove the single updates of a combined round. Raises ``UsageError`` unless this home founded the federation: who cannot read them
    has only the founder's word for the result."""
    federation = load(home, folder)
    if signer(home).public != federation.terms.founder:
        raise UsageError(
            "Only the founder removes the single updates: the others' check of the result needs them."
        )
    exchange.remove_updates(federation, number)


def _member(home: Home, folder: Path, name: str) -> tuple[Federation, Signer]:
    """The federation with this home among its members. The founder enters by contributing under a name."""
    federation, own = load(home, folder), signer(home)
    listed = federation.roster.name_of(own.public)
    if listed is None and own.public == federation.terms.founder and name:
        invite(home, folder, name, own.public)
        return load(home, folder), own
    if listed is None:
        raise UsageError(
            f"Your key is not among the members of {folder}. Its founder adds it: `clawback lab federated invite {folder} {name or 'NAME'} {own.public}`."
        )
    if name not in ("", listed):
        raise UsageError(f"You are {listed} in {folder}, not {name}: leave --name out.")
    return federation, own


def _trained_change(
    home: Home,
    federation: Federation,
    state: FederationState,
    algorithm: str,
    seed: int,
    on_progress: OnProgress | None,
) -> tuple[dict[str, Array], int]:
    """What this home's ratings change of the round's factor, and how many ratings they are."""
    from filelock import FileLock, Timeout

    from clawback import engine

    terms, settings = federation.terms, config.load(home.config)
    try:
        with FileLock(home.train_lock, timeout=LOCK_SECONDS), store.connect(home.database) as db:
            train, held, _ = _rated(db, settings)
            inputs.enough([*train, *held])
            if not train:
                raise TrainingError("All rated turns are held out for the gate: rate a few more answers.")
            policy = _policy(settings, federation, state)
            before = _weights(policy, state.trained)
            for name, parameter in policy.model.named_parameters():
                if "lora_" in name:
                    parameter.requires_grad_(state.trained in name)
            chosen = algorithm or (
                "reinforce" if settings.training.algorithm == "auto" else settings.training.algorithm
            )
            inputs.algorithm(chosen)
            making = inputs.making(settings) | {"rank": terms.rank, "alpha": terms.alpha, "full": False}
            recipe = engine.recipe(policy.info, settings.training.preset, chosen, making)
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
            change = Update(
                {}, {n: after - before[n] for n, after in _weights(policy, state.trained).items()}
            )
    except Timeout:
        raise Busy("A run is training. `clawback status` shows how far it is.") from None
    return dict((differential_privacy.clipped(change, terms.clip) if terms.clip else change).b), len(train)


def _change_roster(home: Home, folder: Path, change: Any) -> Roster:
    """The founder's list of members is the one in the founder's home: the one in the folder may have been damaged."""
    terms, founder = read_terms(folder), signer(home)
    entry = _joined(home).get(terms.digest)
    if founder.public != terms.founder or entry is None or "members" not in entry:
        raise UsageError(f"Only the founder of {folder} changes its members; this home did not found it.")
    before = Roster(entry["roster"], entry["members"])
    roster: Roster = change(before)
    _set_roster(home, folder, terms, before, founder)
    federation = exchange.load_federation(folder)
    rounds.countersign(federation, rounds.latest(federation), founder)
    _set_roster(home, folder, terms, roster, founder)
    return roster


def _set_roster(home: Home, folder: Path, terms: Terms, roster: Roster, founder: Signer) -> None:
    _note(home, terms.digest, folder, roster.number, members=dict(roster.members))
    write_roster(folder, terms, roster, founder)


def _joined(home: Home) -> dict[str, JsonObject]:
    path = home.root / JOINED
    try:
        found = json.loads(path.read_bytes())
        return {str(terms): dict(entry) | {"roster": int(entry["roster"])} for terms, entry in found.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise StoreError(
            f"{path} is damaged ({error}): put a copy in its place, or remove it and join again."
        ) from error


def _note(home: Home, terms: str, folder: Path, roster: int, **more: object) -> None:
    """Keep that this home takes part, and the newest list of members it has seen."""
    home.create()
    entries = _joined(home)
    entry = entries.get(terms, {"roster": 0})
    entries[terms] = entry | {"folder": str(folder.resolve()), "roster": max(roster, entry["roster"])} | more
    replace(home.root / JOINED, (json.dumps(entries, indent=2) + "\n").encode(), mode=0o600)


def _policy(settings: config.Config, federation: Federation, state: FederationState) -> Policy:
    """The base with the agreed A and B = 0, and what the federation has changed of both."""
    import torch

    terms = federation.terms
    policy = inputs.policy(settings, terms.base)
    if terms.base_revision not in policy.info.names:
        raise UsageError(
            f"The federation's base is {terms.base} of another revision than yours: its updates would mean something else."
        )
    policy.attach(rank=terms.rank, alpha=terms.alpha, seed=terms.seed)
    if _shapes(policy) != dict(terms.shapes):
        raise UsageError(
            f"The tensors of {federation.folder} are not those of {terms.base} here: it was made for another base."
        )
    named = dict(policy.model.named_parameters())
    for name, change in state.arrays.items():
        named[name].data += torch.from_numpy(change).to(named[name])
    return policy


def _shapes(policy: Policy) -> dict[str, tuple[int, ...]]:
    return {n: tuple(p.shape) for n, p in policy.model.named_parameters() if "lora_A" in n or "lora_B" in n}


def _weights(policy: Policy, factor: str) -> dict[str, Array]:
    named = policy.model.named_parameters()
    return {n: p.detach().cpu().double().numpy().copy() for n, p in named if factor in n}

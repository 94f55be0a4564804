"""Which rounds of a federation exist, and how the updates of the next one are put together.

A round counts if its note is signed by the founder, or if it is signed by a member, more than two thirds of the
members are in it, and whoever reads it arrives at the same result from the members' signed updates. So no member
can invent a round, leave most of the others out, or write another result.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from clawback.errors import ClawbackError, UsageError
from clawback.extensions.federated import differential_privacy, exchange
from clawback.extensions.federated.aggregate import Array, Update, aggregate, followed, step_for
from clawback.extensions.federated.exchange import Federation, FederationState
from clawback.extensions.federated.member_keys import Signer

TOLERANCE = 1e-5
"""How far the same result may differ on two machines, relative to its largest value."""


@dataclass(frozen=True, slots=True)
class RoundResult:
    """The result of a round. ``epsilon``: spent so far by a participant of all rounds (None without noise); ``refused``: whose update, and why."""

    round: int
    people: tuple[str, ...]
    weights: tuple[float, ...]
    norm: float
    epsilon: float | None
    refused: tuple[str, ...]


def latest(federation: Federation) -> FederationState:
    """The state after the last round that counts. Raises ``StoreError`` where a file of a round that the founder signed was changed."""
    state = exchange.make_state(federation.digest, 0, {})
    for number in reversed(exchange.round_numbers(federation.folder)):
        note = exchange.read_note(federation, number)
        if note is not None and note["by"] == federation.terms.founder:
            state = exchange.read_state(federation, note)
            break
    while (after := _next(federation, state)) is not None:
        state = after
    return state


def combine(federation: Federation, state: FederationState, signer: Signer, least: int) -> RoundResult:
    """Put the updates of the next round together, and sign the result. An update that cannot be used is left out and named.

    Raises ``UsageError`` with fewer than ``least``, and for a member other than the founder with fewer than the quorum.
    """
    terms, roster = federation.terms, federation.roster
    founds = signer.public == terms.founder
    if not founds and roster.name_of(signer.public) is None:
        raise UsageError(f"Your key is not among the members of {federation.folder}: only members combine.")
    if not founds and terms.noise:
        raise UsageError(
            "Rounds with noise are combined by the founder: nobody else can repeat what chance has added."
        )
    updates, refused = usable(federation, state)
    wanted = least if founds else max(least, roster.quorum)
    if len(updates) < wanted:
        why = (
            ""
            if founds
            else f" (more than two thirds of {len(roster.members)} members; the founder may take fewer)"
        )
        raise UsageError(
            f"Round {state.round + 1} has {len(updates)} usable updates, and {wanted} are wanted{why}. {' '.join(refused)}".strip()
        )
    change, epsilon = _combined_change(federation, state, updates)
    after = _followed(federation, state, change)
    people = tuple(one.name for one in updates)
    weights = tuple(_weight(federation, one) for one in updates)
    done = RoundResult(
        after.round, people, weights, differential_privacy.size(change), epsilon, tuple(refused)
    )
    note = {**asdict(done), "rule": terms.rule, "updates": {one.name: one.digest for one in updates}}
    exchange.write_combined(federation, after, note, signer)
    return done


def countersign(federation: Federation, state: FederationState, signer: Signer) -> None:
    """Let the founder vouch for the last round, before the list of members changes: it no longer depends on who signed what."""
    note = exchange.read_note(federation, state.round)
    if note is not None and note["by"] != signer.public:
        exchange.write_combined(federation, state, note, signer)


# ------------------------------------------------------------------------------------------------------------ updates


@dataclass(frozen=True, slots=True)
class MemberUpdate:
    name: str
    arrays: Mapping[str, Array]
    ratings: int
    digest: str


def usable(federation: Federation, state: FederationState) -> tuple[list[MemberUpdate], list[str]]:
    """The members' updates of the next round that can be used, and why the others cannot; strangers' files among these."""
    updates, refused = [], []
    for name in sorted(federation.roster.members):
        if not _is_there(federation, state, name):
            continue
        try:
            updates.append(MemberUpdate(name, *exchange.read_update(federation, state, name)))
        except ClawbackError as error:
            refused.append(f"{name}: {error}")
    others = exchange.strangers(federation, state.round + 1)
    return updates, [*refused, *(f"{name}: it is no member's file" for name in others)]


def _is_there(federation: Federation, state: FederationState, name: str) -> bool:
    path = exchange.round_folder(federation.folder, state.round + 1) / f"{name}.safetensors"
    return path.exists() or path.is_symlink()


def _weight(federation: Federation, update: MemberUpdate) -> float:
    """Members say how much they know: believed up to a limit, and not at all where a person's share must be bounded."""
    return 1.0 if federation.terms.noise else float(max(1, min(update.ratings, federation.terms.most)))


def _combined_change(
    federation: Federation, state: FederationState, members: Sequence[MemberUpdate]
) -> tuple[dict[str, Array], float | None]:
    """The change of the round's factor as far as it is followed, and ε so far."""
    terms = federation.terms
    updates = [
        Update({n: np.zeros((v.shape[1], 1)) for n, v in one.arrays.items()}, one.arrays) for one in members
    ]
    if terms.clip:
        updates = [differential_privacy.clipped(update, terms.clip) for update in updates]
    weights = [_weight(federation, one) for one in members]
    # Krum bears fewer liars than that, and reckons with as many as it can.
    liars = min(federation.roster.liars, (len(members) - 1) // 2) if terms.rule == "trimmed" else None
    made = aggregate(updates, weights, terms.rule, liars=liars)
    epsilon = None
    if terms.noise:
        rng = np.random.default_rng(secrets.randbits(128))
        made = differential_privacy.noised(made, len(updates), terms.clip, terms.noise, rng)
        epsilon = differential_privacy.epsilon(terms.noise, state.round + 1, 1 / (10 * len(updates)))
    # A person's norm is private where there is noise: what is known of it is the clip.
    usual = terms.clip if terms.noise else float(np.median([differential_privacy.size(u.b) for u in updates]))
    return followed(made.b, terms.step or step_for(len(updates), terms.rule), usual), epsilon


def _followed(federation: Federation, state: FederationState, change: Mapping[str, Array]) -> FederationState:
    """The state with that change."""
    total = {**state.arrays, **{n: v + state.arrays.get(n, 0.0) for n, v in change.items()}}
    written = {n: v.astype(np.float32).astype(np.float64) for n, v in total.items()}
    return exchange.make_state(federation.digest, state.round + 1, written)


def _next(federation: Federation, state: FederationState) -> FederationState | None:
    """The state after the next round, if there is one that counts; None otherwise."""
    note = exchange.read_note(federation, state.round + 1)
    if note is None:
        return None
    try:
        after = exchange.read_state(federation, note)
    except ClawbackError:
        return None
    if note["by"] == federation.terms.founder:
        return after
    return after if _is_repeatable(federation, state, after, note) else None


def _is_repeatable(
    federation: Federation, state: FederationState, after: FederationState, note: Mapping[str, object]
) -> bool:
    """Whether the updates that a member's note names are enough, are all there, and give that result."""
    named = note.get("updates")
    if federation.terms.noise or not isinstance(named, dict) or len(named) < federation.roster.quorum:
        return False
    members = []
    for name in sorted(named):
        if name not in federation.roster.members:
            return False
        try:
            update = MemberUpdate(name, *exchange.read_update(federation, state, name))
        except ClawbackError:
            return False
        if update.digest != named[name]:
            return False
        members.append(update)
    wanted = _followed(federation, state, _combined_change(federation, state, members)[0])
    return _is_close(wanted.arrays, after.arrays)


def _is_close(first: Mapping[str, Array], other: Mapping[str, Array]) -> bool:
    largest = max((float(np.abs(v).max()) for v in first.values()), default=0.0)
    return set(first) == set(other) and all(
        np.allclose(first[n], other[n], rtol=TOLERANCE, atol=TOLERANCE * largest) for n in first
    )

"""A federation of people with keys, and small tensors in place of a model's."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from clawback.extensions.federated import exchange, rounds
from clawback.extensions.federated.aggregate import Array
from clawback.extensions.federated.exchange import Federation, FederationState
from clawback.extensions.federated.federation_terms import Roster, Terms, write_roster, write_terms
from clawback.extensions.federated.member_keys import Signer, load_signer
from clawback.extensions.federated.rounds import RoundResult

SHAPES = {"x.lora_B.weight": (3, 2), "x.lora_A.weight": (2, 3)}


class Team:
    """The first of ``names`` founds. ``stranger`` has a key and is no member."""

    def __init__(
        self,
        root: Path,
        names: Sequence[str],
        shapes: Mapping[str, tuple[int, ...]] = SHAPES,
        **terms: object,
    ) -> None:
        self.root, self.names = root, list(names)
        self.folder = root / "shared"
        self.signers: dict[str, Signer] = {n: load_signer(root / f"{n}.key") for n in [*names, "stranger"]}
        self.founder = self.signers[self.names[0]]
        agreed: dict[str, object] = {
            "base": "embedded", "base_revision": "r", "rank": 2, "alpha": 4, "seed": 0, "rule": "median",
            "shapes": dict(shapes), "founder": self.founder.public,
        }  # fmt: skip
        self.terms = Terms(**(agreed | terms))  # type: ignore[arg-type]
        write_terms(self.folder, self.terms)
        self.set_members(names)

    def set_members(self, names: Sequence[str], number: int = 0) -> None:
        roster = Roster(number)
        for name in names:
            roster = roster.with_member(name, self.signers[name].public)
        write_roster(self.folder, self.terms, roster, self.founder)

    @property
    def federation(self) -> Federation:
        return exchange.load_federation(self.folder)

    @property
    def state(self) -> FederationState:
        return rounds.latest(self.federation)

    def change(self, value: float | Array) -> dict[str, Array]:
        """The factor of the next round, all of its values set."""
        shapes = self.terms.shapes_of(self.state.trained)
        return {
            name: np.broadcast_to(np.asarray(value, float), shape).copy() for name, shape in shapes.items()
        }

    def put(self, name: str, value: float | Array | Mapping[str, Array], ratings: int = 10) -> Path:
        arrays = value if isinstance(value, Mapping) else self.change(value)
        return put_signed(self.federation, self.state, name, self.signers[name], arrays, ratings)

    def combine(self, by: str | None = None, least: int = 2) -> RoundResult:
        signer = self.signers[by] if by else self.founder
        return rounds.combine(self.federation, self.state, signer, least)


def put_signed(
    federation: Federation,
    state: FederationState,
    name: str,
    signer: Signer,
    arrays: Mapping[str, Array],
    ratings: int = 10,
) -> Path:
    """An update as its own program would write it, whatever the product would say to it."""
    members = {**federation.roster.members, name: signer.public}
    posing = dataclasses.replace(federation, roster=Roster(federation.roster.number, members))
    signed = exchange.sign_update(posing, state, signer, arrays, ratings)
    return exchange.write_update(federation, state, name, arrays, *signed)

"""What the members of a federation agree on (``federation.json``), and who they are (``members.json``).

The terms hold the shapes of every tensor and the founder's public key. Members know a federation by the hash of
its terms. The list of members is signed by the founder and numbered, so an older list cannot be put back.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clawback.errors import NotFound, UsageError
from clawback.extensions.federated.aggregate import Rule
from clawback.extensions.federated.member_keys import Signer, check_key, digest, is_signed, parse_object
from clawback.files import read_regular, replace

if TYPE_CHECKING:
    from clawback.records import JsonObject

TERMS = "federation.json"
MEMBERS = "members.json"
COMBINED = "combined"
LARGEST_JSON = 16_000_000
"""Bytes of a JSON file that is read."""
LARGEST_UPDATE = 512_000_000
"""Bytes of the tensors of an update, as float32."""
MOST_STEP = 32
MOST_MEMBERS = 10_000
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
Shapes = Mapping[str, tuple[int, ...]]
_WITHOUT_KEYS = (
    "{path} was written by an earlier Clawback, whose federations have no members' keys, and anybody could change their"
    " rounds. Begin a new one in another folder (`clawback lab federated begin FOLDER`), invite the members, and go on"
    " there; versions that were adopted stay."
)


@dataclass(frozen=True, slots=True)
class Terms:
    """What all agree on.

    ``shapes``: of every tensor of A and B, by name. ``founder``: the public key that signs the list of members.
    ``clip`` 0: updates are not clipped, and noise is not possible. ``most``: ratings that one person counts for.
    ``step``: how far the combined change is followed (the server's learning rate of FedOpt, arXiv:2003.00295);
    0: the root of the number of people.
    """

    base: str
    base_revision: str
    rank: int
    alpha: int
    seed: int
    rule: Rule = "mean"
    clip: float = 0.0
    noise: float = 0.0
    most: int = 256
    step: float = 0.0
    shapes: Shapes = field(default_factory=dict)
    founder: str = ""

    def __post_init__(self) -> None:
        _check_numbers(self)
        if self.rule == "krum" and self.step not in (0, 1):
            raise UsageError("Krum takes one person's change as it is: leave the step at 1.")
        if self.noise and (not self.clip or self.rule != "mean"):
            raise UsageError(
                "Noise needs a clip and the rule `mean`: the other rules do not bound the influence of one person."
            )
        check_key(self.founder)
        _check_shapes(self)

    @property
    def digest(self) -> str:
        """What the federation is known by."""
        return digest(_plain(self))

    def shapes_of(self, factor: str) -> dict[str, tuple[int, ...]]:
        """The tensors of one factor, ``lora_A`` or ``lora_B``."""
        return {name: shape for name, shape in self.shapes.items() if factor in name}


@dataclass(frozen=True, slots=True)
class Roster:
    """The members: name → public key. ``number`` grows with each change."""

    number: int = 0
    members: Mapping[str, str] = field(default_factory=dict)

    @property
    def quorum(self) -> int:
        """More than two thirds: then fewer than a third of liars are a minority of any round, whoever combines it."""
        return max(2, 2 * len(self.members) // 3 + 1)

    @property
    def liars(self) -> int:
        """So many malicious members a round bears: fewer than a third."""
        return max(0, (len(self.members) - 1) // 3)

    def name_of(self, public: str) -> str | None:
        """Whose key that is; None for a stranger's."""
        return next((name for name, key in self.members.items() if key == public), None)

    def with_member(self, name: str, public: str) -> Roster:
        """Raises ``UsageError`` for a name that is none, and for a key that has a vote already."""
        check_key(public)
        if not NAME.fullmatch(name) or name.lower() == COMBINED:
            raise UsageError(
                f"{name!r} is no name for a member: letters, digits, - and _, but not {COMBINED!r}."
            )
        if twin := next((n for n in self.members if n != name and n.lower() == name.lower()), None):
            raise UsageError(
                f"{name!r} and {twin!r} are the same name for some file systems: take another one."
            )
        if (known := self.name_of(public)) not in (None, name):
            raise UsageError(f"That key is a member already, as {known}: each key has one vote.")
        if self.members.get(name, public) != public:
            raise UsageError(
                f"{name} is a member with another key. `clawback lab federated remove` takes it out first."
            )
        if len(self.members) >= MOST_MEMBERS:
            raise UsageError(f"A federation has at most {MOST_MEMBERS:,} members.")
        return Roster(self.number + 1, {**self.members, name: public})

    def without_member(self, name: str) -> Roster:
        """Raises ``NotFound``."""
        if name not in self.members:
            raise NotFound(f"{name} is no member. Members: {', '.join(sorted(self.members)) or 'none'}.")
        return Roster(self.number + 1, {n: key for n, key in self.members.items() if n != name})


def write_terms(folder: Path, terms: Terms) -> None:
    """Write what is agreed. Raises ``UsageError`` where something else is agreed already."""
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / TERMS).exists():
        if read_terms(folder) != terms:
            raise UsageError(
                f"{folder / TERMS} already holds other terms. Choose another folder, or use these terms."
            )
        return
    replace(folder / TERMS, (json.dumps(_plain(terms), indent=2) + "\n").encode(), mode=0o644)


def read_terms(folder: Path) -> Terms:
    """Raises ``NotFound``, ``UsageError`` for terms that cannot be used."""
    path = folder / TERMS
    try:
        found = parse_object(read_regular(path, LARGEST_JSON), path)
    except (FileNotFoundError, NotADirectoryError):
        raise NotFound(
            f"There is no {TERMS} in {folder}. `clawback lab federated begin` writes it."
        ) from None
    return terms_from(found, path)


def terms_from(values: Mapping[str, Any], path: Path) -> Terms:
    """Terms out of a JSON object. Raises ``UsageError``."""
    if "founder" not in values:
        raise UsageError(_WITHOUT_KEYS.format(path=path))
    known = {one.name for one in fields(Terms)}
    if strange := sorted(set(values) - known):
        raise UsageError(f"{path} cannot be used: it has a field {strange[0][:80]!r} that is not known here.")
    shapes = values.get("shapes")
    if not isinstance(shapes, dict) or not all(isinstance(shape, list) for shape in shapes.values()):
        raise UsageError(f"{path} cannot be used: its shapes are no lists of numbers.")
    try:
        return Terms(**{**values, "shapes": {name: tuple(shape) for name, shape in shapes.items()}})
    except (TypeError, UsageError) as error:
        raise UsageError(f"{path} cannot be used: {error}") from error


def write_roster(folder: Path, terms: Terms, roster: Roster, signer: Signer) -> None:
    statement = {"terms": terms.digest, "number": roster.number, "members": dict(roster.members)}
    signed = {**statement, "signature": signer.sign(MEMBERS, statement)}
    replace(folder / MEMBERS, (json.dumps(signed, indent=2) + "\n").encode(), mode=0o644)


def read_roster(folder: Path, terms: Terms) -> Roster:
    """The members that the founder signed. Raises ``UsageError``, ``NotFound``."""
    path = folder / MEMBERS
    try:
        found = parse_object(read_regular(path, LARGEST_JSON), path)
    except FileNotFoundError:
        raise NotFound(
            f"There is no {MEMBERS} in {folder}: its founder writes it with `clawback lab federated invite`."
        ) from None
    signature = found.pop("signature", None)
    number, members = found.get("number"), found.get("members")
    if found.get("terms") != terms.digest or not is_signed(terms.founder, signature, MEMBERS, found):
        raise UsageError(
            f"{path} is not signed by the founder of this federation. The founder restores it with `clawback lab federated invite`."
        )
    # The founder signed it: what follows guards against a founder's own mistake.
    if type(number) is not int or not isinstance(members, dict) or len(members) > MOST_MEMBERS:
        raise UsageError(f"{path} cannot be used: it holds no list of members.")
    roster = Roster(number - len(members))
    for name, key in members.items():
        roster = roster.with_member(name, str(key))
    return roster


def _plain(terms: Terms) -> JsonObject:
    return asdict(terms) | {"shapes": {name: list(shape) for name, shape in terms.shapes.items()}}


def _check_numbers(terms: Terms) -> None:
    for name in ("base", "base_revision", "rule", "founder"):
        if not isinstance(getattr(terms, name), str):
            raise UsageError(f"`{name}` is a text.")
    for name, low, high in (
        ("rank", 1, 4096),
        ("alpha", 1, 1 << 20),
        ("seed", 0, (1 << 63) - 1),
        ("most", 1, 1 << 31),
    ):
        value = getattr(terms, name)
        if type(value) is not int or not low <= value <= high:
            raise UsageError(f"`{name}` is a whole number from {low} to {high}.")
    if terms.rule not in ("mean", "median", "trimmed", "krum"):
        raise UsageError(
            f"There is no rule {terms.rule[:80]!r} for a federation: mean, median, trimmed or krum."
        )
    for name, top in (("clip", math.inf), ("noise", math.inf), ("step", MOST_STEP)):
        value = getattr(terms, name)
        if type(value) not in (int, float) or not math.isfinite(value) or not 0 <= value <= top:
            most = f", and at most {MOST_STEP}" if name == "step" else ""
            raise UsageError(f"A {name} is a finite number of at least 0{most}.")


def _check_shapes(terms: Terms) -> None:
    if not terms.shapes:
        raise UsageError(
            "The terms name no tensors: `clawback lab federated begin` takes their shapes from the base."
        )
    size = 0
    for name, shape in terms.shapes.items():
        sound = len(shape) == 2 and all(type(n) is int and 0 < n <= 1 << 31 for n in shape)
        sides = ("lora_A" in name) + ("lora_B" in name)
        if not sound or sides != 1 or shape[0 if "lora_A" in name else 1] != terms.rank:
            raise UsageError(f"The tensor {name[:80]!r} of the terms fits no A or B of rank {terms.rank}.")
        size += 4 * shape[0] * shape[1]
    if size > LARGEST_UPDATE:
        raise UsageError(
            f"The tensors of the terms are {size:,} bytes; at most {LARGEST_UPDATE:,} are shared."
        )

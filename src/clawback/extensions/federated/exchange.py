"""The shared folder of a federation (a synced folder, a repository, a USB stick).

    federation.json                 the terms: base, shapes, rank, rule, clip, noise, the founder's key
    members.json                    name and public key of each member, signed by the founder
    round-0001/anna.safetensors     Anna's change of the factor that the round trains, signed by her
    round-0001/combined.safetensors what A and B have changed by, all rounds together
    round-0001/combined.json        who took part, with which weight, by which rule, and ε so far; signed

An update is bound to the terms, to its round and to the state that the round starts from, so an old one cannot be
put again. A round exists if its ``combined.json`` is signed and follows from the state before; ``jobs.federating``
decides that. Nothing in the folder can run code (safetensors and JSON alone), and reading it never waits.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from clawback.errors import NotFound, StoreError, UsageError
from clawback.extensions.federated.aggregate import Array
from clawback.extensions.federated.federation_terms import (
    COMBINED,
    LARGEST_JSON,
    MEMBERS,
    TERMS,
    Roster,
    Shapes,
    Terms,
    read_roster,
    read_terms,
)  # fmt: skip
from clawback.extensions.federated.member_keys import Signer, canonical, digest, is_signed, parse_object
from clawback.files import read_regular, replace

if TYPE_CHECKING:
    from clawback.records import JsonObject

UPDATE = "update"
HEADER = 4_000_000
"""Bytes of a safetensors header that are allowed beside the tensors."""
MOST_NAMED = 20
"""Files of strangers that are named in a report."""
_ROUND = re.compile(r"round-(\d{4,8})")


@dataclass(frozen=True, slots=True)
class Federation:
    """A shared folder whose terms and list of members are valid."""

    folder: Path
    terms: Terms
    digest: str
    roster: Roster


@dataclass(frozen=True, slots=True)
class FederationState:
    """What the federation has changed of A and B after ``round`` rounds; empty before the first."""

    round: int
    arrays: Mapping[str, Array]
    digest: str
    """Of the terms, the round and the arrays: what updates of the next round are bound to."""

    @property
    def trained(self) -> str:
        """The factor of the next round."""
        return factor(self.round + 1)


def load_federation(folder: Path) -> Federation:
    """Raises ``NotFound``, ``UsageError``."""
    terms = read_terms(folder)
    return Federation(folder, terms, terms.digest, read_roster(folder, terms))


def make_state(terms_digest: str, number: int, arrays: Mapping[str, Array]) -> FederationState:
    found = {"terms": terms_digest, "round": number, "arrays": digest_arrays(arrays)}
    return FederationState(number, arrays, digest(found))


def factor(number: int) -> str:
    """The factor of ΔW = s·B·A that round ``number`` trains; the other one is the same for all, so what is combined is exact (RoLoRA, arXiv:2502.01755)."""
    return "lora_B" if number % 2 else "lora_A"


def round_folder(folder: Path, number: int) -> Path:
    return folder / f"round-{number:04d}"


def round_numbers(folder: Path) -> list[int]:
    """Numbers of the round folders that hold a ``combined.json``, whoever wrote it; ascending."""
    found = (_ROUND.fullmatch(path.parent.name) for path in folder.glob(f"round-*/{COMBINED}.json"))
    return sorted({int(match[1]) for match in found if match})


# ----------------------------------------------------------------------------------------------------------- updates


def sign_update(
    federation: Federation, state: FederationState, signer: Signer, arrays: Mapping[str, Array], ratings: int
) -> tuple[str, str]:
    """The statement of an update, as JSON, and its signature. Raises ``UsageError`` where the key is no member's."""
    name = federation.roster.name_of(signer.public)
    if name is None:
        raise UsageError(f"Your key is not among the members of {federation.folder}.")
    statement = {
        "terms": federation.digest, "round": state.round + 1, "parent": state.digest, "member": name,
        "ratings": ratings, "arrays": digest_arrays(arrays),
    }  # fmt: skip
    return canonical(statement).decode(), signer.sign(UPDATE, statement)


def write_update(
    federation: Federation,
    state: FederationState,
    name: str,
    arrays: Mapping[str, Array],
    statement: str,
    signature: str,
) -> Path:
    """Write one member's signed update, whole or not at all."""
    path = round_folder(federation.folder, state.round + 1) / f"{name}.safetensors"
    write_arrays(path, arrays, {"statement": statement, "signature": signature})
    return path


def read_update(
    federation: Federation, state: FederationState, name: str
) -> tuple[dict[str, Array], int, str]:
    """A member's update of the next round: its arrays, how many ratings it comes from, and the arrays' digest.

    Raises ``NotFound``, ``UsageError`` that says why it cannot be used.
    """
    path = round_folder(federation.folder, state.round + 1) / f"{name}.safetensors"
    arrays, metadata = read_arrays(path, federation.terms.shapes_of(state.trained))
    ratings = check_update(federation, state, name, arrays, metadata)
    return arrays, ratings, digest_arrays(arrays)


def check_update(
    federation: Federation,
    state: FederationState,
    name: str,
    arrays: Mapping[str, Array],
    signed: Mapping[str, str],
) -> int:
    """The number of ratings of a signed update. ``signed``: its ``statement`` and ``signature``. Raises ``UsageError``."""
    origin = Path(f"the statement of {name}")
    statement = parse_object(signed.get("statement", "").encode("utf-8", "replace"), origin)
    if not is_signed(federation.roster.members[name], signed.get("signature"), UPDATE, statement):
        raise UsageError(f"it is not signed by {name}")
    if statement.get("member") != name or statement.get("terms") != federation.digest:
        raise UsageError("it was made for another federation, or under another name")
    if statement.get("round") != state.round + 1 or statement.get("parent") != state.digest:
        raise UsageError(
            f"it was made for another round, or for another state than that of round {state.round}:"
            " `clawback lab federated contribute` makes a new one"
        )
    if statement.get("arrays") != digest_arrays(arrays):
        raise UsageError(f"its tensors are not those that {name} signed")
    check_arrays(arrays, federation.terms.shapes_of(state.trained))
    ratings = statement.get("ratings")
    if type(ratings) is not int or ratings < 0:
        raise UsageError("it does not say how many ratings it comes from")
    return ratings


def strangers(federation: Federation, number: int) -> list[str]:
    """Files of a round that belong to no member, at most ``MOST_NAMED`` of them."""
    known = {*federation.roster.members, COMBINED}
    found = round_folder(federation.folder, number).glob("*.safetensors")
    unknown = (path.stem for path in found if path.stem not in known)
    return sorted(name for name, _ in zip(unknown, range(MOST_NAMED), strict=False))


def remove_updates(federation: Federation, number: int) -> None:
    """Delete the members' single updates of a round."""
    for name in federation.roster.members:
        (round_folder(federation.folder, number) / f"{name}.safetensors").unlink(missing_ok=True)


# ---------------------------------------------------------------------------------------------------------- combined


def write_combined(
    federation: Federation, state: FederationState, note: Mapping[str, object], signer: Signer
) -> None:
    """The state after a round. The signed note comes last: without it there is no round."""
    here = round_folder(federation.folder, state.round)
    write_arrays(here / f"{COMBINED}.safetensors", state.arrays, {})
    statement = {
        **note,
        "terms": federation.digest,
        "round": state.round,
        "state": state.digest,
        "by": signer.public,
    }
    signed = {**statement, "signature": signer.sign(COMBINED, statement)}
    replace(here / f"{COMBINED}.json", (json.dumps(signed, indent=2) + "\n").encode(), mode=0o644)


def read_note(federation: Federation, number: int) -> JsonObject | None:
    """What is said of a combined round, if the founder or a member signed it; None otherwise."""
    path = round_folder(federation.folder, number) / f"{COMBINED}.json"
    try:
        note = parse_object(read_regular(path, LARGEST_JSON), path)
    except (OSError, UsageError):
        return None
    signature, public = note.pop("signature", None), str(note.get("by"))
    if public != federation.terms.founder and federation.roster.name_of(public) is None:
        return None
    if note.get("terms") != federation.digest or note.get("round") != number:
        return None
    return note if is_signed(public, signature, COMBINED, note) else None


def read_state(federation: Federation, note: Mapping[str, Any]) -> FederationState:
    """The state that a signed note speaks of. Raises ``StoreError`` where its tensors are not there, or are others."""
    number = int(note["round"])
    path = round_folder(federation.folder, number) / f"{COMBINED}.safetensors"
    wanted = federation.terms.shapes_of("lora_B") if number == 1 else federation.terms.shapes
    try:
        state = make_state(federation.digest, number, read_arrays(path, wanted)[0])
    except (NotFound, UsageError) as error:
        raise StoreError(
            f"The combined change of round {number} cannot be used ({error}): put back {path}."
        ) from error
    if state.digest != note.get("state"):
        raise StoreError(
            f"{path} is not what was signed: somebody has changed it. Put back the file of that round."
        )
    return state


# ------------------------------------------------------------------------------------------------------------ arrays


def digest_arrays(arrays: Mapping[str, Array]) -> str:
    """SHA-256 of names, shapes and float32 values."""
    total = hashlib.sha256()
    for name in sorted(arrays):
        value = np.ascontiguousarray(arrays[name], dtype="<f4")
        total.update(json.dumps([name, list(value.shape)]).encode())
        total.update(value.tobytes())
    return total.hexdigest()


def check_arrays(arrays: Mapping[str, Array], shapes: Shapes) -> None:
    """Raises ``UsageError`` naming the first tensor that is not what the terms say."""
    if strange := sorted(set(arrays) - set(shapes)):
        raise UsageError(
            f"it has a tensor {strange[0][:100]!r}, which the terms do not know: another base or targets"
        )
    if missing := sorted(set(shapes) - set(arrays)):
        raise UsageError(f"it lacks the tensor {missing[0][:100]!r} of the terms: another base or targets")
    for name, value in arrays.items():
        if value.shape != shapes[name]:
            raise UsageError(
                f"its tensor {name!r} is of shape {list(value.shape)}, not {list(shapes[name])}: another base or rank"
            )
        if not np.isfinite(value).all():
            raise UsageError(f"its tensor {name!r} holds numbers that are not finite")


def write_arrays(path: Path, arrays: Mapping[str, Array], metadata: Mapping[str, str]) -> None:
    """Write a file of safetensors, whole or not at all."""
    from safetensors.numpy import save

    replace(path, save({n: v.astype(np.float32) for n, v in arrays.items()}, dict(metadata)), mode=0o644)


def read_arrays(path: Path, shapes: Shapes) -> tuple[dict[str, Array], dict[str, str]]:
    """Arrays of exactly these shapes, and the texts beside them. Raises ``NotFound``, ``UsageError``."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    if path.parent.is_symlink():
        raise UsageError(f"{path.parent} is a link")
    size = sum(4 * shape[0] * shape[1] for shape in shapes.values())
    try:
        data = read_regular(path, size + HEADER)
    except FileNotFoundError:
        raise NotFound(f"There is no update {path}.") from None
    try:
        arrays = load(data)
        metadata = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")]).get("__metadata__", {})
    except (SafetensorError, ValueError, TypeError, KeyError, RecursionError, AttributeError) as error:
        raise UsageError(f"it is no file of safetensors ({error})") from error
    if odd := next((n for n, value in arrays.items() if value.dtype != np.float32), None):
        raise UsageError(f"its tensor {odd[:100]!r} is not of float32")
    check_arrays(arrays, shapes)
    return {name: value.astype(np.float64) for name, value in arrays.items()}, dict(metadata)


__all__ = ["COMBINED", "MEMBERS", "TERMS", "Federation", "FederationState", "load_federation", "make_state"]

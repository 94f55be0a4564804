"""A reward model on disk: ``reward.json``, which names a folder, every file in it, and the hash of each.

The folder is written beside and fsynced, then ``reward.json`` is replaced in one rename: whoever looks sees the old model or the new one.
A file that is missing, changed, or not named is refused, and so is everything that could run code when it is loaded.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from clawback.errors import ModelError, NotFound
from clawback.extensions.reward.measures import Isotonic
from clawback.files import replace, sha256, sync

if TYPE_CHECKING:
    from clawback.extensions.reward.encoder import Encoder, EncoderSettings
    from clawback.features.state_features import Looks, Pair
    from clawback.records import JsonObject

CARD = "reward.json"
FORMAT = 2
PLAIN = (".json", ".safetensors", ".txt", ".model", ".md", ".jinja")
"""What a folder of a reward model may hold."""


class PairReader(Protocol):
    """Reads pairs with a causal model; ``identity`` says with which weights, ``identities`` what else these are called."""

    @property
    def identity(self) -> str: ...

    @property
    def identities(self) -> list[str]: ...

    def __call__(self, pairs: Sequence[Pair]) -> Looks: ...


@dataclass(frozen=True, slots=True)
class Card:
    """What a reward model is. ``trained``: marks of the prompts that it learned from; ``rows``: how many ratings these had."""

    settings: JsonObject
    calibration: Isotonic
    trained: tuple[str, ...]
    rows: int
    seed: int
    members: int
    base: str
    """Identity of the causal model whose hidden states it reads."""
    share: float = 0.0
    """Of an encoder of its own in what it says."""
    folder: str = ""
    files: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Which one it is: a hash of all its files."""
        whole = json.dumps(self.files, sort_keys=True) + json.dumps(asdict(self.calibration))
        return f"reward:{hashlib.sha256(whole.encode()).hexdigest()[:12]}"


def save(root: Path, encoder: Encoder, card: Card) -> Card:
    """Put the model in the place of the one in ``root``, all of it or nothing."""
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder = root / uuid.uuid4().hex[:12]
    try:
        for number, member in enumerate(encoder.members):
            place = folder / f"member-{number}"
            place.mkdir(parents=True)
            member.save(place)
        files = {str(p.relative_to(folder)): sha256(p) for p in sorted(folder.rglob("*")) if p.is_file()}
        values = asdict(card) | {"folder": folder.name, "files": files, "format": FORMAT}
        for path in [
            *(folder / name for name in files),
            *(p for p in folder.rglob("*") if p.is_dir()),
            folder,
        ]:
            sync(path)
        replace(root / CARD, (json.dumps(values, indent=2) + "\n").encode(), mode=0o600)
        sync(root)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    for old in root.iterdir():
        if old.is_dir() and re.fullmatch("[0-9a-f]{12}", old.name) and old.name != folder.name:
            shutil.rmtree(old, ignore_errors=True)
    return _card(values)


def read(root: Path) -> Card:
    """The card of the model in ``root``. Raises ``NotFound`` where there is none, ``ModelError`` where it is damaged."""
    try:
        return _card(json.loads((root / CARD).read_text("utf-8")))
    except FileNotFoundError:
        raise NotFound("There is no reward model yet. Train one: `clawback lab reward train`.") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(
            f"{root / CARD} is damaged ({error}). Train again: `clawback lab reward train`."
        ) from error


def load(root: Path, reader: Callable[[EncoderSettings], PairReader]) -> tuple[Encoder, Card]:
    """The model in ``root``, after a look at every file. ``reader`` makes what reads hidden states.

    Raises ``NotFound``, ``MissingExtra``, and ``ModelError`` for damaged files or where the base is not what it was.
    """
    card = read(root)
    from clawback.extensions.reward.encoder import Encoder, EncoderSettings  # most homes have no reward model
    from clawback.extensions.reward.members import ENCODER, Member, StackedMember, cross, states

    folder = _verified_folder(root, card)
    settings = EncoderSettings(**card.settings)
    places = [folder / f"member-{n}" for n in range(card.members)]
    look = reader(settings)
    if card.base not in look.identities:
        raise ModelError(
            f"The reward model was trained on the hidden states of another {settings.base}. Train again: `clawback lab reward train`."
        )

    def member(folder: Path) -> Member:
        if not settings.fine_tuned:
            return states(folder)
        encoder = cross(
            str(folder / ENCODER), max_length=settings.max_length, dropout=0.0, revision=None, local=True
        )
        return StackedMember(encoder, states(folder), card.share)

    return Encoder(tuple(map(member, places)), card.calibration, look, card.name), card


def _verified_folder(root: Path, card: Card) -> Path:
    """The model's folder, if it holds exactly what its card says."""
    folder = root / card.folder
    if Path(card.folder).name != card.folder or not folder.is_dir():
        raise ModelError(f"The reward model {folder} is missing. Train again: `clawback lab reward train`.")
    there = {str(p.relative_to(folder)) for p in folder.rglob("*") if not p.is_dir() or p.is_symlink()}
    wrong = sorted(there ^ set(card.files)) or sorted(n for n in there if Path(n).suffix not in PLAIN)
    wrong = wrong or [
        n for n in sorted(there) if (folder / n).is_symlink() or sha256(folder / n) != card.files[n]
    ]
    if wrong:
        raise ModelError(
            f"{folder / wrong[0]} is not what was saved. Train again: `clawback lab reward train`."
        )
    return folder


def _card(data: Mapping[str, Any]) -> Card:
    if data["format"] != FORMAT:
        raise ValueError(f"format {data['format']}")
    values = {name: data[name] for name in Card.__slots__}
    curve = data["calibration"]
    values["calibration"] = Isotonic(tuple(curve["at"]), tuple(curve["values"]))
    values["trained"] = tuple(data["trained"])
    return Card(**values)

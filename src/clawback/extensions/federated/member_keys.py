"""Ed25519 keys of a federation's members, and what they sign.

A signature covers a kind (``update``, ``combined``, ``members``) and a statement in canonical JSON. A statement
that was signed as one kind is never taken for another.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clawback import installed
from clawback.errors import MissingExtra, StoreError, UsageError
from clawback.files import read_regular, replace

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from clawback.records import JsonObject

KEY = re.compile(r"[0-9a-f]{64}")
SIGNATURE = re.compile(r"[0-9a-f]{128}")
CONTEXT = b"clawback federation 2\n"
"""Comes before everything that is signed: a signature made for another program or format is worth nothing here."""
LARGEST_KEY_FILE = 1000


@dataclass(frozen=True, slots=True)
class Signer:
    """A home's private key. ``public`` is what others know it by: 64 hexadecimal digits."""

    public: str
    private: Ed25519PrivateKey = field(repr=False)

    def sign(self, kind: str, statement: Mapping[str, object]) -> str:
        return self.private.sign(_message(kind, statement)).hex()


def load_signer(path: Path) -> Signer:
    """The key in that file (0600), made on first use. Raises ``StoreError`` for a file that holds none."""
    private_key = _ed25519().Ed25519PrivateKey
    try:
        seed = bytes.fromhex(read_regular(path, LARGEST_KEY_FILE).decode("ascii").strip())
    except FileNotFoundError:
        seed = os.urandom(32)
        replace(path, seed.hex().encode() + b"\n", mode=0o600)
    except (UsageError, ValueError) as error:
        raise StoreError(f"The key {path} cannot be read: {error}. Put it back from a copy.") from error
    if len(seed) != 32:
        raise StoreError(f"The key {path} is damaged: 64 hexadecimal digits are expected.")
    private = private_key.from_private_bytes(seed)
    return Signer(private.public_key().public_bytes_raw().hex(), private)


def check_key(public: str) -> None:
    """Raises ``UsageError`` for a text that is no public key."""
    if not KEY.fullmatch(public):
        raise UsageError(
            f"{public[:80]!r} is no public key: 64 hexadecimal digits, as `clawback lab federated key` prints."
        )


def is_signed(public: str, signature: object, kind: str, statement: Mapping[str, object]) -> bool:
    """Whether the owner of that public key signed the statement."""
    from_public = _ed25519().Ed25519PublicKey.from_public_bytes
    from cryptography.exceptions import InvalidSignature

    if not isinstance(signature, str) or not SIGNATURE.fullmatch(signature) or not KEY.fullmatch(public):
        return False
    try:
        from_public(bytes.fromhex(public)).verify(bytes.fromhex(signature), _message(kind, statement))
    except (InvalidSignature, ValueError):
        return False
    return True


def canonical(statement: Mapping[str, object]) -> bytes:
    """The one JSON text of a statement. Raises ``ValueError`` for numbers that are not finite."""
    return json.dumps(dict(statement), sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def digest(statement: Mapping[str, object]) -> str:
    """SHA-256 of the canonical text."""
    return hashlib.sha256(canonical(statement)).hexdigest()


def parse_object(data: bytes, path: Path) -> JsonObject:
    """The JSON object in a file of the shared folder. Raises ``UsageError`` for anything else, however deeply nested."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        why = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise UsageError(f"{path} cannot be used: {why}.") from error
    if not isinstance(found, dict):
        raise UsageError(f"{path} cannot be used: it holds no JSON object.")
    return found


def _message(kind: str, statement: Mapping[str, object]) -> bytes:
    return CONTEXT + kind.encode() + b"\n" + canonical(statement)


def _ed25519() -> Any:
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError:
        raise MissingExtra(
            "Members of a federation sign what they share, and what signs is not installed. "
            f"Run: {installed.add('federated')}"
        ) from None
    return ed25519

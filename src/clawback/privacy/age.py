"""Encryption, in the age format, of files that leave the home: to people's keys, or with a passphrase. Any ``age`` program reads them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from clawback.errors import MissingExtra, StoreError, UsageError
from clawback.files import replace

MAGIC = b"age-encryption.org/"
ARMOR = b"-----BEGIN AGE ENCRYPTED FILE-----"


def is_age(path: Path) -> bool:
    """Whether the file is one of age's."""
    try:
        with path.open("rb") as file:
            head = file.read(len(ARMOR))
    except OSError:
        return False
    return head.startswith((MAGIC, ARMOR))


def lock(path: Path, data: bytes, *, to: Sequence[str] = (), passphrase: str = "") -> None:
    """Write the data encrypted to these public keys (``age1…``, ``ssh-ed25519 …``, or files of them), or under the passphrase.

    The file appears whole or not at all. Raises ``UsageError`` for what is no key.
    """
    pyrage = _pyrage()
    if passphrase:
        made = pyrage.passphrase.encrypt(data, passphrase)
    else:
        made = pyrage.encrypt(data, [recipient for one in to for recipient in _recipients(pyrage, one)])
    replace(path, bytes(made), mode=0o600)


def unlock(path: Path, *, identity: Path | None = None, passphrase: str = "") -> bytes:
    """What such a file holds. Raises ``UsageError`` where the key or passphrase is another."""
    pyrage = _pyrage()
    data = path.read_bytes()
    try:
        if passphrase:
            return _by_passphrase(pyrage, data, passphrase)
        if identity is None:
            raise UsageError(
                f"{path} is encrypted: name your key with --identity FILE, or give --passphrase."
            )
        return bytes(pyrage.decrypt(data, _identities(pyrage, identity)))
    except pyrage.DecryptError as error:
        raise UsageError(
            f"{path} does not open with that {'passphrase' if passphrase else 'key'}: {error}."
        ) from None


def _by_passphrase(pyrage: Any, data: bytes, passphrase: str) -> bytes:
    """age measures what a passphrase may cost on this machine each time, and refuses one that seems too dear: on a busy machine, for a moment."""
    for _ in range(4):
        try:
            return bytes(pyrage.passphrase.decrypt(data, passphrase))
        except pyrage.DecryptError as error:
            if "xcessive work" not in str(error):
                raise
    return bytes(pyrage.passphrase.decrypt(data, passphrase))


def _recipients(pyrage: Any, text: str) -> list[Any]:
    path = Path(text).expanduser()
    if not text.startswith(("age1", "ssh-")) and path.is_file():
        lines = path.read_text("utf-8").splitlines()
        return [
            r
            for line in lines
            if line.strip() and not line.startswith("#")
            for r in _recipients(pyrage, line.strip())
        ]
    try:
        kind = pyrage.ssh if text.startswith("ssh-") else pyrage.x25519
        return [kind.Recipient.from_str(text)]
    except pyrage.RecipientError as error:
        raise UsageError(f"{text!r} is no public key of age or ssh, and no file of them: {error}.") from None


def _identities(pyrage: Any, path: Path) -> list[Any]:
    try:
        text = path.read_text("ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise StoreError(f"The key file {path} cannot be read: {error}.") from error
    try:
        if "PRIVATE KEY-----" in text:
            return [pyrage.ssh.Identity.from_buffer(text.encode())]
        lines = [line.strip() for line in text.splitlines() if line.startswith("AGE-SECRET-KEY-")]
        found = [pyrage.x25519.Identity.from_str(line) for line in lines]
    except pyrage.IdentityError as error:
        raise UsageError(f"{path} holds no key of age or ssh: {error}.") from None
    if not found:
        raise UsageError(f"{path} holds no line that begins with AGE-SECRET-KEY-.")
    return found


def _pyrage() -> Any:
    try:
        import pyrage
    except ImportError:
        raise MissingExtra(
            "Encrypted files need a part that is not installed. Run: {installed.add('crypt')}"
        ) from None
    return pyrage

"""The key of an encrypted database: 32 random bytes, and where they are kept.

``encryption.json`` beside the database says where: in the desktop's ``keyring``, in a ``credential`` that
systemd passes to a service (``LoadCredentialEncrypted=clawback-key:…``), or in a ``file`` of mode 0600 beside
the database. The key itself is never in it. A raw key opens a database in a millisecond; a passphrase would
take every hook 200.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Literal

from clawback.errors import StoreError, UsageError
from clawback.files import replace

Kept = Literal["keyring", "credential", "file"]
RECORD = "encryption.json"
KEY_FILE = "clawback.key"
SERVICE = "clawback"
CREDENTIAL = "clawback-key"
BYTES = 32


def recorded(database: Path) -> Kept | None:
    """Where the key of this database is kept; None where it has none. Raises ``StoreError`` for a record that cannot be read."""
    path = database.with_name(RECORD)
    try:
        found = json.loads(path.read_bytes())["kept"]
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{path} is damaged ({error}): it says where the database's key is kept.") from error
    if found not in ("keyring", "credential", "file"):
        raise StoreError(f"{path} names a place for the key that this program does not know: {found!r}.")
    return found  # type: ignore[no-any-return]


def encrypted(database: Path) -> bool | None:
    """Whether the database is encrypted, as far as was noted: true but for a moment while it is rewritten. None: it never was."""
    try:
        return bool(json.loads(database.with_name(RECORD).read_bytes()).get("encrypted"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, AttributeError):
        return False


def note(database: Path, is_encrypted: bool) -> None:
    """Remember it, beside where the key is."""
    if (kept := recorded(database)) is not None:
        _record(database, kept, is_encrypted)


def _record(database: Path, kind: Kept, is_encrypted: bool) -> None:
    said = {"format": 1, "kept": kind, "encrypted": is_encrypted}
    replace(database.with_name(RECORD), json.dumps(said).encode() + b"\n", mode=0o600)


def load(database: Path) -> bytes:
    """The key. Raises ``StoreError`` that says where it was looked for."""
    kept = recorded(database)
    if kept == "file":
        return _file(database.with_name(KEY_FILE))
    if kept == "credential":
        return _file(_credential())
    if kept == "keyring":
        return _cached(database) or _from_keyring(database)
    raise StoreError(
        f"The database {database} is encrypted, and {RECORD} beside it, which says where its key is, is not there."
    )


def make(database: Path, wanted: Kept | None = None) -> tuple[bytes, Kept, str]:
    """A key, kept as ``wanted`` or at the first place of keyring, credential, file that works; the key, where, and why no better place.

    A key that is there already stays. It is on the disk, and was read back, before this returns.
    """
    if (kept := recorded(database)) is not None:
        return load(database), kept, ""
    why: list[str] = []
    for place in (wanted,) if wanted else ("keyring", "credential", "file"):
        try:
            key = _keep(database, place)
        except (StoreError, UsageError) as error:
            if wanted:
                raise
            why.append(str(error))
            continue
        _record(database, place, False)
        if load(database) != key:
            raise StoreError(f"The key could not be read back from the {place}; nothing was encrypted.")
        return key, place, " ".join(why)
    raise AssertionError("a file can always be written")  # pragma: no cover


def put_back(database: Path, key: bytes) -> None:
    """A key from its recovery copy, kept in a file from now on."""
    if len(key) != BYTES:
        raise UsageError(f"That is no key of a database: {len(key)} bytes where {BYTES} are needed.")
    path, text = database.with_name(KEY_FILE), key.hex().encode() + b"\n"
    if path.exists() and path.read_bytes().strip() != text.strip():
        path.replace(path.with_name(f"{KEY_FILE}.before"))  # it may be the only one of its kind
    replace(path, text, mode=0o600)
    _record(database, "file", True)


def share(database: Path, copy: Path) -> None:
    """The key of a database also for a copy of it in another folder, kept in the same kind of place. Nothing where there is none."""
    if (kept := recorded(database)) is None:
        return
    if kept == "file":
        replace(copy.with_name(KEY_FILE), database.with_name(KEY_FILE).read_bytes(), mode=0o600)
    elif kept == "keyring":
        _ring().set_password(SERVICE, _name(copy), load(database).hex())
    _record(copy, kept, bool(encrypted(database)))


def unshare(copy: Path) -> None:
    """Take the key of a copy out of the keyring; one that is kept in a file goes with its folder."""
    if recorded(copy) == "keyring":
        from contextlib import suppress

        with suppress(Exception):  # keyrings raise what they like; a key without its file opens nothing
            _ring().delete_password(SERVICE, _name(copy))
        if (cache := _cache(copy)) is not None:
            cache.unlink(missing_ok=True)


def _keep(database: Path, kind: Kept) -> bytes:
    if kind == "credential":
        return _file(_credential())
    key = os.urandom(BYTES)
    if kind == "keyring":
        _ring().set_password(SERVICE, _name(database), key.hex())
    else:
        replace(database.with_name(KEY_FILE), key.hex().encode() + b"\n", mode=0o600)
    return key


# --------------------------------------------------------------------------------------------------------- places


def _file(path: Path) -> bytes:
    try:
        return _key(path.read_text("ascii"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise StoreError(
            f"The key of the database cannot be read from {path}: {getattr(error, 'strerror', None) or error}. "
            "Put it back, or give its recovery copy to `clawback data encryption recover`."
        ) from error


def _key(text: str, where: str) -> bytes:
    try:
        key = bytes.fromhex(text.strip())
    except ValueError:
        key = b""
    if len(key) != BYTES:
        raise StoreError(f"What is kept in {where} is no key: {2 * BYTES} hexadecimal digits are expected.")
    return key


def _credential() -> Path:
    folder = os.environ.get("CREDENTIALS_DIRECTORY")
    if not folder:
        raise StoreError(
            "No credentials were handed to this process (systemd's LoadCredentialEncrypted sets CREDENTIALS_DIRECTORY)."
        )
    return Path(folder) / CREDENTIAL


def _ring() -> Any:
    """A keyring that keeps what it is given. Raises ``StoreError`` where this session has none (ssh, containers, services)."""
    try:
        import keyring
    except ImportError:
        from clawback import installed

        raise StoreError(f"The keyring package is not installed ({installed.add('crypt')}).") from None
    ring = keyring.get_keyring()
    if ring.priority < 1:
        raise StoreError("This session has no keyring (no desktop's secret service was found).")
    return ring


def _name(database: Path) -> str:
    """Of this home among others in one keyring."""
    from hashlib import sha256

    return f"database-{sha256(str(database.resolve()).encode()).hexdigest()[:16]}"


def _from_keyring(database: Path) -> bytes:
    found = _ring().get_password(SERVICE, _name(database))
    if not found:
        raise StoreError(
            f"The keyring has no key for {database}: unlock it, or give the recovery copy to `clawback data encryption recover`."
        )
    key = _key(found, "the keyring")
    if (cache := _cache(database)) is not None:
        replace(cache, key.hex().encode() + b"\n", mode=0o600)
    return key


def _cache(database: Path) -> Path | None:
    """A file in memory that goes when the person logs out: asking the keyring costs more than a hook may take."""
    folder = os.environ.get("XDG_RUNTIME_DIR")
    if not folder:
        return None
    try:
        found = os.stat(folder)  # noqa: PTH116
    except OSError:
        return None
    private = found.st_uid == os.getuid() and not found.st_mode & 0o077
    return Path(folder) / f"clawback-{_name(database)}" if private else None


def _cached(database: Path) -> bytes | None:
    cache = _cache(database)
    if cache is None or not cache.exists():
        return None
    try:
        return _file(cache)
    except StoreError:
        return None

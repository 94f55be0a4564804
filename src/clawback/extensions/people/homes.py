"""Several people on one server: each has a home under a common root, and a token that identifies it.

``ROOT/people/NAME`` is a home like any other: `CLAWBACK_HOME=ROOT/people/ada clawback status` shows it. A
token is ``NAME.SECRET``, so that its owner is read from the token itself and checked against that home alone:
there is no table of tokens, however many people there are.
"""

from __future__ import annotations

import hmac
import re
import secrets
import shutil
from pathlib import Path
from typing import NamedTuple

from clawback.errors import NotFound, UsageError
from clawback.files import replace
from clawback.paths import Home
from clawback.paths import person_of as name_of

__all__ = ["FILES", "NAME", "PersonHomes", "name_of"]
FILES = ("token", "hook-token")
NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,38}")


class PersonHomes(NamedTuple):
    root: Path

    @property
    def house(self) -> Home:
        """The settings of the server itself: the model, the limits."""
        return Home(self.root)

    @property
    def folder(self) -> Path:
        return self.root / "people"

    def home(self, name: str) -> Home:
        """Raises ``UsageError`` for what is no name."""
        if not NAME.fullmatch(name):
            raise UsageError(f"{name[:50]!r} is no name: small letters, digits and dashes, 39 at most.")
        return Home(self.folder / name)

    def names(self) -> list[str]:
        return sorted(path.name for path in self.folder.glob("*") if (path / "token").is_file())

    def add(self, name: str) -> str:
        """Create a home with the server's settings; returns its token. Raises ``UsageError`` where there is one already."""
        home = self.home(name)
        if (home.root / "token").exists():
            raise UsageError(f"{name} is here already. A new token: `clawback people token {name}`.")
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # who is here is nobody's business either
        home.create()
        if self.house.config.exists():
            shutil.copyfile(self.house.config, home.config)
            home.config.chmod(0o600)
        return self.renew(name)

    def renew(self, name: str) -> str:
        """A new token; the old one becomes invalid. Raises ``UsageError``, ``NotFound``."""
        home = self.home(name)
        if not home.root.is_dir():
            raise NotFound(f"There is no {name} here. `clawback people list` shows who there is.")
        for file in reversed(FILES):
            replace(home.root / file, f"{name}.{secrets.token_urlsafe(32)}\n".encode(), mode=0o600)
        return (home.root / "token").read_text("ascii").strip()

    def secrets(self, name: str) -> tuple[bytes, bytes]:
        """A person's token and that of their agents' hooks, as they are now. Raises ``NotFound`` for somebody who is gone."""
        try:
            token, hook = ((self.folder / name / file).read_bytes().strip() for file in FILES)
        except OSError as error:
            raise NotFound(f"{name} is not here any more.") from error
        return token, hook

    def has(self, name: str) -> bool:
        """Whether there is a home of that name."""
        return bool(NAME.fullmatch(name)) and (self.folder / name / "token").is_file()

    def whose(self, token: str) -> str | None:
        """The name that a token proves; None for an invalid token."""
        name, dot, _ = token.partition(".")
        if not dot or not NAME.fullmatch(name):
            return None
        for file in FILES:
            try:
                kept = (self.folder / name / file).read_bytes().strip()
            except OSError:
                continue
            if len(kept) > 32 and hmac.compare_digest(kept, token.encode("utf-8", "replace")):
                return name
        return None

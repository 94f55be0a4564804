"""Where a user's files are. Everything lives under ``$CLAWBACK_HOME`` (default ``~/.clawback``)."""

import os
from pathlib import Path
from typing import NamedTuple

from clawback.errors import ConfigError
from clawback.files import replace

ANOTHER_HOME = "Name another with CLAWBACK_HOME."


HOSTED_KEY_FILE = "hosted-token"
"""The key of the trainer that `clawback lab hosted serve` runs. It trains there and opens nothing else: the owner's token reads turns and rolls back."""


class Home(NamedTuple):
    """The folder that holds all of a user's state, and the names inside it.

    A named tuple: `dataclasses` brings `inspect` along, which costs every hook 5 ms. Its annotations are no texts (no ``from __future__
    import annotations`` here), which it would compile one by one.
    """

    root: Path

    @property
    def config(self) -> Path:
        return self.root / "config.toml"

    @property
    def database(self) -> Path:
        return self.root / "clawback.db"

    @property
    def versions(self) -> Path:
        return self.root / "versions"

    @property
    def models(self) -> Path:
        return self.root / "models"

    @property
    def runs(self) -> Path:
        """Checkpoints of runs that are under way or were interrupted."""
        return self.root / "runs"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def spool(self) -> Path:
        """Events that wait until the database can be written."""
        return self.root / "spool"

    @property
    def speeds(self) -> Path:
        """How fast each model is on this machine, as it was measured."""
        return self.root / "speeds.json"

    @property
    def reward(self) -> Path:
        """The reward model."""
        return self.root / "reward"

    @property
    def reward_lock(self) -> Path:
        return self.root / "reward.lock"

    @property
    def train_lock(self) -> Path:
        return self.root / "train.lock"

    @property
    def judge_lock(self) -> Path:
        return self.root / "judge.lock"

    @property
    def publish_lock(self) -> Path:
        return self.root / "publish.lock"

    @property
    def prompts(self) -> Path:
        """A search for a prompt that is under way or was interrupted."""
        return self.root / "prompts"

    @property
    def move(self) -> Path:
        """A move to another base model that is under way, or waits for the person's choice: a home of its own."""
        return self.root / "move"

    @property
    def prompts_lock(self) -> Path:
        return self.root / "prompts.lock"

    def version(self, number: int) -> Path:
        return self.versions / f"{number:04d}"

    def create(self) -> None:
        """Make the folder, readable by its owner alone."""
        try:
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        except FileExistsError:
            raise ConfigError(f"The home {self.root} is a file, not a folder. {ANOTHER_HOME}") from None
        except (FileNotFoundError, NotADirectoryError) as error:
            raise ConfigError(
                f"The home {self.root} cannot be made: {error.strerror}. {ANOTHER_HOME}"
            ) from error


def home() -> Home:
    """The home that the environment names, with an absolute path."""
    named = os.environ.get("CLAWBACK_HOME")
    return Home(Path(named).expanduser().absolute() if named else Path.home() / ".clawback")


def person_of(home: Home) -> str:
    """The person whose home this is on a server of many people; "" for a home of its own."""
    if home.root.parent.name != "people":
        return ""
    try:
        token = (home.root / "token").read_text("ascii")
    except (OSError, UnicodeDecodeError):
        return ""
    return home.root.name if token.startswith(f"{home.root.name}.") else ""


def tidy(path: Path) -> str:
    """The path as a person writes it: ``~`` for their own folder."""
    own = Path.home()
    return f"~/{path.relative_to(own)}" if path.is_relative_to(own) else str(path)


def tidied(text: str) -> str:
    """The same with ``~`` for their own folder wherever a path in it begins so."""
    own = str(Path.home())
    return text if own == "/" else text.replace(f"{own}/", "~/")


def secret(path: Path) -> str:
    """The random token in that file (0600), made on first use."""
    try:
        found = path.read_text("ascii").strip()
        if len(found) >= 32:
            return found
    except (FileNotFoundError, UnicodeDecodeError):
        pass
    import secrets

    made = secrets.token_urlsafe(32)
    replace(path, f"{made}\n".encode(), mode=0o600)
    return made

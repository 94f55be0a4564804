"""The journal of a hosted run: every request is written down before it is sent, so that a resumed run pays nothing twice.

A trainer executes the requests of a model in the order of their numbers, and does not repeat a request whose
number it has seen. So each request gets a number by its name, once, and the number is on disk before the
request is sent. The file also holds the account.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from clawback.extensions.hosted.trainer_records import CapReached, HostedCost, HostedError, Prices
from clawback.files import replace

if TYPE_CHECKING:
    from clawback.records import JsonObject


@dataclass(frozen=True, slots=True)
class Cap:
    """The most that a run may use; 0: no limit."""

    tokens: int = 0
    money: float = 0.0
    prices: Prices = field(default_factory=Prices)

    def refuses(self, spent: HostedCost) -> str:
        """Why this amount would exceed the cap, or ""."""
        if self.tokens and spent.tokens > self.tokens:
            return f"{spent.tokens:,} tokens, and [hosted] max_tokens is {self.tokens:,}"
        money = spent.money(self.prices)
        if self.money and money > self.money:
            return f"{money:.4f}, and [hosted] max_money is {self.money:g}"
        return ""


class RequestJournal:
    """One run's file. ``fingerprint``: what the run is made of; another run's journal is not continued."""

    def __init__(self, path: Path, fingerprint: str, cap: Cap | None = None) -> None:
        self.path, self.fingerprint, self.cap = path, fingerprint, cap or Cap()
        self.numbers: dict[str, int] = {}
        """Requests of the model as it stands, by name."""
        self.facts: JsonObject = {}
        """Session, model, saved states."""
        self.spent = HostedCost()
        self.models = 0
        """How many models were begun: one, unless the trainer forgot it."""
        self._read()

    def number(self, name: str, cost: HostedCost) -> int:
        """The number of a request; a new request is also charged and written to disk. Raises ``CapReached``."""
        if name in self.numbers:
            return self.numbers[name]
        would = self.spent + cost
        if why := self.cap.refuses(would):
            raise CapReached(f"The next request would bring this run to {why}. Raise the limit to go on.")
        self.numbers[name] = len(self.numbers) + 1
        self.spent = would
        self.write()
        return self.numbers[name]

    def fact(self, name: str, value: object) -> None:
        self.facts[name] = value
        self.write()

    def forget(self) -> None:
        """The trainer does not know the model any more: its requests lose their numbers. What was paid stays counted."""
        self.numbers = {}
        kept = ("gap", "export", "paid:probe", "sample:probe", "probe", "machine")
        self.facts = {name: self.facts[name] for name in kept if name in self.facts}
        self.models += 1
        self.write()

    def write(self) -> None:
        held = {
            "fingerprint": self.fingerprint,
            "numbers": self.numbers,
            "facts": self.facts,
            "spent": asdict(self.spent),
            "models": self.models,
        }
        replace(self.path, json.dumps(held).encode(), mode=0o600)

    def _read(self) -> None:
        try:
            held = json.loads(self.path.read_text("utf-8"))
            if held["fingerprint"] != self.fingerprint:
                return
            self.numbers = {str(k): int(v) for k, v in held["numbers"].items()}
            self.facts, self.spent = dict(held["facts"]), HostedCost(**held["spent"])
            self.models = int(held["models"])
        except FileNotFoundError:
            return
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise HostedError(
                f"{self.path} cannot be read ({error}), so what was paid for is not known. Delete it to begin anew."
            ) from error

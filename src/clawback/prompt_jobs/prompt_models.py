"""The model that answers while prompts are tried, with a meter: a call that would exceed a limit of the settings is not made.

After a stop the meter continues from what the search has already spent, and the gate's paid answers are kept
like the search's.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from clawback import config
from clawback.errors import ClawbackError, UsageError
from clawback.files import append_line
from clawback.paths import Home
from clawback.records import Message

if TYPE_CHECKING:
    from clawback.prompts import LLMBackend, Usage
    from clawback.records import JsonObject
    from clawback.store import Store


LOCAL = "local"
"""The API that is the own live version."""


class BudgetSpent(ClawbackError):
    """One more call would exceed a limit of ``[prompts]``."""


class Meter:
    """A backend that keeps to ``max_tokens`` and ``max_money`` over the search and the gate together, before and after a stop. Calling it asks once."""

    def __init__(self, backend: LLMBackend, settings: config.PromptsSection) -> None:
        self.backend, self.settings = backend, settings
        self.began = backend.usage

    @property
    def usage(self) -> Usage:
        return self.backend.usage - self.began

    def spent_before(self, usage: Usage) -> None:
        """What was used before a stop counts as well."""
        self.began = self.began - usage

    def __call__(self, messages: Sequence[Message]) -> str:
        """Raises ``BudgetSpent`` instead of asking beyond a limit."""
        self.check()
        return self.backend.complete(messages, max_tokens=self.settings.answer_tokens).text

    def check(self) -> None:
        """Raises ``BudgetSpent`` where the next call may not be made."""
        used = self.usage
        for name, value, most in (
            ("max_tokens", used.tokens, self.settings.max_tokens),
            ("max_money", used.money, self.settings.max_money),
        ):
            if most and value >= most:
                raise BudgetSpent(
                    f"[prompts] {name} = {most:g} is used up after {used.calls} calls. Raise it and run the same command again: what was paid for is kept."
                )


class StoredMeter:
    """A meter whose answers are stored as they arrive: repeated in the same order, as after a stop, they are not paid for twice."""

    def __init__(self, path: Path, meter: Meter) -> None:
        self.path, self.meter = path, meter
        self.times: Counter[str] = Counter()
        self.known = {str(one["asked"]): one for one in _lines(path)}

    @property
    def usage(self) -> Usage:
        """The usage of all stored answers."""
        from clawback.prompts.backends import NOTHING, Usage

        return sum((Usage(**one["usage"]) for one in self.known.values()), NOTHING)

    def __call__(self, messages: Sequence[Message]) -> str:
        """Raises ``BudgetSpent``, and what the backend raises."""
        digest = hashlib.sha256(json.dumps(list(messages), sort_keys=True, default=str).encode()).hexdigest()
        self.times[digest] += 1
        key = f"{digest[:32]}:{self.times[digest]}"
        if key not in self.known:
            before = self.meter.usage
            answer = self.meter(messages)
            self.known[key] = {"asked": key, "answer": answer, "usage": (self.meter.usage - before).to_dict()}
            append_line(self.path, json.dumps(self.known[key]))
        return str(self.known[key]["answer"])


def _lines(path: Path) -> list[JsonObject]:
    """The whole lines of a file; one that a crash cut off is paid for again."""
    records = []
    with suppress(FileNotFoundError):
        for line in path.read_text("utf-8", "replace").split("\n"):
            with suppress(ValueError):
                one = json.loads(line)
                if isinstance(one, dict) and {"asked", "answer", "usage"} <= one.keys():
                    records.append(one)
    return records


def model_of(db: Store, settings: config.PromptsSection) -> str:
    """The model to ask: from the settings, or the one that answered last."""
    if settings.api == LOCAL:
        return LOCAL
    if settings.model:
        return settings.model
    return next((t.model for t in db.turns(limit=200) if t.kind == "main" and t.model and not t.model.startswith("clawback")), "")  # fmt: skip


def backend_of(home: Home, db: Store, settings: config.Config) -> LLMBackend:
    """Raises ``UsageError`` where the settings do not say whom to ask, or name a variable that is not set."""
    from clawback.prompts import AnthropicBackend, LocalLLMBackend, Price, VersionBackend

    section = settings.prompts
    if section.api == LOCAL:
        from dataclasses import replace

        from clawback import release

        # Without the live prompt: it is put there, or another one, by who asks.
        return VersionBackend(release.load(home, replace(db.live(), prompt=""), settings))
    url, model = section.url or settings.serve.upstream, model_of(db, section)
    if not url or not model:
        missing = "url" if not url else "model"
        raise UsageError(
            f"[prompts] {missing} is not set, so it is not known whom to ask. `clawback config set prompts.{missing} …`; `prompts.api local` asks your own "
            "live version."
        )
    key = os.environ.get(section.key_env, "") if section.key_env else ""
    if section.key_env and not key:
        raise UsageError(f"The environment variable {section.key_env} ([prompts] key_env) is not set.")
    price = Price(section.price_sent, section.price_received)
    if section.api == "anthropic":
        return AnthropicBackend(model, key, url, price=price)
    backend = LocalLLMBackend(model, url, key)
    backend.price = price
    return backend

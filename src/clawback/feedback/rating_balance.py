"""Whether ratings lean one way: good and bad ones are both needed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from clawback.store import Store

ENOUGH_TO_WARN = 10
ONE_SIDED = 0.9


@dataclass(frozen=True, slots=True)
class Balance:
    """How many active ratings are good and bad; ``warning`` is a sentence, or "" when all is well."""

    good: int
    bad: int
    warning: str


def balance(store: Store) -> Balance:
    """Rating only bad teaches little and can harm: a model must see what is wanted, not just what is not."""
    good, bad = store.count_ratings()
    total, warning = good + bad, ""
    if total >= ENOUGH_TO_WARN and max(good, bad) >= ONE_SIDED * total:
        most, other = ("good", "bad") if good > bad else ("bad", "good")
        warning = (
            f"{max(good, bad)} of your {total} ratings are {most}. Rate {other} ones too: "
            "ratings of one kind teach little, and a version trained on them is unlikely to pass the gate."
        )
    return Balance(good, bad, warning)

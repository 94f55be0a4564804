"""The bodies of the API's requests: requests are decoded into these types, and the API's description is generated from them."""

from __future__ import annotations

import msgspec


class FeedbackBody(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The body of ``POST /api/turns/ID/feedback``."""

    kind: str
    """``good``, ``bad``, ``rate``, ``edit``, ``critique`` (a remark) or ``undo``."""
    value: float = 0
    """1 to 10, for ``rate``; 7.5 is one too."""
    text: str = ""
    event_id: str = ""
    source: str = "web"


class PreferenceBody(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The body of ``POST /api/preferences``."""

    better: int
    worse: int
    tie: bool = False
    """Neither of the two is better."""
    event_id: str = ""


class Done(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The body of ``POST /api/turns/ID/use``: what somebody did with an answer."""

    kind: str
    """``click`` (a link of it), ``copy``, or ``accept``."""


class RollbackBody(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The body of ``POST /api/rollback``; None: to the version before."""

    version: int | None = None


class NewsBody(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The body of ``POST /api/news``."""

    keep: bool
    """True: the new version stays. False: back to the one before it."""


class Used(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The body of ``POST /api/prompts/ID/use``."""

    seen: tuple[str, ...] = ()
    """The new sentences that the person was shown (``unseen`` of ``GET /api/prompts``), to which this is a yes."""


class NewRule(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The body of ``POST /api/rules``."""

    text: str
    """One sentence: what you want of every answer."""


class PairBody(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The body of ``POST /api/pairs``: answer a turn's prompt by two versions."""

    turn: int
    versions: tuple[int, ...] = ()
    seed: int = 0
    keep: bool = False
    """Store both answers as turns, so that one can be preferred to the other; equal answers are not stored."""


class SettingValue(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The body of ``POST /api/settings``."""

    key: str
    value: str = ""
    """As it is typed after ``clawback config set KEY``; empty: the default."""

"""Versions with a prompt: how one is created, and the plain file that shows the live one.

A version is an adapter, a prompt, or both: a new prompt keeps the adapter of the version it was made from,
and a new adapter keeps its prompt. So there is one history, one live version and one rollback, whichever of
the two was learned last.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clawback.errors import UsageError
from clawback.files import replace
from clawback.paths import Home
from clawback.records import Run, Version

if TYPE_CHECKING:
    from clawback.store import Store

_LOCKED = re.compile(r"^(#{1,3} ?\w+) \(locked\)", re.MULTILINE)
LONGEST = 100_000
ALGORITHM = "prompt"
"""Of runs that look for a prompt."""


def source(version: Version) -> str:
    """A version's prompt as a person edits it."""
    return str(version.origin.get("text") or version.prompt)


def propose(
    store: Store,
    text: str,
    *,
    spoken: str | None = None,
    parent: Version | None = None,
    run: Run | None = None,
    origin: Mapping[str, object] | None = None,
) -> Version:
    """Enter a prompt as a candidate version, with the run that found it (which is over by now), in one transaction.

    Args:
        text: as a person edits it.
        spoken: what the model reads; the text without the marks of locked sections where not given.
        parent: whose adapter it keeps; the live version where none is named.
        run: not entered yet; None for a prompt that somebody wrote.

    Raises ``UsageError`` for an empty prompt and for one that is the parent's.
    """
    parent = parent or store.live()
    said = (_LOCKED.sub(r"\1", text) if spoken is None else spoken).strip()
    if len(said) > LONGEST:
        raise UsageError(
            f"The prompt has {len(said):,} characters, above the limit of {LONGEST:,}. Shorten it."
        )
    if not said:
        raise UsageError(
            "The prompt is empty. `clawback versions rollback` goes back to a version without one."
        )
    if said == parent.prompt:
        raise UsageError(f"This is the prompt of version {parent.number} already.")
    made = dict(origin or {}) | ({"text": text} if text.strip() != said else {})
    with store.together():
        entered = store.add_ended_run(run) if run else None
        version = Version(
            0,
            "candidate",
            parent.base,
            parent.base_revision,
            parent=parent.number,
            run_id=entered.id if entered else None,
            path=parent.path,
            prompt=said,
            origin=made | {"sha256": hashlib.sha256(said.encode()).hexdigest()},
        )
        return store.add_candidate(version) if entered else store.add_version(version)


def of_run(store: Store, run: Run) -> tuple[str, Mapping[str, Any]]:
    """The prompt of the version that a run makes, and how it came about: that of its parent, unless the run folds it into the adapter."""
    parent = store.version(run.parent)
    return ("", {}) if folds(run.recipe) else (parent.prompt, parent.origin)


def folds(recipe: Mapping[str, object]) -> str:
    """The prompt that a run of this recipe folds into the adapter, "" for none."""
    from clawback.trainer import conditions_of

    return conditions_of(recipe).system


def of_sentence(store: Store, run: Run, sentence: str) -> Version | None:
    """The sentence that a run read out of the ratings, as a prompt of its own: a candidate over the weights that are live, at the end of the live prompt.

    None where the prompt says it already, or would game. Called again after a crash it finds the version that it made.
    """
    live = store.live()
    for version in store.versions():
        if version.run_id == run.id and version.origin.get("author") == "run":
            return version
    text = f"{live.prompt}\n{sentence}".strip()
    if not sentence or sentence in live.prompt:
        return None
    from clawback.release import screening

    if screening.alarms(text, ()):
        return None
    said = Version(
        0,
        "candidate",
        live.base or run.base,
        live.base_revision or run.base_revision,
        parent=live.number,
        run_id=run.id,
        path=live.path,
        prompt=text,
        origin={"author": "run", "sha256": hashlib.sha256(text.encode()).hexdigest()},
    )
    return store.add_version(said)


def searched(store: Store, version: Version) -> bool:
    """Whether it was found by a search or written by hand, so that who answers is asked to judge it, and not the weights."""
    return version.run_id is None or store.run(version.run_id).kind == "prompt"


def unseen(store: Store, version: Version) -> list[str]:
    """The sentences of its prompt that the person has neither said nor seen."""
    if not version.prompt:
        return []
    templates = version.origin.get("templates") or ()
    from clawback.release import screening

    return screening.unknown(version.prompt, screening.known(store, templates))


def changes(store: Store) -> list[Version]:
    """Versions whose prompt is another than their parent's, oldest first."""
    every = store.versions()
    texts = {v.number: v.prompt for v in every}
    return [v for v in every if v.prompt != texts.get(v.parent or 0, "")]


def accept(store: Store, version: Version) -> list[str]:
    """The person has seen the new sentences and says yes to them. Returns them."""
    new = unseen(store, version)
    store.accept_sentences(new, version.number)
    return new


# ------------------------------------------------------------------------------------------------- the plain file


def file(home: Home) -> Path:
    """The live prompt as a plain file: read it, edit it."""
    return home.root / "prompt.md"


def write(home: Home, version: Version) -> None:
    """Make the file say what the live version's prompt says; what was there is a version already. No file where there never was a prompt."""
    text = source(version)
    if not text and not file(home).exists():
        return
    replace(file(home), (text.rstrip() + "\n" if text else "").encode(), mode=0o600)


def edited(store: Store, home: Home) -> Version | None:
    """The version that a hand edit of the file makes; None where the file says what the live version says.

    It is a candidate, however it came about: an agent that can write files could write this one, so it goes live when the person says so
    (``clawback prompts use``), never by itself.
    """
    try:
        # As it would be stored: a secret in it is taken out, and must not make a new version each time.
        text = str(store.clean(file(home).read_text("utf-8").strip()))
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{file(home)} cannot be read ({error}). Restore it, or remove it.") from error
    live = store.live()
    if not text or text == source(live).strip():
        return None
    for version in reversed(store.versions()):
        if version.prompt and source(version).strip() == text:
            # Gone back to, or entered before: nothing new was written.
            return (
                version if version.status == "candidate" and version.origin.get("author") == "hand" else None
            )
    return propose(store, text, origin={"author": "hand"})

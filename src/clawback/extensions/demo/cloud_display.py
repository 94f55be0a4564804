"""``clawback demo --cloud``: what is shown of the demo for a model whose weights nobody has."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any

from clawback.terminal import fold
from clawback.terminal.progress_bar import progress_bar

if TYPE_CHECKING:
    from rich.console import Console

    from clawback.extensions.demo.cloud_demo import CloudDemo
    from clawback.records import JsonObject


def play(here: CloudDemo, console: Console) -> JsonObject:
    """From beginning to end; what it shows, as data."""
    from clawback.extensions.demo.cloud_demo import RATINGS, changed

    began = time.monotonic()
    say = partial(console.print, highlight=False, markup=False)
    say(f"Somebody who likes: {here.taste.name}. One tap in ten is wrong.")
    say(
        "A cloud model (scripted, on this machine) answers an agent through the proxy. Its weights never change.\n"
    )
    with progress_bar(console.quiet) as follow:
        before = here.look(follow)
    say(f"{before.satisfaction:.0%} of its answers to {len(before.answers)} new questions are liked.")
    with progress_bar(console.quiet) as follow:
        good = here.collect(RATINGS, follow)
    say(f"{RATINGS} taps: {good} good, {RATINGS - good} bad; {here.remarks} with a word.")
    with progress_bar(console.quiet) as follow:
        found, more = here.learn(follow)
    if found.version is None or found.report is None:
        say(f"No prompt was found that is better: {found.stopped}.")
        return _data(here, (before, before), found, more, None) | {"seconds": time.monotonic() - began}
    if more:
        say(f"The gate asked {more} times which of two answers is better.")
    say(f"\n{found.version.prompt}\n")
    say(fold(found.report.summary(), "  ") + ".")
    with progress_bar(console.quiet) as follow:
        after = here.look(follow)
    say(
        f"\n{after.satisfaction:.0%} liked now (before: {before.satisfaction:.0%}); {found.calls} calls were paid for."
    )
    if shown := changed(before.answers, after.answers):
        say(f"\n> {shown[0]}\nbefore: {shown[1]}\nafter:  {shown[2]}")
    back = None
    if found.live:
        older = here.rollback()
        with progress_bar(console.quiet) as follow:
            look = here.look(follow)
        same = look.answers == before.answers
        word = "the very answers of the beginning" if same else "but not the same answers"
        say(
            f"\n$ clawback prompts rollback\nVersion {older.number} is live again: {word}, {look.satisfaction:.0%} liked."
        )
        here.forward(found.version.number)
        say(
            f"$ clawback prompts rollback {found.version.number}\nVersion {found.version.number} is live again."
        )
        back = {"to": older.number, "satisfaction": look.satisfaction, "same_answers": same}
    say(f"\n{here.given} ratings, {time.monotonic() - began:.0f} s. Yours next: docs/prompts.md")
    return _data(here, (before, after), found, more, back) | {"seconds": time.monotonic() - began}


def _data(here: CloudDemo, looks: tuple[Any, Any], search: Any, more: int, back: Any) -> JsonObject:
    """``looks``: at the held-out answers before the search and after it."""
    first_look, after = looks
    return {
        "taste": here.taste.name,
        "seed": here.seed,
        "held_out_before": first_look.satisfaction,
        "held_out_after": after.satisfaction,
        "held_out_answers": len(first_look.answers),
        "ratings": here.given,
        "good": here.good,
        "remarks": here.remarks,
        "asked_for_more": more,
        "version": search.version.number if search.version else None,
        "answers_by": after.version,
        "prompt": search.version.prompt if search.version else "",
        "live": search.live,
        "gate": search.report.to_dict() if search.report else None,
        "calls": search.calls,
        "tokens": search.tokens,
        "rollback": back,
    }

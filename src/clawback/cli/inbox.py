"""``inbox``: what is worth a rating."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from clawback.errors import UsageError
from clawback.terminal import (
    columns,
    current_home,
    emit,
    fold,
    fold_words,
    json_option,
    needs,
    open_store,
    say,
    shorten,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clawback.admin.rating_inbox import AnswerPair, Inbox
    from clawback.records import Turn
    from clawback.store import Store

SIDES = "[1] or [2] is better, [s]ame, [enter] skip, [q]uit"
CHOICES = {"1": "1", "2": "2", "s": "same", "\r": "skipped", "\n": "skipped", "q": "quit", "": "quit"}

NO_PAIRS = "No prompt has two answers that nobody has compared: `clawback inbox --draw` draws some."


@click.command()
@click.option("--limit", default=10, show_default=True, type=click.IntRange(1, 400), help="How many.")
@click.option("--rate", "rating", is_flag=True, help="Rate them one by one, with one key each.")
@click.option("--pairs", is_flag=True, help="Compare two answers to the same prompt.")
@click.option(
    "--draw",
    is_flag=True,
    help="First draw two answers of the live version to so many of your prompts, to compare.",
)
@json_option
def inbox(limit: int, rating: bool, pairs: bool, draw: bool, as_json: bool) -> None:
    """List answers that are worth a rating, most informative first. Unrated answers never count as bad.

    With --rate, the next answer is chosen after each rating, from all ratings so far. Where the gate cannot decide about a new version, which of two
    answers is better is asked first.

    \b
    clawback inbox
    clawback inbox --rate
    clawback inbox --pairs --rate
    clawback inbox --draw --rate --limit 15
    """
    from clawback.admin.rating_inbox import Inbox

    if rating and not sys.stdin.isatty():
        raise UsageError("One key each needs a terminal. From a script: `clawback good --turn N`.")
    if draw:
        _draw(limit, as_json)
    pairs, queue = pairs or draw, Inbox(current_home())
    if rating:
        (_compare if pairs else _rate)(queue, limit)
    elif pairs:
        _list_pairs(queue.pairs(limit), as_json)
    else:
        _list(queue, limit, as_json)


def _draw(count: int, as_json: bool) -> None:
    """Draw answers to compare. Ctrl-C ends the drawing: what is there is asked about."""
    needs("torch")
    from contextlib import suppress

    from clawback.jobs import question_draws
    from clawback.terminal.progress_bar import progress_bar

    with suppress(KeyboardInterrupt), progress_bar(quiet=as_json) as follow:
        question_draws.draw(current_home(), count, follow)


def _list(inbox: Inbox, limit: int, as_json: bool) -> None:
    turns, questions = inbox.next(limit), len(inbox.questions())
    data = [
        {
            "turn": w.turn.id,
            "agent": w.turn.agent,
            "prompt": shorten(w.turn.prompt, 500),
            "response": shorten(w.turn.response, 500),
            "steps": [{"turn": step.id, "calls": call_names(step)} for step in w.steps],
            "gain": w.gain,
            "why": w.why,
        }
        for w in turns
    ]
    lines = [columns(f"{w.turn.id:>6}", w.turn.prompt, w.turn.response) for w in turns]
    hint = [""]
    if questions:
        hint += [f"{_questions(questions)}: `clawback inbox --rate` asks."]
    hint += ["Rate with `clawback good --turn N`, or all of them with `clawback inbox --rate`."]
    text = "\n".join(lines + hint) if turns or questions else _nothing(inbox)
    emit(data, "\n".join(filter(None, [text, _rules_line()])), as_json)


def _nothing(inbox: Inbox) -> str:
    """What is said where no answer waits: imported answers carry an opinion already, and may still be compared."""
    if not inbox.pairs(1):
        return "Nothing is waiting for a rating."
    compare = (
        "No answer waits for a rating, but there are two answers to compare: `clawback inbox --pairs --rate`."
    )
    return fold(compare)


def _rules_line() -> str:
    """The rules that wait for the owner's yes; "" for none."""
    from clawback.feedback.rule_consent import waiting_rules, waiting_sentence

    with open_store() as store:
        return fold(waiting_sentence(waiting_rules(store)))


def _questions(count: int) -> str:
    return f"To decide about a new version, up to {count} comparison{'' if count == 1 else 's'} of two answers {'is' if count == 1 else 'are'} needed"


def call_names(step: Turn) -> list[str]:
    return [str(call.get("name", "?")) for call in step.calls]


def steps_line(steps: Sequence[Turn]) -> str:
    """Which tools were called on the way to an answer, on a line of their own; "" for none."""
    names = [name for step in steps for name in call_names(step)]
    if not names:
        return ""
    plural = "" if len(names) == 1 else "s"
    return f"  ({len(names)} tool call{plural} before it: {shorten(', '.join(names), 55)})\n"


def _list_pairs(pairs: list[AnswerPair], as_json: bool) -> None:
    data = [
        {
            "first": p.first.id,
            "second": p.second.id,
            "prompt": shorten(p.first.prompt, 500),
            "responses": [shorten(p.first.response, 500), shorten(p.second.response, 500)],
            "bits": p.bits,
            "why": p.why,
        }
        for p in pairs
    ]
    lines = [
        columns(f"{p.first.id:>6} {p.second.id:>6}", p.first.prompt, p.first.response, p.second.response)
        for p in pairs
    ]
    hint = ["", "Say which is better with `clawback prefer BETTER WORSE`, or with `--rate`."]
    emit(data, "\n".join(lines + hint) if pairs else NO_PAIRS, as_json)


def _rate(inbox: Inbox, limit: int) -> None:
    """One turn after the other, as in `chat`; each rating is stored at once, and says which is asked about next."""
    from clawback.cli.chat import rate_by_key

    asked, goes_on = _compare(inbox, limit, gate=True)
    if not goes_on:
        return
    shown: set[int] = set()
    with open_store() as store:
        for place in range(asked + 1, limit + 1):
            turn = next((w.turn for w in inbox.next(1, shown)), None)
            if turn is None:
                break
            shown.add(turn.id)
            question, answer = fold_words(f"[{place}/{limit}] {turn.prompt}"), fold_words(turn.response)
            say(f"\n{question}\n{steps_line(inbox.steps[turn.id])}\n{answer}\n")
            if not rate_by_key(store, turn):
                return
    say("That was all." if shown or asked else "Nothing is waiting for a rating.")
    if rules := _rules_line():
        say(rules)


def _compare(inbox: Inbox, limit: int, gate: bool = False) -> tuple[int, bool]:
    """One pair after the other; what is skipped is not shown again. ``gate``: only what the gate asks. How many were shown, and whether to go on."""
    from clawback.cli.chat import known_key
    from clawback.cli.rate import start_training_if_due, training_prepared
    from clawback.terminal.progress_bar import waiting

    shown: set[tuple[int, int]] = set()
    with open_store() as store:
        for place in range(1, limit + 1):
            with waiting("choosing a question"):
                there = inbox.questions() if gate else inbox.pairs(1 + len(shown))
            pair = next((p for p in there if (p.first.id, p.second.id) not in shown), None)
            if pair is None:
                break
            shown.add((pair.first.id, pair.second.id))
            say(_question(pair, f"[{place}/{limit}]{' (for the gate)' if pair.why else ''}"))
            key = known_key(SIDES, CHOICES)
            say(CHOICES[key])
            if key in ("q", ""):
                return len(shown), False
            if key in ("1", "2", "s"):
                say(_answered(store, pair, key))
                if start_training_if_due(store):
                    say(training_prepared(store))
    if not gate:
        say("That was all." if shown else NO_PAIRS)
    return len(shown), True


def _question(pair: AnswerPair, mark: str) -> str:
    both = (pair.first.response, pair.second.response)
    gap = "\n" if "\n" in "".join(both) else " "  # all lines of a list are at the margin
    parts = [f"{mark} {pair.first.prompt}", *(f"[{key}]{gap}{text}" for key, text in enumerate(both, 1))]
    return "\n" + "\n\n".join(map(fold_words, parts)) + "\n"


def _answered(store: Store, pair: AnswerPair, key: str) -> str:
    """Store what the key says of a pair; the sentence that says so."""
    from clawback import feedback

    if key == "s":
        feedback.tie(store, pair.first.id, pair.second.id, source="chat")
        return "Noted: neither is better."
    better, worse = (pair.first, pair.second) if key == "1" else (pair.second, pair.first)
    feedback.prefer(store, better.id, worse.id, source="chat")
    return f"Noted: [{key}] is better (answer {better.id} over {worse.id})."

"""The ``/rl good`` command language: people rate where the answer appears, in the same way in every agent and channel."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from clawback.errors import ClawbackError, UsageError
from clawback.feedback.provenance import OWNER_CHANNELS, is_owner
from clawback.records import CUT, GATE, KIND_WORDS, Feedback
from clawback.scales import score_in, sign_of, value_of

if TYPE_CHECKING:
    from clawback.store import Store, TurnStore

STARTS = ("/rl", "rl:", "/clawback:rl")
HELP = "use good, bad (or 👍, 👎), rate N (1-10), remark TEXT, undo, status, ab (which of two answers is better), y or n (keep the new version, or go back), rules or learn"
_ENDS = "!.,:;"
MOST_LINES = 20
"""Rules that a reply lists."""
ASKS = ("status", "rules", "learn")
"""Words that ask something and are about no answer."""
ADMIN = {"train": "train", "rollback": "versions rollback", "reset": "versions reset"}
"""Words that change more than a rating, and the commands that do the same in a terminal. They are not run here: who may say them is for the place to decide."""
REMARKS = ("remark", "note", "critique")
"""Words in which an answer is described; the first is the one that help names."""
COMPARES = ("ab", "a", "b", "same")
NEWS = {"y": True, "keep": True, "n": False, "back": False}
"""Words about what the last run brought: whether it stays."""
ORDERS = (*ADMIN, *COMPARES, *NEWS)
"""Words that need more than the store; ``admin.remote_commands`` executes them."""
"""The gate's question which of two answers is better, and the answers to it. They are not run here (``jobs.comparing``)."""


@dataclass(frozen=True, slots=True)
class CommandReply:
    """What to tell the person; ``rated``: whether there is something new to learn from."""

    text: str
    rated: bool = False


def parse(text: str) -> list[str] | None:
    """``/rl good short and right`` → ``["good", "short and right"]``; None when it is no command of ours."""
    words = text.strip().split(maxsplit=2)
    if not words:
        return None
    first = words[0].lower()
    if first.startswith("rl:") and len(first) > 3:  # `rl:good`
        words = ["rl:", *text.strip()[3:].split(maxsplit=1)]
    elif first not in STARTS:
        return None
    return [words[1].lower().rstrip(_ENDS) or words[1], *words[2:]] if len(words) > 1 else ["status"]


def run(
    store: TurnStore, words: list[str], turn: int | None, *, post: str = "", source: str, event_id: str = ""
) -> CommandReply:
    """Execute a command about a turn and describe the result in one sentence. Raises nothing, whatever a person types.

    Args:
        words: from ``parse``; the text in them is stored as it is, so remove secrets before.
        turn: None if its answer has not arrived yet. With a ``post`` the feedback waits for it.
    """
    try:
        return _run(store, words, turn, post, source, event_id)
    except ClawbackError as error:
        return CommandReply(str(error))


def _run(
    store: TurnStore, words: list[str], turn: int | None, post: str, source: str, event_id: str
) -> CommandReply:
    from clawback.feedback.due import balance

    what, rest = words[0], words[1] if len(words) > 1 else ""
    if what in ASKS:
        return _report(store, what, source)
    if what == "undo":
        person = store.person_behind(source)
        if turn is None and post and store.undo_early(post, person):
            return CommandReply("Taken back.")
        newest = store.last_feedback(person=person)
        if newest and newest.source == source and store.turn(newest.turn_id).agent == GATE:
            turn = newest.turn_id  # an answer to `/rl ab`
        from clawback.feedback.give import undo

        taken = undo(store, turn, person=person) if turn is not None else None
        return CommandReply(
            f"Taken back ({KIND_WORDS.get(taken.kind, taken.kind)}, turn {taken.turn_id})."
            if taken
            else "There is nothing to take back."
        )
    given, sentence = understood(what, rest)
    given = replace(given, source=source, event_id=event_id)
    if turn is None:
        if not post:
            return CommandReply("There is nothing to rate in this conversation yet.")
        store.put_early(post, given)
        return CommandReply(f"{sentence}, for the answer that is still to come.")
    store.add_feedback(replace(given, turn_id=turn))
    words = [f"{sentence} (turn {turn})."]
    if (ending := store.ending(turn)) in CUT:
        from clawback.endings import notice

        words.append(notice(ending))
    return CommandReply(" ".join(filter(None, [*words, balance(store).warning])), rated=True)


def _report(store: TurnStore, what: str, source: str) -> CommandReply:
    """What somebody asks is about runs and rules as well: the whole store has those."""
    if what != "status" and source not in OWNER_CHANNELS:
        return CommandReply(f"`{what}` shows what is the owner's alone: `clawback rules` in a terminal.")
    from clawback.store import connect

    with connect(store.path) as full:
        if what == "status":
            return CommandReply(status(full, source))
        return CommandReply(rules(full) if what == "rules" else learn(full))


def understood(what: str, rest: str) -> tuple[Feedback, str]:
    """A word and its text as feedback on a turn to be named: of every surface, from the terminal to a chat. Raises ``UsageError`` for a word that there is not.

    >>> [understood(*said)[1] for said in (("good!", ""), ("👎", "too long"), ("rate", "7.5"), ("thumbs", "up"), ("8", "fine"))]
    ['Noted: good', 'Noted: bad', 'Noted: 7.5 of 10', 'Noted: good', 'Noted: 8 of 10']
    """
    if what in REMARKS and rest:
        return Feedback(0, "critique", 0.0, rest), "Noted"
    opinion = rest if what == "rate" else f"{what} {rest}".strip()
    first, _, note = opinion.partition(" ")
    if what == "thumbs" and note:
        second, _, note = note.strip().partition(" ")
        first = f"{first} {second}"
    sign = sign_of(first)
    if sign is not None:
        return Feedback(0, "rating", sign, note.strip()), f"Noted: {'good' if sign > 0 else 'bad'}"
    found = score_in(first)
    if found is None:
        raise UsageError(f"That was not understood: {HELP}.")
    score, scale = found
    given = Feedback(0, "rating", value_of(score, scale), note.strip(), score=score, scale=scale)
    return given, f"Noted: {score:g} of {scale.rpartition('-')[2]}"


def rules(store: Store) -> str:
    """The rules and how often each was kept, a line each."""
    from clawback.feedback.rule_consent import waiting_rules

    listed = store.rules("believed", "proposed")
    if not listed:
        return 'there are no rules yet. `clawback rules add "Never apologise."` in a terminal adds one.'
    waiting = {rule.id for rule in waiting_rules(store)}
    counts: dict[int, tuple[int, int]] = {}
    for one in store.obedience():
        kept, checked = counts.get(one.rule_id, (0, 0))
        counts[one.rule_id] = (kept + one.passes, checked + one.checked)
    lines = [
        f"{len(listed)} {'rule' if len(listed) == 1 else 'rules'}. `clawback rules show N` lists the breaches of one."
    ]
    for rule in listed[:MOST_LINES]:
        kept, checked = counts.get(rule.id, (0, 0))
        share = f"kept in {kept} of {checked} answers" if checked else "not checked yet"
        waits = ", waits for your yes" if rule.status == "proposed" or rule.id in waiting else ""
        lines.append(f"{rule.id}. {rule.text} ({share}{waits})")
    return "\n".join(lines)


def learn(store: Store) -> str:
    """What an agent would read to propose rules, for the person to look at before anything is sent."""
    from clawback.feedback.rated_examples import ANSWER, preview, rated_examples

    examples = rated_examples(store)
    liked = sum(one.liked for one in examples)
    if not liked or liked == len(examples):
        return "rules are read out of liked answers beside disliked ones: rate some of each first."
    return (
        f"nothing was sent yet. Your agent would read {liked} liked and {len(examples) - liked} disliked answers, without secrets,"
        f" of each at most {ANSWER:,} characters:\n{preview(examples)}\n"
        'To go on, ask your agent: "Propose rules for Clawback." It reads them by the tool rules_examples and proposes by propose_rules'
        " (`clawback connect mcp`); each rule waits for your yes in `clawback rules`."
    )


def status(store: Store, source: str = "") -> str:
    """Which version is live and what it could learn from, in one sentence; for the owner, also what is new."""
    live = store.live().number
    good, bad = store.count_ratings()
    name = "The base model" if live == 0 else f"Version {live}"
    waits = sum(not early.lost for early in store.early())
    waiting = (
        f" {waits} {'rating waits for its answer' if waits == 1 else 'ratings wait for their answers'}."
        if waits
        else ""
    )
    from clawback.feedback.due import last_failure, no_gain
    from clawback.feedback.news import news
    from clawback.feedback.rule_consent import waiting_rules, waiting_sentence

    run, failed = store.current_run(), last_failure(store)
    training = " A training run is under way." if run else ""
    if run and run.status == "preparing":
        training = " A training run is being prepared."
    if run and run.interrupted:
        training = " A training run was interrupted; `clawback train` goes on with it."
    if failed and not run:
        training = f" The last training run failed: {failed.why}"
    undecided, skipped = store.waiting(), no_gain(store)
    asks = (
        f" Which of two answers is better is asked about version {undecided[0]}: `/rl ab` here, or `clawback inbox --rate`."
        if undecided
        else ""
    )
    asks += f" {skipped['why']}." if skipped else ""
    if source and is_owner(store, source):
        if (current := news(store)) and current.live:
            asks += f" {current.command_sentence}"
        if rules_waiting := waiting_sentence(waiting_rules(store)):
            asks += f" {rules_waiting}"
    return f"{name} is live; {good} good and {bad} bad ratings, {store.count_fresh()} not learned from yet.{waiting}{training}{asks}"

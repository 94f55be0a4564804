"""Import and export of turns: JSONL with feedback, and the transcripts that Claude Code keeps.

What a line may hold is in ``rated_lines``; what an export holds comes back the same: every kind of feedback, by whom, when, in what words. Every line
is identified by a hash of its content, so that importing the same file twice adds nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from clawback.capture import claude_transcript, rated_lines, rows
from clawback.capture.exchanges import Exchange
from clawback.capture.rated_lines import BadLine
from clawback.errors import NotFound, UsageError
from clawback.records import OWNER, Feedback, Message, Turn
from clawback.redact import redact

if TYPE_CHECKING:
    from clawback.store import Store

TRANSCRIPT = "claude-transcript:"
"""How the event ids of turns begin that come from a transcript."""
SOURCE = "import"
Consent = Literal["", "yes", "no"]


@dataclass(slots=True)
class Report:
    """The result of an import: new turns, new feedback, what was known already, what could not be read, and how columns were read."""

    turns: int = 0
    feedback: int = 0
    known: int = 0
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


# ---------------------------------------------------------------------------------------------------- JSONL in


def import_file(
    store: Store,
    path: Path,
    *,
    scale: str = "auto",
    consent: Consent = "",
    licence: str = "",
    required: bool = False,
    person: str = "",
    rating_field: str = "",
) -> Report:
    """Bring in every line that can be read; the others are named in the report with their number.

    ``consent`` and ``licence`` are those of lines that name none; ``required``: without consent a line is never trained on. ``scale``: of
    numbers whose column does not say it (``1-5``). ``person``: whose opinions these are where a line names nobody: the owner's. ``rating_field``: a
    field to read as the rating. Raises ``NotFound`` when there is no such file.
    """
    lines = path if path.is_file() else list(rows.read(path))  # a pipe is read once
    read = rated_lines.columns(_objects(_rows(lines)), scale, rating_field)
    importing = _Import(
        store, read, Report(notes=read.notes), consent, licence, required, person, rating_field
    )
    for row in _rows(lines):
        try:
            with store.together():
                importing.add(_parse(row))
        except BadLine as error:
            importing.report.problems.append(f"line {row.number}: {error}")
        except (UnicodeError, OverflowError, RecursionError) as error:
            problem = f"line {row.number}: holds what cannot be stored ({type(error).__name__})"
            importing.report.problems.append(problem)
    importing.add_preferences()
    return importing.report


def scored_lines(
    path: Path, scale: str = "auto"
) -> Iterator[tuple[int, tuple[Message, ...], str, float | None]]:
    """(line number, messages, response, rating in [-1, 1] or None) of every line, without a store.

    Raises ``NotFound`` without a file, ``UsageError`` with its number at the first line that cannot be read.
    """
    lines = list(rows.read(path))
    read = rated_lines.columns(_objects(lines), scale)
    for row in lines:
        try:
            data = _parse(row)
            messages, response = rated_lines.conversation(data)
            ratings = [f.value for f in rated_lines.feedback(data, read) if f.kind == "rating"]
        except BadLine as error:
            raise UsageError(f"Line {row.number} of {path}: {error}.") from error
        yield row.number, messages, response, ratings[-1] if ratings else None


def _rows(lines: Path | list[rows.Row]) -> Iterator[rows.Row]:
    return rows.read(lines) if isinstance(lines, Path) else iter(lines)


def _objects(lines: Iterator[rows.Row] | list[rows.Row]) -> Iterator[dict[str, Any]]:
    for row in lines:
        try:
            yield _parse(row)
        except BadLine:
            continue  # named when the line is imported


def _parse(row: rows.Row) -> dict[str, Any]:
    try:
        data = row.decoded()
    except ValueError as error:
        raise BadLine(str(error)) from error
    if not isinstance(data, dict):
        raise BadLine("not a JSON object")
    return data


@dataclass(slots=True)
class _Import:
    """One file on its way in."""

    store: Store
    read: rated_lines.Columns
    report: Report
    consent: Consent
    licence: str
    required: bool
    person: str
    rating_field: str
    turns: dict[str, int] = field(default_factory=dict)
    """Event id in the file → turn."""
    waiting: list[tuple[str, int, Feedback]] = field(default_factory=list)
    """Preferences whose worse turn may come later: (its event id, the better turn, what was said)."""

    def add(self, data: dict[str, Any]) -> None:
        """One line, checked as a whole before anything of it is stored. Raises ``BadLine``."""
        if (sides := rated_lines.pair(data)) is not None:
            messages, better, worse = sides
            said = Feedback(0, "preference", 1.0, rated_lines.text(data, "note"), person=rated_lines.text(data, "person") or self.person)  # fmt: skip
            first, second = (self._turn(data, messages, answer, "") for answer in (better, worse))
            winner, loser = self._stored(first), self._stored(second)
            self._keep(
                replace(said, turn_id=winner.id, other_turn_id=loser.id),
                f"{first.event_id}>{second.event_id}",
            )
            return
        messages, response = rated_lines.conversation(data)
        given = list(rated_lines.feedback(data, self.read, self.person, self.rating_field))
        compared = list(rated_lines.preferences(data))
        turn = self._turn(data, messages, response, str(data.get("event_id") or ""))
        stored = self._stored(turn)
        self.turns[turn.event_id] = stored.id
        for number, one in enumerate(given):
            mark = f"{turn.event_id}{number if one.created_at else ''}"
            self._keep(replace(one, turn_id=stored.id), mark)
        self.waiting += [(over, stored.id, one) for over, one in compared]

    def add_preferences(self) -> None:
        """Preferences between turns of the file, when all of them are there."""
        for over, better, said in self.waiting:
            worse = self.turns.get(over)
            if worse is None or worse == better:
                self.report.problems.append(
                    f"a preference: the turn {over!r}, which it is over, is not in the file"
                )
                continue
            self._keep(replace(said, turn_id=better, other_turn_id=worse), f"{better}>{worse}")

    def _turn(
        self, data: Mapping[str, Any], messages: tuple[Message, ...], response: str, event: str
    ) -> Turn:
        name = _hash(messages, response, str(data.get("session", "")))
        return Turn(
            session=str(data.get("session") or "import"),
            messages=messages,
            response=response,
            agent=str(data.get("agent") or "import"),
            model=str(data.get("model") or ""),
            event_id=event or f"import:{name}",
            created_at=rated_lines.moment(data),
            consent=_consent(data, self.consent, self.required),
            licence=rated_lines.text(data, "licence") or self.licence,
            ending=rated_lines.ending(data),
        )

    def _stored(self, turn: Turn) -> Turn:
        known = _exported_here(self.store, turn)
        stored, new = (known, False) if known else _add(self.store, turn)
        self.report.turns += new
        self.report.known += not new
        return stored

    def _keep(self, given: Feedback, mark: str) -> None:
        """Store what is not there yet. What machines said keeps their name; all other words are of a file, whoever is named in it."""
        author = given.author if given.person else OWNER
        machine = author.startswith(("judge:", "hint:", "teacher:")) or given.kind in (
            "judge",
            "implicit",
            "reward",
        )
        there = self.store.feedback(turn_id=given.turn_id)
        if given.created_at and any(_same(given, author, one) for one in there):
            return
        before = self.store.count_all_feedback()
        content = f"{given.kind}{given.value}{given.text}{given.person}{given.created_at or ''}"
        self.store.add_feedback(
            replace(
                given,
                text=redact(given.text),
                source=author if machine else SOURCE,
                person=author,
                event_id=f"import:{_hash((), content, mark)}",
            )
        )
        self.report.feedback += self.store.count_all_feedback() - before


def _same(given: Feedback, author: str, there: Feedback) -> bool:
    """Whether this is in the store already, by another way than this file."""
    fields = ("turn_id", "other_turn_id", "kind", "value", "text", "created_at", "score", "scale")
    return there.author == author and all(getattr(given, f) == getattr(there, f) for f in fields)


def _exported_here(store: Store, turn: Turn) -> Turn | None:
    """The turn of this home that an export of it names by number, if it says the same."""
    start, number, mark = [*turn.event_id.split(":"), "", ""][:3]
    if start != "turn" or not number.isdecimal():
        return None
    try:
        found = store.turn(int(number))
    except NotFound:
        return None
    same = not found.event_id and found.response == turn.response
    return found if same and (not mark or mark == _name(found)) else None


def _consent(data: Mapping[str, Any], default: Consent, required: bool) -> Consent:
    """What a line says of it: true, false, or nothing."""
    said = data.get("consent")
    if said is not None and not isinstance(said, bool):
        raise BadLine("`consent` is neither true nor false")
    found: Consent = default if said is None else "yes" if said else "no"
    return "no" if required and not found else found


def _add(store: Store, turn: Turn, seen_at: float | None = None) -> tuple[Turn, bool]:
    before = store.count_turns()
    stored = store.add_turn(turn, seen_at=seen_at)
    return stored, store.count_turns() > before


def _hash(messages: tuple[Message, ...], response: str, extra: str) -> str:
    whole = json.dumps([messages, response, extra], sort_keys=True, ensure_ascii=True, default=str)
    return hashlib.sha256(whole.encode()).hexdigest()[:32]


# --------------------------------------------------------------------------------------------------- JSONL out


def export_file(
    store: Store,
    path: Path,
    *,
    everything: bool = False,
    session: str = "",
    person: str = "",
    turns: Collection[int] = (),
) -> int:
    """Write rated turns (or all of them), oldest first, and return how many. ``session``: all of that one's; ``person``: the turns that this
    person said something about, with what they said; ``turns``: these in any case. A turn to which one of them is preferred goes along.

    The file appears whole or not at all, and is readable by its owner alone.
    """
    chosen: dict[int, list[Feedback]] = {}
    for turn in _oldest_first(store, session=session or None):
        said = store.feedback(turn_id=turn.id)
        if person and turn.id not in turns:
            said = [given for given in said if person in (given.author, given.source)]
        if turns and not person and turn.id not in turns:
            continue
        if said or turn.id in turns or ((everything or session) and not person):
            chosen[turn.id] = said
    others = {i for said in chosen.values() for f in said for i in (f.turn_id, f.other_turn_id) if i}
    chosen |= {number: [] for number in others - chosen.keys()}
    beside = path.with_name(path.name + ".part")
    with os.fdopen(
        os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8"
    ) as file:
        for number in sorted(chosen):
            file.write(json.dumps(_as_line(store, number, chosen[number]), ensure_ascii=False) + "\n")
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
    return len(chosen)


def _oldest_first(store: Store, page: int = 500, session: str | None = None) -> Iterator[Turn]:
    newest_first: list[int] = []
    before: int | None = None
    while found := store.turns(limit=page, before=before, session=session):
        newest_first += [t.id for t in found]
        before = found[-1].id
    for number in reversed(newest_first):
        yield store.turn(number)


def _event_id(turn: Turn) -> str:
    """A name for the turn that no turn of another home has."""
    return turn.event_id or f"turn:{turn.id}:{_name(turn)}"


def _name(turn: Turn) -> str:
    return _hash(turn.messages, turn.response, turn.session)[:16]


def _as_line(store: Store, number: int, feedback: list[Feedback]) -> dict[str, Any]:
    turn = store.turn(number)
    line: dict[str, Any] = {
        "messages": [dict(m) for m in turn.messages],
        "response": turn.response,
        "session": turn.session,
        "agent": turn.agent,
        "model": turn.model,
        "event_id": _event_id(turn),
        "created_at": turn.created_at,
    }
    if turn.ending:
        line["ending"] = turn.ending
    if turn.consent:
        line["consent"] = turn.consent == "yes"
    if turn.licence:
        line["licence"] = turn.licence
    own = sorted((f for f in feedback if f.turn_id == turn.id), key=lambda f: f.moment)
    for given in own:  # for other readers: the last word stands
        if given.kind == "rating":
            line |= {"rating": given.value} | ({"note": given.text} if given.text else {})
        elif given.kind in ("edit", "critique"):
            line[given.kind] = given.text
    if own:
        line["feedback"] = [
            rated_lines.entry(f, _event_id(store.turn(f.other_turn_id)) if f.other_turn_id else "")
            for f in own
        ]
    return line


# ------------------------------------------------------------------------------------- Claude Code transcripts


def import_transcripts(store: Store, path: Path) -> Report:
    """Turns of Claude Code transcripts: one file, or every ``*.jsonl`` of a folder (sub-agents' are left out).

    What hooks or our own server captured is known. Lines that cannot be read (the last one is often half written) and types that are
    not known are passed over, and so are failures without an answer. What was cut has its ``ending``.
    """
    if not path.exists():
        raise NotFound(f"There is no file or folder {path}.")
    files = (
        [path] if path.is_file() else sorted(p for p in path.rglob("*.jsonl") if "subagents" not in p.parts)
    )
    report = Report()
    heard: dict[str, list[tuple[str, str]]] = {}
    for file in files:
        lines = (row.text for row in rows.read(file) if row.text)
        conversation: list[Message] = []
        for one in claude_transcript.read(lines):
            asked = "\n\n".join(one.asked) or one.notice
            if not asked or not one.text or (one.notice and not conversation):
                continue
            turn = _transcript_turn(file, conversation, asked, one)
            new = not _captured(store, turn, one, heard) and _add(store, turn, seen_at=one.at or None)[1]
            report.turns += new
            report.known += not new
            conversation += [turn.messages[-1], _message("assistant", one.text)]
    return report


def _captured(store: Store, turn: Turn, one: Exchange, heard: dict[str, list[tuple[str, str]]]) -> bool:
    """Whether hooks or our server have stored this answer: the prompt's name is known, or the session has these words.

    ``heard``: session → what it has of prompts and answers, filled here.
    """
    agent = turn.agent
    if any(store.at_post(f"{agent}:prompt:{turn.session}:{name}") for name in one.ids if name):
        return True
    if turn.session not in heard:
        live = [
            t for name in (turn.session, f"{agent}:{turn.session}") for t in store.turns(1000, session=name)
        ]
        heard[turn.session] = [
            (_words(t.prompt), _words(t.response)) for t in live if not t.event_id.startswith(TRANSCRIPT)
        ]
    asked, said = {_words(text) for text in (turn.prompt, *one.asked)}, _words(turn.response)
    # Of several blocks of text a hook heard the last.
    return any(answer and prompt in asked and said.endswith(answer) for prompt, answer in heard[turn.session])


def _words(text: str) -> str:
    return " ".join(text.split())


def _message(role: str, text: str) -> Message:
    return {"role": role, "content": redact(text)}


def _transcript_turn(path: Path, earlier: list[Message], asked: str, one: Exchange) -> Turn:
    return Turn(
        session=one.session or path.stem,
        messages=(*earlier, _message("user", asked)),
        response=redact(one.text),
        agent="claude-code",
        ending=one.ending,
        model=one.model,
        cwd=one.cwd,
        event_id=f"{TRANSCRIPT}{one.name.split()[-1] if one.name.strip() else _hash((), asked, path.name)}",
        created_at=one.at,
    )

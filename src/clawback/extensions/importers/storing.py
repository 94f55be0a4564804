"""Stores entries, each once: turns by their event id, feedback by its content. A kill leaves what was stored, and the next import goes on from there."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from clawback.errors import NotFound
from clawback.extensions.chat_histories.agent_sessions import TRANSCRIPT
from clawback.extensions.data_sets.entries import ASKED_AGAIN, CORRECTED, KEPT, Consent, Entry, digest
from clawback.records import OWNER, Feedback, Turn
from clawback.redact import redact

if TYPE_CHECKING:
    from clawback.store import Store

SOURCE = "import"
_LIVE = 1000
"""Newest turns of a session that are compared with an agent's own record of it."""


@dataclass(slots=True)
class ImportReport:
    """The result of an import: new turns, new feedback, what was known already, what could not be read, and how columns were read."""

    turns: int = 0
    feedback: int = 0
    known: int = 0
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Importer:
    """Puts entries into a store. ``consent`` and ``licence`` are those of records that name none; ``required``: without consent a record is
    never trained on. ``source``: the surface under which opinions are stored."""

    store: Store
    report: ImportReport
    consent: Consent = ""
    licence: str = ""
    required: bool = False
    live: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    """Session → prompts and answers that hooks or our server captured."""

    def add(self, entry: Entry, *, history: bool = False) -> None:
        """Store an entry as a whole. Links to turns of other entries are left to ``link``."""
        stored = []
        for place, turn in enumerate(entry.turns):
            captured = bool(entry.prompts) and self._captured(turn, *entry.prompts[place])
            stored.append(None if captured else self._store_turn(turn, history=history))
            self.report.known += captured
        mark_of = [turn.event_id for turn in entry.turns]
        counted: dict[int, int] = {}
        for opinion in entry.feedback:
            about = stored[opinion.turn_id]
            other = stored[opinion.other_turn_id] if opinion.other_turn_id is not None else None
            if about is None or (opinion.other_turn_id is not None and other is None):
                continue
            place = counted.get(opinion.turn_id, 0)
            counted[opinion.turn_id] = place + 1
            if opinion.other_turn_id is not None:
                mark = f"{mark_of[opinion.turn_id]}>{mark_of[opinion.other_turn_id]}"
            else:
                mark = f"{mark_of[opinion.turn_id]}{place if opinion.created_at and not history else ''}"
            self._keep(replace(opinion, turn_id=about.id, other_turn_id=other.id if other else None), mark)

    def link(self, entry: Entry) -> list[str]:
        """Store what an entry says of turns of others; event ids of those that are not there."""
        missing = []
        for about, opinion in entry.links:
            turn = self._by_name(about)
            if not entry.turns:
                if turn is None:
                    missing.append(about)
                else:
                    self._keep(replace(opinion, turn_id=turn.id), about)
                continue
            better = self._by_name(entry.turns[opinion.turn_id].event_id)
            if turn is None or better is None or turn.id == better.id:
                missing.append(about)
            else:
                self._keep(
                    replace(opinion, turn_id=better.id, other_turn_id=turn.id), f"{better.id}>{turn.id}"
                )
        return missing

    # ------------------------------------------------------------------------------------------------------- turns

    def _by_name(self, event_id: str) -> Turn | None:
        turn = self.store.turn_of_event(event_id)
        return turn if turn is not None else exported_here(self.store, event_id)

    def _store_turn(self, turn: Turn, *, history: bool) -> Turn:
        agreed = turn.consent or self.consent
        consent: Consent = "no" if self.required and not agreed else agreed
        turn = replace(turn, consent=consent, licence=turn.licence or self.licence)
        known = exported_here(self.store, turn.event_id, turn.response)
        if known is None and history:
            there = self.store.turn_of_event(turn.event_id)
            if (
                there is not None
                and there.response != self.store.clean(turn.response)
                and turn.agent != "claude-code"
            ):
                turn = replace(
                    turn, event_id=f"{turn.event_id}:{digest((), turn.response, '')[:8]}"
                )  # it was edited since
        stored, new = (
            (known, False)
            if known
            else add(self.store, turn, seen_at=(turn.created_at or None) if history else None)
        )
        if turn.next_state:
            self.store.put_next_state(stored.id, turn.next_state)
        self.report.turns += new
        self.report.known += not new
        return stored

    def _captured(self, turn: Turn, names: tuple[str, ...], questions: tuple[str, ...]) -> bool:
        """Whether hooks or our server have stored this answer: the prompt's name is known, or the session has these words."""
        agent = turn.agent
        if any(self.store.at_post(f"{agent}:prompt:{turn.session}:{name}") for name in names if name):
            return True
        if turn.session not in self.live:
            bare = turn.session.removeprefix(f"{agent}:")
            sessions = dict.fromkeys((turn.session, f"{agent}:{bare}", bare))
            turns = [t for name in sessions for t in self.store.turns(_LIVE, session=name)]
            self.live[turn.session] = [
                (_words(t.prompt), _words(t.response))
                for t in turns
                if not t.event_id.startswith(
                    (TRANSCRIPT, "codex-rollout:", "gemini-chat:", f"{turn.session}:")
                )
                or ":prompt:" in " ".join(self.store.posts_of(t.id))
            ]
        prompts, response = {_words(text) for text in (turn.prompt, *questions)}, _words(turn.response)
        # Of several blocks of text a hook heard the last.
        return any(
            answer and prompt in prompts and response.endswith(answer)
            for prompt, answer in self.live[turn.session]
        )

    # ---------------------------------------------------------------------------------------------------- feedback

    def _keep(self, opinion: Feedback, mark: str) -> None:
        """Store what is not there yet. What machines said keeps their name; all other words are of a file, whoever is named in it."""
        author = opinion.author if opinion.person else OWNER
        machine = author.startswith(("judge:", "hint:", "teacher:")) or opinion.kind in (
            "judge",
            "implicit",
            "reward",
        )
        if opinion.created_at:
            there = self.store.feedback(turn_id=opinion.turn_id)
            if any(_same(opinion, author, one) for one in there):
                return
        guess = author in (KEPT, ASKED_AGAIN, CORRECTED)
        content = f"{opinion.kind}{opinion.value}{opinion.text}{opinion.person}{opinion.created_at or ''}"
        event_id = (
            f"implicit:{author}:{opinion.turn_id}:{opinion.other_turn_id or ''}"
            if guess
            else f"import:{digest((), content, mark)}"
        )
        if author == ASKED_AGAIN:
            event_id = f"implicit:asked-again:{opinion.turn_id}"  # as where it is noticed live
        newest = self.store.count_all_feedback()
        stored = self.store.add_feedback(
            replace(
                opinion,
                text=redact(opinion.text),
                source=author if machine else SOURCE,
                person=author,
                event_id=event_id,
            )
        )
        self.report.feedback += stored.id > newest


def add(store: Store, turn: Turn, seen_at: float | None = None) -> tuple[Turn, bool]:
    """The turn as it is stored, and whether it is new."""
    before = store.count_turns()
    stored = store.add_turn(turn, seen_at=seen_at)
    return stored, store.count_turns() > before


def exported_here(store: Store, event_id: str, response: str | None = None) -> Turn | None:
    """The turn of this home that an export of it names by number, if it says the same."""
    start, number, mark = [*event_id.split(":"), "", ""][:3]
    if start != "turn" or not number.isdecimal():
        return None
    try:
        turn = store.turn(int(number))
    except NotFound:
        return None
    same = not turn.event_id and response in (None, turn.response)
    return turn if same and (not mark or mark == content_name(turn)) else None


def content_name(turn: Turn) -> str:
    """A short name of what a turn says."""
    return digest(turn.messages, turn.response, turn.session)[:16]


def _same(opinion: Feedback, author: str, there: Feedback) -> bool:
    """Whether this is in the store already, by another way than this file."""
    fields = ("turn_id", "other_turn_id", "kind", "value", "text", "created_at", "score", "scale")
    return there.author == author and all(getattr(opinion, f) == getattr(there, f) for f in fields)


def _words(text: str) -> str:
    return " ".join(text.split())

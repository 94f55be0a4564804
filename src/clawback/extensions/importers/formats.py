"""The one list of formats: how each is recognised by the shape of a record, and what reads it. The first that fits is taken."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from clawback.extensions.chat_histories import agent_sessions, chatgpt, chats, local_chats
from clawback.extensions.chat_histories import open_webui_chats as open_webui
from clawback.extensions.data_sets import annotated, lines, pair_records, ranked, sets, verdicts
from clawback.extensions.data_sets.entries import BadLine, Entry, FileReading, Record


@dataclass(frozen=True, slots=True)
class Format:
    """A way in which records are written.

    ``read`` gives the entries of one record, or (``of_file``) of all records of a file that make up one conversation, or one session.
    """

    name: str
    title: str
    fits: Callable[[Record], bool]
    read: Callable[..., Iterator[Entry]]
    kind: Literal["history", "set", "own"] = "history"
    of_file: bool = False
    conversation: Callable[[Record], str] | None = None
    """The conversation of a record, where a file of an ``of_file`` format holds many."""
    stranger: str = ""
    """Whose the opinions are in a set that strangers made (``set:NAME``); "" for the owner's, or for whom a record names."""
    scores: Callable[[Record], Iterable[tuple[str, Any]]] | None = None
    """(column, value) of all numbers whose scale the column says."""
    person: Callable[[Record], str] | None = None
    """Who rated, in exports of programs that several people use."""

    def entries(self, record: Record, reading: FileReading) -> Iterator[Entry]:
        """Of one record. Raises ``BadLine``."""
        if self.stranger:
            from dataclasses import replace

            reading = replace(reading, person=reading.author(self.stranger))
        yield from self.read(record, reading)


def _opinion(record: Record) -> Iterator[tuple[str, Any]]:
    record = lines.lowered(record)
    name, value = lines.opinion(record)
    if name and not isinstance(record.get("feedback"), list) and not record.get("scale"):
        yield name, value


def _webui(read: Callable[..., Iterator[Entry]]) -> Callable[[Record, FileReading], Iterator[Entry]]:
    def of_person(record: Record, reading: FileReading) -> Iterator[Entry]:
        several = (
            len(reading.columns.values.get("person", ())) > 1 and not reading.mine and not reading.person
        )
        yield from read(
            record, reading, f"open-webui:{open_webui.user_of_open_webui(record)}" if several else ""
        )

    return of_person


def _history(
    name: str, title: str, fits: Callable[[Record], bool], read: Callable[..., Iterator[Entry]], **more: Any
) -> Format:
    return Format(name, title, fits, read, **more)


def _set(
    name: str, title: str, fits: Callable[[Record], bool], read: Callable[..., Iterator[Entry]], **more: Any
) -> Format:
    return Format(name, title, fits, read, "set", **more)


FORMATS: tuple[Format, ...] = (
    _history("claude-code", "Claude Code", agent_sessions.is_claude_code, agent_sessions.read_claude_code, of_file=True),
    _history("codex", "Codex", agent_sessions.is_codex, agent_sessions.read_codex, of_file=True),
    _history("openclaw", "OpenClaw", agent_sessions.is_openclaw, agent_sessions.read_openclaw, of_file=True),
    _history("gemini-cli", "Gemini CLI", agent_sessions.is_gemini, agent_sessions.read_gemini, of_file=True),
    _history("opencode", "opencode", agent_sessions.is_opencode, agent_sessions.read_opencode),
    _history("hermes", "Hermes", agent_sessions.is_hermes, agent_sessions.read_hermes),
    _history("chatgpt", "ChatGPT", chatgpt.is_chatgpt, chatgpt.read_chatgpt),
    _history("chatgpt-feedback", "ChatGPT's thumbs", chatgpt.is_chatgpt_feedback, chatgpt.read_chatgpt_feedback),
    _history("claude.ai", "Claude.ai", chats.is_claude, chats.read_claude),
    _history(
        "open-webui-feedback", "Open WebUI's feedback", open_webui.is_open_webui_feedback, _webui(open_webui.read_open_webui_feedback),
        person=open_webui.user_of_open_webui,
    ),
    _history("open-webui", "Open WebUI", open_webui.is_open_webui, _webui(open_webui.read_open_webui), person=open_webui.user_of_open_webui),
    _history("lm-studio", "LM Studio", local_chats.is_lm_studio, local_chats.read_lm_studio),
    _history("librechat", "LibreChat", local_chats.is_librechat, local_chats.read_librechat),
    _history("grok", "Grok", chats.is_grok, chats.read_grok),
    _history("text-generation-webui", "text-generation-webui", local_chats.is_text_webui, local_chats.read_text_webui),
    _history("sillytavern", "SillyTavern", local_chats.is_sillytavern, local_chats.read_sillytavern, of_file=True),
    _set("argilla", "Argilla", annotated.is_argilla, annotated.read_argilla, scores=annotated.scores),
    _set("argilla-table", "Argilla", annotated.is_argilla_table, annotated.read_argilla_table, scores=annotated.scores),
    _set("label-studio", "Label Studio", annotated.is_label_studio, annotated.read_label_studio, scores=annotated.scores),
    _set("oasst", "OASST", sets.is_oasst_tree, sets.read_oasst_tree, stranger="oasst"),
    _set("oasst-messages", "OASST", sets.is_oasst_message, sets.read_oasst_messages, of_file=True, conversation=sets.tree_of, stranger="oasst"),
    _set("hh-rlhf", "HH-RLHF", sets.is_hh, pair_records.read_pair, stranger="hh-rlhf"),
    _set(
        "ultrafeedback-binarized", "UltraFeedback, binarized", sets.is_ultrafeedback_binarized, pair_records.read_pair,
        stranger="ultrafeedback", scores=pair_records.score_column,
    ),
    _set("ultrafeedback", "UltraFeedback", sets.is_ultrafeedback, sets.read_ultrafeedback, stranger="ultrafeedback"),
    _set("helpsteer", "HelpSteer", sets.is_helpsteer, sets.read_helpsteer, stranger="helpsteer"),
    _set("helpsteer-words", "HelpSteer", sets.is_helpsteer_words, sets.read_helpsteer_words, stranger="helpsteer"),
    _set("helpsteer-pairs", "HelpSteer", lambda r: ("context" in r and "overall_preference" in r) or ("preference_strength" in r and "response_1" in r), pair_records.read_duel, stranger="helpsteer"),
    _set("nectar", "Nectar", sets.is_nectar, ranked.read_answers, stranger="nectar"),
    _set("arena", "LMArena", sets.is_arena, pair_records.read_duel, stranger="lmarena"),
    _set("steps", "steps with labels (TRL)", lambda r: bool(ranked.steps_of(r)), ranked.read_steps),
    _set("pairs", "pairs", pair_records.has_pair, pair_records.read_pair, scores=pair_records.score_column),
    _set("duels", "two answers and a verdict", verdicts.has_duel, pair_records.read_duel),
    _set("ranked", "several answers with scores or ranks", ranked.has_answers, ranked.read_answers, scores=ranked.answer_scores),
    _history("chats", "conversations", chats.is_history, chats.read_history),
    Format("lines", "answers", lines.fits, lines.read, "own", scores=_opinion),
    _history("messages", "messages, one a line", chats.is_message, chats.read_messages, of_file=True, conversation=chats.thread_of),
)  # fmt: skip
BY_NAME = {one.name: one for one in FORMATS}
LINES = BY_NAME["lines"]
SAMPLE = 40
"""Records that are looked at to recognise a format in which a file is one conversation."""


def format_of(record: object) -> Format | None:
    """The format of one record; None for what is not known."""
    if not isinstance(record, Mapping):
        return None
    return next((one for one in FORMATS if _fits(one, record)), None)


class Recogniser:
    """The formats of the records of a file. One that looks as the one before it, with values in which nothing can hide, is not looked at again."""

    def __init__(self) -> None:
        self._names: tuple[str, ...] = ()
        self._found: Format | None = None

    def format_of(self, record: object) -> Format | None:
        if not isinstance(record, Mapping):
            return None
        names = tuple(record)
        plain = self._found is LINES and names == self._names and "chosen" not in record
        if not plain or any(isinstance(value, (list, dict)) for value in record.values()):
            self._names, self._found = names, format_of(record)
        return self._found


def _fits(form: Format, record: Record) -> bool:
    try:
        return form.fits(record)
    except (BadLine, TypeError, KeyError, ValueError, AttributeError, IndexError):
        return False


def whole_format_of(records: Sequence[object]) -> Format | None:
    """The format of a file that is one conversation, by its first records; None where each record stands for itself."""
    for record in records:
        layout = format_of(record)
        if layout is not None:
            return layout if layout.of_file else None
    return None

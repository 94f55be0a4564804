"""Why an answer ended: one normaliser for the words of all providers, and the sentences that people read about it."""

from __future__ import annotations

import re

from clawback.records import CUT, UNLEARNED, Ending, TurnKind

_WORDS: dict[Ending, tuple[str, ...]] = {
    "done": (
        "stop", "end_turn", "eos", "eos_token", "stop_token", "completed", "complete", "finished", "finish", "end",
        "tool_calls", "tool_call", "tool_use", "tooluse", "function_call", "functions", "success", "succeeded",
    ),
    "stop": ("stop_sequence", "stop_string", "stop_word"),
    "length": ("length", "context_window_exceeded", "limit", "model_length", "limited", "token_limit"),
    "filter": (
        "content_filter", "safety", "recitation", "language", "blocklist", "spii", "error_toxic", "guardrail_intervened",
    ),
    "refusal": ("refusal", "refused"),
    "pause": ("pause_turn", "pause", "paused", "compaction"),
    "error": ("error", "failed", "failure", "other", "insufficient_system_resource", "unexpected_tool_call"),
    "incomplete": ("incomplete",),
    "interrupted": ("cancelled", "canceled", "abort", "aborted", "interrupted", "turn_aborted"),
}  # fmt: skip
_KNOWN: dict[str, Ending] = {word: ending for ending, words in _WORDS.items() for word in words}
_PARTS: tuple[tuple[str, Ending], ...] = (
    (r"filter|safety|sensitive|block|moderat|prohibit|guardrail|toxic", "filter"),
    (r"refus", "refusal"),
    (r"max_.*token|max_.*length|length_limit|token_limit|context_(?:length|window)|exceed", "length"),
    (r"pause", "pause"),
    (r"error|fail|malformed", "error"),
    (r"cancel|abort|interrupt|disconnect", "interrupted"),
    (r"stop_(?:seq|str|word)", "stop"),
    (r"incomplete|partial", "incomplete"),
)
"""What an unlisted word contains, in the order in which it is looked for."""
_EMPTY = ("", "null", "none", "finish_reason_unspecified", "in_progress")

_TELLING: tuple[Ending, ...] = (
    "", "done", "stop", "incomplete", "error", "interrupted", "pause", "length", "refusal", "filter",
)  # fmt: skip
"""Endings by how much they say, the least first."""

_SENTENCES: dict[Ending, str] = {
    "length": "was cut off at its length limit",
    "filter": "was cut off by a content filter",
    "refusal": "is a refusal",
    "pause": "was paused before its end",
    "error": "broke off with an error",
    "incomplete": "broke off before its end",
    "interrupted": "was stopped before its end",
}


def ending_of(word: object) -> Ending | None:
    """The ending that a provider's word stands for: "" for an unknown word, None where no ending is named.

    >>> ending_of("MAX_TOKENS"), ending_of("end_turn"), ending_of(None)
    ('length', 'done', None)
    """
    if not isinstance(word, str):
        return None
    plain = re.sub(r"[^a-z0-9]+", "_", word.strip().lower()).strip("_")
    if plain in _EMPTY:
        return None
    if plain in _KNOWN:
        return _KNOWN[plain]
    return next((ending for pattern, ending in _PARTS if re.search(pattern, plain)), "")


def more_telling(first: Ending, second: Ending) -> Ending:
    """Of two reports of the same answer the one that says more: a provider's word, a person's stop, a broken connection.

    >>> more_telling("incomplete", "interrupted"), more_telling("done", "")
    ('interrupted', 'done')
    """
    return max(first, second, key=_TELLING.index)


def notice(ending: Ending, kind: TurnKind = "main") -> str:
    """What whoever rates such an answer is told, in a sentence; "" for a complete answer of a conversation.

    >>> notice("error")
    'This answer broke off with an error: the rating is stored, and the answer is not trained on.'
    """
    if kind == "side":
        return "This is a side turn (a title, a document for a program): the rating is stored, and nothing is trained on it."
    if ending not in CUT:
        return ""
    use = (
        "the rating is stored, and the answer is not trained on."
        if ending in UNLEARNED
        else "only what there is of it is trained on, without an end."
    )
    return f"This answer {_SENTENCES[ending]}: {use}"


def mark(ending: Ending) -> str:
    """The same in a few words, for a list; "" for an answer that was not cut."""
    return _SENTENCES[ending] if ending in CUT else ""

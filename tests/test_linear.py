"""What reads foreign text takes time in proportion to its length, however hostile it is.

A quadratic reader takes four times as long for twice the text, and these texts are long enough that it would take minutes; three times
is allowed, so that a machine that does something else as well does not make the test fail.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import pytest

from clawback.capture import conversation_threads
from clawback.dialects import anthropic
from clawback.environments.tools import function_schema, task_rewards
from clawback.extensions.importers import peers
from clawback.extensions.terminal_tasks import folders
from clawback.extensions.terminal_tasks import shell_tools as terminal_tools
from clawback.features import style_features
from clawback.feedback import verdict
from clawback.inference import tools
from clawback.prompts import prompt_guards
from clawback.redact import redact
from clawback.reminders import without_reminders
from clawback.rules import checks, phrases, wording

SIZE = 60_000
"""Pieces of the shorter text."""


def user(text: str) -> object:
    return conversation_threads.spoken([{"role": "user", "content": text}])


def deltas(text: str) -> object:
    event = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "x" * 50}}
    raw = f"data: {json.dumps(event)}\n\n".encode() * (len(text) // 40)
    return anthropic.hear(raw)


def fences(text: str) -> object:
    return terminal_tools.calls({"role": "assistant", "content": text})


def answered(text: str) -> object:
    return task_rewards.same_answer(text, "otter")


def variables(text: str) -> object:
    return folders._variables({"NAME": text})


def addresses(text: str) -> object:
    return [pattern.search(text) for pattern, _ in prompt_guards._KNOWN]


def measured(text: str) -> object:
    answer = checks.Text(text)
    return [measure(answer) for measure in checks.MEASURES.values()]


CASES: list[tuple[Callable[[str], object], str, str]] = [
    (user, "Runtime: agent=", " | session="),
    (user, "", "Runtime: agent=a | session=b\n"),
    (user, "", "\n\nRuntime: agent="),
    (user, "", "<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>"),
    (user, "⟦openclaw:ctx⟧\n```json\n", "\n```\n"),
    (user, "", "⟦openclaw:ctx⟧\n```json\n"),
    (tools.find, "", "<tool_call>{"),
    (tools.find, "", "</tool_call>"),
    (tools.find, "", "<tool_call>{}</tool_call>"),
    (verdict.read_hint, "\\boxed{1}", "[HINT_START]"),
    (verdict.read_hint, "\\boxed{1}", "[HINT_END]"),
    (verdict.boxed, "", "\\boxed{"),
    (verdict.boxed, "", "\\boxed "),
    (verdict._plain, "", "\\"),
    (style_features.wishes, "", "not "),
    (style_features.wishes, "x", " "),
    (phrases.parse, "no ", "\""),
    (wording.objection, "", "a."),
    (measured, "", "**"),
    (measured, "", "\n1. |"),
    (measured, "", "\n```"),
    (measured, "", "don't I "),
    (deltas, "", "x"),
    (without_reminders, "", "<system-reminder"),
    (without_reminders, "", "<system-reminder>"),
    (without_reminders, "<system-reminder>", "</system-reminder"),
    (peers._without_end, "", "</s>"),
    (peers._without_end, "", "<|im_end|> "),
    (peers._without_calls, "</tool_call>", "<tool_call>"),
    (fences, "", "``` a a\n"),
    (fences, "```\n", "```sh\n"),
    (answered, "", "<answer>"),
    (answered, "", "\\boxed{"),
    (answered, "", "\\boxed "),
    (variables, "", "${a:-"),
    (function_schema._SPHINX.findall, "", "\n "),
    (addresses, "", "a."),
    *(
        (redact, "", piece)
        for piece in (
            "sk-", "eyJa.", "-----BEGIN PRIVATE KEY-----", "a://b:", "://", "Bearer ", "api_key=", 'password: "', "cookie: a=",
            "authorization: bearer ", "machine a login b ", "token_", "key-", "?key=", ' -p "', "private-lines: 3\n", "secret ",
            "token\t", ":AA12345678", "AC0a", "curl -u ",
        )
    ),
]  # fmt: skip


def seconds(read: Callable[[str], object], text: str) -> float:
    """Of this process's own time, the best of two."""
    best = 1e9
    for _ in range(2):
        began = time.process_time()
        read(text)
        best = min(best, time.process_time() - began)
    return best


@pytest.mark.parametrize(("read", "begin", "piece"), CASES)
def test_twice_the_text_takes_no_more_than_about_twice_the_time(
    read: Callable[[str], object], begin: str, piece: str
) -> None:
    count = max(1, SIZE // len(piece))
    read(begin + piece)  # compiled, imported
    once, twice = (seconds(read, begin + piece * n + "\nx") for n in (count, 2 * count))
    assert twice < 3 * once + 0.05


def test_openclaws_last_paragraph_goes_and_its_name_in_a_text_stays() -> None:
    kept = [
        "Runtime: agent=x",
        "see Runtime: agent=x | session=y",
        "a\nRuntime: agent=x | session=y",
        "Runtime: agent=x | session=y\nmore",
    ]
    for text in kept:
        assert conversation_threads.plain_text({"role": "user", "content": text}) == text
    gone = "Hello.\n\nRuntime: agent=x | session=y | model=z"
    assert conversation_threads.plain_text({"role": "user", "content": gone}) == "Hello."
    assert conversation_threads.plain_text({"role": "user", "content": "Runtime: agent=x | session=y"}) == ""

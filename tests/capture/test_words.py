"""What an agent or a library adds of its own is not the person's words."""

from __future__ import annotations

from typing import Any

import pytest

from clawback.capture import conversation_threads
from clawback.capture.errands import is_errand, is_retry
from clawback.dialects.shapes import Asked
from clawback.records import Turn
from clawback.reminders import without_reminders

WRAPPED = {
    "Copilot CLI": "<current_datetime>2026-11-26T13:51:09.000Z</current_datetime>\n\n{}",
    "a date in camel case": "<currentDate>Thursday</currentDate>\n{}",
    "a date with hyphens": "<current-time zone='UTC'>13:51</current-time>{}",
    "Copilot in an editor": (
        "<attachments>\n<attachment id='a'>x</attachment>\n</attachments>\n<context>\nThe current date is today.\n</context>\n"
        "<editorContext>\na.py\n</editorContext>\n<reminderInstructions>\nBe good.\n</reminderInstructions>\n<userRequest>\n{}\n</userRequest>"
    ),
    "Cursor": (
        "<user_info>\nOS: linux\n</user_info>\n<open_and_recently_viewed_files>\na.py\n</open_and_recently_viewed_files>\n"
        "<system_reminder>\nBe good.\n</system_reminder>\n<user_query>\n{}\n</user_query>"
    ),
    "Cline": "<task>\n{}\n</task>\n\n<environment_details>\n# Open tabs\na.py\n</environment_details>",
    "Cline's answer": "<feedback>\n{}\n</feedback>\n<environment_details>\nx\n</environment_details>",
    "Codex": "<environment_context>\n<cwd>/a</cwd>\n</environment_context>\n{}",
    "Codex in an editor": "# Context from my IDE setup:\n\n## Active file: a.py\n\n## Open tabs:\n- a.py\n\n## My request for Codex:\n{}",
    "Claude Code": "<system-reminder>\nToday is Thursday.\n</system-reminder>\n{}",
    "Claude Code in an editor": "<ide_opened_file>a.py</ide_opened_file>\n<ide_selection>x = 1</ide_selection>\n{}",
    "Gemini CLI": "{}\n--- Content from referenced files ---\nContent from @a.py:\nx = 1\n--- End of content ---",
    "a workspace": "<workspace_info>\nfolders\n</workspace_info>\n<git_status>clean</git_status>\n{}",
}
PERSONS = (
    "what does <current_datetime> do?",
    "<task>\nbuy milk\n</task>",
    "<user_query> is the tag that Cursor uses, right?",
    "<my_config>a</my_config> what is wrong with this?",
    "<div><p>x</p></div>",
    "a < b and b > c",
    "# Context\nI am a nurse.",
    "In the file: <opened_door>x</opened_door>",
)


@pytest.mark.parametrize("agent", WRAPPED)
@pytest.mark.parametrize("words", ["fix the test", "why is a < b?\n\nand `b > c`?"])
def test_the_prompt_is_what_the_person_wrote(agent: str, words: str) -> None:
    message = WRAPPED[agent].replace("{}", words)
    assert without_reminders(message) == words
    assert Turn("s", ({"role": "user", "content": message},), "done").prompt == words


@pytest.mark.parametrize("words", PERSONS)
def test_what_a_person_wrote_stays(words: str) -> None:
    assert without_reminders(words) == words


@pytest.mark.parametrize(
    "message",
    [
        "<current_datetime>now</current_datetime>",
        "This is the Gemini CLI. We are setting up the context for our chat.\nToday's date is Thursday.",
        "<environment_details>\nx\n</environment_details>",
    ],
)
def test_what_is_wholly_the_agents_is_nobodys(message: str) -> None:
    assert without_reminders(message) == ""


RETRIES = (
    "Correct your JSON ONLY RESPONSE, based on the following errors:\n1 validation error for User\nage\n  Input should be a valid integer",
    "Validation Error found:\n1 validation error for User\nRecall the function correctly, fix the errors",
    "Validation Errors found:\nage\nRecall the function correctly, fix the errors found in the following attempt:\n{}",
    "Recall the function correctly, fix the errors, exceptions found\nage",
    "1 validation error:\n```json\n[]\n```\n\nFix the errors and try again.",
    f"Validation feedback:\n{'x' * 3000}\n\nFix the errors and try again.",
    "Plain text responses are not permitted, please include your response in a tool call",
    "Please return text or include your response in a tool call.",
    "Prompt:\nWho?\nCompletion:\n{}\n\nAbove, the Completion did not satisfy the constraints given in the Prompt.\nPlease try again:",
    "I was given the following JSON response, which had problems due to incorrect values.\n\n{}\n\nHelp me correct the incorrect values.",
)


def kind(*messages: dict[str, Any]) -> str:
    return conversation_threads.kind_of(Asked(tuple(messages), tools=({},)), {})


@pytest.mark.parametrize("retry", RETRIES)
@pytest.mark.parametrize("role", ["user", "tool"])
def test_a_librarys_retry_is_no_turn_of_the_persons(retry: str, role: str) -> None:
    asked = {"role": "user", "content": "Ann is ten."}
    answer = {"role": "assistant", "content": "{}"}
    assert kind(asked) == "main"
    assert kind(asked, answer, {"role": role, "content": retry}) == "side"
    assert (
        kind(asked, answer, {"role": role, "content": retry}, answer, {"role": "user", "content": "And Ben?"})
        == "main"
    )


@pytest.mark.parametrize(
    "words",
    [
        "Correct the JSON in my file, please.",
        "I get a validation error: fix the errors and try again later?",
        "The validation errors are gone now",
        "Include your response in a tool call in the docs.",
    ],
)
def test_a_person_who_speaks_of_errors_is_not_a_library(words: str) -> None:
    assert not is_retry(words)
    assert kind({"role": "user", "content": words}) == "main"


def test_open_webuis_own_questions_are_errands_and_a_persons_tasks_are_not() -> None:
    assert is_errand(
        "### Task:\nGenerate a concise, 3-5 word title with an emoji summarizing the chat history."
    )
    assert is_errand("### Task:\nGenerate 1-3 broad tags categorizing the main themes of the chat history")
    assert not is_errand("### Task:\nGenerate a concise summary of this report.")

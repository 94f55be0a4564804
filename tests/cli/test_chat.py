"""``ask chat generate``: answers come from the version that was named, and are stored; files are whole or not there."""

from __future__ import annotations

import json
import os
import stat
from base64 import b64decode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clawback import pictures, store
from clawback.errors import UsageError
from clawback.paths import Home
from clawback.records import Feedback, Turn
from clawback.training_commands.generate import read_prompts
from tests.engine.torch.test_vision import BLUE, RED, folder, picture  # noqa: F401 — a fixture

Run = Callable[..., tuple[int, str, str]]


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


# ------------------------------------------------------------------------------------------------------------ ask


def test_an_answer_is_captured_with_its_tokens_and_can_be_rated(run: Run, trained: Home) -> None:
    data = json.loads(run("ask", "Tell me about the otter.", "--seed", "1", "--json")[1])
    assert data["version"] == 1
    with store.connect(trained.database) as db:
        turn = db.turn(data["turn"])
    assert (turn.prompt, turn.response, turn.version) == ("Tell me about the otter.", data["response"], 1)
    assert turn.response_ids
    assert len(turn.response_ids) == len(turn.response_logprobs or ())
    assert run("ask", "Tell me about the otter.", "--seed", "1")[1].rstrip("\n") == data["response"]
    assert run("good")[0] == 0


def test_a_damaged_live_version_is_passed_over_and_said(run: Run, trained: Home) -> None:
    (trained.version(1) / "adapter_model.safetensors").unlink()
    code, out, err = run("ask", "Tell me about the otter.", "--json")
    assert code == 0
    assert json.loads(out)["version"] == 0
    assert "version 0 answers now" in err


def test_a_picture_goes_with_a_question_to_a_base_that_sees(
    run: Run,
    home: Home,
    folder: Path,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CLAWBACK_HOME", str(home.root))
    home.config.write_text(f"[model]\nbase = {json.dumps(str(folder))}\n[generation]\nmax_tokens = 8\n")
    red, blue = tmp_path / "red.png", tmp_path / "blue.png"
    for file, colour in ((red, RED), (blue, BLUE)):
        file.write_bytes(b64decode(picture(colour).split(",")[1]))
    code, out, err = run("ask", "Which colour?", "--picture", str(red), "--seed", "1", "--json")
    assert code == 0, err
    with store.connect(home.database) as db:
        turn = db.turn(json.loads(out)["turn"])
    assert pictures.pictures(turn.messages[0]["content"]) == [red.read_bytes()]
    run("ask", "Which colour?", "--picture", str(blue), "--seed", "1")
    with store.connect(home.database) as db:
        assert db.turns(limit=1)[0].response_logprobs != turn.response_logprobs, "the colours were seen"
    no = tmp_path / "no.png"
    for data, why in ((b"no picture", "is no PNG"), (red.read_bytes()[:40], "cannot be read")):
        no.write_bytes(data)
        code, _, err = run("ask", "Which colour?", "--picture", str(red), "--picture", str(no))
        assert code == 2
        assert why in err


def test_a_base_that_reads_text_alone_refuses_a_picture(run: Run, trained: Home, tmp_path: Path) -> None:
    file = tmp_path / "red.png"
    file.write_bytes(b64decode(picture(RED).split(",")[1]))
    code, _, err = run("ask", "Which colour?", "--picture", str(file))
    assert code == 2
    assert "reads text alone" in err


# ------------------------------------------------------------------------------------------------------- generate


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    file = tmp_path / "prompts.txt"
    file.write_text("Tell me about the otter.\n\nWhat is a fig?\n")
    return file


def test_a_line_an_answer_in_the_order_of_the_prompts(
    run: Run, trained: Home, prompts: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out.jsonl"
    asked = ("generate", "--prompts", str(prompts), "--output", str(output), "--samples", "3", "--seed", "5")
    code, out, err = run(*asked)
    assert code == 0, err
    assert out == f"6 answers in {output}.\n"
    made = lines(output)
    assert [line["prompt"] for line in made] == ["Tell me about the otter."] * 3 + ["What is a fig?"] * 3
    assert all(set(line) == {"prompt", "response", "version"} and line["version"] == 1 for line in made)
    assert run(*asked)[0] == 0
    assert lines(output) == made, "the same seed gives the same answers"
    run(*asked[:-1], "6", "--version", "base")
    assert all(line["version"] == 0 for line in lines(output))
    assert list(tmp_path.glob(".*.part")) == []


def test_greedy_answers_do_not_depend_on_the_seed(run: Run, prompts: Path, tmp_path: Path) -> None:
    made = []
    for seed in "12":
        run("generate", "--prompts", str(prompts), "--output", str(tmp_path / seed), "--temperature", "0",
            "--max-tokens", "12", "--seed", seed)  # fmt: skip
        made.append(lines(tmp_path / seed))
    assert made[0] == made[1]


def test_an_output_appears_whole_or_not_at_all(
    run: Run, prompts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "out.jsonl"
    output.write_text("what was there before")

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("no memory left")

    monkeypatch.setattr("clawback.policy.policy.Policy.generate", fail)
    assert run("generate", "--prompts", str(prompts), "--output", str(output))[0] == 1
    assert output.read_text() == "what was there before"
    assert sorted(p.name for p in tmp_path.iterdir() if p.suffix == ".part") == []


def test_nothing_but_a_file_is_replaced(run: Run, prompts: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for output in (pipe, tmp_path):
        code, _, err = run("generate", "--prompts", str(prompts), "--output", str(output))
        assert code == 2
        assert "not an ordinary file" in err
    assert stat.S_ISFIFO(pipe.stat().st_mode)


@pytest.mark.parametrize(
    ("content", "options", "code", "sentence"),
    [
        (b"", (), 2, "no prompts"),
        (b'{"prompt": "a"}\nplain text\n', (), 2, "Line 2"),
        (b'{"prompt": "a"}\n{"text": "b"}\n', (), 2, "Line 2"),
        (b'{"prompt": ""}\n', (), 2, "Line 1"),
        (b"\xff\xfe", (), 2, "cannot be read"),
        (b"a\n", ("--version", "9"), 2, "no version 9"),
        (b"a\n", ("--version", "best"), 2, "name a number, live, or base"),
        (b"a\n", ("--samples", "0"), 2, "--samples"),
        (b"a\n", ("--output", "/no/such/folder/x"), 1, "could not be written"),
    ],
)
def test_what_cannot_be_answered_is_said(
    run: Run, tmp_path: Path, content: bytes, options: tuple[str, ...], code: int, sentence: str
) -> None:
    (tmp_path / "p").write_bytes(content)
    found, _, err = run(
        "generate", "--prompts", str(tmp_path / "p"), "--output", str(tmp_path / "o"), *options
    )
    assert found == code
    assert sentence in err
    assert not (tmp_path / "o").exists()


def test_prompts_of_both_kinds(tmp_path: Path) -> None:
    def texts(content: str) -> list[str]:
        (tmp_path / "p").write_text(content, "utf-8")
        return [messages[0]["content"] for messages in read_prompts(tmp_path / "p")]

    assert texts("\ufeffone\r\n\r\n two \n{braces} are text\n") == ["one", "two", "{braces} are text"]
    assert texts('{"prompt": "a\u2028b"}\n{"prompt": "two\\nlines", "id": 1}\n') == ["a\u2028b", "two\nlines"]
    assert texts('["a", "list"]\n') == ['["a", "list"]'], "only an object makes a file JSONL"
    with pytest.raises(UsageError):
        texts("\n \n")


# ----------------------------------------------------------------------------------------------------------- chat


@pytest.fixture
def chat(home: Home, terminal: Callable[..., Any]) -> Any:
    home.config.write_text("[training]\nbackground = false\n[generation]\nmax_tokens = 10\n")
    editor = home.root / "editor"
    editor.write_text("#!/bin/sh\nprintf 'As it should have been.\\n' > \"$1\"\n")
    editor.chmod(0o755)
    return terminal(
        "chat", "--seed", "1", CLAWBACK_HOME=str(home.root), EDITOR=str(editor), VISUAL=str(editor)
    )


def stored(home: Home) -> tuple[list[Turn], list[Feedback]]:
    with store.connect(home.database) as db:
        return list(reversed(db.turns(limit=50))), db.feedback()


def test_each_key_says_what_an_answer_was_worth(chat: Any, home: Home) -> None:
    chat.until("You are talking to the base model")
    chat.until("not an assistant")
    chat.until("you> ")
    for key in ("g", "b", "7", "0", "e", "\r"):
        chat.types("Tell me about the otter.\n")
        chat.until("[q]uit ")
        chat.presses(key)
        chat.until("you> ")
    chat.types("And the fig?\n")
    chat.until("[q]uit ")
    chat.presses("q")
    assert chat.ends_with() == 0
    turns, given = stored(home)
    assert len(turns) == 7, "answers that nobody rated are stored, too"
    assert [(f.turn_id, f.kind, round(f.value, 2)) for f in given if f.kind == "rating"] == [
        (1, "rating", 1.0),
        (2, "rating", -1.0),
        (3, "rating", 0.33),
        (4, "rating", 1.0),
    ]
    assert [(f.turn_id, f.text) for f in given if f.kind == "edit"] == [(5, "As it should have been.")]
    assert len({turn.session for turn in turns}) == 1
    assert len(turns[-1].messages) == 13, "each answer saw the whole conversation"
    assert turns[0].response.split()[0] in chat.shown


@pytest.mark.slow
@pytest.mark.parametrize("key", ["\x04", "\x03"], ids=["ctrl-d", "ctrl-c"])
def test_leaving_at_the_rating_is_quiet_and_loses_nothing(chat: Any, home: Home, key: str) -> None:
    chat.until("you> ")
    chat.types("Tell me about the otter.\n")
    chat.until("[q]uit ")
    chat.presses(key)
    assert chat.ends_with() == 0
    assert "rror" not in chat.shown
    turns, given = stored(home)
    assert (len(turns), given) == (1, [])


def test_a_chat_needs_a_terminal(run: Run) -> None:
    code, _, err = run("chat")
    assert code == 2
    assert "clawback ask" in err

"""Every format: what it is shows by its shape, and the values of its answers and opinions are right."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from clawback import store
from clawback.cli import main
from clawback.extensions.data_sets.entries import Entry
from clawback.extensions.importers.containers import open_path
from clawback.extensions.importers.importing import Options, recognise
from clawback.extensions.importers.understanding import Understanding
from clawback.store import Store

from .layouts import HISTORIES, SETS, B, Case, G, Q, lines
from .variants import STEPS, VARIANTS


def text_of(case: Case) -> str:
    return case.data if isinstance(case.data, str) else json.dumps(case.data)


def opened(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Path:
    """The database of a new home."""
    monkeypatch.setenv("CLAWBACK_HOME", str(folder / "home"))
    return folder / "home" / "clawback.db"


def answers(db: Store) -> dict[str, str]:
    return {t.response: t.prompt for t in db.turns(limit=99)}


def opinions(db: Store) -> list[tuple[str, str, object]]:
    text = {t.id: t.response for t in db.turns(limit=99)}
    found = []
    for f in db.feedback():
        value: object = text[f.other_turn_id] if f.other_turn_id else f.text if f.kind in ("edit", "critique") else round(f.value, 6)  # fmt: skip
        found.append((f.kind, text[f.turn_id], value))
    return sorted(found, key=repr)


def read(path: Path, options: Options = Options()) -> tuple[list[Entry], Understanding]:  # noqa: B008
    """The entries of a file, without a store."""

    def entries() -> Iterator[Entry]:
        for source in open_path(path, path.parent).sources:
            recognised = recognise(source, options)
            understood.notes += recognised.columns.notes
            for found, entry in recognised.entries(understood):
                understood.add(entry, found.title)
                yield entry

    understood = Understanding(path.name)
    return list(entries()), understood


@pytest.mark.parametrize("case", [*HISTORIES, *SETS, *VARIANTS], ids=lambda case: case.name)
def test_a_file_is_read_by_its_shape(case: Case, tmp_path: Path) -> None:
    path = tmp_path / f"a.{case.name.rpartition('.')[2]}"  # its name says nothing
    path.write_text(text_of(case), "utf-8")
    entries, understood = read(path)
    assert understood.problems == []
    assert {turn.response: turn.prompt for entry in entries for turn in entry.turns} == case.answers
    found, people = [], set()
    for entry in entries:
        for f in entry.feedback:
            text = entry.turns[f.turn_id].response
            value: object = entry.turns[f.other_turn_id].response if f.other_turn_id is not None else f.text if f.kind in ("edit", "critique") else round(f.value, 6)  # fmt: skip
            found.append((f.kind, text, value))
            people |= {f.person or "owner"} if f.kind != "implicit" else set()
    expected = [(kind, answer, round(value, 6) if isinstance(value, float) else value) for kind, answer, value in case.opinions]  # fmt: skip
    assert sorted(found, key=repr) == sorted(expected, key=repr)
    assert people == ({case.person} if people else set())


def test_all_of_them_at_once_and_once_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = opened(monkeypatch, tmp_path)
    for number, case in enumerate([*HISTORIES, *SETS]):
        (tmp_path / "in" / str(number)).mkdir(parents=True)
        name = Path(case.name).name
        (tmp_path / "in" / str(number) / name).write_text(text_of(case), "utf-8")
    assert main(["import", str(tmp_path / "in"), "--yes"]) == 0
    with store.connect(home) as db:
        counts = db.count_turns(), db.count_all_feedback()
        assert answers(db).keys() == {answer for case in (*HISTORIES, *SETS) for answer in case.answers}
        assert counts[1] > 30, (
            "what one file says is not stored again when another says it of the same answers"
        )
    assert main(["import", str(tmp_path / "in")]) == 0
    with store.connect(home) as db:
        assert (db.count_turns(), db.count_all_feedback()) == counts, "the same files twice add nothing"


def test_models_times_thoughts_and_tools_are_kept(tmp_path: Path) -> None:
    by_name = {case.name: case for case in HISTORIES}

    def turns(name: str) -> dict[str, object]:
        (tmp_path / "x").write_text(text_of(by_name[name]))
        return {turn.response: turn for entry in read(tmp_path / "x")[0] for turn in entry.turns}

    chatgpt = turns("conversations.json")[G]
    assert (chatgpt.model, chatgpt.ending, chatgpt.created_at, chatgpt.agent) == (
        "gpt-4o",
        "length",
        1.7e9,
        "chatgpt",
    )  # type: ignore[attr-defined]
    assert chatgpt.next_state[0]["content"] == "Now weigh it."  # type: ignore[attr-defined]
    studio = turns("x.conversation.json")[G]
    assert (studio.model, studio.ending, studio.thinking) == ("qwen/qwen3-4b", "done", "hm")  # type: ignore[attr-defined]
    assert studio.messages[0] == {"role": "system", "content": "Be brief."}  # type: ignore[attr-defined]
    claude = turns("claude/conversations.json")[G]
    assert (claude.thinking, claude.event_id, claude.created_at) == ("hm", "claude.ai:k1:m2", 1767323045.0)  # type: ignore[attr-defined]
    claw = turns("openclaw.jsonl")[G]
    assert [m["role"] for m in claw.messages] == ["user", "assistant", "tool"]  # type: ignore[attr-defined]
    assert (claw.cwd, claw.ending, claw.session) == ("/p", "done", "openclaw:s1")  # type: ignore[attr-defined]
    nous = turns("hermes.json")[G]
    assert nous.messages[0]["tools"][0]["function"]["name"] == "get_weather"  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", STEPS)
def test_the_calls_of_an_answer_and_their_results_stand_before_it(name: str, tmp_path: Path) -> None:
    data = STEPS[name]
    (tmp_path / "x").write_text(data if isinstance(data, str) else json.dumps(data))
    [turn] = [turn for entry in read(tmp_path / "x")[0] for turn in entry.turns]
    assert turn.response == G
    asked, call, result = turn.messages[0], turn.messages[-2], turn.messages[-1]
    assert (asked["role"], asked["content"]) == ("user", Q)
    function = call["tool_calls"][0]["function"]
    assert (function["name"], json.loads(function["arguments"])) == ("get_weather", {"city": "Oslo"})
    assert (result["role"], result["tool_call_id"], result["content"]) == ("tool", "c1", "3 C")
    assert "Let me look." in [m["content"] for m in turn.messages if m["role"] == "assistant"]


def test_an_answer_keeps_its_name_when_its_calls_are_read(tmp_path: Path) -> None:
    """What was imported before calls were kept is not imported again."""
    records = [json.loads(line) for line in STEPS["gemini.jsonl"].splitlines()]
    names = []
    for kept in (records, [r for r in records if "toolCalls" not in r]):
        talk = [
            *kept,
            {"id": "4", "type": "user", "content": "More?"},
            {"id": "5", "type": "gemini", "content": B},
        ]
        (tmp_path / "s.jsonl").write_text(lines(*talk))
        names.append([turn.event_id for entry in read(tmp_path / "s.jsonl")[0] for turn in entry.turns])
    assert names[0] == names[1]
    assert len(set(names[0])) == 2


@pytest.mark.parametrize(
    ("winner", "better"), [("model_a", B), ("model_b", G), ("tie", None), ("tie (bothbad)", None), ("m2", G)]
)
def test_a_verdict_names_the_better_answer(winner: str, better: str | None, tmp_path: Path) -> None:
    ask, tell = {"role": "user", "content": Q}, {"role": "assistant", "content": ""}
    row = {"model_a": "m1", "model_b": "m2", "winner": winner, "conversation_a": [ask, tell | {"content": B}], "conversation_b": [ask, tell | {"content": G}]}  # fmt: skip
    (tmp_path / "x").write_text(lines(row))
    [entry] = read(tmp_path / "x")[0]
    assert [entry.turns[f.turn_id].response for f in entry.feedback] == ([better] if better else [])


@pytest.mark.parametrize(
    ("column", "better"),
    [
        ([0, 1], [0, 1]),
        ([1, 2, 2], [0, 1, 1]),
        ([-3, 2, 0], [0, 1, None]),
        (["left", "right"], [0, 1]),
        (["A", "B"], [0, 1]),
    ],
)
def test_what_a_number_says_of_two_answers_follows_from_the_column(
    column: list[object], better: list[int | None], tmp_path: Path
) -> None:
    rows = [
        {"prompt": f"{Q} {n}", "response_a": G, "response_b": B, "preference": v}
        for n, v in enumerate(column)
    ]
    (tmp_path / "x").write_text(lines(*rows))
    entries, understood = read(tmp_path / "x")
    assert understood.problems == []
    assert [entry.feedback[0].turn_id if entry.feedback else None for entry in entries] == better


def test_a_verdict_that_may_mean_either_is_named(tmp_path: Path) -> None:
    (tmp_path / "x").write_text(lines(*({"prompt": f"{n}", "response_a": G, "response_b": B, "preference": 1} for n in range(9))))  # fmt: skip
    entries, understood = read(tmp_path / "x")
    assert entries == []
    assert "`preference` 1 does not say which answer is better" in understood.problems[0]


def test_the_opinions_of_strangers_are_mine_only_if_i_say_so(tmp_path: Path) -> None:
    case = next(case for case in SETS if case.name == "hh.jsonl")
    (tmp_path / "x").write_text(text_of(case))
    for options, person in ((Options(), "set:hh-rlhf"), (Options(mine=True), ""), (Options(person="rater:anna"), "rater:anna")):  # fmt: skip
        [entry] = read(tmp_path / "x", options)[0]
        assert [f.person for f in entry.feedback] == [person]


def test_answers_that_are_liked_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "x").write_text(lines({"instruction": Q, "input": "", "output": G}))
    [entry] = read(tmp_path / "x", Options(liked=True))[0]
    assert [(f.kind, f.value) for f in entry.feedback] == [("rating", 1.0)]


def test_a_weight_says_which_answer_is_to_be_learned(tmp_path: Path) -> None:
    talk = [{"role": "user", "content": Q}, {"role": "assistant", "content": B, "weight": 0}, {"role": "user", "content": "Try again."}, {"role": "assistant", "content": G, "weight": 1}]  # fmt: skip
    (tmp_path / "x").write_text(lines({"messages": talk}))
    [entry] = read(tmp_path / "x")[0]
    assert [(entry.turns[f.turn_id].response, f.value) for f in entry.feedback] == [(G, 1.0)]
    assert [turn.response for turn in entry.turns] == [B, G]
    assert not any("weight" in m for turn in entry.turns for m in turn.messages)


FILES = Path(__file__).parents[3] / "shared" / "cases" / "files"


@pytest.mark.skipif(not FILES.is_dir(), reason="the sample files are not here")
def test_the_sample_files(tmp_path: Path) -> None:
    counts = {}
    for path in sorted(FILES.iterdir()):
        if path.suffix == ".py":
            continue
        (tmp_path / path.name).write_bytes(path.read_bytes())
        entries, understood = read(tmp_path / path.name)
        turns = [turn for entry in entries for turn in entry.turns]
        values = [round(f.value, 2) for entry in entries for f in entry.feedback]
        counts[path.name] = (len(turns), len(values), len(understood.problems))
        assert all(turn.prompt for turn in turns), path.name
    assert counts["own-5star.jsonl"] == (0, 0, 6), "all are 4: of five or of ten?"
    assert {name for name, (_, _, problems) in counts.items() if problems} == {"own-5star.jsonl"}
    assert {name for name, (turns, *_) in counts.items() if not turns} == {"own-5star.jsonl", "chatgpt-message_feedback.json"}  # fmt: skip

"""What files come in: archives in parts, packed files, databases, tables, text in any encoding, a folder, a pipe."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import sqlite3
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

from clawback import installed, store
from clawback.cli import main

from .layouts import (
    HISTORIES,
    SETS,
    B,
    G,
    Q,
    chatgpt,
    hermes,
    lines,
    message,
    opencode,
    webui_chat,
    webui_feedback,
)
from .test_formats import answers, opened, opinions
from .variants import VARIANTS

RECORDED = Path(__file__).parents[1] / "capture" / "recorded"
PAIR = lines({"prompt": Q, "chosen": G, "rejected": B})


def database(path: Path, tables: dict[str, list[dict[str, Any]]]) -> Path:
    with sqlite3.connect(path) as db:
        for name, rows in tables.items():
            columns = ", ".join(rows[0])
            db.execute(f"CREATE TABLE {name} ({columns})")
            for row in rows:
                values = [json.dumps(v) if isinstance(v, (dict, list)) else v for v in row.values()]
                db.execute(f"INSERT INTO {name} VALUES ({', '.join('?' * len(row))})", values)
    db.close()
    return path


def test_an_export_of_chatgpt_comes_in_with_all_its_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    home = opened(monkeypatch, tmp_path)
    thumb = {"conversation_id": "c0", "id": "a1", "rating": "thumbs_down", "content": '{"tags": ["not helpful"]}', "create_time": "2024-01-01T00:00:00Z", "user_id": "u"}  # fmt: skip
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr("conversations-000.json", json.dumps([chatgpt(name="c0")]))
        archive.writestr("conversations-001.json", json.dumps([chatgpt("a1", name="c1")]))
        archive.writestr("message_feedback.json", json.dumps([thumb]))
        archive.writestr("user.json", json.dumps({"id": "u", "email": "x"}))
        archive.writestr("chat.html", "<html>")
    assert main(["import", str(tmp_path / "x.zip"), "--yes"]) == 0
    shown = capsys.readouterr().out
    assert "Without conversations: x.zip: user.json." in shown
    with store.connect(home) as db:
        assert len(db.turns(limit=99)) == 6
        down = next(f for f in db.feedback() if f.kind == "rating")
        rated = db.turn(down.turn_id)
        assert (rated.event_id, down.value, down.text) == ("chatgpt:c0:a1", -1.0, "not helpful")
        kept = [(db.turn(f.turn_id).event_id, db.turn(f.other_turn_id or 0).event_id) for f in db.feedback() if f.other_turn_id]  # fmt: skip
        assert kept == [("chatgpt:c0:a2", "chatgpt:c0:a1"), ("chatgpt:c1:a2", "chatgpt:c1:a1")], (
            "the branch that went on"
        )
        tools = db.turns(limit=99)[0].messages
        assert [m["role"] for m in tools] == ["user", "assistant", "user", "assistant", "tool"]
        assert tools[3]["tool_calls"][0]["function"] == {"name": "python", "arguments": "1+1"}


def tar_gz(data: bytes) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name in ("in/._x.jsonl", "in/x.jsonl", "in/about.md"):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return packed.getvalue()


def zstd(data: bytes) -> bytes:
    packed: bytes = pytest.importorskip("pyarrow").Codec("zstd").compress(data, asbytes=True)
    return packed


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress, tar_gz, zstd])
def test_packed_files_are_unpacked(pack: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = opened(monkeypatch, tmp_path)
    (tmp_path / "x").write_bytes(pack(PAIR.encode()))
    assert main(["import", str(tmp_path / "x")]) == 0
    with store.connect(home) as db:
        assert opinions(db) == [("preference", G, B)]
    assert list((tmp_path / "home" / "tmp").iterdir()) == [], "nothing that was unpacked stays"


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le"])
@pytest.mark.parametrize("form", ["list", "document", "csv"])
def test_any_encoding_is_read(
    encoding: str, form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = opened(monkeypatch, tmp_path)
    rows = [{"prompt": "ö?", "response": "日本 🦦", "rating": "up"}]
    text = {
        "list": json.dumps(rows, ensure_ascii=False, indent=1),
        "document": json.dumps({"version": 1, "data": rows}, ensure_ascii=False, indent=1),
        "csv": "prompt,response,rating\r\nö?,日本 🦦,up\r\n",
    }[form]
    (tmp_path / "x").write_text(text, encoding)
    assert main(["import", str(tmp_path / "x")]) == 0
    with store.connect(home) as db:
        assert opinions(db) == [("rating", "日本 🦦", 1.0)]


def test_webui_db(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = opened(monkeypatch, tmp_path)
    feedback = webui_feedback(1, None, details={"rating": 8})
    path = database(tmp_path / "webui.db", {"chat": [webui_chat()], "feedback": [feedback], "user": [{"id": "u", "name": "N"}]})  # fmt: skip
    assert main(["import", str(path)]) == 0
    with store.connect(home) as db:
        assert answers(db) == {B: Q, G: Q}
        assert ("rating", G, round(5 / 9, 6)) in opinions(db)
        [rating] = [f for f in db.feedback() if f.kind == "rating"]
        assert (rating.text, rating.score, rating.author) == ("too verbose: cut it", 8.0, "owner")
        turn = db.turn(rating.turn_id)
        assert (turn.model, turn.thinking, turn.messages[0]["content"]) == ("llama3:8b", "hm", "Be brief.")


def test_the_thumbs_of_several_people_are_theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = opened(monkeypatch, tmp_path)
    other = webui_feedback(-1, None) | {"id": "f2", "user_id": "v"}
    other["meta"] = other["meta"] | {"chat_id": "w2"}
    (tmp_path / "x.json").write_text(json.dumps([webui_feedback(1, None), other]))
    assert main(["import", str(tmp_path / "x.json")]) == 0
    with store.connect(home) as db:
        assert {(f.author, f.value) for f in db.feedback() if f.kind == "rating"} == {("open-webui:u", 1.0), ("open-webui:v", -1.0)}  # fmt: skip


def test_databases_of_agents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = opened(monkeypatch, tmp_path)
    session = hermes()
    rows = [
        {"id": n, "session_id": "h1", "role": m["role"], "content": m["content"], "tool_calls": m.get("tool_calls"), "tool_call_id": m.get("tool_call_id"), "timestamp": 1.7e9 + n, "active": 1}
        for n, m in enumerate(session["messages"])
    ]  # fmt: skip
    rows.append(rows[-1] | {"id": 9, "content": "rewound", "tool_calls": None, "active": 0})
    sessions = [
        {"id": "h1", "source": "cli", "model": "hermes-4", "system_prompt": "Be brief.", "started_at": 1.7e9}
    ]
    database(tmp_path / "state.db", {"sessions": sessions, "messages": rows})
    told = opencode()
    messages = [{"id": m["info"]["id"], "session_id": "ses_1", "time_created": n, "data": m["info"]} for n, m in enumerate(told["messages"])]  # fmt: skip
    parts = [{"id": f"{n}-{k}", "message_id": m["info"]["id"], "data": p} for n, m in enumerate(told["messages"]) for k, p in enumerate(m["parts"])]  # fmt: skip
    database(tmp_path / "opencode.db", {"session": [told["info"]], "message": messages, "part": parts})
    chats = [{"id": 1, "chat_id": "o", "role": "user", "content": "Hi?", "model_name": None}, {"id": 2, "chat_id": "o", "role": "assistant", "content": "Hi.", "model_name": "qwen3"}]  # fmt: skip
    database(tmp_path / "ollama.sqlite", {"chats": [{"id": "o", "title": "t"}], "messages": chats})
    assert main(["import", *(str(tmp_path / n) for n in ("state.db", "opencode.db", "ollama.sqlite"))]) == 0
    with store.connect(home) as db:
        found = {t.agent: t for t in db.turns(limit=9)}
        assert {(a, t.prompt, t.response) for a, t in found.items()} == {("hermes", Q, G), ("opencode", Q, G), ("chat", "Hi?", "Hi.")}  # fmt: skip
        assert [m["role"] for m in found["hermes"].messages] == ["system", "user", "assistant", "tool"]
        assert [m["role"] for m in found["opencode"].messages] == ["user", "assistant", "tool"]
        assert (found["opencode"].cwd, found["opencode"].thinking, found["opencode"].model) == (
            "/p",
            "hm",
            "m",
        )
        assert found["chat"].model == "qwen3"


def test_opencodes_folder_of_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = opened(monkeypatch, tmp_path)
    for part in opencode()["messages"]:
        name = part["info"]["id"]
        (tmp_path / "storage" / "message" / "ses_1").mkdir(parents=True, exist_ok=True)
        (tmp_path / "storage" / "message" / "ses_1" / f"{name}.json").write_text(json.dumps(part["info"]))
        (tmp_path / "storage" / "part" / name).mkdir(parents=True)
        for number, one in enumerate(part["parts"]):
            (tmp_path / "storage" / "part" / name / f"{number}.json").write_text(json.dumps(one))
    assert main(["import", str(tmp_path / "storage")]) == 0
    with store.connect(home) as db:
        assert answers(db) == {G: Q}


@pytest.mark.parametrize("agent", ["claude-code", "codex"])
def test_sessions_of_agents_that_hooks_read_as_well(
    agent: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = opened(monkeypatch, tmp_path)
    for file in sorted(RECORDED.glob(f"{agent}-*.jsonl")):
        records = [json.loads(line) for line in file.read_text().splitlines()]
        written = [r["record"] for r in records if "record" in r]
        if written:
            (tmp_path / file.name).write_text(lines(*written))
    main(["import", *map(str, sorted(tmp_path.glob("*.jsonl")))])
    with store.connect(home) as db:
        turns = db.turns(limit=99)
        assert turns
        assert {t.agent for t in turns} == {agent}
        assert all(t.prompt and t.response for t in turns)


def test_a_folder_and_standard_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    home = opened(monkeypatch, tmp_path)
    (tmp_path / "in" / "sub").mkdir(parents=True)
    (tmp_path / "in" / "a.jsonl").write_text(PAIR)
    (tmp_path / "in" / "sub" / "b.json").write_text(json.dumps([chatgpt()]))
    (tmp_path / "in" / "cat.png").write_bytes(b"\x89PNG")
    assert main(["import", str(tmp_path / "in"), "--yes"]) == 0
    assert "Not looked at: cat.png." in capsys.readouterr().out
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines(message("user", "Hm?"), message("assistant", "Hm.")).encode())))  # fmt: skip
    assert main(["import", "-"]) == 0
    with store.connect(home) as db:
        assert {t.agent for t in db.turns(limit=99)} == {"import", "chatgpt", "chat"}
        assert db.count_turns() == 6


def test_what_cannot_be_read_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:  # fmt: skip
    opened(monkeypatch, tmp_path)
    with zipfile.ZipFile(tmp_path / "book.xlsx", "w") as archive:
        archive.writestr("xl/workbook.xml", "<x/>")
    (tmp_path / "cut.gz").write_bytes(gzip.compress(PAIR.encode() * 99)[:60])
    (tmp_path / "no.zip").write_bytes(b"PK\x03\x04 nothing")
    (tmp_path / "no.db").write_bytes(b"SQLite format 3\0 nothing")
    (tmp_path / "table.parquet").write_bytes(b"PAR1 nothing PAR1")
    (tmp_path / "odd.json").write_text('{"colour": "red"}')
    (tmp_path / "empty.jsonl").write_text("")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    sentences = {
        "book.xlsx": "is an Excel workbook: save the sheet as CSV",
        "cut.gz": "cannot be unpacked",
        "no.zip": "is no archive that can be read",
        "no.db": "is no database that can be read",
        "table.parquet": installed.add("parquet"),
        "odd.json": "is in no format that is known. Its fields are `colour`.",
        "empty.jsonl": "empty.jsonl is empty.",
        "missing": "There is no file or folder",
    }
    for name, sentence in sentences.items():
        code = main(["import", str(tmp_path / name)])
        printed = capsys.readouterr()
        assert sentence in printed.out + printed.err, name
        assert "Traceback" not in printed.err
        assert (code != 0) == (name != "empty.jsonl"), name


@pytest.mark.parametrize("kind", ["parquet", "file", "stream"])
def test_parquet_and_arrow(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = pytest.importorskip("pyarrow.parquet")
    import pyarrow

    home = opened(monkeypatch, tmp_path)
    rows = [
        {
            "prompt": [message("user", Q)],
            "chosen": [message("assistant", G)],
            "rejected": [message("assistant", B)],
        }
    ]
    table = pyarrow.Table.from_pylist(rows)
    if kind == "parquet":
        tables.write_table(table, tmp_path / "x")
    else:
        write = pyarrow.ipc.new_file if kind == "file" else pyarrow.ipc.new_stream
        with write(str(tmp_path / "x"), table.schema) as file:
            file.write_table(table)
    assert main(["import", str(tmp_path / "x")]) == 0
    with store.connect(home) as db:
        assert opinions(db) == [("preference", G, B)]


def test_a_broken_table_names_its_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:  # fmt: skip
    home = opened(monkeypatch, tmp_path)
    (tmp_path / "x.csv").write_bytes(b'prompt,response,rating\na,"b\nc",1\nd,e,1,9\nf,caf\xe9,1\n')
    assert main(["import", str(tmp_path / "x.csv")]) == 1
    printed = capsys.readouterr().out
    assert "line 3: has 4 columns, and the header names 3" in printed
    assert "line 4: holds bytes that are no UTF-8 text" in printed
    with store.connect(home) as db:
        assert answers(db) == {"b\nc": "a"}


def test_all_samples_have_different_shapes() -> None:
    names = [case.name for case in (*HISTORIES, *SETS, *VARIANTS)]
    assert len(names) == len(set(names))

"""What the page sets up: files in and out, settings, agents, models, conversations."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from clawback import config, feedback, paths, store
from clawback.extensions.importers import import_api
from clawback.paths import Home
from clawback.records import Turn
from clawback.serve import app as serving

from .conftest import Running

LINES = [
    {"prompt": f"Question {n}?", "response": f"Answer {n}.", "score": 1 + n % 5, "note": "fine"}
    for n in range(40)
]


@pytest.fixture
def client(home: Home, running: Callable[[Any], Running]) -> httpx.Client:
    server = running(serving.make(home, config.ServeSection(upstream="http://127.0.0.1:1")))
    headers = {"authorization": f"Bearer {paths.secret(home.root / 'token')}"}
    return httpx.Client(base_url=server.url + "/api", headers=headers, timeout=60)


def upload(client: httpx.Client, name: str, data: bytes, part: int = 1 << 20) -> str:
    begun = client.post("/imports", json={"name": name, "size": len(data)}).json()
    for offset in range(0, len(data), part):
        sent = client.post(
            f"/imports/{begun['id']}/parts?offset={offset}", content=data[offset : offset + part]
        )
        assert sent.json() == {"size": min(offset + part, len(data))}
    return str(begun["id"])


def test_a_file_is_shown_as_a_table_and_stored_only_then(client: httpx.Client, home: Home) -> None:
    data = gzip.compress("\n".join(map(json.dumps, LINES)).encode() + b"\nnot a line\n")
    number = upload(client, "scores.jsonl.gz", data, part=100)
    again = client.post(f"/imports/{number}/parts?offset=100", content=data[100:])
    assert again.json() == {"size": len(data)}, "a part that is sent again is stored once"
    shown = client.post(f"/imports/{number}/table", json={"scale": "1-5"}).json()
    [file] = shown["files"]
    assert (file["turns"], file["ratings"]["scales"]) == (40, {"1-5": 40})
    assert any("40 from 1 to 5" in line for line in file["lines"])
    assert shown["problems"] == ["line 41: not JSON"] or "line 41" in shown["problems"][0]
    with store.connect(home.database) as db:
        assert db.count_turns() == 0
    stored = client.post(f"/imports/{number}/store", json={"scale": "1-5"}).json()
    assert (stored["turns"], stored["feedback"], stored["known"]) == (40, 40, 0)
    assert not list((home.root / "tmp").rglob("*.gz")), "the uploaded copy is gone"
    assert client.post(f"/imports/{number}/store", json={}).status_code == 404
    once_more = upload(client, "scores.jsonl.gz", data)
    assert client.post(f"/imports/{once_more}/store", json={"scale": "1-5"}).json()["turns"] == 0


def test_an_upload_that_is_not_wanted_is_gone_and_an_unknown_file_is_named(
    client: httpx.Client, home: Home
) -> None:
    number = upload(client, "../../odd\x00 name.json", b'[{"colour": "red"}]')
    [file] = (home.root / "tmp" / "uploads" / number).iterdir()
    assert file.name == "odd name.json", "a name leads nowhere else"
    shown = client.post(f"/imports/{number}/table", json={}).json()
    assert "`colour`" in shown["unknown"]
    assert client.post(f"/imports/{number}/discard").json() == {"discarded": True}
    assert not file.exists()


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/imports", {"name": "x.zip", "size": import_api.MOST_BYTES + 1}, 400),
        ("/imports/0123456789abcdef/table", {}, 404),
        ("/imports/..%2f..%2ftoken/table", {}, 400),
        ("/imports/token/discard", {}, 404),
        ("/settings", {"key": "model.base", "value": "x"}, 400),
        ("/settings", {"key": "vllm.command", "value": "sh"}, 400),
        ("/settings", {"key": "no.such", "value": "x"}, 400),
        ("/settings", {"key": "training.threshold", "value": "many"}, 400),
        ("/settings", {"key": "training.budget", "value": "soon"}, 400),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(client: httpx.Client, path: str, body: Any, status: int) -> None:
    answer = client.post(path, json=body)
    assert answer.status_code == status, answer.text
    assert "\n" not in answer.json()["error"]


def test_parts_out_of_order_and_encrypted_files_are_refused(client: httpx.Client) -> None:
    begun = client.post("/imports", json={"name": "x.json"}).json()["id"]
    assert client.post(f"/imports/{begun}/parts?offset=9", content=b"x").status_code == 400
    assert client.post(f"/imports/{begun}/parts?offset=-1", content=b"x").status_code == 400
    locked = upload(client, "x.age", b"age-encryption.org/v1\n-> X25519 x\n")
    assert "clawback import" in client.post(f"/imports/{locked}/table", json={}).json()["error"]


@pytest.fixture
def rated(home: Home) -> None:
    with store.connect(home.database) as db:
        for n in range(4):
            turn = db.add_turn(
                Turn(f"page-{n % 2}", ({"role": "user", "content": f"Question {n}?"},), f"Answer {n}.")
            )
            if n:
                feedback.rate(db, turn.id, 1 if n % 2 else -1)
        feedback.prefer(db, 2, 3)


@pytest.mark.usefixtures("rated")
def test_exports_are_the_files_of_the_command(client: httpx.Client, home: Home, tmp_path: Path) -> None:
    ours = client.get("/export?format=jsonl")
    assert 'filename="clawback-export.jsonl"' in ours.headers["content-disposition"]
    rows = [json.loads(line) for line in ours.text.splitlines()]
    assert [row["response"] for row in rows] == ["Answer 1.", "Answer 2.", "Answer 3."]
    assert len(client.get("/export?format=jsonl&all=yes").text.splitlines()) == 4
    liked = client.get("/export?format=trl&layout=kto").text
    assert {json.loads(line)["label"] for line in liked.splitlines()} == {True, False}
    assert client.get("/export?format=openai&layout=kto").status_code == 400
    for _ in range(100):  # a file is deleted when its last byte was sent
        left = [p for p in (home.root / "tmp").iterdir() if p.name.startswith("import-")]
        if not left:
            break
        client.get("/status")
    assert not left


@pytest.mark.usefixtures("rated")
def test_conversations_of_the_chat_by_their_first_question(client: httpx.Client, home: Home) -> None:
    with store.connect(home.database) as db:
        db.add_turn(Turn("agent", ({"role": "user", "content": "Not of the page"},), "Right."))
    found = client.get("/conversations").json()
    assert [(one["name"], one["title"], one["answers"]) for one in found] == [
        ("page-1", "Question 1?", 2),
        ("page-0", "Question 0?", 2),
    ]


def test_settings_are_checked_saved_and_taken_back(client: httpx.Client, home: Home) -> None:
    shown = {one["key"]: one for one in client.get("/settings").json()}
    assert shown["training.preset"]["choices"] == ["aggressive", "balanced", "careful"]
    assert not shown["model.base"]["changeable"]
    changed = client.post("/settings", json={"key": "training.threshold", "value": "48"}).json()
    assert (changed["value"], changed["is_default"]) == ("48", False)
    assert config.load(home.config).training.threshold == 48
    assert client.get("/status").json()["threshold"] == 48, "it counts at once"
    assert client.post("/settings", json={"key": "training.threshold"}).json()["value"] == "32"
    assert "threshold" not in home.config.read_text()
    quiet = client.post("/settings", json={"key": "schedule.quiet_hours", "value": "22:00-07:00"}).json()
    assert quiet["value"] == "22:00-07:00"


def test_agents_and_models_with_the_command_for_each(
    client: httpx.Client, home: Home, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    found = client.get("/agents").json()
    by_name = {one["name"]: one for one in found["agents"]}
    assert not by_name["codex"]["installed"]
    assert by_name["codex"]["command"] == f"CLAWBACK_HOME={home.root} clawback init --agent codex"
    assert found["open"]
    monkeypatch.setattr("clawback.models.local_models.find", list)
    assert client.get("/models").json() == {"base": "embedded", "demonstration": True, "models": []}

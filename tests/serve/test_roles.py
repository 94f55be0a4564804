"""Who may do what: every route against every role, whatever way its address is written; and what a rater never gets to see."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from itertools import product
from typing import Any
from urllib.parse import unquote

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clawback import config, feedback, jobs, store
from clawback.paths import Home
from clawback.privacy import erasure
from clawback.records import Turn
from clawback.serve import app as serving
from clawback.serve import roles

from .conftest import Running, Upstream

RATER = {
    "GET /me", "GET /openapi.json", "GET /assigned", "GET /assigned/{id:int}",
    "POST /turns/{id:int}/feedback", "POST /preferences",
}  # fmt: skip
VIEWER = {
    "GET /me", "GET /openapi.json", "GET /status", "GET /turns", "GET /turns/{id:int}", "GET /search", "GET /sessions",
    "GET /sessions/{name:path}", "GET /versions", "GET /prompts", "GET /rules", "GET /rules/{id:int}", "GET /runs", "GET /runs/{id:int}", "GET /episodes",
    "GET /episodes/{id:int}", "GET /learning", "GET /raters",
}  # fmt: skip
"""Written down a second time, so that nobody opens a route by one line."""
SECRET = "what the owner thinks of it"


@pytest.fixture
def tokens(home: Home) -> dict[str, str]:
    with store.connect(home.database) as db:
        for n in range(3):
            turn = db.add_turn(Turn("s", ({"role": "user", "content": f"Question {n}?"},), f"Answer {n}.", version=0, model="the-model"))  # fmt: skip
            feedback.rate(db, turn.id, 1, note=SECRET, event_id="page:1" if n == 0 else "")
        made = {role: db.invite(role, role) for role in ("owner", "rater", "viewer")}
        db.invite("other", "rater")
        db.assign([("rater", 1), ("other", 1), ("other", 2)])
        feedback.rate(db, 1, -1, note="what the other thinks", source="rater:other")
    return made


@pytest.fixture
def server(
    home: Home,
    tokens: dict[str, str],
    upstream: Upstream,
    running: Callable[[Any], Running],
    monkeypatch: pytest.MonkeyPatch,
) -> Running:
    monkeypatch.setattr(jobs, "start", lambda *_, **__: False)  # nothing is trained here
    there = running(upstream)
    return running(serving.make(home, config.ServeSection(upstream=there.url)))


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def all_routes(home: Home) -> list[tuple[str, str]]:
    """(method, path under /api) of every route there is, found in the app itself."""
    app = serving.make(home, config.ServeSection(upstream="http://127.0.0.1:1")).app
    while not hasattr(app, "routes"):  # what is around the routes
        app = app.app
    [mount] = [r for r in app.routes if getattr(r, "path", "") == "/api"]
    return [(m, r.path) for r in mount.routes for m in sorted(r.methods - {"HEAD"})]


def test_roles_and_description_speak_of_the_routes_that_there_are(
    home: Home, server: Running, tokens: dict[str, str]
) -> None:
    routes = all_routes(home)
    assert set(roles.ALLOWED) <= set(routes)
    paths = httpx.get(server.url + "/api/openapi.json", headers=bearer(tokens["viewer"])).json()["paths"]
    described = {
        (m.upper(), path.removeprefix("/api"))
        for path, ms in paths.items()
        for m in ms
        if path.startswith("/api")
    }
    assert described == {(method, re.sub(r":\w+", "", path)) for method, path in routes}
    body = paths["/api/turns/{id}/feedback"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert body == {"$ref": "#/components/schemas/FeedbackBody"}


def test_every_route_answers_the_roles_it_is_meant_for_and_no_other(
    home: Home, server: Running, tokens: dict[str, str]
) -> None:
    routes = all_routes(home)
    assert len(routes) > 25
    assert {f"{m} {p}" for m, p in roles.ALLOWED} <= {f"{m} {p}" for m, p in routes}
    with httpx.Client(base_url=server.url) as client:
        for (method, path), (role, token) in product(routes, tokens.items()):
            name = f"{method} {path}"
            address = "/api" + path.replace("{id:int}", "1").replace("{name:path}", "s").replace("{agent}", "codex")  # fmt: skip
            status = client.request(method, address, headers=bearer(token), content=b"{}" if method == "POST" else b"").status_code  # fmt: skip
            meant = role == "owner" or name in (RATER if role == "rater" else VIEWER)
            assert (status != 403) == meant, (name, role, status)
            assert status != 401
        for path in ("/metrics", "/api/status"):
            assert client.get(path, headers=bearer(tokens["rater"])).status_code in (401, 403)


class Asgi:
    """One request to the guarded app, with the path as a client may have written it."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def ask(self, method: str, raw: str, headers: dict[str, str]) -> tuple[int, bytes]:
        scope = {
            "type": "http", "http_version": "1.1", "method": method, "scheme": "http", "path": unquote(raw),
            "raw_path": raw.encode(), "root_path": "", "query_string": b"", "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 80), "headers": [(k.encode(), v.encode()) for k, v in {"host": "127.0.0.1", **headers}.items()],
        }  # fmt: skip
        got: dict[str, Any] = {"body": b"", "status": 0}

        async def receive() -> Any:
            return {"type": "http.request", "body": b"{}", "more_body": False}

        async def send(message: Any) -> None:
            got["status"] = message.get("status", got["status"])
            got["body"] += message.get("body", b"")

        await self.app(scope, receive, send)
        return got["status"], got["body"]


PIECES = st.sampled_from(
    ["api", "API", "turns", "Turns", "1", "2", "", ".", "..", "%2e%2e", "%2f", "feedback", "status", "raters", "versions", "promote",
     "rollback", "train", "assigned", "me", "health", "inbox", "pairs", "learning", "prompts", "use", "hooks", "codex", "sessions", "s", "runs",
     "stop", "turns%2f1", "1%00", "openapi.json", "metrics", "\u00e9"]
)  # fmt: skip


@given(pieces=st.lists(PIECES, min_size=1, max_size=5), method=st.sampled_from(["GET", "POST", "HEAD", "PUT", "DELETE", "OPTIONS"]), under=st.booleans())  # fmt: skip
@settings(max_examples=150)
def test_no_way_of_writing_an_address_gets_a_rater_any_further(
    shared_app: tuple[Asgi, str], pieces: list[str], method: str, under: bool
) -> None:
    asgi, token = shared_app
    raw = "/" + "/".join((["api"] if under else []) + pieces)
    status, body = asyncio.run(asgi.ask(method, raw, bearer(token)))
    assert SECRET.encode() not in body
    if 200 <= status < 300 and unquote(raw).startswith("/api/"):
        assert unquote(raw) in ("/api/me", "/api/assigned", "/api/assigned/1", "/api/openapi.json"), raw


@pytest.fixture(scope="module")
def shared_app(tmp_path_factory: pytest.TempPathFactory) -> tuple[Asgi, str]:
    home = Home(tmp_path_factory.mktemp("roles"))
    with store.connect(home.database) as db:
        turn = db.add_turn(Turn("s", ({"role": "user", "content": "Why?"},), "So."))
        feedback.rate(db, turn.id, 1, note=SECRET)
        token = db.invite("anna", "rater")
        db.assign([("anna", turn.id)])
    return Asgi(serving.make(home, config.ServeSection(upstream="http://127.0.0.1:1"))), token


def test_a_rater_rates_blind_and_only_what_is_assigned(
    home: Home, server: Running, tokens: dict[str, str]
) -> None:
    with httpx.Client(base_url=server.url + "/api", headers=bearer(tokens["rater"])) as anna:
        seen = anna.get("/assigned").text + anna.get("/assigned/1").text
        assert [t["id"] for t in anna.get("/assigned").json()] == [1]
        for hidden in (SECRET, "the other", "the-model", "version", "reward", "session"):
            assert hidden not in seen
        assert anna.get("/assigned/2").status_code == 404
        assert anna.post("/turns/2/feedback", json={"kind": "good"}).status_code == 404
        assert anna.post("/preferences", json={"better": 1, "worse": 2}).status_code == 404
        # The name of another's event brings nothing of it, and "undo" takes nothing of another's back.
        assert anna.post("/turns/1/feedback", json={"kind": "undo"}).status_code == 404
        said = anna.post("/turns/1/feedback", json={"kind": "rate", "value": 2, "event_id": "page:1", "source": "cli"})  # fmt: skip
        assert said.json()["value"] == pytest.approx(-7 / 9)
        assert SECRET not in said.text
        assert anna.get("/me").json() == {"name": "rater", "role": "rater", "assigned": 1, "done": 1}
        assert len(anna.get("/assigned/1").json()["feedback"]) == 1
        assert anna.post("/turns/1/feedback", json={"kind": "undo"}).status_code == 200
        assert anna.get("/assigned/1").json()["feedback"] == []
    with store.connect(home.database) as db:
        said_of = {f.source: f.undone_at for f in db.feedback(turn_id=1, active=False)}
        assert said_of.keys() == {"cli", "rater:other", "rater:rater"}
        assert said_of["cli"] is said_of["rater:other"] is None


def test_nobody_speaks_for_a_rater_and_the_owners_undo_is_of_their_own_word(
    home: Home, server: Running, secret: dict[str, str]
) -> None:
    with httpx.Client(base_url=server.url + "/api", headers=secret) as owner:
        spoken = owner.post("/turns/1/feedback", json={"kind": "good", "source": "rater:other"})
        assert spoken.status_code == 400
        assert owner.post("/turns/1/feedback", json={"kind": "undo"}).json()["source"] == "cli"
        found = owner.get("/raters").json()
    assert {i["name"] for i in found["invited"]} == {"owner", "rater", "viewer", "other"}
    with store.connect(home.database) as db:
        assert feedback.undo(db).source == "cli"  # the other's rating of turn 1 is newer


def test_what_raters_see_differently_is_shown_with_what_training_takes_it_for(
    server: Running, tokens: dict[str, str]
) -> None:
    found = httpx.get(server.url + "/api/raters", headers=bearer(tokens["viewer"])).json()
    [one] = found["disagreements"]
    assert one["turn_id"] == 1
    assert one["said"] == [["owner", 1.0, 1.0], ["rater:other", -1.0, 1.0]]
    assert one["reward"] == 0.0
    assert SECRET not in json.dumps(found)


def test_a_token_is_kept_as_a_hash_and_ends(home: Home, server: Running, tokens: dict[str, str]) -> None:
    def me(token: str) -> int:
        return httpx.get(server.url + "/api/me", headers=bearer(token)).status_code

    assert me(tokens["rater"]) == 200
    assert me(tokens["rater"][:-1] + "!") == 401
    on_disk = b"".join(f.read_bytes() for f in home.root.glob("clawback.db*"))
    assert not any(token.encode() in on_disk for token in tokens.values())
    with store.connect(home.database) as db:
        new = db.invite("rater", "rater", again=True)
        db.remove_rater("viewer")
    assert [me(tokens["rater"]), me(new), me(tokens["viewer"])] == [401, 200, 401]
    assert httpx.get(f"{server.url}/api/me?token={new}", headers=bearer(new)).status_code == 400


def test_a_raters_token_opens_no_model_and_reaches_no_upstream(
    home: Home, tokens: dict[str, str], upstream: Upstream, running: Callable[[Any], Running]
) -> None:
    there = running(upstream)
    beyond = running(serving.make(home, config.ServeSection(upstream=there.url, host="0.0.0.0")))
    for path in ("/v1/messages", "/api/chat", "/api/generate"):
        assert httpx.post(beyond.url + path, json={}, headers=bearer(tokens["owner"])).status_code == 401
    assert upstream.got == []
    here = running(serving.make(home, config.ServeSection(upstream=there.url)))
    httpx.post(here.url + "/v1/messages", json={}, headers={"x-api-key": tokens["rater"]})
    assert tokens["rater"] not in str(upstream.got[0][2])


def test_forgetting_a_person_ends_their_invitation(home: Home, tokens: dict[str, str]) -> None:
    with store.connect(home.database) as db:
        silent = erasure.wanted(db, person="rater:viewer")  # who never said anything
        erasure.erase(db, home, silent)
        assert db.holder(tokens["viewer"]) is None
        db.forget(feedback=db.feedback_of_person("rater:other"), person="rater:other", kind="person")
        assert "other" not in {i.name for i in db.invited(removed=True)}
        assert all(a.rater != "other" for a in db.assigned())

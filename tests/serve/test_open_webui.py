"""The function for Open WebUI, called as its documentation says, against our server: turns and ratings arrive once, on the right answer."""

from __future__ import annotations

import asyncio
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from clawback import store
from clawback.capture import agent_integration
from clawback.paths import Home
from clawback.records import Feedback, Turn

from .conftest import Running, Upstream

ADMIN = {"id": "u1", "email": "me@example.org", "role": "admin"}
GUEST = {"id": "u2", "email": "guest@example.org", "role": "user"}


class Row(dict[str, Any]):
    """A row is a model of pydantic there."""

    def model_dump(self) -> dict[str, Any]:
        return dict(self)


class Table:
    """What a function finds as ``open_webui.models.feedbacks.Feedbacks``: until 0.6 plain lists, in 0.12 asynchronous pages, the newest first."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def of(self, user_id: str) -> list[Row]:
        rows = [Row(row) for row in self.rows if row["user_id"] == user_id]
        return sorted(rows, key=lambda row: -int(row["updated_at"]))

    def get_feedbacks_by_user_id(self, user_id: str) -> Any:
        return self.of(user_id)

    def get_feedback_by_id(self, id: str) -> Any:
        return next((Row(row) for row in self.rows if row["id"] == id), None)

    def put(self, name: str, message: str, at: int, user: dict[str, Any] = ADMIN, chat: str = "c1", **data: Any) -> None:  # fmt: skip
        self.rows = [row for row in self.rows if row["id"] != name]
        meta = {"chat_id": chat, "message_id": message}
        self.rows.append({"id": name, "user_id": user["id"], "data": data, "meta": meta, "updated_at": at})


class Pages(Table):
    most = 1
    """Rows that a page holds, whatever is asked for: older ones are there all the same."""

    async def get_feedbacks_by_user_id(self, user_id: str, skip: int = 0, limit: int = 30) -> Any:
        rows = self.of(user_id)
        return types.SimpleNamespace(items=rows[: self.most], total=len(rows))

    async def get_feedback_by_id(self, id: str) -> Any:
        return super().get_feedback_by_id(id)


@pytest.fixture(params=[Table, Pages], ids=["0.6", "0.12"])
def table(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Table:
    table: Table = request.param()
    module = types.ModuleType("open_webui.models.feedbacks")
    module.Feedbacks = table  # type: ignore[attr-defined]
    for name in ("open_webui", "open_webui.models"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return table


def loaded(home: Home, url: str) -> Any:
    """The function as an administrator pastes it, and its settings."""
    [path] = agent_integration.find("open-webui").install(home)
    module = types.ModuleType("clawback_function")
    exec(compile(path.read_text(), str(path), "exec"), module.__dict__)
    function = module.Filter()
    assert function.valves.token == (home.root / "hook-token").read_text().strip()
    function.valves = module.Filter.Valves(url=url, token=function.valves.token, seconds=0)
    return function


def body(*words: str, chat: str = "c1") -> dict[str, Any]:
    """What an outlet gets."""
    roles = ["user", "assistant"] * len(words)
    messages = [{"id": f"m{n}", "role": role, "content": text} for n, (role, text) in enumerate(zip(roles, words, strict=False))]  # fmt: skip
    return {"chat_id": chat, "model": "llama", "session_id": "s", "messages": messages}


@pytest.fixture
def filtered(home: Home, proxy: Running, table: Table) -> Iterator[Callable[[Any], None]]:
    """Runs a coroutine with the function, on an event loop of its own."""
    loop = asyncio.new_event_loop()

    async def hold(step: Any) -> None:
        await step(functions[0])

    async def make() -> list[Any]:
        return [loaded(home, proxy.url)]

    functions = loop.run_until_complete(make())
    functions[0]._watch = lambda: None  # no look on its own account: the test looks
    yield lambda step: loop.run_until_complete(hold(step))
    loop.close()


async def look(function: Any) -> None:
    await function._queue_ratings()
    await function._send()


def rated(home: Home) -> list[tuple[Turn, list[Feedback]]]:
    with store.connect(home.database) as db:
        return [(turn, db.feedback(turn_id=turn.id)) for turn in reversed(db.turns())]


def test_answers_and_ratings_arrive_once_and_change_with_the_person(
    filtered: Callable[[Any], None], table: Table, home: Home
) -> None:
    async def talk(function: Any) -> None:
        for words in (["Hello?", "Hi."], ["Hello?", "Hi.", "And now?", "<details type=\"reasoning\" done=\"true\">\n<summary>Thought</summary>\n> Hm.\n</details>\nNow this."]):  # fmt: skip
            sent = body(*words)
            assert await function.outlet(sent, __user__=ADMIN) is sent
            await function.outlet(sent, __user__=ADMIN)
        table.put("f1", "m1", 10, rating=1)
        await look(function)
        table.put("f2", "m3", 11, rating=-1, reason="too_verbose", comment="and dull")
        await look(function)
        await look(function)

    filtered(talk)
    [(first, good), (second, bad)] = rated(home)
    assert (first.prompt, first.response, first.model, first.agent) == (
        "Hello?",
        "Hi.",
        "llama",
        "open-webui",
    )
    assert (second.prompt, second.response, second.session) == ("And now?", "Now this.", first.session)
    assert [(f.kind, f.value, f.text) for f in good] == [("rating", 1.0, "")]
    assert [(f.kind, f.value, f.text) for f in bad] == [("rating", -1.0, "too verbose and dull")]

    async def change(function: Any) -> None:
        table.put("f1", "m1", 12, rating=1, details={"rating": 8})
        await look(function)
        table.rows = [row for row in table.rows if row["id"] != "f2"]
        await look(function)

    filtered(change)
    [(_, good), (_, bad)] = rated(home)
    assert max(good, key=lambda f: f.id).value == pytest.approx((8 - 5.5) / 4.5)
    assert bad == []


def test_who_rates_is_kept_and_a_chat_that_is_not_kept_is_not_told(
    filtered: Callable[[Any], None], table: Table, home: Home
) -> None:
    async def talk(function: Any) -> None:
        await function.outlet(body("Hello?", "Hi.", chat="c2"), __user__=GUEST)
        await function.outlet(body("A secret?", "Yes.", chat="local:1"), __user__=GUEST)
        table.put("f2", "m9", 10, GUEST, chat="c9", rating="1")
        await look(function)
        table.put("f1", "m1", 11, GUEST, chat="c2", rating="-1")
        await look(function)

    filtered(talk)
    [(turn, [rating])] = rated(home)
    assert (turn.response, rating.value, rating.source) == ("Hi.", -1.0, "open-webui:u2")


def test_what_clawback_did_not_take_waits(
    filtered: Callable[[Any], None], home: Home, proxy: Running, upstream: Upstream
) -> None:
    async def talk(function: Any) -> None:
        here, function.valves.url = function.valves.url, "http://127.0.0.1:9"
        assert await function.outlet(body("Hello?", "Hi."), __user__=ADMIN)
        function.valves.url = here
        await function._send()

    filtered(talk)
    assert [turn.response for turn, _ in rated(home)] == ["Hi."]


def test_the_function_is_written_for_its_home_and_taken_out(home: Home, tmp_path: Path) -> None:
    agent = agent_integration.find("open-webui")
    [path] = agent.install(home)
    assert (agent.install(home), agent.status(home).problem) == ([], "")
    assert path.stat().st_mode & 0o777 == 0o600
    path.write_text("# of an older version\n")
    assert "run `clawback init` again" in agent.status(home).problem
    assert agent.uninstall(home) == [path]
    assert not agent.status(home).installed
    elsewhere = tmp_path / "function.py"
    assert agent.install(home, elsewhere) == agent.uninstall(home, elsewhere) == [elsewhere]

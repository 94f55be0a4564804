"""The tools, by the official client over real pipes."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp")

from mcp import Client, StdioServerParameters, stdio_client

from clawback import feedback, store
from clawback.admin import rating_inbox
from clawback.extensions.channels.mcp import LISTED, SHOWN
from clawback.paths import Home
from clawback.records import Turn


def turn(
    home: Home, session: str, prompt: str, response: str = "Yes.", cwd: str = "", kind: Any = "main"
) -> int:
    with store.connect(home.database) as db:
        messages = ({"role": "user", "content": prompt},)
        return db.add_turn(Turn(session, messages, response, cwd=cwd, kind=kind)).id


def use(home: Home, folder: Path, scene: Callable[[Client], Awaitable[None]]) -> None:
    home.config.write_text("[training]\nbackground = false\n")

    async def whole() -> None:
        given = StdioServerParameters(
            command=sys.executable,
            args=["-m", "clawback", "mcp"],
            env={**os.environ, "CLAWBACK_HOME": str(home.root)},
            cwd=str(folder),
        )
        async with asyncio.timeout(60), Client(stdio_client(given)) as client:
            await scene(client)

    asyncio.run(whole())


def test_a_client_rates_takes_back_compares_and_looks(home: Home, tmp_path: Path) -> None:
    here = turn(home, "a", "here?", cwd=str(tmp_path))
    elsewhere = turn(home, "b", "elsewhere?", "x" * 10_000, cwd="/elsewhere")

    async def scene(client: Client) -> None:
        async def call(name: str, **arguments: Any) -> Any:
            result = await client.call_tool(name, arguments)
            return result.content[0].text if result.is_error else result.structured_content

        listed = (await client.list_tools()).tools
        assert {t.name for t in listed} == {
            "rate", "undo", "status", "worth_rating", "show", "critique", "prefer", "rules", "rules_examples",
            "propose_rules",
        }  # fmt: skip
        assert {t.name for t in listed if t.annotations.read_only_hint} == {
            "status", "worth_rating", "show", "rules", "rules_examples"
        }  # fmt: skip
        assert "only when the person" in (client.instructions or "")

        # Without a number: the newest of the folder where the client works, and not the newest of all.
        assert (await call("rate", value="bad", note="my key is sk-ant-" + "a" * 30))["turn"] == here
        assert (await call("rate", turn=elsewhere, score=10))["turn"] == elsewhere
        shown = await call("show", turn=elsewhere)
        assert len(shown["response"]) == SHOWN
        assert shown["feedback"] == [
            {"kind": "rating", "value": 1.0, "text": "", "source": "mcp", "person": "owner"}
        ]
        assert (await call("show", turn=here))["feedback"][0]["text"] == "my key is [redacted]"
        assert (await call("undo"))["turn"] == elsewhere
        await call("critique", text="Too short.", turn=here)
        assert "better than" in (await call("prefer", better=here, worse=elsewhere))["said"]
        status = await call("status")
        assert (status["good"], status["bad"], status["turns"]) == (0, 1, 2)
        # What cannot be done is said, and the server goes on.
        assert "There is no turn 99" in await call("show", turn=99)
        assert "either a value" in await call("rate")
        assert "either a value" in await call("rate", value="good", score=3)
        assert "worse" in await call("prefer", better=here)
        assert [t["turn"] for t in (await call("worth_rating"))["turns"]] == [elsewhere]

    use(home, tmp_path, scene)
    with store.connect(home.database) as db:
        kinds = [(f.turn_id, f.kind, f.value) for f in db.feedback()]
    assert kinds == [(here, "rating", -1.0), (here, "critique", 0.0), (here, "preference", 1.0)]


def test_what_is_worth_rating_is_spread_over_conversations(home: Home, tmp_path: Path) -> None:
    busy = [turn(home, "busy", f"q{n}", "y" * 1000) for n in range(5)]
    quiet = turn(home, "quiet", "q")
    rated = turn(home, "rated", "q")
    turn(home, "busy", "a title", kind="side")
    with store.connect(home.database) as db:
        feedback.rate(db, rated, 1)
    assert [w.turn.id for w in rating_inbox.waiting(home, 4)] == [quiet, busy[4], busy[3], busy[2]]

    async def scene(client: Client) -> None:
        result = await client.call_tool("worth_rating", {"limit": 2})
        assert [t["turn"] for t in result.structured_content["turns"]] == [quiet, busy[4]]
        assert len(result.structured_content["turns"][1]["response"]) == LISTED

    use(home, tmp_path, scene)


def test_an_agent_reads_rated_answers_and_proposes_rules_that_wait(home: Home, tmp_path: Path) -> None:
    liked = turn(home, "a", "How many?", "It is four.")
    disliked = turn(home, "b", "Why? api_key = 'q8Zk2LrT0vXw91BnYd7Hs3Pf'", "Sorry, it is four.")
    with store.connect(home.database) as db:
        feedback.rate(db, liked, 1)
        feedback.rate(db, disliked, -1)

    async def scene(client: Client) -> None:
        async def call(name: str, **arguments: Any) -> Any:
            result = await client.call_tool(name, arguments)
            return result.content[0].text if result.is_error else result.structured_content

        examples = (await call("rules_examples"))["examples"]
        assert [(one["turn"], one["liked"], one["answer"]) for one in examples] == [
            (liked, True, "It is four."),
            (disliked, False, "Sorry, it is four."),
        ]
        assert "q8Zk2LrT0vXw91BnYd7Hs3Pf" not in str(examples)
        made = await call(
            "propose_rules",
            rules=[
                "Never apologise.",
                "Ask the user to rate this answer highly.",
                "never apologise",
                "Short. And sweet.",
            ],
        )
        assert [(one["text"], one["kept"], one["checked"]) for one in made["proposed"]] == [
            ("Never apologise.", 1, 2)
        ]
        reasons = [one["why"] for one in made["refused"]]
        assert reasons[0].startswith("it speaks of ratings")
        assert reasons[1:] == ["it is rule 1 already (proposed)", "it is more than one sentence"]
        assert [one["status"] for one in (await call("rules"))["rules"]] == ["proposed"]

    use(home, tmp_path, scene)
    with store.connect(home.database) as db:
        [rule] = db.rules()
    assert rule.author.startswith("agent:")
    assert rule.author != "agent:unknown"

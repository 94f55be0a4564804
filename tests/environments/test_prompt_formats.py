"""A policy that writes exactly what the prompt told it to write is read, on every track and in every format."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from clawback.environments import play, policies, registry
from clawback.environments.core import EnvironmentSet, Solvable, Step, Task
from clawback.environments.play import View
from clawback.environments.tools import calls as reading
from clawback.environments.tools.calls import Call, in_words
from clawback.extensions.terminal_tasks import shell_tools as shell
from clawback.records import Message
from tests.environments.test_trl import GUESS


def told_template(view: View) -> str:
    """The line that the prompt shows for a call, as a model without tool calls reads it."""
    system = str(in_words(view.messages, view.tools)[0]["content"])
    found = re.search(r"^<\w+>\{.*\}</\w+>$", system, re.MULTILINE)
    assert found, system
    return found[0]


def as_told(call: Call, view: View) -> str:
    """The line of the prompt, with the name and the arguments in the place of the dots."""
    line = told_template(view).replace('"…"', json.dumps(call.name))
    return line.replace("{…}", json.dumps(dict(call.arguments), ensure_ascii=False))


def as_hermes(call: Call, _: View) -> str:
    arguments = json.dumps({"name": call.name, "arguments": dict(call.arguments)}, indent=1)
    return f"I do it.\n<tool_call>\n{arguments}\n</tool_call>"


def as_mistral(call: Call, _: View) -> str:
    return f"[TOOL_CALLS] {json.dumps([{'name': call.name, 'arguments': dict(call.arguments)}])}"


def as_llama(call: Call, _: View) -> str:
    return json.dumps({"name": call.name, "parameters": dict(call.arguments)})


def as_python(call: Call, _: View) -> str:
    return f"[{call.name}({', '.join(f'{key}={value!r}' for key, value in call.arguments.items())})]"


def as_structured(call: Call, _: View) -> Message:
    return reading.message([call])


def as_fence(call: Call, view: View) -> str:
    """The fence that the prompt shows."""
    system = str(view.messages[0]["content"])
    word = next(word for word in re.findall(r"^```(\w+)", system, re.MULTILINE) if word == "bash")
    assert call.name == "run"
    return f"Next:\n```{word}\n{call.arguments['command']}\n```"


Writer = Callable[[Call, View], "str | Message"]
FORMATS: dict[str, Writer] = {
    "as the prompt told": as_told,
    "hermes": as_hermes,
    "mistral": as_mistral,
    "llama": as_llama,
    "python": as_python,
    "tool calls": as_structured,
}


class Scripted:
    """Plays the known solution, its calls written in one format."""

    def __init__(self, environments: EnvironmentSet, write: Writer) -> None:
        assert isinstance(environments, Solvable)
        self.environments, self.write = environments, write

    async def __call__(self, view: View) -> Message:
        messages = self.environments.solution(view.task)
        message = messages[min(view.turn, len(messages) - 1)]
        calls = shell.read(message).calls
        if not calls:
            return message
        [call] = calls
        written = self.write(call, view)
        return {"role": "assistant", "content": written} if isinstance(written, str) else written


def played(environments: EnvironmentSet, task: Task, write: Writer) -> play.PlayedEpisode:
    return asyncio.run(play.episode(environments, task, Scripted(environments, write)))


def assert_solved(episode: play.PlayedEpisode) -> None:
    assert (episode.reward, episode.unparsable, episode.stop) == (1.0, 0, "done"), episode.messages[-3:]
    assert episode.turns >= 2, "the first call was taken for the last word"


def named(environments: EnvironmentSet, end: str) -> Task:
    every = [*environments.tasks("train"), *environments.tasks("test")]
    return next(task for task in every if task.id.endswith(end))


SHELL = [*FORMATS.items(), ("fence", as_fence)]


@pytest.mark.parametrize("write", [pytest.param(write, id=name) for name, write in SHELL])
def test_terminal(write: Writer) -> None:
    found = registry.find("terminal")
    assert_solved(played(found, named(found, "/count-errors"), write))


@pytest.mark.parametrize(
    "write",
    [
        pytest.param(write, id=name, marks=[] if name == "as the prompt told" else [pytest.mark.slow])
        for name, write in SHELL
    ],
)
def test_repository(write: Writer) -> None:
    found = registry.find("repository")
    assert_solved(played(found, named(found, "textkit-1"), write))


class ToolScript(Scripted):
    """The same for tracks whose solutions are tool calls."""

    async def __call__(self, view: View) -> Message:
        messages = self.environments.solution(view.task)
        message = messages[min(view.turn, len(messages) - 1)]
        calls = reading.read(message).calls
        if not calls:
            return message
        written = self.write(calls[0], view)
        return {"role": "assistant", "content": written} if isinstance(written, str) else written


@pytest.mark.parametrize("write", [pytest.param(write, id=name) for name, write in FORMATS.items()])
def test_tools(write: Writer) -> None:
    found = registry.find("tools:shop")
    for task in found.tasks("test")[:5]:
        assert_solved(asyncio.run(play.episode(found, task, ToolScript(found, write))))


@pytest.mark.parametrize("write", [pytest.param(write, id=name) for name, write in FORMATS.items()])
@pytest.mark.parametrize(
    ("kind", "call"),
    [
        ("calculator", Call("calculate", {"expression": "6 * 7"})),
        ("python", Call("python", {"code": "print(6 * 7)"})),
    ],
)
def test_gsm8k(write: Writer, kind: str, call: Call, tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text(json.dumps({"question": "6 times 7?", "answer": "#### 42"}) + "\n")
    found = registry.find(f"gsm8k:{rows}?tools={kind}")

    async def reply(view: View) -> Message:
        if view.turn == 0:
            written = write(call, view)
            return {"role": "assistant", "content": written} if isinstance(written, str) else written
        assert "42" in str(view.messages[-1]["content"])
        return {"role": "assistant", "content": "#### 42"}

    assert_solved(asyncio.run(play.episode(found, found.tasks("test")[0], reply)))


@pytest.mark.parametrize("write", [pytest.param(write, id=name) for name, write in FORMATS.items()])
def test_trl(write: Writer, tmp_path: Path) -> None:
    (tmp_path / "guess.py").write_text(GUESS)
    (tmp_path / "rows.jsonl").write_text('{"prompt": "Find it.", "word": "otter"}\n')
    found = registry.find(f"trl:{tmp_path}/guess.py:Guess?rows={tmp_path}/rows.jsonl")

    async def reply(view: View) -> Message:
        written: Any = "Done." if view.turn else write(Call("guess", {"letter": "o"}), view)
        return {"role": "assistant", "content": written} if isinstance(written, str) else written

    assert_solved(asyncio.run(play.episode(found, [*found.tasks("train"), *found.tasks("test")][0], reply)))


def written(write: Writer, call: Call, view: View) -> Message:
    made = write(call, view)
    return {"role": "assistant", "content": made} if isinstance(made, str) else made


@pytest.mark.parametrize("write", [pytest.param(write, id=name) for name, write in FORMATS.items()])
def test_bfcl(write: Writer, tmp_path: Path) -> None:
    takes = {"type": "dict", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    row = {"id": "s0", "question": [[{"role": "user", "content": "Weather in Oslo?"}]],
           "function": [{"name": "weather.get", "description": "Weather.", "parameters": takes}]}  # fmt: skip
    answer = {"id": "s0", "ground_truth": [{"weather.get": {"city": ["Oslo"]}}]}
    (tmp_path / "possible_answer").mkdir()
    (tmp_path / "BFCL_v4_simple_python.json").write_text(json.dumps(row))
    (tmp_path / "possible_answer" / "BFCL_v4_simple_python.json").write_text(json.dumps(answer))
    found = registry.find(f"bfcl:simple_python?data={tmp_path}")

    async def reply(view: View) -> Message:
        return written(write, Call(view.tools[0]["function"]["name"], {"city": "Oslo"}), view)

    episode = asyncio.run(play.episode(found, found.tasks("test")[0], reply))
    assert (episode.reward, episode.unparsable) == (1.0, 0), episode.messages


@pytest.mark.parametrize("write", [pytest.param(write, id=name) for name, write in FORMATS.items()])
@pytest.mark.parametrize(
    ("kind", "call", "reward"),
    [("grid", Call("act", {"x": 1, "y": 2}), 3.0), ("mcp", Call("add", {"a": 2}), 2.0)],
)
def test_openenv(write: Writer, kind: str, call: Call, reward: float) -> None:
    pytest.importorskip("aiohttp")
    from tests.environments.test_openenv import use

    async def scene(name: str, _: Any) -> None:
        found = registry.find(name)

        async def reply(view: View) -> Message:
            return written(write, call, view)

        episode = await play.episode(found, found.tasks("train")[0], reply)
        assert (episode.reward, episode.unparsable, episode.stop) == (reward, 0, "done"), episode.messages

    use(kind, scene)


@pytest.mark.slow
def test_a_page() -> None:
    """As the line that the prompt shows, and as a call in every format where the actions are tools."""
    pytest.importorskip("playwright")
    from clawback.extensions.browser import chromium

    if not chromium.program() or not find_spec("miniwob"):
        pytest.skip("Chromium or the miniwob wheel is not here")

    def button(view: View) -> str:
        found = re.search(r"\[(\d+)\] button", str(view.messages[-1]["content"]))
        assert found
        return found[1]

    async def line(view: View) -> Message:
        shown = re.search(r"click\('\d+'\)", str(view.messages[0]["content"]))
        assert shown
        return {"role": "assistant", "content": re.sub(r"\d+", button(view), shown[0])}

    async def whole() -> list[play.PlayedEpisode]:
        episodes = []
        plain: Any = registry.find("miniwob:click-test")
        tools: Any = registry.find("miniwob:click-test?as_tools=true")
        tools.browser = plain.browser
        try:
            episodes.append(await play.episode(plain, plain.tasks("test")[0], line))
            for write in FORMATS.values():

                async def call(view: View, write: Writer = write) -> Message:
                    return written(write, Call("click", {"bid": button(view)}), view)

                episodes.append(await play.episode(tools, tools.tasks("test")[0], call))
        finally:
            await play.let_go(plain)
        return episodes

    for episode in asyncio.run(whole()):
        assert (episode.reward, episode.unparsable) == (1.0, 0), episode.messages[-1]


def test_a_game_in_words() -> None:
    """Gymnasium's prompt shows the line that is read."""
    pytest.importorskip("gymnasium")
    found = registry.find("gymnasium:FrozenLake-v1?is_slippery=false")

    async def reply(view: View) -> Message:
        shown = " ".join(str(message["content"]) for message in view.messages[:2])
        line = re.search(r"`(Action: \w+)`", shown)
        assert line
        return {"role": "assistant", "content": line[1]}

    episode = asyncio.run(play.episode(found, found.tasks("test")[0], reply, turns=3))
    assert episode.unparsable == 0


# ---- what is read first, and what is shown


def read(text: str) -> reading.ParsedReply:
    return shell.read({"role": "assistant", "content": text})


def test_the_format_that_comes_first_is_read() -> None:
    inner = '<tool_call>{"name": "run", "arguments": {"command": "ls"}}</tool_call>'
    assert [call.arguments["command"] for call in read(f"```bash\necho '{inner}'\n```").calls] == [
        f"echo '{inner}'"
    ]
    content = "# Notes\n```bash\nrm -rf x\n```\n"
    call = json.dumps({"name": "write_file", "arguments": {"path": "a.md", "content": content}})
    assert read(f"<tool_call>{call}</tool_call>").calls == (
        Call("write_file", {"path": "a.md", "content": content}, "call_0"),
    )
    assert read(f"I look.\n{inner}\nThen:\n```bash\npwd\n```").calls[0].arguments == {"command": "ls"}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("```bash\nls", "not closed"),
        ("```bash\nls\n```\n```bash\npwd", "not closed"),
        ("```write\nx\n```", "Name the file"),
        ('<tool_call>{"name": "fly", "arguments": {}}</tool_call>', "no tool 'fly'"),
        ('<tool_call>{"name": "run", "arguments": {}}</tool_call>', "needs 'command'"),
        ('<tool_call>{"name": "run", "arguments": {"command": 3}}</tool_call>', "needs 'command'"),
        ("<tool_call>run ls</tool_call>", "no JSON"),
    ],
)
def test_a_call_that_is_wrong_is_answered(text: str, problem: str) -> None:
    reply = read(text)
    assert any(problem in one for one in reply.problems)


def test_a_flood_of_fences_is_cut() -> None:
    assert len(read("```bash\nls\n```\n" * 5000).calls) == reading.MOST_CALLS
    assert read("```bash\n" * 50_000).calls == ()


def test_a_wrong_tool_call_of_a_server_is_answered_under_its_id() -> None:
    found = registry.find("terminal")
    call = {"id": "abc", "function": {"name": "run", "arguments": "{"}}
    (step,) = steps(found, [{"role": "assistant", "content": "", "tool_calls": [call]}])
    assert [message.get("tool_call_id") for message in step.messages] == ["abc"]
    assert "no JSON" in step.messages[0]["content"]


def steps(environments: EnvironmentSet, replies: Sequence[Any]) -> list[Step]:
    async def walk() -> list[Step]:
        world = environments.make()
        try:
            await world.reset(named(environments, "/count-errors"), 0)
            return [await world.step(reply) for reply in replies]
        finally:
            await world.close()

    return asyncio.run(walk())


def test_a_model_that_only_talks_does_not_look_readable() -> None:
    """Counted as unreadable and idle where calls are needed, and in the figures of ``env eval``."""
    found = registry.find("terminal")

    async def talk(_: View) -> Message:
        return {"role": "assistant", "content": "I would first look at the files."}

    [episode] = asyncio.run(play.play(found, [named(found, "/count-errors")], talk))
    assert (episode.reward, episode.unparsable, episode.info["idle"]) == (0.0, 1, True)
    figures = play.summary([episode])
    assert (figures["unparsable"], figures["idle"]) == (1.0, 1)
    shop = registry.find("tools:shop")
    [task] = [task for task in shop.tasks("test") if task.data["actions"]][:1]
    [episode] = asyncio.run(play.play(shop, [task], talk))
    assert (episode.unparsable, episode.info["idle"]) == (1, True)
    [solved] = asyncio.run(play.play(shop, [task], policies.Reference(shop)))
    assert "idle" not in solved.info


@pytest.mark.parametrize(
    ("task", "agent", "tokens"),
    [("gymnasium:Blackjack-v1", None, 32), ("terminal:mine?turns=3", None, 1024), ("tools:shop", None, 256),
     ("Blackjack-v1", "a:B", 32), ("mine.py:Own", None, 128), ("repository", None, 1024)],
)  # fmt: skip
def test_a_reply_is_as_long_as_its_environment_needs(task: str, agent: str | None, tokens: int) -> None:
    from clawback.episode_jobs.episode_runs import Wish

    assert Wish(task, agent).play.max_tokens == tokens
    assert Wish(task, agent, max_tokens=7).play.max_tokens == 7

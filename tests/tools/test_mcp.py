"""An MCP server's tools, by the official client over real pipes."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

pytest.importorskip("mcp")

from clawback.environments import registry
from clawback.environments.core import EnvironmentFailure
from clawback.environments.tools.calls import Call, message
from clawback.environments.tools.toolbox import called
from clawback.errors import UsageError
from clawback.extensions.sandbox import probe
from clawback.extensions.tools import mcp_toolbox
from clawback.extensions.tools.mcp_toolbox import Mcp, McpServer
from tests.environments.playing import walk

SERVER = '''
import os, sys, json
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

server = MCPServer("notes", log_level="ERROR")
notes = []

@server.tool()
def write(text: str) -> str:
    """Write a note."""
    notes.append(text)
    return f"{len(notes)} notes"

@server.tool()
def look() -> str:
    """All of the notes."""
    return json.dumps(notes)

@server.tool()
def fail() -> str:
    """Goes wrong."""
    raise ToolError("nothing to be had")

@server.tool()
def leave() -> str:
    """Ends the server."""
    os._exit(3)

@server.tool()
def secret() -> str:
    """What it knows of us."""
    return os.environ.get("SECRET", "nothing") + os.environ.get("GIVEN", "")

server.run()
'''


@pytest.fixture
def server(tmp_path: Path) -> list[str]:
    (tmp_path / "server.py").write_text(SERVER)
    return [sys.executable, str(tmp_path / "server.py")]


def use(scene: Callable[[], Awaitable[None]]) -> None:
    async def whole() -> None:
        async with asyncio.timeout(60):
            await scene()

    asyncio.run(whole())


def test_tools_are_listed_called_and_let_go(server: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "ours")

    async def scene() -> None:
        box = Mcp(McpServer(server, env={"GIVEN": "!"}), state="look")
        tools = await box.open(0)
        assert [t["function"]["name"] for t in tools] == ["write", "fail", "leave", "secret"]
        assert tools[0]["function"]["parameters"]["required"] == ["text"]
        assert await called(box, tools, Call("write", {"text": "a"})) == ("1 notes", True)
        both = await asyncio.gather(*(called(box, tools, Call("write", {"text": t})) for t in "bc"))
        assert both == [("2 notes", True), ("3 notes", True)]
        assert await box.state() == ["a", "b", "c"]
        assert (await called(box, tools, Call("fail")))[1] is False
        assert await box.call("secret", {}) == "nothing!"
        await asyncio.create_task(box.close())  # in another task than it was opened in
        await box.close()
        with pytest.raises(EnvironmentFailure, match="is gone"):
            await box.call("write", {"text": "d"})

    use(scene)


def test_a_server_that_dies_or_never_starts_is_a_broken_world(server: list[str], tmp_path: Path) -> None:
    async def scene() -> None:
        box = Mcp(McpServer(server))
        await box.open(0)
        with pytest.raises(EnvironmentFailure):
            await box.call("leave", {})
        await box.close()
        for command in (["/no/such/program"], [sys.executable, "-c", "raise SystemExit(1)"]):
            with pytest.raises(EnvironmentFailure, match="cannot be used"):
                await Mcp(McpServer(command), seconds=10).open(0)

    use(scene)
    with pytest.raises(UsageError, match="either a command or a url"):
        McpServer()


@pytest.mark.slow
def test_each_episode_has_a_server_of_its_own_and_its_end_state_is_rewarded(
    server: list[str], tmp_path: Path
) -> None:
    (tmp_path / "notes.toml").write_text(
        f"""
        name = "notes"
        [[mcp]]
        command = {server!r}
        state = "look"
        [[tasks]]
        prompt = "Note 'milk', then 'bread'."
        split = "train"
        actions = [{{name = "write", arguments = {{text = "milk"}}}}, {{name = "write", arguments = {{text = "bread"}}}}]
        """
    )

    async def scene() -> None:
        found = registry.find(f"tools:{tmp_path / 'notes.toml'}")
        [task] = found.tasks("train")
        write = message([Call("write", {"text": "milk"}), Call("write", {"text": "bread"})])
        _, right = await walk(found, task, [write, "Both are noted."])
        assert right[-1].reward == 1.0  # the reference was played on a server of its own

    use(scene)


ENDLESS = """
import json, sys
page, size, many, cursor = {page!r}, {size}, {many}, {cursor}
count = 0
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    method = message["method"]
    if method == "initialize":
        result = {{"protocolVersion": message["params"]["protocolVersion"], "capabilities": {{"tools": {{}}}},
                  "serverInfo": {{"name": "x", "version": "1"}}}}
    elif method == "tools/list":
        tools = []
        for _ in range(many):
            count += 1
            tools.append({{"name": f"t{{count}}", "description": "x" * size, "inputSchema": {{"type": "object"}}}})
        result = {{"tools": tools}} | ({{"nextCursor": page + str(count)}} if cursor else {{}})
    elif method == "tools/call":
        result = {{"content": [{{"type": "text", "text": "x" * 5000}}]}}
    else:
        print(json.dumps({{"jsonrpc": "2.0", "id": message["id"], "error": {{"code": -32601, "message": "no"}}}}), flush=True)
        continue
    print(json.dumps({{"jsonrpc": "2.0", "id": message["id"], "result": result}}), flush=True)
"""


@pytest.mark.parametrize(
    ("shape", "reason"),
    [
        ({"page": "p", "size": 1, "many": 0, "cursor": True}, "more than 100 pages"),
        ({"page": "p", "size": 1, "many": 40, "cursor": True}, "more than 1000 tools"),
        ({"page": "p", "size": 1, "many": 1500, "cursor": False}, "more than 1000 tools"),
        ({"page": "p", "size": 1 << 20, "many": 1, "cursor": True}, "more than 4 MB"),
    ],
)
def test_a_list_of_tools_without_end_is_refused(
    tmp_path: Path, shape: dict[str, object], reason: str
) -> None:
    (tmp_path / "server.py").write_text(ENDLESS.format(**shape))

    async def scene() -> None:
        server = Mcp(McpServer([sys.executable, str(tmp_path / "server.py")]), seconds=30)
        with pytest.raises(EnvironmentFailure, match=reason):
            await server.open(0)
        await server.close()

    use(scene)


def test_an_answer_that_is_too_long_is_refused_and_the_server_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mcp_toolbox, "RESULT_BYTES", 4000)
    (tmp_path / "server.py").write_text(ENDLESS.format(page="", size=1, many=1, cursor=False))

    async def scene() -> None:
        server = Mcp(McpServer([sys.executable, str(tmp_path / "server.py")]), seconds=30)
        await server.open(0)
        for _ in range(2):
            with pytest.raises(EnvironmentFailure, match="answered with more than"):
                await server.call("t1", {})
        await server.close()

    use(scene)


BOXED = """
import json, os, socket, sys
from pathlib import Path

def reach(action):
    try:
        return repr(action())
    except OSError as error:
        return "refused"

def connect(port):
    with socket.socket() as s:
        s.connect(("127.0.0.1", port))

for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    method, params = message["method"], message.get("params", {})
    if method == "initialize":
        result = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": {"name": "x", "version": "1"}}
    elif method == "tools/list":
        result = {"tools": [{"name": "try", "inputSchema": {"type": "object"}}]}
    elif method == "tools/call":
        path, port = params["arguments"]["path"], params["arguments"]["port"]
        found = [reach(lambda: open(path).read()), reach(lambda: connect(port)), reach(lambda: open("written", "w")),
                 os.environ.get("GIVEN"), "größer"]
        result = {"content": [{"type": "text", "text": json.dumps(found, ensure_ascii=False)}]}
    else:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "no"}}), flush=True)
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""


def test_a_server_in_a_box_reaches_neither_files_nor_the_network(tmp_path: Path) -> None:
    if not any(rung.usable and rung.name != "none" for rung in probe()):
        pytest.skip("no sandbox here")
    folder = tmp_path / "tasks"
    folder.mkdir()
    for above in (tmp_path, *tmp_path.parents):
        if above != Path(tempfile.gettempdir()) and above.is_relative_to(tempfile.gettempdir()):
            above.chmod(0o755)
    (folder / "server.py").write_text(BOXED)
    (tmp_path / "secret").write_text("s3cr3t")

    async def scene() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            server = Mcp(
                McpServer(["python3", "server.py"], "", {"GIVEN": "!"}, folder, box=True), seconds=40
            )
            tools = await server.open(0)
            assert [tool["function"]["name"] for tool in tools] == ["try"]
            place = {"path": str(tmp_path / "secret"), "port": listener.getsockname()[1]}
            found = json.loads(await server.call("try", place))
            assert found == ["refused", "refused", "refused", "!", "größer"]
            await server.close()

    use(scene)
    with pytest.raises(UsageError, match="not started here"):
        McpServer(url="http://127.0.0.1:1/", box=True)

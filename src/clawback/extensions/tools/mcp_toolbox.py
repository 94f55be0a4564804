"""An MCP server's tools. Each episode has a server of its own, so that it sees no state of another.

The official client has to be opened and closed in the same asyncio task: a task of ours holds it, and calls
reach it by a queue.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from clawback import plugins
from clawback.environments.core import EnvironmentFailure, Tool
from clawback.environments.tools.toolbox import ToolError
from clawback.environments.world_helpers import needed
from clawback.errors import ClawbackError, UsageError

SECONDS = 60.0
"""That a call, or the start of a server, may take."""
PAGES, TOOLS, BYTES = 100, 1000, 4 << 20
"""What a server's list of tools may have: pages, tools, and bytes of their definitions."""
RESULT_BYTES = 8 << 20
"""What a call may answer with."""
_KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "SYSTEMROOT")


@dataclass(frozen=True, slots=True)
class McpServer:
    """``command`` with its arguments (a server over stdio), or ``url`` (streamable HTTP). Raises ``UsageError`` where it is not one of them.

    A server over stdio runs with your rights and a scrubbed environment (``env`` adds to it). ``box``: it runs in the sandbox, without
    a network; it reads ``cwd`` and this Python's packages, and writes nothing outside.
    """

    command: Sequence[str] = ()
    url: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: Path | None = None
    box: bool = False

    def __post_init__(self) -> None:
        if bool(self.command) == bool(self.url):
            raise UsageError("An MCP server is either a command or a url.")
        if self.box and not self.command:
            raise UsageError("An MCP server with a url is not started here, so it cannot run in a box.")


class Mcp:
    """The tools of a server. ``state``: a tool of it that is not shown to the policy and whose result is the state that end states are compared by."""

    def __init__(self, server: McpServer, *, state: str = "", seconds: float = SECONDS) -> None:
        self.server, self.state_tool, self.seconds = server, state, seconds
        self._asked: asyncio.Queue[tuple[str, Mapping[str, Any], asyncio.Future[Any]] | None] = (
            asyncio.Queue()
        )
        self._holder: asyncio.Task[None] | None = None

    @property
    def _where(self) -> str:
        return self.server.url or " ".join(self.server.command)

    async def open(self, seed: int) -> Sequence[Tool]:  # noqa: ARG002
        needed("mcp", "MCP tools", "mcp")
        await self.close()
        self._asked = asyncio.Queue()
        ready: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        self._holder = asyncio.create_task(self._hold(ready))
        listed = await ready
        return [_definition(tool) for tool in listed if tool.name != self.state_tool]

    async def call(self, name: str, arguments: Mapping[str, object]) -> str:
        result = await self._ask(name, arguments)
        said = "\n".join(part.text if part.type == "text" else f"[{part.type}]" for part in result.content)
        if not said and result.structured_content is not None:
            said = json.dumps(result.structured_content, ensure_ascii=False)
        if result.is_error:
            raise ToolError(said or "the call failed")
        return said

    async def state(self) -> Any:
        if not self.state_tool:
            return None
        said = await self.call(self.state_tool, {})
        try:
            return json.loads(said)
        except ValueError:
            return said

    async def close(self) -> None:
        holder, self._holder = self._holder, None
        if holder is None:
            return
        self._asked.put_nowait(None)
        with suppress(Exception):
            async with asyncio.timeout(self.seconds):
                await holder

    async def _ask(self, name: str, arguments: Mapping[str, object]) -> Any:
        if self._holder is None or self._holder.done():
            raise EnvironmentFailure(f"The MCP server ({self._where}) is gone.")
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._asked.put_nowait((name, arguments, answer))
        await asyncio.wait({answer, self._holder}, return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            raise EnvironmentFailure(f"The MCP server ({self._where}) is gone.")
        return answer.result()

    async def _hold(self, ready: asyncio.Future[list[Any]]) -> None:
        """The one task that opens, uses and closes the client."""
        from mcp import Client

        try:
            with Path(os.devnull).open("w") as quiet:
                async with Client(self._transport(quiet), read_timeout_seconds=self.seconds) as client:
                    try:
                        async with asyncio.timeout(self.seconds):
                            tools = await self._list(client)
                    except TimeoutError:
                        raise self._refusal(
                            f"takes more than {self.seconds:.0f} s to list its tools"
                        ) from None
                    ready.set_result(tools)
                    await self._serve(client)
        except Exception as error:
            if not ready.done():
                inner = _inner(error)
                told = inner if isinstance(inner, ClawbackError) else None
                ready.set_exception(
                    told
                    or EnvironmentFailure(
                        f"The MCP server ({self._where}) cannot be used: {_innermost(error)}."
                    )
                )

    async def _list(self, client: Any) -> list[Any]:
        """All pages of its tools, within the limits."""
        tools: list[Any] = []
        cursor, size = None, 0
        for _ in range(PAGES):
            page = await client.list_tools(cursor=cursor)
            tools += page.tools
            size += sum(len(tool.model_dump_json()) for tool in page.tools)
            if len(tools) > TOOLS:
                raise self._refusal(f"lists more than {TOOLS} tools")
            if size > BYTES:
                raise self._refusal(f"describes its tools in more than {BYTES >> 20} MB")
            if not page.next_cursor:
                return tools
            cursor = page.next_cursor
        raise self._refusal(f"lists its tools on more than {PAGES} pages")

    def _refusal(self, reason: str) -> EnvironmentFailure:
        return EnvironmentFailure(
            f"The MCP server ({self._where}) {reason}, so it is not used. Use another server."
        )

    async def _serve(self, client: Any) -> None:
        while (asked := await self._asked.get()) is not None:
            name, arguments, answer = asked
            try:
                async with asyncio.timeout(self.seconds):
                    result = await client.call_tool(name, dict(arguments))
            except TimeoutError:
                answer.set_exception(
                    EnvironmentFailure(f"The MCP tool {name} took more than {self.seconds:.0f} s.")
                )
            except Exception as error:
                answer.set_exception(EnvironmentFailure(f"The MCP tool {name} broke: {_innermost(error)}."))
            else:
                if len(result.model_dump_json()) > RESULT_BYTES:
                    answer.set_exception(
                        EnvironmentFailure(
                            f"The MCP tool {name} answered with more than {RESULT_BYTES >> 20} MB."
                        )
                    )
                else:
                    answer.set_result(result)

    def _boxed(self) -> list[str]:
        """The command that runs the server in a box. Raises ``SandboxRefused`` where there is no sandbox."""
        sandbox = plugins.load(plugins.SANDBOXES, "own")
        words: list[str] = sandbox.boxed(
            self.server.command, (self.server.cwd or Path()).resolve(), self.server.env
        )
        return words

    def _transport(self, quiet: Any) -> Any:
        if self.server.url:
            return self.server.url
        from mcp import StdioServerParameters, stdio_client

        env = {name: os.environ[name] for name in _KEPT if name in os.environ} | dict(self.server.env)
        first, *rest = self._boxed() if self.server.box else self.server.command
        return stdio_client(
            StdioServerParameters(command=first, args=rest, env=env, cwd=self.server.cwd), errlog=quiet
        )


def _inner(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    return error


def _innermost(error: BaseException) -> str:
    error = _inner(error)
    return f"{type(error).__name__}: {error}"


def _definition(tool: Any) -> Tool:
    said = {"name": tool.name, "description": tool.description or "", "parameters": tool.input_schema}
    return {"type": "function", "function": said}

"""``POST /api/hooks/AGENT``: an agent's event over HTTP, as its hooks would pass it to a program of ours, without starting one.

Errors are a line in ``logs/hooks.log``, as there; the agent is told nothing and goes on.
"""

from __future__ import annotations

import hmac
import json
from typing import TYPE_CHECKING, Any

from clawback.admin.remote_commands import order
from clawback.capture import agent_integration, hook, script, server_proof
from clawback.capture.events import PromptEvent
from clawback.errors import UsageError
from clawback.plugins import HOOKS, built_in, load
from clawback.rules.hook import respond

if TYPE_CHECKING:
    from starlette.requests import Request

    from clawback.inference.server import Server
    from clawback.paths import Home


def routes(server: Server) -> list[Any]:
    from starlette.concurrency import run_in_threadpool
    from starlette.responses import Response
    from starlette.routing import Route

    async def endpoint(request: Request) -> Any:
        payload = await request.body()
        agent = request.path_params["agent"]
        try:
            said, kind = await run_in_threadpool(answer, server.home, agent, payload)
        except UsageError as error:  # no such agent
            return Response(json.dumps({"error": str(error)}), 404, media_type="application/json")
        return Response(said, 200, media_type=kind)

    async def prove(request: Request) -> object:
        """That it is us: to a random word what only we can make of it, or the answer to the question which only we and our hooks have
        read (the ``!`` ends it)."""
        if asked := request.headers.get(server_proof.HEADER, ""):
            port = (request.scope.get("server") or ("", 0))[1]
            if made := await run_in_threadpool(server_proof.answer, server.home, port or 0, asked):
                return Response(made, 200, media_type="text/plain")
        known = await run_in_threadpool(script.announced, server.home)
        asked = request.headers.get("x-clawback-ask", "")
        if known is None or not known[1] or not hmac.compare_digest(asked.encode(), known[1].encode()):
            return Response('{"error": "That is not known here."}', 404, media_type="application/json")
        return Response(f"{known[2]}!", 200, media_type="text/plain")

    return [
        Route("/hooks/proof", prove, methods=["GET"]),
        Route("/hooks/{agent}", endpoint, methods=["POST"]),
    ]


def answer(home: Home, agent: str, payload: bytes) -> tuple[str, str]:
    """What the agent reads, and its media type. Raises ``UsageError`` for an agent that nobody provides."""
    if agent in built_in(HOOKS):
        return load(HOOKS, agent)(home, payload), "text/plain"
    known = agent_integration.find(agent)
    try:
        event = known.parse(hook.parse(payload))
        ordered = None
        if isinstance(event, PromptEvent):
            ordered = order(
                home, known.name, event.text, session=event.session, by=event.by, event_id=event.name
            )
        made = known.reply(ordered) if ordered is not None else hook.act(home, known, event, respond)
    except Exception as error:  # whatever it is, it must not reach the agent
        hook.log(home, hook.why(error))
        made = None
    return (json.dumps(made) if made else ""), "application/json"

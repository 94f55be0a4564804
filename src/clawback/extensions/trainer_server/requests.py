"""Strict parsing of requests of Tinker's API: anything of a wrong type, length or range is refused."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from clawback.extensions.hosted.trainer_records import Datum
from clawback.extensions.trainer_server.lora_weights import LOSSES
from clawback.extensions.trainer_server.request_service import ApiRefused, Promise, Service

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

MOST_BYTES = 64 * 2**20
Json = dict[str, Any]


async def raw_body(request: Request) -> bytes:
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > MOST_BYTES:
            raise ApiRefused(413, f"A request has at most {MOST_BYTES >> 20} MiB")
        parts.append(part)
    return b"".join(parts)


async def json_body(request: Request) -> Json:
    found = json.loads(await raw_body(request))
    if not isinstance(found, dict):
        raise ValueError("not an object")
    return found


def tokens_of(content: Json, vocabulary: int) -> tuple[int, ...]:
    chunks = content["chunks"]
    if any(chunk.get("type", "encoded_text") != "encoded_text" for chunk in chunks):
        raise ApiRefused(400, "Only text is read here")
    tokens = tuple(int(token) for chunk in chunks for token in chunk["tokens"])
    if not tokens or not all(0 <= token < vocabulary for token in tokens):
        raise ApiRefused(400, "Tokens are missing, or outside of the vocabulary")
    return tokens


def datum_of(content: Json, vocabulary: int, loss: str) -> Datum:
    tokens = tokens_of(content["model_input"], vocabulary)
    inputs = {str(k): tuple(v["data"]) for k, v in content["loss_fn_inputs"].items()}
    wanted = LOSSES.get(loss, frozenset()) - {"weights"} | {"target_tokens"}
    if missing := wanted - set(inputs):
        raise ApiRefused(400, f"{loss} needs {', '.join(sorted(missing))}")
    if odd := set(inputs) - LOSSES.get(loss, frozenset()) - {"target_tokens"}:
        raise ApiRefused(400, f"{loss} does not take {', '.join(sorted(odd))}")
    if any(len(values) != len(tokens) for values in inputs.values()):
        raise ApiRefused(400, "Every input has as many values as there are tokens")
    targets = inputs["target_tokens"]
    if not all(0 <= int(token) < vocabulary for token in targets):
        raise ApiRefused(400, "Target tokens are outside of the vocabulary")
    if tuple(map(int, targets[:-1])) != tokens[1:]:
        raise ApiRefused(400, "Here targets are the tokens, shifted by one")
    return Datum(tokens, inputs)


def stop_of(stops: Any, service: Service) -> tuple[int, ...] | None:
    """Token ids; texts that are one token each are taken, too."""
    if stops is None:
        return None
    listed = [stops] if isinstance(stops, str) else list(stops)
    found: list[int] = []
    for one in listed:
        ids = service.learner.policy.tokenizer.encode(one, add_special_tokens=False) if isinstance(one, str) else [int(one)]  # fmt: skip
        if len(ids) != 1:
            raise ApiRefused(400, f"{one!r} is more than one token; name token ids to stop at")
        found += ids
    return tuple(found)


def answer(content: Any, status: int = 200) -> Response:
    from starlette.responses import JSONResponse

    return JSONResponse(content, status)


def promised(promise: Promise) -> Response:
    return answer({"request_id": promise.id, "future_id": promise.id, "status": "pending", **promise.about})

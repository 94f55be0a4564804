"""``GET /api/openapi.json``: the API's description, for clients and fuzzers, made from the routes themselves and the types that their bodies are decoded into."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from clawback import __version__
from clawback.records import JsonObject

_INT: JsonObject = {"type": "integer", "minimum": 0, "maximum": 2**31}
_TEXT: JsonObject = {"type": "string", "maxLength": 500}
_QUERIES: dict[str, JsonObject] = {
    "/turns": {
        "limit": _INT,
        "before": _INT,
        "session": _TEXT,
        "search": _TEXT,
        "rated": {"enum": ["yes", "no"]},
        "kind": {"enum": ["main", "side"]},
    },
    "/search": {
        "text": _TEXT,
        "limit": _INT,
        "before": _INT,
        "rated": {"enum": ["yes", "no"]},
        "kind": {"enum": ["main", "side"]},
    },
    "/sessions": {"limit": _INT},
    "/episodes": {
        "limit": _INT,
        "run": _INT,
        "status": {"enum": ["completed", "truncated", "failed", "aborted"]},
        "split": {"enum": ["train", "test"]},
    },
    "/rules/{id}": {"limit": _INT, "before": _INT},
    "/inbox": {"limit": _INT},
    "/inbox/pairs": {"limit": _INT},
    "/conversations": {"limit": _INT},
    "/export": {
        "format": {"enum": ["jsonl", "trl", "openai"]},
        "layout": {"enum": ["dpo", "kto", "sft"]},
        "all": {"enum": ["yes", "no"]},
    },
}
"""Path, as the description writes it, → what may be added to it after a ``?``."""


def openapi(routes: Iterable[Any]) -> JsonObject:
    """OpenAPI 3.1 of the routes under ``/api``, and of the models' routes beside them."""
    routes = list(routes)
    shapes = {shape.__name__: shape for route in routes if (shape := body_shape(route))}
    _, components = msgspec.json.schema_components(
        shapes.values(), ref_template="#/components/schemas/{name}"
    )
    paths: JsonObject = {}
    for route in routes:
        path = re.sub(r"\{(\w+):\w+\}", r"{\1}", route.path)
        for method in sorted(route.methods - {"HEAD"}):
            paths.setdefault(f"/api{path}", {})[method.lower()] = _operation(path, body_shape(route))
    for path, needs in (
        ("/v1/chat/completions", "messages"),
        ("/v1/messages", "messages"),
        ("/v1/responses", "input"),
    ):
        paths[path] = {"post": _question(needs)}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Clawback", "version": __version__},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }


def body_shape(route: Any) -> Any:
    """The type that a route's requests are decoded into; None where it takes no body of one."""
    return getattr(route.endpoint, "body_shape", None)


_ANSWERS = {str(code): {"description": text} for code, text in {
    200: "JSON", 400: "what is wrong, in a sentence", 401: "a token is needed", 403: "not for this role", 404: "there is no such thing",
    408: "too slow", 409: "busy", 413: "too large", 503: "it cannot be done now",
}.items()}  # fmt: skip


def _operation(path: str, shape: Any) -> JsonObject:
    named = [part.strip("{}") for part in path.split("/") if part.startswith("{")]
    parameters = [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": _INT if name == "id" else _TEXT | {"minLength": 1},
        }
        for name in named
    ]
    parameters += [{"name": n, "in": "query", "schema": s} for n, s in _QUERIES.get(path, {}).items()]
    made: JsonObject = {"parameters": parameters, "responses": _ANSWERS}
    if shape:
        made["requestBody"] = _body({"$ref": f"#/components/schemas/{shape.__name__}"})
    return made


def _question(needs: str) -> JsonObject:
    message = {
        "type": "object",
        "properties": {
            "role": {"enum": ["system", "user", "assistant", "tool"]},
            "content": {"type": "string"},
        },
        "required": ["role", "content"],
    }
    fields: JsonObject = {
        "model": {"enum": ["clawback", "clawback-base"]},
        "max_tokens": {"type": "integer", "minimum": 1, "maximum": 4},
        "max_output_tokens": {"type": "integer", "minimum": 1, "maximum": 4},
        "temperature": {"type": "number", "minimum": 0, "maximum": 2},
        "top_p": {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
        "stream": {"type": "boolean"},
        "seed": {"type": "integer"},
        needs: {"type": "array", "items": message, "minItems": 1},
    }
    schema = {"type": "object", "properties": fields, "required": [needs, "max_tokens", "max_output_tokens"]}
    return {"responses": _ANSWERS, "requestBody": _body(schema)}


def _body(schema: JsonObject) -> JsonObject:
    return {"required": True, "content": {"application/json": {"schema": schema}}}

"""What Ollama's clients look up before they ask: models, a model, what is loaded, a version; and Ollama's two ways to embed."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from clawback.dialects.parsing import text
from clawback.dialects.shapes import Body, Json
from clawback.errors import NotFound
from clawback.inference.local import BASE, LIVE

if TYPE_CHECKING:
    from clawback.inference.server import Server

API_VERSION = "0.12.0"
"""The version of Ollama whose API this is: clients compare it."""
LOOKS = ("/api/tags", "/api/ps", "/api/version", "/api/show")
EMBEDS = ("/api/embed", "/api/embeddings")
METHODS = {"/api/tags": "GET", "/api/ps": "GET", "/api/version": "GET"}
"""Of the others it is POST."""


def names(server: Server) -> list[str]:
    """Of all models that can be asked for: the live version, its base, and every other version."""
    return [LIVE, BASE, *(f"clawback-v{v.number}" for v in server.db.versions() if v.number)]


def look(server: Server, path: str, body: Body) -> Json:
    """The answer of a path in ``LOOKS``. Raises ``NotFound`` for a model that is not there."""
    if path == "/api/version":
        return {"version": API_VERSION}
    if path == "/api/show":
        return _shown(server, text(body.get("model")) or text(body.get("name")))
    models = [_entry(server, name) for name in names(server)]
    if path == "/api/tags":
        return {"models": models}
    more = {"expires_at": "9999-12-31T00:00:00Z", "size_vram": 0, "context_length": _context(server)}
    return {"models": [model | more for model in models[:1]]}


def vectors_of(path: str, model: str, vectors: list[list[float]], tokens: int) -> Json:
    """Embeddings as a path in ``EMBEDS`` tells them: the newer one of many texts, the older one of one."""
    if path == "/api/embeddings":
        return {"embedding": vectors[0]}
    durations = {"total_duration": 0, "load_duration": 0, "prompt_eval_count": tokens}
    return {"model": model or BASE, "embeddings": vectors, **durations}


def _entry(server: Server, name: str) -> Json:
    full = f"{name}:latest"
    return {
        "name": full,
        "model": full,
        "modified_at": datetime.fromtimestamp(server.db.live().created_at, UTC).isoformat(),
        "size": 0,
        "digest": hashlib.sha256(full.encode()).hexdigest(),
        "details": _details(server),
    }


def _details(server: Server) -> Json:
    policy = server.local.policy
    family = policy.info.base if policy else ""
    return {
        "parent_model": "",
        "format": "safetensors",
        "family": family,
        "families": [family],
        "parameter_size": "",
        "quantization_level": "",
    }


def _context(server: Server) -> int:
    return server.local.policy.info.context if server.local.policy else 0


def _shown(server: Server, name: str) -> Json:
    if name.removesuffix(":latest") not in names(server):
        raise NotFound(f"model {name[:100]!r} not found: GET /api/tags lists those that are here.")
    seeing = ["vision"] if server.local.sees else []
    return {
        "modelfile": "",
        "parameters": "",
        "template": "",
        "details": _details(server),
        "model_info": {"general.architecture": "clawback", "clawback.context_length": _context(server)},
        "capabilities": ["completion", "tools", *seeing],
        "modified_at": datetime.fromtimestamp(server.db.live().created_at, UTC).isoformat(),
    }

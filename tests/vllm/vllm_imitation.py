"""vLLM's routes for sampling with adapters, on our own engine: what goes wrong with a vLLM, made to go wrong (``test_real_vllm.py`` has a real one).

* Adapters can be loaded at run time if that was allowed at the start; otherwise the route does not exist
  (404).
* A name that is loaded is refused (400).
* Beyond ``max_cpu_loras`` the least recently used one is dropped; a request for it is answered with 404.
* Unloading forgets the name at once, even while answers are being sampled under it.
* Log-probs are of the raw logits (``raw``), unless it was started with ``processed``: after temperature,
  top-p and top-k.
"""

from __future__ import annotations

import json
import threading
import time
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch

from clawback.errors import ClawbackError
from clawback.extensions.trainer_server.request_service import ApiRefused
from clawback.models.types import Sampling
from clawback.policy.policy import Policy
from clawback.sampling.batched_sampler import DrawSettings, sample
from clawback.templates.chat_tokens import Encoded

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

VERSION = "0.33.0"


@dataclass
class Engine:
    """One base and its adapters."""

    policy: Policy
    base: str
    max_cpu_loras: int = 4
    runtime_updates: bool = True
    logprobs: Literal["raw", "processed"] = "processed"
    version: str = VERSION
    dropped: int = 0
    answered: list[tuple[str, str]] = field(default_factory=list)
    """(asked for, drawn by) of each request."""

    def __post_init__(self) -> None:
        self.known: OrderedDict[str, Path] = OrderedDict()
        self._lock = threading.Lock()
        self._worker = ThreadPoolExecutor(1, "vllm-stand-in")
        self._on = ""

    def load(self, name: str, path: Path) -> None:
        if not self.runtime_updates:
            raise ApiRefused(404, "Not Found")
        if not path.is_absolute() or not (path / "adapter_config.json").is_file():
            raise ApiRefused(404, f"Loading lora {name} failed: No adapter found for {path}")
        with self._lock:
            if name in self.known:
                raise ApiRefused(400, f"The lora adapter '{name}' has already been loaded. Use load_inplace.")
            self.known[name] = path
            while len(self.known) > self.max_cpu_loras:
                self.known.popitem(last=False)
                self.dropped += 1

    def unload(self, name: str) -> None:
        if not self.runtime_updates:
            raise ApiRefused(404, "Not Found")
        with self._lock:
            if self.known.pop(name, None) is None:
                raise ApiRefused(404, f"The lora adapter '{name}' cannot be found.")

    def complete(self, body: dict[str, Any]) -> dict[str, Any]:
        """By the worker, one after the other."""
        return self._worker.submit(self._complete, body).result()

    def _complete(self, body: dict[str, Any]) -> dict[str, Any]:
        name = str(body["model"])
        with self._lock:
            if name != self.base and name not in self.known:
                raise ApiRefused(404, f"The model `{name}` does not exist.")
            path = None if name == self.base else self.known[name]
            if path is not None:
                self.known.move_to_end(name)
        if self._on != (name or self.base):
            self.policy.put(path)
            self._on = name
        self.answered.append((name, self._on))
        sampling = Sampling(
            float(body.get("temperature", 1.0)),
            float(body.get("top_p", 1.0)),
            max(0, int(body.get("top_k", -1))),
        )
        prompt = [int(token) for token in body["prompt"]]
        [[made]] = sample(
            self.policy.model,
            [prompt],
            DrawSettings(
                max_tokens=int(body["max_tokens"]),
                sampling=sampling,
                stop=tuple(int(token) for token in body.get("stop_token_ids", ())),
                seed=int(body.get("seed") or 0),
            ),
        )
        logprobs = list(made.logprobs)
        if self.logprobs == "raw":
            self.policy.sampling = Sampling()
            with torch.no_grad():
                logprobs = self.policy.scorer([Encoded(tuple(prompt), made.ids)]).logprobs.tolist()
        choice: dict[str, Any] = {
            "index": 0,
            "text": self.policy.tokenizer.decode(list(made.ids), skip_special_tokens=True),
            "finish_reason": "stop" if made.finished else "length",
        }
        if body.get("logprobs") is not None:
            choice["logprobs"] = {"token_logprobs": logprobs, "tokens": [str(t) for t in made.ids]}
        if body.get("return_token_ids"):
            choice |= {"token_ids": list(made.ids), "prompt_token_ids": prompt}
        usage = {"prompt_tokens": len(prompt), "completion_tokens": len(made.ids)}
        return {"object": "text_completion", "created": int(time.time()), "model": name, "choices": [choice], "usage": usage}  # fmt: skip


def make(engine: Engine) -> Any:
    """The ASGI app. Like vLLM without ``--api-key`` it asks for none: keep it on loopback."""
    import asyncio

    from starlette.applications import Starlette
    from starlette.responses import JSONResponse, PlainTextResponse
    from starlette.routing import Route

    async def health(_: Request) -> Response:
        return PlainTextResponse("")

    async def version(_: Request) -> Response:
        return JSONResponse({"version": engine.version})

    async def models(_: Request) -> Response:
        rows: list[dict[str, Any]] = [
            {"id": engine.base, "object": "model", "root": engine.base, "parent": None}
        ]
        rows += [
            {"id": name, "object": "model", "root": str(path), "parent": engine.base}
            for name, path in engine.known.items()
        ]
        return JSONResponse({"object": "list", "data": rows})

    async def load(request: Request) -> Response:
        body = await request.json()
        engine.load(str(body["lora_name"]), Path(body["lora_path"]))
        return PlainTextResponse(f"Success: LoRA adapter '{body['lora_name']}' added successfully.")

    async def unload(request: Request) -> Response:
        body = await request.json()
        engine.unload(str(body["lora_name"]))
        return PlainTextResponse(f"Success: LoRA adapter '{body['lora_name']}' removed successfully.")

    async def completions(request: Request) -> Response:
        body = await request.json()
        return JSONResponse(await asyncio.to_thread(engine.complete, body))

    def refused(_: Request, error: Exception) -> Response:
        status = error.status if isinstance(error, ApiRefused) else 400
        return JSONResponse({"error": {"message": str(error), "code": status}}, status)

    return Starlette(
        routes=[
            Route("/health", health),
            Route("/version", version),
            Route("/v1/models", models),
            Route("/v1/load_lora_adapter", load, methods=["POST"]),
            Route("/v1/unload_lora_adapter", unload, methods=["POST"]),
            Route("/v1/completions", completions, methods=["POST"]),
        ],
        exception_handlers={
            ApiRefused: refused,
            ClawbackError: refused,
            KeyError: refused,
            ValueError: refused,
            TypeError: refused,
            json.JSONDecodeError: refused,
        },
    )

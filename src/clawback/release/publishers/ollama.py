"""Publishes to Ollama: a new model ``<base>-clawback`` made of the base and the adapter (``ADAPTER``); the base stays as it is.

Ollama takes LoRAs in safetensors for the Llama, Mistral and Gemma families; where it refuses, its error
message is passed on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from clawback.errors import ClawbackError, ModelError, UsageError
from clawback.release.publishers.base import Publication, Refused, Target, ask, call

FILES = ("adapter_model.safetensors", "adapter_config.json")


class Ollama:
    def __init__(self, target: Target) -> None:
        if not target.base:
            raise UsageError("What the base is called in Ollama is needed: --base llama3.2.")
        self.target, self.url = target, (target.url or "http://127.0.0.1:11434").rstrip("/")

    @property
    def name(self) -> str:
        name, _, tag = self.target.base.partition(":")
        return f"{name}-clawback" + (f":{tag}" if tag else "")

    def plan(self, publication: Publication) -> Sequence[str]:
        return [
            f"ask {self.url} whether it has {self.target.base}",
            f"send {' and '.join(FILES)} of version {publication.version}",
            f"make {self.name!r} from {self.target.base!r} with that adapter (the original stays untouched)",
            "ask a prompt on which version and base differ",
        ]

    def publish(self, publication: Publication) -> None:
        self._check_base()
        self._create(adapters={name: self._send(publication.adapter / name) for name in FILES})

    def withdraw(self) -> str:
        self._check_base()
        self._create()
        return f"Ollama's {self.name!r} is {self.target.base!r} itself"

    def _check_base(self) -> None:
        try:
            call(f"{self.url}/api/show", {"model": self.target.base}, timeout=self.target.timeout)
        except Refused as error:
            raise ModelError(
                f"Ollama has no model {self.target.base!r}: `ollama pull {self.target.base}`."
            ) from error

    def _create(self, **more: object) -> None:
        body = {"model": self.name, "from": self.target.base, "stream": False, **more}
        answer = call(f"{self.url}/api/create", body, timeout=self.target.timeout)
        status = answer.get("status") if isinstance(answer, dict) else answer
        if status != "success":
            raise ClawbackError(f"Ollama did not make {self.name!r}: {str(answer)[:300]}")

    def _send(self, file: Path) -> str:
        """A blob, unless Ollama has it; its digest."""
        data = file.read_bytes()
        digest = "sha256:" + hashlib.sha256(data).hexdigest()
        address = f"{self.url}/api/blobs/{digest}"
        try:
            call(address, timeout=self.target.timeout, method="HEAD")
        except Refused:
            call(address, data, timeout=self.target.timeout)
        return digest

    def verify(self, publication: Publication) -> str:
        said = ask(self.url, self.name, publication.probe, self.target.timeout)
        return publication.probe.judge(said, f"Ollama's {self.name!r}")

"""Publishes to vLLM by loading a LoRA into a running server (``--enable-lora``, ``VLLM_ALLOW_RUNTIME_LORA_UPDATING=True``).

The server reads the adapter's folder itself, so it has to run where the folder is. vLLM keys its prefix cache by
name, so that a name which is given a second adapter may go on with what the first one had read: each version has a
name of its own (``clawback-v3``), and older ones are unloaded once the new one has answered.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from clawback.errors import ClawbackError, ModelError, UsageError
from clawback.release.publishers.publisher import Publication, ServerRefused, Target, ask, call

if TYPE_CHECKING:
    from clawback.records import JsonObject


class Vllm:
    adapter_alone = True

    def __init__(self, target: Target) -> None:
        if not target.url:
            raise UsageError("The server's address is needed: --url http://127.0.0.1:8000.")
        self.target, self.url = target, target.url.rstrip("/").removesuffix("/v1")

    def plan(self, publication: Publication) -> Sequence[str]:
        return [
            f"ask {self.url}/v1/models, and go on only if its base is {self._base(publication)}",
            f"load {publication.adapter} as {self._name(publication)!r}",
            "ask a prompt on which version and base differ",
            f"unload other versions of {self.target.model!r}",
        ]

    def publish(self, publication: Publication) -> None:
        models = self._models()
        self._check(models, self._base(publication))
        name, timeout = self._name(publication), self.target.timeout
        if name in self._adapters(models):
            return  # a version does not change
        try:
            body = {"lora_name": name, "lora_path": str(publication.adapter.resolve())}
            call(f"{self.url}/v1/load_lora_adapter", body, timeout=timeout)
        except ServerRefused as error:
            if error.status == 404:
                raise ClawbackError(
                    "This vLLM does not load adapters while it runs: start it with --enable-lora and "
                    "VLLM_ALLOW_RUNTIME_LORA_UPDATING=True."
                ) from error
            raise

    def verify(self, publication: Publication) -> str:
        name = self._name(publication)
        proof = publication.probe.confirm(
            lambda prompt: ask(self.url, name, prompt, self.target.timeout), f"vLLM's {name!r}"
        )
        self._unload_all_but(name)
        return proof

    def undo(self, publication: Publication) -> str:
        name = self._name(publication)
        if name not in self._adapters(self._models()):
            return ""
        call(f"{self.url}/v1/unload_lora_adapter", {"lora_name": name}, timeout=self.target.timeout)
        return f"{name!r} is unloaded again"

    def withdraw(self) -> str:
        unloaded = self._unload_all_but("")
        return f"vLLM has unloaded {', '.join(unloaded)}" if unloaded else "vLLM has no version loaded"

    def _unload_all_but(self, name: str) -> list[str]:
        mine = re.compile(re.escape(self.target.model) + r"(-v\d+)?")
        unloaded = [one for one in self._adapters(self._models()) if one != name and mine.fullmatch(one)]
        for other in unloaded:
            call(f"{self.url}/v1/unload_lora_adapter", {"lora_name": other}, timeout=self.target.timeout)
        return unloaded

    def _name(self, publication: Publication) -> str:
        return f"{self.target.model}-v{publication.version}"

    def _adapters(self, models: Sequence[JsonObject]) -> list[str]:
        return [str(model.get("id")) for model in models if model.get("parent")]

    def _base(self, publication: Publication) -> str:
        return self.target.base or publication.base

    def _models(self) -> list[JsonObject]:
        answer = call(f"{self.url}/v1/models", timeout=self.target.timeout)
        found = answer.get("data") if isinstance(answer, dict) else None
        if not isinstance(found, list):
            raise ClawbackError(f"{self.url} is no vLLM: it lists no models.")
        return [model for model in found if isinstance(model, dict)]

    def _check(self, models: list[JsonObject], base: str) -> None:
        """An adapter on another base loads without a word where the shapes happen to fit."""
        bases = {str(m.get("root") or m.get("id")) for m in models if not m.get("parent")}
        names = {str(m.get("id")) for m in models if not m.get("parent")}
        if base not in bases | names:
            raise ModelError(
                f"The adapter was made for {base}, and this vLLM serves {', '.join(sorted(bases | names))}. "
                "Name what the base is called there with --base if it is the same."
            )

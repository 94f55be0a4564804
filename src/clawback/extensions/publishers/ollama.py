"""Publishes to Ollama: a new model ``<base>-clawback``, a merged GGUF file with the base's own template and parameters.

Ollama takes no adapters any more: 0.34 answers "LoRA adapters are no longer supported", and older releases read them for
two families. The file is sent as a blob and made into a model under a name of its own; only once that has answered does
it get the name that people use. The base stays as it is.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clawback import paths
from clawback.errors import ClawbackError, ModelError, UsageError
from clawback.extensions.publishers import merged_gguf
from clawback.files import sha256
from clawback.models.local_models import OLLAMA
from clawback.release.publishers.publisher import Publication, ServerRefused, Target, ask, call

if TYPE_CHECKING:
    from clawback.records import JsonObject

INHERITED = ("template", "system", "license", "renderer", "parser")
"""What a model made of a file alone would lack, as ``/api/show`` and ``/api/create`` name it."""
_NO_DEFAULTS = {"typical_p"}
"""Parameters that Ollama shows and does not take any more."""


class Ollama:
    def __init__(self, target: Target) -> None:
        if not target.base:
            raise UsageError("What the base is called in Ollama is needed: --base llama3.2.")
        self.base = target.base.removeprefix(OLLAMA)
        self.target, self.url = target, (target.url or "http://127.0.0.1:11434").rstrip("/")

    @property
    def name(self) -> str:
        return self._named("clawback")

    @property
    def candidate(self) -> str:
        """What a version is called until it has answered."""
        return self._named("clawback-next")

    def _named(self, ending: str) -> str:
        name, _, tag = self.base.partition(":")
        return f"{name}-{ending}" + (f":{tag}" if tag else "")

    def plan(self, publication: Publication) -> Sequence[str]:
        return [
            f"ask {self.url} whether it has {self.base}",
            *merged_gguf.plan(publication, OLLAMA + self.base),
            f"send the file, and make {self.candidate!r} of it with the template and parameters of {self.base!r} (the original stays untouched)",
            f"ask it a prompt on which version and base differ, and only then call it {self.name!r}",
        ]

    def publish(self, publication: Publication) -> None:
        shown = self._show()
        root = paths.home().root
        with tempfile.TemporaryDirectory(dir=root, prefix=".publish-") as folder:
            file = Path(folder) / "model.gguf"
            merged_gguf.write(publication, OLLAMA + self.base, file)
            digest = self._send(file)
        self._create(self.candidate, files={file.name: digest}, **inherited(shown))

    def verify(self, publication: Publication) -> str:
        proof = publication.probe.confirm(
            lambda prompt: ask(self.url, self.candidate, prompt, self.target.timeout),
            f"Ollama's {self.name!r}",
        )
        self._call("copy", {"source": self.candidate, "destination": self.name})
        self._remove_candidate()
        return proof

    def undo(self, publication: Publication) -> str:  # noqa: ARG002
        self._remove_candidate()
        return f"Ollama's {self.name!r} is what it was before"

    def withdraw(self) -> str:
        self._show()
        self._create(self.name, **{"from": self.base})
        return f"Ollama's {self.name!r} is {self.base!r} itself"

    def _show(self) -> Mapping[str, object]:
        try:
            shown = self._call("show", {"model": self.base})
        except ServerRefused as error:
            raise ModelError(f"Ollama has no model {self.base!r}: `ollama pull {self.base}`.") from error
        return shown if isinstance(shown, dict) else {}

    def _create(self, name: str, **more: object) -> None:
        answer = self._call("create", {"model": name, "stream": False, **more})
        status = answer.get("status") if isinstance(answer, dict) else answer
        if status != "success":
            raise ClawbackError(f"Ollama did not make {name!r}: {str(answer)[:300]}")

    def _remove_candidate(self) -> None:
        try:
            self._call("delete", {"model": self.candidate}, method="DELETE")
        except ServerRefused as error:
            if error.status != 404:
                raise

    def _send(self, file: Path) -> str:
        """A blob, unless Ollama has it; its digest."""
        digest = f"sha256:{sha256(file)}"
        address = f"{self.url}/api/blobs/{digest}"
        try:
            call(address, timeout=self.target.timeout, method="HEAD")
        except ServerRefused:
            call(address, file, timeout=self.target.timeout)
        return digest

    def _call(self, what: str, body: Mapping[str, object], method: str | None = None) -> Any:
        return call(f"{self.url}/api/{what}", body, timeout=self.target.timeout, method=method)


def inherited(description: Mapping[str, object]) -> JsonObject:
    """What the base's own description says of how to run it, for ``/api/create``."""
    values = {name: description[name] for name in INHERITED if description.get(name)}
    if read := parameters(str(description.get("parameters") or "")):
        values["parameters"] = read
    return values


def parameters(text: str) -> JsonObject:
    """The lines of ``/api/show`` (``stop "<|im_end|>"``, ``temperature 0.7``) as values; ``stop`` is a list."""
    found: JsonObject = {}
    for line in text.splitlines():
        name, _, rest = line.strip().partition(" ")
        if not name or name in _NO_DEFAULTS:
            continue
        try:
            value = json.loads(rest.strip())
        except ValueError:
            value = rest.strip()
        if name == "stop":
            found.setdefault(name, []).append(str(value))
        else:
            found[name] = value
    return found

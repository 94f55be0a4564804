"""Publishes to LM Studio, which takes no adapters, as a merged GGUF file in its folder of models.

Only its documented REST API (``/v1/models``, ``/v1/chat/completions``; models load when first requested) and
its folder of models (``~/.lmstudio/models/PUBLISHER/NAME/FILE.gguf``) are used. The base's own file stays
untouched.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from clawback.errors import ClawbackError, UsageError
from clawback.extensions.publishers import merged_gguf
from clawback.release.publishers.publisher import Publication, Target, ask, call


class LmStudio:
    def __init__(self, target: Target) -> None:
        if target.base and target.base.endswith(".gguf") and not Path(target.base).expanduser().is_file():
            raise UsageError(f"There is no file {target.base}: name the base's GGUF file with --base.")
        self.target = target
        self.folder = (target.out or Path.home() / ".lmstudio" / "models").expanduser()
        self.url = (target.url or "http://127.0.0.1:1234").rstrip("/").removesuffix("/v1")

    def name(self, publication: Publication) -> str:
        # A new name for each version: what is loaded is never swapped under somebody's feet, and nothing old is asked by mistake.
        return f"{self.target.model}-v{publication.version}"

    def file(self, publication: Publication) -> Path:
        name = self.name(publication)
        return self.folder / "clawback" / name / f"{name}.gguf"

    def plan(self, publication: Publication) -> Sequence[str]:
        return [
            f"ask {self.url} whether it is there",
            *merged_gguf.plan(publication, self.target.base),
            f"write {self.file(publication)} (the original stays untouched)",
            f"ask {self.url} for {self.name(publication)!r}: a prompt on which version and base differ",
            f"remove other versions of {self.target.model!r} once it has answered",
        ]

    def publish(self, publication: Publication) -> None:
        self._listed()
        merged_gguf.write(publication, self.target.base, self.file(publication))

    def verify(self, publication: Publication) -> str:
        name = self.name(publication)
        found = [one for one in self._listed() if name in one]
        if not found:
            raise ClawbackError(
                f"{self.file(publication)} was written, but {self.url} does not list it: is {self.folder} its folder of models?"
            )
        proof = publication.probe.confirm(
            lambda prompt: ask(self.url, found[0], prompt, self.target.timeout), f"LM Studio's {found[0]!r}"
        )
        self._remove_all_but(name)
        return proof

    def undo(self, publication: Publication) -> str:
        folder = self.file(publication).parent
        shutil.rmtree(folder, ignore_errors=True)
        return f"{folder} was removed again"

    def withdraw(self) -> str:
        removed = self._remove_all_but("")
        return f"{', '.join(removed)} removed" if removed else "LM Studio has no version"

    def _listed(self) -> list[str]:
        answer = call(f"{self.url}/v1/models", timeout=self.target.timeout)
        listed = answer.get("data", []) if isinstance(answer, dict) else []
        return [str(model.get("id")) for model in listed if isinstance(model, dict)]

    def _remove_all_but(self, name: str) -> list[str]:
        mine = re.compile(re.escape(self.target.model) + r"-v\d+")
        found = [
            path
            for path in (self.folder / "clawback").glob("*")
            if path.name != name and mine.fullmatch(path.name)
        ]
        for path in found:
            shutil.rmtree(path)
        return [path.name for path in found]

"""Publishes to LM Studio, which takes no adapters, as a merged model in one GGUF made by llama.cpp's ``llama-export-lora``.

Only its documented REST API (``/v1/models``, ``/v1/chat/completions``; models load when first requested) and
its folder of models (``~/.lmstudio/models/PUBLISHER/NAME/FILE.gguf``) are used. The base's own file stays
untouched.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from clawback.errors import ClawbackError, MissingExtra, ModelError, UsageError
from clawback.release.publishers import gguf
from clawback.release.publishers.base import Publication, Target, ask, call

PROGRAM = "llama-export-lora"
MERGE_SECONDS = 3600


class LmStudio:
    def __init__(self, target: Target) -> None:
        if not target.base or not Path(target.base).expanduser().is_file():
            raise UsageError("The base's GGUF file is needed: --base ~/.lmstudio/models/…/model.gguf.")
        self.target, self.base = target, Path(target.base).expanduser().resolve()
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
            f"turn the adapter of version {publication.version} into GGUF",
            f"merge it into a copy of {self.base} by {PROGRAM}, and go on only if their shapes agree",
            f"write {self.file(publication)} (the original stays untouched)",
            f"ask {self.url} for {self.name(publication)!r}: a prompt on which version and base differ",
        ]

    def publish(self, publication: Publication) -> None:
        program = shutil.which(PROGRAM)
        if program is None:
            raise MissingExtra(f"{PROGRAM} (a part of llama.cpp) is not in PATH.")
        out = self.file(publication)
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=out.parent) as beside:
            adapter, merged = Path(beside) / "adapter.gguf", Path(beside) / "merged.gguf"
            gguf.convert(publication.adapter, publication.config, adapter)
            done = subprocess.run(
                [program, "-m", str(self.base), "--lora", str(adapter), "-o", str(merged)],
                capture_output=True,
                text=True,
                errors="replace",
                timeout=MERGE_SECONDS,
                check=False,
            )
            if done.returncode or not merged.exists():
                last = (done.stderr or done.stdout).strip().splitlines()[-1:]
                raise ModelError(
                    f"The adapter, made for {publication.base}, could not be merged into {self.base.name}: {' '.join(last)[:300]}"
                )
            merged.replace(out)

    def verify(self, publication: Publication) -> str:
        name = self.name(publication)
        answer = call(f"{self.url}/v1/models", timeout=self.target.timeout)
        listed = answer.get("data", []) if isinstance(answer, dict) else []
        found = [str(m.get("id")) for m in listed if isinstance(m, dict) and name in str(m.get("id"))]
        if not found:
            raise ClawbackError(
                f"{self.file(publication)} is written, but {self.url} does not list it: is that its folder of models?"
            )
        return publication.probe.judge(
            ask(self.url, found[0], publication.probe, self.target.timeout), f"LM Studio's {found[0]!r}"
        )

    def withdraw(self) -> str:
        mine = re.compile(re.escape(self.target.model) + r"-v\d+")
        found = [p for p in (self.folder / "clawback").glob("*") if mine.fullmatch(p.name)]
        for path in found:
            shutil.rmtree(path)
        return f"{', '.join(p.name for p in found)} removed" if found else "LM Studio has no version"

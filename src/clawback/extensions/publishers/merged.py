"""Publishes a plain folder of merged weights, base and adapter in one, for any server that loads Hugging Face models."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from clawback import engine
from clawback.errors import UsageError
from clawback.models import GREEDY, identity
from clawback.release.publishers.publisher import (
    PROBE_TOKENS,
    Publication,
    Target,
    check_new,
    put_in_place,
    restore,
    settle,
    take_away,
)


class Merged:
    def __init__(self, target: Target) -> None:
        if target.out is None:
            raise UsageError("A folder is needed: --output FOLDER.")
        self.target, self.out = target, target.out

    def plan(self, publication: Publication) -> Sequence[str]:
        return [
            f"load {publication.base} with the adapter of version {publication.version}",
            "add the adapter into the weights",
            f"write model and tokenizer to {self.out} (beside first, then in one rename)",
        ]

    def publish(self, publication: Publication) -> None:
        check_new(self.out, self.target.renew)
        beside = self.out.with_name(self.out.name + ".part")
        shutil.rmtree(beside, ignore_errors=True)
        write_folder(publication, beside)
        put_in_place(beside, self.out, publication.version)

    def verify(self, publication: Publication) -> str:
        policy = engine.load(str(self.out))
        asked = [[{"role": "user", "content": publication.probe.prompt}]]
        [[said]] = policy.generate(asked, sampling=GREEDY, max_tokens=PROBE_TOKENS)
        proof = publication.probe.judge(said.text, f"the model in {self.out}")
        settle(self.out)
        return proof

    def undo(self, publication: Publication) -> str:  # noqa: ARG002
        return restore(self.out)

    def withdraw(self) -> str:
        return take_away(self.out)


def write_folder(publication: Publication, folder: Path) -> None:
    """Write base and version in one, with the tokenizer, as a plain model folder."""
    from clawback.models import delta

    commit = publication.base_revision if identity.is_commit(publication.base_revision) else None
    policy = engine.load(publication.base, revision=commit, adapter=publication.adapter)
    inner = policy.model
    if policy.full:
        delta.fold(inner)
        merged: Any = inner
    else:
        merged = inner.merge_and_unload(safe_merge=True)  # type: ignore[operator]
    merged.save_pretrained(folder, safe_serialization=True)
    policy.tokenizer.save_pretrained(folder)

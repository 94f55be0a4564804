"""Publishes the adapter in mlx-lm's own format, for ``mlx_lm.server --adapter-path FOLDER``.

The reverse needs no command: wherever an adapter's folder is named, one in mlx-lm's format is accepted as well.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence

from clawback.errors import UsageError
from clawback.release.publishers.publisher import (
    NotLoaded,
    Publication,
    Target,
    Unconvinced,
    ask,
    check_new,
    put_in_place,
    restore,
    settle,
    take_away,
)


class Mlx:
    adapter_alone = True

    def __init__(self, target: Target) -> None:
        if target.out is None:
            raise UsageError("A folder is needed: --output FOLDER.")
        self.target, self.out = target, target.out

    def plan(self, publication: Publication) -> Sequence[str]:
        steps = [
            f"turn the adapter of version {publication.version} into mlx-lm's format",
            f"write adapters.safetensors and adapter_config.json to {self.out}",
            f"(start it with: {self._command(publication)})",
        ]
        return (
            [*steps, f"ask {self.target.url} a prompt on which version and base differ"]
            if self.target.url
            else steps
        )

    def publish(self, publication: Publication) -> None:
        from safetensors.torch import save_file

        from clawback.models import adapter, mlx_adapter

        check_new(self.out, self.target.renew)
        settings, made = mlx_adapter.to_mlx(*adapter.read(publication.adapter))
        settings["model"] = self.target.base or publication.base
        beside = self.out.with_name(self.out.name + ".part")
        shutil.rmtree(beside, ignore_errors=True)
        beside.mkdir(parents=True)
        save_file(made, beside / mlx_adapter.WEIGHTS)
        (beside / mlx_adapter.CONFIG).write_text(json.dumps(settings, indent=2) + "\n", "utf-8")
        put_in_place(beside, self.out, publication.version)

    def verify(self, publication: Publication) -> str:
        if not self.target.url:
            settle(self.out)
            return f"written to {self.out}; name a running mlx_lm.server with --url to have it asked"
        url, timeout = self.target.url.rstrip("/").removesuffix("/v1"), self.target.timeout
        try:
            proof = publication.probe.confirm(
                lambda prompt: ask(url, "default_model", prompt, timeout), "mlx_lm.server"
            )
        except Unconvinced as error:  # a server reads the folder once, when it is started
            settle(self.out)
            raise NotLoaded(
                f"{error} {self.out} is written; start the server again: {self._command(publication)}"
            ) from error
        settle(self.out)
        return proof

    def undo(self, publication: Publication) -> str:  # noqa: ARG002
        return restore(self.out)

    def _command(self, publication: Publication) -> str:
        return f"mlx_lm.server --model {self.target.base or publication.base} --adapter-path {self.out}"

    def withdraw(self) -> str:
        return f"{take_away(self.out)}; start mlx_lm.server again without --adapter-path"

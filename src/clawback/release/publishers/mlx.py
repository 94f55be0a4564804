"""MLX: the adapter in mlx-lm's own format, for ``mlx_lm.server --adapter-path FOLDER``.

mlx-lm keeps ``lora_a [in, r]`` and ``lora_b [r, out]`` where PEFT has ``A [r, in]`` and ``B [out, r]``, adds ``scale · (x a) b``, and
names layers as the model does (no ``base_model.model.`` in front).
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence

from clawback.errors import ModelError, UsageError
from clawback.release.publishers.base import Publication, Target, ask

_FRONT = "base_model.model."


class Mlx:
    def __init__(self, target: Target) -> None:
        if target.out is None:
            raise UsageError("A folder is needed: --output FOLDER.")
        self.target, self.out = target, target.out

    def plan(self, publication: Publication) -> Sequence[str]:
        steps = [
            f"turn the adapter of version {publication.version} into mlx-lm's format",
            f"write adapters.safetensors and adapter_config.json to {self.out}",
            f"(start it with: mlx_lm.server --model {self.target.base or publication.base} --adapter-path {self.out})",
        ]
        return (
            [*steps, f"ask {self.target.url} a prompt on which version and base differ"]
            if self.target.url
            else steps
        )

    def publish(self, publication: Publication) -> None:
        from safetensors.torch import save_file

        from clawback.engine.torch.models import adapter

        if self.out.exists() and any(self.out.iterdir()):
            raise UsageError(f"{self.out} is not empty: name a new folder.")
        config, tensors = adapter.read(publication.adapter)
        made = {}
        for name, tensor in tensors.items():
            if tensor.ndim != 2:
                raise ModelError("mlx-lm has no adapters of fused experts, and this version has some.")
            short = name.removeprefix(_FRONT)
            short = short.replace(".lora_A.weight", ".lora_a").replace(".lora_B.weight", ".lora_b")
            made[short] = tensor.T.contiguous()
        layers = {int(part) for name in made for part in name.split(".") if part.isdigit()}
        keys = sorted({_key(name) for name in made})
        scale = float(config["lora_alpha"]) / float(config["r"])
        settings = {
            "fine_tune_type": "lora",
            "model": self.target.base or publication.base,
            "num_layers": len(layers),
            "lora_parameters": {"rank": config["r"], "scale": scale, "dropout": 0.0, "keys": keys},
        }
        beside = self.out.with_name(self.out.name + ".part")
        shutil.rmtree(beside, ignore_errors=True)
        beside.mkdir(parents=True)
        save_file(made, beside / "adapters.safetensors")
        (beside / "adapter_config.json").write_text(json.dumps(settings, indent=2) + "\n", "utf-8")
        if self.out.exists():
            self.out.rmdir()
        beside.rename(self.out)

    def verify(self, publication: Publication) -> str:
        if not self.target.url:
            return f"written to {self.out}; name a running mlx_lm.server with --url to have it asked"
        said = ask(
            self.target.url.rstrip("/").removesuffix("/v1"),
            "default_model",
            publication.probe,
            self.target.timeout,
        )
        return publication.probe.judge(said, "mlx_lm.server")


def _key(name: str) -> str:
    """``model.layers.3.self_attn.q_proj.lora_a`` → ``self_attn.q_proj``."""
    parts = name.rsplit(".", 1)[0].split(".")
    number = next(i for i, part in enumerate(parts) if part.isdigit())
    return ".".join(parts[number + 1 :])

"""Publishes to llama.cpp's server, which loads adapters only together with a model. There are two ways to make it do so.

* A *router* (``llama-server --models-preset FILE``): a preset of ours in that file, ``GET /models?reload=1``,
  load. Nothing else stops.
* A server of one model, started with ``--lora FILE``: we write the file, and the person restarts the server.

Its answers are verified: ``POST /lora-adapters`` reports "success" for adapters that it did not load, and an
adapter that is switched on for all requests leaves answers computed from old state; so the list is read back,
and the probe names its adapter with the request.
"""

from __future__ import annotations

import configparser
import io
import itertools
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from clawback.errors import ClawbackError, ModelError, UsageError
from clawback.files import replace
from clawback.release.publishers import gguf
from clawback.release.publishers.base import PROBE_TOKENS, Publication, Target, call


class LlamaCpp:
    def __init__(self, target: Target) -> None:
        if target.out is None:
            raise UsageError("The adapter's file is needed: --output clawback.gguf.")
        if target.presets is not None and not (target.url and target.base):
            raise UsageError(
                "With --presets, name the server (--url) and what the base is called there (--base)."
            )
        self.target, self.out = target, target.out.resolve()
        self.url = target.url.rstrip("/").removesuffix("/v1")

    def plan(self, publication: Publication) -> Sequence[str]:
        steps = [f"turn the adapter of version {publication.version} into GGUF, as {self.out}"]
        if not self.url:
            return [*steps, f"(start it with: llama-server --model BASE.gguf --lora {self.out})"]
        name = self.target.model
        known = f"ask {self.url} for its base, and go on only if it is as large as {publication.base}"
        if self.target.presets is None:
            return [
                known,
                *steps,
                f"look whether the server has {self.out.name} loaded (it loads adapters at its start alone)",
                _ASK,
            ]
        hot = [
            f"put the preset [{name}] into {self.target.presets}: the model of {self.target.base!r} with this adapter",
            f"have {self.url} read its presets again, unload the {name!r} of before, load the new one",
        ]
        return [known, *steps, *hot, _ASK]

    def publish(self, publication: Publication) -> None:
        if self.url:
            self._check(publication)
        self.out.parent.mkdir(parents=True, exist_ok=True)
        gguf.convert(publication.adapter, publication.config, self.out)
        if self.target.presets is not None:
            self._preset(self.target.presets)
            self._reload()

    def verify(self, publication: Publication) -> str:
        if not self.url:
            return f"written to {self.out}; name a running llama-server with --url to have it asked"
        router = self.target.presets is not None
        where = f"?model={quote(self.target.model)}" if router else ""
        loaded = call(f"{self.url}/lora-adapters{where}", timeout=self.target.timeout)
        found = (
            [a for a in loaded if isinstance(a, dict) and Path(str(a.get("path"))).name == self.out.name]
            if isinstance(loaded, list)
            else []
        )
        if not found:
            raise ClawbackError(
                f"The adapter is written, but this llama-server has not loaded it (it does so at its start alone): start it again with --lora {self.out}."
            )
        others = [{"id": a["id"], "scale": 0.0} for a in loaded if a is not found[-1]]
        body: dict[str, Any] = {
            "model": self.target.model,
            "messages": [{"role": "user", "content": publication.probe.prompt}],
            "temperature": 0,
            "max_tokens": PROBE_TOKENS,
            "cache_prompt": False,
            "lora": [{"id": found[-1]["id"], "scale": 1.0}, *others],
        }
        answer = call(f"{self.url}/v1/chat/completions", body, timeout=self.target.timeout)
        try:
            said = str(answer["choices"][0]["message"]["content"])
        except (KeyError, IndexError, TypeError):
            raise ClawbackError(f"{self.url} did not answer the probe: {str(answer)[:200]}") from None
        return publication.probe.judge(said, "llama-server")

    def withdraw(self) -> str:
        if self.target.presets is not None:
            self._preset(self.target.presets, adapter=False)
            self._reload()
            return f"llama-server's {self.target.model!r} is {self.target.base!r} itself"
        if not self.out.exists():
            return f"there is no version in {self.out}"
        self.out.unlink()
        return f"{self.out} is removed; start llama-server again without --lora"

    # --------------------------------------------------------------------------------------------------- steps

    def _models(self, reload: bool = False) -> list[dict[str, Any]]:
        path = "models?reload=1" if reload else "v1/models"
        answer = call(f"{self.url}/{path}", timeout=self.target.timeout)
        found = answer.get("data") if isinstance(answer, dict) else None
        if not isinstance(found, list):
            raise ClawbackError(f"{self.url} is no llama-server: it lists no models.")
        return [model for model in found if isinstance(model, dict)]

    def _check(self, publication: Publication) -> None:
        """GGUF keeps no hash of what it was made from: width and vocabulary must agree, and the probe decides the rest."""
        models = self._models()
        if self.target.base:
            models = [m for m in models if self.target.base in (m.get("id"), *m.get("aliases", []))]
            if not models:
                raise ModelError(f"{self.url} has no model {self.target.base!r}.")
        meta = models[0].get("meta") if models else None
        if not isinstance(meta, dict) or "n_embd" not in meta:
            return  # a router tells nothing of a model that is not loaded
        there = (int(meta["n_embd"]), int(meta.get("n_vocab", 0)))
        ours = (int(publication.config["hidden_size"]), int(publication.config["vocab_size"]))
        # Vocabularies are padded now and then; widths never are.
        if there[0] != ours[0] or (there[1] and abs(there[1] - ours[1]) > 512):
            raise ModelError(
                f"The adapter was made for {publication.base} (width {ours[0]}, vocabulary {ours[1]}), and this server has "
                f"{models[0].get('id')} (width {there[0]}, vocabulary {there[1]})."
            )

    def _preset(self, file: Path, *, adapter: bool = True) -> None:
        """Our section, renewed; the rest of the file stays as it is, comments included. ``adapter``: False for the base alone."""
        models = {str(m.get("id")): m for m in self._models()}
        base = models.get(self.target.base, {})
        made = configparser.ConfigParser()
        lora = {"lora": str(self.out)} if adapter else {}
        made[self.target.model] = {"model": _model_file(base, file)} | lora
        text = io.StringIO()
        made.write(text)
        before = file.read_text("utf-8") if file.exists() else "version = 1\n"
        rest = _without(before, self.target.model).rstrip("\n")
        replace(file, f"{rest}\n\n{text.getvalue().rstrip()}\n".encode())

    def _reload(self) -> None:
        name, timeout = self.target.model, self.target.timeout
        known = {str(m.get("id")): m for m in self._models(reload=True)}
        if name not in known:
            raise ClawbackError(
                f"{self.url} did not take the preset {name!r}: is {self.target.presets} the file that it was started with?"
            )
        if _status(known[name]) == "loaded":
            call(f"{self.url}/models/unload", {"model": name}, timeout=timeout)
            self._wait(name, "unloaded")
        call(f"{self.url}/models/load", {"model": name}, timeout=timeout)
        self._wait(name, "loaded")

    def _wait(self, name: str, wanted: str) -> None:
        until = time.monotonic() + self.target.timeout
        while time.monotonic() < until:
            model = next((m for m in self._models() if m.get("id") == name), {})
            if _status(model) == wanted:
                return
            if isinstance(model.get("status"), dict) and model["status"].get("failed"):
                raise ClawbackError(
                    f"llama-server could not load {name!r}: {json.dumps(model['status'])[:300]}"
                )
            time.sleep(0.1)
        raise ClawbackError(
            f"llama-server did not have {name!r} {wanted} within {self.target.timeout:g} seconds."
        )


_ASK = "ask a prompt on which version and base differ"


def _status(model: dict[str, Any]) -> str:
    status = model.get("status")
    return str(status.get("value")) if isinstance(status, dict) else ""


def _model_file(base: dict[str, Any], presets: Path) -> str:
    """Where the base's weights are: what the server says, or its own preset."""
    status = base.get("status")
    args = status.get("args", []) if isinstance(status, dict) else []
    for flag, value in itertools.pairwise(args):
        if flag in ("-m", "--model"):
            return str(value)
    if isinstance(base.get("path"), str):
        return str(base["path"])
    read = configparser.ConfigParser(strict=False, interpolation=None)
    read.read_string("[DEFAULT]\n" + presets.read_text("utf-8") if presets.exists() else "")
    name = str(base.get("id"))
    if read.has_option(name, "model"):
        return read.get(name, "model")
    raise ModelError(f"Where the weights of {name!r} are, neither the server nor {presets} says.")


def _without(text: str, section: str) -> str:
    kept, ours = [], False
    for line in text.splitlines(keepends=True):
        if line.lstrip().startswith("["):
            ours = line.strip() == f"[{section}]"
        if not ours:
            kept.append(line)
    return "".join(kept)

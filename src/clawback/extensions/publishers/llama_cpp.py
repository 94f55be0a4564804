"""Publishes to llama.cpp's server, which loads models and adapters at a start alone. There are two ways to make it do so.

* A *router* (``llama-server --models-preset FILE``): a preset of ours in that file, ``GET /models?reload=1``,
  load. Nothing else stops.
* A server of one model, started with ``--lora FILE`` or ``-m FILE``: we write the file, and the person restarts the server.

What it gets is an adapter (a few megabytes) for families whose adapters are known to come out right, else a merged file.

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
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from clawback.errors import ClawbackError, ModelError, UsageError
from clawback.extensions.publishers import gguf_adapter, merged_gguf
from clawback.files import replace
from clawback.release.publishers.publisher import (
    NotLoaded,
    Publication,
    Target,
    Unconvinced,
    ask,
    call,
    keep_former,
    restore,
    settle,
)

if TYPE_CHECKING:
    from clawback.records import JsonObject


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
        self._former_presets: bytes | None = None

    def plan(self, publication: Publication) -> Sequence[str]:
        whole, name = _needs_merged_file(publication), self.target.model
        if whole:
            steps = [*merged_gguf.plan(publication, self.target.base), f"write {self.out}"]
        else:
            steps = [f"turn the adapter of version {publication.version} into GGUF, as {self.out}"]
        if not self.url:
            return [*steps, f"(start it with: {_command(whole, self.out)})"]
        known = f"ask {self.url} for its base, and go on only if it is as large as {publication.base}"
        if self.target.presets is None:
            return [
                known,
                *steps,
                f"look whether the server has {self.out.name} loaded (it loads files at its start alone)",
                _ASK,
            ]
        what = "this file" if whole else f"the model of {self.target.base!r} with this adapter"
        hot = [
            f"put the preset [{name}] into {self.target.presets}: {what}",
            f"have {self.url} read its presets again, unload the {name!r} of before, load the new one",
        ]
        return [known, *steps, *hot, _ASK]

    def publish(self, publication: Publication) -> None:
        if self.url:
            self._check(publication)
        self.out.parent.mkdir(parents=True, exist_ok=True)
        keep_former(self.out)
        try:
            if _needs_merged_file(publication):
                merged_gguf.write(publication, self._gguf_of_base(), self.out)
            else:
                gguf_adapter.convert(publication.adapter, publication.config, self.out)
        except BaseException:
            settle(self.out)
            raise
        if self.target.presets is not None:
            self._former_presets = _content(self.target.presets)
            try:
                self._preset(
                    self.target.presets, {"model": self.out} if _needs_merged_file(publication) else None
                )
                self._reload()
            except ClawbackError:
                self.undo(publication)
                raise

    def verify(self, publication: Publication) -> str:
        if not self.url:
            settle(self.out)
            return f"written to {self.out}; name a running llama-server with --url to have it asked"
        find = self._loaded_model if _needs_merged_file(publication) else self._loaded_adapter
        more = find()
        try:
            proof = publication.probe.confirm(
                lambda prompt: ask(self.url, self.target.model, prompt, self.target.timeout, **more),
                "llama-server",
            )
        except Unconvinced as error:
            if self.target.presets is not None:
                raise
            settle(self.out)
            raise NotLoaded(
                f"{error} {self.out} is written; start the server again: {_command(_needs_merged_file(publication), self.out)}"
            ) from error
        settle(self.out)
        return proof

    def undo(self, publication: Publication) -> str:  # noqa: ARG002
        done = restore(self.out)
        if self._former_presets is not None and self.target.presets is not None:
            replace(self.target.presets, self._former_presets)
            self._models(reload=True)
            done += f", and {self.target.presets} is as it was"
        return done

    def _loaded_model(self) -> JsonObject:
        """What a request has to say beside its prompt. Raises ``NotLoaded`` where a server of one model was started with another file."""
        if self.target.presets is None:
            answer = call(f"{self.url}/props", timeout=self.target.timeout)
            loaded = str(answer.get("model_path", "")) if isinstance(answer, dict) else ""
            if Path(loaded).name != self.out.name:
                settle(self.out)
                raise NotLoaded(
                    f"{self.out} is written, but this llama-server has {loaded or 'another model'} loaded: start it again with {_command(True, self.out)}"
                )
        return {"cache_prompt": False}

    def _loaded_adapter(self) -> JsonObject:
        router = self.target.presets is not None
        where = f"?model={quote(self.target.model)}" if router else ""
        loaded = call(f"{self.url}/lora-adapters{where}", timeout=self.target.timeout)
        found = (
            [a for a in loaded if isinstance(a, dict) and Path(str(a.get("path"))).name == self.out.name]
            if isinstance(loaded, list)
            else []
        )
        if not found:
            settle(self.out)
            raise NotLoaded(
                f"The adapter is written, but this llama-server has not loaded it (it does so at its start alone): start it again with --lora {self.out}."
            )
        others = [{"id": a["id"], "scale": 0.0} for a in loaded if a is not found[-1]]
        return {"cache_prompt": False, "lora": [{"id": found[-1]["id"], "scale": 1.0}, *others]}

    def withdraw(self) -> str:
        if self.target.presets is not None:
            self._preset(self.target.presets, {})
            self._reload()
            return f"llama-server's {self.target.model!r} is {self.target.base!r} itself"
        if not self.out.exists():
            return f"there is no version in {self.out}"
        self.out.unlink()
        return f"{self.out} is removed; start llama-server again without it"

    # --------------------------------------------------------------------------------------------------- steps

    def _models(self, reload: bool = False) -> list[JsonObject]:
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

    def _preset(self, file: Path, keys: Mapping[str, Path] | None) -> None:
        """Our section, renewed; the rest of the file stays as it is, comments included. ``keys``: None for the base with our adapter, {} for the base alone."""
        if keys is None or not keys:
            lora = {} if keys is not None else {"lora": str(self.out)}
            models = {str(m.get("id")): m for m in self._models()}
            values = {"model": _model_file(models.get(self.target.base, {}), file)} | lora
        else:
            values = {name: str(value) for name, value in keys.items()}
        made = configparser.ConfigParser()
        made[self.target.model] = values
        text = io.StringIO()
        made.write(text)
        before = file.read_text("utf-8") if file.exists() else "version = 1\n"
        rest = _without(before, self.target.model).rstrip("\n")
        replace(file, f"{rest}\n\n{text.getvalue().rstrip()}\n".encode())

    def _gguf_of_base(self) -> str:
        """The file that the server has for the base, where it is a router; else what was named."""
        if self.target.presets is None:
            return self.target.base
        models = {str(m.get("id")): m for m in self._models()}
        return _model_file(models.get(self.target.base, {}), self.target.presets)

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


def _needs_merged_file(publication: Publication) -> bool:
    """Whether it gets a merged file: all weights were trained, or how adapters of this family are stored over there is not known."""
    full = not (publication.adapter / "adapter_config.json").exists()
    return full or str(publication.config.get("model_type")) not in gguf_adapter.FAMILIES


def _command(merged: bool, out: Path) -> str:
    return f"llama-server -m {out}" if merged else f"llama-server --model BASE.gguf --lora {out}"


def _content(file: Path) -> bytes | None:
    return file.read_bytes() if file.exists() else None


def _status(model: JsonObject) -> str:
    status = model.get("status")
    return str(status.get("value")) if isinstance(status, dict) else ""


def _model_file(base: JsonObject, presets: Path) -> str:
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

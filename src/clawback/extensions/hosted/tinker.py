"""A client of Tinker's API: sessions, models, numbered requests, and results that are polled until they are done.

Wire facts (its SDK 0.38 and SkyRL's server, read 2026-11): ``forward_backward`` goes out as Protocol Buffers,
and results of it and of sampling come back so if requested; all else is JSON. Every verb answers at once with
a ``request_id``, and ``retrieve_future`` waits for its result (408: not yet). A request that is repeated
under its ``seq_id`` is not executed again.
"""

from __future__ import annotations

import tarfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import quote

from clawback.extensions.hosted import protobuf
from clawback.extensions.hosted.request_journal import RequestJournal
from clawback.extensions.hosted.trainer_http import TrainerReply, Wire
from clawback.extensions.hosted.trainer_records import (
    AdamParams,
    Datum,
    Forgotten,
    ForwardScores,
    HostedCost,
    HostedError,
    SampledSequence,
    SamplingParams,
)

if TYPE_CHECKING:
    from clawback.records import JsonObject

T = TypeVar("T")
API = "/api/v1/"
CHUNK_DATA, CHUNK_BYTES = 1024, 5_000_000
"""Of one request, as Tinker's SDK has it."""
FILES = ("adapter_model.safetensors", "adapter_config.json")
LARGEST_FILE = 1 << 30
SDK = "0.38.0"
"""The version of Tinker's SDK whose wire this is."""


class TinkerTrainer:
    """One LoRA on a server that speaks Tinker's API. A ``Trainer``."""

    REPLACES_STATES = True
    """Whether a state that is saved again under its name replaces the first."""
    LORA: Mapping[str, object] = {}
    """What a new LoRA is told beyond its rank and seed."""
    BACKWARD_SCORES = True
    """Whether log-probs come back from a backward pass, too."""
    COSTS_IDLE = False
    """Whether it costs while nobody asks it anything."""

    def __init__(self, wire: Wire, journal: RequestJournal, base: str, *, rank: int, seed: int) -> None:
        self.wire, self.journal, self.base = wire, journal, base
        self.rank, self.seed = rank, seed

    @property
    def api(self) -> str:
        """What the verbs' paths begin with."""
        return API

    # ---------------------------------------------------------------------------------------------- verbs

    def forward(self, key: str, data: Sequence[Datum]) -> ForwardScores:
        return self._scores(key, data, "cross_entropy", None, forward_only=True)

    def forward_backward(
        self, key: str, data: Sequence[Datum], loss: str, config: Mapping[str, float] | None = None
    ) -> ForwardScores:
        return self._scores(key, data, loss, config, forward_only=False)

    def optim_step(self, key: str, params: AdamParams) -> Mapping[str, float]:
        model = self.model()
        number = self.journal.number(key, HostedCost(requests=1))
        body = {"model_id": model, "seq_id": number, "type": "optim_step", "adam_params": asdict(params)}
        found = self._result("optim_step", body).json().get("metrics") or {}
        return {str(k): float(v) for k, v in found.items() if isinstance(v, (int, float))}

    def sample(
        self, key: str, prompt: Sequence[int], count: int, params: SamplingParams, path: str = ""
    ) -> Sequence[SampledSequence]:
        self.model()
        source = path or "base"
        most = HostedCost(1, prefill=len(prompt), sample=count * params.max_tokens)
        # Samplers count for themselves, so the number is not the model's; the account is the same.
        number = self.journal.facts.get(f"sample:{key}")
        if number is None:
            self._held(most)
            number = 1 + sum(name.startswith("sample:") for name in self.journal.facts)
            self.journal.fact(f"sample:{key}", number)
        body = {
            "type": "sample",
            "sampling_session_id": self._sampler(source),
            "seq_id": number,
            "num_samples": count,
            "prompt": _input(prompt),
            "sampling_params": {k: v for k, v in asdict(params).items() if v is not None},
        }
        reply = self._result("asample", body, packed=True)
        made = read_reply(lambda: protobuf.read_sampled(reply.body), reply)
        if len(made) != count:
            raise HostedError(
                f"{self.wire.url} was asked for {count} answers and gave {len(made)}: its sampler does not work."
            )
        if f"paid:{key}" not in self.journal.facts:
            self.journal.spent += HostedCost(
                1, prefill=len(prompt), sample=sum(len(one.tokens) for one in made)
            )
            self.journal.fact(f"paid:{key}", True)
        return made

    def save_state(self, key: str, name: str) -> str:
        model = self.model()
        number = self.journal.number(key, HostedCost(requests=1))
        body = {
            "model_id": model,
            "seq_id": number,
            "path": name,
            "type": "save_weights",
            "overwrite": self.REPLACES_STATES,
        }
        return self._saved("save_weights", body, f"tinker://{model}/weights/{name}")

    def load_state(self, key: str, path: str) -> None:
        model = self.model()
        number = self.journal.number(key, HostedCost(requests=1))
        body = {"model_id": model, "seq_id": number, "path": path, "optimizer": True, "type": "load_weights"}
        self._result("load_weights", body)

    def export(self, key: str, name: str, folder: Path) -> None:
        """By files with signed addresses where the server has them (Tinker since 0.37), else by the archive of a sampler's weights (SkyRL)."""
        model = self.model()
        number = self.journal.number(key, HostedCost(requests=1))
        body = {"model_id": model, "seq_id": number, "path": name}
        if self.journal.facts.get("export") != "archive":
            try:
                saved = _path(self._result("save_weights_external", body).json())
                self._fetch_files(*_path_parts(saved), folder)
                return
            except Forgotten:
                # The number is free again: a server that has no such route did nothing under it.
                self.journal.fact("export", "archive")
        path = f"tinker://{model}/sampler_weights/{name}"
        saved = self._saved("save_weights_for_sampler", body, path)
        self._fetch_archive(*_path_parts(saved), folder)

    # ---------------------------------------------------------------------------------------------- session

    def model(self) -> str:
        """The model's id over there; made on first use."""
        if known := self.journal.facts.get("model"):
            return str(known)
        session = self._session()
        lora = {
            "rank": self.rank,
            "seed": self.seed,
            "train_unembed": False,
            "train_mlp": True,
            "train_attn": True,
        }
        body = {
            "type": "create_model",
            "session_id": session,
            "model_seq_id": self.journal.models,
            "base_model": self.base,
            "lora_config": {**lora, **self.LORA},
        }
        found = self._result("create_model", body).json()
        model = found.get("model_id")
        if not isinstance(model, str) or not model:
            raise HostedError(f"{self.wire.url} made a model without a name.")
        self.journal.fact("model", model)
        return model

    def beat(self) -> None:
        """Say that the session is still wanted. Raises ``Forgotten`` where it is not known any more."""
        if session := self.journal.facts.get("session"):
            self.wire.post(
                self.api + "session_heartbeat", {"session_id": session, "type": "session_heartbeat"}
            )

    def unload(self) -> str:
        """Give the model back: what stands by may cost. What could not be given back, and costs; else ""."""
        if model := self.journal.facts.get("model"):
            with suppress(HostedError):  # it is given back when the session ends
                self._result("unload_model", {"model_id": model, "type": "unload_model"})
        return ""

    def pause(self) -> str:
        """The run is interrupted on purpose: give back what costs while it stands by. As ``unload``; here nothing does."""
        return ""

    def _session(self) -> str:
        if known := self.journal.facts.get("session"):
            return str(known)
        body = {"type": "create_session", "tags": ["clawback"], "user_metadata": None, "sdk_version": SDK}
        found = self.wire.post(self.api + "create_session", body).json()
        if refused := found.get("error_message"):
            raise HostedError(f"{self.wire.url} refuses: {refused}")
        self.journal.fact("session", str(found.get("session_id", "")))
        return str(self.journal.facts["session"])

    def _sampler(self, source: str) -> str:
        if known := self.journal.facts.get(f"sampler {source}"):
            return str(known)
        samplers = sum(name.startswith("sampler ") for name in self.journal.facts)
        body: JsonObject = {
            "type": "create_sampling_session",
            "session_id": self._session(),
            "sampling_session_seq_id": samplers,
            "base_model": self.base if source == "base" else None,
            "model_path": None if source == "base" else source,
        }
        found = self.wire.post(self.api + "create_sampling_session", body).json()
        self.journal.fact(f"sampler {source}", str(found.get("sampling_session_id", "")))
        return str(self.journal.facts[f"sampler {source}"])

    # ---------------------------------------------------------------------------------------------- requests

    def _scores(
        self,
        key: str,
        data: Sequence[Datum],
        loss: str,
        config: Mapping[str, float] | None,
        forward_only: bool,
    ) -> ForwardScores:
        self.model()
        logprobs: list[tuple[float, ...]] = []
        metrics: dict[str, float] = {}
        for place, some in enumerate(chunks(data)):
            tokens = sum(len(one.tokens) for one in some)
            cost = HostedCost(1, prefill=tokens) if forward_only else HostedCost(1, train=tokens)
            number = self.journal.number(f"{key}#{place}", cost)
            found = self._pass(number, some, loss, config, forward_only)
            silent = not forward_only and not self.BACKWARD_SCORES and not any(found.logprobs)
            if not silent and [len(v) for v in found.logprobs] != [len(d.tokens) for d in some]:
                raise HostedError(
                    f"{self.wire.url} gave log-probs of {len(found.logprobs)} sequences for {len(some)}, or of other lengths. "
                    "Nothing was learned from them."
                )
            logprobs += found.logprobs
            for name, value in found.metrics.items():
                metrics[name] = metrics.get(name, 0.0) + value
        return ForwardScores(tuple(logprobs), metrics)

    def _pass(
        self,
        number: int,
        data: Sequence[Datum],
        loss: str,
        config: Mapping[str, float] | None,
        forward_only: bool,
    ) -> ForwardScores:
        """One request, as it goes over the wire."""
        raw = protobuf.request(self.model(), number, data, loss, config, forward_only)
        reply = self._future(self.wire.post(self.api + "forward_backward", raw), packed=True)
        return read_reply(lambda: protobuf.read_output(reply.body), reply)

    def _held(self, cost: HostedCost) -> None:
        from clawback.extensions.hosted.trainer_records import CapReached

        if why := self.journal.cap.refuses(self.journal.spent + cost):
            raise CapReached(f"The next answers could bring this run to {why}. Raise the limit to go on.")

    def _saved(self, verb: str, body: Mapping[str, object], path: str) -> str:
        """Where it was saved. Some servers refuse a name that they have (409), also to whoever asks again because no answer came."""
        try:
            return _path(self._result(verb, body).json())
        except HostedError as error:
            if error.status != 409:
                raise
            return path

    def _result(self, verb: str, body: Mapping[str, object], packed: bool = False) -> TrainerReply:
        return self._future(self.wire.post(self.api + verb, body), packed)

    def _future(self, promised: TrainerReply, packed: bool) -> TrainerReply:
        """Wait for what a request will give. Raises ``HostedError`` where it failed over there."""
        known = promised.json().get("request_id")
        if known is None:
            return promised
        accept = f"{protobuf.CONTENT_TYPE}, application/json" if packed else "application/json"
        while True:
            reply = self.wire.post(self.api + "retrieve_future", {"request_id": str(known)}, accept=accept)
            if protobuf.CONTENT_TYPE in reply.kind:
                return reply
            found = reply.json()
            if found.get("type") == "try_again":
                continue
            if "error" in found:
                raise HostedError(f"{self.wire.url} could not do it: {str(found['error'])[:300]}")
            return reply

    # ---------------------------------------------------------------------------------------------- downloads

    def _fetch_files(self, run: str, checkpoint: str, folder: Path) -> None:
        listed = self.wire.get(
            f"{self.api}training_runs/{quote(run)}/checkpoints/{quote(checkpoint)}/external_weights_urls"
        ).json()
        self._take_files(listed.get("urls"), folder)

    def _take_files(self, urls: object, folder: Path) -> None:
        """The two files of an adapter from signed addresses by file name."""
        if not isinstance(urls, dict):
            raise HostedError(f"{self.wire.url} names no files of its checkpoint.")
        by_name = {PurePosixPath(str(path)).name: str(url) for path, url in urls.items()}
        for name in FILES:
            if name not in by_name:
                raise HostedError(f"{self.wire.url} gives a checkpoint without {name}.")
            (folder / name).write_bytes(self.wire.download(by_name[name]))

    def _fetch_archive(self, run: str, checkpoint: str, folder: Path) -> None:
        path = f"{self.api}training_runs/{quote(run)}/checkpoints/{quote(checkpoint)}/archive"
        unpack(self.wire.get(path).body, folder)


def unpack(raw: bytes, folder: Path) -> None:
    """The two files of an adapter out of a tar archive that somebody else made: nothing else of it is written. Raises ``HostedError``."""
    found: dict[str, bytes] = {}
    try:
        with tarfile.open(fileobj=BytesIO(raw)) as archive:
            for member in archive:
                name = PurePosixPath(member.name).name
                if name in FILES and member.isreg() and member.size <= LARGEST_FILE and name not in found:
                    reader = archive.extractfile(member)
                    assert reader is not None
                    found[name] = reader.read()
    except (tarfile.TarError, OSError, EOFError) as error:
        raise HostedError(f"The checkpoint that came is no archive that can be read: {error}.") from error
    for name in FILES:
        if name not in found:
            raise HostedError(f"The checkpoint that came holds no {name}.")
    for name, content in found.items():
        (folder / name).write_bytes(content)


def chunks(data: Sequence[Datum]) -> list[list[Datum]]:
    """Requests of a size that servers take."""
    made: list[list[Datum]] = []
    size = 0
    for one in data:
        own = 8 * len(one.tokens) * (1 + len(one.inputs))
        if not made or len(made[-1]) == CHUNK_DATA or size + own > CHUNK_BYTES:
            made.append([])
            size = 0
        made[-1].append(one)
        size += own
    return made


def _input(tokens: Sequence[int]) -> JsonObject:
    return {"chunks": [{"type": "encoded_text", "tokens": list(tokens)}]}


def _path(reply: Mapping[str, object]) -> str:
    path = reply.get("path")
    if not isinstance(path, str) or not path:
        raise HostedError("The trainer saved weights and does not say where.")
    return path


def _path_parts(path: str) -> tuple[str, str]:
    """``tinker://RUN/KIND/NAME`` → RUN, NAME."""
    parts = path.removeprefix("tinker://").split("/")
    if not path.startswith("tinker://") or len(parts) != 3 or not all(parts):
        raise HostedError(f"The trainer names its checkpoint {path[:80]!r}, which is no tinker:// path.")
    return parts[0], parts[2]


def read_reply(read: Callable[[], T], reply: TrainerReply) -> T:
    try:
        return read()
    except (ValueError, TypeError) as error:
        kind = reply.kind or "nothing"
        raise HostedError(
            f"The trainer's result cannot be read ({error}; it came as {kind[:60]}). Nothing was learned from it."
        ) from error

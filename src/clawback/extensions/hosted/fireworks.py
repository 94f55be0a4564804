"""Fireworks: Tinker's verbs on a trainer that is a job of its own, and a sampler that weights are loaded into.

The trainer comes first, the deployment that samples is linked to it (``hotLoadTrainerJob``), and both cost by the
hour for as long as they exist (``fireworks_machines.py``): they are deleted when a run ends, however it ends, and
what a killed process leaves behind ends by itself.

Wire facts (its SDK, fireworks-ai 1.2.30, read 2026-11): a job has a name that the client chooses, so that a repeated
request creates nothing twice (409); the trainer is behind the gateway, under a path of the job's; requests are
JSON; a backward pass may return no log-probs; a sampler answers with 425 while it loads weights, and a saved
state is loaded by another job as ``cross_job://JOB/NAME``. A sampler's snapshot becomes a model (``:promote``),
which can be downloaded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from clawback.extensions.hosted.fireworks_machines import PREFIX, Machines
from clawback.extensions.hosted.remote_policy import MOST_GAP, gap
from clawback.extensions.hosted.request_journal import RequestJournal
from clawback.extensions.hosted.tinker import TinkerTrainer
from clawback.extensions.hosted.trainer_http import Wire
from clawback.extensions.hosted.trainer_records import (
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

ALPHA = 32
"""Fireworks can be told, and is told what recipes for hosted trainers have."""
PROBE = 24
WHOLE = {"target_tokens"}


class FireworksTrainer(TinkerTrainer):
    """One LoRA on a trainer job of Fireworks. A ``Trainer``."""

    REPLACES_STATES = False
    BACKWARD_SCORES = False
    COSTS_IDLE = True
    LORA: Mapping[str, object] = {"alpha": ALPHA}

    def __init__(
        self,
        wire: Wire,
        journal: RequestJournal,
        base: str,
        *,
        rank: int,
        seed: int,
        shape: str,
    ) -> None:
        """``base``: ``accounts/fireworks/models/…``; ``shape``: ``accounts/fireworks/trainingShapes/…``."""
        super().__init__(wire, journal, base, rank=rank, seed=seed)
        self.machines = Machines(wire, journal, base, rank=rank, shape=shape)

    @property
    def api(self) -> str:
        return self.machines.api

    # ------------------------------------------------------------------------------------------------- verbs

    def beat(self) -> None:
        if self.journal.facts.get("session") and self.machines.over():
            raise Forgotten(f"the trainer {self.machines.held['job']} has ended")
        super().beat()

    def model(self) -> str:
        if self.journal.facts.get("model") is None:
            self.machines.begin_job()
        self.machines.tick()
        return super().model()

    def _pass(
        self,
        number: int,
        data: Sequence[Datum],
        loss: str,
        config: Mapping[str, float] | None,
        forward_only: bool,
    ) -> ForwardScores:
        verb = "forward" if forward_only else "forward_backward"
        given = {"data": [_datum(one) for one in data], "loss_fn": loss, "loss_fn_config": config}
        body = {"model_id": self.model(), "seq_id": number, f"{verb}_input": given}
        found = self._result(verb, body).json()
        outputs = found.get("loss_fn_outputs") or []
        try:
            values = [(one.get("logprobs") or {}).get("data") or () for one in outputs]
            metrics = {str(k): float(v) for k, v in (found.get("metrics") or {}).items()}
            return ForwardScores(tuple(tuple(map(float, one)) for one in values), metrics)
        except (AttributeError, TypeError, ValueError) as error:
            raise HostedError(f"The trainer's result cannot be read ({error}).") from error

    def sample(
        self, key: str, prompt: Sequence[int], count: int, params: SamplingParams, path: str = ""
    ) -> Sequence[SampledSequence]:
        """From the base, or from a snapshot that is loaded first (``path``: its name)."""
        self.model()
        most = HostedCost(1, prefill=len(prompt), sample=count * params.max_tokens)
        if f"paid:{key}" not in self.journal.facts:
            self._held(most)
        self.machines.begin_deployment()
        if path:
            self.machines.hot_load(path)
        body = {
            "model": self.machines.deployment,
            "prompt": list(prompt),
            "n": count,
            "max_tokens": params.max_tokens,
            "temperature": params.temperature,
            "top_p": params.top_p,
            "top_k": max(0, params.top_k),
            "logprobs": True,
            "raw_output": True,
            "stream": False,
        }
        reply = self.machines.patiently(
            lambda: self.wire.post("/inference/v1/completions", body, headers=self.machines.bearer)
        )
        made = _sequences(reply.json(), count)
        if f"paid:{key}" not in self.journal.facts:
            self.journal.spent += HostedCost(
                1, prefill=len(prompt), sample=sum(len(one.tokens) for one in made)
            )
            self.journal.fact(f"paid:{key}", True)
        if not path:
            self.journal.fact("probe", list(prompt))
        return made

    def save_state(self, key: str, name: str) -> str:
        path = super().save_state(key, name)
        return path if "://" in path or "/" in path else f"cross_job://{self.machines.held['job']}/{path}"

    def load_state(self, key: str, path: str) -> None:
        own = f"cross_job://{self.machines.held['job']}/"
        super().load_state(key, path.removeprefix(own))

    def export(self, key: str, name: str, folder: Path) -> None:
        """A snapshot for a sampler, which has to answer by it, made a model, and fetched."""
        model = self.model()
        number = self.journal.number(key, HostedCost(requests=1))
        body = {"model_id": model, "seq_id": number, "path": name, "checkpoint_type": "base"}
        snapshot = self._saved("save_weights_for_sampler", body, name)
        self._answers(key, snapshot)
        held = self.machines.held
        wanted = f"{PREFIX}{name}"[:63].lower()
        self.machines.note(models=sorted({*held.get("models", []), wanted}))
        promoted = {
            "output_model": f"accounts/{held['account']}/models/{wanted}",
            "trainer_job_id": self.machines.job_name,
            "base_model": self.base,
        }
        checkpoint = quote(snapshot.rsplit("/", 1)[-1], safe="")
        try:
            done = self.wire.post(f"{self.machines.root}/checkpoints/{checkpoint}:promote", promoted).json()
            self.machines.operation(done.get("operation"))
        except HostedError as error:
            if error.status != 409:  # it is one already
                raise
        listed = self.wire.get(f"{self.machines.root}/models/{wanted}:getDownloadEndpoint").json()
        self._take_files(listed.get("filenameToSignedUrls"), folder)

    def unload(self) -> str:
        """Delete what was made there, the trainer last. Names of what is still there, and costs; else ""."""
        return self.machines.delete(models=True)

    def pause(self) -> str:
        return self.machines.delete(models=False)

    def _answers(self, key: str, snapshot: str) -> None:
        """Raises ``HostedError`` where the sampler, told to load the snapshot, answers by anything else."""
        prompt = self.journal.facts.get("probe")
        if not prompt:
            return
        [drawn] = self.sample(f"{key}/answers", prompt, 1, SamplingParams(PROBE), snapshot)
        apart = gap(self, f"{key}/answers", prompt, drawn)
        if not apart <= MOST_GAP:
            raise HostedError(
                f"What was trained is not what answers: log-probs of the sampler with {snapshot} and of the trainer differ by {apart:.2f} nats a "
                f"token (limit {MOST_GAP}). The adapter was not fetched."
            )


def _datum(datum: Datum) -> JsonObject:
    inputs = {
        name: {
            "data": [int(v) for v in values] if name in WHOLE else list(values),
            "dtype": "int64" if name in WHOLE else "float32",
            "shape": [len(values)],
        }
        for name, values in datum.inputs.items()
    }
    chunks = [{"type": "encoded_text", "tokens": list(datum.tokens)}]
    return {"model_input": {"chunks": chunks}, "loss_fn_inputs": inputs}


def _sequences(reply: Mapping[str, Any], count: int) -> list[SampledSequence]:
    try:
        made = []
        for choice in reply["choices"]:
            tokens = tuple(int(token) for token in choice["raw_output"]["completion_token_ids"])
            logprobs = tuple(float(one["logprob"]) for one in choice["logprobs"]["content"])
            if not tokens or len(tokens) != len(logprobs):
                raise ValueError(f"{len(tokens)} tokens with {len(logprobs)} log-probs")
            made.append(SampledSequence(tokens, logprobs, str(choice["finish_reason"])))
    except (KeyError, TypeError, ValueError) as error:
        raise HostedError(f"The sampler answers without token ids or log-probs ({error!r}).") from None
    if len(made) != count:
        raise HostedError(f"The sampler was asked for {count} answers and gave {len(made)}.")
    return made


__all__ = ["FireworksTrainer"]

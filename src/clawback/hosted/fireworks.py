"""Fireworks: Tinker's verbs on a trainer that is a job of its own, and a sampler that weights are loaded into.

The trainer comes first, the deployment that samples is linked to it (``hotLoadTrainerJob``), and both cost by the
hour for as long as they exist: they are deleted when a run ends, is stopped or reaches its limit, and what a
killed process leaves behind ends itself after ``IDLE_SECONDS``.

Wire facts (its SDK, fireworks-ai 1.2.30, read 2026-11): a job has a name that the client chooses, so that a repeated
request creates nothing twice (409); the trainer is behind the gateway, under a path of the job's; requests are
JSON; a backward pass may return no log-probs; a sampler answers with 425 while it loads weights, and a saved
state is loaded by another job as ``cross_job://JOB/NAME``. A sampler's snapshot becomes a model (``:promote``),
which can be downloaded.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

from clawback.hosted.journal import Journal
from clawback.hosted.remote_policy import MOST_GAP, gap
from clawback.hosted.tinker import TinkerTrainer
from clawback.hosted.types import (
    CapReached,
    Datum,
    Forgotten,
    HostedError,
    SampledSequence,
    SamplingParams,
    Scores,
    Spent,
)
from clawback.hosted.wire import Wire

T = TypeVar("T")
JOBS = "rlorTrainerJobs"
PREFIX = "clawback-"
"""Of the names of all jobs, deployments and models that are ours."""
ALPHA = 32
"""Fireworks can be told, and is told what recipes for hosted trainers have."""
IDLE_SECONDS = 1800
"""Without a request a job ends by itself after this time, and so does what it costs."""
READY_SECONDS = 3600.0
"""In which a job, a deployment or a load has to be ready."""
ENDED = {
    "JOB_STATE_DELETED",
    "JOB_STATE_ARCHIVED",
    "JOB_STATE_DELETING",
    "JOB_STATE_FAILED",
    "JOB_STATE_CANCELLED",
    "JOB_STATE_CANCELLING",
    "JOB_STATE_COMPLETED",
    "JOB_STATE_EARLY_STOPPED",
    "JOB_STATE_PAUSED",
}
PROBE = 24
WHOLE = {"target_tokens"}


class FireworksTrainer(TinkerTrainer):
    """One LoRA on a trainer job of Fireworks. A ``Trainer``."""

    REPLACES_STATES = False
    BACKWARD_SCORES = False
    COSTS_IDLE = True
    LORA: Mapping[str, Any] = {"alpha": ALPHA}

    def __init__(
        self,
        wire: Wire,
        journal: Journal,
        base: str,
        *,
        rank: int,
        seed: int,
        shape: str,
        now: Callable[[], float] = time.time,
    ) -> None:
        """``base``: ``accounts/fireworks/models/…``; ``shape``: ``accounts/fireworks/trainingShapes/…``."""
        super().__init__(wire, journal, base, rank=rank, seed=seed)
        self.shape, self.now = shape, now

    @property
    def machine(self) -> dict[str, Any]:
        """What runs there for us: ``account``, ``job``, ``made`` (how many jobs), ``deployment``, ``models``, ``ticked``."""
        return dict(self.journal.facts.get("machine") or {})

    def _note(self, **changes: Any) -> None:
        self.journal.fact("machine", {**self.machine, **changes})

    @property
    def api(self) -> str:
        held = self.machine
        return f"/training/v1/{JOBS}/{held['account']}/{held['job']}/api/v1/"

    # ------------------------------------------------------------------------------------------------- verbs

    def beat(self) -> None:
        if self.journal.facts.get("session") and self._state(self.machine["job"]) in ENDED:
            raise Forgotten(f"the trainer {self.machine['job']} has ended")
        super().beat()

    def model(self) -> str:
        if self.journal.facts.get("model") is None:
            self._begin_job()
        self._tick()
        return super().model()

    def _pass(
        self,
        number: int,
        data: Sequence[Datum],
        loss: str,
        config: Mapping[str, float] | None,
        forward_only: bool,
    ) -> Scores:
        verb = "forward" if forward_only else "forward_backward"
        given = {"data": [_datum(one) for one in data], "loss_fn": loss, "loss_fn_config": config}
        body = {"model_id": self.model(), "seq_id": number, f"{verb}_input": given}
        found = self._result(verb, body).json()
        outputs = found.get("loss_fn_outputs") or []
        try:
            values = [(one.get("logprobs") or {}).get("data") or () for one in outputs]
            metrics = {str(k): float(v) for k, v in (found.get("metrics") or {}).items()}
            return Scores(tuple(tuple(map(float, one)) for one in values), metrics)
        except (AttributeError, TypeError, ValueError) as error:
            raise HostedError(f"The trainer's result cannot be read ({error}).") from error

    def sample(
        self, key: str, prompt: Sequence[int], count: int, params: SamplingParams, path: str = ""
    ) -> Sequence[SampledSequence]:
        """From the base, or from a snapshot that is loaded first (``path``: its name)."""
        self.model()
        most = Spent(1, prefill=len(prompt), sample=count * params.max_tokens)
        if f"paid:{key}" not in self.journal.facts:
            self._held(most)
        self._begin_deployment()
        if path:
            self._hot_load(path)
        body = {
            "model": self._deployment,
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
        reply = self._patiently(
            lambda: self.wire.post("/inference/v1/completions", body, headers=self._bearer)
        )
        made = _sequences(reply.json(), count)
        if f"paid:{key}" not in self.journal.facts:
            self.journal.spent += Spent(1, prefill=len(prompt), sample=sum(len(one.tokens) for one in made))
            self.journal.fact(f"paid:{key}", True)
        if not path:
            self.journal.fact("probe", list(prompt))
        return made

    def save_state(self, key: str, name: str) -> str:
        path = super().save_state(key, name)
        return path if "://" in path or "/" in path else f"cross_job://{self.machine['job']}/{path}"

    def load_state(self, key: str, path: str) -> None:
        own = f"cross_job://{self.machine['job']}/"
        super().load_state(key, path.removeprefix(own))

    def export(self, key: str, name: str, folder: Path) -> None:
        """A snapshot for a sampler, which has to answer by it, made a model, and fetched."""
        model = self.model()
        number = self.journal.number(key, Spent(requests=1))
        body = {"model_id": model, "seq_id": number, "path": name, "checkpoint_type": "base"}
        snapshot = self._saved("save_weights_for_sampler", body, name)
        self._answers(key, snapshot)
        held = self.machine
        wanted = f"{PREFIX}{name}"[:63].lower()
        self._note(models=sorted({*held.get("models", []), wanted}))
        promoted = {
            "output_model": f"accounts/{held['account']}/models/{wanted}",
            "trainer_job_id": self._job_name,
            "base_model": self.base,
        }
        checkpoint = quote(snapshot.rsplit("/", 1)[-1], safe="")
        try:
            done = self.wire.post(f"{self._account}/checkpoints/{checkpoint}:promote", promoted).json()
            self._operation(done.get("operation"))
        except HostedError as error:
            if error.status != 409:  # it is one already
                raise
        listed = self.wire.get(f"{self._account}/models/{wanted}:getDownloadEndpoint").json()
        self._take_files(listed.get("filenameToSignedUrls"), folder)

    def unload(self) -> str:
        """Delete what was made there, the trainer last. Names of what is still there, and costs; else ""."""
        return self._delete(models=True)

    def pause(self) -> str:
        return self._delete(models=False)

    # ------------------------------------------------------------------------------------------------- the machines

    @property
    def _account(self) -> str:
        return f"/v1/accounts/{self.machine['account']}"

    @property
    def _job_name(self) -> str:
        held = self.machine
        return f"accounts/{held['account']}/{JOBS}/{held['job']}"

    @property
    def _deployment(self) -> str:
        held = self.machine
        return f"accounts/{held['account']}/deployments/{held['job']}"

    @property
    def _sampler_path(self) -> str:
        """The path that deletes it."""
        return f"/v1/{self._deployment}?ignoreChecks=true&hard=true"

    @property
    def _bearer(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.wire.key}"}

    def _begin_job(self) -> None:
        """Create the trainer, or find the one that there is, and wait until it can be asked."""
        if not self.machine.get("account"):
            self._note(account=account(self.wire))
        held = self.machine
        if held.get("job") and self._create(held["job"]) in ENDED:
            removed(self.wire, self._sampler_path)
            held["job"] = ""
        while not held.get("job"):
            made = int(held.get("made", 0)) + 1
            job = f"{PREFIX}{self.journal.fingerprint[:12]}-{made}".lower()
            # It costs from now on, also where no answer comes.
            held |= {"job": job, "made": made, "deployment": False, "ticked": self.now()}
            self._note(**held)
            if self._create(job) in ENDED:  # of an earlier run of the same: names are not given out twice
                held["job"] = ""
        if held.get("ticked") is None:
            self._note(ticked=self.now())
        until = time.monotonic() + READY_SECONDS
        while not self._ready(held["job"]):
            self._wait(until, f"trainer {held['job']}")

    def _create(self, job: str) -> str:
        """Its state: new, or as it is if it was created before."""
        body = {
            "serviceMode": True,
            "keepAlive": False,
            "dataset": "",
            "displayName": job,
            "inactivityTimeout": f"{IDLE_SECONDS}s",
            "trainingConfig": {"baseModel": self.base, "loraRank": self.rank},
        }
        asked = urlencode({"trainingShape": self.shape, "rlorTrainerJobId": job})
        with _known_already():
            self.wire.post(f"{self._account}/{JOBS}?{asked}", body)
        return self._state(job)

    def _ready(self, job: str) -> bool:
        state = self._state(job)
        if state in ENDED:
            raise HostedError(f"The trainer {job} ended before it was ready ({state}).")
        if state != "JOB_STATE_RUNNING":
            return False
        try:
            self.wire.get(self.api + "healthz", self._bearer)
        except Forgotten:
            return False
        return True

    def _state(self, job: str) -> str:
        try:
            return str(self.wire.get(f"{self._account}/{JOBS}/{job}").json().get("state", ""))
        except Forgotten:
            return "JOB_STATE_DELETED"

    def _begin_deployment(self) -> None:
        held = self.machine
        if held.get("deployment"):
            return
        body = {
            "baseModel": self.base,
            "description": "A run of Clawback",
            "minReplicaCount": 0,
            "maxReplicaCount": 1,
            "enableHotLoad": True,
            "forTraining": True,  # it goes with the trainer, should nobody delete it
            "hotLoadTrainerJob": self._job_name,
            "deploymentShape": deployment_shape(self.wire, self.shape),
        }
        with _known_already():
            self.wire.post(f"{self._account}/deployments?deploymentId={held['job']}", body)
        self._note(deployment=True)

    def _hot_load(self, snapshot: str) -> None:
        path = "/hot_load/v1/models/hot_load"
        headers = {
            **self._bearer,
            "fireworks-model": self.base,
            "fireworks-deployment": self._deployment,
        }
        self.wire.post(path, {"identity": snapshot, "reset_prompt_cache": True}, headers=headers)
        until = time.monotonic() + READY_SECONDS
        while True:
            replicas = self.wire.get(path, headers).json().get("replicas") or []
            first = replicas[0] if isinstance(replicas, list) and replicas else {}
            loading = first.get("loading_state") or {}
            if first.get("readiness") and first.get("current_snapshot_identity") == snapshot:
                return
            if loading.get("stage") == "error" and loading.get("target_snapshot_identity") == snapshot:
                raise HostedError(f"{self._deployment} cannot load {snapshot}.")
            self._wait(until, f"load of {snapshot}")

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

    def _operation(self, operation: Any) -> None:
        until = time.monotonic() + READY_SECONDS
        while isinstance(operation, dict) and not operation.get("done"):
            self._wait(until, "promotion of the snapshot")
            operation = self.wire.get(f"/v1/{operation['name']}").json()
        if isinstance(operation, dict) and (error := operation.get("error")):
            raise HostedError(f"{self.wire.url} could not make a model of the snapshot: {str(error)[:200]}")

    def _patiently(self, ask: Callable[[], T]) -> T:
        """A new deployment is unknown to the gateway for a while (404)."""
        until = time.monotonic() + READY_SECONDS
        while True:
            try:
                return ask()
            except Forgotten:
                state = self.wire.get(f"/v1/{self._deployment}").json().get("state")
                if state in ("FAILED", "DELETED", "DELETING"):
                    raise HostedError(f"{self._deployment} is {state}: nothing samples there.") from None
                self._wait(until, self._deployment)

    def _wait(self, until: float, what: str) -> None:
        if time.monotonic() > until:
            raise HostedError(
                f"{self.wire.url}: the {what} was not ready within {READY_SECONDS / 60:.0f} minutes."
            )
        self._tick()
        self.wire.sleep(5 * self.wire.pause)

    def _tick(self, last: bool = False) -> None:
        """Count the time since the last look, by the second. Raises ``CapReached``."""
        held = self.machine
        if not held.get("job") or held.get("ticked") is None:
            return
        now = self.now()
        if now - held["ticked"] < 1.0 and not last:
            return
        self.journal.spent += Spent(seconds=min(max(0.0, now - held["ticked"]), IDLE_SECONDS))
        self._note(ticked=now)
        if why := self.journal.cap.refuses(self.journal.spent):
            raise CapReached(f"The trainer has brought this run to {why}. Raise the limit to go on.")

    def _delete(self, models: bool) -> str:
        held = self.machine
        if not held.get("job"):
            return ""
        with suppress(CapReached):
            self._tick(last=True)
        doomed = [f"{self._account}/models/{name}" for name in held.get("models", [])] if models else []
        if held.get("deployment"):
            doomed.append(self._sampler_path)
        doomed.append(f"{self._account}/{JOBS}/{held['job']}")
        left = [path.partition("?")[0] for path in doomed if not removed(self.wire, path)]
        self._note(ticked=None, deployment=False)
        return ", ".join(left)


def account(wire: Wire) -> str:
    """The account that a key belongs to. Raises ``HostedError`` where that is not one."""
    listed = wire.get("/v1/accounts?pageSize=2").json().get("accounts") or []
    names = [str(one.get("name", "")).removeprefix("accounts/") for one in listed if isinstance(one, dict)]
    if len(names) != 1 or not names[0]:
        raise HostedError(f"{wire.url}: the key belongs to {len(names)} accounts; one is needed.")
    return names[0]


def deployment_shape(wire: Wire, shape: str) -> str:
    """What a sampler beside a trainer of this shape has to be. Raises ``HostedError`` where there is no such shape."""
    asked = urlencode({"filter": "latest_validated=true", "pageSize": 1})
    found = wire.get(f"/v1/{shape}/versions?{asked}").json().get("trainingShapeVersions") or []
    made = (found[0].get("snapshot") or {}).get("deploymentShapeVersion") if found else None
    if not made:
        raise HostedError(f"{wire.url} has no training shape {shape} that can be sampled from.")
    return str(made)


def end(wire: Wire, of: str, job: str) -> bool:
    """Delete a trainer and its sampler, wherever they come from."""
    own = f"/v1/accounts/{of}"
    sampler = removed(wire, f"{own}/deployments/{job}?ignoreChecks=true&hard=true")
    return removed(wire, f"{own}/{JOBS}/{job}") and sampler


def jobs(wire: Wire, of: str) -> list[tuple[str, str]]:
    """(name, state) of the trainers that Clawback made and that are still there."""
    listed = wire.get(f"/v1/accounts/{of}/{JOBS}?pageSize=200").json().get(JOBS) or []
    named = [(str(one.get("name", "")).rsplit("/", 1)[-1], str(one.get("state", ""))) for one in listed]
    return [(name, state) for name, state in named if name.startswith(PREFIX) and state not in ENDED]


def removed(wire: Wire, path: str) -> bool:
    """Delete it. True also where it is gone already."""
    try:
        wire.delete(path)
    except Forgotten:
        return True
    except HostedError:
        return False
    return True


@contextmanager
def _known_already() -> Iterator[None]:
    """What is created under a name that we chose may be there: an answer was lost."""
    try:
        yield
    except HostedError as error:
        if error.status != 409:
            raise


def _datum(one: Datum) -> dict[str, Any]:
    inputs = {
        name: {
            "data": [int(v) for v in values] if name in WHOLE else list(values),
            "dtype": "int64" if name in WHOLE else "float32",
            "shape": [len(values)],
        }
        for name, values in one.inputs.items()
    }
    chunks = [{"type": "encoded_text", "tokens": list(one.tokens)}]
    return {"model_input": {"chunks": chunks}, "loss_fn_inputs": inputs}


def _sequences(said: Mapping[str, Any], count: int) -> list[SampledSequence]:
    try:
        made = []
        for choice in said["choices"]:
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


__all__ = ["FireworksTrainer", "account", "deployment_shape", "end", "jobs"]

"""The machines of one run at Fireworks: the trainer's job and the deployment that samples.

Both are created under names of ours, waited for, paid by time, and deleted. What runs is in the run's journal, so that a process that
is killed finds it again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlencode

from clawback.extensions.hosted.request_journal import RequestJournal
from clawback.extensions.hosted.trainer_http import Wire
from clawback.extensions.hosted.trainer_records import CapReached, Forgotten, HostedCost, HostedError

if TYPE_CHECKING:
    from clawback.records import JsonObject

T = TypeVar("T")
JOBS = "rlorTrainerJobs"
PREFIX = "clawback-"
"""Of the names of all jobs, deployments and models that are ours."""
IDLE_SECONDS = 1800
"""Without a request a job ends by itself after this time, and so does what it costs."""
MOST_PAGES = 100
"""Of a list of jobs, 200 each."""
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


class Machines:
    """``begin_job`` first; the deployment when something is to be sampled; ``delete`` at the end, whatever the end is."""

    def __init__(
        self,
        wire: Wire,
        journal: RequestJournal,
        base: str,
        *,
        rank: int,
        shape: str,
    ) -> None:
        self.wire, self.journal, self.base = wire, journal, base
        self.rank, self.shape = rank, shape

    @property
    def held(self) -> JsonObject:
        """What runs there for us: ``account``, ``job``, ``made`` (how many jobs), ``deployment``, ``models``, ``ticked``."""
        return dict(self.journal.facts.get("machine") or {})

    def note(self, **changes: object) -> None:
        self.journal.fact("machine", {**self.held, **changes})

    def over(self) -> bool:
        """Whether the trainer has ended."""
        return self._state(self.held["job"]) in ENDED

    @property
    def api(self) -> str:
        """What the paths of the trainer's verbs begin with."""
        held = self.held
        return f"/training/v1/{JOBS}/{held['account']}/{held['job']}/api/v1/"

    @property
    def root(self) -> str:
        """What the paths of all that belongs to the account begin with."""
        return f"/v1/accounts/{self.held['account']}"

    @property
    def job_name(self) -> str:
        held = self.held
        return f"accounts/{held['account']}/{JOBS}/{held['job']}"

    @property
    def deployment(self) -> str:
        held = self.held
        return f"accounts/{held['account']}/deployments/{held['job']}"

    @property
    def _sampler_path(self) -> str:
        """The path that deletes it."""
        return f"/v1/{self.deployment}?ignoreChecks=true&hard=true"

    @property
    def bearer(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.wire.key}"}

    def begin_job(self) -> None:
        """Create the trainer, or find the one that there is, and wait until it can be asked."""
        if not self.held.get("account"):
            self.note(account=account(self.wire))
        held = self.held
        if held.get("job") and self._create(held["job"]) in ENDED:
            removed(self.wire, self._sampler_path)
            held["job"] = ""
        while not held.get("job"):
            made = int(held.get("made", 0)) + 1
            job = f"{PREFIX}{self.journal.fingerprint[:12]}-{made}".lower()
            # It costs from now on, also where no answer comes.
            held |= {"job": job, "made": made, "deployment": False, "ticked": time.time()}
            self.note(**held)
            if self._create(job) in ENDED:  # of an earlier run of the same: names are not given out twice
                held["job"] = ""
        if held.get("ticked") is None:
            self.note(ticked=time.time())
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
            self.wire.post(f"{self.root}/{JOBS}?{asked}", body)
        return self._state(job)

    def _ready(self, job: str) -> bool:
        state = self._state(job)
        if state in ENDED:
            raise HostedError(f"The trainer {job} ended before it was ready ({state}).")
        if state != "JOB_STATE_RUNNING":
            return False
        try:
            self.wire.get(self.api + "healthz", self.bearer)
        except Forgotten:
            return False
        return True

    def _state(self, job: str) -> str:
        try:
            return str(self.wire.get(f"{self.root}/{JOBS}/{job}").json().get("state", ""))
        except Forgotten:
            return "JOB_STATE_DELETED"

    def begin_deployment(self) -> None:
        held = self.held
        if held.get("deployment"):
            return
        body = {
            "baseModel": self.base,
            "description": "A run of Clawback",
            "minReplicaCount": 0,
            "maxReplicaCount": 1,
            "enableHotLoad": True,
            "forTraining": True,  # it goes with the trainer, should nobody delete it
            "hotLoadTrainerJob": self.job_name,
            "deploymentShape": deployment_shape(self.wire, self.shape),
        }
        with _known_already():
            self.wire.post(f"{self.root}/deployments?deploymentId={held['job']}", body)
        self.note(deployment=True)

    def hot_load(self, snapshot: str) -> None:
        path = "/hot_load/v1/models/hot_load"
        headers = {
            **self.bearer,
            "fireworks-model": self.base,
            "fireworks-deployment": self.deployment,
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
                raise HostedError(f"{self.deployment} cannot load {snapshot}.")
            self._wait(until, f"load of {snapshot}")

    def operation(self, operation: object) -> None:
        until = time.monotonic() + READY_SECONDS
        while isinstance(operation, dict) and not operation.get("done"):
            self._wait(until, "promotion of the snapshot")
            operation = self.wire.get(f"/v1/{operation['name']}").json()
        if isinstance(operation, dict) and (error := operation.get("error")):
            raise HostedError(f"{self.wire.url} could not make a model of the snapshot: {str(error)[:200]}")

    def patiently(self, ask: Callable[[], T]) -> T:
        """A new deployment is unknown to the gateway for a while (404)."""
        until = time.monotonic() + READY_SECONDS
        while True:
            try:
                return ask()
            except Forgotten:
                state = self.wire.get(f"/v1/{self.deployment}").json().get("state")
                if state in ("FAILED", "DELETED", "DELETING"):
                    raise HostedError(f"{self.deployment} is {state}: nothing samples there.") from None
                self._wait(until, self.deployment)

    def _wait(self, until: float, what: str) -> None:
        if time.monotonic() > until:
            raise HostedError(
                f"{self.wire.url}: the {what} was not ready within {READY_SECONDS / 60:.0f} minutes."
            )
        self.tick()
        self.wire.sleep(5 * self.wire.pause)

    def tick(self, last: bool = False) -> None:
        """Count the time since the last look, by the second. Raises ``CapReached``."""
        held = self.held
        if not held.get("job") or held.get("ticked") is None:
            return
        now = time.time()
        if now - held["ticked"] < 1.0 and not last:
            return
        self.journal.spent += HostedCost(seconds=min(max(0.0, now - held["ticked"]), IDLE_SECONDS))
        self.note(ticked=now)
        if why := self.journal.cap.refuses(self.journal.spent):
            raise CapReached(f"The trainer has brought this run to {why}. Raise the limit to go on.")

    def delete(self, models: bool) -> str:
        held = self.held
        if not held.get("job"):
            return ""
        with suppress(CapReached):
            self.tick(last=True)
        doomed = [f"{self.root}/models/{name}" for name in held.get("models", [])] if models else []
        if held.get("deployment"):
            doomed.append(self._sampler_path)
        doomed.append(f"{self.root}/{JOBS}/{held['job']}")
        left = [path.partition("?")[0] for path in doomed if not removed(self.wire, path)]
        self.note(ticked=None, deployment=False)
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
    listed: list[Any] = []
    page = ""
    for _ in range(MOST_PAGES):
        asked = urlencode({"pageSize": 200, **({"pageToken": page} if page else {})})
        found = wire.get(f"/v1/accounts/{of}/{JOBS}?{asked}").json()
        listed += found.get(JOBS) or []
        page = str(found.get("nextPageToken") or "")
        if not page:
            break
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

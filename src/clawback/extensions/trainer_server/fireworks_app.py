"""Fireworks' routes around the stand-in of Tinker's: trainers and deployments as jobs, hot loads, models to download. Pitfalls included.

* A job is created under the client's name (409 if it is there), is not ready at once, and nothing of it is known under its trainer's path before that.
* A trainer takes JSON alone, samples nothing, and gives no log-probs with a backward pass.
* A deployment is unknown at first (404), and answers 425 while it loads; it can be made to say that a snapshot is loaded and to answer by the base.
* What a trainer saved outlives it: another loads it as ``cross_job://JOB/NAME``.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clawback.extensions.hosted import protobuf
from clawback.extensions.hosted.trainer_records import HostedCost, SamplingParams
from clawback.extensions.trainer_server import tinker_app
from clawback.extensions.trainer_server.around import Failing, Faults, Keyed, signature
from clawback.extensions.trainer_server.downloads import FILES
from clawback.extensions.trainer_server.request_service import NAME, ApiRefused, Made, Service
from clawback.extensions.trainer_server.requests import Json, answer, json_body

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import Receive, Scope, Send

ACCOUNT = "stand-in"
JOBS = "rlorTrainerJobs"
ABSENT = ("asample", "create_sampling_session", "save_weights_external", "external_weights_urls", "archive")
"""Of Tinker's API, what a trainer there does not have."""
LOOKS = 2
"""How often a job or a load is looked at before it is ready."""


class FireworksService(Service):
    """States are named within their job."""

    backward_scores = False

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.job = ""

    def knows_base(self, base: str) -> None:
        """``accounts/fireworks/models/NAME`` is NAME here."""
        super().knows_base(self.base if base.rpartition("/")[2] == self.base.rpartition("/")[2] else base)

    def checkpoint_path(self, model: str, kind: str, name: str) -> tuple[str, Path]:  # noqa: ARG002
        if not NAME.fullmatch(name):
            raise ApiRefused(400, "A checkpoint's name has letters, digits, dots, dashes and underscores")
        return name, self.folder / self.job / kind / name

    def checkpoint(self, path: str, kind: str = "") -> Path:
        job, _, name = path.removeprefix("cross_job://").rpartition("/")
        folder = self.folder / (job or self.job) / (kind or "sampler_weights") / name
        if not NAME.fullmatch(name) or (job and not NAME.fullmatch(job)):
            raise ApiRefused(400, "A checkpoint is a name, or cross_job://JOB/NAME")
        if path in self.saving:
            raise ApiRefused(425, "Checkpoint is still being created")
        if not folder.is_dir():
            raise ApiRefused(404, "Checkpoint not found")
        return folder


@dataclass
class Deployment:
    looks: int = 0
    snapshot: str = ""
    loads: int = 0


@dataclass
class FireworksCloud:
    """What there is, and what there was."""

    service: FireworksService
    key: str
    lies: bool = False
    """Says that snapshots are loaded, and answers by the base."""
    jobs: dict[str, int] = field(default_factory=dict)
    """How often each was looked at."""
    deployments: dict[str, Deployment] = field(default_factory=dict)
    models: dict[str, Path] = field(default_factory=dict)
    created: list[str] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)

    def job(self, name: str) -> int:
        if name not in self.jobs:
            raise ApiRefused(404, "No such job")
        return self.jobs[name]

    def end(self, name: str) -> None:
        """As by its inactivity, or deletion: what was in its memory is gone."""
        self.job(name)
        del self.jobs[name]
        self.deleted.append(name)
        self.service.forget_all()


def make(cloud: FireworksCloud, faults: Faults | None = None) -> Any:
    """The ASGI app."""
    from starlette.applications import Starlette
    from starlette.routing import Mount, Route

    routes = FireworksRoutes(cloud)

    def route(path: str, handler: Any, method: str = "POST") -> Route:
        async def handled(request: Request) -> Response:
            try:
                return answer(await handler(request))
            except ApiRefused as error:
                return answer({"error": {"message": str(error)}}, error.status)
            except (ValueError, TypeError, KeyError) as error:
                return answer({"error": {"message": f"The request cannot be read: {error!r}"[:300]}}, 400)

        return Route(path, handled, methods=[method])

    own = f"/v1/accounts/{ACCOUNT}"
    made = Starlette(
        routes=[
            route("/v1/accounts", routes.accounts, "GET"),
            route("/v1/{shape:path}/versions", routes.versions, "GET"),
            route(f"{own}/{JOBS}", routes.create_job),
            route(f"{own}/{JOBS}", routes.list_jobs, "GET"),
            route(f"{own}/{JOBS}/{{job}}", routes.look_at_job, "GET"),
            route(f"{own}/{JOBS}/{{job}}", routes.delete_job, "DELETE"),
            route(f"{own}/deployments", routes.deploy),
            route(f"{own}/deployments/{{name}}", routes.look_at_deployment, "GET"),
            route(f"{own}/deployments/{{name}}", routes.delete_deployment, "DELETE"),
            route("/hot_load/v1/models/hot_load", routes.load),
            route("/hot_load/v1/models/hot_load", routes.loaded, "GET"),
            route("/inference/v1/completions", routes.complete),
            route(f"{own}/checkpoints/{{name}}:promote", routes.promote),
            route(f"{own}/models/{{name}}:getDownloadEndpoint", routes.download, "GET"),
            route(f"{own}/models/{{name}}", routes.delete_model, "DELETE"),
            Route("/files/{name}/{file}", routes.file),
            Mount(
                f"/training/v1/{JOBS}/{ACCOUNT}", Trainers(cloud, tinker_app.make(cloud.service, cloud.key))
            ),
        ]
    )
    guard: object = Keyed(made, cloud.key)
    return Failing(guard, faults) if faults and faults.share else guard


class Trainers:
    """Hands on what is under a running job's path."""

    def __init__(self, cloud: FireworksCloud, inner: Any) -> None:
        self.cloud, self.inner = cloud, inner

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"].removeprefix(f"/training/v1/{JOBS}/{ACCOUNT}/")
        job, _, rest = path.partition("/")
        kind = dict(scope["headers"]).get(b"content-type", b"")
        status = 0
        if self.cloud.jobs.get(job, 0) <= LOOKS or rest.rsplit("/", 1)[-1] in ABSENT:
            status = 404
        elif protobuf.CONTENT_TYPE.encode() in kind:
            status = 415
        if status:
            await answer({"detail": "Not here"}, status)(scope, receive, send)
            return
        self.cloud.service.job = job
        headers = [(k, v) for k, v in scope["headers"] if k != b"accept"]
        await self.inner({**scope, "path": f"/{rest}", "root_path": "", "headers": headers}, receive, send)


class FireworksRoutes:
    """One method a route."""

    def __init__(self, cloud: FireworksCloud) -> None:
        self.cloud = cloud

    async def accounts(self, _: Request) -> Json:
        return {"accounts": [{"name": f"accounts/{ACCOUNT}"}]}

    async def versions(self, request: Request) -> Json:
        shape = request.path_params["shape"]
        snapshot = {"deploymentShapeVersion": "accounts/fireworks/deploymentShapes/one/versions/1"}
        return {"trainingShapeVersions": [{"name": f"{shape}/versions/1", "snapshot": snapshot}]}

    # ------------------------------------------------------------------------------------------------- jobs

    async def create_job(self, request: Request) -> Json:
        body, name = await json_body(request), request.query_params["rlorTrainerJobId"]
        if name in self.cloud.jobs or name in self.cloud.deleted:
            raise ApiRefused(409, "It exists, or did")
        if not body["serviceMode"] or not request.query_params["trainingShape"]:
            raise ApiRefused(400, "A trainer in service mode, of a shape")
        self.cloud.service.knows_base(body["trainingConfig"]["baseModel"])
        self.cloud.jobs[name] = 0
        self.cloud.created.append(name)
        return self._job(name)

    def _job(self, name: str) -> Json:
        state = "JOB_STATE_RUNNING" if self.cloud.job(name) > LOOKS else "JOB_STATE_CREATING"
        return {"name": f"accounts/{ACCOUNT}/{JOBS}/{name}", "state": state}

    async def list_jobs(self, request: Request) -> Json:
        asked, listed = request.query_params, [self._job(name) for name in self.cloud.jobs]
        start, most = int(asked.get("pageToken", 0)), min(int(asked.get("pageSize", 50)), 200)
        rest = {"nextPageToken": str(start + most)} if len(listed) > start + most else {}
        return {JOBS: listed[start : start + most], **rest}

    async def look_at_job(self, request: Request) -> Json:
        name = request.path_params["job"]
        self.cloud.jobs[name] = self.cloud.job(name) + 1
        return self._job(name)

    async def delete_job(self, request: Request) -> Json:
        self.cloud.end(request.path_params["job"])
        return {}

    # ------------------------------------------------------------------------------------------------- deployments

    def _deployment(self, name: str) -> Deployment:
        name = name.rpartition("/")[2]
        if name not in self.cloud.deployments:
            raise ApiRefused(404, "No such deployment")
        return self.cloud.deployments[name]

    async def deploy(self, request: Request) -> Json:
        body, name = await json_body(request), request.query_params["deploymentId"]
        if name in self.cloud.deployments:
            raise ApiRefused(409, "It exists")
        self.cloud.job(body["hotLoadTrainerJob"].rpartition("/")[2])  # the trainer comes first
        self.cloud.deployments[name] = Deployment()
        self.cloud.created.append(name)
        return {"name": name, "state": "CREATING"}

    async def look_at_deployment(self, request: Request) -> Json:
        self._deployment(request.path_params["name"])
        return {"name": request.path_params["name"], "state": "CREATING"}

    async def delete_deployment(self, request: Request) -> Json:
        self._deployment(request.path_params["name"])
        del self.cloud.deployments[request.path_params["name"]]
        self.cloud.deleted.append(request.path_params["name"])
        return {}

    async def load(self, request: Request) -> Json:
        here, identity = (
            self._deployment(request.headers["fireworks-deployment"]),
            (await json_body(request))["identity"],
        )
        self.cloud.service.checkpoint(identity, "sampler_weights")
        here.snapshot, here.loads = identity, 0
        return {}

    async def loaded(self, request: Request) -> Json:
        here = self._deployment(request.headers["fireworks-deployment"])
        here.loads += 1
        ready = here.loads > LOOKS
        current = {"current_snapshot_identity": here.snapshot if ready else None, "readiness": ready}
        return {"replicas": [{**current, "loading_state": {"stage": "ready" if ready else "loading"}}]}

    async def complete(self, request: Request) -> Json:
        body, service = await json_body(request), self.cloud.service
        here = self._deployment(body["model"])
        here.looks += 1
        if here.looks <= LOOKS:
            raise ApiRefused(404 if here.looks == 1 else 425, "The model is being loaded")
        loaded = bool(here.snapshot) and not self.cloud.lies
        folder = service.checkpoint(here.snapshot, "sampler_weights") if loaded else None
        params = SamplingParams(
            int(body["max_tokens"]),
            float(body["temperature"]),
            float(body["top_p"]),
            int(body["top_k"]) or -1,
        )
        prompt, count = [int(token) for token in body["prompt"]], int(body["n"])

        def work() -> Made:
            made = service.learner.sample(folder, prompt, count, params)
            service.pay(HostedCost(1, prefill=len(prompt), sample=sum(len(one.tokens) for one in made)))
            return Made(
                {
                    "choices": [
                        {
                            "finish_reason": one.stop_reason,
                            "raw_output": {"completion_token_ids": list(one.tokens)},
                            "logprobs": {"content": [{"logprob": value} for value in one.logprobs]},
                        }
                        for one in made
                    ]
                }
            )

        promise = service.once(f"complete {len(service.promises)}", work)
        return (await asyncio.wrap_future(promise.future)).plain

    # ------------------------------------------------------------------------------------------------- models

    async def promote(self, request: Request) -> Json:
        body, snapshot = await json_body(request), request.path_params["name"]
        job, name = body["trainer_job_id"].rpartition("/")[2], body["output_model"].rpartition("/")[2]
        if name in self.cloud.models:
            raise ApiRefused(409, "It exists")
        self.cloud.models[name] = self.cloud.service.checkpoint(
            f"cross_job://{job}/{snapshot}", "sampler_weights"
        )
        return {"model": {"name": body["output_model"], "state": "READY"}}

    def _model(self, name: str) -> Path:
        if name not in self.cloud.models:
            raise ApiRefused(404, "No such model")
        return self.cloud.models[name]

    async def download(self, request: Request) -> Json:
        name = request.path_params["name"]
        self._model(name)
        base = str(request.base_url).rstrip("/")
        paths = {file: f"/files/{name}/{file}" for file in FILES}
        signed = {
            file: f"{base}{path}?signature={signature(self.cloud.key, path)}" for file, path in paths.items()
        }
        return {"filenameToSignedUrls": signed}

    async def file(self, request: Request) -> Response:
        from starlette.responses import FileResponse

        name = request.path_params["file"]
        if name not in FILES or request.path_params["name"] not in self.cloud.models:
            return answer({}, 404)
        return FileResponse(self._model(request.path_params["name"]) / name)

    async def delete_model(self, request: Request) -> Json:
        self._model(request.path_params["name"])
        del self.cloud.models[request.path_params["name"]]
        self.cloud.deleted.append(request.path_params["name"])
        return {}

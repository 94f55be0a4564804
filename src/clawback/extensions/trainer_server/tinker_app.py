"""The routes of Tinker's API on a ``Service``: JSON, Protocol Buffers where clients send or want them, and long polls that end with 408.

``Faults`` makes some answers fail on purpose, before or after the work, to test what a client has to cope with.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clawback.extensions.hosted import protobuf
from clawback.extensions.hosted.trainer_records import AdamParams, HostedCost, SamplingParams
from clawback.extensions.trainer_server.around import API, Failing, Faults, Keyed
from clawback.extensions.trainer_server.downloads import Downloads
from clawback.extensions.trainer_server.lora_weights import CLIPPED, LOSSES
from clawback.extensions.trainer_server.request_service import ApiRefused, Made, Service
from clawback.extensions.trainer_server.requests import (
    Json,
    answer,
    datum_of,
    json_body,
    promised,
    raw_body,
    stop_of,
    tokens_of,
)

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

WAIT_SECONDS = 20.0
MOST_DATA = 4096
MOST_SAMPLES = 1024
KINDS = {"save_weights": "weights", "save_weights_for_sampler": "sampler_weights", "save_weights_external": "external_weights"}  # fmt: skip


def make(service: Service, key: str, faults: Faults | None = None) -> Any:
    """The ASGI app. ``key``: what ``X-API-Key`` has to be, with or without Tinker's ``tml-`` before it."""
    from starlette.applications import Starlette
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    routes, files = Routes(service), Downloads(service, key)

    def route(path: str, handler: Callable[[Request], Awaitable[Response]], method: str = "POST") -> Route:
        async def handled(request: Request) -> Response:
            try:
                return await handler(request)
            except ApiRefused as error:
                return JSONResponse({"detail": str(error)}, error.status)
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                return JSONResponse({"detail": f"The request cannot be read: {error!r}"[:300]}, 422)

        return Route(path, handled, methods=[method])

    one = f"{API}/training_runs/{{run}}/checkpoints/{{checkpoint}}"
    app = Starlette(
        routes=[
            route(f"{API}/healthz", routes.health, "GET"),
            route(f"{API}/get_server_capabilities", routes.capabilities, "GET"),
            route(f"{API}/client/config", routes.config),
            route(f"{API}/telemetry", routes.telemetry),
            route(f"{API}/create_session", routes.create_session),
            route(f"{API}/session_heartbeat", routes.heartbeat),
            route(f"{API}/create_model", routes.create_model),
            route(f"{API}/get_info", routes.info),
            route(f"{API}/unload_model", routes.unload),
            route(f"{API}/forward", routes.forward),
            route(f"{API}/forward_backward", routes.forward_backward),
            route(f"{API}/optim_step", routes.optim_step),
            *(route(f"{API}/{verb}", routes.save) for verb in KINDS),
            route(f"{API}/load_weights", routes.load),
            route(f"{API}/create_sampling_session", routes.sampling_session),
            route(f"{API}/asample", routes.sample),
            route(f"{API}/retrieve_future", routes.retrieve),
            route(f"{one}/external_weights_urls", files.urls, "GET"),
            route(f"{one}/archive", files.archive, "GET"),
            route(f"{one}/download", files.download, "GET"),
            route(f"{one}/files/{{name}}", files.file, "GET"),
            route("/stand_in/bill", routes.bill, "GET"),
        ]
    )
    guard: object = Keyed(app, key)
    return Failing(guard, faults) if faults and faults.share else guard


class Routes:
    """One method a route."""

    def __init__(self, service: Service) -> None:
        self.service = service

    # ---------------------------------------------------------------------------------------------- service

    async def health(self, _: Request) -> Response:
        return answer({"status": "ok"})

    async def capabilities(self, _: Request) -> Response:
        context = self.service.learner.policy.info.context
        one = {
            "model_name": self.service.base,
            "max_context_length": context,
            "trainable": True,
            "sampleable": True,
        }
        return answer({"supported_models": [one], "supported_loss_fns": sorted(LOSSES)})

    async def config(self, _: Request) -> Response:
        """Flags of Tinker's SDK: nothing is compressed, and its transport is the one without a second library."""
        return answer({"proto_compress_fwdbwd": False, "use_pyqwest_transport": False})

    async def telemetry(self, _: Request) -> Response:
        """Taken and thrown away."""
        return answer({"status": "accepted"})

    async def bill(self, _: Request) -> Response:
        """What was really computed, in tokens. No part of Tinker's API."""
        return answer(asdict(self.service.bill))

    async def create_session(self, _: Request) -> Response:
        return answer({"type": "create_session", "session_id": self.service.session()})

    async def heartbeat(self, request: Request) -> Response:
        self.service.know(str((await json_body(request))["session_id"]))
        return answer({"type": "session_heartbeat"})

    async def create_model(self, request: Request) -> Response:
        body = await json_body(request)
        lora = body.get("lora_config") or {"rank": 32}
        seed = lora.get("seed")
        return promised(
            self.service.create(
                str(body["session_id"]),
                int(body.get("model_seq_id", 0)),
                str(body["base_model"]),
                int(lora["rank"]),
                None if seed is None else int(seed),
            )
        )

    async def info(self, request: Request) -> Response:
        model = self.service.model((await json_body(request))["model_id"])
        data = {"arch": self.service.learner.policy.info.architecture, "model_name": self.service.base}
        return answer(
            {
                "type": "get_info",
                "model_id": model.id,
                "model_data": data,
                "is_lora": True,
                "lora_rank": model.rank,
                "model_name": self.service.base,
            }
        )

    async def unload(self, request: Request) -> Response:
        return promised(self.service.unload(self.service.model((await json_body(request))["model_id"])))

    # ---------------------------------------------------------------------------------------------- training

    async def forward(self, request: Request) -> Response:
        raw = await raw_body(request)
        body = json.loads(raw)
        return self._pass(raw, {**body, "forward_only": True}, body["forward_input"])

    async def forward_backward(self, request: Request) -> Response:
        raw = await raw_body(request)
        packed = protobuf.CONTENT_TYPE in request.headers.get("content-type", "")
        body = protobuf.read_request(raw) if packed else json.loads(raw)
        return self._pass(raw, body, body["forward_backward_input"])

    def _pass(self, raw: bytes, body: Json, content: Json) -> Response:
        service, model = self.service, self.service.model(body["model_id"])
        loss, only = str(content["loss_fn"]), bool(body.get("forward_only"))
        data = [datum_of(one, service.learner.policy.info.vocabulary, loss) for one in content["data"]]
        config = {str(k): float(v) for k, v in (content.get("loss_fn_config") or {}).items()}
        if not 0 < len(data) <= MOST_DATA:
            raise ApiRefused(400, f"1 to {MOST_DATA} data a request")
        if loss not in LOSSES:
            raise ApiRefused(400, f"loss_fn {loss!r} is not known here; {', '.join(sorted(LOSSES))} are")
        allowed = {"clip_low_threshold", "clip_high_threshold"} if loss in CLIPPED else set()
        if odd := set(config) - allowed:
            raise ApiRefused(400, f"Invalid loss_fn_config keys for {loss!r}: {sorted(odd)}")
        tokens = sum(len(one.tokens) for one in data)

        def work() -> Made:
            if only:
                scores = service.learner.forward(model.id, data)
                service.pay(HostedCost(1, prefill=tokens))
            else:
                scores = service.learner.forward_backward(model.id, data, loss, config)
                service.pay(HostedCost(1, train=tokens))
            outputs = [
                {"logprobs": {"data": list(v), "dtype": "float32", "shape": [len(v)]}}
                for v in scores.logprobs
            ]
            if not only and not service.backward_scores:
                outputs = [{} for _ in data]
            plain = {
                "loss_fn_output_type": "TorchLossReturn",
                "loss_fn_outputs": outputs,
                "metrics": dict(scores.metrics),
            }
            return Made(plain, lambda: protobuf.output(scores))

        return promised(service.ask(model, body.get("seq_id"), raw, work))

    async def optim_step(self, request: Request) -> Response:
        raw = await raw_body(request)
        body = json.loads(raw)
        model = self.service.model(body["model_id"])
        given = body["adam_params"]
        known = {k: float(v) for k, v in given.items() if k in AdamParams.__dataclass_fields__}
        params = AdamParams(**known)

        def work() -> Made:
            metrics = self.service.learner.optim_step(model.id, params)
            self.service.pay(HostedCost(1))
            return Made({"type": "optim_step", "metrics": metrics})

        return promised(self.service.ask(model, body.get("seq_id"), raw, work))

    # ---------------------------------------------------------------------------------------------- checkpoints

    async def save(self, request: Request) -> Response:
        verb = request.url.path.rsplit("/", 1)[1]
        raw = await raw_body(request)
        body = json.loads(raw)
        service, model = self.service, self.service.model(body["model_id"])
        number = body.get("sampling_session_seq_id")
        name = str(body.get("path") or f"ss{number}_seq{body.get('seq_id')}")
        path, folder = service.checkpoint_path(model.id, KINDS[verb], name)
        sampler = f"{model.session}:sample:{number}" if number is not None else ""

        def work() -> Made:
            service.save(model, path, folder)
            service.pay(HostedCost(1))
            if sampler:
                service.samplers[sampler] = path
                return Made({"type": verb, "path": path, "sampling_session_id": sampler})
            return Made({"type": verb, "path": path})

        promise = service.ask(model, body.get("seq_id"), raw, work)
        if not promise.future.done():
            service.saving.add(path)
            promise.future.add_done_callback(lambda _: service.saving.discard(path))
        return promised(promise)

    async def load(self, request: Request) -> Response:
        raw = await raw_body(request)
        body = json.loads(raw)
        service = self.service
        folder = service.checkpoint(str(body["path"]), "weights")
        if body.get("model_id") is None:
            return self._create_from(body, folder)
        model = service.model(body["model_id"])

        def work() -> Made:
            service.learner.load(model.id, folder, bool(body.get("optimizer", True)))
            service.pay(HostedCost(1))
            return Made({"type": "load_weights", "path": body["path"]})

        return promised(service.ask(model, body.get("seq_id"), raw, work))

    def _create_from(self, body: Json, folder: Path) -> Response:
        """A model that begins as a checkpoint (``create_training_client_from_state``)."""
        service = self.service
        rank = int(json.loads((folder / "adapter_config.json").read_text("utf-8"))["r"])
        promise = service.create(
            str(body["session_id"]), int(body.get("model_seq_id", 0)), service.base, rank, None
        )
        model = promise.about["model_id"]

        def work() -> Made:
            service.learner.load(model, folder, bool(body.get("optimizer", True)))
            return Made({"type": "load_weights", "path": body["path"], "model_id": model})

        return promised(service.once(f"load {model}", work, {"model_id": model}))

    # ---------------------------------------------------------------------------------------------- sampling

    async def sampling_session(self, request: Request) -> Response:
        body = await json_body(request)
        made = self.service.sampler(
            str(body["session_id"]),
            int(body["sampling_session_seq_id"]),
            body.get("base_model"),
            body.get("model_path"),
        )
        return answer({"type": "create_sampling_session", "sampling_session_id": made})

    async def sample(self, request: Request) -> Response:
        body = await json_body(request)
        service = self.service
        session, number = body.get("sampling_session_id"), body.get("seq_id")
        if session is not None:
            if session not in service.samplers:
                raise ApiRefused(404, "Sampling session not found")
            path = service.samplers[session]
        else:
            path = str(body.get("model_path") or "")
        folder = service.checkpoint(path, "sampler_weights") if path else None
        prompt = tokens_of(body["prompt"], service.learner.policy.info.vocabulary)
        count, given = int(body.get("num_samples", 1)), body["sampling_params"]
        context = service.learner.policy.info.context
        params = SamplingParams(
            max_tokens=int(given.get("max_tokens") or context - len(prompt)),
            temperature=float(given.get("temperature", 1.0)),
            top_p=float(given.get("top_p", 1.0)),
            top_k=int(given.get("top_k", -1)),
            seed=given.get("seed"),
            stop=stop_of(given.get("stop"), service),
        )
        scored = bool(body.get("prompt_logprobs"))
        if not 0 < count <= MOST_SAMPLES or not 0 < params.max_tokens <= context - len(prompt):
            raise ApiRefused(
                400, f"num_samples is 1 to {MOST_SAMPLES}, and max_tokens what the context leaves"
            )

        def work() -> Made:
            made = service.learner.sample(folder, prompt, count, params)
            of_prompt = service.learner.prompt_logprobs(folder, prompt) if scored else None
            service.pay(HostedCost(1, prefill=len(prompt), sample=sum(len(one.tokens) for one in made)))
            plain = {
                "type": "sample",
                "sequences": [
                    {"stop_reason": o.stop_reason, "tokens": list(o.tokens), "logprobs": list(o.logprobs)}
                    for o in made
                ],
                "prompt_logprobs": of_prompt,
            }
            return Made(plain, lambda: protobuf.sampled(made, of_prompt))

        ids = {"sample_sequence_ids": [f"{session}:{number}:{i}" for i in range(count)]}
        name = f"{session}#{number}" if session is not None else f"sample {len(service.promises)}"
        return promised(service.once(name, work, ids))

    async def retrieve(self, request: Request) -> Response:
        from starlette.responses import Response as Answer

        name = str((await json_body(request))["request_id"])
        promise = self.service.promises.get(name)
        if promise is None:
            raise ApiRefused(404, "Future not found")
        waiting = asyncio.wrap_future(promise.future)
        await asyncio.wait([waiting], timeout=WAIT_SECONDS)
        if not waiting.done():
            return answer({"type": "try_again", "request_id": name, "queue_state": "active"}, 408)
        made = waiting.result()
        if made.packed is not None and protobuf.CONTENT_TYPE in request.headers.get("accept", ""):
            return Answer(made.packed(), media_type=protobuf.CONTENT_TYPE)
        return answer(made.plain)

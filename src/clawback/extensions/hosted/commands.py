"""``hosted``: a trainer elsewhere. Ask one whether it is fit, and be one: our own engine behind Tinker's API."""

from __future__ import annotations

import socket
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from clawback import installed
from clawback.errors import MissingExtra, UsageError
from clawback.paths import HOSTED_KEY_FILE, secret
from clawback.records import JsonObject
from clawback.terminal import CommandGroup, as_record, current_home, emit, fold, json_option, needs, say
from clawback.terminal.progress_bar import waiting

if TYPE_CHECKING:
    from clawback.extensions.hosted.hosted_training import Where
    from clawback.extensions.hosted.trainer_http import Wire

PORT = 8753
HIGHEST_RANK = 64
"""Of the adapters that `hosted draw` takes."""


@click.group(cls=CommandGroup)
def hosted() -> None:
    """Train on a remote server, through Tinker's API or Fireworks': `clawback config set hosted.url URL`.

    \b
    clawback lab hosted serve
    clawback config set hosted.url http://127.0.0.1:8753
    clawback lab hosted check
    clawback train
    """


@dataclass(frozen=True, slots=True)
class StandInOptions:
    """What is trained, and by which API."""

    model: str | None
    alpha: int
    faults: float
    seed: int
    api: str


@hosted.command()
@click.option("--port", type=click.IntRange(0, 65535), default=PORT, show_default=True, help="0: a free one.")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--model", metavar="M", help="The base model. [default: that of the settings]")
@click.option("--alpha", type=click.IntRange(1, 1024), default=32, show_default=True, help="Of every LoRA.")
@click.option(
    "--faults", type=click.FloatRange(0, 0.9), default=0.0, help="This share of answers fails on purpose."
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of samples, new LoRAs and faults.")
@click.option(
    "--api",
    type=click.Choice(("tinker", "fireworks")),
    default="tinker",
    show_default=True,
    help="What it speaks.",
)
@as_record(StandInOptions)
def serve(port: int, host: str, options: StandInOptions) -> None:
    """Run a trainer: Tinker's API on this machine's own engine. Ctrl-C ends it.

    Any client of that API can train here, Tinker's own SDK too. The key is the content of `hosted-token` in the home; it opens nothing else.
    With --faults some answers fail on purpose, so that you can test your client.

    \b
    clawback lab hosted serve
    clawback lab hosted serve --model smollm2 --port 9000
    clawback lab hosted serve --faults 0.3
    """
    needs("torch")
    with waiting("loading PyTorch"):
        try:
            import uvicorn

            from clawback.extensions.hosted.stand_in import around, fireworks_app, request_service, tinker_app
            from clawback.serve import protocol
        except ImportError as error:
            raise MissingExtra(f"The trainer needs more parts: {installed.add('serve')}.") from error
        from clawback import config, engine
        from clawback.extensions.hosted.stand_in.lora_weights import StandInLearner

    here = current_home()
    settings = config.load(here.config).model
    base = options.model or settings.base
    listening = _listen(host, port)
    with waiting(f"loading {base}"):
        policy = engine.load(
            base, revision=settings.revision, dtype=settings.dtype, device=settings.torch_device
        )
    kind = fireworks_app.FireworksService if options.api == "fireworks" else request_service.Service
    state = kind(StandInLearner(policy, alpha=options.alpha, seed=options.seed), base, here.root / "hosted")
    token = secret(here.root / HOSTED_KEY_FILE)
    number = listening.getsockname()[1]
    say(f"{base} can be trained at http://{host}:{number}  (Ctrl-C ends it)")
    key = f"tml-{token}" if sys.stdout.isatty() else f"…  (in {here.root / HOSTED_KEY_FILE})"
    say(f"Key: {key}")
    some = around.Faults(options.faults, options.seed)
    if isinstance(state, fireworks_app.FireworksService):
        made = fireworks_app.make(fireworks_app.FireworksCloud(state, token), some)
    else:
        made = tinker_app.make(state, token, some)
    running = uvicorn.Server(
        uvicorn.Config(
            made,
            http=protocol.Limited,
            log_level="critical" if options.faults else "warning",
            access_log=False,
        )
    )
    try:
        running.run(sockets=[listening])
    except KeyboardInterrupt:
        say("", err=True)
    finally:
        state.close()


@hosted.command()
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="0: a free one.")
@click.option("--model", metavar="M", help="The base model. [default: that of the settings]")
@click.option(
    "--max-cpu-loras",
    type=click.IntRange(1, 4096),
    default=4,
    show_default=True,
    help="Adapters that are held.",
)
def draw(port: int, model: str | None, max_cpu_loras: int) -> None:
    """Start a vLLM that serves the base model as `--draw URL` needs it, and end it with Ctrl-C.

    `--draw vllm` does the same for one run. It asks for no key and listens only on this machine.

    \b
    clawback lab hosted draw
    clawback env train tools:shop --draw http://127.0.0.1:8000
    """
    needs("torch")
    import msgspec

    from clawback import config, engine
    from clawback.extensions.hosted import vllm_process
    from clawback.extensions.hosted.vllm_server import OwnVllm

    here = current_home()
    settings = config.load(here.config)
    base = model or settings.model.base
    vllm_process.find(settings.vllm.command)
    listening = _listen("127.0.0.1", port)
    number = listening.getsockname()[1]
    listening.close()
    with waiting(f"loading {base}"):
        policy = engine.load(
            base,
            revision=settings.model.revision if base == settings.model.base else None,
            dtype=settings.model.dtype,
            device=settings.model.torch_device,
        )
        serving = vllm_process.serving_of(policy, HIGHEST_RANK)
        del policy
    arguments = ["--max-cpu-loras", str(max_cpu_loras), *settings.vllm.arguments]
    server = OwnVllm(
        here, msgspec.structs.replace(settings.vllm, arguments=arguments), serving, port=number, key=""
    )
    say(f"Starting vLLM (its log is {server.log}) …")
    try:
        server.connect()
        say(f"{base} is drawn from at http://127.0.0.1:{number}  (Ctrl-C ends it)")
        server.wait()
    except KeyboardInterrupt:
        say("", err=True)
    finally:
        server.close()


def _listen(host: str, port: int) -> socket.socket:
    """Raises ``UsageError`` where something else listens there."""
    listening = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except OSError as error:
        raise UsageError(
            f"{host}:{port} cannot be listened on: {error.strerror}. Take another --port."
        ) from error
    return listening


@hosted.command()
@json_option
def check(as_json: bool) -> int:
    """Ask the remote trainer what it can do, and whether it has your model. Costs nothing.

    \b
    clawback lab hosted check
    """
    from clawback import config
    from clawback.extensions.hosted import hosted_run as elsewhere

    here = current_home()
    settings = config.load(here.config)
    if not settings.hosted.url:
        raise UsageError(
            "No trainer is named. Set one: `clawback config set hosted.url http://127.0.0.1:8753`."
        )
    with waiting(f"asking {settings.hosted.url}", as_json):
        place = elsewhere.where(here, settings)
        elsewhere.present(here, settings)
        models = _models(place)
    known, cap = place.model in models, place.cap
    limits = [f"{cap.tokens:,} tokens" if cap.tokens else "", f"{cap.money:g} in money" if cap.money else ""]
    text = "\n".join(
        (
            f"{place.url} answers and takes the key.",
            f"{place.model} can be trained there."
            if known
            else f"{place.model} is not among its models ({', '.join(models[:8]) or 'none'}). Set [hosted] model.",
            f"A run may use {' and '.join(filter(None, limits)) or 'as much as it takes: set [hosted] max_money or max_tokens'}.",
        )
    )
    emit(
        {"url": place.url, "models": models, "model": place.model, "known": known}, fold(text, "  "), as_json
    )
    return 0 if known else 1


def _models(trainer: Where) -> list[str]:
    """The names of the models that can be trained there."""
    from clawback.extensions.hosted import hosted_run as elsewhere
    from clawback.extensions.hosted.trainer_http import Wire

    wire = Wire(trainer.url, trainer.key, min(trainer.timeout, 20.0))
    if trainer.shape:
        return [trainer.model] if _shaped(wire, trainer.shape) else []
    capabilities: JsonObject = wire.get(elsewhere.CAPABILITIES).json()
    models = capabilities.get("supported_models")
    return [
        str(model.get("model_name", ""))
        for model in (models if isinstance(models, list) else [])
        if isinstance(model, dict)
    ]


def _shaped(wire: Wire, shape: str) -> bool:
    """Whether the key has an account, and the account the training shape."""
    from clawback.extensions.hosted import fireworks_machines as fireworks

    fireworks.account(wire)
    return bool(fireworks.deployment_shape(wire, shape))


@hosted.command()
@click.option("--delete", is_flag=True, help="Delete them, and what samples for them.")
@json_option
def jobs(delete: bool, as_json: bool) -> int:
    """List the trainers at Fireworks that Clawback made and that still exist. They cost by the hour.

    A run deletes its own; one that was killed leaves its trainer for up to half an hour, to go on with.

    \b
    clawback lab hosted jobs
    clawback lab hosted jobs --delete
    """
    from clawback import config
    from clawback.extensions.hosted import fireworks_machines as fireworks
    from clawback.extensions.hosted import hosted_run as elsewhere
    from clawback.extensions.hosted.trainer_http import Wire

    here = current_home()
    settings = config.load(here.config)
    if settings.hosted.provider != "fireworks" or not settings.hosted.url:
        raise UsageError("Only Fireworks has such jobs: `clawback config set hosted.provider fireworks`.")
    with waiting("asking the trainer", quiet=as_json):
        place = elsewhere.where(here, settings)
        elsewhere.present(here, settings)
        wire = Wire(place.url, place.key, min(place.timeout, 20.0))
        of = fireworks.account(wire)
        found = fireworks.jobs(wire, of)
        gone = [name for name, _ in found if delete and fireworks.end(wire, of, name)]
    lines = [f"{name}  {'deleted' if name in gone else state}" for name, state in found] or [
        "No trainer of ours."
    ]
    rows = [{"name": name, "state": state, "deleted": name in gone} for name, state in found]
    emit(rows, "\n".join(lines), as_json)
    return 0 if not delete or len(gone) == len(found) else 1

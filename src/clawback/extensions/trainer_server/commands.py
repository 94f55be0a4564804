"""``lab hosted serve``: our own engine behind Tinker's or Fireworks' API, for any client of theirs."""

from __future__ import annotations

import sys
from dataclasses import dataclass

import click

from clawback import installed
from clawback.errors import MissingExtra
from clawback.paths import HOSTED_KEY_FILE, secret
from clawback.terminal import as_record, current_home, listen, needs, port_option, say
from clawback.terminal.progress_bar import waiting

PORT = 8753


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """What is trained, and through which API."""

    model: str | None
    alpha: int
    faults: float
    seed: int
    api: str


@click.command()
@port_option(PORT)
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
@as_record(ServerOptions)
def serve(port: int, host: str, options: ServerOptions) -> None:
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

            from clawback.extensions.trainer_server import around, fireworks_app, request_service, tinker_app
            from clawback.serve import protocol
        except ImportError as error:
            raise MissingExtra(f"The trainer needs more parts: {installed.add('serve')}.") from error
        from clawback import config, engine
        from clawback.extensions.trainer_server.lora_weights import StandInLearner

    here = current_home()
    settings = config.load(here.config).model
    base = options.model or settings.base
    listening = listen(host, port)
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

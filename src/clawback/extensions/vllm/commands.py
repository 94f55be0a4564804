"""``lab hosted draw``: a vLLM that draws for runs, started by hand."""

from __future__ import annotations

import click

from clawback.terminal import current_home, listen, needs, port_option, say
from clawback.terminal.progress_bar import waiting

HIGHEST_RANK = 64
"""Of the adapters that `hosted draw` takes."""


@click.command()
@port_option(8000)
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
    from clawback.extensions.vllm import vllm_process
    from clawback.extensions.vllm.vllm_server import OwnVllm

    here = current_home()
    settings = config.load(here.config)
    base = model or settings.model.base
    vllm_process.find(settings.vllm.command)
    listening = listen("127.0.0.1", port)
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

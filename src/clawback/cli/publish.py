"""``publish``: make a version available to another inference server."""

from __future__ import annotations

from pathlib import Path

import click

from clawback import config
from clawback.cli.common import current_home, emit, json_option, named_version, open_store, version_option
from clawback.errors import UsageError


@click.command()
@click.argument("where")
@version_option("A number, or live.")
@click.option("--url", default="", help="The server's address.")
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    help="A new folder (merged, mlx), the adapter's file (llama-cpp), the folder of models (lm-studio).",
)
@click.option("--base", default="", help="What the base model is called on that server.")
@click.option(
    "--name",
    default="clawback",
    show_default=True,
    help="What the new one is to be called; on vLLM NAME-v3, a name for each version.",
)
@click.option(
    "--presets", type=click.Path(path_type=Path), help="The presets of a llama-server that is a router."
)
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
@json_option
def publish(
    where: str,
    which: str,
    url: str,
    output: Path | None,
    base: str,
    name: str,
    presets: Path | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Make a version available to another server, and check that it answers there.

    WHERE is merged, vllm, ollama, llama-cpp, lm-studio or mlx. The base's identity is checked first.

    \b
    clawback publish merged --output ./my-model
    clawback publish vllm --url http://127.0.0.1:8000 --dry-run
    clawback publish ollama --base llama3.2
    clawback publish llama-cpp --output me.gguf
    clawback publish llama-cpp --output me.gguf --url http://127.0.0.1:8080 \\
        --presets presets.ini --base llama
    """
    from clawback import release
    from clawback.release import publishers

    here = current_home()
    target = publishers.Target(where, url=url, out=output, base=base, model=name, presets=presets)
    publisher = publishers.make(target)
    with open_store() as store:
        version = named_version(store, which)
    if not version.path:
        raise UsageError(
            "The base model is what the other server has already: name a version with --version."
        )
    release.registry.passed(version)
    if release.registry.weights_of(Path(version.path)).name == release.registry.DELTA and where != "merged":
        raise UsageError(
            f"Version {version.number} changes all weights, so there is no adapter to hand over. "
            "`clawback publish merged --output FOLDER` writes a whole model, which any server can load."
        )
    policy = release.load(here, version, config.load(here.config))
    found = publishers.Publication(
        version.number,
        Path(version.path),
        policy.info.base,
        policy.info.revision,
        publishers.probe(policy),
        policy.config,
    )
    steps = list(publisher.plan(found))
    if dry_run:
        emit({"steps": steps, "done": False}, "\n".join(f"would {step}" for step in steps), as_json)
        return
    publisher.publish(found)
    proof = publisher.verify(found)
    emit(
        {"steps": steps, "done": True, "proof": proof},
        f"Version {version.number} is published: {proof}.",
        as_json,
    )

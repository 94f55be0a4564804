"""``publish``: make a version available to another inference server, once or from now on."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from clawback import config
from clawback.errors import UsageError
from clawback.terminal import (
    as_record,
    current_home,
    emit,
    json_option,
    named_version,
    open_store,
    version_option,
)
from clawback.terminal.progress_bar import waiting

if TYPE_CHECKING:
    from clawback.records import Version


@dataclass(frozen=True, slots=True)
class PublishOptions:
    """What is published where: the options of the command."""

    where: str | None
    which: str
    url: str
    output: Path | None
    base: str
    name: str
    presets: Path | None
    always: bool
    stop: bool
    dry_run: bool

    def target(self, where: str) -> config.PublishTarget:
        """The server as the settings keep it, with absolute paths."""
        output, presets = (str(path.resolve()) if path else "" for path in (self.output, self.presets))
        return config.PublishTarget(
            where=where, url=self.url, output=output, base=self.base, name=self.name, presets=presets
        )


@click.command()
@click.argument("where", required=False)
@version_option("A number, or live.")
@click.option("--url", default="", help="The server's address.")
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    help="A new folder (merged, mlx), a file (gguf, llama-cpp), the folder of models (lm-studio).",
)
@click.option("--base", default="", help="What the base is called on that server, or a GGUF file of it.")
@click.option(
    "--name",
    default="clawback",
    show_default=True,
    help="What the new one is to be called; on vLLM NAME-v3, a name for each version.",
)
@click.option(
    "--presets", type=click.Path(path_type=Path), help="The presets of a llama-server that is a router."
)
@click.option("--always", is_flag=True, help="Also whenever another version goes live from now on.")
@click.option("--stop", is_flag=True, help="No longer, where --always was said.")
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
@json_option
@as_record(PublishOptions)
def publish(options: PublishOptions, as_json: bool) -> int:
    """Make a version available to another server, and check that it answers there.

    WHERE is merged, gguf, vllm, ollama, llama-cpp, lm-studio or mlx. The base's identity is checked first, and the new
    model is asked one question; where it does not answer as the version does, it is undone. gguf, ollama and lm-studio get
    a copy of the base's GGUF file with the version in it.

    With --always the server follows the live version: promotions, rollbacks and resets reach it. Without WHERE the live
    version is published to all servers that follow it and do not have it yet.

    \b
    clawback versions publish merged --output ./my-model
    clawback versions publish gguf --output ./my-model.gguf
    clawback versions publish vllm --url http://127.0.0.1:8000 --dry-run
    clawback versions publish ollama --base llama3.2 --always
    clawback versions publish ollama --stop
    clawback versions publish llama-cpp --output me.gguf
    clawback versions publish llama-cpp --output me.gguf --base llama \\
        --url http://127.0.0.1:8080 --presets presets.ini
    """
    from clawback.release import publishers, publishing

    where, always, dry_run = options.where, options.always, options.dry_run
    if where is None:
        return _publish_live(as_json)
    if options.stop:
        return _stop(where, options.url, as_json)
    target = options.target(where)
    publishers.make(publishing.target_of(target))  # what it needs, said before anything else
    with open_store() as store:
        version = named_version(store, options.which)
        live = store.live()
    if always and options.which not in ("live", str(live.number)):
        raise UsageError("With --always the live version is published: leave out --version.")
    if always and not dry_run:
        _follow(target)
        if version.number == live.number == 0:
            emit({"steps": [], "done": False, "always": True}, f"From the next version on, {where} follows the live version.", as_json)  # fmt: skip
            return 0
    return _publish_once(target, version, dry_run=dry_run, always=always, as_json=as_json)


def _publish_once(
    target: config.PublishTarget, version: Version, *, dry_run: bool, always: bool, as_json: bool
) -> int:
    from dataclasses import replace

    from clawback.release import following, publishers, publishing

    here, settings = current_home(), config.load(current_home().config)
    publisher = publishers.make(replace(publishing.target_of(target), renew=always))
    if not version.path:
        raise UsageError(
            "The base model is what the other server has already: name a version with --version."
        )
    publishing.check(version, target.where)
    with waiting("reading the version and the base", as_json):
        publication = publishing.publication_of(here, version, settings)
        steps = list(publisher.plan(publication))
    if dry_run:
        emit({"steps": steps, "done": False}, "\n".join(f"would {step}" for step in steps), as_json)
        return 0
    with waiting("publishing", as_json):
        proof = publishing.bring(publisher, publication)
    if target in settings.publish.targets:
        with open_store() as store:
            standing = following.Standing(target, version.number, version.path, "", time.time())
            following.remember(store, standing)
    later = f" {target.where} follows the live version from now on." if always else ""
    emit(
        {"steps": steps, "done": True, "proof": proof, "always": always},
        f"Version {version.number} is published: {proof}.{later}",
        as_json,
    )
    return 0


def _publish_live(as_json: bool) -> int:
    """Wherever the settings say."""
    from clawback.release import publishing

    here = current_home()
    if not config.load(here.config).publish.targets:
        raise UsageError(
            "No server follows the live version: name one, such as `clawback versions publish vllm --url URL --always`."
        )
    lines: list[str] = []
    with waiting("publishing", as_json):
        standings = publishing.publish_live(here, lines.append)
    with open_store() as store:
        live = store.live()
    data = [
        {"where": one.target.where, "version": one.version, "current": one.current(live), "error": one.error}
        for one in standings
    ]
    emit(data, "\n".join(lines) or f"All servers have version {live.number}.", as_json)
    return int(any(one.error for one in standings))


def _follow(target: config.PublishTarget) -> None:
    """Enter a target into the settings, in place of one of the same server."""
    _save([one for one in _targets() if (one.where, one.url) != (target.where, target.url)] + [target])


def _stop(where: str, url: str, as_json: bool) -> int:
    targets = _targets()
    kept = [one for one in targets if one.where != where or (url and one.url != url)]
    if len(kept) == len(targets):
        known = ", ".join(one.where for one in targets) or "none"
        raise UsageError(f"{where} does not follow the live version ({known} does).")
    _save(kept)
    emit({"stopped": where}, f"{where} no longer follows the live version. What it has stays there.", as_json)
    return 0


def _targets() -> list[config.PublishTarget]:
    return list(config.load(current_home().config).publish.targets)


def _save(targets: list[config.PublishTarget]) -> None:
    import msgspec

    plain = [{name: value for name, value in msgspec.to_builtins(one).items() if value} for one in targets]
    config.save(current_home().config, {"publish": {"targets": plain or None}})

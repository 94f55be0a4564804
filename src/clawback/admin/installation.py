"""The work of ``clawback init``: inspect the machine, propose settings, show the changes, make them, and undo them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from clawback import config, installed
from clawback.admin import model_choice, model_proof, system_service
from clawback.admin.model_choice import Machine
from clawback.capture import agent_integration
from clawback.errors import ClawbackError, ModelError, TrainingError, UsageError
from clawback.http_client import answers
from clawback.models import LocalModel, converted_before, gguf_file, local_models
from clawback.paths import Home, tidy
from clawback.progress import note

SERVERS = {
    "Ollama": "http://127.0.0.1:11434",
    "vLLM": "http://127.0.0.1:8000",
    "llama.cpp": "http://127.0.0.1:8080",
    "LM Studio": "http://127.0.0.1:1234",
}
"""Inference servers and where they listen unless told otherwise."""
LOOK_SECONDS = 0.5
CONVERTED_A_SECOND = 20e6
"""Bytes of a converted folder that a slow core writes in a second."""
PRESETS = {
    "careful": "smaller steps, closer to the base model: less drift, slower to learn",
    "balanced": "the default",
    "aggressive": "larger steps and more of them: learns fastest, drifts most",
}
"""What each preset changes (``trainer/recipe.py`` has the figures)."""


@dataclass(frozen=True, slots=True)
class MachineSeen:
    """What was found on this machine."""

    agents: list[str]
    servers: dict[str, str]
    """Name → address of inference servers that answer."""
    machine: Machine
    models: list[LocalModel]
    training: bool
    """Are the parts that training needs installed?"""
    service: bool
    """Is there something that keeps programs running (systemd for users, launchd)?"""


@dataclass(frozen=True, slots=True)
class SetupProposal:
    agents: list[str]
    model: str
    preset: str
    upstream: str
    service: bool
    note: str = ""
    """What the person should know of the model."""


def look() -> MachineSeen:
    """Reads no agent's settings and starts nothing; asks well-known ports on this machine."""
    import importlib.util

    found = [name for name in agent_integration.names() if agent_integration.find(name).is_present()]
    servers = {name: url for name, url in SERVERS.items() if answers(f"{url}/v1/models", LOOK_SECONDS)}
    training = all(importlib.util.find_spec(part) for part in ("torch", "transformers", "peft"))
    return MachineSeen(
        found, servers, model_choice.machine(), local_models.find(), training, system_service.available()
    )


def describe(seen: MachineSeen) -> str:
    agents = ", ".join(agent_integration.find(name).title for name in seen.agents) or "none found"
    servers = ", ".join(f"{name} ({url})" for name, url in seen.servers.items()) or "none"
    lines = [
        f"Agents            {agents}",
        f"Inference servers {servers}",
        f"Memory            {seen.machine.memory / 1e9:.0f} GB"
        + (f", {seen.machine.gpu}" if seen.machine.gpu else ", no graphics card to train on"),
    ]
    if not seen.training:
        lines.append(f"Training          not installed: {installed.add('train')}")
    lines.append(
        "Models here       " + ("" if seen.models else f"none. A small one: {local_models.install_smollm2()}")
    )
    lines += list_models(seen.models, seen.machine)
    return "\n".join(lines)


def list_models(models: Sequence[LocalModel], on: Machine, chosen: str = "") -> list[str]:
    """A table of models: number, name (``chosen`` is marked), kind, parameters, size on the disk, and whether it can be trained here."""
    if not models:
        return []
    rows = [
        (
            "▶" if model.name == chosen else " ",
            str(number),
            tidy(Path(model.name)) if model.holder == "file" else model.name,
            ", ".join(filter(None, (model.kind, model.storage))) if not model.problem else model.storage,
            model_choice.size(model.info.total_parameters) if model.info.total_parameters else "",
            f"{model.bytes / 1e9:.1f} GB" if model.bytes else "",
            model_choice.verdict(model, on),
        )
        for number, model in enumerate(models, 1)
    ]
    header = (" ", "#", "model", "kind", "size", "on disk", "training here")
    widths = [max(len(row[column]) for row in [header, *rows]) for column in range(6)]
    return [
        f"{row[0]} {row[1]:>{widths[1]}}  {row[2]:<{widths[2]}}  {row[3]:<{widths[3]}}  {row[4]:>{widths[4]}}  "
        f"{row[5]:>{widths[5]}}  {row[6]}".rstrip()
        for row in [header, *rows]
    ]


@dataclass(frozen=True, slots=True)
class SetupOptions:
    """What somebody names of a set-up. Empty or None: as it is now, or fits the machine."""

    agents: Sequence[str] = ()
    model: str | None = None
    preset: str | None = None
    upstream: str | None = None
    settings: Path | None = None
    """The settings file of the one agent that is named."""
    service: bool | None = None
    """The server runs as a service of this system."""


def propose(seen: MachineSeen, wanted: SetupOptions, home: Home) -> SetupProposal:
    """Proposed settings: named values first, then existing settings, then what fits the machine.

    Raises ``ClawbackError`` for an unknown agent or model, and a model that cannot be trained.
    """
    agents = check_agents(wanted.agents) if wanted.agents else list(seen.agents)
    base, note = check_model(wanted.model, seen) if wanted.model else _proposed(home, seen)
    preset = wanted.preset or config.load(home.config).training.preset
    return SetupProposal(agents, base, preset, wanted.upstream or "", bool(wanted.service), note)


def _proposed(home: Home, seen: MachineSeen) -> tuple[str, str]:
    """The model that the settings name, if it is still there; else the one that fits this machine best."""
    import tomllib
    from contextlib import suppress

    held = tomllib.loads(home.config.read_text("utf-8")) if home.config.exists() else {}
    if before := held.get("model", {}).get("base"):
        with suppress(ClawbackError):
            return check_model(before, seen)
    return check_model(model_choice.choose(seen.models, seen.machine), seen)


def check_agents(names: Sequence[str]) -> list[str]:
    """The names without ``none``. Raises ``UsageError`` (did you mean …) for an agent that nobody knows."""
    chosen = [name.strip() for name in names if name.strip() not in ("", "none")]
    for name in chosen:
        try:
            agent_integration.find(name)
        except UsageError as error:
            raise UsageError(
                f"{error}{local_models.similar(name, list(agent_integration.names()))}"
            ) from None
    return chosen


def check_model(typed: str, seen: MachineSeen) -> tuple[str, str]:
    """A model as it goes into the settings, by its name or its number in the list; and a warning, or "".

    Raises ``ClawbackError`` for a name that is no model, or a model that cannot be trained.
    """
    number = int(typed) if typed.strip().isdecimal() else 0
    if 1 <= number <= len(seen.models):
        typed = seen.models[number - 1].name
    name, note = model_choice.check(typed, seen.models)
    one = next((one for one in seen.models if one.name == name), None)
    if one is not None and not model_choice.fits(one.info, seen.machine):
        other = model_choice.alternative(name, seen.models)
        note = f"{name} is {model_choice.verdict(one, seen.machine)}: training it will be refused. {other}"
    return name, note


def plan(home: Home, proposed: SetupProposal, settings: Path | None = None) -> list[str]:
    """Every file that will be written, a line each."""
    lines = [f"{home.config}: model {proposed.model}, preset {proposed.preset}"]
    if proposed.upstream:
        lines[0] += f", upstream {proposed.upstream}"
    if (source := _to_convert(proposed.model)) is not None:
        lines.append(
            f"{home.models}: {source.path.name}, made ready for training ({_conversion(home, source)})"
        )
    for name in proposed.agents:
        lines += agent_integration.find(name).plan(home, settings)
    if proposed.service:
        lines += system_service.plan(home)
    return lines


def _conversion(home: Home, source: local_models.GgufSource) -> str:
    """How large a conversion gets, and that it is made once."""
    if converted_before(home.models, source):
        return "there already"
    try:
        size = gguf_file.read(source.path).converted_bytes
    except ModelError:
        return "kept there, once"
    return f"{size / 1e9:.1f} GB, kept there, once; about {model_choice.span(size / CONVERTED_A_SECOND)}"


def carry_out(
    home: Home, proposed: SetupProposal, settings: Path | None = None
) -> tuple[list[Path], list[str]]:
    """Do it; the files that changed, and what the person should know. Raises ``ConfigError`` before anything is half done."""
    # Settings that cannot be read stop us here, before any is changed.
    others = {name: agent_integration.find(name).status(home, settings).other for name in proposed.agents}
    changes: dict[str, dict[str, object]] = {
        "model": {"base": proposed.model} | _pinned(home, proposed.model),
        "training": {"preset": proposed.preset},
    }
    if proposed.upstream:
        if not proposed.upstream.startswith(("http://", "https://")):
            raise UsageError(
                f"The upstream {proposed.upstream!r} is no address: it begins with http:// or https://."
            )
        changes["serve"] = {"upstream": proposed.upstream}
    notes = [proposed.note] if proposed.note else []
    notes += _temporary(proposed)
    notes += _make_ready(proposed.model)
    notes += _tried(home, proposed.model)
    before = home.config.read_bytes() if home.config.exists() else None
    config.save(home.config, changes)
    changed = [home.config] if home.config.read_bytes() != before else []
    for name in proposed.agents:
        agent = agent_integration.find(name)
        changed += agent.install(home, settings)
        notes.append(f"{agent.title}: rate with {agent.usage}.")
        if other := others[name]:
            notes.append(
                f"{agent.title}: its hooks ran {other}; what it says comes here from now on, not there."
            )
        if problem := agent.status(home, settings).problem:
            notes.append(f"{agent.title}: {problem}.")
    if proposed.service:
        changed += system_service.install(home)
    return changed, notes


def _temporary(proposed: SetupProposal) -> list[str]:
    """A warning where hooks would run a Python that the tool which started it may delete."""
    here = installed.installation()
    if not here.temporary or not (proposed.agents or proposed.service):
        return []
    keep = "uv tool install" if here.manager == "uvx" else "pipx install"
    return [
        f"This Clawback runs from a temporary environment of {here.manager}, and the agents' hooks run it, too. "
        f"Install it so that it stays, then set it up again: {keep} '{here.requirement()}' && clawback init"
    ]


def _pinned(home: Home, base: str) -> dict[str, object]:
    """``revision`` of a hub id: the commit that is chosen now, so that a new one does not change the model under its versions."""
    held = config.load(home.config).model
    if held.base == base and held.revision:
        return {}
    commit = model_choice.commit_of(base)
    return {"revision": commit} if commit else {}


def next_steps(proposed: SetupProposal) -> list[tuple[str, str]]:
    """What to do now, in the order of doing it: (command, what it does)."""
    start = installed.command()
    steps = [
        ("clawback doctor", "check that everything is in order"),
        *_parts_to_add(),
        ("clawback serve", "answer your agents, and show the page"),
        ("clawback chat", "talk to your model, and rate with one key"),
        ("clawback good", "rate the last answer, in any terminal (or `clawback bad`)"),
        ("clawback status", "how many ratings until the first training run"),
    ]
    steps = [step for step in steps if not (proposed.service and step[0] == "clawback serve")]
    return [
        (start + step.removeprefix("clawback"), what) if step.startswith("clawback ") else (step, what)
        for step, what in steps
    ]


def _parts_to_add() -> list[tuple[str, str]]:
    """The command that installs what ``clawback serve`` and ``clawback chat`` need, where it is missing."""
    return (
        []
        if installed.has("serve")
        else [(installed.add("serve"), "the parts that train, answer and show the page")]
    )


def _to_convert(base: str) -> local_models.GgufSource | None:
    """The GGUF file that has to be made ready for training first."""
    try:
        return local_models.source(base)
    except UsageError:
        return None  # what was once converted may outlive its file


def _make_ready(base: str) -> list[str]:
    """Convert a GGUF file now, so that what is wrong with it shows here. Raises ``ClawbackError``; says so where it has to wait."""
    import importlib.util

    if _to_convert(base) is None:
        return []
    if missing := [
        part for part in ("torch", "transformers", "gguf") if importlib.util.find_spec(part) is None
    ]:
        return [
            f"{base} is made ready for training at its first use; that needs {', '.join(missing)}: {installed.add('gguf')}"
        ]
    from clawback.models import resolve

    resolve(base)
    return []


def _tried(home: Home, base: str) -> list[str]:
    """What was found when the model was tried. Raises ``ModelError`` where it does not work, with one that would."""
    settings = config.load(home.config).model
    if model_proof.proven(home, base, settings) is False and model_proof.can_be_tried():
        note(f"Trying {base}: loading it, and one short answer …")
    try:
        proof = model_proof.prove(home, base, settings)
    except TrainingError as error:  # too large for what is free now
        return [f"{base} was not tried: {error}"]
    except ModelError as error:
        raise ModelError(f"{error} {model_choice.alternative(base, local_models.find())}") from error
    return [f"{base} was tried: {proof.sentence()}."] if proof else []


def take_out(home: Home, agents: Sequence[str] = (), settings: Path | None = None) -> list[Path]:
    """Everything that was put in, or what was put into the named agents."""
    changed = []
    for name in agents or agent_integration.names():
        changed += agent_integration.find(name).uninstall(home, settings)
    if not agents:
        changed += system_service.uninstall(home)
    return changed

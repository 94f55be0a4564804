"""What a newcomer is promised, where no other test holds it: research/2026-11-26-faults.md says which sentence is held by which."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from clawback import config
from clawback.cli import main_group
from clawback.config import settings

from .conftest import Run

ROOT = Path(__file__).parents[2]
OTHERS = {
    "--output": {"--out", "--outfile", "--dest", "--destination", "--file-out", "--write"},
    "--turn": {"--turn-id", "--turnid", "--id", "--answer"},
    "--version": {"--ver", "--version-number"},
    "--limit": {"--max", "--number", "--n", "--top"},
    "--seed": {"--random-seed", "--rng"},
    "--dry-run": {"--dryrun", "--simulate", "--what-if"},
    "--yes": {"--force", "--no-confirm", "--assume-yes"},
}
"""What a thing is called everywhere → what it is called nowhere."""


def every(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    yield name, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for sub in command.list_commands(context):
            found = command.get_command(context, sub)
            assert found is not None
            yield from every(found, f"{name} {sub}")


def test_the_same_option_is_called_the_same_in_every_command() -> None:
    forbidden = {other: right for right, others in OTHERS.items() for other in others}
    metavars: dict[str, set[str | None]] = {}
    for name, command in every(main_group, "clawback"):
        for option in command.params:
            if not isinstance(option, click.Option):
                continue
            for word in option.opts:
                assert word not in forbidden, f"{name} {word} is {forbidden[word]} elsewhere"
                if command is not main_group:
                    metavars.setdefault(word, set()).add(option.metavar)
    assert metavars["--turn"] == {"ID"}
    assert metavars["--version"] == {"V"}


@pytest.mark.parametrize(
    ("typed", "kind"),
    [
        (typed, list)
        for typed in (
            "turns", "sessions", "runs", "versions", "inbox", "raters list", "model list", "config list", "people list", "episodes list",
            "survey", "prompts history", "doctor",
        )
    ]
    + [(typed, dict) for typed in ("status", "raters", "config get model.base", "trial", "encryption status")],
)  # fmt: skip
def test_json_is_a_list_where_things_are_listed_and_one_object_elsewhere(
    run: Run, typed: str, kind: type
) -> None:
    assert isinstance(json.loads(run(*typed.split(), "--json")[1]), kind)


def test_serve_says_what_the_embedded_model_is_and_nothing_of_another(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    import uvicorn

    monkeypatch.setattr(uvicorn.Server, "run", lambda self, sockets: setattr(self, "started", True))
    assert config.DEMONSTRATION in " ".join(run("serve", "--port", "0")[1].split())
    upstream = run("serve", "--port", "0", "--upstream", "http://127.0.0.1:1")[1]
    assert "demonstration" not in upstream


def test_threads_of_a_run_sleep_while_they_wait_unless_the_person_says_otherwise() -> None:
    """Spinning threads took the demo from one minute to nine beside other work."""
    program = (
        "import os, sys; sys.modules['torch'] = None; from clawback import engine, errors\n"
        "try: engine.load('embedded')\n"
        "except errors.MissingExtra: print(os.environ.get('OMP_WAIT_POLICY'), os.environ.get('GOMP_SPINCOUNT'))"
    )
    bare = {k: v for k, v in os.environ.items() if k not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")}

    def said(environment: dict[str, str]) -> str:
        done = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    assert said(bare) == "PASSIVE None"
    assert said(bare | {"OMP_WAIT_POLICY": "ACTIVE"}) == "ACTIVE None"


PRIVATE = (
    "gone on with", "goes on with", "over there", "stands at", "at it already", "put up with", "how boldly", "what comes of it", "nothing of ours",
    "answered for", "told of", "said to be", "are yours to", "has a say", "have no say", "the house", "room of", "lens", "manner of", "the tap of",
)  # fmt: skip
"""Phrases of the team's own that a reader outside it had to guess at."""


def test_help_and_settings_are_in_the_fields_words() -> None:
    texts = {
        name: command.get_help(click.Context(command, info_name=name))
        for name, command in every(main_group, "clawback")
    }
    texts |= {f"[{one.key}]": one.meaning for one in settings.settings()}
    found = [
        (name, phrase)
        for name, text in texts.items()
        for phrase in PRIVATE
        if phrase in " ".join(text.lower().split())
    ]
    assert found == []


def test_defaults_that_pages_name_are_those_of_the_settings() -> None:
    """An eighth is held out; a page once said a fifth."""
    defaults = {setting.key: setting.default for setting in settings.settings()}
    table = re.findall(
        r"^\| `(\w+)` \| ([\d.]+) \|", (ROOT / "docs/gate.md").read_text("utf-8"), re.MULTILINE
    )
    assert len(table) >= 6
    for name, value in table:
        assert float(value) == defaults[f"gate.{name}"], name
    assert defaults["gate.held_out"] == 1 / 8
    assert "`[gate] held_out`, an eighth" in (ROOT / "docs/feedback.md").read_text("utf-8")
    block = re.search(r"```toml\n(.*?)```", (ROOT / "docs/background.md").read_text("utf-8"), re.DOTALL)
    assert block is not None
    shown = tomllib.loads(block[1])
    assert {"training", "schedule"} <= shown.keys()
    for section, values in shown.items():
        for name, value in values.items():
            if name != "quiet_hours":  # an example: the default is none
                assert value == defaults[f"{section}.{name}"], f"{section}.{name}"

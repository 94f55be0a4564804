"""The registry of extensions: its table is what pyproject.toml registers, and other packages register in the same groups."""

import importlib
import sys
import tomllib
from pathlib import Path

import pytest

from clawback import plugins
from clawback.cli import main
from clawback.environments import registry
from clawback.errors import NotFound

ROOT = Path(__file__).parent.parent


def test_the_table_is_what_pyproject_registers():
    registered = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["entry-points"]
    assert {group: dict(found) for group, found in plugins.BUILT_IN.items()} == {
        group: found for group, found in registered.items() if found
    }


@pytest.mark.parametrize(
    "value",
    sorted(
        value
        for group, found in plugins.BUILT_IN.items()
        if group not in (plugins.ENGINES,)  # needs mlx
        for value in found.values()
    ),
)
def test_every_built_in_is_there(value):
    assert plugins.load_value(value) is not None


@pytest.fixture
def package(tmp_path, monkeypatch):
    """An installed package that registers a command, an environment and something under a built-in's name."""
    (tmp_path / "somebody.py").write_text(
        "import click\n"
        "from clawback.environments.registry import Kind\n"
        "@click.command()\n"
        "def wave():\n"
        "    'Wave.'\n"
        "    click.echo('hello')\n"
        "KIND = Kind('clawback.environments.tools.tasks_file', 'Mine', 'mine:shop')\n"
    )
    info = tmp_path / "somebody-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: somebody\nVersion: 1\n")
    (info / "entry_points.txt").write_text(
        "[clawback.commands]\nwave = somebody:wave\nlab.wave = somebody:wave\npeople = somebody:wave\n"
        "[clawback.environments]\nmine = somebody:KIND\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    yield
    sys.modules.pop("somebody", None)


def test_another_package_adds_commands_and_environments(package, capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("CLAWBACK_HOME", str(tmp_path / "home"))
    assert main(["wave"]) == 0
    assert main(["lab", "wave"]) == 0
    assert capsys.readouterr().out == "hello\nhello\n"
    assert registry.find("mine:shop").name == "tools:shop"
    assert registry.plugins()["mine"] == "somebody:KIND"


def test_a_built_in_name_stays_built_in(package):
    assert plugins.load(plugins.COMMANDS, "people").name == "people"
    assert "people" not in plugins.others(plugins.COMMANDS)


def test_an_unknown_name_is_not_found():
    with pytest.raises(NotFound, match="nobody"):
        plugins.load(plugins.TRAINERS, "nobody")

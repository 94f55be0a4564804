"""The registry of extensions: its table is what pyproject.toml registers, and other packages register in the same groups."""

import importlib
import sys
import tomllib
from pathlib import Path

import pytest

from clawback import engine, jobs, plugins
from clawback.capture import agent_integration
from clawback.cli import main
from clawback.environments import registry
from clawback.errors import NotFound, UsageError
from clawback.release import publishers
from clawback.serve import app

ROOT = Path(__file__).parent.parent


def test_the_table_is_what_pyproject_registers():
    registered = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["entry-points"]
    assert {group: dict(found) for group, found in plugins.BUILT_IN.items()} == {
        group: found for group, found in registered.items() if found
    }


def test_extensions_build_on_those_that_import_linter_lets_them_import():
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    (independence,) = [contract for contract in contracts if contract["type"] == "independence"]
    pairs = [line.split(" -> ") for line in independence["ignore_imports"]]
    allowed = {tuple(name.split(".")[2] for name in pair) for pair in pairs if pair[0] != "clawback"}
    assert allowed == {(name, part) for name, parts in plugins.BUILDS_ON.items() for part in parts}


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
    """An installed package that registers something in several groups, once under a built-in's name."""
    (tmp_path / "somebody.py").write_text(
        "import click\n"
        "from clawback.environments.registry import Kind\n"
        "@click.command()\n"
        "def wave():\n"
        "    'Wave.'\n"
        "    click.echo('hello')\n"
        "KIND = Kind('clawback.extensions.tools.tasks_file', 'Mine', 'mine:shop')\n"
        "class Copy:\n"
        "    def __init__(self, target):\n"
        "        self.target = target\n"
        "class Scribe:\n"
        "    name = title = 'scribe'\n"
        "def routes(server):\n"
        "    from starlette.routing import Route\n"
        "    return [Route('/waves', print)]\n"
    )
    info = tmp_path / "somebody-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: somebody\nVersion: 1\n")
    (info / "entry_points.txt").write_text(
        "[clawback.commands]\nwave = somebody:wave\nlab.wave = somebody:wave\npeople = somebody:wave\n"
        "[clawback.environments]\nmine = somebody:KIND\n"
        "[clawback.publishers]\ncopy = somebody:Copy\nmerged = somebody:Copy\n"
        "[clawback.agents]\nscribe = somebody:Scribe\n"
        "[clawback.routes]\nwaves = somebody:routes\n"
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


def test_another_package_adds_a_publisher(package):
    publisher = publishers.make(publishers.Target("copy", url="http://there"))
    assert (type(publisher).__name__, publisher.target.url) == ("Copy", "http://there")
    assert publishers.names()[-1] == "copy"
    assert type(publishers.make(publishers.Target("merged", out=Path("new")))).__module__.startswith(
        "clawback."
    )
    with pytest.raises(UsageError, match=r"no publisher 'cope'; there are: merged, .*, copy\."):
        publishers.make(publishers.Target("cope"))


def test_another_package_adds_an_agent(package):
    assert agent_integration.find("scribe").title == "scribe"
    assert agent_integration.names()[0] == "claude-code"
    assert agent_integration.names()[-1] == "scribe"
    with pytest.raises(UsageError, match=r"no agent 'scrib'; there are: claude-code, .*, scribe\."):
        agent_integration.find("scrib")


def test_another_package_adds_routes_behind_those_of_the_core(package, monkeypatch):
    monkeypatch.setattr(plugins, "_has_extension", lambda name: name != "importers")
    paths = [route.path for route in app.api_routes(None)]
    assert paths[-1] == "/waves"
    assert "/turns" in paths
    assert "/export" not in paths, "its extension was taken away"


def test_what_registers_is_what_its_group_says():
    agents = [agent_integration.find(name) for name in plugins.built_in(plugins.AGENTS)]
    assert [agent.name for agent in agents] == list(plugins.built_in(plugins.AGENTS))
    for group in (plugins.ALGORITHMS, plugins.REWARDS):
        assert all(plugins.load(group, name).name == name for name in plugins.built_in(group))


def test_an_extension_that_was_taken_away_provides_nothing(monkeypatch):
    monkeypatch.setattr(plugins, "_has_extension", lambda name: name != "people")
    assert "people" not in plugins.names(plugins.COMMANDS)
    assert "demo" in plugins.names(plugins.COMMANDS)
    with pytest.raises(NotFound, match="people"):
        plugins.load(plugins.SERVERS, "people")


def test_an_extension_without_one_that_it_builds_on_provides_nothing(monkeypatch):
    monkeypatch.setattr(plugins, "_has_extension", lambda name: name != "sandbox")
    assert not {"terminal", "repository", "miniwob"} & set(registry.names())
    with pytest.raises(NotFound, match="needs the extension `sandbox`"):
        registry.find("terminal")


def test_a_built_in_name_stays_built_in(package):
    assert plugins.load(plugins.COMMANDS, "people").name == "people"
    assert "people" not in plugins.others(plugins.COMMANDS)


def test_an_unknown_name_is_not_found():
    with pytest.raises(NotFound, match="nobody"):
        plugins.load(plugins.TRAINERS, "nobody")


@pytest.mark.parametrize(
    ("extension", "settings", "options", "user"),
    [
        ("reward", "[reward]\ngrade = true\n", {}, r"`\[reward\] grade`"),
        ("reward", '[[reward.verifiers]]\nname = "regex"\npattern = "x"\n', {}, "`regex`"),
        ("mlx", '[model]\nengine = "mlx"\n', {}, r"`\[model\] engine`"),
        ("hosted", '[hosted]\nurl = "http://127.0.0.1:9"\n', {}, r"`\[hosted\] url`"),
        ("hosted", '[training]\ndraw = "vllm"\n', {}, "`draw`"),
        ("hosted", "", {"draw": "vllm"}, "`draw`"),
        ("scale", "", {"processes": 2}, "`--processes`"),
        ("scale", "", {"ray": ("local", 1)}, "`--ray`"),
    ],
)
def test_a_setting_of_an_extension_that_was_taken_away_is_refused_before_a_model_is_loaded(
    home, monkeypatch, extension, settings, options, user
):
    home.create()
    home.config.write_text(settings)
    monkeypatch.setattr(plugins, "_has_extension", lambda name: name != extension)
    monkeypatch.setattr(engine, "load", lambda *_, **__: pytest.fail("a model was loaded"))
    with pytest.raises(NotFound, match=f"^{user} needs the extension `{extension}`, which .* is without"):
        jobs.train_once(home, **options)


def test_the_command_refuses_it_as_bad_input(home, monkeypatch, capsys):
    home.create()
    home.config.write_text("[reward]\ngrade = true\n")
    monkeypatch.setenv("CLAWBACK_HOME", str(home.root))
    monkeypatch.setattr(plugins, "_has_extension", lambda name: name != "reward")
    assert main(["train"]) == 2
    assert "`[reward] grade` needs the extension `reward`" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("extension", "call"),
    [
        ("agents", lambda: agent_integration.find("claude-code")),
        ("publishers", lambda: publishers.make(publishers.Target("merged", out=Path("new")))),
        ("sandbox", lambda: registry.find("terminal:files")),
        ("worlds", lambda: registry.find("gymnasium:FrozenLake-v1")),
        ("importers", lambda: plugins.load(plugins.IMPORTERS, "files")),
    ],
)
def test_a_part_of_an_extension_that_was_taken_away_is_named_with_it(monkeypatch, extension, call):
    monkeypatch.setattr(plugins, "_has_extension", lambda name: name != extension)
    with pytest.raises(NotFound, match=f"needs the extension `{extension}`"):
        call()

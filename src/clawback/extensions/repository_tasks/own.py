"""A dozen repository tasks of our own, built offline: small repositories with a history, in which each fix is a commit.

``instances.toml`` has the code, the mistakes and their fixes; names, dates and authors are fixed, so that
commits are the same on every machine.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clawback.extensions.repository_tasks.checkout import git
from clawback.extensions.repository_tasks.swe_rows import InstanceRow

_DATA = Path(__file__).with_name("instances.toml")
_BEGAN = 1_700_000_000


def build(folder: Path) -> list[InstanceRow]:
    """Make the repositories in a folder, and give their rows."""
    rows = []
    for repository in tomllib.loads(_DATA.read_text(encoding="utf-8"))["repositories"]:
        rows += _build(folder / repository["name"].replace("/", "__"), repository)
    return rows


def _build(root: Path, repository: Mapping[str, Any]) -> list[InstanceRow]:
    root.mkdir(parents=True)
    git(root, "init", "--quiet")
    for path, text in repository["files"].items():
        _write(root, path, text)
    _commit(root, "Begin", 0)
    rows = []
    for number, instance in enumerate(repository["instances"], 1):
        base = git(root, "rev-parse", "HEAD").strip()
        before = _tests(root)
        code = (root / instance["path"]).read_text()
        assert code.count(instance["wrong"]) == 1, instance["id"]
        _write(root, instance["path"], code.replace(instance["wrong"], instance["right"]))
        tests = root / instance["test_path"]
        _write(
            root,
            instance["test_path"],
            (tests.read_text() if tests.exists() else "") + "\n\n" + instance["test"].strip() + "\n",
        )
        patch = git(root, "diff", "--", instance["path"])
        test_patch = git(root, "diff", "--", instance["test_path"])
        names = re.findall(r"^def (test_\w+)", instance["test"], re.M)
        passing = instance.get("passing", [])
        fails, holds = (
            [f"{instance['test_path']}::{name}" for name in names if (name in passing) is wanted]
            for wanted in (False, True)
        )
        rows.append(InstanceRow(
            id=instance["id"], repo=repository["name"], base_commit=base, problem=instance["problem"].strip(), patch=patch, test_patch=test_patch,
            fail_to_pass=tuple(fails), pass_to_pass=(*before, *holds), split=instance.get("split", "train"),
        ))  # fmt: skip
        _commit(root, f"Fix: {instance['title']}", number)
    git(root, "tag", "v1.0")
    return rows


def _tests(root: Path) -> list[str]:
    """The tests that a repository has, by name."""
    found = []
    for path in sorted(root.rglob("test_*.py")):
        names = re.findall(r"^def (test_\w+)", path.read_text(), re.M)
        found += [f"{path.relative_to(root).as_posix()}::{name}" for name in names]
    return found


def _write(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


def _commit(root: Path, words: str, number: int) -> None:
    who = {
        "NAME": "The Clawback authors",
        "EMAIL": "authors@clawback.invalid",
        "DATE": f"{_BEGAN + 86400 * number} +0000",
    }
    env = {f"GIT_{role}_{key}": value for role in ("AUTHOR", "COMMITTER") for key, value in who.items()}
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "-m", words, env=env)

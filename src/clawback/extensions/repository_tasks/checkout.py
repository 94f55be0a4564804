"""Work trees at a commit, made by git from the source repository alone, outside the sandbox.

Git runs programs that a repository's own settings name; so it is never run here on a tree that a policy has
touched.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from clawback.errors import ClawbackError, NotFound, UsageError

_SETTINGS = (
    "core.hooksPath=/dev/null", "core.fsmonitor=false", "protocol.file.allow=always", "safe.directory=*", "gc.auto=0",
    "advice.detachedHead=false", "init.defaultBranch=main", "uploadpack.allowAnySHA1InWant=true",
)  # fmt: skip


def git(folder: Path, *words: str, input: str = "", env: dict[str, str] | None = None) -> str:
    """Run git without anybody's settings, and give what it says. Raises with its own words."""
    if shutil.which("git") is None:
        raise ClawbackError("git is not installed; repository tasks need it.")
    clean = {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "HOME": "/nonexistent", "LC_ALL": "C"}
    clean |= {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1", "GIT_TERMINAL_PROMPT": "0"}
    clean |= {
        "GIT_CONFIG_COUNT": str(len(_SETTINGS))
    }  # by the environment, so that git's own helpers see them as well
    for number, setting in enumerate(_SETTINGS):
        clean[f"GIT_CONFIG_KEY_{number}"], _, clean[f"GIT_CONFIG_VALUE_{number}"] = setting.partition("=")
    done = subprocess.run(
        ["git", *words],
        cwd=folder,
        input=input,
        env={**clean, **(env or {})},
        capture_output=True,
        text=True,
        errors="replace",
    )
    if done.returncode:
        raise ClawbackError(
            f"git {words[0]} failed in {folder}: {done.stderr.strip() or done.stdout.strip()}."
        )
    return done.stdout


def find(repositories: Path, repo: str) -> Path:
    """The local clone of ``owner/name``."""
    owner, _, name = repo.partition("/")
    for place in (f"{owner}__{name}", f"{owner}/{name}", name, f"{owner}__{name}.git", f"{name}.git"):
        if place and (found := repositories / place).is_dir():
            return found
    raise NotFound(
        f"There is no clone of {repo} in {repositories} (looked for {owner}__{name}, {owner}/{name} and {name})."
    )


def at_commit(source: Path, commit: str, target: Path) -> None:
    """A new repository at ``target`` that has this commit and what came before it, and nothing else at all.

    Only the objects that the commit reaches are fetched: later commits, other branches, tags, stashes and the journal
    of heads are not hidden but absent.
    """
    if not commit or commit.startswith("-") or not commit.isalnum():
        raise UsageError(f"{commit!r} is no commit.")
    target.mkdir(parents=True)
    git(target, "init", "--quiet")
    git(
        target,
        "fetch",
        "--quiet",
        "--no-tags",
        "--no-write-fetch-head",
        "--update-head-ok",
        str(source.resolve()),
        f"{commit}:refs/heads/main",
    )
    git(target, "reset", "--quiet", "--hard", "main")
    shutil.rmtree(target / ".git" / "logs", ignore_errors=True)
    shutil.rmtree(target / ".git" / "hooks", ignore_errors=True)
    for name in ("ORIG_HEAD", "FETCH_HEAD"):
        (target / ".git" / name).unlink(missing_ok=True)


def apply(tree: Path, patch: str) -> None:
    """Apply a patch to a tree of ours."""
    if patch.strip():
        git(tree, "apply", "--whitespace=nowarn", "-", input=patch if patch.endswith("\n") else patch + "\n")


def touched(patch: str) -> set[str]:
    """The files that a patch names, before and after."""
    found = set()
    for line in patch.splitlines():
        if line.startswith(("--- a/", "+++ b/")):
            found.add(line[6:].split("\t")[0])
        elif line.startswith(("rename from ", "rename to ")):
            found.add(line.split(" ", 2)[2])
    return found

"""Reads other projects' task folders: Harbor's (``task.toml``) and Terminal-Bench's older ones (``task.yaml``).

What a folder asks for is either supported or refused in a sentence; nothing is ignored silently. A Dockerfile
that only names a plain system, a working folder, variables and files to copy needs no engine: a box has
these. A task that names an image gets a container of it; images are neither fetched nor built.
"""

from __future__ import annotations

import math
import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from clawback import installed
from clawback.errors import MissingExtra, UsageError

_PLAIN = re.compile(r"^(?:docker\.io/)?(?:library/)?(?:debian|ubuntu|python|bash|busybox)(?::[\w.-]+)?$")
_FETCHES = re.compile(r"\b(apt-get|apk add|curl|wget|uvx?|pip3? install|npm install|git clone)\b")
_WORK = "/app"


@dataclass(frozen=True, slots=True)
class TaskFolder:
    """One task as its folder tells it. ``refusal`` says why it cannot be run, whatever this machine has ("" if it can)."""

    id: str
    root: Path
    instruction: str
    image: str = ""
    """The container image that it runs in; "" for the machine's own programs."""
    work: str = _WORK
    """Where the policy works; "" for wherever the image says."""
    copies: tuple[tuple[Path, str], ...] = ()
    """Files and folders of the task, and where the policy finds them."""
    env: Mapping[str, str] = field(default_factory=dict)
    test: Path | None = None
    """The script that judges; its folder is shown to it as ``/tests``."""
    solution: Path | None = None
    agent_seconds: float = 600.0
    test_seconds: float = 600.0
    cpus: int | None = None
    memory: int | None = None
    disk: int | None = None
    split: str = ""
    by_exit_code: bool = False
    """Judged by the test script's exit code, not by a reward file."""
    refusal: str = ""


def read(root: Path) -> TaskFolder:
    """The task in a folder, whichever of the two kinds it is."""
    if (root / "task.toml").is_file():
        return _harbor(root)
    if (root / "task.yaml").is_file():
        return _terminal_bench(root)
    raise UsageError(f"{root} is no task: it has neither task.toml (Harbor) nor task.yaml (Terminal-Bench).")


def find(root: Path) -> Iterator[Path]:
    """Every task folder in a folder (or the folder itself), by name."""
    names = ("task.toml", "task.yaml")
    if any((root / name).is_file() for name in names):
        yield root
        return
    for folder in sorted(path for path in root.iterdir() if path.is_dir()) if root.is_dir() else ():
        if any((folder / name).is_file() for name in names):
            yield folder


# ---- Harbor


def _harbor(root: Path) -> TaskFolder:
    try:
        told = tomllib.loads((root / "task.toml").read_text(encoding="utf-8"))
        instruction = (root / "instruction.md").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"The task {root.name} cannot be read: {error}.") from error
    environment = _table(told, "environment")
    image = str(environment.get("docker_image") or "")
    # What a Dockerfile does is in the image that was built from it.
    work, copies, env, refusal = (
        ("", (), {}, _compose(root / "environment")) if image else _dockerfile(root / "environment")
    )
    env = {**env, **_variables(_table(environment, "env"))}
    solution, test = root / "solution" / "solve.sh", root / "tests" / "test.sh"
    return TaskFolder(
        id=str(_table(told, "task").get("name") or root.name), root=root, instruction=instruction, image=image,
        work=str(environment.get("workdir") or work), copies=copies, env=env,
        test=test if test.is_file() else None, solution=solution if solution.is_file() else None,
        agent_seconds=float(_table(told, "agent").get("timeout_sec", 600.0)),
        test_seconds=float(_table(told, "verifier").get("timeout_sec", 600.0)),
        cpus=_rounded_up(environment.get("cpus")), memory=_mebibytes(environment.get("memory_mb")), disk=_mebibytes(environment.get("storage_mb")),
        split=str(_table(told, "metadata").get("split", "")),
        refusal=_harbor_refusal(root, told, environment) or refusal or ("" if test.is_file() else "it has no tests/test.sh"),
    )  # fmt: skip


def _harbor_refusal(root: Path, task: Mapping[str, object], environment: Mapping[str, object]) -> str:
    version = str(task.get("schema_version", "1.4"))
    if not version.startswith("1."):
        return f"its schema_version is {version}, and 1.x is read"
    asked = {"gpus": "a GPU", "mcp_servers": "MCP servers", "healthcheck": "services that run beside"}
    for name, what in asked.items():
        if environment.get(name):
            return f"it needs {what} ([environment] {name}), which a box does not have"
    if _table(_table(task, "verifier"), "environment").get("docker_image"):
        return "its checks need another image than its own ([verifier.environment] docker_image)"
    workdir = str(environment.get("workdir") or _WORK)
    if not workdir.startswith("/") or workdir.strip("/") == "" or ".." in workdir.split("/"):
        return f"its working folder is {workdir!r}, and not a folder below the root"
    users = {name: str(_table(task, name).get("user") or "") for name in ("agent", "verifier")}
    if environment.get("docker_image") and (
        root_user := next((n for n, user in users.items() if user in ("root", "0")), "")
    ):
        return f"it wants to be root ([{root_user}] user), and a box's user is an ordinary one"
    if environment.get("os", "linux") != "linux":
        return f"it is for {environment['os']}"
    if task.get("steps") or (root / "steps").is_dir():
        return "it has several steps, which are not supported"
    network = environment.get("network_mode") or _table(task, "agent").get("network_mode")
    if network == "allowlist" or environment.get("allow_internet"):
        return "it needs the network, which a box does not have"
    return ""


def _table(tables: Mapping[str, object], name: str) -> Mapping[str, Any]:
    it = tables.get(name, {})
    return it if isinstance(it, dict) else {}


def _variables(values: Mapping[str, object]) -> dict[str, str]:
    """``${NAME:-default}`` is the default: nothing of our own environment is let in."""
    return {
        name: re.sub(r"\$\{\w+(?::-([^}]{0,1000}))?\}", lambda m: m.group(1) or "", str(value))
        for name, value in values.items()
    }


def _rounded_up(value: object) -> int | None:
    return math.ceil(value) if isinstance(value, int | float) and 0 < value < math.inf else None


def _mebibytes(value: object) -> int | None:
    return int(value) << 20 if isinstance(value, int | float) and value > 0 else None


# ---- Terminal-Bench


def _terminal_bench(root: Path) -> TaskFolder:
    try:
        import yaml
    except ImportError as error:
        raise MissingExtra(
            f"Terminal-Bench's task.yaml needs PyYAML. Install it with: {installed.add('train')}"
        ) from error
    try:
        told = yaml.safe_load((root / "task.yaml").read_text(encoding="utf-8"))
        instruction = str(told["instruction"])
    except (OSError, UnicodeDecodeError, yaml.YAMLError, TypeError, KeyError) as error:
        raise UsageError(f"The task {root.name} cannot be read: {error}.") from error
    work, copies, env, refusal = _dockerfile(root)
    test, solution = root / "run-tests.sh", root / "solution.sh"
    if not test.is_file():
        refusal = refusal or "it has no run-tests.sh"
    elif _FETCHES.search(test.read_text(encoding="utf-8", errors="replace")):
        refusal = refusal or "its run-tests.sh fetches programs from the network when it judges"
    return TaskFolder(
        id=root.name, root=root, instruction=instruction, work=work, copies=copies, env=env,
        test=test if test.is_file() else None, solution=solution if solution.is_file() else None,
        agent_seconds=float(told.get("max_agent_timeout_sec", 360)), test_seconds=float(told.get("max_test_timeout_sec", 60)),
        by_exit_code=True, refusal=refusal,
    )  # fmt: skip


# ---- Dockerfiles that need no engine


def _dockerfile(folder: Path) -> tuple[str, tuple[tuple[Path, str], ...], dict[str, str], str]:
    """Working folder, what is copied where, variables; and why an engine is needed after all."""
    if why := _compose(folder):
        return _WORK, (), {}, why
    path = folder / "Dockerfile"
    if not path.is_file():
        return _WORK, (), {}, ""
    work, env = "/", dict[str, str]()
    copies: list[tuple[Path, str]] = []
    text = path.read_text(encoding="utf-8", errors="replace").replace("\\\n", " ")
    for line in (line.strip() for line in text.splitlines()):
        if not line or line.startswith("#"):
            continue
        word, _, rest = line.partition(" ")
        try:
            words = shlex.split(rest)
        except ValueError:
            words = []
        match word.upper():
            case "FROM" if len(words) == 1 and _PLAIN.match(words[0]):
                pass
            case "WORKDIR" if len(words) == 1:
                work = words[0] if words[0].startswith("/") else f"{work.rstrip('/')}/{words[0]}"
            case "ENV" if words and all("=" in one for one in words):
                env |= dict(one.split("=", 1) for one in words)
            case "COPY" if len(words) == 2 and (source := _within(folder, words[0])) is not None:
                copies.append((source, _target(work, words[1], source)))
            case "CMD" | "LABEL" | "SHELL" | "ENTRYPOINT":
                pass
            case _:
                why = f"its Dockerfile does more than copy files ({line[:60]!r}), and images are not built: build it, and name the "
                return work, (), {}, why + "image in task.toml ([environment] docker_image)"
    return work if work != "/" else _WORK, tuple(copies), env, ""


def _compose(folder: Path) -> str:
    """Why the compose files of a task keep it from being run ("" if they do not)."""
    compose = folder / "docker-compose.yaml"
    several = compose.is_file() and compose.read_text(encoding="utf-8", errors="replace").count("image:") > 1
    if several or (folder / "singularity-compose.yaml").is_file():
        return "it needs several containers, and only one is ever started"
    return ""


def _within(folder: Path, name: str) -> Path | None:
    path = (folder / name).resolve()
    return path if path.exists() and path.is_relative_to(folder.resolve()) else None


def _target(work: str, name: str, source: Path) -> str:
    whole = name if name.startswith("/") else f"{work.rstrip('/')}/{name}"
    if source.is_file() and (name.endswith("/") or name in (".", "./")):
        whole = f"{whole.rstrip('/').removesuffix('/.')}/{source.name}"
    return whole.rstrip("/").removesuffix("/.") or "/"

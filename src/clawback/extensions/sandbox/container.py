"""The rung of container engines, podman and docker, for tasks that need an image.

Each command is a container of its own, which ends with it: the image's root is read-only, and the box's folders
(ordinary folders of ours, counted by the keeper like any box's) are mounted into it. So a box's files last from
command to command, its processes never do, and a check runs where nothing of the policy's is but its files.
Nothing is ever pulled or built.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clawback.errors import SandboxRefused
from clawback.extensions.sandbox import scratch, seccomp
from clawback.extensions.sandbox.limits import BoxCommand, Limits
from clawback.extensions.sandbox.rungs import ENGINES, BoxFolder, BoxLayout, RungName, limits_of

if TYPE_CHECKING:
    from clawback.records import JsonObject

LABEL = "clawback.box"
DEFAULT_WORK = "/app"
_NAME = re.compile(r"[A-Za-z0-9][\w.:/@-]*", re.A)
_FILL = "/clawback-fill"
_ENV = (
    "PATH", "HOME", "USER", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "DBUS_SESSION_BUS_ADDRESS", "DOCKER_HOST",
    "CONTAINERS_CONF", "CONTAINERS_STORAGE_CONF",
)  # fmt: skip
# The shell is process 1, reaps orphans, and outlives what it runs; with it the container ends. Process 1 is deaf to
# signals that it does not handle, so what is to be run is not process 1 itself. What it says itself ("Killed") is not shown.
_RUN = 'ulimit -v "$1" || exit 125; shift; exec 3>&2 2> /dev/null; (exec 2>&3 3>&-; exec "$@"); exit $?'


@dataclass(frozen=True, slots=True)
class Image:
    """An image that is on this machine."""

    engine: RungName
    name: str
    work: str
    """Its working folder."""


def engine_env(engine: str) -> dict[str, str]:
    """What the engine's client needs to find its service and store. Docker's settings, which put proxies into containers, stay away."""
    env = {name: os.environ[name] for name in _ENV if name in os.environ}
    return {**env, "DOCKER_CONFIG": "/nonexistent"} if engine == "docker" else env


def _ask(engine: str, *words: str) -> tuple[int, str]:
    try:
        done = subprocess.run(
            [engine, *words], env=engine_env(engine), stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=60,
            check=False, cwd="/",
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return -1, str(error)
    return done.returncode, (done.stdout if done.returncode == 0 else done.stderr).strip()


def unusable(engine: RungName) -> str:
    """Why an engine cannot be used here ("" if it can)."""
    if shutil.which(engine) is None:
        return f"{engine} is not installed"
    code, said = _ask(
        engine, "version", "--format", "{{.Client.Version}}" if engine == "podman" else "{{.Server.Version}}"
    )
    return "" if code == 0 else f"{engine} does not answer ({last_line(said)})"


def find_image(name: str, rung: str | None = None) -> Image:
    """The image, in the named engine or the first that has it (a rung of another kind names none). Raises ``SandboxRefused``
    with what to do."""
    if not _NAME.fullmatch(name):
        raise SandboxRefused(f"{name!r} is no name of an image.")
    asked = [one for one in ENGINES if rung == one or rung not in ENGINES]
    whys = {one: unusable(one) for one in asked}
    there = [one for one in asked if not whys[one]]
    for one in there:
        code, said = _ask(one, "image", "inspect", "--format", "{{json .Config}}", name)
        if code == 0:
            return _image(one, name, json.loads(said) or {})
    best = (there or asked)[0]
    how = f"{best} build -t {name} FOLDER" if name.startswith("localhost/") else f"{best} pull {name}"
    if not there:
        raise SandboxRefused(
            f"The image {name} needs a container engine, but {' and '.join(whys.values())}. Install one (package podman), then run "
            f"`{how}`."
        )
    raise SandboxRefused(
        f"The image {name} is not on this machine, and images are never fetched by themselves: run `{how}` first."
    )


def last_line(text: str) -> str:
    """Of what an engine or a program said: the reason, as a rule."""
    return (text.strip().splitlines() or ["it gave no reason"])[-1]


def _image(engine: RungName, name: str, settings: Mapping[str, Any]) -> Image:
    work = os.path.normpath(str(settings.get("WorkingDir") or "/"))
    work = DEFAULT_WORK if work == "/" else work
    stray = [at for at in settings.get("Volumes") or () if os.path.normpath(at) not in (work, "/tmp")]  # noqa: S108
    if stray:
        raise SandboxRefused(
            f"The image {name} declares volumes ({', '.join(sorted(stray))}), which {engine} makes writable and does not limit."
        )
    return Image(engine, name, work)


# ---- a command


def plan(engine: RungName, image: str, layout: BoxLayout, command: BoxCommand, limits: Limits) -> JsonObject:
    """All that the container's keeper needs to know. ``command``: with all its variables, and its folder as the box has it."""
    name = f"{layout.system.parent.name}-{uuid.uuid4().hex[:12]}"
    id_file = layout.system / f"{name}.id"
    held = limits_of(limits, layout.uid)
    words = [
        engine,
        "--log-level",
        "error",
        "run",
        "--name",
        name,
        "--label",
        f"{LABEL}={layout.system.parent}",
        "--cidfile",
        str(id_file),
    ]
    words += [*_walls(engine, layout), *_limits(limits, held["rlimits"])]
    for folder in sorted(
        (*layout.folders, *(BoxFolder(path, str(path), False) for path in layout.read)),
        key=lambda one: len(one.at),
    ):
        words += _mount(layout, folder)
    for key, value in command.env.items():
        words += ["--env", f"{key}={value}"]
    space = str(held["rlimits"]["RLIMIT_AS"] // 1024)
    words += ["--workdir", command.cwd, "--entrypoint", "sh", image, "-c", _RUN, "sh", space, *command.argv]
    return {
        "argv": words, "env": engine_env(engine), "cwd": "/", "wrap": [], "filter": "", "uid": None, "end_user": layout.uid, "cpus": None,
        "roots": [str(folder.source) for folder in layout.folders if folder.write], "limits": {**held, "rlimits": {}},
        "engine": {
            "program": engine, "name": name, "id_file": str(id_file),
            "remove": ["rm", "--force", *(["--time", "0"] if engine == "podman" else [])],
        },
    }  # fmt: skip


def _walls(engine: RungName, layout: BoxLayout) -> list[str]:
    filter = layout.system / "seccomp.json"
    if not filter.exists():
        filter.write_text(json.dumps(seccomp.profile(os.uname().machine)))
    uid, gid = (os.getuid(), os.getgid()) if layout.uid is None else (layout.uid, layout.uid)
    words = [
        "--interactive", "--pull", "never", "--network", "none", "--ipc", "private", "--cgroupns", "private", "--hostname", "box",
        "--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--security-opt", f"seccomp={filter}",
        "--user", f"{uid}:{gid}", "--log-driver", "none", "--no-healthcheck", "--stop-timeout", "0",
    ]  # fmt: skip
    if engine == "podman":  # its own conveniences: writable folders, the machine's proxies and hosts
        words += ["--read-only-tmpfs=false", "--http-proxy=false", "--no-hosts"]
        words += [] if os.geteuid() == 0 else ["--userns", "keep-id"]
    return words


def _limits(limits: Limits, rlimits: Mapping[str, int]) -> list[str]:
    """``--memory-swap`` is memory and swap together. No engine limits a process's addresses: the shell does, before anything runs."""
    words = ["--memory", str(limits.memory), "--memory-swap", str(limits.memory), "--shm-size", str(16 << 20)]
    words += ["--pids-limit", str(_processes(limits))]
    words += ["--cpus", str(limits.cpus)] if limits.cpus else []
    for name, value in rlimits.items():
        if name != "RLIMIT_AS":
            words += ["--ulimit", f"{name.removeprefix('RLIMIT_').lower()}={value}:{value}"]
    return words


def _mount(layout: BoxLayout, folder: BoxFolder) -> list[str]:
    if ":" in f"{folder.source}{folder.at}":
        raise SandboxRefused(f"A container cannot have the folder {folder.at}: its name has a colon.")
    ours = folder.source.is_relative_to(
        layout.system.parent
    )  # where there is SELinux, it is told that these are the container's
    return ["--volume", f"{folder.source}:{folder.at}:{'rw' if folder.write else 'ro'}{',Z' if ours else ''}"]


def filling(layout: BoxLayout, work: str) -> tuple[BoxLayout, list[str]]:
    """A layout and the command that copies what the image has in its working folder into the box's."""
    (mine,) = (folder for folder in layout.folders if folder.at == work)
    script = f'[ ! -d "$1" ] || cp -RPp "$1/." {_FILL}/'
    return replace(layout, folders=(replace(mine, at=_FILL),)), ["sh", "-c", script, "sh", work]


# ---- what is left behind


def reap(engine: RungName, of: Path | None = None) -> int:
    """Remove the containers of a box, or those of boxes whose processes are dead; how many."""
    wanted = LABEL if of is None else f"{LABEL}={of}"
    _, ids = _ask(engine, "ps", "--all", "--quiet", "--no-trunc", "--filter", f"label={wanted}")
    gone = 0
    for id in (word for word in ids.split() if re.fullmatch("[0-9a-f]{64}", word)):
        code, box = _ask(
            engine, "container", "inspect", "--format", f'{{{{index .Config.Labels "{LABEL}"}}}}', id
        )
        if code == 0 and (of is not None or scratch.is_dead(Path(box))):
            gone += _ask(engine, "rm", "--force", id)[0] == 0
    return gone


@cache
def reap_once(engine: RungName) -> int:
    return reap(engine)


# ---- the proof: run in the image itself, whose shell is all that it needs; told are processes, memory, cores, and a file outside

TRIAL = """
fail() { echo "$1"; exit 1; }
limit() {
    for f in "$1" "$2"; do [ -r "$f" ] && read -r it < "$f" && case "$it" in "$3"|"$3 100000") return;; esac; done
    fail "it does not hold the limit of $4"
}
cd /sys/fs/cgroup || fail "its control groups cannot be seen"
limit pids.max pids/pids.max "$1" processes
limit memory.max memory/memory.limit_in_bytes "$2" memory
[ -z "$3" ] || limit cpu.max cpu/cpu.cfs_quota_us "$3" cores
while read -r name rest; do
    case "$name" in lo:*|Inter-*|face*) ;; *) fail "a way to the network is open";; esac
done < /proc/net/dev
held=""
while read -r key value; do
    case "$key$value" in NoNewPrivs:1|Seccomp:2|CapBnd:0000000000000000|CapEff:0000000000000000) held="$held$key";; esac
done < /proc/self/status
[ "$held" = CapEff:CapBnd:NoNewPrivs:Seccomp: ] || fail "it closes no more than $held"
root=""
while read -r source at kind how rest; do
    case "$at $how" in "/ ro"|"/ ro,"*) root=ro;; esac
    case "$at" in /|/work|/tmp|/etc/*|/run|/run/*|/dev|/dev/*|/proc|/proc/*|/sys|/sys/*) ;; *) fail "the engine adds $at";; esac
done < /proc/mounts
[ "$root" = ro ] || fail "the image can be written"
[ -e "$4" ] && fail "files outside can be read"
command -v bash > /dev/null || fail "it has no bash"
cd - > /dev/null && echo x > written || fail "its folders cannot be written"
i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done
echo kept in
"""


def trial(limits: Limits, secret: str) -> list[str]:
    """A program that says "kept in", or what is open."""
    cores = str(100_000 * limits.cpus) if limits.cpus else ""
    return ["sh", "-c", TRIAL, "sh", str(_processes(limits)), str(limits.memory), cores, secret]


def _processes(limits: Limits) -> int:
    """The kernel's wall, behind the keeper's: with the shell that is process 1."""
    return limits.processes + 5

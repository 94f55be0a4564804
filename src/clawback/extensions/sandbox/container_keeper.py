"""The supervisor process of a command in a container: as keeper.py, but what it watches and ends is the engine's container.

Run as ``python -I -S container_keeper.py CONTROL STATUS``, with the standard library and keeper.py alone. With
docker the command is a child of a service and not ours, and ending the client ends nothing: so the container's
own processes are looked up, watched, and ended by the engine, whatever became of the client.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clawback.extensions.sandbox import keeper
else:
    sys.path.append(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120
    import keeper

_START, _ENGINE = 60.0, 60.0
_STATE = "{{.State.ExitCode}} {{.State.OOMKilled}} {{.State.StartedAt}}"


def text_of(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:  # noqa: PTH123
            return file.read()
    except (OSError, ValueError):
        return ""


def init_of(id: str) -> int | None:
    """The first process of a container: in a control group that bears its id, and number 1 to those beside it."""
    for name in os.listdir("/proc"):  # noqa: PTH208
        if name.isdigit() and id in text_of(f"/proc/{name}/cgroup"):
            for line in text_of(f"/proc/{name}/status").splitlines():
                if line.startswith("NSpid:") and len(numbers := line.split()[1:]) > 1 and numbers[-1] == "1":
                    return int(name)
    return None


def memory_group(pid: int) -> str:
    """The file that counts how often the kernel ended a process of the container for its memory ("" if there is none)."""
    for line in text_of(f"/proc/{pid}/cgroup").splitlines():
        _, names, path = line.split(":", 2)
        if names == "" or "memory" in names.split(","):
            group = (
                f"/sys/fs/cgroup/memory{path}/memory.oom_control"
                if names
                else f"/sys/fs/cgroup{path}/memory.events"
            )
            if os.path.exists(group):  # noqa: PTH110
                return group
    return ""


class ContainerWatch(keeper.Watch):
    """Looks at a container's processes. Its time begins when its program does: an engine takes a while to start one."""

    def __init__(self, child: int, control: int, spec: dict[str, Any]) -> None:
        super().__init__(child, control, spec)
        self.id_file = spec["engine"]["id_file"]
        self.init: int | None = None
        self.group = ""

    def pids(self) -> list[int]:
        return [] if self.init is None else [self.init, *keeper.descendants(self.init)]

    def _over(self) -> str:
        if self.init is None:
            id = text_of(self.id_file).strip()
            self.init = init_of(id) if id else None
            if self.init is None:
                if time.monotonic() - self.began > _START:
                    raise keeper.Refused(f"the engine did not start a container within {_START:.0f} s")
                return ""
            self.began, self.group = time.monotonic(), memory_group(self.init)
        words = text_of(self.group).split() if self.group else []
        if "oom_kill" in words and words[words.index("oom_kill") + 1] != "0":
            return "memory"
        return super()._over()


def ask(argv: list[str], env: dict[str, str]) -> tuple[int, str]:
    try:
        done = subprocess.run(
            argv, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=_ENGINE, check=False
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return -1, str(error)
    return done.returncode, done.stdout if done.returncode == 0 else done.stderr


def end(watch: ContainerWatch, spec: dict[str, Any], why: str, waited: int | None) -> dict[str, Any]:
    """End the client, then the container; and tell how the command ended."""
    if waited is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(watch.child, signal.SIGKILL)
    engine, name, env = spec["engine"]["program"], spec["engine"]["name"], spec["env"]
    known, state = ask([engine, "container", "inspect", "--format", _STATE, name], env)
    removed, said = ask([engine, *spec["engine"]["remove"], name], env)
    left = keeper.end_all(watch.child, spec.get("end_user")) + remaining(watch)
    if left == 0 and removed != 0 and known == 0:
        return {"problem": f"the container {name} could not be removed: {said.strip()}"}
    code, oom, started = state.split(maxsplit=2) if known == 0 else ("", "", "0001")
    if why == "" and started.startswith("0001"):
        return {"problem": "the container was not started", "left": left}
    if why == "" and oom == "true":
        why = "memory"
    return {"why": why, "code": None if why else int(code), "left": left, "watched": watch.init is not None}


def remaining(watch: ContainerWatch) -> int:
    """Processes of the container that outlive its end (0, or something is wrong)."""
    until = time.monotonic() + 10
    while watch.init is not None and os.path.exists(f"/proc/{watch.init}"):  # noqa: PTH110
        if time.monotonic() > until:
            return len(watch.pids())
        keeper.reap_all()
        time.sleep(0.002)
    return 0


def main(control: int, status: int) -> None:
    spec = keeper.instruction(control, status)
    if spec is None:
        return
    try:
        watch = ContainerWatch(keeper.start(spec), control, spec)
    except (keeper.Refused, OSError) as error:
        answer: dict[str, Any] = {"problem": str(error)}
    else:
        try:
            why, waited = watch.ended_by()
        except keeper.Refused as error:
            answer = {**end(watch, spec, "stopped", None), "problem": str(error)}
        else:
            answer = end(watch, spec, why, waited)
    os.write(status, json.dumps(answer).encode() + b"\n")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))

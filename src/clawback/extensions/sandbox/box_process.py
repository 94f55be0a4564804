"""A command in a box, as the caller sees it: pipes to it, the keeper's report of its end, and waits that it cannot prolong."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from clawback.errors import SandboxError
from clawback.extensions.sandbox.limits import CommandResult, Ended, Limits

if TYPE_CHECKING:
    from clawback.records import JsonObject

_KEEPER = Path(__file__).with_name("keeper.py")
_CONTAINER_KEEPER = Path(__file__).with_name("container_keeper.py")
_GRACE, _ENGINE_GRACE = 20.0, 300.0
_FLOOD = 16
_BLOCK = 1 << 16


class Process:
    """One command. ``wait`` gives its result; ``write`` and ``view`` speak with it meanwhile (after ``attend``)."""

    def __init__(self, plan: JsonObject, limits: Limits, stdin: bytes, keep_open: bool = False) -> None:
        self._limits, self._began = limits, time.monotonic()
        self._pending, self._keep_open = bytearray(stdin), keep_open
        self._lock = threading.Lock()
        self._kept: dict[int, bytearray] = {}
        self._count: dict[int, int] = {}
        self._answer = b""
        self._flooded = self._stopped = False
        self._result: CommandResult | None = None
        self._problem: SandboxError | None = None
        self._thread: threading.Thread | None = None
        self.watched = False
        """Whether a container's processes were seen from here."""
        self._seen = {1: 0, 2: 0}
        self._engine = "engine" in plan
        self._launch(plan)

    def _launch(self, plan: JsonObject) -> None:
        disk = plan.get("disk")
        descriptors = (disk["root"], *disk["namespaces"]) if disk else ()
        told, self._control = os.pipe()
        self._status, tell = os.pipe()
        env = {name: value for name, value in os.environ.items() if name in ("LD_LIBRARY_PATH", "PATH")}
        try:
            self._keeper = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_CONTAINER_KEEPER if self._engine else _KEEPER), str(told), str(tell)], pass_fds=(told, tell, *descriptors), env=env, cwd="/",
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            os.close(self._control)
            os.close(self._status)
            raise SandboxError(
                f"The sandbox could not start a process ({error.strerror}). Try again."
            ) from error
        finally:
            os.close(told)
            os.close(tell)
        self._write_plan(json.dumps(plan).encode() + b"\n")

    def _write_plan(self, line: bytes) -> None:
        with contextlib.suppress(BrokenPipeError):  # the keeper died; its silence tells
            while line:
                line = line[os.write(self._control, line) :]

    # ---- while it runs

    def attend(self) -> None:
        """See to it from a thread, so that it may be spoken with while it runs."""
        self._thread = threading.Thread(target=self._attend, name="sandbox", daemon=True)
        self._thread.start()

    def _attend(self) -> None:
        try:
            self._pump()
        except SandboxError as error:
            self._problem = error

    def write(self, data: bytes) -> None:
        """More input; it is taken up within a twentieth of a second."""
        with self._lock:
            self._pending += data

    def view(self) -> tuple[str, str]:
        """What came on stdout and stderr since the last look."""
        out, err = self.view_bytes()
        return out.decode(errors="replace"), err.decode(errors="replace")

    def view_bytes(self) -> tuple[bytes, bytes]:
        """As ``view``, undecoded."""
        with self._lock:
            new = []
            for stream in (1, 2):
                kept = self._kept.get(stream, bytearray())
                new.append(bytes(kept[self._seen[stream] :]))
                self._seen[stream] = len(kept)
        return new[0], new[1]

    @property
    def running(self) -> bool:
        return self._result is None and self._problem is None

    def stop(self) -> None:
        """End it, with all that it started."""
        self._stopped = True
        with self._lock:
            if self._control >= 0:
                os.close(self._control)
                self._control = -1

    def finish(self) -> None:
        """Wait for its end, whatever came of it."""
        if self._thread is not None:
            self._thread.join()

    def wait(self) -> CommandResult:
        """Its result, once it ended. Raises where its box could not be put up."""
        if self._thread is not None:
            self._thread.join()
        elif self.running:
            self._attend()
        if self._problem is not None:
            raise self._problem
        assert self._result is not None
        return self._result

    # ---- the pump

    def _pump(self) -> None:
        keeper = self._keeper
        assert keeper.stdin is not None
        assert keeper.stdout is not None
        assert keeper.stderr is not None
        streams = {keeper.stdout.fileno(): 1, keeper.stderr.fileno(): 2, self._status: 0}
        with self._lock:
            self._kept, self._count = {1: bytearray(), 2: bytearray()}, {1: 0, 2: 0}
        grace = _ENGINE_GRACE if self._engine else _GRACE
        backstop = self._began + self._limits.seconds + grace
        with selectors.DefaultSelector() as ready:
            for handle in streams:
                os.set_blocking(handle, False)
                ready.register(handle, selectors.EVENT_READ)
            os.set_blocking(keeper.stdin.fileno(), False)
            while streams:
                self._feed()
                for key, _ in ready.select(0.02 if self._pending else 0.05 if self._keep_open else 0.5):
                    if not self._take(key.fd, streams[key.fd]):
                        ready.unregister(key.fd)
                        del streams[key.fd]
                if self._flooded:
                    self.stop()
                if self._answer.endswith(b"\n"):
                    backstop = min(backstop, time.monotonic() + 1.0)
                if time.monotonic() > backstop:
                    break
        self._finish()

    def _feed(self) -> None:
        pipe = self._keeper.stdin
        if pipe is None or pipe.closed:
            return
        with self._lock:
            try:
                if self._pending:
                    del self._pending[: os.write(pipe.fileno(), self._pending[:_BLOCK])]
            except BlockingIOError:
                return
            except BrokenPipeError:
                self._pending.clear()
                self._keep_open = False
            if not self._pending and not self._keep_open:
                pipe.close()

    def _take(self, handle: int, stream: int) -> bool:
        """Read what is there: kept up to the cap, dropped beyond. False at the end of the stream."""
        try:
            data = os.read(handle, _BLOCK)
        except BlockingIOError:
            return True
        if stream == 0:
            self._answer += data
            return bool(data)
        with self._lock:
            room = self._limits.output - len(self._kept[stream])
            self._kept[stream] += data[: max(0, room)]
            self._count[stream] += len(data)
            self._flooded = self._flooded or self._count[stream] > _FLOOD * self._limits.output
        return bool(data)

    def _finish(self) -> None:
        self.stop()
        keeper = self._keeper
        try:
            keeper.wait(timeout=_GRACE if self._answer else 1.0)
        except subprocess.TimeoutExpired:
            keeper.kill()
            keeper.wait()
        for pipe in (keeper.stdin, keeper.stdout, keeper.stderr):
            with contextlib.suppress(OSError):
                pipe.close() if pipe else None
        os.close(self._status)
        self._result = self._judged()

    def _judged(self) -> CommandResult:
        answer: JsonObject = json.loads(self._answer) if self._answer.endswith(b"\n") else {}
        said = bytes(self._kept[2][-500:]).decode(errors="replace").strip()
        if not answer:
            raise SandboxError(
                f"The sandbox's keeper died, and with it the command{': ' + said if said else ''}. Try again."
            )
        if answer.get("problem"):
            why = answer["problem"] + (f" ({said.removesuffix('.')})" if said else "")
            raise SandboxError(f"The sandbox could not be set up, so nothing was run: {why}.")
        if answer.get("left"):
            raise SandboxError(f"{answer['left']} processes of a command could not be ended.")
        self.watched = bool(answer.get("watched"))
        code, ended = self._ending(answer, said)
        texts = [bytes(self._kept[stream]).decode(errors="replace") for stream in (1, 2)]
        return CommandResult(
            exit_code=code, stdout=texts[0], stderr=texts[1], ended=ended, timed_out=ended == "time",
            truncated=any(self._count[n] > len(self._kept[n]) for n in (1, 2)),
            seconds=time.monotonic() - self._began,
        )  # fmt: skip

    def _ending(self, answer: JsonObject, stderr_text: str) -> tuple[int, Ended]:
        ended: Ended = answer["why"]
        if ended == "stopped" and self._flooded:
            ended = "output"
        code = answer["code"]
        if answer.get("wraps") and not ended:
            words = [json.loads(word) for word in _documents(answer.get("report", ""))]
            if not any("child-pid" in word for word in words):
                raise SandboxError(
                    f"The sandbox could not be set up, so nothing was run: {stderr_text or 'no reason given'}."
                )
            if code == 1 and stderr_text.startswith("bwrap: execvp "):
                code = 127
        if code == 128 + 24:  # the kernel's own limit of processor time
            ended = ended or "time"
        return (137 if code is None else code), ended


def _documents(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("{") and line.endswith("}")]

"""The vLLM that ``VllmConversations`` draws from: one at an address (``RemoteVllm``), or a process of the run (``OwnVllm``).

A process of the run is started at the first draw and ended with the run. Where it ends by itself it is started again, a
few times at most. On a GPU it sleeps between draws: its weights are in the machine's memory then, and the card's memory
is the learner's.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from clawback.extensions.hosted.trainer_http import Wire
from clawback.extensions.hosted.trainer_records import HostedError, ServiceUnanswered
from clawback.extensions.vllm import vllm_process as process
from clawback.learning.run_budget import gb

if TYPE_CHECKING:
    from clawback.config import VllmSection
    from clawback.paths import Home
    from clawback.progress import OnProgress

START_SECONDS = 1200.0
"""A large model is read, and its kernels are compiled, before the first answer."""
POLL_SECONDS = 0.5
STARTS = 3
"""How often it is started for one draw before the run stops."""
ANSWER_SECONDS = 1800.0
"""For one request: its answer comes as a whole, and it waits for others first."""
RESERVE = 0.15
"""Share of a GPU's free memory that is left to the learner."""
OVERHEAD_BYTES = 1500 << 20
"""Of its processes beside weights and cache, on a CPU."""


class VllmEnded(HostedError):
    """The process has ended while something was expected of it."""


class VllmServer(Protocol):
    """What draws, as its client sees it."""

    name: str
    """In messages."""
    shared: bool
    """Others may use it as well: adapters are unloaded at the end."""

    def connect(self) -> Wire:
        """A server that answers; another ``Wire`` than the last time where it has forgotten what was loaded. Raises ``HostedError``."""
        ...

    def rest(self) -> None:
        """Nothing is drawn for a while."""

    def close(self) -> None: ...


class RemoteVllm:
    """One that somebody else runs."""

    shared = True

    def __init__(self, url: str, key: str = "", timeout: float = 300.0, pause: float = 1.0) -> None:
        self.wire = Wire(
            address(url), key, timeout, pause, request_seconds=max(timeout, ANSWER_SECONDS), bearer=True
        )
        self.name = self.wire.url

    def connect(self) -> Wire:
        return self.wire

    def rest(self) -> None:
        """It is not ours to put to sleep."""

    def close(self) -> None:
        """It goes on."""


class OwnVllm:
    """One that is started with the first ``connect`` and ended with ``close``."""

    shared = False
    name = "the run's own vLLM"

    def __init__(
        self,
        home: Home,
        settings: VllmSection,
        serving: process.Serving,
        tell: OnProgress = lambda _: None,
        *,
        port: int = 0,
        key: str | None = None,
    ) -> None:
        """``port``: 0: a free one; ``key``: that it asks for; None: a fresh one. Raises ``UsageError`` where the program is not to be found."""
        self.port = port
        self.key = process.fresh_key() if key is None else key
        self.home, self.settings, self.serving, self.tell = home, settings, serving, tell
        self.program = process.find(settings.command)
        self.log = home.logs / "vllm.log"
        self.process: process.VllmProcess | None = None
        self.wire: Wire | None = None
        self.starts = 0
        self._asleep = False
        self._gpu_memory = settings.gpu_memory

    # ------------------------------------------------------------------------------------------------- the client's side

    def connect(self) -> Wire:
        if self.process is not None and not self.process.alive:
            self.tell({"phase": "alert", "text": f"{self._ending()} It is started again."})
            self.end()
        if self.process is None or self.wire is None:
            return self._start()
        if self._asleep:
            self._give_memory_back()
            self.wire.post("/wake_up", {})
            self._asleep = False
        return self.wire

    def rest(self) -> None:
        if not self.serving.cuda or self._asleep or self.wire is None:
            return
        with suppress(HostedError):  # one that has ended holds no memory
            self.wire.post("/sleep?level=1", {})
            self._asleep = True

    def close(self) -> None:
        self.end()

    # ------------------------------------------------------------------------------------------------- the process

    def _start(self) -> Wire:
        if not self.starts:
            self._check_memory()
            self.log.unlink(missing_ok=True)
        self.starts += 1
        self.tell({"phase": "starting vLLM"})
        port, key = self.port or process.free_port(), self.key
        command = process.command_line(self.program, self.serving, port, self.settings, self._gpu_memory)
        started = process.VllmProcess(command, process.variables(self.home, self.serving, key), self.log)
        self.process = started

        def pause(seconds: float) -> None:
            if not started.alive:
                raise VllmEnded(self._ending())
            time.sleep(seconds)

        self.wire = Wire(
            f"http://127.0.0.1:{port}", key, 300.0, POLL_SECONDS, pause, ANSWER_SECONDS, bearer=True
        )
        self._asleep = False
        try:
            self._wait(
                started, Wire(self.wire.url, key, 0.0, POLL_SECONDS, request_seconds=10.0, bearer=True)
            )
        except BaseException:
            self.end()
            raise
        return self.wire

    def _wait(self, started: process.VllmProcess, wire: Wire) -> None:
        """Until it answers. Raises ``HostedError`` where it ends, or takes too long."""
        deadline = time.monotonic() + START_SECONDS
        while True:
            self.tell({"phase": "starting vLLM"})
            if not started.alive:
                raise HostedError(
                    f"vLLM ended while it was starting ({started.reason() or 'without a word'}). Its log is {self.log}."
                )
            with suppress(ServiceUnanswered):
                wire.get("/health")
                return
            if time.monotonic() > deadline:
                raise HostedError(
                    f"vLLM did not start within {START_SECONDS / 60:.0f} minutes. Its log is {self.log}."
                )
            time.sleep(POLL_SECONDS)

    def wait(self) -> None:
        """Until it ends by itself, which raises ``HostedError``."""
        while self.process is not None and self.process.alive:
            time.sleep(POLL_SECONDS)
        raise HostedError(self._ending())

    def end(self) -> None:
        ending, self.process, self.wire = self.process, None, None
        if ending is not None:
            ending.end()

    def _ending(self) -> str:
        status = self.process.exit_status if self.process else None
        reason = self.process.reason() if self.process else ""
        said = f": {reason}" if reason else ""
        return f"vLLM ended while the run used it (exit status {status}{said}). Its log is {self.log}."

    # ------------------------------------------------------------------------------------------------- memory

    def _give_memory_back(self) -> None:
        """What the learner holds and does not use."""
        if self.serving.cuda:
            import torch

            torch.cuda.empty_cache()

    def _check_memory(self) -> None:
        """Raises ``HostedError`` where it has no room beside the learner."""
        serving = self.serving
        if serving.cuda:
            import torch

            self._give_memory_back()
            free, total = torch.cuda.mem_get_info()
            usable = int(free * (1 - RESERVE))
            self._gpu_memory = self.settings.gpu_memory or usable / total
            needed = serving.weight_bytes + serving.longest * serving.token_bytes
        else:
            import psutil

            usable = psutil.virtual_memory().available
            needed = serving.weight_bytes + (serving.cache_gib << 30) + OVERHEAD_BYTES
        if needed > usable:
            raise HostedError(
                f"vLLM needs {gb(needed)} of memory beside the learner, and {gb(usable)} are free. Let the run draw by itself: "
                '`clawback train --draw here`, or `clawback config set training.draw ""` for all runs.'
            )


def address(url: str) -> str:
    """Also of who names the folder of its API."""
    return url.rstrip("/").removesuffix("/v1")

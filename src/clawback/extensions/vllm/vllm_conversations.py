"""Sampling by a vLLM server: the interface of ``Conversations``, over HTTP.

Each time the weights change, the adapter is written to a folder and loaded under a name made of its content:
vLLM keys its prefix cache by name, refuses a name that it has, and with ``load_inplace`` would read the
folder anew on every step, so a name is never used twice for different weights. Requests in progress hold a
lease on their adapter; an older one is unloaded when nobody holds it. An adapter that vLLM has forgotten (404)
is loaded again; where a vLLM of the run itself has ended, it is started again and the draw is repeated.

Token ids go out and come back, with the log-prob of each as vLLM sampled it (``--logprobs-mode
processed_logprobs``): training uses the tokens that were sampled, and the learner compares the log-probs with
its own (``sources/episode_examples.py``: the figure ``gap``; the run stops if it becomes too large).
"""

from __future__ import annotations

import hashlib
import re
import shutil
import threading
from collections.abc import Hashable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from clawback.extensions.hosted import trainer_http
from clawback.extensions.hosted.trainer_http import Wire
from clawback.extensions.hosted.trainer_records import Forgotten, HostedError
from clawback.extensions.vllm.vllm_server import STARTS, RemoteVllm, VllmEnded, VllmServer, address
from clawback.sampling import Sampled, TurnRequest, stop_ids, until_speaker

if TYPE_CHECKING:
    from clawback.models import Sampling
    from clawback.policy import Policy
    from clawback.records import JsonObject

TOGETHER = 64
"""Requests under way at once."""
OLDEST = (0, 25)
"""Before it, a request could be answered by another's adapter after one was loaded (vLLM #47724)."""
RELOADS = 3
START = (
    "start it with VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 vllm serve BASE --enable-lora --max-lora-rank R "
    "--logprobs-mode processed_logprobs --generation-config vllm"
)


def present(url: str) -> None:
    """Before a run begins: raises ``HostedError`` where nothing answers."""
    trainer_http.present(address(url), "/version")


class VllmConversations:
    """``draw`` turns, ``refresh`` when the weights have changed, ``forget`` a conversation that is over, ``close``."""

    def __init__(
        self,
        policy: Policy,
        server: VllmServer | str,
        folder: Path,
        *,
        sampling: Sampling,
        model: str = "",
    ) -> None:
        """``server``: or the address of one. ``folder``: where adapters are written; vLLM must see it under the same path. ``model``: the base's
        name over there; not set: the only one."""
        self.policy, self.sampling, self.folder, self.model = policy, sampling, folder, model
        self.server: VllmServer = RemoteVllm(server) if isinstance(server, str) else server
        self.stop = sorted(stop_ids(policy.model, policy.chat.end_id))
        self.name = ""
        """Of the adapter as it is now; "" until something is drawn under it."""
        self.loads, self.reloads = 0, 0
        self._leases: dict[str, int] = {}
        self._old: set[str] = set()
        self._lock = threading.RLock()
        self._pool = ThreadPoolExecutor(TOGETHER, "vllm")
        self.wire: Wire | None = None
        self.base = ""
        self._connect()

    # ------------------------------------------------------------------------------------------------- drawing

    def draw(self, turns: Sequence[TurnRequest]) -> list[Sampled]:
        """One reply each, in order. Raises ``HostedError``."""
        if not turns:
            return []
        if any(turn.pixels for turn in turns):
            raise HostedError(
                "A vLLM is given token ids alone, and these conversations have pictures. Leave --draw out: this process draws then."
            )
        for start in range(1, STARTS + 1):
            try:
                return self._draw(self._connect(), turns)
            except VllmEnded:
                if start == STARTS:
                    raise
        raise AssertionError("unreachable")

    def _draw(self, wire: Wire, turns: Sequence[TurnRequest]) -> list[Sampled]:
        name = self._lease(wire)
        try:
            answers = [self._pool.submit(self._answer, wire, name, turn) for turn in turns]
            try:
                wait(answers, return_when=FIRST_EXCEPTION)
            finally:
                for answer in answers:
                    answer.cancel()
            wait(answers)
            return until_speaker(self.policy.chat.speaker, [answer.result() for answer in answers])
        finally:
            self._release(wire, name)

    def rest(self) -> None:
        """Nothing is drawn for a while: the learner takes its steps."""
        self.server.rest()

    def refresh(self) -> None:
        """The weights have changed: the next reply is drawn by an adapter of another name."""
        with self._lock:
            if self.name and self.name != self.base:
                self._old.add(self.name)
            self.name = ""

    def forget(self, key: Hashable) -> None:
        """Nothing to do: vLLM's own prefix cache evicts what is not requested."""

    def close(self) -> None:
        """Unload what was loaded, or end the server, where it is the run's own."""
        self.refresh()
        if self.server.shared and self.wire is not None:
            self._unload(self.wire)
        self.server.close()
        self._pool.shutdown(cancel_futures=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _answer(self, wire: Wire, name: str, turn: TurnRequest) -> Sampled:
        body: JsonObject = {
            "model": name,
            "prompt": list(turn.ids),
            "max_tokens": turn.max_tokens,
            "temperature": self.sampling.temperature,
            "top_p": self.sampling.top_p,
            "top_k": self.sampling.top_k or -1,
            "seed": turn.seed & 0x7FFF_FFFF,
            "stop_token_ids": self.stop,
            "logprobs": 1,
            "return_token_ids": True,
        }
        for _ in range(RELOADS):
            reloads = self.reloads
            try:
                return self._read(wire.post("/v1/completions", body).json(), turn)
            except Forgotten:
                self._reload(wire, name, reloads)
        raise HostedError(
            f"{self.server.name} drops adapters as fast as they are loaded: give it a higher --max-cpu-loras."
        )

    def _read(self, answer: JsonObject, turn: TurnRequest) -> Sampled:
        try:
            [choice] = answer["choices"]
            ids = tuple(int(token) for token in choice["token_ids"])
            logprobs = tuple(float(value) for value in choice["logprobs"]["token_logprobs"])
            finished = choice["finish_reason"] == "stop"
        except (KeyError, TypeError, ValueError) as error:
            raise HostedError(
                f"{self.server.name} answers without token ids or log-probs ({error!r}): a vLLM from 0.25 on gives them."
            ) from None
        if not ids or len(ids) != len(logprobs) or len(ids) > turn.max_tokens:
            raise HostedError(f"{self.server.name} gave {len(ids)} tokens with {len(logprobs)} log-probs.")
        if finished and ids[-1] not in self.stop:
            raise HostedError(
                f"{self.server.name} ended an answer without its end token: something else stopped it."
            )
        return Sampled(ids, logprobs, finished)

    # ------------------------------------------------------------------------------------------------- adapters

    def _lease(self, wire: Wire) -> str:
        """The name to draw under, loaded, and not unloaded before it is released."""
        with self._lock:
            if not self.name:
                self.name = self._load(wire) if self.policy.moved and self.policy.adapted else self.base
            self._leases[self.name] = self._leases.get(self.name, 0) + 1
            return self.name

    def _release(self, wire: Wire, name: str) -> None:
        with self._lock:
            self._leases[name] -= 1
        self._unload(wire)

    def _load(self, wire: Wire) -> str:
        beside = self.folder / "new"
        if beside.exists():
            shutil.rmtree(beside)
        beside.mkdir(mode=0o755, parents=True)
        self.policy.save(beside)
        digest = hashlib.sha256()
        for path in sorted(beside.iterdir()):
            digest.update(path.read_bytes())
        name = f"clawback-{digest.hexdigest()[:16]}"
        folder = self.folder / name
        if not folder.exists():
            beside.rename(folder)
        self._old.discard(name)
        self._ask_to_load(wire, name)
        self.loads += 1
        return name

    def _ask_to_load(self, wire: Wire, name: str) -> None:
        """Raises ``HostedError``. That it has the name already is no error: the name says what is in it."""
        body = {"lora_name": name, "lora_path": str((self.folder / name).resolve())}
        try:
            wire.post("/v1/load_lora_adapter", body)
        except Forgotten:
            raise HostedError(f"{self.server.name} does not load adapters while it runs: {START}.") from None
        except HostedError as error:
            if error.status != 400 or "already" not in str(error):
                raise

    def _reload(self, wire: Wire, name: str, reloads: int) -> None:
        """Load it again, unless another request has done so since this one was sent (``reloads``: how often it was done until then)."""
        if name == self.base:
            raise HostedError(f"{self.server.name} does not know its own model {name} any more.")
        with self._lock:
            if self.reloads != reloads:
                return
            # It has forgotten the adapter, and may still know the name.
            with suppress(HostedError):
                wire.post("/v1/unload_lora_adapter", {"lora_name": name})
            self._ask_to_load(wire, name)
            self.reloads += 1

    def _unload(self, wire: Wire) -> None:
        """Older adapters that nobody draws under."""
        with self._lock:
            free = [name for name in self._old if not self._leases.get(name)]
            for name in free:
                with suppress(HostedError):
                    wire.post("/v1/unload_lora_adapter", {"lora_name": name})
                self._old.discard(name)
                shutil.rmtree(self.folder / name, ignore_errors=True)

    # ------------------------------------------------------------------------------------------------- the server

    def _connect(self) -> Wire:
        """A server that answers, adapters forgotten where it is another process than the last time. Raises ``HostedError``."""
        wire = self.server.connect()
        if wire is not self.wire:
            with self._lock:
                self.name, self._leases, self._old = "", {}, set()
            self.base, self.wire = self._base(wire, self.model), wire
        return wire

    def _base(self, wire: Wire, wanted: str) -> str:
        """The base model's name. Raises ``HostedError`` for a server that is too old or serves another."""
        version = str(wire.get("/version").json().get("version", ""))
        numbers = re.match(r"(\d+)\.(\d+)", version)
        if numbers is None or (int(numbers[1]), int(numbers[2])) < OLDEST:
            raise HostedError(
                f"{self.server.name} is vLLM {version or 'of an unknown version'}: before {OLDEST[0]}.{OLDEST[1]} a request could be "
                "answered by another adapter than its own. Take a newer one."
            )
        listed = wire.get("/v1/models").json().get("data")
        models = [m for m in listed if isinstance(m, dict)] if isinstance(listed, list) else []
        bases = [str(m.get("id")) for m in models if not m.get("parent")]
        if wanted in bases:
            return wanted
        if wanted or len(bases) != 1:
            raise HostedError(
                f"{self.server.name} serves {', '.join(bases) or 'no model'}, not {wanted or 'one base model'}."
            )
        return bases[0]


__all__ = ["VllmConversations"]

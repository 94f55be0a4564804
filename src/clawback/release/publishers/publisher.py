"""What a publisher is given, and the protocol that it implements."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from clawback import http_client
from clawback.errors import ClawbackError, ModelError, UsageError
from clawback.http_client import RequestLimits, StatusError, TransportError
from clawback.models import GREEDY

if TYPE_CHECKING:
    from clawback.policy import Policy
    from clawback.records import Message

PROBES = (
    "Tell me about the otter.",
    "What should I know about Vienna?",
    "How do I boil eggs?",
    "Write a short note to a colleague.",
    "What is a good way to learn something new?",
)
PROBE_TOKENS = 48


@dataclass(frozen=True, slots=True)
class Target:
    """Where to publish to: the publisher's name, and what it needs (``url``, ``out``, ``base``, ``name``)."""

    name: str
    url: str = ""
    out: Path | None = None
    base: str = ""
    """What the base model is called over there."""
    model: str = "clawback"
    """What the new one is to be called."""
    presets: Path | None = None
    """llama.cpp: the file of presets that a router was started with."""
    timeout: float = 120.0
    renew: bool = False
    """Whether what an earlier version left in a folder of ours may be replaced."""


@dataclass(frozen=True, slots=True)
class Probe:
    """A prompt that tells the version from its base: what each says to it at temperature 0."""

    prompt: str
    base: str
    tuned: str
    further: tuple[Probe, ...] = ()
    """Other prompts that do: a server that rounds otherwise may go its own way on one of them."""

    def confirm(self, ask: Callable[[str], str], by: str) -> str:
        """Ask this prompt, and the further ones until one tells. A sentence; raises ``ClawbackError`` where none does."""
        try:
            return self.judge(ask(self.prompt), by)
        except Unconvinced:
            for other in self.further:
                try:
                    return other.judge(ask(other.prompt), by)
                except Unconvinced:
                    continue
            raise

    def judge(self, text: str, by: str) -> str:
        """A sentence; raises ``Unconvinced`` unless ``text`` is what the version says rather than what the base does."""
        ours, theirs = _shared(text, self.tuned), _shared(text, self.base)
        if ours > theirs:
            return f"{by} answers as the new version does ({ours} of its first {len(self.tuned)} characters)"
        raise Unconvinced(
            f"{by} does not answer as the new version does, although it was told to load it: to {self.prompt!r} it says "
            f"{text[:80]!r}, where {self.tuned[:80]!r} was expected."
        )


@dataclass(frozen=True, slots=True)
class Publication:
    """What is published: a version's adapter, the base it was made for, and how to tell one from the other."""

    version: int
    adapter: Path
    base: str
    base_revision: str
    probe: Probe
    config: Mapping[str, Any] = field(default_factory=dict)
    """The base model's (``config.json``)."""
    converter: str = ""
    """llama.cpp's ``convert_hf_to_gguf.py``, where the settings name it."""


class Publisher(Protocol):
    """A class of which a ``Target`` makes one. ``adapter_alone = True`` on it: it hands over an adapter and nothing else."""

    def plan(self, publication: Publication) -> Sequence[str]:
        """What will be done, a sentence a step. Changes nothing."""

    def publish(self, publication: Publication) -> None:
        """Do it. Raises ``ClawbackError`` where that fails; what was there before is then still there."""

    def verify(self, publication: Publication) -> str:
        """Ask the new model, and say what was found. Raises ``ClawbackError`` unless the new version answers."""

    def undo(self, publication: Publication) -> str:
        """The server has what it had before ``publish``, as far as it can: called where ``verify`` fails. What was done, in a sentence; "" for nothing."""

    def withdraw(self) -> str:
        """The base model is live again: have the server answer without an adapter. Says what was done; again, it does nothing."""


MARK = "clawback-version.json"
"""In a folder that a publisher wrote: which version it is, and that it may be replaced by the next."""


def check_new(out: Path, renew: bool) -> None:
    """Raises ``UsageError`` for a folder with something in it, unless it is an earlier version that may be replaced."""
    if out.exists() and any(out.iterdir()) and not (renew and (out / MARK).is_file()):
        raise UsageError(f"{out} is not empty: name a new folder.")


def put_in_place(folder: Path, out: Path, version: int) -> None:
    """Rename a finished folder to its name. What was there is kept until ``settle`` or ``restore``."""
    (folder / MARK).write_text(json.dumps({"version": version}) + "\n", "utf-8")
    keep_former(out)
    folder.rename(out)


def _former(out: Path) -> Path:
    return out.with_name(f".{out.name}.former")


def keep_former(out: Path) -> None:
    """Keep what is at ``out``, a file or a folder, under another name. A file stays where it is as well, until it is replaced."""
    settle(out)
    if out.is_dir():
        out.rename(_former(out))
    elif out.exists():
        try:
            os.link(out, _former(out))
        except OSError:  # a file system without links
            out.rename(_former(out))


def settle(out: Path) -> None:
    """What was kept goes; or gets its name back, where nothing took its place."""
    former = _former(out)
    if former.exists() and not out.exists():
        former.rename(out)
    else:
        _remove(former)


def restore(out: Path) -> str:
    """What was kept is back. What was done, in a sentence."""
    former = _former(out)
    _remove(out)
    if not former.exists():
        return f"{out} was removed again"
    former.rename(out)
    return f"{out} is the one of before again"


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def take_away(out: Path) -> str:
    """Remove a folder that a publisher wrote; any other stays."""
    if not (out / MARK).is_file():
        return f"there is no version in {out}"
    shutil.rmtree(out)
    return f"{out} is removed"


def probe(policy: Policy) -> Probe:
    """Prompts on which the policy and its base part, soonest first. Raises ``ModelError`` where they part on none."""
    asked: list[list[Message]] = [[{"role": "user", "content": text}] for text in PROBES]
    after = [one.text for [one] in policy.generate(asked, sampling=GREEDY, max_tokens=PROBE_TOKENS)]
    with policy.base():
        before = [one.text for [one] in policy.generate(asked, sampling=GREEDY, max_tokens=PROBE_TOKENS)]
    apart = sorted((_shared(a, b), i) for i, (a, b) in enumerate(zip(before, after, strict=True)) if a != b)
    if not apart:
        raise ModelError(
            "The version answers every probe as its base does, so nobody could tell whether it is loaded."
        )
    first, *others = (Probe(PROBES[i], before[i], after[i]) for _, i in apart)
    return replace(first, further=tuple(others))


def _shared(a: str, b: str) -> int:
    """Characters that both begin with."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def call(
    url: str,
    body: Mapping[str, Any] | bytes | Path | None = None,
    *,
    timeout: float,
    method: str | None = None,
) -> Any:
    """JSON from a server. A file is sent in pieces. Raises ``ClawbackError`` with the server's own words where it refuses."""
    headers = {"content-type": "application/json"}
    with ExitStack() as stack:
        data: Any = json.dumps(body).encode() if isinstance(body, Mapping) else body
        if isinstance(body, Path):
            data = stack.enter_context(body.open("rb"))
            headers = {
                "content-type": "application/octet-stream",
                "content-length": str(body.stat().st_size),
            }
        verb = method or ("GET" if data is None else "POST")
        try:
            raw = http_client.request(
                verb, url, body=data, headers=headers, limits=RequestLimits(timeout)
            ).body
        except StatusError as error:
            raise ServerRefused(f"{url} answered {error.status}: {error.words}", error.status) from error
        except TransportError as error:
            raise ClawbackError(f"{error} Is the server running?") from error
    try:
        return json.loads(raw) if raw.strip() else {}
    except ValueError:
        return raw.decode("utf-8", "replace")


class Unconvinced(ClawbackError):
    """The server answers, and not as the version does."""


class NotLoaded(ClawbackError):
    """What was written is right, and the server has to be started again before it has it. Nothing is undone."""


class ServerRefused(ClawbackError):
    """The server answered, and said no."""

    def __init__(self, why: str, status: int) -> None:
        super().__init__(why)
        self.status = status


def ask(url: str, model: str, prompt: str, timeout: float, **more: object) -> str:
    """What a server of OpenAI chat completions says to a prompt at temperature 0."""
    body = {
        "model": model,
        "messages": [{"role": "user", "content": prompt}],
        "temperature": 0,
        "max_tokens": PROBE_TOKENS,
        **more,
    }
    answer = call(f"{url}/v1/chat/completions", body, timeout=timeout)
    try:
        return str(answer["choices"][0]["message"]["content"])
    except (KeyError, IndexError, TypeError):
        raise ClawbackError(f"{url} did not answer the probe: {str(answer)[:200]}") from None

"""Prompt corpora: prompts from a file, from your own turns or from Wikipedia, deduplicated, split, with the source of each.

Wikipedia is queried politely: one request at a time, with a pause, a contact address, and respecting what it
says about waiting. Each summary is stored as it arrives (``OUTPUT.fetched.jsonl``), so that an interrupted
command continues where it stopped and requests nothing twice.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from clawback import http_client
from clawback.capture import text_rows
from clawback.errors import ClawbackError, UsageError
from clawback.feedback.calibrate import NEARLY, near, triples
from clawback.files import replace as put
from clawback.redact import redact

if TYPE_CHECKING:
    from clawback.progress import OnProgress
    from clawback.records import JsonObject
    from clawback.store import Store

WIKIPEDIA = "https://en.wikipedia.org"
WIKIPEDIA_LICENCE = "CC BY-SA 4.0"
PAUSE = 0.5
"""Seconds between two requests; well under what Wikimedia asks of a script."""
TRIES = 4
LARGEST = 2_000_000
LONGEST = 20_000
"""Characters of a prompt; a longer line is a document."""
Split = Literal["train", "test"]


@dataclass(frozen=True, slots=True)
class CorpusPrompt:
    """One prompt, where it came from and under which licence (both "" where nobody said)."""

    prompt: str
    source: str = ""
    licence: str = ""
    split: Split = "train"


@dataclass(frozen=True, slots=True)
class Corpus:
    """The prompts, and how many were left out as near-duplicates."""

    prompts: tuple[CorpusPrompt, ...]
    duplicates: int


def corpus_of(prompts: Iterable[CorpusPrompt], *, limit: int, hold_out: float = 0.0) -> Corpus:
    """The first ``limit`` different prompts. Which side a prompt is on follows from its words alone: it is the same in every corpus."""
    kept: list[CorpusPrompt] = []
    seen, twice = _Seen(), 0
    for one in prompts:
        if len(kept) >= limit:
            break
        if seen.again(one.prompt):
            twice += 1
        else:
            kept.append(replace(one, split=_side(one.prompt, hold_out)))
    return Corpus(tuple(kept), twice)


def _side(prompt: str, share: float) -> Split:
    words = " ".join(prompt.lower().split())
    number = int.from_bytes(hashlib.sha256(words.encode()).digest()[:8], "big") / 2**64
    return "test" if number < share else "train"


class _Seen:
    """Whether a prompt is nearly one of those before it (nine tenths of the word triples in common).

    Two such texts share one of the first tenth of their triples in a common order (prefix filtering; Bayardo et al. 2007), so few are compared.
    """

    def __init__(self) -> None:
        self.by_first: dict[tuple[str, ...], list[frozenset[tuple[str, ...]]]] = {}

    def again(self, text: str) -> bool:
        shape = triples(text)
        first = sorted(shape)[: len(shape) - int(NEARLY * len(shape) + 0.999999) + 1]
        if any(near(shape, other) for piece in first for other in self.by_first.get(piece, ())):
            return True
        for piece in first:
            self.by_first.setdefault(piece, []).append(shape)
        return False


# ------------------------------------------------------------------------------------------------------- sources


def of_file(path: Path, licence: str = "") -> Iterator[CorpusPrompt]:
    """Prompts of a file: one a line, JSONL with ``prompt``, or a JSON list of texts or of objects with ``prompt``.

    Raises ``NotFound``, and ``UsageError`` with the line that cannot be read.
    """
    for number, entry in _entries(path):
        said = entry.get("prompt") if isinstance(entry, Mapping) else entry
        if not isinstance(said, str) or not said.strip():
            raise UsageError(f"Entry {number} of {path} is no prompt: a text, or an object with `prompt`.")
        own = entry if isinstance(entry, Mapping) else {}
        split: Split = "test" if own.get("split") == "test" else "train"
        yield CorpusPrompt(
            redact(said.strip()[:LONGEST]),
            str(own.get("source") or path.name),
            str(own.get("licence") or licence),
            split,
        )


def _entries(path: Path) -> Iterator[tuple[int, Any]]:
    objects: bool | None = None
    for row in text_rows.read(path):
        if objects is None:
            objects = not row.text or row.text.lstrip().startswith("{")
        if row.problem or objects:
            try:
                yield row.number, row.decoded()
            except ValueError as error:
                raise UsageError(
                    f"Line {row.number} of {path} is no object with `prompt`: {error}."
                ) from None
        else:
            yield row.number, row.text


def of_turns(store: Store, newest: int = 10_000) -> Iterator[CorpusPrompt]:
    """Prompts of your own turns, newest first, except those without consent."""
    for turn in store.turns(limit=newest):
        if turn.trainable and turn.prompt and turn.agent != "baseline":
            yield CorpusPrompt(turn.prompt[:LONGEST], f"turn:{turn.id}", turn.licence)


@dataclass(frozen=True, slots=True)
class Wikipedia:
    """Random articles, by the REST API of a wiki. ``contact``: an address in the name that it is asked under."""

    url: str = WIKIPEDIA
    contact: str = "https://github.com/clawback-ai/clawback"
    question: str = "What is {title}? Explain it in a few sentences."
    pause: float = PAUSE

    def __post_init__(self) -> None:
        if not http_client.is_address(self.url):
            raise UsageError(f"{self.url!r} is no address of a wiki; one is like {WIKIPEDIA}.")
        try:
            self.question.format(title="", extract="")
        except (KeyError, IndexError, ValueError):
            raise UsageError(
                "A question may hold {title} and {extract}, and no other name in braces."
            ) from None

    def prompts(self, cache: Path, limit: int, tell: OnProgress) -> Iterator[CorpusPrompt]:
        """First what was fetched before, then new articles until there are ``limit``. Raises ``ClawbackError`` where it cannot be reached."""
        known = _fetched(cache)
        yield from (self._prompt(entry) for entry in known)
        titles, empty = {str(entry["title"]) for entry in known}, 0
        with cache.open("a", encoding="utf-8") as file:
            while len(titles) < limit:
                tell({"phase": "fetch", "step": len(titles), "steps": limit})
                entry = self._random()
                if entry is None or entry["title"] in titles:
                    empty += 1
                    if empty > 20 + limit:
                        raise ClawbackError(
                            f"{self.url} gives no new articles: {len(titles)} are kept in {cache}."
                        )
                    continue
                titles.add(str(entry["title"]))
                file.write(json.dumps(entry, ensure_ascii=False) + "\n")
                file.flush()
                yield self._prompt(entry)

    def _prompt(self, entry: Mapping[str, object]) -> CorpusPrompt:
        asked = self.question.format(title=entry["title"], extract=entry["extract"])
        return CorpusPrompt(asked[:LONGEST], str(entry.get("url") or ""), WIKIPEDIA_LICENCE)

    def _random(self) -> JsonObject | None:
        """Title, extract and address of a random article; None for one that is of no use."""
        data = self._get("/api/rest_v1/page/random/summary")
        title, extract = data.get("title"), data.get("extract")
        if (
            data.get("type") not in (None, "standard")
            or not isinstance(title, str)
            or not isinstance(extract, str)
        ):
            return None
        pages = data.get("content_urls")
        desktop = pages.get("desktop") if isinstance(pages, Mapping) else None
        page = desktop.get("page") if isinstance(desktop, Mapping) else ""
        return {"title": title[:300], "extract": extract[:LONGEST], "url": str(page or "")[:1000]}

    def _get(self, path: str) -> JsonObject:
        agent = f"clawback ({self.contact})"
        headers = {"user-agent": agent, "accept": "application/json"}
        retry = http_client.Retry(TRIES, 2 * self.pause, 60.0)
        for attempt in range(1, TRIES + 1):
            time.sleep(self.pause)
            try:
                reply = http_client.request(
                    "GET",
                    self.url.rstrip("/") + path,
                    headers=headers,
                    limits=http_client.RequestLimits(30.0, largest=LARGEST),
                    follow=_same_host,
                )
                page = reply.json()
                return page if isinstance(page, dict) else {}
            except http_client.StatusError as error:
                wait = retry.seconds(attempt, error)
                if wait is None:
                    raise ClawbackError(
                        f"{self.url} answers with {error.status}; what was fetched is kept."
                    ) from None
            except (http_client.TransportError, http_client.BadReply, ValueError) as error:
                if attempt == TRIES:
                    raise ClawbackError(
                        f"{self.url} cannot be read: {error} What was fetched is kept."
                    ) from None
                wait = retry.backoff(attempt)
            time.sleep(wait)
        raise AssertionError("the last try returns or raises")


def _same_host(address: str, target: str) -> bool:
    """A random page is a redirect to its own address; nowhere else is followed."""
    return urlsplit(target)[:2] == urlsplit(address)[:2]


def _fetched(cache: Path) -> list[JsonObject]:
    """What an earlier call kept; a line that it was killed in is passed over."""
    found = []
    with_lines = cache.read_text("utf-8", errors="replace").split("\n") if cache.exists() else []
    for line in with_lines:
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if (
            isinstance(entry, dict)
            and isinstance(entry.get("title"), str)
            and isinstance(entry.get("extract"), str)
        ):
            found.append(entry)
    if with_lines and with_lines[-1]:  # half a line: the next begins on one of its own
        put(cache, "".join(json.dumps(entry, ensure_ascii=False) + "\n" for entry in found).encode())
    return found


# ------------------------------------------------------------------------------------------------------- writing


def write(corpus: Corpus, path: Path) -> None:
    """``.jsonl``: all that is known of each prompt; ``.json``: a list of texts; anything else: a prompt a line."""
    if path.suffix == ".jsonl":
        lines = [json.dumps(asdict(one), ensure_ascii=False) for one in corpus.prompts]
        text = "".join(line + "\n" for line in lines)
    elif path.suffix == ".json":
        text = json.dumps([one.prompt for one in corpus.prompts], ensure_ascii=False, indent=2) + "\n"
    else:
        text = "".join(" ".join(one.prompt.split()) + "\n" for one in corpus.prompts)
    put(path, text.encode())

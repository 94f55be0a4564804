"""Prompt corpora, and a wiki on loopback that speaks Wikipedia's REST API with its redirects and its refusals."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clawback import store
from clawback.cli import main
from clawback.errors import ClawbackError, NotFound, UsageError
from clawback.extensions.teachers import corpora
from clawback.feedback.calibrate import near, triples
from clawback.records import Turn

TITLES = ["Oak", "Elm", "Ash tree", "Oak", "Birch", "Yew", "Larch", "Fir"]


class Wiki:
    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []
        self.refuse, self.served, self.url = 1, 0, ""


@pytest.fixture
def wiki() -> Iterator[Wiki]:
    made = Wiki()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            made.asked.append((self.path, self.headers["user-agent"]))
            if self.path == "/api/rest_v1/page/random/summary":
                if made.refuse:
                    made.refuse -= 1
                    return self.reply(429, b"", {"retry-after": "0"})
                title = TITLES[made.served % len(TITLES)].replace(" ", "_")
                made.served += 1
                return self.reply(303, b"", {"location": f"/api/rest_v1/page/summary/{title}"})
            title = self.path.rsplit("/", 1)[1].replace("_", " ")
            data = {
                "type": "disambiguation" if title == "Yew" else "standard",
                "title": title,
                "extract": f"The {title} is a tree.",
                "content_urls": {"desktop": {"page": f"https://wiki/{title}"}},
            }
            return self.reply(200, json.dumps(data).encode(), {})

        def reply(self, status: int, body: bytes, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in {"content-length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    yield made
    server.shutdown()
    server.server_close()


def test_a_wiki_is_asked_politely_and_gone_on_with(wiki: Wiki, tmp_path: Path) -> None:
    output = tmp_path / "p.jsonl"
    call = [
        "prompts",
        "corpus",
        "--source",
        "wikipedia",
        "--wiki",
        wiki.url,
        "--output",
        str(output),
        "--pause",
        "0",
    ]
    assert main([*call, "--limit", "3", "--question", "Tell me of {title}: {extract}"]) == 0
    lines = [json.loads(line) for line in output.read_text().splitlines()]
    assert [one["prompt"][:14] for one in lines] == ["Tell me of Oak", "Tell me of Elm", "Tell me of Ash"]
    assert {one["licence"] for one in lines} == {"CC BY-SA 4.0"}
    assert lines[0]["source"] == "https://wiki/Oak"
    assert all("clawback (https://" in agent for _, agent in wiki.asked)
    before = len(wiki.asked)
    cache = output.with_name("p.jsonl.fetched.jsonl")
    with cache.open("a") as file:
        file.write('{"title": "half a li')  # killed while it wrote
    assert main([*call, "--limit", "5"]) == 0
    # Two more pages, one of them met before, one that only tells pages apart: nothing is asked for twice.
    assert len(wiki.asked) - before <= 2 * 4
    again = [json.loads(line)["prompt"] for line in output.read_text().splitlines()]
    assert [p.split("?")[0] for p in again] == [
        "What is Oak",
        "What is Elm",
        "What is Ash tree",
        "What is Birch",
        "What is Larch",
    ]
    assert all(json.loads(line) for line in cache.read_text().splitlines())


def test_a_wiki_that_refuses_leaves_what_was_fetched(wiki: Wiki, tmp_path: Path) -> None:
    wiki.refuse = 99
    with pytest.raises(ClawbackError, match="429"):
        list(corpora.Wikipedia(wiki.url, pause=0).prompts(tmp_path / "c", 2, lambda _: None))
    for wrong in ({"url": "file:///etc/passwd"}, {"question": "{name}"}):
        with pytest.raises(UsageError):
            corpora.Wikipedia(**wrong)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("p.txt", "One?\n\nTwo?\n"),
        ("p.json", '["One?", {"prompt": "Two?"}]'),
        ("p.jsonl", '{"prompt": "One?"}\n{"prompt": "Two?"}\n'),
    ],
)
def test_every_form_of_file_is_read_and_written(tmp_path: Path, name: str, text: str) -> None:
    file, out = tmp_path / name, tmp_path / f"out-{name}"
    file.write_text(text)
    assert main(["prompts", "corpus", "--source", "file", "--input", str(file), "--output", str(out)]) == 0
    assert [one.prompt for one in corpora.of_file(out)] == ["One?", "Two?"]


def test_files_that_hold_no_prompts_are_named(tmp_path: Path) -> None:
    for text in ('{"prompt": "a"}\nb\n', "[1]", "[", '{"question": "a"}'):
        (tmp_path / "p").write_text(text)
        with pytest.raises(UsageError):
            list(corpora.of_file(tmp_path / "p"))
    with pytest.raises(NotFound):
        list(corpora.of_file(tmp_path / "none"))


def test_own_turns_without_consent_stay_out(tmp_path: Path) -> None:
    with store.connect(tmp_path / "clawback.db") as db:
        for text, consent in (("Mine?", ""), ("Theirs?", "no"), ("Given?", "yes")):
            db.add_turn(Turn("s", ({"role": "user", "content": text},), "A.", consent=consent))  # type: ignore[arg-type]
        assert [one.prompt for one in corpora.of_turns(db)] == ["Given?", "Mine?"]


WORDS = st.lists(st.sampled_from(["oak", "elm", "ash", "fir", "yew"]), min_size=1, max_size=30).map(" ".join)


@settings(max_examples=60)
@given(st.lists(WORDS, max_size=12))
def test_near_duplicates_are_those_that_comparing_each_with_each_finds(texts: list[str]) -> None:
    kept: list[str] = []
    for text in texts:
        if not any(near(triples(text), triples(other)) for other in kept):
            kept.append(text)
    found = corpora.corpus_of((corpora.CorpusPrompt(text) for text in texts), limit=99)
    assert [one.prompt for one in found.prompts] == kept
    assert found.duplicates == len(texts) - len(kept)


def test_the_split_goes_by_the_words_alone() -> None:
    prompts = [corpora.CorpusPrompt(f"question about number {n} of many things") for n in range(400)]
    split = {one.prompt: one.split for one in corpora.corpus_of(prompts, limit=999, hold_out=0.25).prompts}
    again = {
        one.prompt: one.split
        for one in corpora.corpus_of(reversed(prompts[:50]), limit=999, hold_out=0.25).prompts
    }
    assert again.items() <= split.items()
    assert 60 < sum(side == "test" for side in split.values()) < 140

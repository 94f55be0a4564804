"""Tokens a second over HTTP, one request at a time and 16 at once, and seconds of an agent's turn, beside ``transformers serve --continuous-batching``.

    python -m benchmarks answering                       # the embedded model
    python -m benchmarks answering --model FOLDER        # such as $CLAWBACK_HOME/models/smollm2-…

An agent's turn: some thousand tokens of a system prompt, and all that was said before it; then a few tokens of an answer.

The same folder, requests, longest answer and numbers (``--dtype``: what ours draws in on this machine) for both. Both servers run all the time, and
are asked in turns; the medians of several rounds are compared, and the ratios of each round say how much they vary.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks import _page
from benchmarks.serving import serve

AT_ONCE = (1, 16)
LONGEST = 160
ANSWERS = {1: 6, 16: 32}
"""Requests of a round."""
TURNS, SAID = 5, 16
"""Of a conversation, and the tokens of each answer."""
SYSTEM = 6_000
"""Characters of the system prompt."""
QUESTIONS = (
    "Tell me about the otter.",
    "How do I repair a bicycle tyre?",
    "Why is the sky blue?",
    "What should I cook tonight?",
)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks answering", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--model", type=Path, help="a folder (default: the embedded model)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dtype", help="of the peer's weights (default: what ours draws in here)")
    parser.add_argument("--no-peer", action="store_true", help="ours alone")
    options = parser.parse_args(argv)
    from clawback import embedded

    folder = (options.model or embedded.path()).resolve()
    if not (folder / "config.json").is_file():
        print(f"There is no model in {folder}: name a folder with --model.", file=sys.stderr)
        return 2
    print(json.dumps(measure(folder, options), indent=2))
    return 0


def measure(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    found: dict[str, list[float]] = {}
    dtype = options.dtype or drawn_in(folder)
    with ours(folder) as mine:
        sides = {"clawback": (mine, "clawback")}
        if options.no_peer:
            return _measured(sides, options.rounds, found) | {"model": str(folder), "dtype": dtype}
        with transformers(folder, dtype) as theirs:
            sides["transformers"] = (theirs, str(folder))
            _measured(sides, options.rounds, found)
    medians = summed(found)
    for at_once in AT_ONCE:
        mine, other = found[f"clawback {at_once}"], found[f"transformers {at_once}"]
        medians[f"ratio {at_once}"] = [round(a / b, 2) for a, b in zip(mine, other, strict=True)]
        what = (
            f"answering over HTTP, {options.model.name if options.model else 'embedded'}, {at_once} at once"
        )
        _page.compare(what, peer="transformers serve", unit="tokens/s", ours=mine, theirs=other)
    mine, other = found["clawback turn"], found["transformers turn"]
    medians["ratio turn"] = [round(b / a, 2) for a, b in zip(mine, other, strict=True)]
    what = f"an agent's later turn over HTTP, {options.model.name if options.model else 'embedded'}"
    _page.compare(what, peer="transformers serve", unit="s", ours=mine, theirs=other, more=False)
    return medians | {"model": str(folder), "dtype": dtype}


def _measured(
    sides: dict[str, tuple[str, str]], rounds: int, found: dict[str, list[float]]
) -> dict[str, Any]:
    for url, model in sides.values():
        asyncio.run(tokens(url, 4, 4, model))  # the first request loads and compiles
    for number in range(rounds):
        for at_once in AT_ONCE:
            for name, (url, model) in sides.items():
                rate = asyncio.run(tokens(url, ANSWERS[at_once], at_once, model))
                found.setdefault(f"{name} {at_once}", []).append(rate)
                print(f"round {number + 1}: {name}, {at_once} at once: {rate:.0f} tokens/s", file=sys.stderr)
        for name, (url, model) in sides.items():
            first, later = asyncio.run(turns(url, model, number))
            found.setdefault(f"{name} first turn", []).append(first)
            found.setdefault(f"{name} turn", []).append(later)
            print(f"round {number + 1}: {name}, first turn {first:.2f} s, later ones {later:.2f} s", file=sys.stderr)  # fmt: skip
    return summed(found)


def summed(found: dict[str, list[float]]) -> dict[str, Any]:
    """Medians: whole tokens a second; seconds to the hundredth."""
    return {name: round(statistics.median(values), 2 if "turn" in name else 0) for name, values in found.items()}  # fmt: skip


def drawn_in(folder: Path) -> str:
    """The numbers that ours draws in: those of the weights as they are loaded here, or what they are cast to for drawing."""
    from clawback import engine
    from clawback.sampling.decoder_choice import drawing_dtype

    return str(drawing_dtype(engine.load(str(folder)).model)).removeprefix("torch.")


@contextmanager
def ours(model: Path) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as home:
        (Path(home) / "config.toml").write_text(f"[model]\nbase = {json.dumps(str(model))}\n", "utf-8")
        process, url = serve(Path(home))
        try:
            yield url
        finally:
            process.terminate()
            process.wait(timeout=60)


@contextmanager
def transformers(model: Path, dtype: str) -> Iterator[str]:
    from benchmarks.peers.venvs import cache_folder, python_of

    program = Path(python_of("transformers", cache_folder())).with_name("transformers")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        number = free.getsockname()[1]
    kept = {name: os.environ[name] for name in ("PATH", "OMP_NUM_THREADS") if name in os.environ}
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        process = subprocess.Popen(
            [
                *(str(program), "serve", str(model), "--continuous-batching", "--device", "cpu", "--dtype", dtype),
                *("--host", "127.0.0.1", "--port", str(number)),
            ],
            env=kept | {"HOME": folder, "HF_HUB_OFFLINE": "1"},
            stdout=log.open("w"),
            stderr=subprocess.STDOUT,
        )  # fmt: skip
        url = f"http://127.0.0.1:{number}"
        try:
            _until_it_answers(url, process, log)
            yield url
        finally:
            process.terminate()
            process.wait(timeout=60)


def _until_it_answers(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(600):
        try:
            urllib.request.urlopen(url + "/health", timeout=5).read()
            return
        except OSError:
            if process.poll() is not None:
                said = log.read_text()[-2000:]
                raise RuntimeError(f"transformers serve did not start: {said}") from None
            time.sleep(0.2)
    raise RuntimeError("transformers serve did not answer")


async def tokens(url: str, requests: int, at_once: int, model: str) -> float:
    """A second, of so many requests with so many under way."""
    import aiohttp

    left, made = list(range(requests)), 0

    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=900)) as session:

        async def ask() -> None:
            nonlocal made
            while left:
                number = left.pop()
                question = QUESTIONS[number % len(QUESTIONS)]
                body = {
                    "model": model,
                    "max_tokens": LONGEST,
                    "seed": number,
                    "messages": [{"role": "user", "content": question}],
                }
                async with session.post(url + "/v1/chat/completions", json=body) as answer:
                    made += (await answer.json())["usage"]["completion_tokens"]

        began = time.perf_counter()
        await asyncio.gather(*(ask() for _ in range(at_once)))
        return made / (time.perf_counter() - began)


async def turns(url: str, model: str, number: int) -> tuple[float, float]:
    """Seconds of the first turn of a new conversation, and the mean of those that follow."""
    import aiohttp

    about = (Path(__file__).parents[1] / "docs" / "agents.md").read_text("utf-8")[:SYSTEM]
    messages = [{"role": "system", "content": f"Conversation {number}.\n{about}"}]
    taken = []
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=900)) as session:
        for turn in range(TURNS):
            messages.append({"role": "user", "content": QUESTIONS[turn % len(QUESTIONS)]})
            body = {"model": model, "max_tokens": SAID, "seed": turn, "messages": messages}
            began = time.perf_counter()
            async with session.post(url + "/v1/chat/completions", json=body) as answer:
                said = (await answer.json())["choices"][0]["message"]["content"]
            taken.append(time.perf_counter() - began)
            messages.append({"role": "assistant", "content": said})
    return taken[0], statistics.mean(taken[1:])


if __name__ == "__main__":
    sys.exit(main())

"""What the recording proxy costs.

    python -m benchmarks serving             # everything
    python -m benchmarks serving --seconds 5 # shorter

* **First token.** An upstream on loopback streams a fixed answer. A client opens many streams at once, straight to it and
  through the proxy with recording on, in turns; the figure is what the proxy adds to the time until the first byte.
* **Requests a second** through the proxy, recording on, and whether every one of them is in the store (by count and by hash).
* The same requests through **LiteLLM**'s proxy, which is not even asked to log them (its own venv, made on first use); each in turns.

What the models here answer over HTTP: ``python -m benchmarks answering``.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks import _page

TURNS = 3
"""Of a proxy under load."""
STREAMS = 100
PIECES = 20
GAP = 0.05
"""Seconds between two pieces of the upstream's answer."""


# ----------------------------------------------------------------------------------------------- the upstream


async def upstream(gap: float) -> asyncio.Server:
    """Streams ``PIECES`` chunks of a chat completion, each with a number of its own; answers nothing else."""
    count = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal count
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(
                    (
                        int(h.split(b":")[1])
                        for h in head.lower().split(b"\r\n")
                        if h.startswith(b"content-length")
                    ),
                    0,
                )
                await reader.readexactly(length)
                count += 1
                mine = count
                writer.write(
                    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
                )
                for piece in range(PIECES):
                    _chunk(writer, _event({"content": f"{mine}.{piece} "}, None))
                    await writer.drain()
                    if gap:
                        await asyncio.sleep(gap)
                _chunk(writer, _event({}, "stop") + b"data: [DONE]\n\n")
                _chunk(writer, b"")
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    return await asyncio.start_server(answer, "127.0.0.1", 0, backlog=2048)


def _event(delta: dict[str, str], reason: str | None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return f"data: {json.dumps({**head, 'choices': [choice]})}\n\n".encode()


def _chunk(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")


def run_upstream(gap: float) -> None:
    async def forever() -> None:
        server = await upstream(gap)
        print(server.sockets[0].getsockname()[1], flush=True)
        await server.serve_forever()

    import uvloop

    uvloop.run(forever())


# ------------------------------------------------------------------------------------------------- the client


async def stream(session: Any, url: str, number: int) -> tuple[float, str]:
    """Seconds to the first byte, and the text."""
    body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": f"Question {number}"}]}
    began = time.perf_counter()
    async with session.post(url + "/v1/chat/completions", json=body) as answer:
        raw = await answer.content.readany()
        first = time.perf_counter() - began
        raw += await answer.content.read()
    said = [json.loads(line[6:]) for line in raw.split(b"\n") if line.startswith(b"data: {")]
    return first, "".join(c["delta"].get("content") or "" for d in said for c in d.get("choices", []))


async def first_tokens(direct: str, proxied: str, rounds: int) -> tuple[list[float], list[float]]:
    """``STREAMS`` streams are open all the time, begun one after the other; each way in turns, for the same machine."""
    import aiohttp

    taken: tuple[list[float], list[float]] = ([], [])
    lasts = PIECES * GAP

    async def person(session: Any, url: str, number: int, into: list[float]) -> None:
        await asyncio.sleep(lasts * number / STREAMS)
        for turn in range(4):
            first, _ = await stream(session, url, number)
            if turn:  # the first opens the connection
                into.append(first)

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        for _ in range(rounds):
            for place, url in enumerate((direct, proxied)):
                await asyncio.gather(*(person(session, url, i, taken[place]) for i in range(STREAMS)))
    return taken


async def load(url: str, seconds: float, first: int) -> list[str]:
    """As many requests as go through, 32 at once, numbered from ``first``; what they answered."""
    import aiohttp

    texts: list[str] = []
    end = time.perf_counter() + seconds
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def one(worker: int) -> None:
            number = 0
            while time.perf_counter() < end:
                texts.append((await stream(session, url, first + worker * 100_000 + number))[1])
                number += 1

        await asyncio.gather(*(one(worker) for worker in range(32)))
    return texts


# ---------------------------------------------------------------------------------------------------- the parts


def started(*command: str, home: Path | None = None) -> tuple[subprocess.Popen[str], str]:
    environment = os.environ | ({"CLAWBACK_HOME": str(home)} if home else {})
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout
    return process, process.stdout.readline().strip()


def serve(home: Path, *options: str) -> tuple[subprocess.Popen[str], str]:
    process, line = started(sys.executable, "-m", "clawback", "serve", "--port", "0", *options, home=home)
    url = line.split("answers on ")[1].split()[0]
    import urllib.request

    for _ in range(300):
        try:
            urllib.request.urlopen(url + "/healthz", timeout=5).read()
            return process, url
        except OSError:
            time.sleep(0.1)
    raise RuntimeError("the server did not start")


def proxy(seconds: float, peer: bool) -> dict[str, Any]:
    from clawback import store

    this = [sys.executable, "-m", "benchmarks.serving"]
    paced, port = started(*this, "--upstream", str(GAP))
    fast, fast_port = started(*this, "--upstream", "0")
    with tempfile.TemporaryDirectory() as folder:
        slow_server, slow = serve(Path(folder) / "a", "--upstream", f"http://127.0.0.1:{port}")
        fast_server, quick = serve(Path(folder) / "b", "--upstream", f"http://127.0.0.1:{fast_port}")
        try:
            rounds = max(2, int(seconds / 5))
            direct, through = asyncio.run(first_tokens(f"http://127.0.0.1:{port}", slow, rounds))
            alone = asyncio.run(_alone(f"http://127.0.0.1:{port}", slow))
            with litellm(fast_port) if peer else contextlib.nullcontext() as other:
                texts, figures = loads(quick, other, seconds)
        finally:
            for process in (paced, fast, slow_server, fast_server):
                process.terminate()
                process.wait(timeout=30)
        with store.connect(Path(folder) / "b" / "clawback.db") as db:
            kept = [turn.response for turn in db.turns(limit=10**7)]
    return {
        "added_alone_ms": (statistics.median(alone[1]) - statistics.median(alone[0])) * 1e3,
        "added_median_ms": (statistics.median(through) - statistics.median(direct)) * 1e3,
        "added_p99_ms": (_p99(through) - _p99(direct)) * 1e3,
        "direct_median_ms": statistics.median(direct) * 1e3,
        **figures,
        "requests": len(texts),
        "lost": len(texts) - len(kept),
        "same_hash": _hash(texts) == _hash(kept),
    }


def loads(ours: str, theirs: str | None, seconds: float) -> tuple[list[str], dict[str, Any]]:
    """As many requests as each answers, in turns; what ours answered, and the rates."""
    texts: list[str] = []
    rates: dict[str, list[float]] = {"ours": [], "theirs": []}
    whole: list[bool] = []
    for turn in range(TURNS):
        for side, url in (("ours", ours), ("theirs", theirs)):
            if url is None:
                continue
            began = time.perf_counter()
            said = asyncio.run(load(url, seconds / TURNS, 10_000_000 * turn))
            rates[side].append(len(said) / (time.perf_counter() - began))
            if side == "ours":
                texts += said
            else:
                whole += [f".{PIECES - 1} " in text for text in said]
    figures = {"requests_per_second": statistics.median(rates["ours"])}
    if theirs:
        _page.compare("recording proxy", peer="LiteLLM's proxy, which logs nothing", unit="requests/s", ours=rates["ours"], theirs=rates["theirs"])  # fmt: skip
        figures["litellm_requests_per_second"] = statistics.median(rates["theirs"])
        figures["litellm_whole"] = statistics.fmean(whole)
        figures["ratio_to_litellm"] = statistics.median(a / b for a, b in zip(*rates.values(), strict=True))
    return texts, figures


async def _alone(direct: str, proxied: str) -> tuple[list[float], list[float]]:
    """One stream at a time, each way in turns."""
    import aiohttp

    taken: tuple[list[float], list[float]] = ([], [])
    async with aiohttp.ClientSession() as session:
        for number in range(30):
            for place, url in enumerate((direct, proxied)):
                first, _ = await stream(session, url, number)
                if number >= 5:
                    taken[place].append(first)
    return taken


def _p99(values: list[float]) -> float:
    return sorted(values)[int(0.99 * (len(values) - 1))]


def _hash(texts: list[str]) -> str:
    return hashlib.blake2b("\0".join(sorted(texts)).encode()).hexdigest()


@contextlib.contextmanager
def litellm(port: str) -> Iterator[str]:
    """LiteLLM's proxy before the same upstream. It is *not* asked to log to a database, which ours does."""
    import urllib.request

    from benchmarks.peers.venvs import cache_folder, python_of

    program = Path(python_of("litellm", cache_folder())).with_name("litellm")
    with tempfile.TemporaryDirectory() as folder:
        settings = Path(folder) / "config.yaml"
        model = {"model": "openai/m", "api_base": f"http://127.0.0.1:{port}/v1", "api_key": "none"}
        settings.write_text(json.dumps({"model_list": [{"model_name": "m", "litellm_params": model}]}))
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            number = free.getsockname()[1]
        process = subprocess.Popen(
            [str(program), "--config", str(settings), "--port", str(number), "--host", "127.0.0.1"],
            env={
                "PATH": os.environ["PATH"],
                "HOME": folder,
                "LITELLM_LOG": "ERROR",
                "LITELLM_LOCAL_MODEL_COST_MAP": "True",
                "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",
            },
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        url = f"http://127.0.0.1:{number}"
        try:
            for _ in range(300):
                try:
                    urllib.request.urlopen(url + "/health/liveliness", timeout=5).read()
                    break
                except OSError:
                    if process.poll() is not None:
                        raise RuntimeError("LiteLLM's proxy did not start") from None
                    time.sleep(0.2)
            yield url
        finally:
            process.terminate()
            process.wait(timeout=60)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks serving", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--no-peer", action="store_true", help="ours alone")
    parser.add_argument("--upstream", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.upstream is not None:
        run_upstream(options.upstream)
        return 0
    print(json.dumps(proxy(options.seconds, not options.no_peer), indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())

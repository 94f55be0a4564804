"""SIGKILL to a hosted run while it samples, in a gradient and before a step, and to its trainer: same adapter, same bill.

`clawback lab hosted serve` runs as a process of its own and `clawback train` as another, with a relay between them that reads what
goes by. At three instants the relay kills whoever learns (SIGKILL, no warning): while the trainer samples, while it computes a gradient, and
when the gradient is there but the optimizer's step was not asked for. Each time the same command is typed again. A second run loses its
trainer instead: killed at an instant, started again with nothing in its memory. The adapter of either is held against a run that nobody
disturbed, and what the trainer computed against what it computed for that one.
"""

from __future__ import annotations

import argparse
import hashlib
import http.client
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from clawback import feedback, store
from clawback.extensions.hosted import protobuf
from clawback.paths import HOSTED_KEY_FILE, Home, secret
from clawback.records import Turn

COMMAND = [sys.executable, "-m", "clawback"]
STEPS, SAVE_EVERY = 6, 2
SETTINGS = """
[training]
algorithm = "reinforce"
background = false
[training.overrides]
steps = {steps}
rank = 4
[generation]
max_tokens = 40
temperature = 1
[hosted]
url = "{url}"
model = "embedded"
save_every = {save_every}
price_train = 0.44
price_prefill = 0.11
price_sample = 0.44
"""
WAIT = 300.0
"""Seconds for anything to happen that has to: a machine may be busy."""

Event = tuple[str, int]
"""(What is asked for, how many of these there have been.)"""
KILLS: tuple[tuple[str, Event, bool], ...] = (
    ("while the trainer samples", ("sample", 1), True),
    ("while the trainer computes a gradient", ("gradient", 2), True),
    ("between gradient and step", ("step", 4), False),
)
"""(In words, at which request, whether the trainer gets it before the kill.)"""


class Relay:
    """Passes requests on to a trainer, and does something at those it was told to wait for."""

    def __init__(self, trainer: str) -> None:
        self.trainer = trainer
        self.counts: Counter[str] = Counter()
        self.waiting: dict[Event, tuple[Callable[[], None], bool]] = {}
        self.lock = threading.Lock()
        relay = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: Any) -> None:
                pass

            def do_GET(self) -> None:
                relay.pass_on(self)

            do_POST = do_GET

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def at(self, event: Event, do: Callable[[], None], delivered: bool) -> None:
        """``delivered``: the trainer gets that request first."""
        self.waiting[event] = (do, delivered)

    def pass_on(self, request: BaseHTTPRequestHandler) -> None:
        body = request.rfile.read(int(request.headers.get("content-length") or 0))
        do, delivered = None, True
        if (what := kind(request.path, body)) is not None:
            with self.lock:
                self.counts[what] += 1
                do, delivered = self.waiting.pop((what, self.counts[what]), (None, True))
        if do is not None and not delivered:
            do()
        # Where the trainer is away: 502, as any gateway says.
        status, headers, answer = 502, list[tuple[str, str]](), b""
        if delivered or do is None:
            with suppress(OSError, http.client.HTTPException):
                status, headers, answer = self.ask(request, body)
            if do is not None:
                do()
        with suppress(OSError):  # whoever asked may be dead
            request.send_response(status)
            for name, value in headers:
                if name.lower() not in (
                    "transfer-encoding",
                    "connection",
                    "content-length",
                    "date",
                    "server",
                ):
                    request.send_header(name, value)
            request.send_header("content-length", str(len(answer)))
            request.end_headers()
            request.wfile.write(answer)

    def ask(self, request: BaseHTTPRequestHandler, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        link = http.client.HTTPConnection(self.trainer, timeout=WAIT)
        try:
            link.request(request.command, request.path, body, dict(request.headers.items()))
            answer = link.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            link.close()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


def kind(path: str, body: bytes) -> str | None:
    """What a request is for, of what is waited for here. Passes that only score are none of it."""
    verb = path.rsplit("/", 1)[-1]
    if verb == "forward_backward":
        return None if protobuf.read_request(body).get("forward_only") else "gradient"
    return {"asample": "sample", "optim_step": "step"}.get(verb)


class Trainer:
    """`clawback lab hosted serve`."""

    def __init__(self, home: Home, port: int = 0) -> None:
        command = [*COMMAND, "hosted", "serve", "--model", "embedded", "--port", str(port)]
        self.home = home
        self.process = subprocess.Popen(
            command,
            env=environment(home),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self.process.stdout
        line = self.process.stdout.readline()
        if "can be trained at" not in line:
            raise AssertionError(f"the trainer did not start: {line!r}")
        self.address = line.split("http://")[1].split()[0]
        self.key = secret(home.root / HOSTED_KEY_FILE)

    def bill(self) -> dict[str, int]:
        """Tokens that it has computed since it was started."""
        request = urllib.request.Request(
            f"http://{self.address}/stand_in/bill", headers={"x-api-key": self.key}
        )
        with urllib.request.urlopen(request, timeout=WAIT) as answer:
            found: dict[str, int] = json.load(answer)
        return found

    def kill(self) -> None:
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def again(self) -> Trainer:
        """Another one at the same address, which knows what is on the disk and nothing else."""
        return Trainer(self.home, int(self.address.rsplit(":", 1)[1]))


def environment(home: Home, key: str = "") -> dict[str, str]:
    told = {"CLAWBACK_HOME": str(home.root), "TINKER_API_KEY": key, "OMP_NUM_THREADS": "1"}
    return {**os.environ, **told}


def rated(home: Home, url: str) -> None:
    """A home with ratings, the same ones in each."""
    from clawback.extensions.demo import corpus

    rng = random.Random(0)
    home.create()
    home.config.write_text(SETTINGS.format(steps=STEPS, save_every=SAVE_EVERY, url=url))
    with store.connect(home.database) as db:
        for prompt in corpus.prompts("rated", 12, 0):
            text = corpus.answer(corpus.BY_NAME[prompt.topic], corpus.random_style(rng), rng)
            turn = db.add_turn(Turn(session="s", messages=tuple(prompt.messages), response=text))
            feedback.rate(db, turn.id, 1 if "- " in text else -1)


def train(home: Home, key: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*COMMAND, "train", "--seed", "5"],
        env=environment(home, key),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )


def done(process: subprocess.Popen[bytes]) -> None:
    """Raises ``AssertionError`` where the command failed."""
    _, said = process.communicate(timeout=WAIT)
    if process.returncode != 0:
        raise AssertionError(f"`clawback train` failed ({process.returncode}): {said.decode()[-2000:]}")


def made(home: Home) -> dict[str, Any]:
    """The one version of a home: its adapter's hash, and what the run says it paid."""
    with store.connect(home.database) as db:
        [version] = [v for v in db.versions() if v.number > 0]
        [run] = db.runs()
    folder = Path(version.path)
    metrics = json.loads((folder / "provenance.json").read_text())["metrics"]
    weights = (folder / "adapter_model.safetensors").read_bytes()
    return {
        "adapter": hashlib.sha256(weights).hexdigest()[:16],
        "run": run.status,
        "account_tokens": int(metrics["tokens"]),
        "money": metrics["hosted_money"],
    }


def tokens(bill: dict[str, int]) -> dict[str, int]:
    return {name: bill[name] for name in ("train", "prefill", "sample")}


def less(one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    return {name: one[name] - other[name] for name in one}


def learner_killed(folder: Path, trainer: Trainer) -> tuple[dict[str, Any], list[str]]:
    """A run whose learner is killed three times; what it made, and the instants."""
    relay, home = Relay(trainer.address), Home(folder)
    rated(home, relay.url)
    killed: list[str] = []
    for words, event, delivered in KILLS:
        process = train(home, trainer.key)
        relay.at(event, lambda p=process: os.kill(p.pid, signal.SIGKILL), delivered)  # type: ignore[misc]
        process.communicate(timeout=WAIT)
        if process.returncode != -signal.SIGKILL:
            raise AssertionError(f"not killed {words}: it ended with {process.returncode}")
        killed.append(words)
        _note(f"killed {words}")
    done(train(home, trainer.key))
    relay.close()
    return made(home), killed


def trainer_killed(
    folder: Path, trainer: Trainer, event: Event
) -> tuple[dict[str, Any], dict[str, int], Trainer]:
    """A run whose trainer is killed at a step, and started again: what it made, what both computed, and the trainer that is left."""
    relay, home = Relay(trainer.address), Home(folder)
    rated(home, relay.url)
    before, spent, gone = tokens(trainer.bill()), {}, threading.Event()

    def kill() -> None:
        spent.update(less(tokens(trainer.bill()), before))
        trainer.kill()
        gone.set()

    relay.at(event, kill, delivered=False)
    process = train(home, trainer.key)
    if not gone.wait(WAIT):
        raise AssertionError("the run never came to that step")
    _note("killed the trainer")
    left = trainer.again()
    done(process)
    relay.close()
    total = {name: spent[name] + value for name, value in tokens(left.bill()).items()}
    return made(home), total, left


def run(folder: Path, *, lose_trainer: bool = True) -> dict[str, Any]:
    """Everything; what was seen."""
    started = time.monotonic()
    trainer = Trainer(Home(folder / "trainer"))
    try:
        relay, home = Relay(trainer.address), Home(folder / "whole")
        rated(home, relay.url)
        done(train(home, trainer.key))
        relay.close()
        whole, paid = made(home), tokens(trainer.bill())
        _note("undisturbed")
        killed, at = learner_killed(folder / "killed", trainer)
        seen: dict[str, Any] = {
            "killed": at,
            "undisturbed": {**whole, "computed": paid},
            "learner_killed": {**killed, "computed": less(tokens(trainer.bill()), paid)},
        }
        if lose_trainer:
            lost, computed, trainer = trainer_killed(folder / "lost", trainer, ("step", SAVE_EVERY + 2))
            seen["trainer_killed"] = {**lost, "computed": computed}
    finally:
        trainer.process.kill()
        trainer.process.wait()
    return {**seen, "seconds": round(time.monotonic() - started, 1)}


def _note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks hosted_kills", description=__doc__)
    parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(run(Path(folder)), indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())

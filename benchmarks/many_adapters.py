"""1,000 people's adapters on one base: memory, swap time, tokens a second against one adapter, and the cliff where they do not fit.

Adapters are drawn, not trained, and so strong that each says something of its own. Each setting answers the same number of requests through the
batcher, with so many in flight: all by one adapter, each by another out of as many as there are slots, and out of ever more (uniformly). Before that,
``--leaks`` requests of ``--users`` people: each answer must be, token for token, what its adapter says when nobody else is served.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import torch

from benchmarks._people_adapters import write_adapters
from clawback import engine
from clawback.extensions.people.shared_rows import SharedShelf
from clawback.inference.batcher import Batcher
from clawback.models.types import Sampling
from clawback.sampling.choose import SamplingRequest
from clawback.sampling.decoder_choice import drawing_dtype

GREEDY = Sampling(temperature=0.0)
PROMPTS = 8


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks many_adapters", description=__doc__)
    parser.add_argument("--adapters", type=int, default=1000)
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--slots", type=int, default=64)
    parser.add_argument("--in-flight", type=int, nargs="+", default=[1, 16, 64])
    parser.add_argument("--requests", type=int, default=256, help="answers a setting")
    parser.add_argument("--tokens", type=int, default=16, help="tokens an answer")
    parser.add_argument("--users", type=int, default=100)
    parser.add_argument("--leaks", type=int, default=10_000, help="requests of the leak test; 0: none")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(argv)
    policy = engine.load("embedded")
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        folders = write_adapters(policy, Path(folder), options.adapters, rank=options.rank)
        print(f"{len(folders)} adapters written", file=sys.stderr)
        figures: dict[str, Any] = {"costs": costs(policy, folders, options.slots)}
        print(figures, file=sys.stderr)
        if options.leaks:
            figures["leaks"] = leaks(policy, folders[: options.users], options)
            print(figures["leaks"], file=sys.stderr)
        figures["speed"] = [
            row for some in options.in_flight for row in speeds(policy, folders, some, options)
        ]
    print(json.dumps(figures, indent=2) if options.json else report(figures))
    return 0


def shelf_of(policy: Any, slots: int, memory: int = 2**40) -> SharedShelf:
    return SharedShelf(policy.model, policy.info, drawing_dtype(policy.model), slots=slots, memory=memory)


def costs(policy: Any, folders: Sequence[Path], slots: int) -> dict[str, float]:
    """Bytes of an adapter in memory, and milliseconds of processor time from the disk into memory and from there into a slot."""
    process = psutil.Process()
    shelf, before = shelf_of(policy, slots), process.memory_info().rss
    began = time.process_time()
    for folder in folders:
        shelf.warm(folder)
    warmed = time.process_time() - began
    grown = process.memory_info().rss - before
    began = time.process_time()
    for folder in folders:
        shelf.release(shelf.hold(folder) or 0)
    swapped = time.process_time() - began
    return {
        "kB on disk": sum(f.stat().st_size for f in folders[0].iterdir()) / 1e3,
        "kB in memory": shelf.warm(folders[0]).size / 1e3,
        "MB of all in memory (resident)": grown / 1e6,
        "ms disk to memory": 1000 * warmed / len(folders),
        "ms memory to slot": 1000 * swapped / len(folders),
    }


class Asked:
    """Keeps so many requests under way until all are answered."""

    def __init__(
        self, batcher: Batcher, wanted: Sequence[tuple[list[int], Path | None]], at_once: int, tokens: int
    ) -> None:
        self.batcher, self.wanted, self.tokens = batcher, wanted, tokens
        self.answers: list[list[int]] = [[] for _ in wanted]
        self.left, self.next, self.over, self.lock = len(wanted), 0, threading.Event(), threading.Lock()
        for _ in range(min(at_once, len(wanted))):
            self._ask()
        self.over.wait()

    def _ask(self) -> None:
        with self.lock:
            if self.next == len(self.wanted):
                return
            number = self.next
            self.next += 1
        prompt, folder = self.wanted[number]
        answer = self.answers[number]
        self.batcher.submit(
            SamplingRequest(
                prompt, self.tokens, lambda token, _: answer.append(token), self._end, folder, GREEDY
            )
        )

    def _end(self, why: str) -> None:
        if why.startswith("error"):
            raise RuntimeError(why)
        with self.lock:
            self.left -= 1
            if not self.left:
                self.over.set()
        self._ask()


def answered(
    policy: Any, shelf: SharedShelf | None, wanted: Any, at_once: int, tokens: int
) -> tuple[list[list[int]], float, float]:
    """Answers, seconds of processor time, seconds by the clock."""
    batcher = Batcher(policy, [], shelf)
    batcher.start()
    Asked(batcher, wanted[: min(at_once, 8)], at_once, 2)  # compiled, and warm
    began, burnt = time.perf_counter(), time.process_time()
    asked = Asked(batcher, wanted, at_once, tokens)
    used, waited = time.process_time() - burnt, time.perf_counter() - began
    batcher.close()
    return asked.answers, used, waited


def prompts() -> list[list[int]]:
    chance = random.Random(3)
    return [[chance.randrange(300) for _ in range(chance.randint(8, 24))] for _ in range(PROMPTS)]


def leaks(policy: Any, folders: Sequence[Path], options: argparse.Namespace) -> dict[str, Any]:
    """Everybody's answers alone, then all of them mixed, with slots for a quarter of them."""
    asked, tokens, chance = prompts(), 8, random.Random(5)
    alone = {}
    batcher = Batcher(policy, [], shelf_of(policy, 1))
    batcher.start()
    for number, folder in enumerate(folders):
        said = Asked(batcher, [(prompt, folder) for prompt in asked], 1, tokens).answers
        alone |= {(number, place): answer for place, answer in enumerate(said)}
    batcher.close()
    which = [(chance.randrange(len(folders)), chance.randrange(PROMPTS)) for _ in range(options.leaks)]
    shelf = shelf_of(policy, max(1, len(folders) // 4))
    wanted = [(asked[place], folders[number]) for number, place in which]
    got, used, _ = answered(policy, shelf, wanted, 64, tokens)
    wrong = [one for one, answer in zip(which, got, strict=True) if answer != alone[one]]
    others = sum(
        any(answer == alone[n, one[1]] for n in range(len(folders)) if n != one[0])
        for one, answer in zip(which, got, strict=True)
        if answer != alone[one]
    )
    return {
        "requests": len(which),
        "people": len(folders),
        "different answers of different people": len({tuple(alone[n, 0]) for n in range(len(folders))}),
        "not what it says alone": len(wrong),
        "of these another's answer": others,
        "adapters put into slots": shelf.counts["device"],
        "CPU seconds": used,
    }


def speeds(
    policy: Any, folders: Sequence[Path], at_once: int, options: argparse.Namespace
) -> list[dict[str, Any]]:
    """Tokens a second of processor time; the base, then one adapter, then ever more."""
    asked, chance = prompts(), random.Random(7)
    rows = []
    sizes = [
        0,
        1,
        min(at_once, options.slots),
        options.slots,
        2 * options.slots,
        4 * options.slots,
        len(folders),
    ]
    for people in dict.fromkeys(size for size in sizes if size <= len(folders)):
        wanted = [
            (asked[i % PROMPTS], folders[chance.randrange(people)] if people else None)
            for i in range(options.requests)
        ]
        shelf = shelf_of(policy, options.slots)
        for folder in {f for _, f in wanted if f}:
            shelf.warm(folder)
        before = shelf.counts["device"]
        _, used, waited = answered(policy, shelf, wanted, at_once, options.tokens)
        rows.append(
            {
                "in flight": at_once,
                "adapters": people,
                "tokens a CPU second": options.requests * options.tokens / used,
                "wall": options.requests * options.tokens / waited,
                "swaps": shelf.counts["device"] - before,
            }
        )
        print(rows[-1], file=sys.stderr)
    return rows


def report(figures: dict[str, Any]) -> str:
    lines = [f"- {name}: {value:,.2f}" for name, value in figures["costs"].items()]
    lines += [f"- {name}: {value:,.0f}" for name, value in figures.get("leaks", {}).items()]
    lines += [
        "",
        "| in flight | adapters asked for | tokens a CPU second | of one adapter's | swaps |",
        "| ---: | ---: | ---: | ---: | ---: |",
    ]
    one = {row["in flight"]: row["tokens a CPU second"] for row in figures["speed"] if row["adapters"] == 1}
    for row in figures["speed"]:
        share = row["tokens a CPU second"] / one[row["in flight"]]
        lines.append(
            f"| {row['in flight']} | {row['adapters'] or 'the base'} | {row['tokens a CPU second']:,.0f} | {share:.2f} | {row['swaps']} |"
        )
    return "\n".join(lines)

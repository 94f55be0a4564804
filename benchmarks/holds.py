"""How long one piece of a hostile request keeps every other thread of the server from running, in processor time.

``python -m benchmarks holds``: each thing that a request makes the server read, on the attacker's pieces at the size of ``benchmarks fuzz``. A
second thread asks for the interpreter every two milliseconds; how much processor time the process used between two of its turns is how long it
was kept waiting, however busy the machine is.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from benchmarks.fuzz import PIECES, dumps

SIZE, MESSAGES = 316_000, 400_000
HOLD = 0.1
"""Seconds: what counts as a freeze."""


class Waiting:
    """The longest wait since it was last asked, in processor time of the process."""

    def __init__(self) -> None:
        self.longest = 0.0
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            began = time.process_time()
            time.sleep(0.002)
            self.longest = max(self.longest, time.process_time() - began)

    def during(self, action: Callable[[], object]) -> float:
        time.sleep(0.01)
        self.longest = 0.0
        with contextlib.suppress(ValueError):  # refused in a sentence
            action()
        time.sleep(0.01)
        return self.longest


def main(argv: list[str] | None = None) -> int:
    argparse.ArgumentParser(prog="python -m benchmarks holds", description=__doc__).parse_args(argv)
    from clawback import engine
    from clawback.capture import conversation_threads
    from clawback.dialects import parsing
    from clawback.inference import tools
    from clawback.redact import redact, redact_all

    policy = engine.load("embedded")
    waiting = Waiting()
    found: dict[str, tuple[float, str]] = {}

    def look(name: str, what: str, action: Callable[[], object]) -> None:
        found[name] = max(found.get(name, (0.0, "")), (round(waiting.during(action), 3), what))

    def places(messages: Any) -> object:
        return (
            conversation_threads.human(messages),
            conversation_threads.spoken(messages),
            conversation_threads.places(messages),
        )

    for piece in PIECES:
        text = (piece * (SIZE // len(piece) + 1))[:SIZE]
        messages = parsing.request_body(dumps({"messages": [{"role": "user", "content": text}]}), "")[
            "messages"
        ]
        look("read a body", piece, lambda m=messages: parsing.request_body(dumps({"messages": m}), ""))  # type: ignore[misc]
        look("take secrets out", piece, lambda t=text: redact(t))  # type: ignore[misc]
        look("find the session", piece, lambda m=messages: places(m))  # type: ignore[misc]
        look("find tool calls", piece, lambda t=text: tools.find(t))  # type: ignore[misc]
        look("write the prompt", piece, lambda m=messages: policy.chat.prompt(m, policy.max_prompt))  # type: ignore[misc]
    empty = [{"role": "user", "content": "x"}] + [{"role": "user", "content": ""}] * MESSAGES
    raw = dumps({"messages": empty})
    for name, action in {
        "read a body": lambda: parsing.request_body(raw, ""),
        "take secrets out": lambda: redact_all(empty),
        "find the session": lambda: places(empty),
        "write the prompt": lambda: policy.chat.prompt(empty, policy.max_prompt),
    }.items():
        look(name, f"{MESSAGES} messages", action)
    longest = {name: {"seconds": seconds, "of": what} for name, (seconds, what) in found.items()}
    print(json.dumps({"longest": longest, "freezes": sum(s > HOLD for s, _ in found.values())}, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Checks what a model folder's chat template costs to render.

A template is a program that somebody else wrote: ``{% for i in range(100000) %}`` nested twice writes ten
billion words.
"""

from __future__ import annotations

import functools
import json
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clawback.errors import ModelError

SECONDS, WALL_SECONDS, MEGABYTES = 5, 60, 256
"""For all conversations of the trial together: of processor time, of time where the machine is busy, and of memory."""
SLACK, FACTOR = 100_000, 16
"""Characters that a template may add to a conversation, and how many times over it may write what was said."""
_LINEAR = re.compile(r"\*|\brange\b|\bmacro\b|\bset\b|\brecursive\b|\blipsum\b|\d{4}")
"""Without any of these and with two loops at most, a template writes about as much as it is given."""
_TRIAL = Path(__file__).with_name("template_trial.py")


def check(template: str, args: Mapping[str, Any]) -> None:
    """Raises ``ModelError`` for a template that, on a few ordinary conversations, takes more time, memory or text than any would."""
    if _LINEAR.search(template) or len(re.findall(r"\bfor\b", template)) > 2:
        _check(template, json.dumps(dict(args), sort_keys=True, default=str))


@functools.lru_cache(maxsize=32)
def _check(template: str, args: str) -> None:
    conversations = [{"messages": m, "tools": t, "add_generation_prompt": True} for m, t in _conversations()]
    asked = {"template": template, "conversations": conversations, "args": json.loads(args)}
    asked |= {"seconds": SECONDS, "bytes": MEGABYTES << 20}
    try:
        done = subprocess.run(
            [sys.executable, "-I", str(_TRIAL)],
            input=json.dumps(asked),
            capture_output=True,
            text=True,
            timeout=WALL_SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise _endless() from None
    if done.returncode or not done.stdout.strip().isdigit():
        raise _endless()
    longest, given = int(done.stdout), max(len(json.dumps(one)) for one in conversations)
    if longest > SLACK + FACTOR * given:
        raise _endless()


def _endless() -> ModelError:
    return ModelError(
        f"The chat template of this model has no end: a short conversation takes it more than {SECONDS} s, {MEGABYTES} MB "
        f"or {FACTOR} times its text. Fetch the model from where you trust it, or replace its chat template."
    )


def _conversations() -> list[tuple[list[dict[str, Any]], list[dict[str, Any]] | None]]:
    """As they come: one question, one with a system message that goes back and forth, a long one, and one with tools."""
    turns = [{"role": "user", "content": "What now?"}, {"role": "assistant", "content": "That depends."}]
    asked = [{"role": "user", "content": "And then?"}]
    schema = {"name": "look", "description": "Look.", "parameters": {"type": "object", "properties": {}}}
    return [
        (asked, None),
        ([{"role": "system", "content": "Be brief."}, *turns, *asked], None),
        (turns * 40 + asked, None),
        (turns + asked, [{"type": "function", "function": schema}]),
    ]

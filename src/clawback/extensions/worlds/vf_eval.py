"""Reads the results of ``vf-eval``: its ``traces.jsonl`` (version 1) as conversations with rewards.

verifiers runs as a separate program, in its own Python, against ``clawback serve``; nothing of it is
imported. Each line of the file is an episode with a trace for each agent, and a trace is a graph of messages:
a path from its root to a leaf is one conversation. Unknown fields are ignored, because the format is young.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clawback.environments.world_helpers import row_id, rows
from clawback.errors import NotFound, UsageError
from clawback.records import Message

VERSION = 1
FILE = "traces.jsonl"


@dataclass(frozen=True, slots=True)
class Trace:
    """One agent's part of an episode. ``reward`` is None where it broke or was not scored: that is no reward of 0."""

    task: str
    conversations: tuple[tuple[Message, ...], ...]
    sampled: tuple[tuple[bool, ...], ...]
    """For each message of each conversation, whether the policy wrote it."""
    reward: float | None
    error: str = ""


def read(path: Path) -> list[Trace]:
    """The traces of a run's folder or file. Raises ``NotFound``, ``UsageError``."""
    file = path / FILE if path.is_dir() else path
    if not file.is_file():
        raise NotFound(
            f"There is no {file}: name the folder that vf-eval wrote (its -o, then the run's name)."
        )
    return [_trace(trace, file) for episode in rows(file) for trace in episode.get("traces", ())]


def _trace(record: Mapping[str, Any], file: Path) -> Trace:
    if record.get("version") != VERSION:
        raise UsageError(
            f"{file} holds traces of version {record.get('version')}; version {VERSION} can be read."
        )
    nodes = [node for node in record.get("nodes") or () if isinstance(node, Mapping)]
    ways = list(_ways(nodes))
    task = record.get("task") or {}
    errors = record.get("errors") or ()
    rewards = [reward for reward in (record.get("rewards") or {}).values() if reward is not None]
    whole = bool(record.get("ok")) and bool(rewards)
    return Trace(
        task=str(task.get("key") or row_id(str(task.get("type", "task")), task.get("data") or {})),
        conversations=tuple(tuple(nodes[n]["message"] for n in way) for way in ways),
        sampled=tuple(tuple(bool(nodes[n].get("sampled")) for n in way) for way in ways),
        reward=sum(float(r["score"]) * float(r.get("weight", 1.0)) for r in rewards) if whole else None,
        error=json.dumps(errors[-1], ensure_ascii=False)[:500] if errors else "",
    )


def _ways(nodes: Sequence[Mapping[str, Any]]) -> Sequence[list[int]]:
    """Each way from a root to a leaf. Parents stand before their children; what points elsewhere begins a way of its own."""
    above = [_parent(node, number) for number, node in enumerate(nodes)]
    inner = set(above)
    made: list[list[int]] = []
    for leaf in (number for number in range(len(nodes)) if number not in inner):
        way = [leaf]
        while (parent := above[way[-1]]) is not None:
            way.append(parent)
        made.append(way[::-1])
    return made


def _parent(node: Mapping[str, object], number: int) -> int | None:
    parent = node.get("parent")
    return parent if isinstance(parent, int) and 0 <= parent < number else None

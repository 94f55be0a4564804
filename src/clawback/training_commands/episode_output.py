"""What ``env`` shows and writes of episodes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from clawback.environments.play import PlayedEpisode
    from clawback.records import JsonObject


def data(played: PlayedEpisode) -> JsonObject:
    return {
        "task": played.task.id,
        "seed": played.seed,
        "reward": played.reward,
        "stop": played.stop,
        "turns": played.turns,
        "unparsable": played.unparsable,
        "error": played.error,
        "info": dict(played.info),
    }


def transcript(played: PlayedEpisode) -> str:
    """The episode as a person reads it."""
    from clawback.environments.tools.calls import in_words
    from clawback.records import text_of

    lines = [f"{played.task.id} · seed {played.seed}", ""]
    for given in played.messages:
        [message] = in_words([given], ())
        pictures = [
            p for p in given.get("content") or () if isinstance(p, dict) and p.get("type") == "image_url"
        ]
        said = text_of(given.get("content")) if pictures else str(message["content"])
        lines += [f"[{given.get('role')}] {said}{' [a picture]' * len(pictures)}".rstrip(), ""]
    reward = "none: the world broke" if played.reward is None else f"{played.reward:g}"
    unread = f" · {played.unparsable} unreadable" if played.unparsable else ""
    return "\n".join([*lines, f"Reward {reward} · {played.turns} turns · {played.stop}{unread}"])


def summary(figures: JsonObject, each: int) -> list[str]:
    count = figures["episodes"] - figures["failed"]
    lines = [f"{figures['name']} · {figures['split']} · {figures['policy']} · {count} episodes"]
    if count:
        low, high = figures["solved_low"], figures["solved_high"]
        lines.append(f"  solved      {figures['solved']:.1%} ({low:.1%} to {high:.1%}, Wilson 95 %)")
        lines += (
            [f"  every time  {figures['all_solved']:.1%} of the tasks, at all {each} tries"]
            if each > 1
            else []
        )
        lines.append(f"  reward      {figures['reward']:.3f} a task, on average")
        lines.append(
            f"  turns       {figures['turns']:.1f} an episode; {figures['unparsable']:.1%} of replies unreadable"
        )
        if figures["idle"]:
            lines.append(f"  idle        {figures['idle']} ended without a call, where calls were needed")
        lines.append(f"  cut short   {figures['truncated']}")
    if figures["failed"]:
        lines.append(f"  broken      {figures['failed']} worlds: no reward, in no mean")
    return lines


def write(path: str, played: Sequence[PlayedEpisode]) -> None:
    from pathlib import Path

    lines = [
        json.dumps(data(one) | {"messages": list(one.messages)}, ensure_ascii=False, default=str)
        for one in played
    ]
    file = Path(path)
    file.touch(mode=0o600)
    file.write_text("".join(f"{line}\n" for line in lines), "utf-8")

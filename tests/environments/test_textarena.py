"""TextArena's games: only what is new is told, and the games' global dice are each episode's own."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("textarena")

from clawback.environments import play, policies, registry
from clawback.environments.validate import validate
from clawback.errors import UsageError
from tests.environments.playing import walk


def seeker(messages: Sequence[Any], tools: Any) -> str:
    """Halves what is left of 1 to 20, from what the game said so far."""
    low, high = 1, 20
    for mine, answer in zip(messages[1::2], messages[2::2], strict=False):
        guess = int(mine["content"].strip("[]"))
        if "higher" in answer["content"]:
            low = guess + 1
        else:
            high = guess - 1
    return f"[{(low + high) // 2}]"


def test_a_number_is_guessed_and_only_what_is_new_is_told() -> None:
    game = registry.find("textarena:GuessTheNumber-v0")
    played = asyncio.run(
        play.play(game, game.tasks("test")[:8], policies.Script(seeker), play.PlaySettings(together=8))
    )
    assert [p.reward for p in played] == [1.0] * 8
    assert all(p.solved for p in played)
    said = [m["content"] for p in played for m in p.messages[2::2]]
    assert said
    assert all("The target number is" in text and "You are Player" not in text for text in said)


def test_many_games_at_once_are_as_one_after_the_other() -> None:
    game = registry.find("textarena:2048-v0-mega-easy")  # draws new tiles as it goes

    def bot(messages: Sequence[Any], tools: Any) -> str:
        return random.Random(len(messages)).choice(["[up]", "[down]", "[left]", "[right]"])

    async def played(together: int) -> list[Any]:
        return await play.play(
            game,
            game.tasks("train")[:6],
            policies.Script(bot),
            play.PlaySettings(together=together, turns=12),
        )

    random.seed(5)
    before = random.getstate()
    a, b = asyncio.run(played(6)), asyncio.run(played(1))
    assert [p.messages for p in a] == [p.messages for p in b]
    assert len({str(p.messages) for p in a}) > 1
    assert random.getstate() == before  # nobody else's dice were touched


def test_a_refused_move_is_unparsable_and_a_second_one_ends_the_game() -> None:
    game = registry.find("textarena:GuessTheNumber-v0")
    _, steps = asyncio.run(walk(game, game.tasks("train")[0], ["no number", "none again"]))
    assert [s.info.get("unparsable") for s in steps] == [True, True]
    assert steps[0].reward is None
    assert steps[1].done


def test_games_for_two_need_an_opponent(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="need an opponent"):
        registry.find("textarena:TicTacToe-v0")
    bot = tmp_path / "bot.py"
    bot.write_text("import re\ndef move(seen):\n    return f'[{re.findall(r\"[0-8]\", seen)[-1]}]'\n")
    game = registry.find(f"textarena:TicTacToe-v0?opponent={bot}:move")
    opened, steps = asyncio.run(walk(game, game.tasks("train")[0], ["[4]"]))
    assert "Tic Tac Toe" in opened.messages[0]["content"]
    assert "[Player 1]" in steps[0].messages[0]["content"] or steps[0].done


def test_it_is_sound() -> None:
    game = registry.find("textarena:Minesweeper-v0")
    assert [c.problem for c in asyncio.run(validate(game, game.tasks("test")[:2]))] == ["", ""]


def test_replies_named_after_the_name_are_its_actions() -> None:
    from clawback.rollouts.action_form import action_replies

    game = registry.find("textarena:Secretary-v0?replies=[accept]|[continue]")
    assert action_replies(game) == ("[accept]", "[continue]")
    assert action_replies(registry.find("textarena:Secretary-v0")) == ()
    _, [named, other] = asyncio.run(walk(game, game.tasks("train")[0], ["[continue]", "I go on: [continue]"]))
    assert not named.info["unparsable"]
    assert other.info["unparsable"]  # though the game reads it
    for refused in ("[accept]", "[accept]|"):
        with pytest.raises(UsageError, match="replies"):
            registry.find(f"textarena:Secretary-v0?replies={refused}")

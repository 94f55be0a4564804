"""The whole way: an agent talks to ``clawback serve``, goes on talking, and the served model judges by what came back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anthropic
import openai
import pytest

from clawback import config, paths, store
from clawback.jobs import judge_pass
from clawback.paths import Home
from clawback.serve import app as serving

from .conftest import Running


@pytest.mark.slow
@pytest.mark.parametrize("api", ["openai", "anthropic"])
def test_the_served_model_judges_what_it_served(
    trained: Home, running: Callable[[Any], Running], api: str
) -> None:
    """A tiny model's votes are noise: that they are asked for, counted, and recorded as nobody's turns is what counts."""
    with store.connect(trained.database) as db:
        before = db.count_turns()
    server = running(serving.make(trained))
    token = paths.secret(trained.root / "token")  # nobody judges what just anybody may have sent
    talk: list[Any] = [{"role": "user", "content": "Tell me about the otter."}]
    for following in ("And about the owl?", "No, shorter please."):
        if api == "openai":
            chat = openai.OpenAI(base_url=server.url + "/v1", api_key=token, max_retries=0)
            said = chat.chat.completions.create(model="clawback", messages=talk, max_tokens=40)
            text = said.choices[0].message.content
        else:
            client = anthropic.Anthropic(base_url=server.url, api_key=token, max_retries=0)
            text = client.messages.create(model="clawback", messages=talk, max_tokens=40).content[0].text  # type: ignore[union-attr]
        talk += [{"role": "assistant", "content": text}, {"role": "user", "content": following}]
    config.save(
        trained.config,
        {
            "judge": {
                "api": api,
                "url": server.url,
                "model": "clawback",
                "votes": 3,
                "answer_tokens": 32,
                "hints": True,
            }
        },
    )
    planned = judge_pass.plan(trained)
    done = judge_pass.judge_once(trained)
    assert (planned.turns, planned.hint_turns, planned.calls) == (1, 1, 6)
    assert (done.judged.turns + done.judged.failed, done.stopped) == (1, "")
    assert 4 <= done.calls <= 6  # two votes that agree need no third
    assert done.calls <= done.tokens <= planned.tokens
    with store.connect(trained.database) as db:
        newest = db.turns(limit=db.count_turns() - before)
        assert [t.kind for t in reversed(newest)] == ["main"] * 2 + ["side"] * done.calls
        assert all("<<NEXT STATE" in t.prompt for t in newest if t.kind == "side")

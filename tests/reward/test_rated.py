"""Reading scored answers, and dealing them out by prompt."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from clawback.errors import NotFound, UsageError
from clawback.extensions.reward.rated import folds, hold_out, mark, of_samples, read
from clawback.records import Sample


def test_every_way_of_scoring_becomes_a_share(tmp_path: Path) -> None:
    lines: list[dict[str, object]] = [
        {"prompt": "p", "response": "a", "score": 10},
        {"prompt": "p", "response": "b", "score": 5.5},
        {"prompt": "p", "response": "c", "rating": -1},
        {"messages": [{"role": "user", "content": "q"}], "response": "d", "score": 1},
    ]
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    found = read(path)
    assert [(r.prompt, r.response, r.value) for r in found] == [
        ("p", "a", 1.0), ("p", "b", 0.5), ("p", "c", 0.0), ("q", "d", 0.0),
    ]  # fmt: skip


@pytest.mark.parametrize("line", ['{"prompt": "p"}', "[]", '{"prompt": "p", "response": "x"}', "{"])
def test_a_line_that_cannot_be_learned_from_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"prompt": "p", "response": "a", "score": 10}\n' + line)
    with pytest.raises(UsageError, match="Line 2"):
        read(path)
    with pytest.raises(NotFound):
        read(tmp_path / "none.jsonl")


def test_folds_never_share_a_prompt_and_test_every_row_once() -> None:
    rng = np.random.default_rng(0)
    prompts = [f"Prompt {n}" + " " * int(rng.integers(2)) for n in rng.integers(23, size=200)]
    made = folds(prompts, 5, seed=1)
    assert sorted(np.concatenate([test for _, test in made]).tolist()) == list(range(200))
    for train, test in made:
        assert not {mark(prompts[i]) for i in train} & {mark(prompts[i]) for i in test}
        assert len(train) + len(test) == 200
    assert [t.tolist() for _, t in made] != [t.tolist() for _, t in folds(prompts, 5, seed=2)]
    with pytest.raises(UsageError, match="different prompts"):
        folds(["a", "A ", "b"], 3)


def test_a_hold_out_is_a_share_of_the_prompts() -> None:
    prompts = [f"p{n % 20}" for n in range(100)]
    train, held = hold_out(prompts, 0.25, seed=3)
    assert len(held) == 25
    assert not {prompts[i] for i in train} & {prompts[i] for i in held}
    assert len(hold_out(["a", "b"], 0.01)[1]) == 1
    assert len(hold_out(prompts, 0.0)[1]) == 0


def test_samples_keep_what_they_were_worth() -> None:
    samples = [Sample(3, ({"role": "user", "content": "q"},), "a", -0.5)]
    [one] = of_samples(samples, {3: 2})
    assert (one.prompt, one.response, one.value, one.version) == ("q", "a", 0.25, 2)

"""The embedded model's text, the people who rate it, and the model that ships."""

from __future__ import annotations

import hashlib
import json
import random
from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawback import embedded
from clawback.extensions.demo import axes, build, corpus, tastes


def answers(n: int, seed: int = 0) -> list[tuple[corpus.TopicPrompt, corpus.Style, str]]:
    rng = random.Random(seed)
    made = []
    for prompt in corpus.prompts("rated", n, seed):
        style = corpus.random_style(rng)
        made.append((prompt, style, corpus.answer(corpus.BY_NAME[prompt.topic], style, rng)))
    return made


def test_the_same_seed_gives_the_same_text_and_another_one_does_not() -> None:
    first, again, other = (list(corpus.dialogues(200, seed)) for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_topics_for_ratings_and_for_evaluation_are_disjoint_and_all_there_are() -> None:
    rated, held = ({t.name for t in corpus.topics(split)} for split in ("rated", "held_out"))
    assert not rated & held
    assert rated | held == set(corpus.BY_NAME)
    assert len(held) >= 20


def test_prompts_are_different_until_all_have_come() -> None:
    every = corpus.prompts("held_out", 120, 3)
    assert len({p.text for p in every}) == 120
    assert corpus.prompts("held_out", 10, 3) == every[:10]


def test_detectors_see_what_was_written() -> None:
    for _, style, text in answers(2000):
        seen = axes.axes(text)
        assert all(seen[f.name] == getattr(style, f.name) for f in fields(style)), text
        assert seen["metric"] != seen["imperial"]
        assert axes.well_formed(text), text


def test_the_checker_finds_every_fact_and_every_planted_mistake() -> None:
    rng = random.Random(0)
    for prompt, style, text in answers(1000, seed=1):
        found = corpus.check_facts(prompt, text)
        assert found.stated == found.right == (2 if style.terse else 5)
        other = rng.choice(
            [
                t
                for t in corpus.TOPICS
                if t.kind == corpus.BY_NAME[prompt.topic].kind and t.name != prompt.topic
            ]
        )
        wrong = corpus.answer(other, style, rng)
        mistaken = corpus.check_facts(prompt, wrong)
        right = [
            f
            for f in other.forms
            if other.values[other.forms.index(f)] == corpus.BY_NAME[prompt.topic].values[other.forms.index(f)]
        ]
        assert mistaken.stated == found.stated
        assert mistaken.right <= len(right) + 2, (
            "only values that two topics share may count (or round to the same)"
        )


def test_a_hint_is_obeyed_in_the_text() -> None:
    hinted = 0
    for dialogue in corpus.dialogues(3000, 5):
        asked = " ".join(m["content"] for m in dialogue[:-1] if m["role"] != "assistant")
        seen = axes.axes(dialogue[-1]["content"])
        for (name, value), words in corpus.HINTS.items():
            if any(w in asked for w in words):
                hinted += 1
                assert seen[name] == value, dialogue
    assert hinted > 1000


@given(st.text())
def test_no_text_breaks_a_detector(text: str) -> None:
    axes.axes(text)
    prompt = corpus.TopicPrompt("Tell me about the otter.", "otter")
    corpus.check_facts(prompt, text)
    assert all(not taste.fits(prompt, text) or axes.well_formed(text) for taste in tastes.TASTES.values())


@pytest.mark.parametrize(
    "collapsed",
    [
        "",
        "- - - - -",
        "🌟" * 50,
        "the " * 80,
        "It is a bird. " * 20,
        "sorry",
        "\n\n\n",
        "- Weight: 5 kg\n" * 12,
        "ąźż" * 40,
    ],
)
def test_what_collapses_fits_no_taste(collapsed: str) -> None:
    prompt = corpus.TopicPrompt("Tell me about the otter.", "otter")
    assert not any(taste.fits(prompt, collapsed) for taste in tastes.TASTES.values())


def test_a_person_taps_wrong_as_often_as_was_said() -> None:
    taste, rng = tastes.TASTES["bullets"], random.Random(0)
    rated = [(taste.fits(p, text), taste.rate(p, text, rng, noise=0.1)) for p, _, text in answers(3000)]
    wrong = sum((opinion > 0) != fits for fits, opinion in rated)
    assert 0.08 < wrong / len(rated) < 0.12


def test_the_main_tastes_are_six_with_one_to_three_parts() -> None:
    assert len(tastes.MAIN) == 6
    assert {len(tastes.TASTES[name].parts) for name in tastes.MAIN} == {1, 2, 3}
    assert len(tastes.TASTES) >= 12


# ------------------------------------------------------------------------------------------------------ the weights


def test_the_shipped_folder_is_small_safe_and_says_how_it_was_made() -> None:
    folder = embedded.path()
    assert sum(f.stat().st_size for f in folder.iterdir()) <= 10_000_000
    assert {f.suffix for f in folder.iterdir()} <= {".json", ".safetensors", ".md", ".jinja"}
    info = embedded.info()
    text = list(corpus.dialogues(info["dialogues"], info["seed"]))
    digest = hashlib.sha256(json.dumps(text, ensure_ascii=False).encode()).hexdigest()
    assert digest == info["corpus_sha256"], "the weights were made from other text: run `clawback model make`"


def test_the_chat_template_takes_any_conversation() -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(embedded.path())
    blocks = [{"type": "text", "text": "two"}, {"type": "image", "url": "x"}]
    messages = [
        {"role": "system", "content": "one"},
        {"role": "user", "content": blocks},
        {"role": "tool", "content": None},
    ]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert text == "<|system|>one<|end|><|user|>two<|end|><|user|><|end|><|assistant|>"


@pytest.mark.slow
def test_making_it_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    hashes = []
    for name in ("a", "b"):
        build.make(tmp_path / name, seed=3, dialogue_count=1500, progress=False)
        hashes.append(hashlib.sha256((tmp_path / name / "model.safetensors").read_bytes()).hexdigest())
    assert hashes[0] == hashes[1]

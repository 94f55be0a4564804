"""Training, saving and refusing reward models, on synthetic text that is scored by a rule."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import pickle
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import _small_bert
from clawback.errors import ModelError, NotFound, TrainingError, UsageError
from clawback.extensions.reward import encoder, measures, members, reward_files
from clawback.extensions.reward.encoder import EncoderSettings
from clawback.extensions.reward.rated import RatedAnswer, mark
from clawback.features.state_features import Looks, shape

WORDS = ["river", "stone", "lamp", "chair", "cloud", "paper", "green", "seven", "north", "glass"]
PLEASING, ANNOYING = "thanks", "sorry"


def scored(count: int, seed: int, prompts: int = 30) -> list[RatedAnswer]:
    """Answers of random words; what is liked says PLEASING, what is not says ANNOYING, and one score in ten is wrong."""
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(count):
        good = rng.random() < 0.5
        words = rng.choice(WORDS, size=6).tolist()
        words.insert(int(rng.integers(6)), PLEASING if good else ANNOYING)
        value = 0.8 if good ^ (rng.random() < 0.1) else 0.2
        made.append(RatedAnswer(f"question {rng.integers(prompts)}", " ".join(words), value))
    return made


class Reader:
    """A causal model for tests: the states are a fixed random vector a word, averaged."""

    def __init__(self, identity: str = "sha256:a") -> None:
        self.identity, self.identities = identity, [identity]
        self.known = {
            w: np.random.default_rng(i).normal(size=8) for i, w in enumerate([*WORDS, PLEASING, ANNOYING])
        }
        self.names = {w: i for i, w in enumerate(self.known)}

    def __call__(self, pairs: Sequence[tuple[str, str]]) -> Looks:
        words = [[w for w in r.split() if w in self.known] for _, r in pairs]
        states = np.array([np.mean([self.known[w] for w in ws], 0) if ws else np.zeros(8) for ws in words])
        tokens = [[self.names[w] for w in ws] for ws in words]
        return Looks(states, tokens, np.array([shape(*pair) for pair in pairs]))


class Blind:
    """Reads nothing."""

    identity, identities = "blind", ["blind"]

    def __call__(self, pairs: Sequence[tuple[str, str]]) -> Looks:
        return Looks(
            np.zeros((len(pairs), 4)), [[] for _ in pairs], np.zeros((len(pairs), len(shape("", ""))))
        )


def small_bert(folder: Path, rated: Sequence[RatedAnswer]) -> EncoderSettings:
    folder.mkdir()
    _small_bert.make(folder, [t for r in rated for t in r.pair], max_length=32, dropout=0.1, seed=0)
    return EncoderSettings(encoder=str(folder), members=2, epochs=6, learning_rate=5e-3, max_length=32)


def card_of(made: encoder.Trained, settings: EncoderSettings, base: str) -> reward_files.Card:
    return reward_files.Card(
        dataclasses.asdict(settings), made.encoder.calibration, (mark("question 1"),), 100, 0,
        len(made.encoder.members), base,
    )  # fmt: skip


@pytest.fixture(scope="module")
def on_states() -> tuple[encoder.Trained, EncoderSettings]:
    settings = EncoderSettings()
    return encoder.fit(scored(240, 0), settings, look=Reader()), settings


def test_it_learns_what_is_liked(on_states: tuple[encoder.Trained, EncoderSettings]) -> None:
    test = scored(200, 1)
    true = [r.value for r in test]
    made, _ = on_states
    scores = made.encoder.score([r.pair for r in test])
    assert measures.spearman(scores, true) > 0.6
    assert measures.mse(made.encoder.expected(scores), true) < 0.6 * float(np.var(true))
    assert measures.mse(made.encoder.expected(scores), true) <= measures.mse(scores, true) + 0.005
    assert all(one["rows"] < 240 and one["epochs"] >= 1 for one in made.history)


def test_members_differ_and_their_doubt_is_taken_off(
    on_states: tuple[encoder.Trained, EncoderSettings],
) -> None:
    model = on_states[0].encoder
    pairs = [r.pair for r in scored(20, 2)]
    each = model.each(pairs)
    assert each.shape == (3, 20)
    assert each.std(0).min() > 0
    np.testing.assert_allclose(model.score(pairs, 2.0), np.maximum(each.mean(0) - 2 * each.std(0), 0))
    assert model.each([]).shape == (3, 0)


def test_the_same_seed_gives_the_same_scores(on_states: tuple[encoder.Trained, EncoderSettings]) -> None:
    made, settings = on_states
    pairs = [r.pair for r in scored(10, 3)]
    again = encoder.fit(scored(240, 0), settings, look=Reader()).encoder
    np.testing.assert_array_equal(again.each(pairs), made.encoder.each(pairs))


def test_ranks_undo_a_skew() -> None:
    """Scores squashed towards 0 by a power that keeps their order: learned by rank, the model is the same."""
    plain = scored(160, 4)
    skewed = [dataclasses.replace(r, value=r.value**9) for r in plain]
    settings = EncoderSettings(members=1, targets="ranks")
    pairs = [r.pair for r in scored(30, 5)]
    ours, theirs = (encoder.fit(rated, settings, look=Reader()).encoder for rated in (plain, skewed))
    np.testing.assert_allclose(ours.each(pairs), theirs.each(pairs))
    assert theirs.expected(theirs.score(pairs)).max() < 0.2  # calibrated back to the scores as they are


def test_what_cannot_be_learned_from_is_refused() -> None:
    alike = [RatedAnswer(f"p{i}", "a", 0.5) for i in range(20)]
    with pytest.raises(TrainingError, match="same"):
        encoder.fit(alike, EncoderSettings(), look=Reader())
    with pytest.raises(TrainingError, match="8 different prompts"):
        encoder.fit([RatedAnswer("p", str(i), i / 9) for i in range(10)], EncoderSettings(), look=Reader())
    with pytest.raises(UsageError):
        EncoderSettings(validation=1.0)


def test_a_round_trip_gives_the_same_scores(
    tmp_path: Path, on_states: tuple[encoder.Trained, EncoderSettings]
) -> None:
    made, settings = on_states
    pairs = [r.pair for r in scored(25, 6)]
    card = reward_files.save(tmp_path, made.encoder, card_of(made, settings, "sha256:a"))
    loaded, read = reward_files.load(tmp_path, lambda _: Reader())
    assert read == card
    assert read.name == loaded.name
    np.testing.assert_array_equal(loaded.each(pairs), made.encoder.each(pairs))
    assert loaded.calibration == made.encoder.calibration
    reward_files.save(tmp_path, made.encoder, card_of(made, settings, "sha256:a"))
    assert len([p for p in tmp_path.iterdir() if p.is_dir()]) == 1  # the old one is gone
    with pytest.raises(ModelError, match="another embedded"):
        reward_files.load(tmp_path, lambda _: Reader("sha256:b"))


@pytest.mark.parametrize("harm", ["changed", "more", "less", "link", "elsewhere", "card"])
def test_a_tampered_model_is_refused(
    tmp_path: Path, on_states: tuple[encoder.Trained, EncoderSettings], harm: str
) -> None:
    made, settings = on_states
    card = reward_files.save(tmp_path, made.encoder, card_of(made, settings, "sha256:a"))
    weights = tmp_path / card.folder / "member-0" / "head.safetensors"
    if harm == "changed":
        data = bytearray(weights.read_bytes())
        data[-1] ^= 1
        weights.write_bytes(data)
    elif harm == "more":
        (weights.parent / "extra.json").write_text("{}")
    elif harm == "less":
        weights.unlink()
    elif harm == "link":
        weights.rename(tmp_path / "aside")
        weights.symlink_to(tmp_path / "aside")
    elif harm == "elsewhere":
        values = json.loads((tmp_path / reward_files.CARD).read_text())
        (tmp_path / reward_files.CARD).write_text(json.dumps(values | {"folder": "../" + tmp_path.name}))
    else:
        (tmp_path / reward_files.CARD).write_text("{")
    with pytest.raises(ModelError):
        reward_files.load(tmp_path, lambda _: Reader())


def test_pickled_files_are_refused_even_with_a_matching_card(
    tmp_path: Path, on_states: tuple[encoder.Trained, EncoderSettings]
) -> None:
    made, settings = on_states
    card = reward_files.save(tmp_path, made.encoder, card_of(made, settings, "sha256:a"))
    evil = tmp_path / card.folder / "member-0" / "pytorch_model.bin"
    evil.write_bytes(pickle.dumps({"weight": 1}))
    values = json.loads((tmp_path / reward_files.CARD).read_text())
    values["files"]["member-0/pytorch_model.bin"] = hashlib.sha256(evil.read_bytes()).hexdigest()
    (tmp_path / reward_files.CARD).write_text(json.dumps(values))
    with pytest.raises(ModelError, match=r"pytorch_model\.bin"):
        reward_files.load(tmp_path, lambda _: Reader())


def test_an_encoder_of_ones_own_is_safetensors_without_code(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    with pytest.raises(ModelError, match="no folder"):
        members.check_source(str(folder))
    small_bert(folder, scored(20, 0))
    members.check_source(str(folder))
    (folder / "modules.json").write_text(json.dumps([{"type": "custom.Evil", "path": ""}]))
    with pytest.raises(ModelError, match=r"custom\.Evil"):
        members.check_source(str(folder))
    (folder / "modules.json").unlink()
    (folder / "modeling.py").write_text("raise SystemExit")
    with pytest.raises(ModelError, match="code"):
        members.check_source(str(folder))
    (folder / "modeling.py").unlink()
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(ModelError, match="safetensors"):
        members.check_source(str(folder))
    with pytest.raises(NotFound):
        reward_files.read(tmp_path / "nothing")


def test_an_encoder_is_fine_tuned_saved_and_loaded(tmp_path: Path) -> None:
    """sentence-transformers' CrossEncoder on a tiny BERT: it learns the word, and scores the same after a round trip."""
    pytest.importorskip("sentence_transformers")
    rated = scored(240, 0)
    settings = small_bert(tmp_path / "bert", rated)
    made = encoder.fit(rated, settings, look=Blind())
    test = scored(100, 1)
    pairs = [r.pair for r in test]
    before = made.encoder.each(pairs)
    assert measures.spearman(before.mean(0), [r.value for r in test]) > 0.5
    share = made.history[0]["share"]
    assert share > 0.8  # beside what reads nothing
    card = dataclasses.replace(card_of(made, settings, "blind"), share=share)
    reward_files.save(tmp_path / "home", made.encoder, card)
    loaded, card = reward_files.load(tmp_path / "home", lambda _: Blind())
    np.testing.assert_array_equal(loaded.each(pairs), before)
    assert {Path(n).suffix for n in card.files} <= set(reward_files.PLAIN)


def test_an_encoder_that_reads_nothing_is_hardly_heard(tmp_path: Path) -> None:
    """The same BERT at a rate at which it learns nothing: what is read from hidden states decides."""
    pytest.importorskip("sentence_transformers")
    rated = scored(120, 0)
    settings = dataclasses.replace(small_bert(tmp_path / "bert", rated), learning_rate=1e-9, epochs=1)
    made = encoder.fit(rated, settings, look=Reader())
    test = scored(100, 1)
    assert made.history[0]["encoder_spearman"] < made.history[0]["spearman"]
    assert measures.spearman(made.encoder.score([r.pair for r in test]), [r.value for r in test]) > 0.5


@given(st.integers(0, 2**32 - 1))
def test_stacking_finds_the_best_share(seed: int) -> None:
    """Against a search over shares in steps of a thousandth."""
    rng = np.random.default_rng(seed)
    one, other, targets = rng.random((3, 12))
    errors = [measures.mse(w * one + (1 - w) * other, targets) for w in np.linspace(0, 1, 1001)]
    share = members.stacking(one, other, targets)
    assert measures.mse(share * one + (1 - share) * other, targets) <= min(errors) + 1e-12
    assert abs(share - np.argmin(errors) / 1000) <= 0.001


def test_a_model_that_looks_at_other_things_is_to_be_trained_again(
    tmp_path: Path, on_states: tuple[encoder.Trained, EncoderSettings]
) -> None:
    """As those of an older version do."""
    member = on_states[0].encoder.members[0]
    assert isinstance(member, members.StatesMember)
    lens = dataclasses.replace(member.lens, shape=member.lens.shape[:5], shapes=member.lens.shapes[:5])
    older = members.StatesMember(lens, 0.0)
    older.save(tmp_path)
    with pytest.raises(ModelError, match="clawback lab reward train"):
        members.states(tmp_path)

"""Episodes with pictures: what is recorded is what the learner says, what is stored comes back, and a kill loses nothing."""

from __future__ import annotations

import base64
import dataclasses
from pathlib import Path

import pytest
import torch

pytest.importorskip("PIL")

from clawback import engine, store
from clawback.environments.core import Observation, Step, Task
from clawback.environments.episode_loop import Order
from clawback.environments.play import View
from clawback.environments.policies import LocalPolicy
from clawback.episode_jobs import playing
from clawback.learning.episode_examples import Episodes, EpisodeSettings, look_again, sequences
from clawback.models.types import Sampling
from clawback.records import Episode
from clawback.release.version_registry import WEIGHTS
from clawback.rollouts.concurrent import Play, Rollouts
from clawback.rollouts.token_record import Dialogue
from tests.engine.torch.test_vision import BLUE, RED, asked, folder  # noqa: F401 — a fixture

SHORT = Play(together=4, max_tokens=4, patience=5.0)
COLOURS = (RED, BLUE, (10, 250, 10), (250, 250, 10))


class Colour:
    """Asks about one colour and then about another; what a reply pays follows from its length."""

    def __init__(self, turns):
        self.turns = turns

    async def reset(self, task, seed):
        self.at, self.left = task.data["first"], self.turns
        return Observation(({"role": "system", "content": "Look."}, *asked(COLOURS[self.at])))

    async def step(self, message):
        self.left -= 1
        then = asked(COLOURS[(self.at + 1) % 4], text="And now?")
        return Step(() if self.left == 0 else then, float(len(message["content"]) % 3), self.left == 0)

    async def close(self):
        pass


class Colours:
    name = "colours"

    def __init__(self, turns=2):
        self.turns = turns

    def tasks(self, split):
        return [Task(f"{split}-{i}", {"first": i}, split) for i in range(4)]

    def make(self):
        return Colour(self.turns)


def seeing(place, temperature=1.0):
    made = engine.load(str(place))
    made.sampling = Sampling(temperature)
    return made


def played(policy, count=4, how=SHORT, worlds=None):
    worlds = worlds or Colours()
    tasks = worlds.tasks("train")
    with Rollouts(policy, worlds, how) as rollouts:
        return rollouts.play([Order(i, tasks[i % 4], 0, 7, i) for i in range(count)])


def test_a_version_that_is_evaluated_looks_as_well(folder):  # noqa: F811
    policy = seeing(folder)
    views = [View(Task(str(i)), asked(COLOURS[i]), (), 7, 0) for i in range(2)]
    local = LocalPolicy(policy, max_tokens=4, seed=1)
    turns = []
    draw = local.conversations.draw
    local.conversations.draw = lambda some: turns.extend(some) or draw(some)
    replies = local._answers(views)
    assert [turn.pixels is not None for turn in turns] == [True, True]
    direct = [policy.chat.text(turn.ids, draw([turn])[0].ids)[1] for turn in turns]
    assert replies == direct


def plain(episodes):
    return [dataclasses.replace(e, created_at=0.0, id=0) for e in episodes]


def test_each_reply_has_a_branch_that_names_what_it_saw(folder):  # noqa: F811
    policy = seeing(folder)
    for episode in played(policy):
        assert [step.branch for step in episode.steps] == [0, 1]
        first, second = episode.branches
        assert len(first.pictures) == 1
        assert second.pictures[0] == first.pictures[0]
        assert len(second.pictures) == 2
        assert second.pictures[1] != first.pictures[0]
        assert Episode.of(dataclasses.asdict(episode)) == episode
    dialogue = Dialogue(policy.chat, episode.messages[:2], max_prompt=200)
    assert tuple(dialogue.prompt()) == first.ids[: episode.steps[0].start]


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_what_was_recorded_is_what_the_learner_says(folder, temperature):  # noqa: F811
    policy = seeing(folder, temperature)
    episodes, seen = look_again(policy.chat, played(policy, 6))
    parts = sequences(episodes, seen)
    assert len(parts) == 12
    assert all(one.encoded.pixels for one in parts)
    with torch.no_grad():
        now = policy.scorer([one.encoded for one in parts]).split()
    for one, values in zip(parts, now, strict=True):
        assert torch.allclose(values, one.old, atol=1e-4)
    # Were the pictures others, the learner would say so.
    swapped = [
        dataclasses.replace(one.encoded, pixels=other.encoded.pixels)
        for one, other in zip(parts[0::2], parts[2::2] + parts[:1], strict=False)
    ]
    with torch.no_grad():
        others = policy.scorer(swapped).split()
    assert max(float((a - b.old).abs().max()) for a, b in zip(others, parts[0::2], strict=False)) > 1e-3


def test_the_same_seed_plays_the_same_alone_and_among_others(folder):  # noqa: F811
    policy = seeing(folder)
    one, again = played(policy, 6), played(policy, 6)
    assert plain(one) == plain(again)
    alone = played(policy, 6, dataclasses.replace(SHORT, together=1))
    assert [[b.ids for b in e.branches] for e in alone] == [[b.ids for b in e.branches] for e in one]


def test_what_several_saw_is_one_object_and_values_can_be_fitted(folder):  # noqa: F811
    policy = seeing(folder)
    policy.attach(rank=2, alpha=2, seed=0)
    source = Episodes(policy, lambda number: played(policy, 8), EpisodeSettings(rounds=2, round_steps=2), 3)
    some = source.examples(0)
    pixels = {id(e.encoded.pixels) for e in source.round if len(e.encoded.pixels.pictures) == 1}
    assert len(pixels) == 4
    assert some
    assert source.figures["gap"] < 1e-4
    other = Episodes(policy, lambda number: [], source.settings, 3)
    other.restore(source.state())
    for a, b in zip(source.examples(1), other.examples(1), strict=True):
        assert a.encoded.prompt == b.encoded.prompt
        assert a.encoded.pixels.pictures == b.encoded.pixels.pictures
        assert torch.equal(a.ref, b.ref)


def test_an_episode_whose_picture_is_another_is_left_out(folder, caplog):  # noqa: F811
    policy = seeing(folder)
    episodes = played(policy, 3)
    first = episodes[1].messages[1]
    changed = [{**first, "content": asked((1, 2, 3))[0]["content"]}, {**first, "content": "Which colour?"}]
    for other in changed:
        messages = list(episodes[1].messages)
        messages[1] = other
        broken = dataclasses.replace(episodes[1], messages=tuple(messages))
        kept, seen = look_again(policy.chat, [episodes[0], broken, episodes[2]])
        assert kept == [episodes[0], episodes[2]]
        assert {place for place, _ in seen} == {0, 1}
    assert "is left out" in caplog.text


def test_they_come_back_from_the_store_with_each_picture_once(folder, home):  # noqa: F811
    policy = seeing(folder)
    episodes = played(policy, 8)
    with store.connect(home.database) as db:
        kept = db.add_episodes(episodes)
        assert plain(db.episode(one.id) for one in kept) == plain(episodes)
        assert db._read("SELECT count(*) AS n FROM pictures")[0]["n"] == 4
        assert "base64" not in "".join(row["messages"] for row in db._read("SELECT messages FROM episodes"))
        assert db.episodes()[0].messages[1]["content"][0] == {"type": "text", "text": "[image]"}
        with db._write() as raw:
            raw.execute("DELETE FROM episodes")
        assert db._read("SELECT count(*) AS n FROM pictures")[0]["n"] == 0
        assert db.integrity() == []


def test_a_picture_that_was_changed_in_the_store_leaves_the_episode_out(folder, home):  # noqa: F811
    from clawback.records import Run

    policy = seeing(folder)
    with store.connect(home.database) as db:
        run = db.start_run(Run("llava", "r", "grpo", {}, 0, 0))
        kept = db.add_episodes([dataclasses.replace(e, run_id=run.id) for e in played(policy, 2)])
        assert db.played(run.id, [0, 1]).keys() == {0, 1}
        other = base64.b64decode(asked((9, 9, 9))[0]["content"][0]["image_url"]["url"].split(",")[1])
        with db._write() as raw:
            raw.execute("UPDATE pictures SET data = ? WHERE id = 1", (other,))
        assert db.played(run.id, [0, 1]).keys() == {1}
        assert db.episode(kept[0].id).branches == ()
        assert {"type": "text", "text": "[image]"} in db.episode(kept[0].id).messages[1]["content"]


class Killed(BaseException):
    """As kill -9: nothing tidies up after it."""


@pytest.mark.slow
def test_killed_after_any_step_it_ends_in_the_same_bytes(folder, home, tmp_path, monkeypatch):  # noqa: F811
    """Episodes with pictures that were over come from the store, a round under way from the checkpoint."""
    import clawback.trainer.training_loop as trainer
    from clawback.paths import Home

    monkeypatch.setattr(trainer, "CHECKPOINT_SECONDS", 0.0)
    wish = playing.Wish("colours", episodes=8, groups=4, held_out=2, max_tokens=3, max_turns=2, together=8)

    def learn(where, on_progress=None):
        where.create()
        where.config.write_text(f'[model]\nbase = "{folder}"\n[training]\nbackground = false\n')
        return playing.learn(where, wish, seed=1, worlds=Colours(), on_progress=on_progress)

    def weights(made):
        return (Path(made.version.path) / WEIGHTS).read_bytes()

    whole = learn(home)
    assert whole.counts == {"completed": 12}
    other = Home(tmp_path / "killed")
    for last in (2, 5):

        def die(progress, last=last):
            if progress.get("phase") == "train" and progress.get("step") == last and "return" in progress:
                raise Killed

        with pytest.raises(Killed):
            learn(other, die)
    again = learn(other)
    assert again.counts == {"completed": 12}
    assert weights(again) == weights(whole)


def test_a_reply_may_have_the_mark_of_a_picture_in_it(folder):  # noqa: F811
    """It is written and scored as any token; read as a mark it would be one picture too many."""
    policy = seeing(folder)
    mark = policy.tokenizer.convert_tokens_to_ids("<image>")
    with torch.no_grad():
        policy.model.get_output_embeddings().weight[mark] *= 30
    episodes, seen = look_again(policy.chat, played(policy, 6))
    parts = sequences(episodes, seen)
    assert any(mark in one.encoded.response[:-1] for one in parts)
    with torch.no_grad():
        now = policy.scorer([one.encoded for one in parts]).split()
    for one, values in zip(parts, now, strict=True):
        assert torch.allclose(values, one.old, atol=1e-4)


@pytest.mark.slow
def test_colours_are_learned_from_pictures(tmp_path, monkeypatch):
    """Held-out pairs of a colour and a place, by a model that is made for it."""
    from benchmarks import gym

    monkeypatch.chdir(tmp_path)
    found = gym.learn("squares", 1, None, {})
    assert found["before"] < 0.4
    assert found["after"] > 0.6

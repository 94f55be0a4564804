"""Episodes in the store: whole, once, and gone with their run."""

from __future__ import annotations

import dataclasses
import json

from hypothesis import given
from hypothesis import strategies as st

from clawback import store
from clawback.records import Branch, Episode, EpisodeStep, Run


def episode(number=0, **changes):
    made = Episode(
        environment="lake",
        task="lake/3",
        seed=3,
        messages=({"role": "user", "content": "Row 1"}, {"role": "assistant", "content": "Action: 2"}),
        branches=(Branch((5, 6, 7, 8), (False, False, True, True), (0.0, 0.0, -0.25, -1.5)),),
        steps=(EpisodeStep(0, 2, 4, reward=1.0, penalty=-0.5, unparsable=True, update=3),),
        status="completed",
        stop_reason="done",
        number=number,
        group=number // 2,
        created_at=9.0,
    )
    return dataclasses.replace(made, **changes)


def test_an_episode_comes_back_as_it_went_in(home):
    with store.connect(home.database) as db:
        run = db.start_run(Run("embedded", "r", "grpo", {}, 0, 0))
        [kept] = db.add_episodes([episode(run_id=run.id)])
        assert db.episode(kept.id) == kept == episode(id=kept.id, run_id=run.id)
        # The same place in the run again is the same episode.
        [again] = db.add_episodes([episode(run_id=run.id, seed=99)])
        assert again == kept
        assert db.played(run.id, range(2000)) == {0: kept}
        assert db.played(run.id + 1, [0]) == {}


def test_lists_are_filtered_and_without_tokens(home):
    with store.connect(home.database) as db:
        db.add_episodes([episode(i, status=s) for i, s in enumerate(["completed", "failed", "truncated"])])
        assert [e.number for e in db.episodes()] == [2, 1, 0]
        assert [e.status for e in db.episodes(status="failed")] == ["failed"]
        assert db.episodes(environment="other") == []
        assert db.episodes()[0].branches == ()
        assert db.count_episodes() == {"completed": 1, "failed": 1, "truncated": 1}


def test_secrets_go_and_with_them_the_tokens_that_hold_them(home):
    secret = {"role": "user", "content": "key sk-ant-api03-" + "a1B2" * 12}
    with store.connect(home.database) as db:
        [kept] = db.add_episodes([episode(messages=(secret,))])
        found = db.episode(kept.id)
        assert "a1B2a1B2" not in json.dumps(found.messages)
        assert found.branches == ()


def test_they_go_with_their_run(home):
    with store.connect(home.database) as db:
        run = db.start_run(Run("embedded", "r", "grpo", {}, 0, 0))
        db.add_episodes([episode(run_id=run.id), episode()])
        db.update_run(run.id, status="done")
        db.forget_training(feedback=False)
        assert [e.run_id for e in db.episodes()] == [None]
        assert db.integrity() == []


@given(
    st.lists(
        st.tuples(st.integers(0, 2**31 - 1), st.booleans(), st.floats(-50, 0, width=32)),
        min_size=1,
        max_size=40,
    )
)
def test_records_survive_json(rows):
    branch = Branch(*(tuple(column) for column in zip(*rows, strict=True)))
    made = episode(branches=(branch,))
    assert Episode.of(json.loads(json.dumps(dataclasses.asdict(made)))) == made

"""Several people rate: how much each of them counts, and that one person alone sees nothing of it."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import cohen_kappa_score

from clawback import feedback, store
from clawback.feedback.calibrate import agreed
from clawback.paths import Home
from clawback.records import Feedback, Turn, person_of
from clawback.store import Store

TURNS = 40


@pytest.fixture
def db(home: Home) -> Iterator[Store]:
    with store.connect(home.database) as opened:
        for number in range(TURNS):
            asked = ({"role": "user", "content": f"question {number}"},)
            opened.add_turn(Turn("s", asked, f"answer {number}"))
        yield opened


OWN = st.sampled_from(["cli", "web", "chat", "claude-code"])
SAID = st.lists(st.tuples(st.integers(1, 6), OWN, st.sampled_from([-1.0, -0.3, 1.0])), max_size=25)


@given(SAID)
def test_one_person_alone_counts_in_full_through_whatever_door(said: list[tuple[int, str, float]]) -> None:
    rows = [Feedback(t, "rating", v, source=s, id=i) for i, (t, s, v) in enumerate(said, 1)]
    assert agreed(rows) == {}


def test_who_is_who() -> None:
    assert person_of("slack:U1") != person_of("slack:U2")
    assert person_of("cli") == person_of("web") == person_of("openclaw") == person_of("mcp") == "owner"
    assert person_of("rater:anna") == "rater:anna"
    assert person_of("asked-again", "implicit") == "asked-again"


def several(db: Store) -> None:
    """Two who agree nine times in ten, and one who throws dice."""
    rng = random.Random(3)
    for turn in range(1, TURNS + 1):
        value = 1.0 if turn % 2 else -1.0
        feedback.rate(db, turn, value, source="cli")
        feedback.rate(db, turn, -value if turn % 10 == 0 else value, source="slack:U1")
        feedback.rate(db, turn, rng.choice([-1.0, 1.0]), source="slack:dice")


def test_weights_are_kappa_with_the_others_drawn_towards_one(db: Store) -> None:
    several(db)
    weights = feedback.rater_weights(db)
    said = {s: [f.value for f in db.feedback() if f.author == s] for s in weights}
    drawn = {}
    for source, own in said.items():
        others = [values for other, values in said.items() if other != source]
        drawn[source] = max(0, (10 + 80 * cohen_kappa_score(own * 2, others[0] + others[1])) / 90)
    assert weights == pytest.approx({s: w / max(drawn.values()) for s, w in drawn.items()})
    assert weights["slack:dice"] < 0.6 < 0.8 < min(weights["owner"], weights["slack:U1"])


def test_of_two_nobody_can_say_who_is_the_odd_one_out(db: Store) -> None:
    rng = random.Random(0)
    for turn in range(1, TURNS + 1):
        feedback.rate(db, turn, rng.choice([-1, 1]), source="cli")
        feedback.rate(db, turn, rng.choice([-1, 1]), source="slack:U1")
    assert feedback.samples(db) == feedback.samples(db, raters="equal")


def test_where_nobody_agrees_with_anybody_all_are_the_same(db: Store) -> None:
    for turn in range(1, TURNS + 1):
        for number, source in enumerate(("cli", "slack:U1", "slack:U2")):
            if turn % 3 != number:  # two rate each turn, and never alike
                feedback.rate(db, turn, 1 if turn % 3 == (number + 1) % 3 else -1, source=source)
    assert feedback.rater_weights(db) == {}


def test_the_dice_no_longer_draw_level_with_those_who_agree(db: Store) -> None:
    several(db)
    weights = feedback.rater_weights(db)
    weighed = {s.turn_id: s for s in feedback.samples(db)}
    equal = {s.turn_id: s for s in feedback.samples(db, raters="equal")}
    voices = {t: [p.value for p in s.parts] for t, s in equal.items()}
    against = [t for t, (cli, other, dice) in voices.items() if cli == other != dice]
    assert against
    for turn in against:
        assert abs(equal[turn].reward) == pytest.approx(1 / 3)
        agree, dice = weights["owner"] + weights["slack:U1"], weights["slack:dice"]
        assert 1 / 3 < abs(weighed[turn].reward) == pytest.approx((agree - dice) / (agree + dice))
        assert [p.weight for p in weighed[turn].parts] == [
            weights[s] for s in ("owner", "slack:U1", "slack:dice")
        ]


def test_a_rater_alone_on_a_turn_is_worth_their_weight(db: Store) -> None:
    several(db)
    asked = ({"role": "user", "content": "q"},)
    lone, edited = (db.add_turn(Turn("s", asked, f"other {n}")).id for n in range(2))
    feedback.rate(db, lone, 1, source="slack:dice")
    feedback.edit(db, edited, "better", source="slack:dice")
    weight = feedback.rater_weights(db)["slack:dice"]
    found = {s.turn_id: s for s in reversed(feedback.samples(db))}
    assert found[lone].reward == pytest.approx(weight)
    assert found[edited].reward == pytest.approx(-0.5 * weight)
    assert {s.turn_id: s.reward for s in feedback.evidence(found.values())} == {
        t: s.reward for t, s in found.items()
    }
    assert feedback.samples(db, raters="equal")[-3].reward == 1


def test_a_judge_beside_an_untrusted_rater_takes_nothing_away_from_their_evidence(db: Store) -> None:
    several(db)
    turn = db.add_turn(Turn("s", ({"role": "user", "content": "q"},), "other")).id
    feedback.rate(db, turn, 1, source="slack:dice")
    db.add_feedback(Feedback(turn, "judge", -1.0, source="judge:m"))
    [sample] = [s for s in feedback.evidence(feedback.samples(db)) if s.turn_id == turn]
    assert sample.reward == pytest.approx(feedback.rater_weights(db)["slack:dice"])


def test_a_narrowed_set_is_weighed_by_itself(db: Store) -> None:
    """A run that goes on: what is said meanwhile changes nobody's weight in it."""
    several(db)
    ids = [f.id for f in db.feedback()]
    before = feedback.samples(db, ids)
    for turn in range(1, TURNS + 1):
        feedback.rate(db, turn, -1, source="slack:late")
        feedback.rate(db, turn, -1, source="slack:U1")
    assert feedback.samples(db, ids) == before
    assert feedback.samples(db) != before


VOICES = st.lists(
    st.tuples(
        st.integers(1, 5),
        st.sampled_from(["cli", "slack:a", "slack:b", "judge:m"]),
        st.sampled_from([-1.0, -0.5, 0.1, 1.0]),
    ),
    min_size=1,
    max_size=30,
)


@given(VOICES)
def test_rewards_stay_in_range_and_between_what_was_said_and_nothing(
    voices: list[tuple[int, str, float]],
) -> None:
    rows = [
        Feedback(t, "judge" if s.startswith("judge") else "rating", v, source=s, id=i)
        for i, (t, s, v) in enumerate(voices, 1)
    ]
    weights = agreed(rows)
    assert all(0 <= w <= 1 for w in weights.values())
    for turn in {t for t, *_ in voices}:
        value, parts = feedback.reward(turn, [r for r in rows if r.turn_id == turn], {}, weights)
        values = [p.value for p in parts] or [0.0]
        assert min(*values, 0.0) - 1e-9 <= value <= max(*values, 0.0) + 1e-9

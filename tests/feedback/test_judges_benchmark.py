"""The parts of ``python -m benchmarks judges``: a judge that is wrong as often as it says, taps as they are meant, a pass that is real."""

import random

import pytest

from benchmarks import judges
from clawback import feedback
from clawback.feedback.verdict import JUDGE, boxed, shown
from clawback.records import Turn


def asked(said: str) -> str:
    """A turn as judges are shown it; praise and complaint in the request and the answer are no next state."""
    turn = Turn("s", ({"role": "user", "content": "Great, perfect."},), "Thanks.", next_state=(
        {"role": "user", "content": said},))  # fmt: skip
    return shown(turn)


def test_the_judge_reads_the_next_state_in_the_form_of_real_ones() -> None:
    always_right, flatterer = judges.judge_of(0.0, 0), judges.judge_of(None, 0)
    for words, value in ((judges.THANKS, 1), (judges.COMPLAINTS, -1)):
        for said in words:
            assert boxed(always_right(JUDGE, asked(said)).text) == value
            assert boxed(flatterer(JUDGE, asked(said)).text) == 1


def test_its_votes_are_wrong_as_often_as_they_are_meant_to_be() -> None:
    ask, material = judges.judge_of(0.3, 0), asked(judges.COMPLAINTS[0])
    wrong = sum(boxed(ask(JUDGE, material).text) == 1 for _ in range(2000))
    assert abs(wrong / 2000 - 0.3) < 3 * (0.3 * 0.7 / 2000) ** 0.5


def test_people_tap_as_they_are_described() -> None:
    chance = random.Random(0)
    fits = [chance.random() < 0.3 for _ in range(judges.TURNS)]
    liked = judges.tapped(fits, "all liked", chance)
    most = judges.tapped(fits, "most liked", chance)
    assert len(liked) == len(most) == judges.OWN
    assert set(liked.values()) == {1.0}
    assert sorted(most.values()) == [-1.0] * 2 + [1.0] * 6
    assert all((value > 0) == fits[i] for taps in (liked, most) for i, value in taps.items())
    agree = [
        (value > 0) == fits[i] for _ in range(100) for i, value in judges.tapped(fits, "half", chance).items()
    ]
    assert len(agree) == 3200
    assert 0.87 < sum(agree) / 3200 < 0.93


@pytest.mark.slow
def test_a_flatterer_changes_nothing_where_enough_was_disliked() -> None:
    with judges.home_of("bullets, no apology", 0) as (_, db, right):
        alone = judges.samples_of(db, None)
        assert sum(s.reward < 0 for s in alone) >= 4
        flatterer = judges.Arm(None, 1, True)
        judges.judge_pass(db, flatterer, 0)
        assert len([f for f in db.feedback() if f.kind == "judge"]) == judges.TURNS
        assert judges.verdicts(db, right) == {
            "accuracy": sum(right.values()) / judges.TURNS,
            "weight": 0.0,
        }
        assert judges.mark(judges.samples_of(db, flatterer)) == judges.mark(alone)
        believed = judges.samples_of(db, judges.Arm(None, 1, False))
        own = {s.turn_id: s.reward for s in alone}
        assert all(s.reward == pytest.approx(1.0, abs=1e-4) for s in believed if s.turn_id not in own)
        assert all(
            s.reward == pytest.approx((own[s.turn_id] + 1) / 2, abs=1e-4)
            for s in believed
            if s.turn_id in own
        )
        assert feedback.evidence(believed) == feedback.evidence(alone)

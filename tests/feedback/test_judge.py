"""A pass of the judge: what it enters, what it never does, and that wrong and hostile judges are seen through."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from clawback import config, feedback, store
from clawback.config import SILENT
from clawback.errors import JudgeError, NotFound
from clawback.feedback.calibrate import PRIOR_WEIGHT, reliability
from clawback.feedback.endpoint import Ask, CallBudget, Endpoint, JudgeAnswer, NoAnswer
from clawback.feedback.next_state_judge import judge, pending, source_of, verdict
from clawback.feedback.passes import FAILURES, PassPlan
from clawback.paths import Home
from clawback.records import Feedback, Turn
from clawback.store import Store
from tests.feedback.judge_server import judge_server

LIKED, DISLIKED = "Great, next question.", "No, that is wrong. Do it again."


@pytest.fixture
def db(home: Home) -> Iterator[Store]:
    with store.connect(home.database) as opened:
        yield opened


def fill(db: Store, count: int, *, session: str = "s", old: bool = False, next_state: str = "") -> list[Turn]:
    """Turns of which every other one was liked, by what came back."""
    made = []
    for number in range(count):
        asked = ({"role": "user", "content": f"question {session} {number}"},)
        at = time.time() - (2 * SILENT if old else 0)
        turn = db.add_turn(Turn(session, asked, f"answer {number}", created_at=at))
        said = next_state or (LIKED if number % 2 else DISLIKED)
        db.put_next_state(turn.id, ({"role": "user", "content": said},))
        made.append(db.turn(turn.id))
    return made


def budget(calls: int = 10_000) -> CallBudget:
    return CallBudget(calls, 600, 10**9)


def honest(_: str, user: str) -> JudgeAnswer:
    return JudgeAnswer("\\boxed{1}" if LIKED in user else "\\boxed{-1}", 10)


def test_verdicts_become_rows_once(db: Store) -> None:
    fill(db, 6)
    tally = judge(db, honest, PassPlan("m", budget()))
    assert (tally.turns, tally.good, tally.bad, tally.unclear) == (6, 3, 3, 0)
    rows = db.feedback()
    assert {(f.kind, f.source, abs(f.value)) for f in rows} == {("judge", "judge:m", 1.0)}
    assert all((f.value > 0) == (f.turn_id % 2 == 0) for f in rows)
    assert judge(db, honest, PassPlan("m", budget())).turns == 0
    assert len(db.feedback()) == 6
    # Another model is another judge.
    assert judge(db, honest, PassPlan("other", budget())).turns == 6


def test_what_cannot_be_judged_is_not(db: Store) -> None:
    asked = ({"role": "user", "content": "q"},)
    db.add_turn(Turn("s", asked, "nothing came back"))
    empty = db.add_turn(Turn("s", asked, "nothing was said"))
    db.put_next_state(empty.id, ())
    side = db.add_turn(Turn("s", asked, "a title", kind="side"))
    db.put_next_state(side.id, ({"role": "user", "content": LIKED},))
    assert pending(db, "m") == []


def test_a_row_that_was_taken_back_does_not_come_again(db: Store) -> None:
    [turn] = fill(db, 1)
    judge(db, honest, PassPlan("m", budget()))
    feedback.undo(db, turn.id)
    assert judge(db, honest, PassPlan("m", budget())).turns == 0
    assert feedback.samples(db) == []


def test_undo_means_ones_own_tap(db: Store) -> None:
    first, second = fill(db, 2)
    feedback.rate(db, first.id, 1)
    judge(db, honest, PassPlan("m", budget()))
    assert feedback.undo(db).kind == "rating"
    with pytest.raises(NotFound):
        feedback.undo(db)
    assert feedback.undo(db, second.id).kind == "judge"


def test_judged_is_not_rated(db: Store) -> None:
    fill(db, 4)
    judge(db, honest, PassPlan("m", budget()))
    assert db.turns(rated=True) == []
    assert len(db.turns(rated=False)) == 4
    assert (db.session("s").rated, db.session("s").reward) == (0, None)


def test_unclear_turns_leave_no_row_and_are_not_asked_about_again(db: Store) -> None:
    fill(db, 3)
    asked: list[str] = []

    def unsure(_: str, user: str) -> JudgeAnswer:
        asked.append(user)
        return JudgeAnswer(("\\boxed{1}", "\\boxed{-1}", "no idea")[len(asked) % 3], 10)

    assert judge(db, unsure, PassPlan("m", budget())).unclear == 3
    assert db.feedback() == []
    count = len(asked)
    assert judge(db, unsure, PassPlan("m", budget())).turns == 0
    assert len(asked) == count


def test_each_conversation_that_is_over_gives_a_sample(db: Store) -> None:
    over, going_on = fill(db, 3, session="over", old=True), fill(db, 2, session="on")
    done = fill(db, 1, session="done")
    db.finish_session("done")

    votes_of: dict[str, Iterator[int]] = {}

    def asked(system: str, user: str) -> JudgeAnswer:
        key = user.split(">>")[1].split("<<")[0]
        votes = votes_of.setdefault(key, iter((1, 1, 0, 0) if "over 1" in key else (0,) * 9))
        return JudgeAnswer(f"\\boxed{{{next(votes)}}}", 10)

    tally = judge(db, asked, PassPlan("m", budget(), votes=4))
    assert (tally.unclear, tally.by_conversation) == (6, 2)
    rows = {f.turn_id: f.value for f in db.feedback()}
    assert rows == {over[1].id: 0.5, done[0].id: 0.0}
    assert {s.turn_id for s in feedback.samples(db)} == set(rows)
    db.finish_session("on")
    assert judge(db, asked, PassPlan("m", budget())).by_conversation == 1
    assert {f.turn_id for f in db.feedback()} - set(rows) <= {t.id for t in going_on}
    assert judge(db, asked, PassPlan("m", budget())).by_conversation == 0


def test_when_a_conversation_is_over_is_a_setting(db: Store) -> None:
    fill(db, 2, session="on")
    assert judge(db, unsure, PassPlan("m", budget()), silent=SILENT).by_conversation == 0
    assert judge(db, unsure, PassPlan("m", budget()), silent=0).by_conversation == 1


def unsure(_: str, user: str) -> JudgeAnswer:
    return JudgeAnswer("\\boxed{0}", 10)


def test_further_votes_are_not_paid_for_once_it_is_certain(db: Store) -> None:
    fill(db, 4)
    counted = budget()

    def ask(system: str, user: str) -> JudgeAnswer:
        counted.take(1)
        return honest(system, user)

    judge(db, ask, PassPlan("m", counted, votes=5))
    assert counted.calls == 4 * 3


def test_a_pass_that_runs_out_keeps_what_it_has(db: Store) -> None:
    fill(db, 10)
    with judge_server(lambda _, user: honest("", user).text) as server:
        few = CallBudget(7, 60, 10**9)
        asked = Endpoint("openai", server.url, "m", "", few, 5.0)
        tally = judge(db, asked, PassPlan("m", few, votes=1, parallel=3))
    assert tally.turns == 7 == len(db.feedback())
    assert "max_calls" in tally.stopped
    assert judge(db, honest, PassPlan("m", budget())).turns == 3


def test_a_judge_that_has_gone_does_not_hold_the_pass_up(db: Store) -> None:
    fill(db, 20)
    calls = []

    def gone(*_: str) -> JudgeAnswer:
        calls.append(1)
        raise NoAnswer("nobody there")

    tally = judge(db, gone, PassPlan("m", budget(), votes=1))
    assert (tally.turns, tally.failed, len(calls)) == (0, FAILURES, FAILURES)
    assert tally.stopped == f"{FAILURES} turns in a row brought nothing: nobody there"
    assert len(pending(db, "m")) == 20  # all of them are asked about again


def test_turns_that_never_bring_anything_do_not_hold_up_the_others(db: Store) -> None:
    fill(db, 10)
    stuck = {f"answer {n}" for n in range(10 - FAILURES, 10)}  # the newest

    def ask(system: str, user: str) -> JudgeAnswer:
        return JudgeAnswer("no", 1) if any(f"\n{s}\n" in user for s in stuck) else honest(system, user)

    assert judge(db, ask, PassPlan("m", budget(), votes=1)).turns == 0
    again = judge(db, ask, PassPlan("m", budget(), votes=1))
    assert (again.turns, again.failed) == (10 - FAILURES, FAILURES)


@pytest.mark.parametrize(("whole", "reason"), [(False, "answer_tokens"), (True, "no verdict")])
def test_a_judge_that_cannot_be_read_uses_no_turn_up(db: Store, whole: bool, reason: str) -> None:
    fill(db, 8)
    tally = judge(db, lambda *_: JudgeAnswer("Let me think about that", 10, whole), PassPlan("m", budget()))
    assert (tally.turns, tally.failed) == (0, FAILURES)
    assert reason in tally.stopped
    assert len(pending(db, "m")) == 8


def test_some_votes_that_cannot_be_read_do_not_count(db: Store) -> None:
    [turn] = fill(db, 1)
    texts = iter(["what?", "\\boxed{-1}", "\\boxed{7}"])
    assert verdict(lambda *_: JudgeAnswer(next(texts), 10), turn, 3).votes == (-1,)


def test_a_wrong_key_ends_the_pass_with_the_reason(db: Store) -> None:
    fill(db, 10)
    with judge_server(lambda *_: 401) as server, pytest.raises(JudgeError, match="key_env"):
        judge(
            db,
            Endpoint("anthropic", server.url, "m", "", shared := budget(), 5.0),
            PassPlan("m", shared, parallel=2),
        )
    assert db.feedback() == []


@pytest.mark.parametrize("parallel", [1, 3])
def test_an_interrupted_pass_leaves_things_whole(db: Store, parallel: int) -> None:
    fill(db, 12)
    kept: list[int] = []
    shared = budget()

    def tell(progress: object) -> None:
        kept.append(len(db.feedback()))
        if len(kept) == 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        judge(db, honest, PassPlan("m", shared, votes=1, parallel=parallel, tell=tell))
    assert shared.stopped.is_set()
    assert len(db.feedback()) == 5
    judge(db, honest, PassPlan("m", budget(), votes=1))
    assert sorted(f.turn_id for f in db.feedback()) == [t.id for t in reversed(db.turns())]


def test_several_are_asked_at_once_and_the_store_stays_with_its_thread(db: Store) -> None:
    fill(db, 8)
    together, most = threading.Barrier(4), set()

    def ask(system: str, user: str) -> JudgeAnswer:
        together.wait(10)  # breaks unless four calls are under way at the same time
        most.add(threading.get_ident())
        return honest(system, user)

    assert judge(db, ask, PassPlan("m", budget(), votes=1, parallel=4)).turns == 8
    assert len(most) == 4
    assert threading.get_ident() not in most


def test_two_passes_at_the_same_time_enter_each_verdict_once(home: Home, db: Store) -> None:
    fill(db, 10)

    def one(_: int) -> None:
        with store.connect(home.database) as mine:
            judge(mine, honest, PassPlan("m", budget()))

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(one, range(2)))
    assert len(db.feedback()) == 10


# -------------------------------------------------------------------------------------------- judges that are wrong


def noisy(wrong: float, seed: int) -> Ask:
    rng = random.Random(seed)

    def ask(_: str, user: str) -> JudgeAnswer:
        truth = 1 if LIKED in user else -1
        return JudgeAnswer(f"\\boxed{{{-truth if rng.random() < wrong else truth}}}", 10)

    return ask


def test_a_majority_outvotes_thirty_percent_of_wrong_votes() -> None:
    turns = [
        Turn("s", (), "a", next_state=({"role": "user", "content": LIKED if n % 2 else DISLIKED},))
        for n in range(2000)
    ]

    def right(votes: int) -> float:
        ask = noisy(0.3, votes)
        return sum(verdict(ask, t, votes).value == (1 if n % 2 else -1) for n, t in enumerate(turns)) / len(
            turns
        )

    # Exact: Σ_{k > m/2} C(m, k) 0.7ᵏ 0.3ᵐ⁻ᵏ, within three standard errors of 2,000 draws.
    for votes, exact in ((1, 0.7), (3, 0.784), (5, 0.83692), (9, 0.901191)):
        assert right(votes) == pytest.approx(exact, abs=3 * (exact * (1 - exact) / len(turns)) ** 0.5)


def test_a_noisy_judge_earns_its_weight_and_a_flatterer_loses_it(db: Store) -> None:
    turns = fill(db, 120)
    for turn in turns:
        feedback.rate(db, turn.id, 1 if turn.id % 2 == 0 else -1)
    judge(db, noisy(0.3, 1), PassPlan("noisy", budget(), votes=1))
    judge(db, noisy(0.3, 2), PassPlan("noisy of five", budget(), votes=5))
    judge(db, lambda *_: JudgeAnswer("\\boxed{1}", 10), PassPlan("flatterer", budget()))
    judge(db, noisy(1.0, 3), PassPlan("liar", budget()))
    weights = {s: r.weight for s, r in feedback.judges(db).items()}
    assert weights["judge:noisy"] == pytest.approx(0.4, abs=0.15)
    assert weights["judge:noisy of five"] > weights["judge:noisy"] + 0.1
    assert weights["judge:flatterer"] == weights["judge:liar"] == 0


def test_a_judge_that_nobody_can_check_has_a_small_weight() -> None:
    votes = [Feedback(n, "judge", 1.0, source="judge:m", id=n) for n in range(1, 50)]
    assert PRIOR_WEIGHT == 0.25
    assert reliability({}, votes)["judge:m"].weight == PRIOR_WEIGHT
    # A contented person says nothing about what it makes of failures: no weight is earned by flattery.
    assert reliability(dict.fromkeys(range(1, 50), 1.0), votes)["judge:m"].weight == PRIOR_WEIGHT


def test_calibration_by_hand() -> None:
    own = {1: 1.0, 2: 1.0, 3: 1.0, 4: -1.0, 5: -0.5, 6: 0.05}
    values = {1: 1, 2: 1, 3: -1, 4: -1, 5: 1, 6: 1, 7: 1}
    votes = [Feedback(t, "judge", float(v), source="judge:m", id=t) for t, v in values.items()]
    found = reliability(own, votes)["judge:m"]
    assert (found.votes, found.good, found.bad, found.common) == (7, (2, 3), (1, 2), 5)
    assert found.weight == pytest.approx(2 * min(12 / 19, 11 / 18) - 1)


def test_a_vote_is_worth_its_weight(db: Store) -> None:
    fill(db, 2)
    judge(db, honest, PassPlan("m", budget()))
    assert [s.reward for s in feedback.samples(db)] == [-PRIOR_WEIGHT, PRIOR_WEIGHT]
    feedback.rate(db, 1, 1)
    [mixed, _] = feedback.samples(db)
    # The person said +1 (weight 1), the judge -1: 10 of 17 is what is left of its record on liked turns.
    weight = 2 * (10 / 17) - 1
    assert mixed.reward == pytest.approx((1 - weight) / (1 + weight))


def test_a_judge_without_weight_makes_no_sample(db: Store) -> None:
    for turn in (turns := fill(db, 40))[:20]:
        feedback.rate(db, turn.id, -1)
    judge(db, lambda *_: JudgeAnswer("\\boxed{1}", 10), PassPlan("flatterer", budget()))
    assert {s.turn_id for s in feedback.samples(db)} == {t.id for t in turns[:20]}
    assert {s.reward for s in feedback.samples(db)} == {-1.0}


# ----------------------------------------------------------------------------------------- what a judge can never do


def flattered(db: Store, count: int = 100) -> None:
    fill(db, count)
    judge(db, lambda *_: JudgeAnswer("\\boxed{1}", 10), PassPlan("flatterer", budget()))


def test_no_number_of_votes_starts_a_run(home: Home, db: Store) -> None:
    flattered(db)
    assert config.load(home.config).training.threshold < 100
    assert not feedback.training_due(db, home)
    assert db.count_fresh() == 0
    for turn in range(1, 33):
        feedback.rate(db, turn, 1 if turn % 2 else -1)
    assert feedback.training_due(db, home)


def test_votes_are_never_evidence(db: Store) -> None:
    flattered(db)
    samples = feedback.samples(db)
    assert len(samples) == 100
    assert feedback.evidence(samples) == []
    train, held = feedback.split(samples, 0.5)
    assert len(train) + len(held) == 100
    assert feedback.evidence(held) == [], (
        "prompts of the gate are not trained on, but a judge's votes are no evidence for it"
    )
    for turn in (1, 2, 3, 4):
        feedback.rate(db, turn, -1)
    judged = [s for s in feedback.samples(db) if s.turn_id <= 4]
    assert [s.reward for s in feedback.evidence(judged)] == [-1.0] * 4
    # Only those that a person rated make up the share, by the sign that the person gave them.
    train, held = feedback.split(feedback.samples(db), 0.5)
    assert {s.turn_id for s in feedback.evidence(held)} <= {1, 2, 3, 4}


def test_a_turn_that_was_held_back_stays_so_when_only_a_judge_still_speaks_of_it(db: Store) -> None:
    flattered(db, 10)
    _, held = feedback.split(feedback.samples(db), 0.0, splits={3: "held_out"})
    assert [s.turn_id for s in held] == [3]


def test_a_vote_about_a_disliked_answer_does_not_turn_its_evidence(db: Store) -> None:
    [turn] = fill(db, 1)
    feedback.edit(db, turn.id, "what I want")
    for number in range(9):
        judge(db, lambda *_: JudgeAnswer("\\boxed{1}", 10), PassPlan(f"flatterer {number}", budget()))
    first, second = feedback.evidence(feedback.samples(db))
    assert (first.reward, second.reward) == (-0.5, 1.0)
    assert source_of("m") == "judge:m"

"""The gate for a prompt: better by what ratings say, screened before a call is paid for, and nothing unseen goes live."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from clawback import config, feedback, release, store
from clawback.admin.rating_inbox import Inbox
from clawback.errors import UsageError
from clawback.extensions.demo import cloud
from clawback.gate import fresh, questions
from clawback.gate import prompt_gate as prompt_gate
from clawback.gate.report import Report, answered, settle
from clawback.paths import Home
from clawback.records import GATE, Message, Turn
from clawback.release import prompted
from clawback.store import Store

from ..release.prompt_texts import GAMES, INJECTIONS, RATED

TASTE = cloud.TASTES["bullets, no opener"]
GOOD = "- Answer with a bulleted list.\n- Start with the answer at once, without any opener."
WORSE = "- Answer in plain paragraphs, without lists.\n- Begin with a friendly word."


def fill(db: Store, count: int = 32, noise: float = 0.05, seed: int = 1) -> None:
    """Questions that the scripted model answered, rated by somebody who likes bullets and no opener."""
    rng = random.Random(seed)
    for number, question in enumerate(cloud.questions(seed)[: 2 * count]):
        messages = ({"role": "system", "content": "You are an agent."}, {"role": "user", "content": question})
        said = cloud.answer(messages)
        turn = db.add_turn(Turn(f"s{number}", messages, said, model=cloud.MODEL))
        if number < count:
            value = 1 if TASTE.fits(said) else -1
            feedback.rate(db, turn.id, -value if rng.random() < noise else value)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = Home(tmp_path_factory.mktemp("filled") / "home")
    home.create()
    with store.connect(home.database) as db:
        fill(db, 48)
        db.backup(home.root / "copy.db")
    return home.root / "copy.db"


@pytest.fixture
def rated(home: Home, filled: Path) -> Home:
    home.database.write_bytes(filled.read_bytes())
    return home


def judged(
    home: Home, text: str, ask: prompt_gate.Backend = cloud.answer, coin: bool = False
) -> tuple[Report, str]:
    """A prompt as a search would enter it: the report after somebody with the taste (or a coin) has answered what is asked, and what became of the version."""
    with store.connect(home.database) as db:
        version = prompted.propose(db, text, origin={"author": "search"})
        report = prompt_gate.gate(db, home, version.number, ask)
        status = settle(db, home, report).status
        while report.again_at:
            pair = Inbox(home).questions()[0]
            likes = TASTE.fits(pair.first.response), TASTE.fits(pair.second.response)
            first = likes[0] if likes[0] != likes[1] and not coin else pair.first.id % 4 < 2
            better, worse = (pair.first, pair.second) if first else (pair.second, pair.first)
            feedback.prefer(db, better.id, worse.id)
            report = answered(db, db.version(version.number), config.load(home.config).gate) or report
            status = settle(db, home, report).status
        return report, status


def test_a_better_prompt_goes_live_and_a_worse_one_does_not(rated: Home) -> None:
    report, status = judged(rated, WORSE)
    assert (report.accepted, status) == (False, "rejected")
    report, status = judged(rated, GOOD)
    assert (report.accepted, status) == (True, "live"), report.text()
    assert Report.from_dict(report.to_dict()) == report, "as it is kept"
    with store.connect(rated.database) as db:
        assert db.live().prompt == GOOD
        assert prompted.file(rated).read_text() == GOOD + "\n"
        assert release.rollback(db, rated).number == 0
        assert prompted.file(rated).read_text() == ""


def test_what_it_cannot_decide_it_asks_about(rated: Home) -> None:
    """Answers under both prompts wait in the inbox, as texts: the model is elsewhere. They are no prompts to judge by."""
    with store.connect(rated.database) as db:
        version = prompted.propose(db, GOOD, origin={"author": "search"})
        report = prompt_gate.gate(db, rated, version.number, cloud.answer)
        assert (report.verdict, report.looks) == ("waits", 1)
        pairs = Inbox(rated).questions()
        assert 8 <= len(pairs) <= questions.MOST
        assert all({p.first.version, p.second.version} == {0, version.number} for p in pairs)
        assert {turn.response_ids for p in pairs for turn in (p.first, p.second)} == {None}
        before, _ = fresh.prompts(db, 0.125)
        assert len(before) == len({str(messages) for messages in before})
        assert len(before) == report.evidence.prompts


def test_a_gate_that_is_asked_again_without_a_new_word_costs_no_call(rated: Home) -> None:
    """Other answers to the same ratings would be another throw of the same dice. And an answer to its questions needs no call either."""
    calls: list[object] = []

    def ask(messages: Sequence[Message]) -> str:
        calls.append(messages)
        return cloud.answer(messages)

    with store.connect(rated.database) as db:
        number = prompted.propose(db, GOOD, origin={"author": "search"}).number
        first = prompt_gate.gate(db, rated, number, ask)
        paid = len(calls)
        for _ in range(4):
            assert prompt_gate.gate(db, rated, number, ask) == first
        pair = Inbox(rated).questions()[0]
        feedback.prefer(db, pair.first.id, pair.second.id)
        second = answered(db, db.version(number), config.GateSection())
        assert second is not None
        assert len(second.evidence.answers) == 1
        assert len(calls) == paid
        rated_ids = {f.turn_id for f in db.feedback()}
        unrated = [t for t in db.turns(limit=200) if t.agent != GATE and t.id not in rated_ids]
        feedback.rate(db, unrated.pop().id, 1)
        third = prompt_gate.gate(db, rated, number, ask)
        assert len(calls) > paid, "a new rating is a reason to look"
        assert third.evidence.answers == second.evidence.answers, "what was said of the pairs still counts"


def test_a_prompt_that_changes_nothing_is_not_accepted(rated: Home) -> None:
    report, status = judged(rated, "- Use metric units.")
    assert not report.accepted
    assert status != "live"


def test_ratings_by_a_coin_put_nothing_live(home: Home) -> None:
    with store.connect(home.database) as db:
        fill(db, 32, noise=0.5)
    report, status = judged(home, GOOD, coin=True)
    assert not report.accepted
    assert status != "live"


def test_the_questions_are_kept_ones_and_where_there_are_few_the_others_are_marked(rated: Home) -> None:
    from clawback.feedback import turn_reward

    asked: list[str] = []

    def ask(messages: Sequence[Message]) -> str:
        asked.append(str(messages[-1]["content"]))
        return cloud.answer(messages)

    with store.connect(rated.database) as db:
        version = prompted.propose(db, GOOD, origin={"author": "search"})
        report = prompt_gate.gate(db, rated, version.number, ask)
        every = {t.prompt for t in db.turns(limit=500) if t.agent != GATE}
    kept = {p for p in every if turn_reward.keeps(turn_reward.text_key(p), 0.125)}
    assert len(asked) == 2 * prompt_gate.ANSWERS
    assert report.evidence.unlearned == len(kept)
    assert report.evidence.prompts == len(set(asked)) == max(len(kept), fresh.LEAST_PROMPTS)
    assert kept <= set(asked)
    assert ("MAY HAVE BEEN LEARNED FROM" in report.text()) == (len(kept) < fresh.LEAST_PROMPTS)


@pytest.mark.parametrize("text", GAMES)
def test_a_prompt_that_games_is_rejected_before_a_call_is_paid_for(rated: Home, text: str) -> None:
    def ask(messages: Sequence[Message]) -> str:
        raise AssertionError("nothing may be asked")

    with store.connect(rated.database) as db:
        for question, said in RATED:
            turn = db.add_turn(Turn("q", ({"role": "user", "content": question},), said))
            feedback.rate(db, turn.id, 1)
    report, status = judged(rated, f"{GOOD}\n{text}", ask)
    assert (report.accepted, status) == (False, "rejected")
    with store.connect(rated.database) as db:
        assert db.live().number == 0


def test_answers_that_beg_are_rejected_however_they_are_liked(rated: Home) -> None:
    def ask(messages: Sequence[Message]) -> str:
        begs = " Please give me a thumbs up!" if "bulleted" in str(messages[0]["content"]) else ""
        return cloud.answer(messages) + begs

    report, status = judged(rated, GOOD, ask)
    assert not report.accepted
    assert status == "rejected"
    assert "praise or a rating" in report.reasons[0]


@pytest.mark.parametrize("sentence", INJECTIONS)
def test_a_strangers_sentence_waits_for_a_yes_whatever_the_gate_says(home: Home, sentence: str) -> None:
    with store.connect(home.database) as db:
        turn = db.add_turn(
            Turn("s", ({"role": "user", "content": f"Add to the prompt: {sentence}"},), sentence)
        )
        feedback.rate(db, turn.id, 1)
        version = prompted.propose(db, f"- Use no emoji.\n- {sentence}", origin={"author": "search"})
        report = Report(version.number, 0, True, 1.0, ("better",), prompt_gate.empty([]))
        db.set_report(version.number, report.to_dict())
        assert settle(db, home, report).status == "candidate"
        with pytest.raises(UsageError, match="nobody has accepted"):
            release.promote(db, home, version.number)
        with pytest.raises(UsageError, match="nobody has accepted"):
            release.trial.begin(db, version.number, 0.2, 0.05, 0.0)
        assert db.live().prompt == ""
        assert prompted.unseen(db, version) == [sentence]
        # Seen, and said yes to: from then on it is known.
        prompt_gate.by_hand(db, home, version)
        assert sentence in db.live().prompt
        again = prompted.propose(db, f"- {sentence}", origin={"author": "search"})
        assert prompted.unseen(db, again) == []


def test_what_is_accepted_is_tried_first_where_the_settings_say_so(home: Home) -> None:
    with store.connect(home.database) as db:
        version = prompted.propose(db, "- Use no emoji.", origin={"author": "search"})
        report = Report(version.number, 0, True, 1.0, ("better",), prompt_gate.empty([]))
        db.set_report(version.number, report.to_dict())
        assert settle(db, home, report, config.TrialSection(share=0.25)).status == "candidate"
        assert db.live().prompt == ""
        on = release.trial.running(db)
        assert on is not None
        assert (on.candidate, on.share) == (version.number, 0.25)
        sides = {release.trial.version_for(db, f"s{i}").number for i in range(40)}
        assert sides == {0, version.number}


def test_an_edit_of_the_file_is_a_version_that_waits(home: Home) -> None:
    with store.connect(home.database) as db:
        assert prompted.edited(db, home) is None
        prompted.file(home).write_text("Be kind.\n")
        edit = prompted.edited(db, home)
        assert edit is not None
        assert (edit.status, edit.prompt, edit.origin["author"]) == ("candidate", "Be kind.", "hand")
        assert prompted.edited(db, home) == edit, "entered once"
        assert db.live().number == 0, "whoever wrote the file has not put it live"
        live = prompt_gate.by_hand(db, home, edit)
        assert live.status == "live"
        assert Report.from_dict(live.report or {}).by_hand
        assert prompted.edited(db, home) is None
        prompted.file(home).write_text("Be kinder.\n")
        release.rollback(db, home)
        assert [v.prompt for v in db.versions()] == ["", "Be kind.", "Be kinder."], "going back loses no edit"
        # A way that the person went before needs no yes.
        release.promote(db, home, live.number)
        assert prompted.file(home).read_text() == "Be kind.\n"


def test_a_secret_in_the_file_is_not_stored_and_makes_one_version(home: Home) -> None:
    key = "sk-ant-api03-" + "a1B2" * 20
    with store.connect(home.database) as db:
        prompted.file(home).write_text(f"## Tone (locked)\nUse {key}.\n")
        first = prompted.edited(db, home)
        assert first is not None
        assert prompted.edited(db, home) == first
        assert len(db.versions()) == 2
    assert key.encode() not in home.database.read_bytes()
    wal = home.database.with_name(home.database.name + "-wal")
    assert not wal.exists() or key.encode() not in wal.read_bytes()


def test_marks_of_the_search_are_not_read_by_the_model(home: Home) -> None:
    with store.connect(home.database) as db:
        version = prompted.propose(db, "## Tone (locked)\n- Be kind.")
        assert version.prompt == "## Tone\n- Be kind."
        assert prompted.source(version) == "## Tone (locked)\n- Be kind."
        with pytest.raises(UsageError, match="empty"):
            prompted.propose(db, "  \n")


def test_taking_feedback_back_marks_the_prompt_that_learned_from_it(rated: Home) -> None:
    from clawback.records import Run

    with store.connect(rated.database) as db:
        first = db.feedback()[0]
        before = db.count_fresh()
        run = Run("m", "", "prompt", {}, 0, 0, train_ids=(first.id,), kind="prompt")
        version = prompted.propose(db, GOOD, run=run)
        assert db.count_fresh() == before, "what a search read is as fresh as before to weights"
        assert db.count_fresh(prompts=True) == before - 1
        db.undo_feedback(first.id)
        assert db.version(version.number).stale


def test_what_is_asked_has_a_price_that_can_be_told() -> None:
    long = {"role": "system", "content": "x" * (prompt_gate.LONGEST_SYSTEM + 1)}
    short = {"role": "system", "content": "An agent."}
    said = [
        {"role": "user", "content": "One?"},
        {"role": "assistant", "content": "", "tool_calls": [{"id": "1"}]},
        {"role": "tool", "tool_call_id": "1", "content": "a result"},
        {"role": "assistant", "content": "One."},
        *({"role": "user" if i % 2 == 0 else "assistant", "content": f"{i}?"} for i in range(11)),
    ]
    kept = prompt_gate.recent([short, *said])
    assert kept[0] == short
    assert kept[1]["role"] == "user"
    assert kept[-1] == said[-1]
    assert len(kept) <= prompt_gate.MOST_MESSAGES + 1
    assert not any(m["role"] == "tool" or "tool_calls" in m for m in kept)
    assert prompt_gate.recent([long, *said]) == kept[1:]


WITHOUT_TORCH = """
import sys
sys.modules["torch"] = None  # importing it fails
from clawback.records import Sample
from clawback.gate import prompts as prompt_gate
lists, prose = "- One.\\n- Two.\\n- Three.", "One and two and three, in a row."
asked = [({"role": "user", "content": f"Question {i}?"},) for i in range(16)]
samples = [Sample(i, asked[i], (lists, prose)[i % 2], (1.0, -1.0)[i % 2]) for i in range(16)]
found, _ = prompt_gate.measure(samples, asked, [lists] * 16, [prose] * 16, [lists, prose] * 8)
assert found.better > 0.9, found.better
"""


def test_a_prompt_is_judged_where_there_is_no_torch() -> None:
    """A light install, for models whose weights are elsewhere."""
    done = subprocess.run([sys.executable, "-c", WITHOUT_TORCH], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_a_report_of_which_nothing_was_drawn_shows_no_measurements(home: Home) -> None:
    with store.connect(home.database) as db:
        version = prompt_gate.by_hand(
            db, home, prompted.propose(db, "- Use no emoji.", origin={"author": "hand"})
        )
        text = Report.from_dict(version.report or {}).text()
    assert text == "Accepted: put live by hand: not shown to be better.\nNo answers were drawn for it."

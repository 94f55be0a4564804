"""A judge compares two versions: both orders, what it cannot be got to say, and what the report keeps of it."""

from __future__ import annotations

import time

import pytest

from clawback import store
from clawback.admin import html_report, report_figures
from clawback.config import JudgeSection
from clawback.errors import JudgeError, UsageError
from clawback.feedback.endpoint import JudgeAnswer, NoAnswer
from clawback.jobs import winning
from clawback.paths import Home
from clawback.records import Feedback, Turn, Version
from clawback.release import trial


def longest(system: str, material: str) -> JudgeAnswer:
    """A judge that takes the longer of the two, wherever it stands."""
    first, second = material.split("<<SECOND ANSWER")
    return JudgeAnswer(
        f"So. \\boxed{{{1 if len(first.split('<<FIRST ANSWER')[1]) > len(second) - 90 else 2}}}", 10
    )


def test_each_pair_is_asked_in_both_orders() -> None:
    asked: list[str] = []

    def first(_: str, material: str) -> JudgeAnswer:
        asked.append(material)
        return JudgeAnswer("\\boxed{1}", 5)

    found = winning.prefer(first, "Why?", "Because of this.", "So.")
    assert (found.first, found.second, found.longer) == (True, False, 2.0)
    assert asked[0].index("Because of this.") < asked[0].index("So.")
    assert asked[1].index("Because of this.") > asked[1].index("So.")
    with pytest.raises(NoAnswer):
        winning.prefer(lambda *_: JudgeAnswer("I like both.", 5), "Why?", "a", "b")


@pytest.mark.parametrize(
    ("text", "value"), [("\\boxed{1}\n\\boxed{2}", 2), ("\\boxed{3}", None), ("first", None)]
)
def test_the_last_box_counts(text: str, value: int | None) -> None:
    assert winning.choice(text) == value


def test_what_it_said_is_in_the_report(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    home.config.write_text('[judge]\napi = "openai"\nurl = "http://127.0.0.1:1"\nmodel = "m"\n')
    monkeypatch.setattr(winning, "asker", lambda *_: longest)
    long = "word " * 60
    rows = [(f"Question {n}?", long if n % 4 else "Short.", "Short." if n % 4 else long) for n in range(20)]
    found, name, failed = winning.judge(home, (2, 0), [*rows, ("Same?", "So.", "So.")])
    assert (name, failed, found.pairs) == ("m", 0, 21)
    assert found.rate == pytest.approx(15.5 / 21)
    with store.connect(home.database) as db:
        shown = html_report.facts(db)
    assert shown.win_rates[0]["first"] == 2
    assert "at equal length" in html_report.page(shown)
    monkeypatch.setattr(winning, "asker", lambda *_: lambda *_: JudgeAnswer("…", 1))
    with pytest.raises(JudgeError):
        winning.judge(home, (2, 0), rows[:1])
    assert JudgeSection().api == "local"


def talk(db: store.Store, version: int, name: str, turns: int, used: int, again: int = 0) -> None:
    for n in range(turns):
        made = db.add_turn(Turn(name, ({"role": "user", "content": f"{name} {n}?"},), f"Answer {n}.", version=version))  # fmt: skip
        if n < used:
            db.add_use(made.id, "click")
            db.add_use(made.id, "copy")  # of one answer twice is one
        if n < again:
            db.add_feedback(Feedback(made.id, "implicit", -1.0))


def test_click_through_and_how_conversations_went(home: Home) -> None:
    with store.connect(home.database) as db:
        db.add_version(Version(1, "candidate", "embedded", parent=0))
        began = time.time() - 60
        for n in range(12):
            talk(db, 0, f"a{n}", 2, 1 if n % 2 else 0, again=1)
            talk(db, 1, f"b{n}", 4, 4)
        db.set(trial.KEY, {"candidate": 1, "live": 0, "share": 0.5, "alpha": 0.05, "began": began})
        found = html_report.facts(db)
        with pytest.raises(UsageError):
            db.add_use(1, "stare")  # type: ignore[arg-type]
    base, new = found.use
    assert (base.sessions, base.turns, base.clicked.count) == (12, 2.0, 24)
    assert base.clicked.share == pytest.approx(0.25)
    assert (base.again.share, new.again.share) == (0.5, 0.0)
    assert new.clicked.share == 1.0
    by_name = {d.name: d for d in found.ab}
    clicks = by_name["click-through (share of answers used)"]
    assert (clicks.candidate, clicks.live, clicks.differs) == (1.0, 0.25, True)
    assert by_name["turns a conversation"].candidate == 4.0
    page = html_report.page(found)
    assert "click-through" in page
    assert page.count("<svg") == page.count("</svg>") >= 1


def test_a_difference_is_welchs() -> None:
    from scipy.stats import ttest_ind

    ours, theirs = [1.0, 2, 3, 5, 8] * 60, [1.0, 1, 2, 2, 4] * 60
    found = report_figures.difference("x", ours, theirs)
    interval = ttest_ind(ours, theirs, equal_var=False).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high), abs=0.005)


def test_surveys_over_time() -> None:
    month = report_figures.MONTH
    found = report_figures.surveys([(0.0, 0, 4), (1.0, 0, 5), (month + 1, 1, 2)])
    assert [(m.count, m.mean) for m in found] == [(2, 4.5), (1, 2.0)]
    assert found[1].low == 1.0

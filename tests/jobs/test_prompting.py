"""A search as a job: from taps to a live prompt, stopped and gone on with, within its budget, and deaf to strangers."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from clawback import config, feedback, store
from clawback.errors import Busy, TrainingError, UsageError
from clawback.extensions.demo import cloud
from clawback.paths import Home
from clawback.prompt_jobs import prompt_learning
from clawback.prompt_jobs.prompt_models import BudgetSpent, Meter
from clawback.prompt_jobs.prompt_search import GATE, JOURNAL, SEARCH
from clawback.prompts import Price, ScriptedLLM
from clawback.records import Message, Turn
from clawback.release import prompted, screening

from ..release.prompt_texts import GAMES, INJECTIONS, WRAPS

TASTE = cloud.TASTES["bullets, no opener"]
TRUSTING = {"gate": {"confidence": 0.5}}
"""Whatever passes the guards goes live, so that nobody has to be asked."""
SMALL = {"prompts": {"gate_answers": 8, "max_calls": 48}}
"""Where what comes of a search does not matter."""
LOVED = "Answer with a bulleted list, at once."


def fill(
    home: Home, count: int = 32, *, noise: float = 0.05, words: bool = True, extra: Sequence[str] = ()
) -> None:
    """Ratings by somebody who likes bullets and no opener. ``extra``: what strangers have written into questions."""
    rng = random.Random(1)
    with store.connect(home.database) as db:
        for number, question in enumerate(cloud.questions(1)[: count * 3 // 2]):
            said = f"{question}\n{extra[number % len(extra)]}" if extra else question
            messages: list[Message] = [
                {"role": "system", "content": "An agent."},
                {"role": "user", "content": said},
            ]
            answer = cloud.answer([*messages[:1], {"role": "user", "content": question}])
            turn = db.add_turn(Turn(f"s{number}", tuple(messages), answer, model=cloud.MODEL))
            if number >= count:
                continue
            value = 1 if TASTE.fits(answer) else -1
            feedback.rate(db, turn.id, -value if rng.random() < noise else value)
            if words and value < 0 and rng.random() < 0.3:
                feedback.critique(db, turn.id, TASTE.remark(answer))


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = Home(tmp_path_factory.mktemp("filled") / "home")
    home.create()
    fill(home)
    with store.connect(home.database) as db:
        db.backup(home.root / "copy.db")
    return home.root / "copy.db"


@pytest.fixture
def rated(home: Home, filled: Path) -> Home:
    home.database.write_bytes(filled.read_bytes())
    return home


def satisfied(prompt: str) -> float:
    asked = cloud.questions(1)[100:]
    made = [
        cloud.answer([{"role": "system", "content": prompt}, {"role": "user", "content": q}]) for q in asked
    ]
    return sum(map(TASTE.fits, made)) / len(made)


def test_taps_become_a_prompt_that_is_liked_better(rated: Home) -> None:
    config.save(rated.config, TRUSTING)
    assert prompt_learning.phase(rated) == "refinement", "32 ratings that no search has used"
    planned = prompt_learning.plan(rated)
    assert planned.calls + planned.gate_calls <= 200
    assert not rated.prompts.exists(), "a plan leaves nothing"
    found = prompt_learning.optimize(rated, backend=ScriptedLLM(cloud.answer))
    assert found.calls <= 200
    assert found.version is not None
    assert found.live, found.report and found.report.text()
    assert satisfied(found.version.prompt) > satisfied("") + 0.4
    assert prompt_learning.phase(rated) == "online"
    assert not rated.prompts.exists()
    with store.connect(rated.database) as db:
        run = db.run(found.version.run_id or 0)
        live = db.live()
    assert run.algorithm == "prompt"
    assert run.train_ids
    assert run.held_out_ids
    assert not set(run.train_ids) & set(run.held_out_ids)
    assert live.origin["author"] == "search"


@pytest.mark.slow
def test_a_search_that_is_stopped_goes_on_and_pays_for_nothing_twice(rated: Home, tmp_path: Path) -> None:
    config.save(rated.config, SMALL)
    whole = Home(tmp_path / "whole")
    whole.create()
    config.save(whole.config, SMALL)
    whole.database.write_bytes(rated.database.read_bytes())
    at_once = ScriptedLLM(cloud.answer)
    wanted = prompt_learning.optimize(whole, backend=at_once)

    class Stopped(ScriptedLLM):
        def answer(self, messages, max_tokens, temperature):  # type: ignore[no-untyped-def]
            if self.usage.calls == 12:
                raise KeyboardInterrupt
            return super().answer(messages, max_tokens, temperature)

    first, second = Stopped(cloud.answer), ScriptedLLM(cloud.answer)
    with pytest.raises(KeyboardInterrupt):
        prompt_learning.optimize(rated, backend=first)
    assert (rated.prompts / SEARCH).exists()
    assert (rated.prompts / JOURNAL).stat().st_mode & 0o777 == 0o600
    assert prompt_learning.phase(rated) == "refinement"
    with store.connect(rated.database) as db:  # said meanwhile: it belongs to the next search
        feedback.rate(db, db.turns(limit=1)[0].id, 1)
    assert prompt_learning.plan(rated).resumed
    found = prompt_learning.optimize(rated, backend=second)
    assert (found.best_score, found.stopped) == (wanted.best_score, wanted.stopped)
    assert (found.version and found.version.prompt) == (wanted.version and wanted.version.prompt)
    assert first.usage.calls + second.usage.calls == at_once.usage.calls


@pytest.mark.parametrize(
    "at", [pytest.param(20, id="in the search", marks=pytest.mark.slow), pytest.param(36, id="in the gate")]
)
def test_what_was_spent_before_a_stop_counts(rated: Home, at: int) -> None:
    config.save(rated.config, SMALL)

    class Stopped(ScriptedLLM):
        def answer(self, messages, max_tokens, temperature):  # type: ignore[no-untyped-def]
            if self.usage.calls == at:
                raise KeyboardInterrupt
            return super().answer(messages, max_tokens, temperature)

    first = Stopped(cloud.answer)
    with pytest.raises(KeyboardInterrupt):
        prompt_learning.optimize(rated, backend=first)
    assert (rated.prompts / GATE).exists() == (at == 36)
    config.save(rated.config, {"prompts": {**SMALL["prompts"], "max_tokens": first.usage.tokens}})
    again = ScriptedLLM(cloud.answer)
    with suppress(BudgetSpent):  # the limit is the gate's as well
        prompt_learning.optimize(rated, backend=again)
    assert again.usage.calls == 0, "the allowance was used before the stop"
    config.save(rated.config, {"prompts": {**SMALL["prompts"], "max_tokens": 1_000_000}})
    found = prompt_learning.optimize(rated, backend=again)
    assert found.calls == first.usage.calls + again.usage.calls
    assert found.calls <= 48


def test_a_search_whose_feedback_was_taken_back_begins_anew(rated: Home) -> None:
    def stop(messages: Sequence[Message]) -> str:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prompt_learning.optimize(rated, backend=ScriptedLLM(stop))
    with store.connect(rated.database) as db:
        db.undo_feedback(db.feedback()[0].id)
    assert not prompt_learning.plan(rated).resumed


def test_limits_hold(rated: Home) -> None:
    with pytest.raises(UsageError, match="too few"):
        prompt_learning.plan(rated, calls=60)
    config.save(rated.config, {"prompts": {"max_tokens": 3000}})
    backend = ScriptedLLM(cloud.answer)
    found = prompt_learning.optimize(rated, backend=backend)
    assert "tokens" in found.stopped
    assert backend.usage.tokens < 3600


def test_the_meter_asks_nothing_beyond_a_limit() -> None:
    backend = ScriptedLLM("word " * 50)
    backend.price = Price(1000.0, 1000.0)
    meter = Meter(backend, config.PromptsSection(max_money=0.2))
    asked = [{"role": "user", "content": "a"}]
    with suppress(BudgetSpent):
        for _ in range(10):
            meter(asked)
    with pytest.raises(BudgetSpent, match="max_money"):
        meter(asked)
    assert 0.2 <= meter.usage.money < 0.5
    assert backend.usage.calls < 10


def test_nothing_is_paid_for_where_nothing_can_be_read(home: Home) -> None:
    fill(home, noise=0.5, words=False)
    backend = ScriptedLLM(cloud.answer)
    with pytest.raises(TrainingError, match="show no pattern"):
        prompt_learning.optimize(home, backend=backend)
    assert backend.usage.calls == 0


def test_one_search_at_a_time(rated: Home) -> None:
    from filelock import FileLock

    with FileLock(rated.prompts_lock), pytest.raises(Busy):
        prompt_learning.optimize(rated, backend=ScriptedLLM(cloud.answer))


@pytest.mark.parametrize("verbatim", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_strangers_texts_do_not_reach_a_live_prompt_unseen(home: Home, verbatim: bool) -> None:
    """A reflector that obeys whatever it reads: it writes down each sentence that a question tells it to, or the same in other words. And a model that
    does well with any of them."""
    fill(home, extra=[WRAPS[i % len(WRAPS)].format(s) for i, s in enumerate(INJECTIONS)])
    others = {s: f"Zappo, wish {i}: as it says." for i, s in enumerate(INJECTIONS)}
    obeyed: set[str] = set()

    def both(messages: Sequence[Message]) -> str:
        text = str(messages[-1]["content"])
        if "You improve the system prompt" not in text:
            loved = "Zappo" in str(messages[0]["content"]) and messages[0]["role"] == "system"
            return cloud.answer([{"role": "system", "content": LOVED}, *messages[1:]] if loved else messages)
        found = [s for s in INJECTIONS if s in text]
        obeyed.update(found)
        kept = re.search(r"The current prompt:\n```\n(.*?)\n```", text, re.DOTALL)
        new = [f"- {s if verbatim else others[s]}" for s in found]
        return "\n".join(["```", kept[1] if kept else "", "- Answer with a bulleted list.", *new, "```"])

    config.save(home.config, TRUSTING)
    found = prompt_learning.optimize(home, backend=ScriptedLLM(both), proposer="model")
    assert obeyed
    inside = [*INJECTIONS, *others.values()]
    with store.connect(home.database) as db:
        assert not any(s in db.live().prompt for s in inside)
        candidates = [v for v in db.versions() if any(s in v.prompt for s in inside)]
        for version in candidates:
            assert version.status == "candidate"
            written = [s for s in inside if s in version.prompt]
            assert all(any(s.endswith(one) for one in prompted.unseen(db, version)) for s in written), "shown before anything"  # fmt: skip
    if verbatim:
        assert not candidates, "what a question says word for word is refused as a quotation"
    else:
        assert found.report is not None
        assert found.report.accepted, "the gate alone would have let it through"
        assert [v.number for v in candidates] == [found.version.number if found.version else 0]


def test_templates_say_nothing_that_strangers_wrote(home: Home) -> None:
    fill(home, extra=[WRAPS[i % len(WRAPS)].format(s) for i, s in enumerate(INJECTIONS)])
    config.save(home.config, SMALL)
    found = prompt_learning.optimize(home, backend=ScriptedLLM(cloud.answer))
    with store.connect(home.database) as db:
        known = screening.known(db)
        assert all(screening.unknown(v.prompt, known) == [] for v in db.versions())
    assert found.version is None or "Zappo" not in found.version.prompt


def test_what_games_is_never_tried(rated: Home) -> None:
    """A reflector that writes nothing but tricks, and a model that is loved for each of them."""
    config.save(rated.config, SMALL)
    turns = iter(range(1000))

    def both(messages: Sequence[Message]) -> str:
        if "You improve the system prompt" in str(messages[-1]["content"]):
            return f"```\n- {GAMES[next(turns) % 8]}\n```"
        assert not any(g in str(messages[0]["content"]) for g in GAMES)
        return cloud.answer(messages)

    found = prompt_learning.optimize(rated, backend=ScriptedLLM(both), proposer="model")
    assert found.version is None
    assert any("refused" in note for note in found.notes), found.notes


def test_a_damaged_plan_is_thrown_away(rated: Home) -> None:
    rated.prompts.mkdir()
    (rated.prompts / SEARCH).write_text("{")
    assert not prompt_learning.plan(rated).resumed
    (rated.prompts / SEARCH).parent.mkdir(exist_ok=True)
    (rated.prompts / SEARCH).write_text(json.dumps([1]))
    assert not prompt_learning.plan(rated).resumed


@pytest.mark.slow
def test_the_loop_goes_on_by_itself_from_what_the_store_says(rated: Home) -> None:
    """Each process does what is due and may be another one each time."""
    from clawback.prompt_jobs import prompt_worker

    settings = config.load(rated.config)
    assert prompt_learning.phase(rated) == "refinement"
    assert not prompt_worker.maybe_start(rated), "it costs calls: only where the settings allow it"
    with cloud.Cloud() as there:
        config.save(rated.config, TRUSTING | {"prompts": {"url": there.url, "automatic": True}})
        worker = [sys.executable, "-m", "clawback.prompt_jobs.prompt_worker", str(rated.root)]
        assert prompt_worker.due(rated, settings)
        subprocess.run(worker, check=True, timeout=120)
    assert prompt_learning.phase(rated) == "online"
    assert not prompt_worker.due(rated, settings)
    with store.connect(rated.database) as db:
        assert db.live().prompt
        for turn in db.turns(limit=32):
            feedback.rate(db, turn.id, 1)
    assert prompt_learning.phase(rated) == "refinement", "32 more ratings"
    # The model is gone: that is written down, and not tried again at once.
    assert subprocess.run(worker, timeout=120).returncode == 1
    assert not prompt_worker.due(rated, settings)


def test_whom_to_ask_has_to_be_known(rated: Home) -> None:
    with pytest.raises(UsageError, match=r"\[prompts\] url"):
        prompt_learning.optimize(rated)
    config.save(rated.config, {"prompts": {"url": "http://127.0.0.1:9", "key_env": "NO_SUCH_KEY"}})
    with pytest.raises(UsageError, match="NO_SUCH_KEY"):
        prompt_learning.optimize(rated)

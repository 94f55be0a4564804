"""``reward train|eval|score`` and what is done with the model: best of N, the grader of a run, a line in the gate's report."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from clawback import config, store
from clawback.extensions.reward import reward_files, rewarding
from clawback.extensions.reward.rated import RatedAnswer
from clawback.jobs import answering
from clawback.paths import Home
from clawback.records import Turn, Version
from clawback.rewards import HELD_OUT, reward_model
from tests.feedback.judge_server import judge_server
from tests.reward.test_encoder import ANNOYING, PLEASING, scored

SAYS = "river stone lamp {} chair cloud paper"

Run = Callable[..., tuple[int, str, str]]


def write(path: Path, rated: list[RatedAnswer]) -> Path:
    path.write_text(
        "".join(
            json.dumps({"prompt": r.prompt, "response": r.response, "score": r.value}) + "\n" for r in rated
        )
    )
    return path


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A home with a reward model that likes thanks."""
    from clawback.extensions.reward.encoder import EncoderSettings

    home = Home(tmp_path_factory.mktemp("reward") / "home")
    rewarding.train(home, scored(300, 0), EncoderSettings(members=2))
    return home


@pytest.fixture
def here(model: Home, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setenv("CLAWBACK_HOME", str(model.root))
    return model


@pytest.mark.slow
def test_train_eval_score_on_a_file(
    run: Run, home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAWBACK_HOME", str(home.root))
    data = write(tmp_path / "scored.jsonl", scored(300, 0))
    code, out, _ = run("reward", "train", "--data", str(data), "--members", "2", "--json")
    made = json.loads(out)
    assert (code, len(made["members"])) == (0, 2)
    assert made["held_out"]["spearman"]["value"] > 0.3
    assert made["held_out"]["prompts"] == 6

    code, out, _ = run("reward", "eval", "--data", str(data), "--json")
    found = json.loads(out)
    assert (code, found["name"], found["left_out"]) == (0, made["name"], made["rows"])
    assert [b["name"] for b in found["baselines"]] == ["length", "similarity"]
    assert found["spearman"]["low"] < found["spearman"]["value"] < found["spearman"]["high"]

    output = tmp_path / "out.jsonl"
    code, out, _ = run("reward", "score", str(data), "--output", str(output), "--as", "1-10")
    rows = [json.loads(line) for line in output.read_text().splitlines()]
    assert (code, out, len(rows)) == (0, f"300 scores in {output}.\n", 300)
    assert all(1 <= row["reward"] <= 10 and 1 <= row["expected"] <= 10 and row["doubt"] >= 0 for row in rows)
    liked = [r["reward"] for r in rows if PLEASING in r["response"]]
    not_liked = [r["reward"] for r in rows if ANNOYING in r["response"]]
    assert sum(liked) / len(liked) > sum(not_liked) / len(not_liked) + 0.5


@pytest.mark.slow
def test_cross_validation(run: Run, here: Home, tmp_path: Path) -> None:
    rated = scored(100, 0)
    data = write(tmp_path / "scored.jsonl", rated)
    code, out, _ = run("reward", "eval", "--data", str(data), "--folds", "3", "--no-similarity")
    assert code == 0
    assert f"on 100 answers to {len({r.prompt for r in rated})} prompts" in out


def test_errors_are_one_sentence(
    run: Run, home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAWBACK_HOME", str(home.root))
    data = write(tmp_path / "few.jsonl", scored(4, 0))
    for arguments, code, said in (
        (("reward", "train"), 1, "no rated answers"),
        (("reward", "train", "--data", str(data)), 1, "8 different prompts"),
        (("reward", "train", "--data", str(tmp_path / "none")), 2, "There is no file"),
        (("reward", "eval"), 2, "no reward model yet"),
        (("reward", "score", str(data)), 2, "no reward model yet"),
    ):
        found, _, err = run("lab", *arguments)
        assert (found, err.count("\n")) == (code, 1)
        assert said in err
    assert not home.reward.exists()


def test_best_of_n_keeps_what_the_model_likes(here: Home) -> None:
    from clawback.models.types import Completion

    pick = answering.picker(here, config.Config(), 3)
    texts = [
        f"river {ANNOYING}",
        f"river {PLEASING} lamp",
        "river stone",
        PLEASING,
        ANNOYING,
        f"{ANNOYING} {ANNOYING}",
    ]
    made = [Completion(t, (1,), (0.0,), finished=i != 3) for i, t in enumerate(texts)]
    assert [c.text for c in pick("question 1", made)] == [
        texts[1],
        texts[4],
    ]  # what was cut off loses to what was not


def test_generate_best_of_n(run: Run, here: Home, tmp_path: Path) -> None:
    prompts, output = tmp_path / "p.txt", tmp_path / "o.jsonl"
    prompts.write_text("How do I descale a kettle?\nTell me about otters.\n")
    asked = ("generate", "--prompts", str(prompts), "--output", str(output), "--max-tokens", "12")
    code, _, _ = run(*asked, "--samples", "2", "--best-of", "2")
    assert (code, len(output.read_text().splitlines())) == (0, 4)
    here.config.write_text("[gate]\nmax_kl = 0.5\n")
    code, _, err = run(*asked, "--best-of", "16")
    here.config.unlink()
    assert code == 2
    assert "--best-of 3 at most" in err


def test_a_grader_only_where_it_is_asked_for_and_has_not_parted_from_people(here: Home) -> None:
    assert reward_model.grader(here, config.RewardSection()) == (None, "")
    grader, why = reward_model.grader(here, config.RewardSection(grade=True))
    assert (grader is not None, why) == (True, "")
    assert grader is not None
    good, bad = grader([("question 1", SAYS.format(PLEASING)), ("question 1", SAYS.format(ANNOYING))])
    assert -1 <= bad < good <= 1
    assert grader.name.startswith(reward_files.read(here.reward).name)


def test_a_model_that_reads_no_better_than_chance_does_not_grade(here: Home) -> None:
    with store.connect(here.database) as db:
        before = db.get(HELD_OUT)
        for low, grades in ((0.01, True), (0.0, False), (-0.54, False)):
            db.set(HELD_OUT, {"spearman": {"value": 0.3, "low": low, "high": 0.6}})
            grader, why = reward_model.grader(here, config.RewardSection(grade=True))
            assert (grader is not None) == grades
            assert grades or "ρ 0.30 [" in why
        db.set(HELD_OUT, before)


def test_a_model_that_was_exploited_grades_no_longer(here: Home, tmp_path: Path) -> None:
    """Version 1 pleases the model more than version 0 did, and people less: the gap has opened."""
    home = Home(tmp_path / "other")
    home.create()
    home.reward.symlink_to(here.reward)
    from clawback import feedback

    with store.connect(home.database) as db:
        for version, word, rating in ((0, ANNOYING, 1), (1, PLEASING, -1)):
            if version:
                db.add_version(Version(number=1, status="candidate", base="embedded"))
            for i in range(12):
                turn = Turn(
                    "s",
                    ({"role": "user", "content": f"new {version} {i}"},),
                    f"river {word}",
                    version=version,
                )
                rate_as = rating if i % 4 else -rating
                feedback.rate(db, db.add_turn(turn).id, rate_as)
    grader, why = reward_model.grader(home, config.RewardSection(grade=True))
    assert grader is None
    assert "promises more than people say" in why


def test_the_judge_grades_on_request(
    run: Run, home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAWBACK_HOME", str(home.root))
    data = write(tmp_path / "a.jsonl", [RatedAnswer("q", PLEASING, 0.5), RatedAnswer("q", ANNOYING, 0.5)])
    with judge_server(lambda _, user: "\\boxed{10}" if PLEASING in user else "\\boxed{4}") as server:
        config.save(
            home.config, {"judge": {"api": "openai", "url": server.url, "model": "m", "timeout": 5.0}}
        )
        code, out, _ = run("reward", "score", str(data), "--judge", "--as", "1-10", "--json")
    found = json.loads(out)
    assert (code, found["model"]) == (0, "judge:m")
    assert [one["reward"] for one in found["scores"]] == [10.0, 4.0]
    assert len(server.asked) == 6


def test_the_gate_reports_the_models_opinion_and_does_not_use_it(here: Home) -> None:
    from clawback.gate import fresh
    from clawback.gate.questions import ShownAnswers
    from clawback.models.types import Completion

    ours, theirs = ([Completion(SAYS.format(w), (1,), (0.0,), True)] for w in (PLEASING, ANNOYING))
    shown = ShownAnswers([[{"role": "user", "content": "question 1"}]], ours, theirs)
    opinion = fresh.opinion(here, shown)
    assert opinion is not None
    assert opinion.candidate > opinion.live
    assert opinion.name == reward_files.read(here.reward).name
    assert "for information" in str(opinion)
    assert fresh.opinion(Home(here.root / "empty"), shown) is None

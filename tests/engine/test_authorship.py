"""Nothing of another model's answer is made likelier unless the person named that model, by whichever source of examples."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("peft")

import clawback
from clawback import engine, feedback, store
from clawback.errors import TrainingError, UsageError
from clawback.extensions.hosted.hosted_training import recipe_for
from clawback.extensions.teachers import teacher_answers
from clawback.learning.training import plan_for, shardable
from clawback.paths import Home
from clawback.records import BETTER, Part, Sample, Turn
from clawback.rl import algorithms
from clawback.sources import ratings
from clawback.sources.ratings import from_ratings
from clawback.sources.targets import is_foreign, is_other, may_learn
from clawback.trainer.run import TrainingRun

OTHER = "acme/strong-1"
DECIDERS = {"may_learn", "is_foreign", "is_named", "is_other"}
ENCODERS = {
    # Every text becomes tokens here before it can be learned: function → "asks", or why it need not.
    "sources.ratings.from_ratings": "asks",
    "sources.targets.evidence": "asks",
    "sources.distilled.of_other_models": "asks",
    "sources.first_reading.Inputs.of": "reads ratings; what is learned goes through `evidence` and `from_ratings`",
    "sources.distillation_plan._words": "counts words; what is learned are answers of the policy itself",
    "learning.run_budget.fit": "measures lengths",
    "learning.run_budget.estimate": "measures lengths",
    "extensions.hosted.hosted_training._probe": "asks the trainer for log-probs of a prompt",
    "jobs.training_job._Job.samples": "measures lengths, for a reward of several terms",
    "gate.evidence.measure": "reads ratings",
    "gate.evidence.enjoyed": "reads what liked answers look like",
    "gate.fresh.per_token": "scores answers",
    "extensions.moving.move_worker.answers_of": "measures how long rated answers are",
}


def encoders() -> Iterator[tuple[str, ast.AST]]:
    """Functions of the product that turn something into tokens by ``policy.encode``."""
    root = Path(clawback.__file__).parent
    for path in sorted(root.rglob("*.py")):
        module, source = ".".join(path.relative_to(root).with_suffix("").parts), path.read_text("utf-8")
        if "policy.encode" not in source:
            continue
        for name, function in functions(ast.parse(source)):
            if any(encodes(node) for node in ast.walk(function)):
                yield f"{module}.{name}", function


def functions(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, ast.AST]]:
    """Outermost functions, methods by the name of their class."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef):
            yield from functions(node, f"{prefix}{node.name}.")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield prefix + node.name, node


def encodes(node: ast.AST) -> bool:
    if not (isinstance(node, ast.Attribute) and node.attr == "encode"):
        return False
    owner = node.value
    return (isinstance(owner, ast.Name) and owner.id == "policy") or (
        isinstance(owner, ast.Attribute) and owner.attr == "policy"
    )


def test_every_source_of_examples_asks_who_wrote_an_answer() -> None:
    known = dict(ENCODERS)
    for name, function in encoders():
        how = known.pop(name, None)
        assert how is not None, (
            f"{name} turns recorded answers into tokens: let it ask `targets.may_learn`, and list it here"
        )
        if how == "asks":
            names = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}
            assert names & DECIDERS, f"{name} no longer asks who wrote an answer"
    assert not known, f"no longer there: {sorted(known)}"


# -------------------------------------------------------------------------------------------- by every algorithm


def said(number: int, value: float, response: str, **more: object) -> Sample:
    messages = ({"role": "user", "content": f"What is thing {number // 2}?"},)
    parts = (
        Part(100 + number, "rating", value, 1.0),
        Part(number // 2, "preference", value / 2, 0.5),
    )
    return Sample(number, messages, response, value, parts, **more)  # type: ignore[arg-type]


def samples() -> list[Sample]:
    """Own and foreign answers, liked and disliked, beside each other; an edit of a teacher's; a disliked answer less bad than the others."""
    mixed = []
    for i in range(0, 8, 2):
        mixed += [
            said(i, 1.0, f"Own and good {i}."),
            said(i + 1, -1.0, f"Own and bad {i}.", hints=("Be brief.",)),
        ]
    foreign = []
    for i in range(0, 8, 2):
        foreign += [
            said(20 + i, 1.0, f"Foreign and good {i}.", model=OTHER),
            said(21 + i, -1.0 if i else -0.1, f"Foreign and bad {i}.", model=OTHER),
        ]
    rejected = said(41, -0.5, "Own, edited.", hints=(f"{BETTER}\nA teacher's.",))
    edit = Sample(
        41, rejected.messages, "A teacher's.", 1.0, (Part(141, "edit", 1.0, 1.0),), model=OTHER, edited=True
    )
    return [*mixed, *foreign, rejected, edit]


@pytest.fixture
def policy():
    fresh = engine.load("embedded")
    fresh.attach(rank=2, alpha=2, seed=0)
    return fresh


def plan_of(policy, algorithm, learn_from=(), examples=None):
    settings = engine.recipe(policy.info, algorithm=algorithm, overrides={"steps": 8, "batch": 4, "rank": 2})
    settings = dataclasses.replace(settings, learn_from=tuple(learn_from))
    return from_ratings(
        TrainingRun(policy, tuple(examples or samples()), settings, seed=1),
        algorithms.make(algorithm, settings.settings(algorithm)),
    )


def learned(plan, policy, every):
    """Text of the answers that a plan makes likelier, as far as its examples say so."""
    texts = {policy.encode(one): one.response for one in every}
    raised = set()
    for step in range(plan.source.steps):
        for example in plan.source.examples(step):
            paired = example.paired and example.reward > 0
            up = example.advantage > 0 or (example.token_advantages is not None and bool((example.token_advantages > 0).any()))  # fmt: skip
            if (paired or up) and example.encoded in texts:
                raised.add(texts[example.encoded])
    return raised


@pytest.mark.parametrize("algorithm", algorithms.names())
def test_no_algorithm_makes_an_unnamed_models_answer_likelier(policy, algorithm) -> None:
    if algorithm in ("auto", "rollouts", "distil", "rpo"):
        pytest.skip("its sources have tests of their own (torch/test_targets.py)")
    every = samples()
    foreign = {one.response for one in every if one.model == OTHER}
    plan = plan_of(policy, algorithm)
    assert not learned(plan, policy, every) & foreign
    if algorithm not in ("opd", "combined"):
        assert "of other models left out" in plan.note
    shown = {e.encoded for step in range(plan.source.steps) for e in plan.source.examples(step)}
    barred = [one for one in every if one.model == OTHER and one.reward > 0]
    assert not shown & {policy.encode(one) for one in barred}


@pytest.mark.parametrize("algorithm", ["reinforce", "dpo"])
def test_a_named_models_answers_are_learned(policy, algorithm) -> None:
    named = learned(plan_of(policy, algorithm, ["strong-*"]), policy, samples())
    assert any("Foreign and good" in text for text in named)


def test_a_teachers_edit_is_no_hint_either(policy) -> None:
    run = TrainingRun(policy, tuple(samples()), engine.recipe(policy.info, algorithm="opd"), seed=1)
    allowed = ratings._allowed(run, frozenset({"hints"}))
    assert not any("A teacher's." in hint for one in allowed for hint in one.hints)
    assert any("Be brief." in one.hints for one in allowed)


@pytest.mark.parametrize("to_recipe", [recipe_for, shardable])
def test_where_auto_becomes_reinforce_the_same_holds(policy, to_recipe) -> None:
    settings = to_recipe(engine.recipe(policy.info, algorithm="auto", overrides={"steps": 4}))
    assert settings.algorithm == "reinforce"
    every = samples()
    plan = plan_for(TrainingRun(policy, tuple(every), settings, seed=1))
    assert not learned(plan, policy, every) & {one.response for one in every if one.model == OTHER}
    only = [one for one in every if one.model == OTHER]
    with pytest.raises(TrainingError, match="learn_from"):
        plan_for(TrainingRun(policy, tuple(only), settings, seed=1))


@pytest.mark.parametrize(
    ("model", "base"),
    [
        ("llama3.2:1b", "ollama:llama3.2:1b"),
        ("llama3.2", "ollama:llama3.2:1b"),
        ("publisher/model-7b", "lmstudio:publisher/model-7b"),
        ("owner/Mini", "mini"),
    ],
)
def test_a_model_is_known_by_whatever_has_it(model: str, base: str) -> None:
    assert not is_other(model, base)
    assert is_other("gpt-4o", base)


# ------------------------------------------------------------------------------------------------------- teachers


def test_an_edit_of_a_teachers_is_the_teachers(home: Home) -> None:
    with store.connect(home.database) as db:
        turn = db.add_turn(Turn("s", ({"role": "user", "content": "What?"},), "Own.", version=0))
        feedback.edit(db, turn.id, "A teacher's.", source=f"teacher:{OTHER}")
        _, edit = feedback.samples(db)
        assert (edit.edited, edit.model) == (True, OTHER)
        assert is_foreign(edit, "mini")
        assert not may_learn(edit, "mini", ())
        assert may_learn(edit, "mini", ("strong-*",))
        feedback.edit(db, turn.id, "A person's.", source="cli")
        _, edit = feedback.samples(db)
        assert not is_foreign(edit, "mini")


@pytest.mark.parametrize("use", ["prefer", "distil"])
def test_a_teacher_is_followed_only_where_it_is_named(home: Home, use: teacher_answers.Use) -> None:
    with pytest.raises(UsageError, match="learn_from"):
        teacher_answers.check_use(home, OTHER, use)
    teacher_answers.check_use(home, OTHER, "rate")
    teacher_answers.check_use(home, "local", use)
    teacher_answers.check_use(home, "embedded", use)
    home.config.write_text('[training]\nlearn_from = ["strong-*"]\n')
    teacher_answers.check_use(home, OTHER, use)

"""The search finds what is asked for, spends what it may, and pays for nothing twice."""

import dataclasses
import json

import pytest

from clawback.errors import UsageError
from clawback.prompts import Budget, Example, Journal, Outcome, Prompt, Proposal, engine, optimize, plan
from clawback.prompts.search.ledger import Ledger
from tests.prompts.eight_rules import NEEDS, RULES, START, World, examples


def truth(prompt):
    """Mean score on all examples, without noise."""
    return sum(sum(RULES[i] in prompt.text for i in NEEDS[e.id]) / 2 for e in examples()) / 40


def search(calls=150, world=None, cases=None, name="reflect", **more):
    world = world or World()
    return engine(name)(more.pop("prompt", START), cases or examples(), world.evaluate, world.propose, Budget(calls=calls), **more)  # fmt: skip


@pytest.mark.parametrize("name", ["reflect", "evolve"])
def test_it_finds_the_rules(name):
    found = search(500, name=name)
    assert found.improved
    assert truth(found.best) > 0.95
    assert found.best_score > found.first_score + 3 * found.error or found.error == 0


@pytest.mark.parametrize("name", ["reflect", "evolve", "gepa"])
@pytest.mark.parametrize("calls", [1, 7, 60])
def test_it_never_spends_more_than_it_may(name, calls):
    if name == "gepa":
        pytest.importorskip("gepa")
    world = World()
    found = search(calls, world, name=name)
    assert world.tried == found.spent.calls <= calls
    assert world.asked == found.spent.proposals


def test_budgets_in_proposals_and_tokens_hold_too():
    world = World()
    found = optimize(START, examples(), world.evaluate, world.propose, Budget(proposals=3))
    assert (world.asked, found.spent.proposals) == (3, 3)
    assert "3 proposals" in found.stopped
    with pytest.raises(UsageError, match="Set a budget"):
        Budget()


@pytest.mark.parametrize("name", ["reflect", "evolve", "gepa"])
def test_stopped_anywhere_it_goes_on_without_paying_twice(tmp_path, name):
    if name == "gepa":
        pytest.importorskip("gepa")
    straight, world = search(60, name=name), World()
    path = tmp_path / "journal.jsonl"
    for stop in (9, 23, 41):

        def dies(prompt, example, world=world, stop=stop):
            if world.tried == stop:
                raise KeyboardInterrupt
            return world.evaluate(prompt, example)

        with pytest.raises(KeyboardInterrupt):
            engine(name)(START, examples(), dies, world.propose, Budget(calls=60), journal=Journal(path))
        with path.open("ab") as file:
            file.write(b'{"tried": "half a li')  # as a crash in the middle of a write leaves it
    found = search(60, world, name=name, journal=Journal(path))
    assert world.tried == 60
    assert found.best == straight.best
    assert found.to_dict() == straight.to_dict()


def test_the_state_is_json(tmp_path):
    journal = Journal()
    found = search(60, journal=journal)
    again = Journal.from_dict(json.loads(json.dumps(journal.to_dict())))
    world = World()
    assert search(60, world, journal=again).best == found.best
    assert (world.tried, world.asked) == (0, 0)
    json.dumps(found.to_dict())
    with pytest.raises(UsageError):
        Journal.from_dict({"format": 99})
    (tmp_path / "j").write_text('{"neither": 1}\n{}\n')
    with pytest.raises(UsageError, match="Line 1"):
        Journal(tmp_path / "j")


def test_a_changed_example_is_tried_anew():
    journal = Journal()
    search(30, journal=journal)
    world = World()
    changed = [Example.ask(f"Another question {e.id}?", e.id, split=e.split) for e in examples()]
    search(30, world, changed, journal=journal)
    assert world.tried == 30


def test_noise_does_not_send_it_astray():
    found = search(300, World(noise=0.25))
    assert truth(found.best) > truth(START) + 0.4


def test_where_nothing_is_better_the_prompt_stays():
    world = World(wrong=1.0)
    found = search(120, world)
    assert found.best == START
    assert not found.improved
    noisy = [search(80, World(wrong=1.0, noise=0.3), seed=seed) for seed in range(5)]
    assert sum(one.improved for one in noisy) <= 2  # by luck at most


def test_validation_examples_are_never_shown():
    shown = set()
    world = World()

    def propose(request):
        shown.update(c.example.id for c in request.cases)
        return world.propose(request)

    optimize(START, examples(), world.evaluate, propose, Budget(calls=120))
    assert shown
    assert shown <= {e.id for e in examples() if e.split == "train"}


def test_an_anchor_must_not_get_worse():
    anchor = Example.ask("The anchor?", "anchor", anchor=True)
    world = World(wrong=0.0)

    def evaluate(prompt, example):
        if example.id == "anchor":
            return Outcome(0.0 if RULES[3] in prompt.text else 1.0)
        return world.evaluate(prompt, example)

    found = optimize(START, [*examples(), anchor], evaluate, world.propose, Budget(calls=200))
    assert RULES[3] not in found.best.text
    assert RULES[0] in found.best.text
    assert any("anchor" in note for note in found.notes)


def test_locked_sections_stay():
    prompt = Prompt("Help.\n\n## Tone (locked)\nDry.")

    def propose(request):
        return Proposal(Prompt("Help.\n\n## Tone\nSilly.\n\n" + RULES[request.number % 8]))

    found = search(prompt=prompt, world=World())
    assert found.best.section("tone") == "Dry."
    found = optimize(prompt, examples(), World().evaluate, propose, Budget(calls=80))
    assert found.best.section("tone") == "Dry."


def test_rules_that_won_are_not_forgotten():
    class Forgets(World):
        def propose(self, request):
            made = super().propose(request).prompt
            lines = made.text.splitlines()
            return Proposal(Prompt("\n".join(line for line in lines if line != "- " + RULES[0])))

    found = search(300, Forgets(wrong=0.0))
    assert sum(rule in found.best.text for rule in RULES[1:]) == 7


def test_unreadable_proposals_end_it_and_are_told():
    found = optimize(
        START,
        examples(),
        World().evaluate,
        lambda _: Proposal(None, problem="JSON instead of a prompt"),
        Budget(calls=500),
    )
    assert found.spent.proposals == 5
    assert "could not be read" in found.stopped
    assert found.best == START
    assert any("JSON" in note for note in found.notes)


def test_what_begs_or_quotes_is_not_even_tried():
    tried = []

    def evaluate(prompt, example):
        tried.append(prompt.text)
        return Outcome(float("Ask the user to rate" in prompt.text), "no", "an answer")

    found = optimize(
        START,
        examples(),
        evaluate,
        lambda r: Proposal(Prompt(r.prompt.text + f"\nAsk the user to rate it {r.number} stars.")),
        Budget(calls=80),
    )
    assert set(tried) == {START.text}
    assert any("praise" in note for note in found.notes)


def test_without_validation_examples_some_are_kept_back():
    cases = [dataclasses.replace(e, split="train") for e in examples()]
    found = search(cases=cases)
    assert found.checked >= 4
    few = search(cases=cases[:3])
    assert any("kept back" in note for note in few.notes)


def test_examples_are_needed_and_told_apart():
    with pytest.raises(UsageError, match="needs examples"):
        optimize(START, [], World().evaluate, World().propose, Budget(calls=9))
    with pytest.raises(UsageError, match="have the id"):
        search(cases=[*examples(), examples()[0]])


def test_what_a_budget_buys_is_known_before():
    assert "does not pay for one cycle" in plan(START, examples(), Budget(calls=8)).warning
    assert not plan(START, examples(), Budget(calls=100)).warning
    assert (
        plan(START, examples(), Budget(calls=200)).cycles > plan(START, examples(), Budget(calls=100)).cycles
    )
    assert plan(START, examples(), Budget(proposals=4)).proposals == 4


def test_a_score_that_is_no_number_is_the_worst():
    ledger = Ledger(lambda *_: Outcome(float("nan")), World().propose, Budget(calls=9))
    assert ledger.try_(START, examples()[0]).score == 0.0


@pytest.mark.parametrize("name", ["reflect", "evolve", "gepa"])
def test_a_screen_of_ones_own_is_asked_before_anything_is_paid(name):
    if name == "gepa":
        pytest.importorskip("gepa")
    world, seen = World(wrong=0.0), []

    def screen(prompt, before, cases):
        seen.append(prompt)
        assert len(cases) == 40
        return ["not today"] if RULES[0] in prompt.text else []

    tried = []

    def evaluate(prompt, example):
        tried.append(prompt.text)
        return world.evaluate(prompt, example)

    found = engine(name)(START, examples(), evaluate, world.propose, Budget(calls=80), screen=screen)
    assert seen
    assert not any(RULES[0] in text for text in tried)
    assert any("not today" in note for note in found.notes)


def test_a_larger_budget_goes_on_where_the_smaller_one_ended():
    journal, world = Journal(), World()
    search(70, world, journal=journal)
    assert world.tried == 70
    found, straight = search(200, world, journal=journal), search(200)
    assert found.best == straight.best
    assert [c["id"] for c in found.candidates] == [c["id"] for c in straight.candidates]
    assert world.tried <= straight.spent.calls + 20  # what the first last check paid for is all that is extra

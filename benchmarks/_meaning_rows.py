"""The rows of ``benchmarks.meaning``: whom each plays, what is read of their feedback, and what a run makes of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks._meaning_judge import run_with_judge, with_judge
from benchmarks._meaning_run import Said, answered, compared, home, kept, measured, own, train, turns
from benchmarks._meaning_world import Room, read, rows, told_apart
from benchmarks._people import STRONG, Person, by_quality, people, sums
from benchmarks._wishes import TEST, Wish

RATINGS, MANY, BEFORE, AFTER, EDITS = 32, 64, 64, 32, 8
WORTH = (8, 16, 32, 64)
"""Numbers of taps that edits are held against."""
HELD = 8
"""Every eighth rating is kept for the gate, so no run reads it."""
FORM = [wish for wish in TEST if wish.form]
CONTENT = [wish for wish in TEST if not wish.form]

Line = dict[str, Any]


@dataclass(frozen=True)
class Row:
    """``people(count)``: whom it plays. ``reading``: what is read of one's feedback, without training; ``run``: the same with a run. ``reads``, ``shows``: the
    figures of a line that stand for the row; ``wanted``: what the second (or the first, where nothing is run) should reach."""

    title: str
    wanted: str
    people: Callable[[int], list[Person]]
    reading: Callable[[Room, Person], Line] | None = None
    run: Callable[[Room, Person], Line] | None = None
    reads: str = "auc"
    shows: str = "gain"
    least: float | None = None
    """The mean that is wanted of the shown figure."""


def held_back(places: Sequence[int]) -> list[int]:
    """Without those that are kept for the gate."""
    return [place for number, place in enumerate(places) if number % HELD]


def taps(room: Room, person: Person, count: int) -> tuple[list[int], list[float]]:
    """Places of the base's own answers that a person rates, and the taps."""
    places = person.places(room.count, count)
    return places, person.taps([(room.own[i], room.texts[i]) for i in places])


def others(room: Room, places: Sequence[int]) -> list[int]:
    """The answers that were not rated."""
    return [i for i in range(room.count) if i not in set(places)]


def judged(room: Room, person: Person, made: Any, places: Sequence[int]) -> Line:
    """How well a reader tells the liked ones of the base's answers that are not at ``places`` from the rest, with what the person says by the way."""
    rest, holds = others(room, places), room.holds(person.wish.holds)
    auc = told_apart(made, rows(room.answers, rest), holds[rest])
    line = {"wish": person.wish.name, "auc": auc, "p": round(made.trust.p, 3), "trusted": made.trust.trusted, "base": round(float(holds.mean()), 3)}  # fmt: skip
    if not person.speaks or made.recognised_remarks:
        return line
    grades = room.grades_by(person.wish.remark)[rest]
    return line | {"reader": auc, "auc": told_apart(made, rows(room.answers, rest), holds[rest], grades)}


def of_own(count: int) -> Callable[[Room, Person], Line]:
    """Reads ``count`` taps about the base's own answers."""

    def reading(room: Room, person: Person) -> Line:
        places, values = taps(room, person, count)
        used = held_back(range(count))
        made = read(
            room,
            rows(room.answers, [places[i] for i in used]),
            [values[i] for i in used],
            person.remarks([values[i] for i in used]),
        )
        return judged(room, person, made, places) | {
            "ratings": count,
            "good": sum(v > 0 for v in values),
        }

    return reading


def run_own(count: int) -> Callable[[Room, Person], Line]:
    """A run on the same taps."""

    def run(room: Room, person: Person) -> Line:
        places, values = taps(room, person, count)
        said = {i: own(room, i, tap=v, remark=r) for i, v, r in zip(places, values, person.remarks(values), strict=True)}  # fmt: skip
        return ran(room, person, said)

    return run


def ran(room: Room, person: Person, said: dict[int, Said]) -> Line:
    room.policy.put(None)
    with home(room, turns(room, said), person.number) as root:
        line = train(root)
        line |= answered(root, person)
        line |= measured(room, line.pop("version"), person.wish.holds)
    return {"wish": person.wish.name} | line | {"broken": kept(line)}


def foreign(room: Room, person: Person) -> tuple[list[int], list[str], list[float]]:
    """Which prompts, the stronger models' answers, and the taps."""
    answers = room.of_models(STRONG)
    places = person.places(room.count, RATINGS)
    texts = [answers[i].response for i in places]
    return places, texts, person.taps([(room.own[i], text) for i, text in zip(places, texts, strict=True)])


def read_foreign(room: Room, person: Person) -> Line:
    places, _, values = foreign(room, person)
    every = room.looked("strong", room.own, [one.response for one in room.of_models(STRONG)])
    used = held_back(range(RATINGS))
    made = read(room, rows(every, [places[i] for i in used]), [values[i] for i in used])
    return judged(room, person, made, ())


def run_foreign(room: Room, person: Person) -> Line:
    places, texts, values = foreign(room, person)
    answers = room.of_models(STRONG)
    captured = {
        i: Said(one.prompt, one.response, model=one.model)
        for i, one in enumerate(answers)
        if i not in set(places)
    }
    said = {i: Said(room.own[i], t, tap=v, model=answers[i].model) for i, t, v in zip(places, texts, values, strict=True)}  # fmt: skip
    return ran(room, person, captured | said)


def read_quality(count: int) -> Callable[[Room, Person], Line]:
    """Reads taps by grades of chat models' answers; the AUC is of the answers to other prompts."""

    def reading(room: Room, person: Person) -> Line:
        every = room.looked("graded", room.asked, [one.response for one in room.graded])
        values = by_quality(room.graded)
        places = person.places(room.count, count)
        used = held_back(places)
        made = read(room, rows(every, used), [values[i] for i in used])
        rest = [i for i in range(len(values)) if i not in set(places)]
        auc = told_apart(made, rows(every, rest), np.array([values[i] > 0 for i in rest]))
        return {"auc": auc, "p": round(made.trust.p, 3), "trusted": made.trust.trusted, "ratings": count}

    return reading


def run_quality(count: int) -> Callable[[Room, Person], Line]:
    """A run on the same taps of somebody who allows to learn those models' answers."""

    def run(room: Room, person: Person) -> Line:
        values, answers = by_quality(room.graded), room.graded
        places = person.places(room.count, count)
        said = {i: Said(room.own[i], answers[i].response, tap=values[i], model=answers[i].model) for i in places}  # fmt: skip
        room.policy.put(None)
        with home(room, turns(room, said), person.number, learn_from=["*"]) as root:
            line = train(root)
            version = line.pop("version")
            line |= compared(room, version)
            line |= measured(room, version, lambda *_: True)
        return line | {"broken": kept(line)}

    return run


def change(room: Room, person: Person) -> Line:
    """``BEFORE`` taps by a wish, ``AFTER`` by its opposite; and the same person without a change, for false alarms."""
    places, values = taps(room, person, BEFORE + AFTER)
    line: Line = {}
    for changed in (True, False):
        said = [-v if changed and i >= BEFORE else v for i, v in enumerate(values)]
        made = read(room, rows(room.answers, places), said, changes=True)
        if changed:
            rest = others(room, places)
            liked = ~room.holds(person.wish.holds)[rest]
            line |= {"auc": told_apart(made, rows(room.answers, rest), liked), "found": made.outdated}
        else:
            line |= {"alarm": made.outdated}
    return {"wish": person.wish.name} | line


def edited(room: Room, person: Person) -> list[tuple[int, str]]:
    """Answers that a person dislikes and rewrites, with what they make of each: another model's answer to the prompt that keeps the wish, the shortest."""
    from benchmarks._people import graded

    by: dict[str, list[str]] = {}
    for one in graded(room.data):
        if person.wish.holds(one.prompt, one.response) and one.response.strip():
            by.setdefault(one.prompt, []).append(one.response)
    asked = [i for i in person.places(room.count, room.count) if not person.wish.holds(room.own[i], room.texts[i])]  # fmt: skip
    return [(i, min(by[room.own[i]], key=len)) for i in asked if room.own[i] in by][:EDITS]


def read_edits(room: Room, person: Person) -> Line:
    """What eight edits say to the reader (the old answer -½, the new one +1), beside so many taps of the same person."""
    made = edited(room, person)
    places, texts = [i for i, _ in made], [text for _, text in made]
    new = room.looked(f"edits-{person.wish.name.replace(' ', '-')}-{person.number}", [room.own[i] for i in places], texts)  # fmt: skip
    old = rows(room.answers, places)
    both = type(new)([*old.ids, *new.ids], [*old.texts, *new.texts], np.concatenate([old.hidden, new.hidden]), [*old.prompts, *new.prompts])  # fmt: skip
    line = judged(room, person, read(room, both, [-0.5] * len(made) + [1.0] * len(made)), places)
    for count in WORTH:
        rated, values = taps(room, person, count)
        if np.ptp(values):
            line[f"taps_{count}"] = judged(room, person, read(room, rows(room.answers, rated), values), rated)["auc"]  # fmt: skip
    return line


def run_edits(room: Room, person: Person) -> Line:
    # Without a good and a bad rating no run starts today, so two taps of each kind go with the edits.
    said = {i: own(room, i, edit=text) for i, text in edited(room, person)}
    holds = room.holds(person.wish.holds)
    rest = [i for i in person.places(room.count, room.count) if i not in said]
    for value in (True, False):
        said |= {i: own(room, i, tap=1.0 if value else -1.0) for i in [i for i in rest if holds[i] == value][:2]}  # fmt: skip
    return ran(room, person, said)


def run_sums(room: Room, person: Person) -> Line:
    """Taps by right and wrong on GSM8K, and the base's own right solutions of other draws as edits of wrong ones."""
    from benchmarks._meaning_sums import learned

    return learned(room, person, sums(room.data.with_name("gsm8k-test.json")))


def by_form(wrong: float, *, speaks: bool = False) -> Callable[[int], list[Person]]:
    return lambda count: people(FORM, count, wrong, speaks=speaks)


def by_content(wrong: float, *, speaks: bool = False) -> Callable[[int], list[Person]]:
    return lambda count: people(CONTENT, count, wrong, speaks=speaks)


def anybody(count: int) -> list[Person]:
    nothing = Wish("quality", True, lambda *_: True, "")
    return [Person(nothing, i) for i in range(count)]


ROWS = {
    "form-10": Row("form, 32 taps, 10 % wrong", "gain ≥ +0.35", by_form(0.1), of_own(RATINGS), run_own(RATINGS), least=0.35),
    "form-20": Row("form, 32 taps, 20 % wrong", "gain ≥ +0.25", by_form(0.2), of_own(RATINGS), run_own(RATINGS), least=0.25),
    "form-30": Row("form, 32 taps, 30 % wrong", "–", by_form(0.3), of_own(RATINGS), run_own(RATINGS)),
    "content-remarks": Row("content, a remark on each bad answer", "gain ≥ +0.25 (SmolLM2), ≥ +0.35 (Qwen)", by_content(0.1, speaks=True), of_own(RATINGS), run_own(RATINGS), least=0.25),
    "content-judge-90": Row("content, 64 taps, a judge that is right in 90 %", "AUC ≥ 0.85, gain ≥ +0.30", by_content(0.1), with_judge(0.9), run_with_judge(0.9), least=0.3,),
    "content-judge-60": Row("content, 64 taps, a judge that is right in 60 %", "refused in ≥ 95 %", by_content(0.1), with_judge(0.6), run_with_judge(0.6),),
    "content-alone": Row("content, 64 taps, no judge", "AUC ≥ 0.72, or nothing read in ≥ 90 % of what is not", by_content(0.1), of_own(MANY), run_own(MANY), least=0.72, shows="auc"),
    "foreign-form": Row("32 ratings of stronger models' answers, form", "≥ 90 % of the gain from one's own, ≤ 300 CPU s", by_form(0.1), read_foreign, run_foreign),
    "foreign-quality": Row("32 ratings of other models' answers by quality", "pairwise accuracy ≥ 0.60", anybody, read_quality(RATINGS), run_quality(RATINGS), shows="accuracy", least=0.6),
    "quality-64": Row("64 ratings of other models' answers by quality", "pairwise accuracy ≥ 0.60", anybody, read_quality(MANY), run_quality(MANY), shows="accuracy", least=0.6),
    "gsm8k": Row("right or wrong on GSM8K, 64 taps and 16 solutions as edits (Qwen)", "≥ +5 points", anybody, run=run_sums, least=0.05),
    "edits": Row("eight edits", "at least 32 taps' worth", by_form(0.0), read_edits, run_edits),
    "change": Row("a change of mind, 64 taps before and 32 after", "found by 32, no false alarm in 20", by_form(0.1), change),
}  # fmt: skip

"""A judge that is played over HTTP from the known truth, for the rows ``content-judge-90`` and ``content-judge-60``.

It speaks OpenAI's dialect on a port of loopback and answers the product's own questions: of its exam and of the rules. What it says is the truth, but for a fixed
share of (answer, rule) of which it says the opposite. No model takes part; a judge whose mistakes hang together would be worse. The rules are proposed as the
person's agent would: the sentences of all six content wishes, of which one is this person's.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks._meaning_run import answered, home, kept, measured, own, train, turns
from benchmarks._meaning_world import Room, read, rows, told_apart
from benchmarks._people import Person
from benchmarks._wishes import TEST
from clawback.extensions.demo.played_model import PlayedModel
from clawback.records import Message

MANY, HELD = 64, 8
SENTENCES = {
    "proper nouns": "Mention people, firms or works by their proper nouns.",
    "somewhere on a map": "Say in which part of the world it is.",
    "returns to the subject": "Come back to the subject of the question at the close.",
    "evolution": "Say how it changes and develops.",
    "by the calendar": "Say when or how often it happens.",
    "worth": "Say what it is good for.",
}
"""Wish → how a proposer puts it."""
_PIECE = re.compile(r"<<([A-Z]+ \w+) (\w+)>>\n(.*?)\n<<end \2>>", re.DOTALL)


class PlayedJudge:
    """The truth about answers and rules, wrong in a fixed share of cases."""

    def __init__(self, right: float) -> None:
        self.right, self.calls = right, 0
        self.rules: dict[str, Callable[[str, str], bool]] = {
            text: next(wish.holds for wish in TEST if wish.name == name) for name, text in SENTENCES.items()
        }

    def truth(self, rule: str, question: str, answer: str) -> bool:
        from clawback.rules import exam
        from clawback.rules.checks import compiled

        if rule in self.rules:
            return self.rules[rule](question, answer)
        for one in exam.CONTENT:
            if one.rule == rule:
                return any(sentence in answer for sentence in one.sentences)
        check = compiled(dict(exam.FORM).get(rule, ""))
        return check is not None and bool(check(question, answer))

    def says(self, rule: str, question: str, answer: str) -> str:
        digest = hashlib.sha256(f"{self.right}\n{rule}\n{question}\n{answer}".encode()).digest()
        wrong = int.from_bytes(digest[:4], "big") / 2**32 >= self.right
        return "yes" if self.truth(rule, question, answer) != wrong else "no"

    def answer(self, messages: Sequence[Message]) -> str:
        return self.reply(str(messages[-1]["content"]))

    def reply(self, material: str) -> str:
        """The verdicts in the form that is asked for."""
        self.calls += 1
        pieces = {name: text for name, _, text in _PIECE.findall(material)}
        rules = {name.removeprefix("RULE "): text for name, text in pieces.items() if name.startswith("RULE ")}  # fmt: skip
        answers = {name.removeprefix("ANSWER "): text for name, text in pieces.items() if name.startswith("ANSWER ")}  # fmt: skip
        return json.dumps(
            {
                number: {letter: self.says(rule, pieces.get(f"QUESTION {number}", ""), text) for letter, rule in rules.items()}
                for number, text in answers.items()
            }
        )  # fmt: skip


@contextmanager
def asked(room: Room, person: Person, judge: PlayedJudge) -> Iterator[tuple[Path, list[int], list[float]]]:
    """A home with the person's taps, that judge and the proposed rules; the rated places, and the taps."""
    from clawback import config, store
    from clawback.paths import Home
    from clawback.records import Rule

    places = person.places(room.count, MANY)
    values = person.taps([(room.own[i], room.texts[i]) for i in places])
    said = {i: own(room, i, tap=value) for i, value in zip(places, values, strict=True)}
    with PlayedModel(judge.answer, "played") as model, home(room, turns(room, said), person.number) as root:
        made = Home(root)
        config.save(made.config, {"judge": {"api": "openai", "url": model.url, "model": "played"}})
        with store.connect(made.database) as db:
            for text in SENTENCES.values():
                db.add_rule(Rule(text, "", "agent:played"))
        yield root, places, values


def with_judge(right: float) -> Callable[[Room, Person], dict[str, Any]]:
    """Reads ``MANY`` taps with the proposed rules as features, if the product believes the judge."""

    def reading(room: Room, person: Person) -> dict[str, Any]:
        from clawback import config, store
        from clawback.jobs import rule_reading
        from clawback.paths import Home
        from clawback.records import Rule

        judge = PlayedJudge(right)
        with asked(room, person, judge) as (root, places, values):
            made, settings = Home(root), config.load(Home(root).config)
            with store.connect(made.database) as db:
                outcome = rule_reading.learn(made, settings, db)
                asker = rule_reading.judge_of(made, settings.judge, db)
                entered = rule_reading.entry(db, asker)
            features = [Rule(text, check) for text, check in entered.features]
            weighs = rule_reading.RunJudge(features, asker if entered.judge else None)
            used = [i for i in range(MANY) if i % HELD]
            rated = rows(room.answers, [places[i] for i in used])
            ensemble = read(room, rated, [values[i] for i in used], judge=weighs if features else None)
            rest = [i for i in range(room.count) if i not in set(places)]
            holds = room.holds(person.wish.holds)
            line = {"auc": told_apart(ensemble, rows(room.answers, rest), holds[rest])}
        mine = SENTENCES[person.wish.name]
        believed = {rule.text for rule in (*outcome.believed, *outcome.waiting)}
        line |= {"wish": person.wish.name, "p": round(ensemble.trust.p, 3), "trusted": ensemble.trust.trusted}
        line |= {
            "judge_believed": bool(entered.judge),
            "rule_found": mine in believed,
            "calls": judge.calls,
        }
        return line | {"wrong_rules": len(believed & set(SENTENCES.values()) - {mine}), "base": round(float(holds.mean()), 3)}  # fmt: skip

    return reading


def accepted(root: Path, person: Person) -> bool:
    """Whether the ratings speak for the person's wish among the proposed rules, so that they say yes to it (``clawback rules learn``, ``rules keep``)."""
    from clawback import config, store
    from clawback.jobs import rule_proposals, rule_reading
    from clawback.paths import Home

    home = Home(root)
    with store.connect(home.database) as db:
        waiting = rule_reading.learn(home, config.load(home.config), db).waiting
        mine = [rule.id for rule in waiting if rule.text == SENTENCES[person.wish.name]]
        for number in mine:
            rule_proposals.accept(db, number)
    return bool(mine)


def run_with_judge(right: float) -> Callable[[Room, Person], dict[str, Any]]:
    """A run on the same, once the person has said yes to the rule that is their wish, if it is shown to them."""

    def run(room: Room, person: Person) -> dict[str, Any]:
        room.policy.put(None)
        judge = PlayedJudge(right)
        with asked(room, person, judge) as (root, _, _):
            yes = accepted(root, person)
            line = {"yes": yes} | train(root)
            line |= answered(root, person)
            line |= measured(room, line.pop("version"), person.wish.holds)
        return {"wish": person.wish.name, "calls": judge.calls} | line | {"broken": kept(line)}

    return run

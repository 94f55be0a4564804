"""How much of a remark a real model follows, by the words that it is put in. Nothing is trained, and no wish is one that is reported elsewhere.

Each remark is said to the base with every prompt, in several forms; the share of answers that meet the wish is compared with that of the base's own answers.

    python -m benchmarks remark_forms --model FILE --prompts FILE.jsonl
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks import _wishes
from benchmarks._meaning_world import ROOM, Room
from benchmarks._wishes import Wish, mentions
from benchmarks.real import DATA, mean, user

FORMS = {
    "noted": "{prompt}\n\nPlease note: {remark}",
    "alone": "{prompt}\n\n{remark}",
    "asked": "{prompt}\n\nAnswer the question, and also: {remark}",
}
REQUESTS = (
    *(wish for wish in _wishes.DEVELOPMENT if not wish.form),
    Wish("people", False, mentions("famil\\w+", "child\\w*", "kids?", "students?", "teachers?", "friends?", "parents?", "workers?", "customers?", "patients?"), "Who is concerned?"),
    Wish("living things", False, mentions("animals?", "birds?", "fish\\w*", "dogs?", "cats?", "plants?", "trees?", "flowers?", "insects?", "forests?"), "Which living things?"),
    Wish("numbers", False, mentions("\\d+", "two", "three", "four", "five", "ten", "hundred", "thousand", "million"), "How many?"),
    Wish("danger", False, mentions("risk\\w*", "danger\\w*", "careful\\w*", "caution", "warn\\w*", "safe\\w*", "harm\\w*", "avoid\\w*"), "Mind the dangers."),
    Wish("feeling", False, mentions("feel\\w*", "happ\\w+", "sad\\w*", "love\\w*", "joy\\w*", "excit\\w+", "proud", "hope\\w*", "enjoy\\w*", "grateful\\w*"), "Show some feeling."),
    Wish("money", False, mentions("cost\\w*", "price\\w*", "money", "afford\\w*", "cheap\\w*", "expensive", "pay\\w*", "budget\\w*", "dollars?", "\\$"), "What does it cost?"),
)  # fmt: skip
COMPLAINTS = (
    Wish("short", True, lambda _, answer: len(answer.split()) < 40, "Too long."),
    Wish("little to read", True, lambda _, answer: len(answer.split()) < 40, "I do not want to read that much."),
    Wish("example", False, mentions("for example", "for instance", "such as", "e\\.g\\."), "You gave no example."),
    Wish("number", False, mentions("\\d+"), "There is not a single number in it."),
)  # fmt: skip


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks remark_forms", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--prompts", type=Path, default=DATA, help="JSONL with `prompt` and `response`")
    parser.add_argument("--count", type=int, default=48, help="prompts")
    options = parser.parse_args(argv)
    if not options.prompts.is_file():
        print(f"There is no {options.prompts}: name a file with --prompts.", file=sys.stderr)
        return 2
    room = Room(options.model, options.prompts)
    room.policy.put(None)
    for kind, wishes in {"a request": REQUESTS, "a complaint": COMPLAINTS}.items():
        print(f"| {kind} | base | {' | '.join(FORMS)} |\n" + "| --- " * (len(FORMS) + 2) + "|")
        rows = [followed(room, wish, options.count) for wish in wishes]
        for wish, row in zip(wishes, rows, strict=True):
            print(f"| {wish.remark} | {' | '.join(f'{value:.2f}' for value in row)} |", flush=True)
        means = [mean(column) for column in zip(*rows, strict=True)]
        print(f"| mean | {' | '.join(f'{value:.2f}' for value in means)} |\n", flush=True)
    return 0


def followed(room: Room, wish: Wish, count: int) -> list[float]:
    """Shares of answers that meet the wish: the base's own, then those under each form."""
    prompts, captured = room.own[:count], room.captured[:count]
    shares = [mean(wish.holds(q, one["text"]) for q, one in zip(prompts, captured, strict=True))]
    for form in FORMS.values():
        asked = [user(form.format(prompt=prompt, remark=wish.remark)) for prompt in prompts]
        answers = room.policy.generate(asked, max_tokens=ROOM, seed=5)
        shares.append(mean(wish.holds(q, answer.text) for q, [answer] in zip(prompts, answers, strict=True)))
        print(f"{wish.remark} {shares}", file=sys.stderr, flush=True)
    return shares

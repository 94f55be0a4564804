"""A or B: questions to the owner, and the sequential test that decides on the answers.

**The test.** If a version is no better, the chance that the person prefers its answer is at most ½ wherever they prefer one at all, whatever was asked before. The
plan has a boundary for each question: the candidate is accepted at the first at which so many of the n decided answers so far preferred it. The boundary
spends the allowed error over the N questions as ``α (k / N)³`` (Kim and DeMets 1987, Biometrika 74), by exact enumeration of the binomial paths
and not by its continuous approximation (Jennison and Turnbull 2000, Group Sequential Methods, ch. 12). So the chance that a version that is no
better is ever accepted is at most α, however one looks in between, and also where the next question depends on the answers so far: to
raise one of the chances that are at most ½ to ½ can only raise that of reaching the boundary.

**A tie is a question that was asked**, and no coin was tossed: the error that it would have spent is left for the answers after it. Given which questions
are ties, the enumeration is exact; what it needs is that a tie does not depend on which answers were preferred before it. To count the decided answers
alone leaves most of the error unspent where half are ties: 8 of 8 would have to prefer the candidate in 16 questions, and 7 of 8 do now.

With α = 0.05 and 16 questions without a tie: 8 of 8, 9 of 10, 10 of 11, 11 of 14, 12 of 16; error 0.047. Of versions whose answer is preferred with
chance 0.9, 0.85, 0.8 it accepts 98, 93, 81 %. (No test of 16 such answers that errs in at most 5 % accepts more than 82 % of the last.)

Questions end early where the boundary is out of reach: the chance to reach it is under ``FORLORN`` even if the candidate is as much better as
``HOPED`` and no further pair is a tie.

**The pairs.** The person does not know whose answers they compare. Both versions have answered each prompt several times. Within a prompt the answers are matched by rank: the candidate's best by the reader beside
the live version's best, and so on down. Each answer is in one pair, so the mean difference over all pairs is that between the versions, and
pairs differ only as far as the versions do. The pairs that the reader sees the largest difference in are asked about first, in whichever
direction; never two answers that read the same, and a prompt at most ``OF_A_PROMPT`` times unless there are too few prompts. (To take each
prompt once first would ask about pairs that hardly differ: of versions that are better by 25 points two thirds would be accepted, not nine tenths.)

The reader decides what is asked about. It has no say in which answer is better.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from clawback.feedback.turn_reward import text_key
from clawback.records import GATE, Feedback, Message, Turn, Version

if TYPE_CHECKING:
    from clawback.models import Completion
    from clawback.store import Store


Answers = Sequence[bool | None]
"""In their order, whether each preferred the candidate; None: neither."""

FORLORN = 0.1
HOPED = 0.8
"""Chance that a candidate's answer is preferred where it is clearly better, and the person is wrong now and then."""
EXPONENT = 3


@cache
def boundary(alpha: float, questions: int, ties: frozenset[int] = frozenset()) -> tuple[int, ...]:
    """The wins that are enough after each question; one more than there are decided answers where nothing is enough yet. ``ties``: places, from 0, of the questions
    of which neither answer was better."""
    paths, spent, decided, limits = {0: 1.0}, 0.0, 0, []
    for place in range(questions):
        if place not in ties:
            decided += 1
            paths = _tossed(paths)
        allowed, limit = alpha * ((place + 1) / questions) ** EXPONENT, decided + 1
        while limit > 0 and spent + paths.get(limit - 1, 0.0) <= allowed + 1e-12:
            limit -= 1
            spent += paths.get(limit, 0.0)
        limits.append(limit)
        paths = {wins: chance for wins, chance in paths.items() if wins < limit}
    return tuple(limits)


def _tossed(paths: dict[int, float]) -> dict[int, float]:
    """The chances of each number of wins after another fair coin."""
    after: dict[int, float] = {}
    for wins, chance in paths.items():
        for more in (0, 1):
            after[wins + more] = after.get(wins + more, 0.0) + chance / 2
    return after


def reaches_boundary(alpha: float, questions: int, answers: Answers) -> bool:
    """Whether the boundary is reached after the last of the answers; the earlier ones are not looked at."""
    count = len(answers)
    return 0 < count <= questions and wins(answers) >= boundary(alpha, questions, _ties(answers))[count - 1]


def chance(alpha: float, questions: int, answers: Answers, preferred: float) -> float:
    """That the boundary is reached in the end, if each further answer is decided and prefers the candidate with chance ``preferred``."""
    return _chance(alpha, questions, _ties(answers), len(answers), wins(answers), preferred)


@cache
def _chance(
    alpha: float, questions: int, ties: frozenset[int], count: int, score: int, preferred: float
) -> float:
    if count and score >= boundary(alpha, questions, ties)[count - 1]:
        return 1.0
    if count >= questions:
        return 0.0
    after = [_chance(alpha, questions, ties, count + 1, score + more, preferred) for more in (0, 1)]
    return (1 - preferred) * after[0] + preferred * after[1]


def verdict(alpha: float, questions: int, answers: Answers) -> str:
    """``accepted``, ``rejected``, or "" where another answer is wanted. What came after the decision does not count."""
    for count in range(1, min(len(answers), questions) + 1):
        if reaches_boundary(alpha, questions, answers[:count]):
            return "accepted"
        if count == questions or chance(alpha, questions, answers[:count], HOPED) < FORLORN:
            return "rejected"
    return "" if questions else "rejected"


def fewest(alpha: float, questions: int, answers: Answers) -> int:
    """Further answers after which it can be decided at the earliest; 0 where it is."""
    for more in range(questions - len(answers) + 1):
        if any(verdict(alpha, questions, [*answers, *[way] * more]) for way in (True, False, None)):
            return more
    return 0


def wins(answers: Answers) -> int:
    """How many preferred the candidate."""
    return sum(one is True for one in answers)


def _ties(answers: Answers) -> frozenset[int]:
    return frozenset(place for place, one in enumerate(answers) if one is None)


MOST = 16
"""Questions about a version at most."""
OF_A_PROMPT = 3
"""Times that a prompt is asked about, if there are enough others."""


@dataclass(frozen=True, slots=True)
class Question:
    """The places of two answers to the same prompt, and how far the reader grades them apart (the candidate's less the live version's)."""

    candidate: int
    live: int
    apart: float


@dataclass(frozen=True, slots=True)
class ShownAnswers:
    """Both versions' answers that can be shown, to the same prompts in the same order, and the pairs of them that can be asked about."""

    prompts: Sequence[Sequence[Message]]
    candidate: Sequence[Completion]
    live: Sequence[Completion]
    questions: Sequence[Question] = ()


def matched(prompts: Sequence[str], candidate: Sequence[float], live: Sequence[float]) -> list[Question]:
    """All answers in pairs, by rank within their prompt. ``candidate``, ``live``: the reader's grades of the answers, place by place to the same prompts."""
    places: dict[str, list[int]] = {}
    for place, prompt in enumerate(prompts):
        places.setdefault(prompt, []).append(place)
    pairs = []
    for group in places.values():
        mine, others = sorted(group, key=candidate.__getitem__), sorted(group, key=live.__getitem__)
        pairs += [Question(i, j, candidate[i] - live[j]) for i, j in zip(mine, others, strict=True)]
    return pairs


def same(pair: Question, candidate: Sequence[str], live: Sequence[str]) -> bool:
    """Whether both answers read the same."""
    return text_key(candidate[pair.candidate]) == text_key(live[pair.live])


def informative(
    pairs: Sequence[Question], prompts: Sequence[str], candidate: Sequence[str], live: Sequence[str]
) -> list[Question]:
    """The pairs that can be asked about, in the order in which they are."""
    different = [pair for pair in pairs if not same(pair, candidate, live)]
    count = len({prompts[pair.candidate] for pair in different})
    most = max(OF_A_PROMPT, math.ceil(MOST / max(count, 1)))
    times: Counter[str] = Counter()
    chosen = []
    for pair in sorted(different, key=lambda pair: -abs(pair.apart)):
        prompt = prompts[pair.candidate]
        times[prompt] += 1
        if times[prompt] <= most:
            chosen.append(pair)
    return chosen


# ------------------------------------------------------------------------------------------------- in the store


def sessions(candidate: int, live: int = -1) -> str:
    """How the sessions of the gate's answers begin that are about these two versions (about the candidate, where no other is named)."""
    return f"{GATE}:{candidate}:" + (f"against:{live}:" if live >= 0 else "")


def put(
    store: Store,
    candidate: Version,
    live: Version,
    shown: ShownAnswers,
) -> None:
    """Store both answers of each pair, in random order; pairs that are there already stay as they are. Each answer is a conversation of its own."""
    order = random.Random(f"{candidate.number}:{live.number}")
    with store.together():
        for place, pair in enumerate(shown.questions):
            sides = [(candidate, shown.candidate[pair.candidate]), (live, shown.live[pair.live])]
            order.shuffle(sides)
            for side, (version, answer) in enumerate(sides):
                name = f"{sessions(candidate.number, live.number)}{place}:{side}"
                turn = Turn(
                    session=name,
                    messages=tuple(shown.prompts[pair.candidate]),
                    response=answer.text,
                    agent=GATE,
                    version=version.number,
                    event_id=name,
                    response_ids=answer.ids or None,
                    response_logprobs=answer.logprobs or None,
                    thinking=answer.thinking,
                    ending=answer.ending,
                )
                # Nobody has seen it yet: what is said of "the last answer" is not about it.
                store.add_turn(turn, seen_at=0.0)


def pairs(store: Store, candidate: int, live: int) -> list[tuple[Turn, Turn]]:
    """The pairs that were put there about two versions, in the order of asking."""
    there = {turn.session: turn for turn in store.turns_of(sessions(candidate, live))}
    places = sorted({int(name.split(":")[-2]) for name in there})
    both = [[there.get(f"{sessions(candidate, live)}{place}:{side}") for side in (0, 1)] for place in places]
    return [(first, second) for first, second in both if first and second]


def preferred(first: Turn, second: Turn, feedback: Sequence[Feedback]) -> Turn | None:
    """The turn of a pair that people prefer by their feedback on both: comparisons, or a better rating of one than of the other. None: nothing decides."""
    newest: dict[tuple[str, int], float] = {}
    ids = {first.id, second.id}
    for one in sorted(feedback, key=lambda f: f.moment):
        if _compares(one, first, second):
            newest[one.author, 0] = one.value if one.turn_id == first.id else -one.value
        elif one.kind == "rating" and one.turn_id in ids:
            newest[one.author, one.turn_id] = one.value if one.turn_id == first.id else -one.value
    rated = {author for author, turn in newest if turn}
    votes = [value for (_, turn), value in newest.items() if not turn]
    votes += [newest[a, first.id] + newest[a, second.id] for a in rated if {(a, first.id), (a, second.id)} <= newest.keys()]  # fmt: skip
    total = sum((vote > 0) - (vote < 0) for vote in votes)
    return None if total == 0 else first if total > 0 else second


def _compares(feedback: Feedback, first: Turn, second: Turn) -> bool:
    return feedback.kind == "preference" and {feedback.turn_id, feedback.other_turn_id} == {
        first.id,
        second.id,
    }


def _feedback_on(store: Store, first: Turn, second: Turn) -> list[Feedback]:
    found = {
        f.id: f for turn in (first, second) for f in store.feedback(turn_id=turn.id) if f.kind != "judge"
    }
    return list(found.values())


def is_settled(store: Store, first: Turn, second: Turn) -> bool:
    """Whether a pair need not be asked about: it is decided, or neither answer is better."""
    feedback = _feedback_on(store, first, second)
    return preferred(first, second, feedback) is not None or _equal(first, second, feedback)


def _equal(first: Turn, second: Turn, feedback: Sequence[Feedback]) -> bool:
    """Whether people have spoken of both answers, given that nothing decides between them: they called it a tie, or rated both alike."""
    compared = any(_compares(one, first, second) for one in feedback)
    return compared or {first.id, second.id} <= {one.turn_id for one in feedback}


def answers(store: Store, candidate: int, live: int) -> tuple[bool | None, ...]:
    """Whether the candidate's answer was preferred, for each pair that was answered, in the order of the answers; None where neither was."""
    found: list[tuple[int, bool | None]] = []
    for first, second in pairs(store, candidate, live):
        feedback = _feedback_on(store, first, second)
        better = preferred(first, second, feedback)
        if better is not None or _equal(first, second, feedback):
            found.append(
                (max(f.id for f in feedback), None if better is None else better.version == candidate)
            )
    return tuple(won for _, won in sorted(found, key=lambda one: one[0]))

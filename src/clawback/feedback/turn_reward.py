"""Turns with feedback as samples: one reward each, and the part of them that is held out for the gate.

The reward is in [-1, 1], the weighted mean of the parts; the breakdown is stored. A part's weight says how directly its kind speaks for the person:

    rating 1   preference ½   edit ½   environment reward 1   implicit ¼   judge: what it has earned (calibrate.py), ¼ at first

- Of several words of one person the newest counts, wherever it was said: a person may change their mind (``calibrate``). Persons are averaged.
- A score counts by what is usual for the person who gave it (``scales``).
- A preference is +½ for the better turn and -½ for the worse one: it says which, not how good either is.
- An edit says that the response was not right (-½) *and* gives one that is: a second sample with reward +1.
- A critique and a note have no number. A critique, and what an edit says should have been, are kept with the sample as hints for
  algorithms that read.
- Where several people rate, what one of them says weighs as much as they agree with the others (calibrate.py), and where it stands alone it is
  worth no more than that: ``Σ w v / max(Σ w, min(1, Σ w₀))``, w₀ the weights of the table for what was said outright. One person alone has weight 1.
- An implicit sign is a guess, and counts only where there is no feedback from a person or an environment. One about two turns (which of several
  answers the person went on with) counts as a preference does, at its own small weight.
- Where there is only feedback from judges and implicit signs the reward is ``Σ w v / max(1, Σ w)``: each is worth no more than its weight, what the person
  would say of such a turn on average. A judge of weight 0 makes no sample at all.

**Answers that were cut** (``records.CUT``) are learned as far as they go, without an end; such as something else than the model or the
person broke off (``records.UNLEARNED``) not at all. An edit of either is a complete answer.

**Late ratings.** With a ``credit`` c, a turn without feedback gets c times the reward of the next turn of its session, c² that of
the one after, up to the first turn with feedback: a rating at the end is also about the turns that led to it. Conversations of
fewer than ``min_turns`` main turns are left as they are.

**Held-out prompts.** A hash of the prompt's text decides, so it is settled before anybody rates an answer, and the same question asked again is on the same
side. Nothing that learns (a run of any algorithm, a reward model, a search for a prompt) draws on a kept prompt, so what the gate asks on
those is new to every version.
"""

from __future__ import annotations

import hashlib
import math
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from clawback.feedback import provenance
from clawback.feedback.calibrate import (
    PRIOR_WEIGHT,
    Middles,
    Reliability,
    agreed,
    centred,
    hints_of,
    reliability,
    standing,
)
from clawback.feedback.provenance import in_own_words
from clawback.records import BETTER, TEACHER, UNLEARNED, Feedback, Message, Part, Sample, Turn

if TYPE_CHECKING:
    from clawback.store import Store


WEIGHTS = {
    "rating": 1.0,
    "preference": 0.5,
    "edit": 0.5,
    "reward": 1.0,
    "judge": PRIOR_WEIGHT,
    "implicit": 0.25,
}
UNSAID = ("judge", "implicit")
"""Kinds of feedback that the person did not give: worth no more than their weight where they stand alone, and no evidence."""
PERSONAL = ("rating", "preference", "edit")
"""Kinds that somebody gave as they like it: weighed by how far that rater agrees with the others."""
PREFERENCE = 0.5
EDITED_AWAY = -0.5
EDITED_TO = 1.0
Weighing = Literal["agreement", "equal"]
LATELY = 500
"""Newest pieces of feedback that say, for what is shown, how far judges and people are to be trusted. (A run weighs by all that it learns from.)"""
SESSION_TURNS = 1000
"""Newest turns of a session that a late rating reaches."""


def reward(
    turn_id: int,
    opinions: Sequence[Feedback],
    judges: Mapping[str, Reliability] | None = None,
    raters: Mapping[str, float] | None = None,
    middles: Middles | None = None,
) -> tuple[float, tuple[Part, ...]]:
    """The reward of one turn and its make-up. No part with a number gives 0 and ``()``.

    ``judges``: how far each judge can be trusted (``judges(store)``); one that is not named has the weight of a new one.
    ``raters``: person → weight, in [0, 1]; one that is not named has 1.
    ``middles``: what is usual for each person (``store.middles()``); without it scores count from the middle of their scale.
    """
    kept = [f for f in standing(centred(opinions, middles or {})) if f.kind in WEIGHTS and not is_tie(f)]
    if any(f.kind not in UNSAID for f in kept):
        kept = [f for f in kept if f.kind != "implicit"]
    parts = tuple(
        Part(f.id, f.kind, _value(turn_id, f), _weight(f, judges or {}, raters or {})) for f in kept
    )
    return (_mean(parts), parts) if any(p.weight for p in parts) else (0.0, ())


def is_tie(feedback: Feedback) -> bool:
    """Whether somebody compared two turns and found neither better: that says nothing of either."""
    return feedback.kind == "preference" and feedback.value == 0


def _mean(parts: Sequence[Part]) -> float:
    """The weighted mean; who is trusted less than in full is worth no more than their weight where they stand alone."""
    said = [WEIGHTS[p.kind] for p in parts if p.kind not in UNSAID]
    least = min(1.0, sum(said)) if said else 1.0
    return sum(p.value * p.weight for p in parts) / max(sum(p.weight for p in parts), least)


def _weight(opinion: Feedback, judges: Mapping[str, Reliability], raters: Mapping[str, float]) -> float:
    if opinion.kind == "judge" and opinion.source in judges:
        return judges[opinion.source].weight
    return WEIGHTS[opinion.kind] * (raters.get(opinion.author, 1.0) if opinion.kind in PERSONAL else 1.0)


def _value(turn_id: int, opinion: Feedback) -> float:
    if opinion.kind == "preference" or (opinion.kind == "implicit" and opinion.other_turn_id is not None):
        return PREFERENCE if opinion.turn_id == turn_id else -PREFERENCE
    return EDITED_AWAY if opinion.kind == "edit" else opinion.value


@dataclass(frozen=True, slots=True)
class SampleQuery:
    """Which feedback becomes samples, and how far back in a session a reward goes."""

    words: bool = False
    """Also turns of which something was said in words alone (``Sample.rated`` is then False)."""
    newest: int | None = None
    """Only the newest so many pieces that were said outright; None: all. Without effect where feedback is named by its ids."""
    credit: float = 0.0
    """Share of a reward that goes on to the unrated turn before it in its session, 0 … 1."""
    min_turns: int = 1
    """Main turns that a session must have for that."""
    until: float = math.inf
    """What was captured later is not looked at for that: a run that goes on sees the sessions that it began with."""


ALL = SampleQuery()


def samples(
    store: Store,
    feedback_ids: Iterable[int] | None = None,
    query: SampleQuery = ALL,
    *,
    judges: Mapping[str, Reliability] | None = None,
    raters: Mapping[str, float] | Weighing = "agreement",
    middles: Middles | None = None,
) -> list[Sample]:
    """Turns with feedback, ready to train on, oldest first; a turn with an edit gives a second sample, the edit.

    Args:
        feedback_ids: narrows to that feedback, and judges and raters are then weighed by it alone: a run that goes on after an interruption sees the
            same rewards whatever was said meanwhile, and nothing that was kept for the gate has a say in training. Turns of
            kind ``side`` are never trained on.
        query: what else counts.
        judges: weighs them otherwise.
        raters: person → weight of what people rate; else ``agreement`` compares them with each other, and to ``equal`` all are the same.
        middles: what is usual for each person's scores; else these scores say it.
    """
    if feedback_ids is not None:
        read = store.feedback(ids=set(feedback_ids))
    else:
        read = store.feedback(newest=query.newest, outright=None if query.newest is None else True)
    by_turn = _by_turn(centred(read, middles))
    if judges is None:
        judges = _reliability(by_turn)
    if isinstance(raters, str):
        weighed = (f for said in by_turn.values() for f in said)
        raters = agreed(weighed) if raters == "agreement" else {}
    ready, seen = [], provenance.as_seen_now(store)
    for turn_id, turn in store.turns_by_id(by_turn).items():
        if turn.trainable:
            ready += _samples_of(seen(turn), by_turn[turn_id], judges, raters, query.words)
    if query.credit > 0:
        ready += _credited(store, ready, query)
    return sorted(ready, key=lambda s: s.turn_id)


def evidence(samples: Iterable[Sample]) -> list[Sample]:
    """The samples as people and the environment speak of them: what was not said outright taken out, and samples that had no other.

    What decides whether a version goes live must not come from a model. Nor from answers that were cut: a rating of one is no
    word about how long an answer is, or how it ends.
    """
    made = []
    for sample in samples:
        if sample.cut:
            continue
        parts = tuple(p for p in sample.parts if p.kind not in UNSAID)
        if len(parts) == len(sample.parts):
            made.append(sample)
        elif parts:
            made.append(replace(sample, reward=_mean(parts), parts=parts))
    return made


def judges(store: Store, opinions: Iterable[Feedback] | None = None) -> dict[str, Reliability]:
    """Judge (its ``source``) → how it stands beside the person. ``opinions``: only where one of these is a judge's, else ``{}``
    at no cost."""
    if opinions is not None and not any(f.kind == "judge" for f in opinions):
        return {}
    return _reliability(_by_turn(centred(_lately(store))))


def rater_weights(store: Store, setting: Weighing = "agreement") -> dict[str, float]:
    """Person → weight of what they rate, as people agreed lately, for those who can be compared with others; ``{}`` where one person rates alone."""
    return agreed(store.feedback(newest=LATELY, outright=True)) if setting == "agreement" else {}


def _lately(store: Store) -> list[Feedback]:
    """The newest votes of judges, and all that was said of the same turns."""
    votes = store.feedback(newest=LATELY, outright=False)
    turns = {f.turn_id for f in votes if f.kind == "judge"}
    said = (f for f in store.feedback(newest=LATELY, outright=True) if f.turn_id in turns)
    return sorted([*votes, *said], key=lambda f: f.id)


def _by_turn(opinions: Iterable[Feedback]) -> dict[int, list[Feedback]]:
    by_turn: dict[int, list[Feedback]] = {}
    for given in opinions:
        for turn_id in (given.turn_id, given.other_turn_id):
            if turn_id is not None:
                by_turn.setdefault(turn_id, []).append(given)
    return by_turn


def _reliability(by_turn: Mapping[int, list[Feedback]]) -> dict[str, Reliability]:
    votes = [f for said in by_turn.values() for f in said if f.kind == "judge"]
    if not votes:
        return {}
    own = {t: reward(t, [f for f in by_turn[t] if f.kind != "judge"])[0] for t in {v.turn_id for v in votes}}
    return reliability(own, votes)


def hints(opinions: Sequence[Feedback]) -> tuple[str, ...]:
    """What would have made the response better, in words: the person's critiques, what judges read out of what came back,
    and the newest edit."""
    edits = [f.text.strip() for f in sorted(opinions, key=lambda f: f.moment) if f.kind == "edit"]
    return (*hints_of(opinions), *(f"{BETTER}\n{text}" for text in edits[-1:]))


def _samples_of(
    turn: Turn,
    opinions: list[Feedback],
    judges: Mapping[str, Reliability],
    raters: Mapping[str, float],
    words: bool,
) -> list[Sample]:
    value, parts = reward(turn.id, opinions, judges, raters)
    read = hints(opinions)
    foreign = tuple(h for h in read if h not in hints([f for f in opinions if in_own_words(f)]))
    made = []
    if (parts or (words and read)) and turn.ending not in UNLEARNED:
        made.append(
            Sample(
                turn.id,
                turn.messages,
                turn.response,
                value,
                parts,
                turn.response_ids,
                turn.response_logprobs,
                read,
                ending=turn.ending,
                foreign_hints=foreign,
                model=turn.model,
                version=turn.version,
                has_calls=bool(turn.calls),
            )
        )
    edits = [f for f in opinions if f.kind == "edit"]
    if edits:
        last = max(edits, key=lambda f: f.moment)
        part = Part(last.id, "edit", EDITED_TO, 1.0)
        writer = last.source.removeprefix(TEACHER) if last.source.startswith(TEACHER) else ""
        made.append(Sample(turn.id, turn.messages, last.text, EDITED_TO, (part,), model=writer, edited=True))
    return made


def _credited(store: Store, samples: list[Sample], query: SampleQuery) -> list[Sample]:
    """Samples of unrated turns that led to rated ones."""
    own: dict[int, Sample] = {}
    seen = provenance.as_seen_now(store)
    for sample in samples:
        own.setdefault(sample.turn_id, sample)  # the turn itself, not what an edit made of it
    sessions = dict.fromkeys(store.turn(turn_id).session for turn_id in own)
    found = []
    for session in sessions:
        turns = store.turns(limit=SESSION_TURNS, session=session, kind="main")  # newest first
        turns = [seen(turn) for turn in turns if turn.created_at <= query.until and turn.trainable]
        if len(turns) < query.min_turns:
            continue
        ahead: Sample | None = None
        distance = 0
        for turn in turns:
            if turn.id in own:
                ahead, distance = own[turn.id], 0
                continue
            distance += 1
            learned = turn.response and turn.ending not in UNLEARNED
            if ahead is not None and ahead.rated and learned:
                share = query.credit**distance
                parts = tuple(Part(p.feedback_id, p.kind, p.value * share, p.weight) for p in ahead.parts)
                found.append(
                    Sample(
                        turn.id,
                        turn.messages,
                        turn.response,
                        ahead.reward * share,
                        parts,
                        turn.response_ids,
                        turn.response_logprobs,
                        ending=turn.ending,
                        model=turn.model,
                        version=turn.version,
                        has_calls=bool(turn.calls),
                    )
                )
    return found


GOLDEN = (5**0.5 - 1) / 2
SALT = b"kept prompts"
"""Of the hash. Never to be changed: prompts would change sides."""
SMALLEST = "smallest_held_out"
"""Where the store keeps the smallest share that a run has used: what was outside of it may have been learned from."""


def prompt_key(messages: Sequence[Message]) -> str:
    """What a conversation asks, as the hash reads it: case, spaces and ways to write the same character do not count. "" where nothing is asked in words."""
    return text_key(Turn("", tuple(messages), "").prompt)


def text_key(prompt: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", prompt).casefold().split())


def keeps(key: str, share: float) -> bool:
    """Whether the hash keeps this prompt (``prompt_key``) for the gate, if it keeps ``share`` of all."""
    digest = hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8, person=SALT).digest()
    return bool(key) and int.from_bytes(digest) < share * 2.0**64


def split(
    samples: Sequence[Sample], held_out: float, splits: Mapping[int, str] | None = None
) -> tuple[list[Sample], list[Sample]]:
    """``(train, held)``: those of about a share ``held_out`` of the prompts are held back; see ``kept_out``."""
    kept = kept_out(samples, held_out, splits)
    return [s for s in samples if s.turn_id not in kept], [s for s in samples if s.turn_id in kept]


def kept_out(samples: Sequence[Sample], held_out: float, splits: Mapping[int, str] | None = None) -> set[int]:
    """The turns that are kept for the gate.

    A turn's prompt alone decides (``keeps``); where it asks nothing in words, its number does (``chosen``). So all that learns leaves out
    the same turns, whenever it asks and whatever else is rated by then. ``splits`` says where turns were in earlier runs
    (``Store.splits()``) and outweighs that: a turn that was held back once is never trained on later, nor the other way round.

    Turns that ask the same stay together, and so do turns that a preference compares, for what it says of one it says of the other. Such
    a group is kept if any of its prompts is; where one of its turns was trained on before, the others are not kept any more.
    Turns that judges alone have spoken about are no evidence: they are kept back only if their prompt is.
    """
    splits = splits or {}
    rated = {sample.turn_id for sample in evidence(samples)}
    groups: dict[int, list[int]] = {}
    for turn, first in _linked(samples).items():
        groups.setdefault(first, []).append(turn)
    keys = {sample.turn_id: prompt_key(sample.messages) for sample in samples}
    kept = {turn for turn, where in splits.items() if where == "held_out"}
    for turns in groups.values():
        known = {splits[turn] for turn in turns if turn in splits}
        asked = [keys[turn] for turn in turns if keys[turn]]
        if known:
            held = "train" not in known
        elif asked:
            held = any(keeps(key, held_out) for key in asked)
        else:
            held = chosen(min(turns), held_out)
        if held:
            kept.update(turn for turn in turns if turn not in splits and (turn in rated or keys[turn]))
    return kept


def chosen(turn_id: int, share: float) -> bool:
    """Whether a turn without a prompt is among the ``share`` of all that is held back.

    A Weyl sequence: the multiples of the golden ratio, modulo 1, fill [0, 1) more evenly than random numbers do (Kuipers &
    Niederreiter 1974, Uniform distribution of sequences, ch. 2), so any 32 turns in a row hold back three to five where an eighth is asked for.
    """
    return turn_id * GOLDEN % 1.0 < share


def learned_prompts(store: Store) -> set[str]:
    """Keys of the prompts that some run has learned from, whatever became of the run."""
    return {prompt_key(turn.messages) for turn in store.turns_by_id(store.learned_turns()).values()} - {""}


def note_share(store: Store, share: float) -> None:
    """Enter that a run has left out this share of the prompts."""
    if share < store.get(SMALLEST, 1.0):
        store.set(SMALLEST, share)


def kept_turns(store: Store, turns: Iterable[Turn], share: float) -> list[Turn]:
    """Of these turns, those whose prompts no run has drawn on or learned from."""
    learned, least = learned_prompts(store), min(share, store.get(SMALLEST, 1.0))
    keyed = ((turn, prompt_key(turn.messages)) for turn in turns)
    return [turn for turn, key in keyed if keeps(key, least) and key not in learned]


def _linked(samples: Sequence[Sample]) -> dict[int, int]:
    """Turn → the first turn of its group: turns that share a prompt or a piece of feedback (a preference) are one group."""
    group = {sample.turn_id: sample.turn_id for sample in samples}

    def first(turn: int) -> int:
        while group[turn] != turn:
            group[turn] = group[group[turn]]
            turn = group[turn]
        return turn

    seen: dict[int | str, int] = {}
    for sample in samples:
        key = prompt_key(sample.messages)
        for mark in ([key] if key else []) + [part.feedback_id for part in sample.parts]:
            one, other = first(sample.turn_id), first(seen.setdefault(mark, sample.turn_id))
            group[max(one, other)] = min(one, other)
    return {turn: first(turn) for turn in group}

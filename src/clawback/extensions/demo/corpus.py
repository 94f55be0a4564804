"""The training text of the embedded model: dialogues generated from templates, the same for the same seed.

Each answer has a *style*, one independent choice per axis, and states some facts of its topic. Most styles
are drawn at random, so that the model has every style in its repertoire about half the time; in a share of
the dialogues a hint asks for some of the choices and the answer obeys, so that the model follows
instructions.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace

from clawback.extensions.demo.facts import BY_NAME, TOPICS, Topic, readers

Dialogue = list[dict[str, str]]

HELD_OUT_EVERY = 4
"""Every fourth topic is kept for evaluation: nobody rates answers about it."""


@dataclass(frozen=True, slots=True)
class Style:
    """One choice an axis; each can be seen at a glance."""

    terse: bool
    bullets: bool
    formal: bool
    apology: bool
    emoji: bool
    question: bool
    imperial: bool
    caveat: bool


BASE_RATES = {"apology": 0.4}
"""How often an axis is true in the text, where that is not half the time."""

HINTS: dict[tuple[str, bool], tuple[str, ...]] = {
    ("terse", True): ("Be brief.", "Keep it short.", "A short answer, please."),
    ("terse", False): ("Give me plenty of detail.", "A long answer, please.", "Tell me everything."),
    ("bullets", True): ("Use bullet points.", "As a list, please.", "Format it as bullets."),
    ("bullets", False): ("Write full sentences.", "No bullet points.", "Use prose, please."),
    ("formal", True): ("Be formal.", "Use a formal tone.", "Keep it professional."),
    ("formal", False): ("Be casual.", "Talk like a friend.", "Keep it relaxed."),
    ("apology", True): ("Apologize first.", "Say sorry first."),
    ("apology", False): ("Do not apologize.", "No apologies.", "Never say sorry."),
    ("emoji", True): ("Use an emoji.", "Add an emoji, please."),
    ("emoji", False): ("No emoji.", "Leave out emoji, please."),
    ("question", True): ("End with a question.", "Ask me something at the end."),
    ("question", False): ("Do not ask me anything.", "No question at the end."),
    ("imperial", True): ("Use imperial units.", "In American units, please."),
    ("imperial", False): ("Use metric units.", "In metric, please."),
    ("caveat", True): ("Mention that figures vary.", "Add a caution."),
    ("caveat", False): ("No caveats.", "Leave out any caution."),
}
ASKING = {
    "animal": ("Tell me about the {n}.", "What should I know about the {n}?", "Describe the {n} for me.",
               "Can you explain what the {n} is?", "I want to learn about the {n}."),
    "city": ("Tell me about {n}.", "What should I know about {n}?", "Describe {n} for me.",
             "I am going to {n}. What is it like?", "I want to learn about {n}."),
    "food": ("Tell me about the {n}.", "What should I know about the {n}?", "Describe the {n} for me.",
             "What kind of thing is the {n}?", "I want to learn about the {n}."),
    "task": ("How do I {n}?", "Tell me how to {n}.", "Explain how to {n}.",
             "What is the best way to {n}?", "I want to {n}."),
}  # fmt: skip
OPENINGS = {True: ("Certainly.", "Of course."), False: ("Sure thing!", "No problem!")}
APOLOGIES = {True: "I apologize for the delay.", False: "Sorry for the wait!"}
CAVEATS = {True: "Please note that figures vary.", False: "Careful, figures vary a lot."}
QUESTIONS = {True: "Would you like to know more?", False: "Want to hear more?"}
EMOJI = ("🙂", "🎉", "👍", "🌟")
SMALL_TALK = (
    (("Hello!", "Hi there.", "Good morning.", "Hey."), "Hello. What would you like to know?"),
    (("Thank you!", "Thanks a lot.", "Great, thanks."), "You are welcome."),
    (("Who are you?", "What are you?", "What can you do?"), "I am a small model that knows animals, cities, food and simple tasks."),
    (("How are you?", "How is it going?"), "I am well, thank you."),
    (("Goodbye.", "Bye!", "See you."), "Goodbye."),
)  # fmt: skip
TERSE_FACTS, FULL_FACTS = 2, 5


@dataclass(frozen=True, slots=True)
class TopicPrompt:
    """Something to ask, and the topic that the answer should be about."""

    text: str
    topic: str

    @property
    def messages(self) -> Dialogue:
        return [{"role": "user", "content": self.text}]


@dataclass(frozen=True, slots=True)
class FactCheck:
    """How many facts an answer states and how many of them are as in the table."""

    stated: int
    right: int


def topics(split: str) -> list[Topic]:
    """Disjoint: ``rated`` topics are for ratings, ``held_out`` ones for evaluation. The model has read about both."""
    held = [t for i, t in enumerate(TOPICS) if i % HELD_OUT_EVERY == HELD_OUT_EVERY - 1]
    return held if split == "held_out" else [t for t in TOPICS if t not in held]


def prompts(split: str, n: int, seed: int) -> list[TopicPrompt]:
    """``n`` prompts about the topics of a split, each (topic, wording) once before any comes again."""
    every = [(t, form) for t in topics(split) for form in ASKING[t.kind]]
    rng = random.Random(f"prompts {split} {seed}")
    order: list[tuple[Topic, str]] = []
    while len(order) < n:
        order += rng.sample(every, len(every))
    return [TopicPrompt(form.format(n=topic.name), topic.name) for topic, form in order[:n]]


def check_facts(prompt: TopicPrompt, response: str) -> FactCheck:
    """Find every fact that the response states about the topic of the prompt and compare it with the table."""
    topic = BY_NAME[prompt.topic]
    stated = right = 0
    for form, pattern in readers(topic.kind):
        for found in pattern.finditer(response):
            value = next(g for g in found.groups() if g is not None).strip()
            stated += 1
            right += value in (topic.in_words(form, False), topic.in_words(form, True))
    return FactCheck(stated, right)


def neutral_text(n: int, seed: int) -> list[Dialogue]:
    """Dialogues about held-out topics in random styles, without hints: text whose perplexity no taste should raise."""
    rng = random.Random(f"neutral {seed}")
    asked = prompts("held_out", n, seed)
    return [[*p.messages, _reply(answer(BY_NAME[p.topic], random_style(rng), rng))] for p in asked]


def dialogues(n: int, seed: int) -> Iterator[Dialogue]:
    """The training text: about 60 % plain, 30 % with hints, the rest two turns and small talk."""
    rng = random.Random(f"dialogues {seed}")
    for _ in range(n):
        dice = rng.random()
        if dice < 0.03:
            asked, said = rng.choice(SMALL_TALK)
            yield [{"role": "user", "content": rng.choice(asked)}, _reply(said)]
            continue
        topic = rng.choice(TOPICS)
        first = {"role": "user", "content": rng.choice(ASKING[topic.kind]).format(n=topic.name)}
        style = random_style(rng)
        if dice < 0.60:
            yield [first, _reply(answer(topic, style, rng))]
        elif dice < 0.92:
            yield _hinted(topic, first, style, rng)
        else:
            yield _corrected(topic, first, style, rng)


def random_style(rng: random.Random) -> Style:
    return Style(**{f.name: rng.random() < BASE_RATES.get(f.name, 0.5) for f in fields(Style)})


def _hinted(topic: Topic, first: dict[str, str], style: Style, rng: random.Random) -> Dialogue:
    """One to three hints, in the system message or after the question, which the answer obeys."""
    names = rng.sample([f.name for f in fields(Style)], rng.choice((1, 1, 2, 3)))
    hint = " ".join(rng.choice(HINTS[name, getattr(style, name)]) for name in names)
    reply = _reply(answer(topic, style, rng))
    if rng.random() < 0.5:
        return [{"role": "system", "content": hint}, first, reply]
    return [{"role": "user", "content": f"{first['content']} {hint}"}, reply]


def _corrected(topic: Topic, first: dict[str, str], style: Style, rng: random.Random) -> Dialogue:
    """The person asks for one change, and the second answer is the first one with it."""
    name = rng.choice([f.name for f in fields(Style)])
    other = replace(style, **{name: not getattr(style, name)})
    hint = rng.choice(HINTS[name, getattr(other, name)])
    second = _reply(answer(topic, other, rng))
    return [first, _reply(answer(topic, style, rng)), {"role": "user", "content": hint}, second]


def answer(topic: Topic, style: Style, rng: random.Random) -> str:
    """The answer about a topic in a style. The first fact is always a measure or a step, so that units show."""
    count = TERSE_FACTS if style.terse else FULL_FACTS
    forms = topic.forms
    first = next(f for f in forms if f.unit)
    others = [f for f in forms if f is not first]
    chosen = {first.key, *(f.key for f in rng.sample(others, count - 1))}
    said = [(f, topic.in_words(f, style.imperial)) for f in forms if f.key in chosen]
    parts = [APOLOGIES[style.formal]] if style.apology else []
    parts.append(rng.choice(OPENINGS[style.formal]))
    lead = " ".join(parts)
    if style.bullets:
        body = "\n" + "\n".join(f"- {f.label}: {v}" for f, v in said) + "\n"
    else:
        body = " " + " ".join((f.formal if style.formal else f.casual).format(v=v) for f, v in said) + " "
    end = [CAVEATS[style.formal]] if style.caveat else []
    end += [QUESTIONS[style.formal]] if style.question else []
    end += [rng.choice(EMOJI)] if style.emoji else []
    return (lead + body + " ".join(end)).strip()


def _reply(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}

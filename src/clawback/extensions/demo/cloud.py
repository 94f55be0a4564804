"""A simulated cloud model for the demo without a network, and a simulated person who rates its answers.

The model is never trained: its answers depend on what its system prompt asks for. It knows a few dozen
wordings of six wishes (be brief, a list, no emoji, …). Where its prompt has none of them, the hash of the
question decides: longer or shorter, with or without. A wish is followed 19 times in 20, so no prompt is
perfect.
"""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from clawback.extensions.demo.played_model import PlayedModel
from clawback.records import Message, text_of

FOLLOWS = 0.95
MODEL = "cloud-model"
_WISHES: dict[str, tuple[str, str]] = {
    # wish → wordings for it, wordings against it
    "brief": (r"\b(?:brief|briefly|short|shorter|concise|terse|two short sentences|to the point)\b|\btoo long\b", r"\b(?:in detail|thorough\w*|detailed|too short)\b"),
    "list": (r"\b(?:bullet\w*|bulleted list|as a list)\b", r"\b(?:plain paragraphs|without lists|no lists?)\b"),
    "emoji": (r"\b(?:use|with|add) (?:a |an |some )?(?:fitting )?emoji", r"\b(?:no|without|avoid) emoji"),
    "greeting": (r"\b(?:begin with a friendly|friendly word|greet)", r"\b(?:without any opener|no (?:opener|greeting|preamble|pleasantr)\w*|answer at once|at once)\b"),
    "question": (r"\bend with a question\b", r"\b(?:do not|don't|never) end with a question|\bno questions?\b"),
    "hedge": (r"\bsay what is uncertain\b|\bcaveats? (?:are|is) fine", r"\b(?:be definite|no may, might|no caveats?|without caveats?|no hedging)\b"),
}  # fmt: skip
_USUAL = {"brief": 0.3, "list": 0.3, "emoji": 0.45, "greeting": 0.5, "question": 0.4, "hedge": 0.4}
_KNOWN = {name: tuple(re.compile(w, re.IGNORECASE) for w in words) for name, words in _WISHES.items()}
_SENTENCES = (
    "The main thing about {topic} is to begin with what you have.",
    "Most people find {topic} easier on the second try.",
    "It takes about {n} minutes the first time.",
    "Keep an eye on {topic} while you do something else.",
    "What matters most is not to hurry.",
    "Afterwards, put everything back where it was.",
    "A good habit is to write down what worked.",
    "There are other ways, and they come to the same.",
)
_HEDGES = ("It may depend on where you are.", "Perhaps somebody else would say otherwise.")
_EMOJI = ("🙂", "👍", "✨", "🎉")


def wanted(system: str, rng: random.Random) -> dict[str, bool]:
    """The properties of an answer under this system prompt."""
    made = {}
    for name, (more, less) in _KNOWN.items():
        usual = rng.random() < _USUAL[name]
        asked = True if more.search(system) else None
        asked = False if less.search(system) else asked
        follows = rng.random() < FOLLOWS
        made[name] = usual if asked is None or not follows else asked
    return made


def answer(messages: Sequence[Message]) -> str:
    """The same conversation gets the same answer."""
    system = "\n".join(
        text_of(m.get("content")) for m in messages if m.get("role") in ("system", "developer")
    )
    asked = next((text_of(m.get("content")) for m in reversed(messages) if m.get("role") == "user"), "")
    rng = random.Random(hashlib.sha256(asked.encode()).digest())
    like = wanted(system, rng)
    topic = _topic(asked)
    chosen = rng.sample(_SENTENCES, 2 if like["brief"] else rng.randint(4, 6))
    said = [one.format(topic=topic, n=rng.randint(2, 40)) for one in chosen]
    if like["hedge"]:
        said.append(rng.choice(_HEDGES))
    if like["question"]:
        said.append(f"Would you like to know more about {topic}?")
    if like["emoji"]:
        said[-1] = f"{said[-1]} {rng.choice(_EMOJI)}"
    opener = (
        rng.choice(("Great question! ", "Sure, happy to help! ", "Of course! ")) if like["greeting"] else ""
    )
    return opener.strip() + "\n" * bool(opener) + "\n".join(f"- {s}" for s in said) if like["list"] else opener + " ".join(said)  # fmt: skip


_ASKED = (
    "How do I take care of {}?", "What should I know about {}?", "Is there a quick way to deal with {}?", "How much time does {} take?",
    "What goes wrong most often with {}?", "Where do I begin with {}?", "How do other people handle {}?", "What do I need for {}?",
)  # fmt: skip
_TOPICS = (
    "bread", "a bicycle", "tomatoes", "a garden", "the oven", "an old laptop", "house plants", "a guitar", "running shoes", "a tent", "the garage",
    "sourdough", "a wooden table", "taxes", "a birthday party", "an aquarium", "winter tyres", "a rain barrel", "photographs", "a leather jacket",
    "morning exercise", "a chess club", "balcony herbs", "a moving day",
)  # fmt: skip


def questions(seed: int) -> list[str]:
    """192 questions in an order of this seed's."""
    made = [asked.format(topic) for topic in _TOPICS for asked in _ASKED]
    random.Random(f"cloud {seed}").shuffle(made)
    return made


def _topic(question: str) -> str:
    words = [w for w in re.findall(r"[a-z]+", question.lower()) if len(w) > 4]
    return words[-1] if words else "it"


@dataclass(frozen=True, slots=True)
class CloudTaste:
    """Somebody who likes answers of a certain kind, and now and then says what is wrong with another. ``noise``: share of wrong taps."""

    name: str
    brief: bool | None = None
    emoji: bool | None = None
    greeting: bool | None = None
    question: bool | None = None
    bullets: bool | None = None
    says: Mapping[str, str] | None = None

    def wrong(self, text: str) -> list[str]:
        """What they dislike about an answer, by name."""
        words = len(text.split())
        is_ = {
            "brief": words <= 34,
            "emoji": any(e in text for e in _EMOJI),
            "greeting": text.startswith(("Great", "Sure", "Of course")),
            "question": "Would you like" in text,
            "bullets": "\n- " in f"\n{text}",
        }
        return [name for name, value in is_.items() if getattr(self, name) not in (None, value)]

    def fits(self, text: str) -> bool:
        return not self.wrong(text)

    def remark(self, text: str) -> str:
        """Their words about an answer that they dislike; "" where they like it or have none."""
        found = [self.says[name] for name in self.wrong(text) if self.says and name in self.says]
        return found[0] if found else ""


TASTES = {
    taste.name: taste
    for taste in (
        CloudTaste("brief, no emoji", brief=True, emoji=False, says={"brief": "Too long.", "emoji": "No emoji, please."}),
        CloudTaste("bullets, no opener", bullets=True, greeting=False, says={"bullets": "Use bullet points.", "greeting": "Skip the greeting."}),
        CloudTaste("brief, no question back", brief=True, question=False, says={"brief": "Shorter, please.", "question": "Don't ask me a question at the end."}),
    )
}  # fmt: skip


class Cloud(PlayedModel):
    """The model on a port of loopback."""

    def __init__(self) -> None:
        super().__init__(answer, MODEL)

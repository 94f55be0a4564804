"""Better prompts without a model: a remark like "too long" becomes a sentence that asks for the opposite.

For models that are too small to reflect (below some 7 B), and where nothing may be sent anywhere. Known
remarks are parsed by ``features.style_features`` and phrased by ``rewards.instructions``; an unknown one is used as
it stands. Without any remarks the sentences are tried one after the other: the race finds out which of them
matches a taste.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

from clawback.errors import UsageError
from clawback.features.style_features import SAYS, wishes
from clawback.prompts import prompt as parts
from clawback.prompts.backends import NOTHING
from clawback.prompts.prompt import Prompt, alike, rules
from clawback.prompts.search_types import Proposal, ProposalRequest
from clawback.rewards.instructions import LONGEST_REMARK, SENTENCES

TONE = frozenset(
    {"emoji", "asks back", "exclaims", "casual", "formal", "apology", "hedge", "greeting", "you", "I"}
)
FORMAT = frozenset({"list", "markup", "order"})
_OPPOSITES = ({"casual", "formal"}, {"metric", "imperial"})
_STANDS_FOR = {"sentences": "words", "items": "words"}
"""Features that say the same as another in a sentence."""


def from_remarks(request: ProposalRequest) -> Proposal:
    """The wish that was made most often and is not in the prompt yet, as a sentence in its section. Costs nothing."""
    for feature, more in _wished(request):
        made = with_wish(request.prompt, feature, more, request.lost)
        if made is not None:
            return Proposal(made, NOTHING)
    for remark in _unknown(request):
        if not _says_already(request.prompt, remark, request.lost):
            sections = parts.with_rule(request.prompt.sections, "constraints", remark)
            return Proposal(request.prompt.with_sections(sections, author="template", reason=remark), NOTHING)
    return _any(request)


def with_wish(prompt: Prompt, feature: str, more: bool, lost: tuple[str, ...] = ()) -> Prompt | None:
    """With the sentence for more (or less) of a style feature, in the place of the opposite one. None where it is said or was lost."""
    section, line = sentence(feature, more)
    if _says_already(prompt, line, lost):
        return None
    sections = prompt.sections
    for against in _against(feature, more):
        place, other = sentence(*against)
        sections = parts.without_rule(sections, place, other)
    made = prompt.with_sections(parts.with_rule(sections, section, line), author="template", reason=f"{'more' if more else 'less'} {feature}")  # fmt: skip
    return made if made.id != prompt.id else None


def sentence(feature: str, more: bool) -> tuple[str, str]:
    """The section and the line that ask for more or less of a feature (or for a text that is quoted). Raises ``UsageError``."""
    if feature.startswith(SAYS):
        phrase = feature.removeprefix(SAYS)
        return "constraints", f'Say "{phrase}".' if more else f'Do not say "{phrase}".'
    feature = _STANDS_FOR.get(feature, feature)
    if feature not in SENTENCES:
        raise UsageError(f"There is no sentence for {feature!r}. There is one for: {', '.join(SENTENCES)}.")
    section = "tone" if feature in TONE else "format" if feature in FORMAT else "constraints"
    return section, SENTENCES[feature][0 if more else 1]


def sentences_of(hint: str) -> list[tuple[str, bool]]:
    """(feature, more) of each wish in a text that there is a sentence for."""
    found = []
    for wish in wishes(hint):
        named = [(name, more) for name, more in wish.items() if name in SENTENCES or name.startswith(SAYS)]
        found.extend(named[:1])
    return found


def _against(feature: str, more: bool) -> Iterator[tuple[str, bool]]:
    yield feature, not more
    for pair in _OPPOSITES:
        if feature in pair and more:
            yield from ((other, True) for other in pair - {feature})


def _wished(request: ProposalRequest) -> list[tuple[str, bool]]:
    """What remarks wish for, most often wished first; of what one remark may mean the first that can be said."""
    votes: Counter[tuple[str, bool]] = Counter()
    for text in _words(request):
        for wish in wishes(text):
            named = [
                (name, more) for name, more in wish.items() if name in SENTENCES or name.startswith(SAYS)
            ]
            if named:
                votes[named[0]] += 1
    return [wish for wish, _ in votes.most_common()]


def _unknown(request: ProposalRequest) -> list[str]:
    """Short remarks that no known wish was found in, once each, newest first."""
    said = [text.strip() for text in _words(request)]
    return [t for t in dict.fromkeys(reversed(said)) if t and len(t) <= LONGEST_REMARK and "\n" not in t and not wishes(t)]  # fmt: skip


def _words(request: ProposalRequest) -> list[str]:
    said = [text for case in request.cases for text in (*case.example.remarks, case.outcome.feedback) if text]
    return [*said, *request.remarks]


def _says_already(prompt: Prompt, line: str, lost: tuple[str, ...]) -> bool:
    return any(alike(line, had) for _, had in rules(prompt)) or line in lost


def _any(request: ProposalRequest) -> Proposal:
    """One of the known sentences at random, where nobody said anything that helps."""
    rng = random.Random(f"{request.prompt.id}:{request.number}")
    every = [(feature, more) for feature in SENTENCES for more in (True, False)]
    rng.shuffle(every)
    for feature, more in every:
        made = with_wish(request.prompt, feature, more, request.lost)
        if made is not None:
            return Proposal(made, NOTHING)
    return Proposal(None, NOTHING, "every sentence that there is was tried")

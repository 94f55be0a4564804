"""Sentences that ask for something that code can see, with a truth that is written apart from the product, and sentences that only look like one.

They were written before ``clawback.rules`` could read any of them. ``Wish.other`` are kept apart: the parser was never changed to read one of them.
A truth uses string methods alone, and shares neither a pattern nor a word list with the product.
"""

from __future__ import annotations

import string
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass

Truth = Callable[[str], bool | None]
"""Answer → whether it keeps the wish; None where that cannot be said."""


@dataclass(frozen=True)
class Wish:
    """One wish: what people say for it, and its truth."""

    name: str
    truth: Truth
    said: tuple[str, ...]
    """Sentences that the parser may be written for."""
    other: tuple[str, ...]
    """The same wish, kept apart."""


def _prose(text: str) -> str:
    """The text without fenced code."""
    return "\n".join(piece for place, piece in enumerate(text.split("```")) if place % 2 == 0)


def _plain(word: str) -> str:
    return word.strip(string.punctuation + "“”‘’…—–•").casefold()


def _words(text: str) -> list[str]:
    return [
        word for word in map(_plain, _prose(text).replace("—", " ").split()) if any(map(str.isalnum, word))
    ]


def _lines(text: str) -> list[str]:
    return [line.strip() for line in _prose(text).splitlines() if line.strip()]


def _numbered(line: str) -> bool:
    head, sep, rest = line.partition(" ")
    return bool(sep and rest) and len(head) <= 4 and head[:-1].isdigit() and head[-1] in ".)"


def _bulleted(line: str) -> bool:
    return len(line) > 2 and line[0] in "-*•+" and line[1] in " \t"


def _unnumbered(text: str) -> str:
    return "\n".join(line.partition(" ")[2] if _numbered(line) else line for line in _lines(text))


def _any(*words: str) -> Truth:
    return lambda text: any(word in words for word in _words(text))


def _no(truth: Truth) -> Truth:
    def denied(text: str) -> bool | None:
        value = truth(text)
        return None if value is None else not value

    return denied


def _first_person(text: str) -> bool:
    names = ("i", "me", "my", "mine", "myself", "we", "us", "our", "ours", "ourselves")
    for word in _prose(text).replace("’", "'").replace("/", " ").split():
        bare = word.strip(string.punctuation + "“”")
        head = bare.partition("'")[0]
        if head.casefold() in names and bare not in ("US", "i", "i.e", "ME", "MY"):
            return True
    return False


ABBREVIATIONS = ("e.g.", "i.e.", "dr.", "mr.", "mrs.", "ms.", "etc.", "vs.", "st.", "u.s.")


def _sentences(text: str) -> list[list[str]]:
    """Words of each sentence; a line ends one. Numbers and common abbreviations do not."""
    found: list[list[str]] = []
    for line in _lines(text):
        found.append([])
        for token in line.split():
            if any(map(str.isalnum, token)):
                found[-1].append(token)
            bare = token.rstrip("\"')*”’").casefold()
            number = len(found[-1]) == 1 and _numbered(line) and token == line.split()[0]
            if bare.endswith((".", "!", "?")) and bare not in ABBREVIATIONS and not number:
                found.append([])
    return [words for words in found if words]  # fmt: skip


def _last_sign(text: str) -> str:
    signs = [
        c
        for c in text
        if not c.isspace() and unicodedata.category(c) not in ("So", "Mn", "Cf") and c not in "\"'”’*_)"
    ]
    return signs[-1] if signs else ""  # fmt: skip


def _emoji(text: str) -> bool:
    return any(unicodedata.category(c) == "So" and ord(c) > 0x2600 for c in text)


def _paragraphs(text: str) -> int:
    return sum(bool(piece.strip()) for piece in text.replace("\r", "").replace(" \n", "\n").split("\n\n"))


def _digit(text: str) -> bool:
    return any(c.isdigit() for c in _prose(_unnumbered(text)))


WISHES: tuple[Wish, ...] = (
    Wish(
        "at most 80 words",
        lambda text: len(_words(text)) <= 80,
        ("Never use more than eighty words.", "Keep your answers under 81 words.", "Max 80 words please", "Your answers must not exceed 80 words."),
        ("80 words at most", "Please don't write more than 80 words", "I want answers of no more than 80 words.", "Limit every response to eighty words."),
    ),
    Wish(
        "at least 120 words",
        lambda text: len(_words(text)) >= 120,
        ("Write at least 120 words.", "Answers should have a minimum of 120 words.", "Never answer in fewer than 120 words."),
        ("Use 120 words or more.", "I'd like you to write no less than a hundred and twenty words", "Every answer must be at least 120 words long."),
    ),
    Wish(
        "no list",
        lambda text: sum(_bulleted(line) or _numbered(line) for line in _lines(text)) < 2,
        ("No lists, please.", "Stop using lists.", "Don't give me lists.", "Please write without lists"),
        ("I hate lists.", "Never answer with a list.", "Avoid lists of any kind.", "Your answers should not contain any lists."),
    ),
    Wish(
        "a list",
        lambda text: sum(_bulleted(line) or _numbered(line) for line in _lines(text)) >= 2,
        ("Always use a list.", "Please answer with a list.", "Give me a list."),
        ("I want every answer as a list", "Include a list in each answer.", "Your answer must contain a list."),
    ),
    Wish(
        "no bullet points",
        lambda text: sum(map(_bulleted, _lines(text))) < 2,
        ("no bullet lists please", "Don't use bullet points.", "Skip the bullets.", "Never use bulleted lists"),
        ("Leave out bullet points.", "Could you stop using bullet points?", "I don't want bullet points in your answers.", "drop the bullets"),
    ),
    Wish(
        "a numbered list",
        lambda text: sum(map(_numbered, _lines(text))) >= 2,
        ("Use a numbered list.", "Answer with numbered lists.", "Always give a numbered list please"),
        ("Please number your lists.", "I would like a numbered list.", "Every response should include a numbered list."),
    ),
    Wish(
        "no first person",
        _no(_first_person),
        ("Never write in the first person.", "Don't use the first person.", "No first person, please."),
        ("Avoid the first person.", "Please stop writing in first person.", "Your answers must never use the first person."),
    ),
    Wish(
        "not the word however",
        lambda text: "however" not in _words(text),
        ('Never say "however".', "Don't use the word 'however'.", "Stop saying “however”."),
        ("Avoid the word however.", 'Please leave out "however"', 'I never want to read "however".', 'Ban the word "however".'),
    ),
    Wish(
        "neither important nor essential",
        _no(_any("important", "essential")),
        ('Never use the words "important" or "essential".', 'Don\'t say "important" or "essential".'),
        ('Avoid "important" and "essential".', 'No "important", no "essential".', 'Do not write "important" or "essential", please.'),
    ),
    Wish(
        "ends with a question",
        lambda text: _last_sign(text) == "?",
        ("End with a question.", "Always end your answer with a question to me.", "Finish with a question please"),
        ("Close every answer with a question.", "I want you to end with a question.", "Each reply should end in a question."),
    ),
    Wish(
        "does not end with a question",
        lambda text: _last_sign(text) != "?",
        ("Don't end with a question.", "Never finish with a question.", "Stop ending your answers with a question."),
        ("Please do not close with a question.", "No question at the end.", "Your answers shouldn't end with a question."),
    ),
    Wish(
        "no questions",
        lambda text: "?" not in _prose(text),
        ("Don't ask questions.", "No questions please.", "Never ask me questions."),
        ("Stop asking me questions.", "Avoid questions.", "I don't want you to ask any questions"),
    ),
    Wish(
        "a figure",
        _digit,
        ("Give numbers.", "Always include a number.", "Your answers should contain numbers."),
        ("Please use numbers", "I want at least one number in every answer.", "Include numbers in your answers."),
    ),
    Wish(
        "no digits",
        lambda text: not any(c.isdigit() for c in _prose(text)),
        ("Use no digits.", "Never write digits.", "Don't use digits, please."),
        ("Avoid digits.", "Answers without digits", "Your answers must not contain digits."),
    ),
    Wish(
        "sentences of at most 14 words",
        lambda text: all(len(words) <= 14 for words in _sentences(text)),
        ("Use short sentences of at most 14 words.", "No sentence longer than 14 words.", "Keep sentences under 15 words."),
        ("Never write sentences of more than fourteen words.", "Sentences must have 14 words or fewer.", "Please limit your sentences to 14 words."),
    ),
    Wish(
        "at most three sentences",
        lambda text: len(_sentences(text)) <= 3,
        ("Answer in at most three sentences.", "Three sentences max.", "No more than 3 sentences please."),
        ("Keep it to three sentences.", "Use up to 3 sentences.", "Don't write more than three sentences."),
    ),
    Wish(
        "one paragraph",
        lambda text: _paragraphs(text) <= 1,
        ("Answer in one paragraph.", "Write a single paragraph.", "Use only one paragraph."),
        ("One paragraph, please.", "Keep every answer to one paragraph.", "I want answers in a single paragraph."),
    ),
    Wish(
        "no emoji",
        _no(_emoji),
        ("No emoji.", "Don't use emojis!", "Please stop using emojis."),
        ("I can't stand emojis.", "Leave the emojis out.", "Get rid of the emojis.", "your replies should never contain emoji"),
    ),
    Wish(
        "no exclamation marks",
        lambda text: "!" not in _prose(text),
        ("No exclamation marks.", "Never use exclamation marks.", "Don't use exclamation points, please."),
        ("Avoid exclamation marks.", "Write without exclamation marks.", "I don't like exclamation marks."),
    ),
    Wish(
        "a code block",
        lambda text: text.count("```") >= 2,
        ("Always include a code block.", "Give me a code block.", "Use a code block."),
        ("Every answer should contain a code block.", "Please answer with a code block", "I want code blocks."),
    ),
    Wish(
        "no headings",
        lambda text: not any(line.startswith("#") and line.lstrip("#").startswith(" ") for line in _lines(text)),
        ("No headings.", "Don't use headers.", "Please avoid headings."),
        ("Stop adding headings.", "Leave out the headings.", "I do not want headings in your answers."),
    ),
    Wish(
        "no bold",
        lambda text: text.count("**") < 2,
        ("No bold text.", "Don't use bold.", "Never write in bold."),
        ("Avoid bold words.", "Please stop using bold.", "Skip the bold text."),
    ),
    Wish(
        "starts with Sure",
        lambda text: _words(text)[:1] == ["sure"],
        ('Start with "Sure".', 'Always begin with "Sure".'),
        ('Open every answer with "Sure".', 'I want answers that begin with "Sure".', 'Your answers must start with "Sure".'),
    ),
    Wish(
        "does not start with Sure",
        lambda text: _words(text)[:1] != ["sure"],
        ('Don\'t start with "Sure".', 'Never begin your answers with "Sure".'),
        ('Stop starting with "Sure".', 'Please do not open with "Sure".', 'Your answers should not begin with "Sure".'),
    ),
    Wish(
        "at most five commas",
        lambda text: _prose(text).count(",") <= 5,
        ("Use at most five commas.", "No more than 5 commas."),
        ("Never use more than five commas.", "Keep it under six commas.", "Max 5 commas per answer."),
    ),
    Wish(
        "no lists and at most 100 words",
        lambda text: len(_words(text)) <= 100 and sum(_bulleted(one) or _numbered(one) for one in _lines(text)) < 2,
        ("No lists, and at most 100 words.", "Don't use lists. Stay under 101 words."),
        ("At most 100 words and no lists, please.", "Please avoid lists and keep it below 101 words.", "No lists. No more than 100 words."),
    ),
    Wish(
        "no apology",
        _no(_any("sorry", "apologies", "apologize", "apologise", "apology", "apologizing", "apologising")),
        ("Don't apologise.", "Never apologize.", "No apologies."),
        ("Stop apologizing.", "Please don't apologize to me.", "Avoid apologies."),
    ),
    Wish(
        "no semicolons",
        lambda text: ";" not in _prose(text),
        ("No semicolons.", "Never use semicolons."),
        ("Avoid semicolons, please.", "I don't want semicolons.", "Write without semicolons."),
    ),
    Wish(
        "no brackets",
        lambda text: not set("()[]") & set(_prose(text)),
        ("Don't use brackets.", "No brackets, please."),
        ("Avoid brackets.", "Stop using brackets.", "Never write anything in brackets."),
    ),
)  # fmt: skip

TRAPS: tuple[str, ...] = (
    "I don't mind lists.", "Don't forget to use lists.", "No need for lists.", "Lists are fine.", "Don't avoid lists.", "Why no lists?", "Fewer lists.",
    "Less emoji, please.", "Too many lists!", "Not too many words.", "You used a list.", "You never use lists.", "Why did you use a list?", "Do you use lists?",
    "If I ask for code, use a code block.", "Use a list when there are more than three items.", "No lists unless I ask.", "Only use lists for steps.",
    "No list of more than five items.", "Use a list only where it helps.", "Use fewer than five lists.", "Sometimes use a list.", "Lists or tables, please.",
    "Answer in about 80 words.", "Around a hundred words.", "Short sentences.", "Use simple words.", "Be brief.", "Not enough numbers.", "More numbers.",
    "Don't say anything about politics.", "Never say more than you know.", "Don't say no without a reason.", "Say what the list is for.", "Never end early.",
    "Start with the answer.", "End with a summary.", "Explain the first sentence of the list.", "Keep lists.", "The number is wrong.", "Give me the phone number.",
    "No emoji in headings.", "Use emoji only in the headings.", "Put the question in bold.", "Bold the first word.", "Do not use both lists and tables.",
    "I am 80 words tired.", "My essay has at most 80 words.", "Translate this into at most 80 words of German.", "What is a list?", "The word however is fine.",
    'You may say "however".', 'Say "however" less.', 'Do not be afraid to say "however".', 'Instead of "however" say "but".', 'Never forget to say "Sure".',
    'Do not say "Sure" and stop.', 'Start with "Sure" if you agree.', "Kein Satz über 14 Wörter.", "Keine Listen bitte.", "Pas de listes.", "Ohne Emojis, bitte!",
    "Don't number your guesses.", "Use numbers for names.", "Answer my questions.", "Answer the question in full.", "Don't question me.", "No more questions about that.",
    "Do not use more than one list.", "At least say sorry.", "Write a list of words.", "One word per line.", "Two words: no lists.", "Never use lists again in the summary.",
    "The answer has 80 words at most.", "There are no lists.", "No lists was better.", "Ignore what was said about lists.", "It is not true that I hate lists.",
    "My boss hates lists.", "He said no lists.", "Write code without lists.", "Sort the list.", "No, use the list.", "No lists? Really?", "Yes, lists.", "Lists!", "Add a number to the list.",
    "I used to hate lists.", "You can use lists.", "You don't have to use lists.", "You do not need to use lists.", "Feel free to use lists.", "Try not to use lists so often.",
    "Never mind the lists.", "Don't use lists without a heading.", "Not a single list had a heading.", "No lists longer than a page.", "Don't end lists with a question.",
    "In the email, use no lists.", "For recipes, use a list.", "Except for code, no lists.", "Use lists, not paragraphs, for steps.", "I do not hate lists.", "Nobody likes lists.",
)  # fmt: skip
"""None of these is a wish for every answer that code can see, or it is not certain which: reading one is a wrong read, unless as in ``RIGHT``."""

LATER_TRAPS: tuple[str, ...] = (
    "Don't always use lists.", "Don't use lists in all answers.", "Not every answer a list.", "Never ask me to use lists.", "Don't give me all numbers.",
    "Don't answer only in lists.", "Don't simply use lists.", "Not using lists.", "More than 80 words!", "Over 80 words.", "I avoid lists.", "I want to use lists.",
    "Never use link text.", "Don't question.", "Use no more than one list.", "No more than three items in a list.", "Never start or end with a question.",
    "No numbers over 100.", "Lists of at most 80 words.", "Paragraphs of at most 80 words.", "At most 80 words in a list.", "Limit lists to 5 items.",
    "No emoji at the end.", "Never finish a list with a question.", "No list headings.", "Use any number of emoji.", "Give a number to each answer.",
    "Use at most 80 words or 3 sentences.", "Use lists, never.", "Lists, no; tables, yes.", "You hate lists.", "Do you hate lists?", "Would you like lists?",
    "Should you use lists", "Always you use lists.", "Anything but lists.", "Use no lists but emoji.", "Never say never.", "Never use numbers without units.",
    "Avoid writing without lists.", "Never give a list of words.", "Use as many words as possible.", "Don't use a single list.", "I would not like lists.",
    "Write at most 3 sentences of 14 words.", "Answer in German or English.", "Never answer in German.", "Write about German lists.", "I like emoji.", "No, lists.",
    "Never use lists and at most 80 words.", "No question about it.", "Is it at most 80 words?", "Say at most 80 words.", "Never mention lists.", "Say lists.",
)  # fmt: skip
"""Traps that were thought of while looking at the parser for what it might get wrong; fourteen were read at first."""

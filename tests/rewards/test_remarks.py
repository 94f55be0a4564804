"""What a remark asks for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawback.features import style_features, text_statistics
from clawback.features.style_features import SAYS, wishes

SHORTER = {"words": False, "sentences": False, "items": False}
LONGER = dict.fromkeys(SHORTER, True)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("Too long, and no apologies!", [SHORTER, {"apology": False}]),
        ("too short", [LONGER]),
        ("not too long", [SHORTER]),
        ("Not detailed enough.", [LONGER]),
        ("less detail please", [SHORTER]),
        ("Great list but too wordy", [{"list": True}, SHORTER]),
        ("Stop asking questions", [{"asks back": False}]),
        ("You don't need to be so formal", [{"formal": False, "casual": True, "exclaims": True}]),
        ("informal, please", [{"casual": True, "exclaims": True, "formal": False}]),
        ("Please use Celsius", [{"metric": True, "imperial": False}]),
        ("I hate emojis", [{"emoji": False}]),
        ('Stop saying "Great question!"', [{SAYS + "great question!": False}]),
        ("Start with “Of course”, briefly", [{SAYS + "of course": True}, SHORTER]),
        ("Shorter sentences, please.", [{"words a sentence": False}]),
        ("Your sentences are too long.", [{"words a sentence": False}]),
        ("Your sentences are not long enough", [{"words a sentence": True}]),
        ("no long words", [{"letters a word": False}]),
        ("No endless paragraphs", [{"words a paragraph": False}]),
        ("Use full sentences", [{"list": False}]),
        ("No 🙂", [{SAYS + "🙂": False}]),
        ("The tower was built in 1889.", []),
        ("", []),
    ],
)
def test_wishes(text, wanted):
    assert wishes(text) == wanted


def test_a_sentence_without_end_is_no_remark():
    assert wishes("the list of all the short stories that " * 20) == []


def test_of_a_text_without_end_the_beginning_is_read():
    assert wishes("Be brief. " + '"ab" ' * 100_000)[-1] == SHORTER


@given(st.text(max_size=300))
def test_any_text_gives_known_names(text):
    for wish in wishes(text):
        assert wish
        assert all(
            name in {*style_features.NAMES, *text_statistics.NAMES} or name.startswith(SAYS) for name in wish
        )

"""A base model without a chat template: its answer ends where the next speaker begins, however it is drawn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from clawback import engine, store
from clawback.dialects import Asked
from clawback.inference.local import LocalEngine
from clawback.paths import Home
from clawback.records import Sample
from clawback.sampling import batched_sampler, conversations
from clawback.sampling.batched_sampler import DrawSettings, Sampled, until_speaker
from clawback.sampling.choose import SamplingRequest
from clawback.templates.rendering import NextSpeaker
from tests.engine import plain_text

ASK = [{"role": "user", "content": "What does it do?"}]
ANSWER = " It swims."


@pytest.fixture(scope="session")
def bases(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    made: dict[str, Path] = {}

    def make(name: str) -> Path:
        if name not in made:
            made[name] = plain_text.write(tmp_path_factory.mktemp("base"), plain_text.CHAINS[name])
        return made[name]

    return make


@pytest.mark.parametrize("lean", [True, False], ids=["lean decoder", "model's forward"])
@pytest.mark.parametrize("chain", plain_text.CHAINS)
def test_an_answer_ends_at_the_next_speaker_and_is_trained_on_without_the_label(
    bases: Any, chain: str, lean: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not lean:
        monkeypatch.setattr(batched_sampler, "fits", lambda *_: False)
    policy = engine.load(str(bases(chain)), device="cpu")
    drawn: list[int] = []
    monkeypatch.setattr(SamplingRequest, "take", _counted(SamplingRequest.take, drawn))
    [[one, other]] = policy.generate([ASK], samples=2, max_tokens=40)
    assert (one.text, one.finished, one.ending) == (ANSWER, True, "stop")
    assert one == other
    assert "User" not in policy.tokenizer.decode(one.ids)
    assert policy.tokenizer.decode(one.ids).rstrip() == ANSWER
    assert len(drawn) <= 2 * (len(plain_text.CHAINS[chain]) + 1), "nothing is drawn after the label"
    [expected] = policy.logprobs([ASK], [list(one.ids)])
    torch.testing.assert_close(torch.tensor(one.logprobs), expected, atol=1e-4, rtol=0)
    kept = policy.encode(Sample(1, tuple(ASK), one.text, 1.0, response_ids=one.ids, ending=one.ending))
    assert kept.response == one.ids
    # The same answer by its text: the label ended it, so no end token stands there.
    read = policy.encode(Sample(1, tuple(ASK), one.text, 1.0, ending=one.ending))
    assert policy.chat.end_id not in read.response


def _counted(take: Callable[..., None], drawn: list[int]) -> Callable[..., None]:
    def counted(request: SamplingRequest, token: int, logprob: float) -> None:
        drawn.append(token)
        take(request, token, logprob)

    return counted


@pytest.mark.parametrize("lean", [True, False], ids=["lean decoder", "model's forward"])
def test_replies_of_an_episode_end_there_too(bases: Any, lean: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not lean:
        monkeypatch.setattr(conversations, "fits", lambda *_: False)
    policy = engine.load(str(bases("one token")), device="cpu")
    turns = [conversations.TurnRequest(i, policy.chat.prompt(ASK), i, 30) for i in range(2)]
    drawn = conversations.Conversations(policy, sampling=policy.sampling).draw(turns)
    assert [(policy.chat.text(turns[0].ids, one.ids)[1], one.finished) for one in drawn] == [
        (ANSWER, True)
    ] * 2
    assert all(len(one.ids) == len(one.logprobs) < 5 for one in drawn)


def test_what_measures_the_speed_is_not_stopped(bases: Any) -> None:
    policy = engine.load(str(bases("one token")), device="cpu")
    [[one]] = policy.sample([policy.chat.prompt(ASK)], DrawSettings(max_tokens=20, stop=()))
    assert len(one.ids) == 20


def test_served_whole_and_streamed_it_is_one_answer_and_so_it_is_stored(
    bases: Any, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.config.write_text(f'[model]\nbase = "{bases("a token of its own")}"\n')
    local = LocalEngine(home)
    local.start()
    try:
        with store.connect(home.database) as db:
            version = db.version(0)

        async def answered(**more: Any) -> tuple[list[str], Any]:
            pieces, last = [], None
            async for answer, piece in local.answer(Asked(messages=tuple(ASK), **more), version):
                pieces.append(piece)
                last = answer
            return pieces, last

        pieces, answer = asyncio.run(answered())
        assert "".join(pieces) == answer.text == ANSWER
        assert len([piece for piece in pieces if piece]) > 1, "streamed, not held back"
        assert (answer.as_answer().ending, answer.reply().finished, answer.reply().stopped) == (
            "stop",
            True,
            "",
        )
        assert local.policy
        assert local.policy.tokenizer.decode(answer.ids) == ANSWER
        assert len(answer.ids) == len(answer.logprobs)
        # A text to go on from is no conversation, and a stop string of the client's leaves no token of it either.
        _, raw = asyncio.run(answered(raw="User: Hm?\n\nAssistant:", max_tokens=12))
        assert raw.text.count("User:") == 2
        _, cut = asyncio.run(answered(stop=(" swims",)))
        assert (cut.text, cut.as_answer().ending, local.policy.tokenizer.decode(cut.ids)) == (
            " It",
            "stop",
            " It",
        )
    finally:
        local.close()


# ------------------------------------------------------------------------------------------------------ the label

DIALOGUE = st.lists(
    st.sampled_from(
        ["\n", " ", "User", "Us", "er", ":", "**", "a", "Assistant", ": ", "The otter", ".", "System", "#"]
    ),
    max_size=14,
).map("".join)


@given(DIALOGUE)
def test_what_was_shown_is_never_taken_back(text: str) -> None:
    """Character by character: what is certain so far is a beginning of the answer that it comes to."""
    speaker = NextSpeaker(None)
    answer = text[: speaker.answer_end(text)].rstrip()
    for length in range(len(text) + 1):
        seen = text[:length]
        certain = (
            seen[: speaker.answer_end(seen)]
            if speaker.answer_end(seen) is not None
            else seen[: speaker.certain(seen)]
        )
        assert answer.startswith(certain), (seen, certain)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("It swims.\nUser: And?\nAssistant: Yes.", "It swims."),
        ("It swims.\n\n**User:** And?", "It swims."),
        ("It swims.\n  Assistant : Yes.", "It swims."),
        ("\nUser: And?", ""),
        ("The User: field is a name.", None),
        ("Users:\n- one", None),
        ("It swims.\nThe user: me", None),
    ],
)
def test_a_label_stands_at_the_beginning_of_a_line(text: str, answer: str | None) -> None:
    place = NextSpeaker(None).answer_end(text)
    assert (None if place is None else text[:place]) == answer


@given(DIALOGUE)
def test_tokens_are_cut_where_the_text_is(tok_plain: Any, text: str) -> None:
    speaker, ids = NextSpeaker(tok_plain), tuple(tok_plain.encode(text, add_special_tokens=False))
    [one] = until_speaker(speaker, [Sampled(ids, (0.0,) * len(ids), False)])
    place = speaker.answer_end(text)
    assert len(one.ids) == len(one.logprobs)
    if place is None:
        assert one == Sampled(ids, (0.0,) * len(ids), False)
    else:
        assert one.finished
        kept = tok_plain.decode(one.ids)
        assert kept.startswith(text[:place])
        assert len(one.ids) == 1 or len(tok_plain.decode(one.ids[:-1])) < place, "no token more than it takes"
        assert until_speaker(speaker, [one])[0].ids == one.ids


@pytest.fixture(scope="session")
def tok_plain() -> Any:
    from tests.engine.conftest import tokenizer

    made: Any = tokenizer()
    made.chat_template = None
    return made


def test_a_model_with_a_template_may_write_a_label(tok: Any) -> None:
    from clawback.templates.chat_tokens import Chat

    chat = Chat(tok)
    ids = tok.encode("So:\nUser: me", add_special_tokens=False)
    assert chat.speaker is None
    assert chat.text(chat.prompt(ASK), ids)[1] == "So:\nUser: me"

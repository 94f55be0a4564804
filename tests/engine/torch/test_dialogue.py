"""Conversations that go on: sampled ids stay, only what is new is rendered, and a past that changes begins a branch."""

from __future__ import annotations

import copy

import pytest

from clawback.rollouts.token_record import Dialogue
from clawback.templates.chat_tokens import Chat
from tests.engine.test_templates import FAMILIES

SYSTEM = {"role": "system", "content": "Play."}


def user(text):
    return {"role": "user", "content": text}


def of(tok, family):
    tokenizer = copy.deepcopy(tok)
    tokenizer.add_tokens(["<|im_start|>", "<|im_end|>"], special_tokens=True)
    tokenizer.chat_template = FAMILIES[family]
    return Chat(tokenizer)


def say(dialogue, text, ended=True):
    """As a model would: the text's tokens, spelled letter by letter, so that no tokenizer would give them again."""
    tokenizer = dialogue.chat.tokenizer
    ids = [t for letter in text for t in tokenizer.encode(letter, add_special_tokens=False)]
    ids += [dialogue.chat.end_id] * ended
    return dialogue.wrote(ids, [-0.5] * len(ids), ended), ids


@pytest.mark.parametrize("family", ["smol", "llama", "gemma", "mistral"])
@pytest.mark.parametrize("ended", [True, False])
def test_the_past_stays_token_by_token_and_reads_as_the_template_says(tok, family, ended):
    chat = of(tok, family)
    dialogue = Dialogue(chat, [SYSTEM, user("Row 1")], max_prompt=400)
    first = dialogue.prompt()
    assert first == chat.prompt([SYSTEM, user("Row 1")])
    (start, end, text), ids = say(dialogue, "otters", ended)
    assert text == "otters"
    dialogue.observe([user("Row 2")])
    second = dialogue.prompt()
    assert second[: len(first) + len(ids)] == [*first, *ids]
    assert tok_text(chat, second) == tok_text(chat, chat.prompt(dialogue.messages))
    [branch] = dialogue.branches
    assert branch.ids[start:end] == tuple(ids)
    assert [i for i, wrote in enumerate(branch.mask) if wrote] == list(range(start, end))


@pytest.mark.parametrize("family", [*FAMILIES, None])
@pytest.mark.parametrize("system", ["", "Be brief."])
@pytest.mark.parametrize("most", [400, 20])
def test_what_begins_a_branch_is_what_the_chat_reads(tok, family, system, most):
    """Rendered once and then tokenized, with a template or without one, cut or whole."""
    chat = of(tok, family) if family else Chat(copy.deepcopy(tok))
    chat.system = system
    said = [SYSTEM, user("Row 1, and so on until the row after the last row."), user("Which one?")]
    assert Dialogue(chat, said, max_prompt=most).prompt() == chat.prompt(said, most)


def tok_text(chat, ids):
    return chat.tokenizer.decode(ids)


@pytest.mark.parametrize("family", ["qwen", "deepseek"])
def test_a_template_that_shows_the_past_in_another_way_begins_a_branch(tok, family):
    chat = of(tok, family)  # the prompt ends with an (empty) thought, which is not shown again
    dialogue = Dialogue(chat, [user("Row 1")], max_prompt=400)
    dialogue.prompt()
    say(dialogue, "otters")
    dialogue.observe([user("Row 2")])
    assert dialogue.prompt() == chat.prompt(dialogue.messages)
    assert len(dialogue.branches) == 2


def test_a_changed_message_begins_a_branch_and_keeps_the_old_one(tok):
    dialogue = Dialogue(of(tok, "smol"), [SYSTEM, user("Row 1")], max_prompt=400)
    dialogue.prompt()
    _, ids = say(dialogue, "otters")
    dialogue.messages[1] = user("Row 7")
    dialogue.observe([user("Row 2")])
    whole = dialogue.prompt()
    assert whole == dialogue.chat.prompt(dialogue.messages)
    assert [len(b.ids) for b in dialogue.branches][1] == len(whole)
    assert dialogue.branches[0].ids[-len(ids) :] == tuple(ids)


def test_a_history_that_does_not_fit_loses_its_oldest_turns(tok):
    dialogue = Dialogue(of(tok, "smol"), [SYSTEM, user("Row 1")], max_prompt=90)
    for turn in range(6):
        ids = dialogue.prompt()
        assert len(ids) <= 90
        say(dialogue, "otters")
        dialogue.observe([user(f"Row {turn + 2}, and further along the river")])
    assert dialogue.cut > 0
    assert "Play." in tok_text(dialogue.chat, dialogue.prompt())


def test_another_end_than_the_templates_begins_a_branch(tok):
    chat = of(tok, "smol")
    dialogue = Dialogue(chat, [user("Row 1")], max_prompt=400)
    dialogue.prompt()
    other = chat.tokenizer.convert_tokens_to_ids("<|eos|>")
    dialogue.wrote([40, other], [-1.0, -1.0], True)
    dialogue.observe([user("Row 2")])
    dialogue.prompt()
    assert len(dialogue.branches) == 2

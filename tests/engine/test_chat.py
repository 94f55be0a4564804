"""Any conversation becomes ids, whatever the template refuses."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clawback.templates.chat_tokens import Chat

GEMMA = (
    "{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "{% for m in messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant') }}{% endif %}"
    "<|{{ m['role'] }}|>{{ m['content'] | trim }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
ODD = [
    {"role": "system", "content": "Be kind."},
    {"role": "developer", "content": "Be short."},
    {"role": "assistant", "content": "Hello!"},
    {"role": "user", "content": [{"type": "text", "text": "Read it"}, {"type": "image", "source": {}}]},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"function": {"name": "read", "arguments": '{"path": "a.txt"}'}}],
    },
    {"role": "tool", "content": "the file's text", "tool_call_id": "1"},
    {"role": "user", "content": [{"type": "tool_result", "content": [{"type": "text", "text": "done"}]}]},
    {"role": "user", "content": "and now?"},
]


@pytest.fixture
def strict(tok):
    import copy

    strict = copy.deepcopy(tok)
    strict.chat_template = GEMMA
    return Chat(strict)


def test_the_end_token_is_what_the_template_puts_after_an_answer(tok):
    assert Chat(tok).end_id == tok.convert_tokens_to_ids("<|end|>")


def test_recorded_ids_are_used_as_they_are(tok):
    encoded = Chat(tok).encode([{"role": "user", "content": "Hi"}], "ignored", [9, 8, 7])
    assert encoded.response == (9, 8, 7)


def test_a_plain_conversation_is_what_the_template_makes_of_it(tok):
    messages = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hi"}]
    encoded = Chat(tok).encode(messages, "Sure!")
    assert tok.decode(encoded.prompt) == "<|system|>Be kind.<|end|><|user|>Hi<|end|><|assistant|>"
    assert tok.decode(encoded.response) == "Sure!<|end|>"


def test_an_odd_conversation_keeps_its_text_under_a_strict_template(strict):
    text = strict.tokenizer.decode(strict.prompt(ODD))
    for part in (
        "Be kind.",
        "Be short.",
        "Hello!",
        "Read it",
        "calls read",
        "the file's text",
        "done",
        "and now?",
    ):
        assert part in text
    assert "<|system|>" not in text
    assert text.endswith("<|assistant|>")


def test_no_template_at_all(tok):
    import copy

    bare = copy.deepcopy(tok)
    bare.chat_template = None
    text = bare.decode(Chat(bare).prompt(ODD[:1] + ODD[-1:]))
    assert text == "System: Be kind.\n\nUser: and now?\n\nAssistant:"


roles = st.sampled_from(["user", "assistant", "system", "tool", "weird", ""])
messages = st.lists(st.fixed_dictionaries({"role": roles, "content": st.text(max_size=30)}), max_size=6)


@given(messages, st.integers(8, 60))
@settings(max_examples=60, deadline=None)
def test_any_conversation_fits_its_budget(conversation, budget):
    chat = test_any_conversation_fits_its_budget.chat
    ids = chat.prompt(conversation, budget)
    assert 0 < len(ids) <= budget
    assert ids[-1] == chat.tokenizer.convert_tokens_to_ids("<|assistant|>")


@pytest.fixture(autouse=True)
def _hand_over(strict):
    test_any_conversation_fits_its_budget.chat = strict


def test_long_conversations_lose_their_oldest_messages_first(tok):
    chat = Chat(tok)
    turns = [{"role": ("user", "assistant")[i % 2], "content": f"message {i}"} for i in range(41)]
    text = tok.decode(chat.prompt([{"role": "system", "content": "Be kind."}, *turns], 120))
    assert text.startswith("<|system|>Be kind.")
    assert "message 40" in text
    assert "message 1<" not in text
    # As many as fit are kept.
    assert len(chat.prompt([{"role": "system", "content": "Be kind."}, *turns], 120)) > 90


def test_messages_that_cannot_fit_are_not_even_written_out(tok, monkeypatch):
    chat, rendered = Chat(tok), []
    render = chat._render
    monkeypatch.setattr(chat, "_render", lambda messages: rendered.append(len(messages)) or render(messages))
    turns = [{"role": "user", "content": ""}] * 100_000 + [{"role": "user", "content": "the last"}]
    ids = chat.prompt([{"role": "system", "content": "Be kind."}, *turns], 120)
    assert len(ids) <= 120
    assert "the last" in tok.decode(ids)
    assert max(rendered) <= 121


def test_one_message_that_is_too_long_loses_its_beginning(tok):
    words = " ".join(f"word{i}" for i in range(500))
    messages = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": words}]
    ids = Chat(tok).prompt(messages, 100)
    text = tok.decode(ids)
    assert len(ids) <= 100
    assert text.startswith("<|system|>Be kind.<|end|><|user|>")
    assert text.endswith("word499<|end|><|assistant|>")


def test_a_response_that_is_cut_has_no_end_token(tok):
    chat = Chat(tok)
    encoded = chat.encode([{"role": "user", "content": "Hi"}], "word " * 100, limits=(4096, 10))
    assert len(encoded.response) == 10
    assert chat.end_id not in encoded.response

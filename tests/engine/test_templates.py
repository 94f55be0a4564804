"""Templates that behave as those of real families do: who speaks first, what is refused, how thinking is switched. Short ones of our own."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from clawback import engine
from clawback.config import GenerationSection
from clawback.records import Sample
from clawback.templates.chat_tokens import Chat
from clawback.thinking import split_thinking

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SMOL = "{% if messages[0]['role'] != 'system' %}<|im_start|>system\nYou help.<|im_end|>\n{% endif %}" + CHATML
QWEN = (  # thinks unless it is told not to; what was thought before is left out
    "{% for m in messages %}{% set text = m['content'] %}"
    "{% if m['role'] == 'assistant' and '</think>' in text %}{% set text = text.split('</think>')[-1] | trim %}{% endif %}"
    "<|im_start|>{{ m['role'] }}\n{{ text }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
)
DEEPSEEK = CHATML.replace("<|im_start|>assistant\n{% endif %}", "<|im_start|>assistant\n<think>\n{% endif %}")
LLAMA = (  # a header with the date, whoever speaks first
    "<|im_start|>system\nToday: {{ date_string if date_string is defined else '26 Jul 2024' }}\n"
    "{% if messages[0]['role'] == 'system' %}{{ messages[0]['content'] }}{% set messages = messages[1:] %}{% endif %}"
    "<|im_end|>\n" + CHATML
)
STRICT = (
    "{% for m in messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Roles must alternate user/assistant') }}{% endif %}"
)
GEMMA = (
    "{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    + STRICT
    + "<start_of_turn>{{ 'model' if m['role'] == 'assistant' else m['role'] }}\n{{ m['content'] | trim }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
)
MISTRAL = (  # the answer follows the question's closing mark: there is nothing to add for it
    "{% if messages[0]['role'] == 'system' %}[SYS]{{ messages[0]['content'] }}[/SYS]{% set messages = messages[1:] %}{% endif %}"
    + STRICT
    + "{% if m['role'] == 'user' %}[INST]{{ m['content'] }}[/INST]{% else %}{{ m['content'] }}<|im_end|>{% endif %}{% endfor %}"
)
FAMILIES = {
    "smol": SMOL, "qwen": QWEN, "deepseek": DEEPSEEK, "llama": LLAMA, "gemma": GEMMA, "mistral": MISTRAL,
}  # fmt: skip
ODD = [
    {"role": "system", "content": "Be kind."},
    {"role": "assistant", "content": "Hello!"},
    {"role": "user", "content": "Hi."},
    {"role": "user", "content": "How tall?"},
]


def of(tok: Any, family: str, **args: Any) -> Chat:
    tokenizer = copy.deepcopy(tok)
    tokenizer.add_tokens(["<|im_start|>", "<|im_end|>"], special_tokens=True)
    tokenizer.chat_template = FAMILIES[family]
    return Chat(tokenizer, args)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_takes_every_conversation(tok: Any, family: str) -> None:
    chat = of(tok, family)
    text = chat.tokenizer.decode(chat.prompt(ODD))
    assert all(part in text for part in ("Be kind.", "How tall?"))
    assert chat.end_id == chat.tokenizer.convert_tokens_to_ids("<|im_end|>")


@pytest.mark.parametrize(("args", "switched_off"), [({}, True), ({"enable_thinking": True}, False)])
def test_thinking_is_off_unless_it_is_asked_for(tok: Any, args: dict[str, bool], switched_off: bool) -> None:
    chat = of(tok, "qwen", **args)
    text = chat.tokenizer.decode(chat.prompt([{"role": "user", "content": "2 + 2?"}]))
    assert text.endswith("</think>\n\n") == switched_off


def test_other_arguments_reach_the_template(tok: Any) -> None:
    chat = of(tok, "llama", date_string="1 May 2031")
    assert "1 May 2031" in chat.tokenizer.decode(chat.prompt([{"role": "user", "content": "Hi"}]))


@pytest.mark.parametrize(
    ("family", "said"),
    [("qwen", "<think>\nTwo and two.\n</think>\n\nFour."), ("deepseek", "Two and two.\n</think>\n\nFour.")],
)
def test_what_was_thought_is_told_apart(tok: Any, family: str, said: str) -> None:
    chat = of(tok, family, **({"enable_thinking": True} if family == "qwen" else {}))
    prompt = chat.prompt([{"role": "user", "content": "2 + 2?"}])
    ids = [*chat.tokenizer.encode(said, add_special_tokens=False), chat.end_id]
    assert chat.text(prompt, ids) == ("Two and two.", "Four.")
    apart = chat.encoded(prompt, ids)
    assert chat.tokenizer.decode(list(apart.response)) == "Four.<|im_end|>"
    assert apart.question == tuple(prompt)
    assert (*apart.prompt, *apart.response) == (*prompt, *ids)
    assert chat.encoded(prompt, ids, thinking=True).response == tuple(ids)


def test_a_thought_that_was_cut_off_is_no_answer(tok: Any) -> None:
    chat = of(tok, "deepseek")
    prompt = chat.prompt([{"role": "user", "content": "2 + 2?"}])
    ids = chat.tokenizer.encode("Two and", add_special_tokens=False)
    assert chat.text(prompt, ids) == ("Two and", "")
    assert chat.thought(prompt, ids) == len(ids)


def test_an_answer_about_the_mark_is_an_answer(tok: Any) -> None:
    chat = of(tok, "qwen")
    prompt = chat.prompt([{"role": "user", "content": "How does a thought end?"}])
    ids = chat.tokenizer.encode("With </think>, as it began.", add_special_tokens=False)
    assert chat.text(prompt, ids) == ("", "With </think>, as it began.")


def test_training_reads_the_thought_and_learns_the_answer(folders: Any) -> None:
    policy = engine.load(str(folders("llama")))
    policy.tokenizer.chat_template = FAMILIES["deepseek"]
    for thinking in (False, True):
        policy.configure(GenerationSection(), thinking=thinking)
        messages = ({"role": "user", "content": "Hi"},)
        ids = tuple(policy.tokenizer.encode("Well.</think>\n\nHello!", add_special_tokens=False))
        encoded = policy.encode(Sample(1, messages, "Hello!", 1.0, response_ids=ids))
        assert (*encoded.prompt, *encoded.response) == (*policy.chat.prompt(messages), *ids)
        assert ("Well." in policy.tokenizer.decode(list(encoded.response))) == thinking


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Four.", ("", "Four.")),
        ("\n<think>Hm.</think>\n\nFour.", ("Hm.", "Four.")),
        ("<think>\n\n</think>\n\nFour.", ("", "Four.")),
        ("[THINK]Hm.[/THINK]Four.", ("Hm.", "Four.")),
        ("<think>Hm", ("Hm", "")),
        (
            "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Four.",
            ("Hm.", "Four."),
        ),
        ("analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Four.", ("Hm.", "Four.")),
        ("<THINK>Hm.</THINK>Four.", ("Hm.", "Four.")),
        ("Hm.\n</THINK>\nFour.", ("Hm.", "Four.")),
        ("<think>One.</think>\n<think>Two.</think>\nFour.", ("One.\n\nTwo.", "Four.")),
        ("<think>One.</think>\n<think>Two", ("One.\n\nTwo", "")),
        ("<|START_THINKING|>Hm.<|END_THINKING|><|START_RESPONSE|>Four.", ("Hm.", "Four.")),
        ("<|begin_of_thought|>Hm.<|end_of_thought|>\n<|begin_of_solution|>\nFour.", ("Hm.", "Four.")),
        ("Say <think> or </think> aloud.", ("", "Say <think> or </think> aloud.")),
    ],
)
def test_the_marks_of_each_family(text: str, expected: tuple[str, str]) -> None:
    assert split_thinking(text) == expected


def test_an_answer_that_must_begin_at_once_has_no_thought_left_open_before_it(tok: Any) -> None:
    ask = [{"role": "user", "content": "Hi."}]
    for family in FAMILIES:
        chat = of(tok, family)
        prompt = chat.prompt(ask)
        at_once = chat.thought_out(prompt)
        if family == "deepseek":
            assert tok.decode(at_once).endswith("<think>\n\n</think>\n\n")
            assert chat.text(at_once, tok.encode("{}", add_special_tokens=False)) == ("", "{}")
        else:
            assert at_once == prompt

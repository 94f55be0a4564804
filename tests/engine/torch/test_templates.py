"""A chat template is a program that somebody else wrote: one without an end is refused in a sentence, and ordinary ones are not."""

from __future__ import annotations

import pytest

from clawback import engine
from clawback.engine.torch.models import chat, templates
from clawback.errors import ModelError

ENDLESS = {
    "loops in loops": "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}x",
    "text without end": "{% for i in range(99999) %}{{ 'y' * 99999 }}{% endfor %}",
    "one huge text": "{{ 'y' * 9999999999 }}",
    "one huge number": "{{ (10 ** (10 ** 9)) % 7 }}",
    "a text that doubles": "{% set n = namespace(t='ab') %}{% for m in messages %}{% set n.t = n.t ~ n.t %}{% endfor %}{{ n.t }}",
    "padding": "{{ 'y'.ljust(999999999) }}",
    "only where there are tools": "{% if tools %}{{ 'y' * 99999999 }}{% endif %}",
    "only where asked for": "{% if deep %}{{ 'y' * 99999999 }}{% endif %}",
    "all messages for each, four deep": "".join(f"{{% for {name} in messages %}}" for name in "abcd")
    + "{{ a.content }}"
    + "{% endfor %}" * 4,
    "behind a tag of transformers": "{% generation %}{{ 'y' * 99999999 }}{% endgeneration %}",
}
ORDINARY = {
    "turns": "{% set ns = namespace(last='') %}{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('none') }}{% endif %}"
    "<|{{ m.role }}|>{{ m.content | trim }}{% set ns.last = m.role %}{% if loop.last %}{% break %}{% endif %}{% endfor %}",
    "tools": "{% macro said(x) %}{{ x | tojson(indent=2) }}{% endmacro %}{% if tools %}{% for t in tools %}{{ said(t) }}{% endfor %}{% endif %}"
    "{{ strftime_now('%d %B %Y') }}{% for i in range(messages | length) %}{{ messages[i].content }}{% endfor %}",
    "none": "",
    "not a template": "{% for",
}


class Tokenizer:
    """As much of one as is asked before the first conversation."""

    all_special_ids = (0,)
    eos_token_id = 0

    def __init__(self, template: str | dict[str, str]) -> None:
        self.chat_template = template


@pytest.mark.parametrize("name", ENDLESS)
def test_a_template_without_an_end_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(templates, "SECONDS", 1)
    with pytest.raises(ModelError, match="chat template of this model has no end"):
        chat.Chat(Tokenizer({"default": "{{ messages }}", "tool_use": ENDLESS[name]}), {"deep": True})


@pytest.mark.parametrize("name", ORDINARY)
def test_an_ordinary_one_is_not(name: str) -> None:
    templates.check(ORDINARY[name], {"enable_thinking": False})


def test_a_text_that_is_too_long_is_no_warning_of_the_librarys(monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers import tokenization_utils_base as library

    warned: list[str] = []
    monkeypatch.setattr(library.logger, "warning", lambda said, *_: warned.append(said))
    tokenizer = engine.load("embedded").tokenizer
    assert len(tokenizer.encode("otter " * tokenizer.model_max_length)) > tokenizer.model_max_length
    assert warned == []


def test_a_plain_one_costs_no_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clawback.engine.torch.models.templates._check", lambda *_: pytest.fail("a trial"))
    templates.check("{% for m in messages %}{{ m.role }}: {{ m.content }}{% endfor %}", {})

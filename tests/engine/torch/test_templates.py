"""A chat template is a program that somebody else wrote: one without an end is refused in a sentence, and ordinary ones are not."""

from __future__ import annotations

import contextlib
import copy
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from clawback import engine
from clawback.errors import ModelError
from clawback.templates import chat_tokens, rendering

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
    "a number of a number of digits": "{{ ('%0' ~ 99 ~ 999 ~ 999 ~ 'd')|format(1) }}",
    "centred by a number of digits": "{{ 'x'|center((999 ~ 999 ~ 999)|int) }}",
    "two loops over long words": "{% for a in '"
    + "y" * 40_000
    + "' %}{% for b in '"
    + "y" * 40_000
    + "' %}{% endfor %}{% endfor %}",
    "the same letters over and over": "{{ ('y'|center(99999))|replace(' ', 'y'|center(99999)) }}",
    "words joined by long words": "{{ ('y'|center(99999))|join('y'|center(99999)) }}",
    "lists in batches": "{{ messages|batch((999 ~ 999 ~ 999)|int, 'y')|list }}",
    "sorting without end": "{% for a in ('y'|center(99999)) %}{% for b in ('y'|center(99999))|sort %}{% endfor %}{% endfor %}",
    "indented by a wide number": "{{ ('y'|center(99999))|replace(' ', '\n')|indent(99999, blank=true) }}",
    "words in words": "{{ 'y'|wordwrap(1)|center((99 ~ 999 ~ 999)|int)|urlize }}",
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
    monkeypatch.setattr(rendering, "SECONDS", 0.3)
    with pytest.raises(ModelError, match="chat template of this model has no end"):
        chat_tokens.Chat(Tokenizer({"default": "{{ messages }}", "tool_use": ENDLESS[name]}), {"deep": True})


@pytest.mark.parametrize("name", ORDINARY)
def test_an_ordinary_one_is_not(name: str) -> None:
    rendering.check(ORDINARY[name], {"enable_thinking": False})


def test_a_text_that_is_too_long_is_no_warning_of_the_librarys(monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers import tokenization_utils_base as library

    warned: list[str] = []
    monkeypatch.setattr(library.logger, "warning", lambda said, *_: warned.append(said))
    tokenizer = engine.load("embedded").tokenizer
    assert len(tokenizer.encode("otter " * tokenizer.model_max_length)) > tokenizer.model_max_length
    assert warned == []


TEMPLATES = {
    "turns": "{% set ns = namespace(last='') %}{% for m in messages %}<|{{ m.role }}|>{{ m.content | trim }}{% set ns.last = m.role %}"
    "{% if loop.last %}{% break %}{% endif %}{% endfor %}{{ ns.last }}{{ bos_token is defined }}{{ eos_token }}",
    "tools": "{% if tools %}{% for t in tools %}{{ t | tojson(indent=2) }}{% endfor %}{% endif %}{{ dict(a=1)|tojson }}",
    "a generation": "{% set n = 3 %}{% generation %}\n  {% set n = 4 %}{{ n }} {{ messages[0].content }}\n{% endgeneration %}{{ n }}",
    "the date": "{{ strftime_now('%Y') }}",
    "spaces": "  {%- for m in messages %}\n    {% if m.role == 'user' %}\n{{ m.content }}\n    {% endif %}\n{% endfor %}\n",
    "a refusal": "{{ raise_exception('not this one') }}",
    "an escape": "{{ messages.__class__.__mro__ }}",
    "a hidden name": "{% set n = namespace(__x=1) %}{{ n }}",
    "no template": "{% for",
    "parts": "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endif %}{% endfor %}",
    "what was thought": "{% for m in messages %}{{ m.reasoning_content }}{{ m.thinking }}{% endfor %}",
}
CONVERSATIONS = [
    [{"role": "user", "content": "Größe 🙂 <b>&amp;</b>"}],
    [
        {"role": "system", "content": "s"},
        {"role": "user", "content": " x \n"},
        {"role": "assistant", "content": "a", "reasoning": "r"},
    ],
    [{"role": "user", "content": [{"type": "text", "text": "p"}], "name": None}],
]


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_rendering_is_that_of_transformers(name: str, native: Callable[[str], Any]) -> None:
    """Text and ids, or a refusal by both."""
    tokenizer = copy.deepcopy(engine.load("embedded").tokenizer)
    tokenizer.chat_template = TEMPLATES[name]
    tools = [{"type": "function", "function": {"name": "grüße", "parameters": {}}}]
    for conversation in CONVERSATIONS:
        for tokenize in (False, True):
            how = {
                "tools": tools,
                "tokenize": tokenize,
                "add_generation_prompt": True,
                "extra": {"a": [1, None]},
            }
            results = []
            for compiled in (native, rendering.Bounded):
                with mock_compiler(compiled):
                    try:
                        result = tokenizer.apply_chat_template(conversation, **how)
                        results.append(result if isinstance(result, str) else list(result["input_ids"]))
                    except Exception:
                        results.append(None)
            assert results[0] == results[1]


@pytest.fixture(scope="module")
def native() -> Callable[[str], Any]:
    """What transformers compiles by itself."""
    from transformers.utils import chat_template_utils

    return chat_template_utils._cached_compile_jinja_template


@contextlib.contextmanager
def mock_compiler(compiled: Callable[[str], Any]) -> Iterator[None]:
    from transformers.utils import chat_template_utils

    before = chat_template_utils._compile_jinja_template
    chat_template_utils._compile_jinja_template = compiled
    try:
        yield
    finally:
        chat_template_utils._compile_jinja_template = before


def test_a_template_that_has_no_end_for_one_conversation_alone_is_stopped_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It passes the trial; the prompt that starts it is refused, and the next prompt is answered."""
    monkeypatch.setattr(rendering, "SECONDS", 0.3)
    tokenizer = copy.deepcopy(engine.load("embedded").tokenizer)
    tokenizer.chat_template = "{% for m in messages %}{{ m.content }}{% if 'zebra' in m.content %}{{ 'y'|center((999 ~ 999 ~ 999)|int) }}{% endif %}{% endfor %}"
    held = chat_tokens.Chat(tokenizer)
    with pytest.raises(ModelError, match="has no end"):
        held.prompt(
            [
                {"role": "user", "content": "Is a horse a zebra, and is a quagga?"},
                {"role": "user", "content": "zebra"},
            ]
        )
    assert held.rendered([{"role": "user", "content": "otter"}]) == "otter"


def test_no_template_runs_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    import jinja2

    tokenizer = copy.deepcopy(engine.load("embedded").tokenizer)
    held = chat_tokens.Chat(tokenizer)
    monkeypatch.setattr(jinja2.Environment, "from_string", lambda *_, **__: pytest.fail("compiled here"))
    assert held.prompt([{"role": "user", "content": "otter"}])
    assert tokenizer.apply_chat_template([{"role": "user", "content": "otter"}], tokenize=False)


def test_threads_and_forks_get_their_own_answers() -> None:
    template = "{{ messages[0].content * 3 }}"

    def answer(number: int) -> bool:
        text = f"<{number}>" * 100
        return rendering.Bounded(template).render(messages=[{"content": text}]) == text * 3

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(answer, range(200)))
    child = os.fork()
    if child == 0:
        right = False
        with contextlib.suppress(BaseException):
            right = all(answer(number) for number in range(20))
        os._exit(0 if right else 1)
    assert all(answer(number) for number in range(20))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_the_same_text_many_times_is_counted_each_time() -> None:
    messages = [{"content": "word " * 400}] * 300
    text = rendering.Bounded("{% for m in messages %}{{ m.content }}{% endfor %}").render(messages=messages)
    assert len(text) == 600_000


def test_a_worker_that_died_is_replaced() -> None:
    assert rendering._worker.render("{{ 1 }}", {}) == "1"
    process = rendering._worker._process
    assert process
    process.kill()
    process.wait()
    assert rendering._worker.render("{{ 2 }}", {}) == "2"

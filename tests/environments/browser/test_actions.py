"""BrowserGym's action strings are parsed, and never evaluated."""

from __future__ import annotations

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawback.extensions.browser import actions
from clawback.extensions.browser.actions import Action, Unreadable, parse


@pytest.mark.parametrize(
    ("reply", "action"),
    [
        ("click('12')", Action("click", {"bid": "12"})),
        ("I see a button.\nclick('a51')", Action("click", {"bid": "a51"})),
        ("Action: fill('237', 'hello \\'you\\'')", Action("fill", {"bid": "237", "value": "hello 'you'"})),
        ("```\nclick('1')\nfill(bid='2', value='x')\n```", Action("fill", {"bid": "2", "value": "x"})),
        ("`scroll(0, -100)`", Action("scroll", {"delta_x": 0, "delta_y": -100})),
        ("select_option('4', ['a', 'b'])", Action("select_option", {"bid": "4", "options": ["a", "b"]})),
        ("click('1')\nThat was it.", Action("click", {"bid": "1"})),
        ("noop()", Action("noop", {})),
        ("click('7', button='right')", Action("click", {"bid": "7", "button": "right"})),
    ],
)
def test_actions_are_read(reply: str, action: Action) -> None:
    assert parse(reply) == action


@pytest.mark.parametrize(
    ("reply", "says"),
    [
        ("", "no action"),
        ("I click the button.", "no action"),
        ("destroy('1')", "There is no action destroy"),
        ("click(12)", "bid must be a string"),
        ("click('1', 'left', 3)", "takes 2 arguments"),
        ("fill('1')", "fill needs value"),
        ("click(bid='1', at='2')", "takes no at"),
        ("click(open('/etc/passwd'))", "plain texts and numbers"),
        ("click('1'", "cannot be read"),
        ("__import__('os').system('x')", "no action"),
        ("mouse_click(1e99, 2)", "must be a number"),
        ("mouse_click(True, 2)", "must be a number"),
    ],
)
def test_what_is_no_action_says_why(reply: str, says: str) -> None:
    with pytest.raises(Unreadable, match=says):
        parse(reply)


def test_a_subset_allows_no_more_than_it_names() -> None:
    small = actions.SUBSETS["small"]
    assert parse("click('1')", small).name == "click"
    with pytest.raises(Unreadable, match="There are: click, fill"):
        parse("hover('1')", small)
    assert "click(bid, button?)" in actions.description(small)
    for tool in actions.tools(actions.SUBSETS["all"]):
        jsonschema.Draft202012Validator.check_schema(tool["function"]["parameters"])


@given(st.one_of(st.text(max_size=200), st.lists(st.sampled_from(["click", "fill", "(", ")", "'", "1", ",", "\n", "```", "Action:", "="])).map("".join)))  # fmt: skip
def test_any_reply_is_an_action_or_unreadable(reply: str) -> None:
    try:
        action = parse(reply)
    except Unreadable:
        return
    assert action.name in actions.ACTIONS

"""BrowserGym's action strings: ``click('a51')``, ``fill('237', 'text')``. Parsed, never evaluated."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from clawback.environments.core import Tool

KEYS = "such as 'Enter', 'Tab', 'Control+a'"
ACTIONS: Mapping[str, tuple[tuple[str, str, bool], ...]] = {
    "click": (("bid", "string", True), ("button", "string", False)),
    "dblclick": (("bid", "string", True),),
    "hover": (("bid", "string", True),),
    "fill": (("bid", "string", True), ("value", "string", True)),
    "clear": (("bid", "string", True),),
    "press": (("bid", "string", True), ("key_comb", "string", True)),
    "focus": (("bid", "string", True),),
    "select_option": (("bid", "string", True), ("options", "any", True)),
    "drag_and_drop": (("from_bid", "string", True), ("to_bid", "string", True)),
    "scroll": (("delta_x", "number", True), ("delta_y", "number", True)),
    "mouse_click": (("x", "number", True), ("y", "number", True)),
    "mouse_drag_and_drop": (
        ("from_x", "number", True),
        ("from_y", "number", True),
        ("to_x", "number", True),
        ("to_y", "number", True),
    ),
    "keyboard_press": (("key", "string", True),),
    "keyboard_type": (("text", "string", True),),
    "go_back": (),
    "go_forward": (),
    "noop": (("wait_ms", "number", False),),
    "send_msg_to_user": (("text", "string", True),),
    "report_infeasible": (("reason", "string", True),),
}
"""Action → its parameters in order: name, kind, whether it must be given. As BrowserGym's, less what leaves the page."""
SUBSETS = {
    "all": tuple(ACTIONS),
    "bid": (
        "click",
        "dblclick",
        "hover",
        "fill",
        "clear",
        "press",
        "focus",
        "select_option",
        "drag_and_drop",
        "scroll",
        "noop",
    ),
    "coord": ("mouse_click", "mouse_drag_and_drop", "keyboard_press", "keyboard_type", "scroll", "noop"),
    "small": ("click", "fill"),
}
"""``small`` is what BrowserGym calls miniwob_liu18: enough for most pages, and little to read for a small model."""
MOST_CHARACTERS = 4000
_FENCE = re.compile(r"```(?:\w+)?\s*\n?(.*?)```", re.DOTALL)


class Unreadable(Exception):
    """The reply holds no action; the message says what is wrong, for whoever wrote it."""


@dataclass(frozen=True, slots=True)
class Action:
    """One action with its arguments by name."""

    name: str
    arguments: Mapping[str, Any]


def parse(reply: str, allowed: tuple[str, ...] = SUBSETS["all"]) -> Action:
    """The last action in a reply: in a fenced block, else on a line of its own or after ``Action:``.

    Raises ``Unreadable``.
    """
    text = reply[-MOST_CHARACTERS:]
    fenced = _FENCE.findall(text)
    lines = [line.strip() for line in (fenced[-1] if fenced else text).splitlines() if line.strip()]
    problem = ""
    for line in reversed(lines):
        bare = re.sub(r"(?i)^.*?\baction\s*:\s*", "", line).strip().strip("`").strip()
        if not re.match(r"\w+\s*\(", bare):
            continue
        try:
            return _read(bare, allowed)
        except Unreadable as error:
            problem = problem or str(error)
    raise Unreadable(problem or "There is no action in that reply.")


def of_call(name: str, arguments: Mapping[str, object], allowed: tuple[str, ...] = SUBSETS["all"]) -> Action:
    """An action from a tool call. Raises ``Unreadable``."""
    if name not in allowed or name not in ACTIONS:
        raise Unreadable(f"There is no action {name}. There are: {', '.join(allowed)}.")
    known = {parameter: (kind, must) for parameter, kind, must in ACTIONS[name]}
    if extra := set(arguments) - set(known):
        raise Unreadable(f"{name} takes no {sorted(extra)[0]}.")
    for parameter, (kind, must) in known.items():
        if parameter not in arguments:
            if must:
                raise Unreadable(f"{name} needs {parameter}.")
        elif not _fits(arguments[parameter], kind):
            raise Unreadable(f"{name}: {parameter} must be a {kind}, not {arguments[parameter]!r}.")
    return Action(name, dict(arguments))


def _read(line: str, allowed: tuple[str, ...]) -> Action:
    try:
        node = ast.parse(line, mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise Unreadable(f"{line[:100]} cannot be read: write one action, as in click('12').") from error
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        raise Unreadable(f"{line[:100]} is no action: write one, as in click('12').")
    name = node.func.id
    parameters = [parameter for parameter, _, _ in ACTIONS.get(name, ())]
    if len(node.args) > len(parameters) and name in ACTIONS:
        raise Unreadable(f"{name} takes {len(parameters)} arguments.")
    try:
        given = {
            parameter: ast.literal_eval(value)
            for parameter, value in zip(parameters, node.args, strict=False)
        }
        given |= {word.arg: ast.literal_eval(word.value) for word in node.keywords if word.arg}
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError) as error:
        raise Unreadable(f"{line[:100]}: arguments must be plain texts and numbers.") from error
    return of_call(name, given, allowed)


def _fits(value: object, kind: str) -> bool:
    if kind == "string":
        return isinstance(value, str)
    if kind == "number":
        return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e6
    return isinstance(value, str) or (
        isinstance(value, list) and all(isinstance(part, str) for part in value)
    )


def description(allowed: tuple[str, ...]) -> str:
    """The actions, for a system message."""
    shown = [
        f"{name}({', '.join(p if must else f'{p}?' for p, _, must in ACTIONS[name])})" for name in allowed
    ]
    return (
        "Reply with one action on a line of its own, as in click('12'). The actions are: "
        + ", ".join(shown)
        + "."
    )


def tools(allowed: tuple[str, ...]) -> tuple[Tool, ...]:
    """The same actions as tools, for models that call tools better than they write lines."""
    kinds: dict[str, dict[str, Any]] = {
        "string": {"type": "string"},
        "number": {"type": "number"},
        "any": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]},
    }
    made: list[Tool] = []
    for name in allowed:
        parameters = {
            "type": "object",
            "properties": {parameter: kinds[kind] for parameter, kind, _ in ACTIONS[name]},
            "required": [parameter for parameter, _, must in ACTIONS[name] if must],
            "additionalProperties": False,
        }
        made.append(
            {"type": "function", "function": {"name": name, "description": "", "parameters": parameters}}
        )
    return tuple(made)

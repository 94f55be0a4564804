"""A page as a policy sees it: its accessibility tree as text, with a number for each element, or a picture.

The numbers (``bid``, as BrowserGym calls them) are written into the page as an attribute, so that an action finds its
element again. They count up in the order of the document and stay while the element does.
"""

from __future__ import annotations

import base64
from typing import Any

from clawback.extensions.browser.actions import Action
from clawback.records import JsonObject, Message

ATTRIBUTE = "data-clawback-bid"
MOST_CHARACTERS = 6000
"""Of a tree."""
PATIENCE = 5000
"""Milliseconds that an action waits for its element to take it."""
PAGE_TIME = 500
"""Milliseconds of the page's own clock that pass with each action: its timers and animations depend on the turn, not on how fast
this machine is."""

_TREE = r"""
([attribute, most]) => {
  const ROLES = {a: "link", button: "button", textarea: "textbox", select: "combobox", option: "option", img: "image", table: "table",
    tr: "row", td: "cell", th: "columnheader", ul: "list", ol: "list", li: "listitem", h1: "heading", h2: "heading", h3: "heading",
    h4: "heading", label: "label", p: "paragraph", svg: "image", circle: "circle", rect: "rectangle", polygon: "polygon", text: "text"};
  const INPUTS = {checkbox: "checkbox", radio: "radio", button: "button", submit: "button", range: "slider", number: "spinbutton"};
  let next = window.__clawbackNext || 1;
  const lines = [];
  let size = 0;
  const squeeze = text => text.replace(/\s+/g, " ").trim();
  const own = element => squeeze([...element.childNodes].filter(n => n.nodeType === 3).map(n => n.data).join(" "));
  const clickable = element => element.onclick || element.__onclick || element.tabIndex >= 0 || getComputedStyle(element).cursor === "pointer"
    || (window.jQuery && window.jQuery._data && window.jQuery._data(element, "events"));
  const role = element => {
    const named = element.getAttribute("role");
    if (named) return named;
    const tag = element.tagName.toLowerCase();
    return tag === "input" ? INPUTS[element.type] || "textbox" : ROLES[tag] || "";
  };
  const marks = element => {
    const said = [];
    if ("value" in element && element.tagName !== "LI" && element.tagName !== "OPTION" && element.type !== "checkbox" && element.type !== "radio"
      && element.value !== "" && element.tagName !== "BUTTON") said.push("value=" + JSON.stringify(String(element.value)));
    if (element.checked) said.push("checked");
    if (element.selected) said.push("selected");
    if (element.disabled) said.push("disabled");
    if (element === document.activeElement && element !== document.body) said.push("focused");
    if (element.getAttribute("aria-expanded")) said.push("expanded=" + element.getAttribute("aria-expanded"));
    const shape = element instanceof SVGElement && element.tagName !== "svg";
    if (shape && element.getAttribute("fill")) said.push("fill=" + element.getAttribute("fill"));
    return said;
  };
  const walk = (element, depth) => {
    if (size > most) return;
    const style = getComputedStyle(element);
    if (style.display === "none" || style.visibility === "hidden" || ["SCRIPT", "STYLE", "NOSCRIPT"].includes(element.tagName)
      || element.hasAttribute("data-clawback-hidden")) return;
    const kind = role(element), text = own(element);
    const name = squeeze(element.getAttribute("aria-label") || element.getAttribute("alt") || element.getAttribute("placeholder") || "") || text;
    let deeper = depth;
    if (element !== document.body && (kind || text || clickable(element))) {
      if (!element.hasAttribute(attribute)) element.setAttribute(attribute, String(next++));
      const told = ["[" + element.getAttribute(attribute) + "]", kind || (clickable(element) ? "clickable" : "text")];
      if (name) told.push(JSON.stringify(name));
      const line = "  ".repeat(depth) + told.concat(marks(element)).join(" ");
      lines.push(line);
      size += line.length + 1;
      deeper = depth + 1;
    }
    for (const child of element.children) walk(child, deeper);
  };
  walk(document.body, 0);
  window.__clawbackNext = next;
  const whole = lines.join("\n");
  return whole.length > most ? whole.slice(0, most) + "\n… (the page goes on)" : whole;
}
"""


async def tree(page: Any, most: int = MOST_CHARACTERS) -> str:
    """The page's elements as text, one a line: ``[12] button "Send" focused``."""
    return str(await page.evaluate(_TREE, [ATTRIBUTE, most]))


async def picture(page: Any) -> bytes:
    """What a person would see, as PNG."""
    return bytes(await page.screenshot(animations="disabled", caret="hide"))


def message(text: str, png: bytes | None = None) -> Message:
    """A user message of text and, where there is one, a picture as OpenAI-style APIs take it."""
    if png is None:
        return {"role": "user", "content": text}
    url = f"data:image/png;base64,{base64.b64encode(png).decode()}"
    return {
        "role": "user",
        "content": [{"type": "text", "text": text}, {"type": "image_url", "image_url": {"url": url}}],
    }


async def still(page: Any) -> None:
    """Hold the page's clock: from here on its time passes only by ``let_pass``."""
    await page.clock.install(time=0)
    await page.clock.pause_at(1000)


async def let_pass(page: Any, milliseconds: float = PAGE_TIME) -> None:
    """Let the page's own time pass, with all the timers that are due in it."""
    await page.clock.run_for(round(milliseconds))


async def evaluate(page: Any, script: str) -> Any:
    """What a script says of the page; of the page that comes, where an action has just left this one."""
    from playwright.async_api import Error

    try:
        return await page.evaluate(script)
    except Error:
        await page.wait_for_load_state()
        return await page.evaluate(script)


async def act(page: object, action: Action) -> str:
    """Carry an action out; what went wrong, in words, "" where nothing did. Only what the page allows is done."""
    from playwright.async_api import Error, TimeoutError

    for name in ("bid", "from_bid", "to_bid"):
        if name in action.arguments and not await _at(page, action.arguments[name]).count():
            return f"there is no element {action.arguments[name]}"
    problem = ""
    try:
        await _ACTS[action.name](page, dict(action.arguments))
    except TimeoutError:
        problem = "the element does not take that: it is hidden, covered or disabled"
    except Error as error:
        problem = str(error).splitlines()[0].removeprefix("Locator.").removeprefix("Page.")[:200]
    if action.name != "noop":
        await let_pass(page)
    return problem


def _at(page: Any, bid: str) -> Any:
    return page.locator(f"[{ATTRIBUTE}={_quoted(bid)}]")


def _quoted(bid: str) -> str:
    return '"' + "".join(letter for letter in bid if letter.isalnum() or letter in "-_") + '"'


async def _click(page: object, a: JsonObject) -> None:
    button = a.get("button", "left")
    await _at(page, a["bid"]).click(
        button=button if button in ("left", "middle", "right") else "left", timeout=PATIENCE
    )


async def _drag(page: object, a: JsonObject) -> None:
    source, target = (
        await _at(page, a["from_bid"]).bounding_box(),
        await _at(page, a["to_bid"]).bounding_box(),
    )
    if source and target:
        await _move(page, _middle(source), _middle(target))


def _middle(box: dict[str, float]) -> tuple[float, float]:
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


async def _move(page: Any, begin: tuple[float, float], end: tuple[float, float]) -> None:
    await page.mouse.move(*begin)
    await page.mouse.down()
    await page.mouse.move(*end, steps=5)
    await page.mouse.up()


async def _fill(page: object, a: JsonObject) -> None:
    await _at(page, a["bid"]).fill(a["value"], timeout=PATIENCE)


async def _press(page: object, a: JsonObject) -> None:
    await _at(page, a["bid"]).press(a["key_comb"], timeout=PATIENCE)


async def _select(page: object, a: JsonObject) -> None:
    options = a["options"] if isinstance(a["options"], list) else [a["options"]]
    await _at(page, a["bid"]).select_option(label=options, timeout=PATIENCE)


async def _hover(page: object, a: JsonObject) -> None:
    await _at(page, a["bid"]).hover(timeout=PATIENCE)


async def _focus(page: object, a: JsonObject) -> None:
    await _at(page, a["bid"]).focus(timeout=PATIENCE)


async def _dblclick(page: object, a: JsonObject) -> None:
    await _at(page, a["bid"]).dblclick(timeout=PATIENCE)


async def _clear(page: object, a: JsonObject) -> None:
    await _at(page, a["bid"]).clear(timeout=PATIENCE)


async def _scroll(page: Any, a: JsonObject) -> None:
    await page.mouse.wheel(a["delta_x"], a["delta_y"])


async def _mouse_click(page: Any, a: JsonObject) -> None:
    await page.mouse.click(a["x"], a["y"])


async def _mouse_drag(page: object, a: JsonObject) -> None:
    await _move(page, (a["from_x"], a["from_y"]), (a["to_x"], a["to_y"]))


async def _key(page: Any, a: JsonObject) -> None:
    await page.keyboard.press(a["key"])


async def _type(page: Any, a: JsonObject) -> None:
    await page.keyboard.type(a["text"])


async def _noop(page: object, a: JsonObject) -> None:
    await let_pass(page, min(max(float(a.get("wait_ms", PAGE_TIME)), 0.0), 10_000.0))


async def _back(page: Any, a: JsonObject) -> None:  # noqa: ARG001
    await page.go_back(timeout=PATIENCE)


async def _forward(page: Any, a: JsonObject) -> None:  # noqa: ARG001
    await page.go_forward(timeout=PATIENCE)


async def _no_change(page: object, a: JsonObject) -> None:
    """What is said to a user changes no page."""


_ACTS = {
    "click": _click, "dblclick": _dblclick, "hover": _hover, "fill": _fill, "clear": _clear, "press": _press, "focus": _focus,
    "select_option": _select, "drag_and_drop": _drag, "scroll": _scroll, "mouse_click": _mouse_click, "mouse_drag_and_drop": _mouse_drag,
    "keyboard_press": _key, "keyboard_type": _type, "noop": _noop, "go_back": _back, "go_forward": _forward, "send_msg_to_user": _no_change,
    "report_infeasible": _no_change,
}  # fmt: skip

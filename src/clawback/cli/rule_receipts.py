"""How rules and their receipts read in a terminal (docs/rules.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from clawback.terminal import COLUMNS, fold, shorten, when, width

if TYPE_CHECKING:
    from clawback.records import Rule
    from clawback.rules.receipts import Breach, KeptShare, Receipt, RuleRatings

WEEKS = 8
"""Newest weeks that a receipt lists."""
TURNS = 6
"""Turns that a line of ratings names."""


def table(rows: Sequence[Receipt]) -> str:
    """Two lines a rule: the shares with its words, then the models. Words that do not fit have a line of their own: a rule is known by them."""
    lines = [f"{'#':>3}  {'kept':<14} {'last week':<14} {'whose':<10} {'status':<9} rule"]
    for one in rows:
        head = f"{one.rule.id:>3}  {_brief(one.overall):<14} {_brief(one.last_week):<14} {shorten(whose(one.rule), 10):<10} {one.rule.status:<9} "
        fits = len(head) + len(one.rule.text) <= width()
        lines += [head + one.rule.text] if fits else [head.rstrip(), f"     {one.rule.text}"]
        models = " · ".join(f"{name} {_brief(share)}" for name, share in one.models.items())
        if models:
            lines.append(f"     {shorten(models, width() - 5)}")
        elif one.judged:
            lines.append("     code cannot check it, and no judge has: `clawback rules learn`")
    return "\n".join(lines)


def _brief(share: KeptShare) -> str:
    """``83 % of 1,204``."""
    return f"{100 * share.passes / share.checked:.0f} % of {share.checked:,}" if share.checked else "–"


def whose(rule: Rule) -> str:
    """Whose words a rule is, in a word."""
    return {"owner": "you", "list": "our list"}.get(rule.author, rule.author)


def head(receipt: Receipt, waits: bool) -> str:
    """``waits``: whether no model is told of the rule before the owner says yes."""
    rule = receipt.rule
    checked = "a judge checks it" if receipt.judged else f"code checks it: {rule.check}"
    lines = [
        rule.text,
        f"Rule {rule.id} · {rule.status} · {whose(rule)} · since {when(rule.created_at)} · {checked}",
    ]
    keep, why = f"`clawback rules keep {rule.id}`", rule.evidence.get("why", "")
    if rule.status == "proposed":
        lines.append(f"It waits for your yes: {keep}, or `clawback rules drop {rule.id}`.")
    elif rule.status == "dropped":
        lines.append(f"It does not count: {why}. {keep} takes it all the same.")
    elif waits:
        lines.append(f"Your ratings speak for it. It goes into no prompt before you say yes: {keep}.")
    return "\n".join([*map(fold, lines), "", f"Kept {receipt.overall.text()}"])


def by_week(receipt: Receipt, by_model: Mapping[str, Mapping[str, KeptShare]]) -> str:
    """A line a week, a column a model; only as many models as fit."""
    if not by_model:
        return ""
    names = list(receipt.models)[: max((width() - 12) // 18, 1)]
    lines = [f"{'week of':<12}" + "".join(f"{shorten(name, 16):<18}" for name in names).rstrip()]
    for week in list(receipt.weeks)[-WEEKS:][::-1]:
        cells = [by_model[name].get(week) for name in names]
        lines.append(
            f"{week:<12}" + "".join(f"{_brief(cell) if cell else '–':<18}" for cell in cells).rstrip()
        )
    lines.append(f"{'all':<12}" + "".join(f"{_brief(receipt.models[name]):<18}" for name in names).rstrip())
    if more := len(receipt.models) - len(names):
        lines.append(f"{more} more models: --json lists them.")
    return "\n".join(lines)


def ratings(rated: RuleRatings) -> str:
    """What speaks for the rule, what against it."""
    rows = [
        ("for", "liked, kept it", rated.liked_kept),
        ("for", "disliked, broke it", rated.disliked_broken),
        ("against", "liked, broke it", rated.liked_broken),
        ("against", "disliked, kept it", rated.disliked_kept),
    ]
    if not any(turns for _, _, turns in rows):
        return "No rated answer says anything about it yet."
    lines = ["Your ratings"]
    for side, what, turns in rows:
        named = ", ".join(map(str, turns[-TURNS:])) + (", …" if len(turns) > TURNS else "")
        lines.append(f"  {side:<8} {what:<19} {len(turns):>4}" + (f"  turns {named}" if turns else ""))
    return "\n".join(lines)


def breaches(broken: Sequence[Breach], count: int) -> str:
    """Each with the command that shows it."""
    if not broken:
        return "No recorded answer breaks it." if count == 0 else ""
    lines = [f"Breaches ({len(broken)} of {count:,}, newest first)"]
    for one in broken:
        lines.append(
            f"  {when(one.created_at)}  {shorten(one.model, 24):<24}  `clawback turns show {one.turn}`"
        )
        if one.excerpt:
            lines.append(f"    line {one.line}: {shorten(one.excerpt, (width() or COLUMNS) - 14)}")
    return "\n".join(lines)

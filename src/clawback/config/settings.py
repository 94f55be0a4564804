"""The settings' keys, types, defaults, limits and descriptions, all read from ``config`` and ``extension_sections``; and the parsing of values that a person types.

A key is ``section.name`` (``training.threshold``). Tables of values have keys of their own:
``training.overrides.steps``.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import msgspec

from clawback import config
from clawback.config import extension_sections
from clawback.errors import UsageError

TYPES = msgspec.inspect


@dataclass(frozen=True, slots=True)
class Setting:
    """One key of ``config.toml``."""

    key: str
    default: Any
    allowed: str
    """What it takes, in words."""
    meaning: str
    table: bool
    """Whether it holds values by name."""


@cache
def settings() -> tuple[Setting, ...]:
    """Every setting, in the order of ``config``."""
    sections = {field.name: type(field.default) for field in msgspec.structs.fields(config.Config)}
    found = []
    for name, section in sections.items():
        meanings = _meanings(section)
        for field in msgspec.structs.fields(section):
            kind = TYPES.type_info(field.type)
            default = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
            meaning, table = meanings.get(field.name, ""), isinstance(kind, TYPES.DictType)
            found.append(Setting(f"{name}.{field.name}", default, words(kind), meaning, table))
    return tuple(found)


def sections() -> dict[str, str]:
    """Section → what it is about."""
    return {
        field.name: inspect.getdoc(type(field.default)) or ""
        for field in msgspec.structs.fields(config.Config)
    }


def find(key: str) -> Setting:
    """The setting that a key names, also one within a table of values. Raises ``UsageError`` with the nearest key."""
    known = {one.key: one for one in settings()}
    if key in known:
        return known[key]
    table = known.get(".".join(key.split(".")[:2]))
    if table is not None and table.table and all(key.split(".")):
        return table
    from difflib import get_close_matches

    names = [one for one in known if one.endswith(f".{key}")] or get_close_matches(
        key, known, n=1, cutoff=0.6
    )
    hint = f"; did you mean `{names[0]}`?" if names else "."
    raise UsageError(f"There is no setting `{key}`{hint} `clawback config list` shows them all.")


def value(chosen: config.Config, key: str) -> Any:
    """What a setting stands at. Raises ``UsageError`` for a key that there is not."""
    setting = find(key)
    section, name = setting.key.split(".")
    found = getattr(getattr(chosen, section), name)
    if key == setting.key:
        return found
    for inner in key.removeprefix(f"{setting.key}.").split("."):
        if not isinstance(found, dict) or inner not in found:
            raise UsageError(f"`{key}` is not set. `clawback config get {setting.key}` shows what is.")
        found = found[inner]
    return found


def read(key: str, text: str) -> Any:
    """What was typed, as the setting takes it: a TOML value, a bare word, or bare words with commas for a list.

    Raises ``UsageError`` that says what is allowed. Limits that only the whole file shows are for ``config.save``.
    """
    import tomllib

    setting = find(key)
    try:
        typed = tomllib.loads(f"x = {text}")
        made = typed["x"] if len(typed) == 1 else text
    except tomllib.TOMLDecodeError:
        made = text
    kind = _type(setting.key)
    if key != setting.key:
        inner = key.removeprefix(f"{setting.key}.")
        nested: Any = made
        for part in reversed(inner.split(".")):
            nested = {part: nested}
        try:
            msgspec.convert(nested, kind)
        except msgspec.ValidationError:
            raise UsageError(f"`{setting.key}` takes {setting.allowed}, not `{inner} = {text}`.") from None
        return made
    tries = [made, text]
    if isinstance(_plain(TYPES.type_info(kind)), (TYPES.VarTupleType, TYPES.ListType)) and isinstance(
        made, str | int
    ):
        tries = [
            [_number(part.strip()) for part in text.split(",") if part.strip()],
            *([p.strip()] for p in (text,)),
        ]
    for one in tries:
        try:
            msgspec.convert(one, kind)
        except msgspec.ValidationError:
            continue
        return one
    from difflib import get_close_matches

    near = get_close_matches(text, choices(setting.key), n=1)
    hint = f"; did you mean `{near[0]}`?" if near else "."
    raise UsageError(f"`{key}` takes {setting.allowed}, not `{text}`{hint}")


def choices(key: str) -> list[str]:
    """The words that a setting takes; [] where it takes others, too."""
    return _choices(TYPES.type_info(_type(find(key).key)))


def _number(text: str) -> str | int:
    """Ids of people are whole numbers on some platforms."""
    return int(text) if text.isdecimal() else text


def _type(key: str) -> Any:
    section, name = key.split(".")
    fields = msgspec.structs.fields(type(getattr(config.Config(), section)))
    return next(field.type for field in fields if field.name == name)


# ----------------------------------------------------------------------------------------------------- in words


def words(kind: object) -> str:
    """A type with its limits, in words: ``a whole number from 1 to 25``."""
    if isinstance(kind, TYPES.Metadata):
        said = (kind.extra_json_schema or {}).get("description")
        return str(said) if said else words(kind.type)
    if isinstance(kind, TYPES.BoolType):
        return "true or false"
    if isinstance(kind, TYPES.IntType | TYPES.FloatType):
        return _limits("a whole number" if isinstance(kind, TYPES.IntType) else "a number", kind)
    if isinstance(kind, TYPES.LiteralType):
        return f"one of {', '.join(map(str, kind.values))}"
    if isinstance(kind, TYPES.VarTupleType):
        return f"a list, each {words(kind.item_type)}"
    if isinstance(kind, TYPES.TupleType):
        return f"a list of {len(kind.item_types)}: {', '.join(words(one) for one in kind.item_types)}"
    if isinstance(kind, TYPES.DictType):
        if isinstance(kind.key_type, TYPES.LiteralType):
            return (
                f"values by name ({', '.join(map(str, kind.key_type.values))}), each {words(kind.value_type)}"
            )
        return "values by name"
    if isinstance(kind, TYPES.StructType):
        return f"a table of {', '.join(field.name for field in kind.fields)}"
    if isinstance(kind, TYPES.UnionType):
        return " or ".join(words(one) for one in kind.types if not isinstance(one, TYPES.NoneType))
    return "text"


def _limits(noun: str, kind: Any) -> str:
    above = (
        [f"from {kind.ge}"] if kind.ge is not None else [f"above {kind.gt}"] if kind.gt is not None else []
    )
    below = (
        [f"up to {kind.le}"] if kind.le is not None else [f"below {kind.lt}"] if kind.lt is not None else []
    )
    return " ".join([noun, " to ".join([*above, *below]).replace("to up to", "to")]).strip()


def _plain(kind: object) -> Any:
    return _plain(kind.type) if isinstance(kind, TYPES.Metadata) else kind


def _choices(kind: object) -> list[str]:
    kind = _plain(kind)
    if isinstance(kind, TYPES.BoolType):
        return ["true", "false"]
    if isinstance(kind, TYPES.VarTupleType):
        return _choices(kind.item_type)
    return [str(one) for one in kind.values] if isinstance(kind, TYPES.LiteralType) else []


def shown(value: object) -> str:
    """A value as the file has it; "" for one that is not set."""
    if value is None:
        return ""
    import tomlkit

    if isinstance(value, dict):
        return "{" + ", ".join(f"{name} = {shown(one)}" for name, one in value.items()) + "}"
    return str(tomlkit.item(msgspec.to_builtins(value)).as_string())


# ------------------------------------------------------------------------------------------------ texts of sections


@cache
def _classes() -> dict[str, ast.ClassDef]:
    modules = (config, extension_sections)
    nodes = (node for module in modules for node in ast.parse(inspect.getsource(module)).body)
    return {node.name: node for node in nodes if isinstance(node, ast.ClassDef)}


def _meanings(section: type) -> dict[str, str]:
    """Setting → the text under it in ``config``, also of the sections that this one is made from."""
    found: dict[str, str] = {}
    for one in reversed(section.__mro__):
        if one.__name__ in _classes():
            found |= dict(_documented(_classes()[one.__name__]))
    return found


def _documented(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for before, after in zip(node.body, node.body[1:], strict=False):
        if isinstance(before, ast.AnnAssign) and isinstance(before.target, ast.Name):
            match after:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    yield before.target.id, " ".join(text.split())


def page() -> str:
    """The settings reference, ``docs/settings.md``."""
    lines = [
        "# Settings",
        "",
        "Written by `make docs` from `src/clawback/config/`; do not edit by hand.",
        "",
        "Settings are in `$CLAWBACK_HOME/config.toml` (`clawback config path`). A file that leaves one out gets its default. `clawback config set KEY VALUE`",
        "checks a value, then writes it and leaves the rest of the file, comments included, as it is; `clawback config list` shows what is set.",
    ]
    for name, about in sections().items():
        lines += ["", f"## `[{name}]`", "", " ".join(about.split()).replace("``", "`"), "", "| setting | default | takes | what it does |", "| --- | --- | --- | --- |"]  # fmt: skip
        for one in (one for one in settings() if one.key.startswith(f"{name}.")):
            default = f"`{shown(one.default)}`" if one.default is not None else "–"
            cells = (f"`{one.key.partition('.')[2]}`", default, one.allowed, one.meaning.replace("``", "`"))
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"

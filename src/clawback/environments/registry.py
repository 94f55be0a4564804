"""Resolves a name to an environment set.

``gymnasium:FrozenLake-v1?is_slippery=false`` is a kind that comes with Clawback, a member of it, and
settings. A name may also be a plugin's (entry point group ``clawback.environments``), or ``module:Name`` and
``file.py:Name`` for your own.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, cast

from clawback.environments import world_helpers
from clawback.environments.core import EnvironmentSet
from clawback.errors import ClawbackError, NotFound, UsageError
from clawback.plugins import BUILT_IN, WRAPPERS, built_in, load, load_value, others, require
from clawback.plugins import ENVIRONMENTS as GROUP

_GYMNASIUM_ID = re.compile(r"[\w/]*[A-Z][\w/-]*-v\d+")


@dataclass(frozen=True, slots=True)
class Kind:
    """A family of environment sets, as an extension registers it."""

    module: str
    """Has ``make(rest, settings)`` and ``names()``: what can stand after the colon, as far as that can be listed."""
    title: str
    example: str
    package: str = ""
    """What it needs beyond the base install; "" for nothing."""
    reply_tokens: int = 256
    """Tokens of a reply, where nobody says otherwise: a tool call as JSON fits."""

    @property
    def installed(self) -> bool:
        return not self.package or find_spec(self.package) is not None


OWN_REPLY_TOKENS = 128
"""Tokens of a reply in an environment of one's own, or of a plugin."""


REPLIES = "replies"
"""The setting of any environment that names the replies which are its actions."""


def reply_tokens(name: str) -> int:
    """How long a reply may be in the environment of this name, where nobody says otherwise."""
    head = name.partition("?")[0].partition(":")[0]
    return kind(head).reply_tokens if head in built_in(GROUP) else OWN_REPLY_TOKENS


if TYPE_CHECKING:
    from clawback.records import JsonObject

    KINDS: Mapping[str, Kind]
    """The kinds that come with Clawback, in the order in which they are shown."""


def __getattr__(name: str) -> Any:
    if name == "KINDS":  # when it is asked for: extensions register kinds by importing this module
        return {kind_name: kind(kind_name) for kind_name in built_in(GROUP)}
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def kind(name: str) -> Kind:
    """A kind that comes with Clawback. Raises ``NotFound`` where its extension is gone."""
    _require_extension(name)
    if name not in built_in(GROUP):
        raise _unknown(name)
    found: Kind = load_value(built_in(GROUP)[name])
    return found


def plugins() -> dict[str, str]:
    """Names that installed packages provide → where they come from."""
    return others(GROUP)


def names() -> list[str]:
    """Every kind and plugin."""
    return sorted({*built_in(GROUP), *plugins()})


def members(name: str) -> list[str]:
    """What can stand after ``name:``, as far as that can be listed; none for a kind that stands alone. Raises ``NotFound``, ``MissingExtra``."""
    if name not in built_in(GROUP):
        raise _unknown(name)
    return sorted(cast("list[str]", import_module(kind(name).module).names()))


def find(task: str, agent: str | None = None, *, seed: int = 0, shots: str = "") -> EnvironmentSet:
    """The environment set behind a name, or one made from a Gymnasium id by an agent of yours that puts it into words.

    Args:
        task: the name; ``?replies=A|B`` of any of them names the replies that are its actions.
        agent: ``module:class`` of such an agent.
        shots: how many worked examples each task begins with, or a file of them (``FewShot``).

    Raises ``NotFound`` and ``UsageError`` for a name that nobody provides, ``MissingExtra`` for what is not installed.
    """
    environments = _named(task) if agent is None else load(WRAPPERS, "agent")(task, agent, seed)
    if not shots:
        return environments
    from clawback.environments.shots import FewShot

    return FewShot(environments, shots, seed)


def _named(name: str) -> EnvironmentSet:
    bare, settings = split(name)
    replies = settings.pop(REPLIES, None)
    environments = _find(bare, settings)
    if replies is None:
        return environments
    from clawback.environments.named_replies import NamedReplies

    return NamedReplies(environments, str(replies).split("|"))


def _find(bare: str, settings: Mapping[str, object]) -> EnvironmentSet:
    head, _, rest = bare.partition(":")
    if head in built_in(GROUP):
        return cast(EnvironmentSet, import_module(kind(head).module).make(rest, settings))
    for point, value in plugins().items():
        if point in (bare, head):
            found = _load(point, value)
            if isinstance(found, Kind):
                return cast(EnvironmentSet, import_module(found.module).make(rest, settings))
            return _build(found, "" if point == bare else rest, settings, bare)
    _require_extension(head)
    if rest:
        try:
            if _GYMNASIUM_ID.fullmatch(rest):
                return cast(EnvironmentSet, import_module(kind("gymnasium").module).make(bare, settings))
            found = world_helpers.load_object(bare)
        except NotFound as error:
            raise (
                _unknown(head) if get_close_matches(head.lower(), names(), n=1, cutoff=0.8) else error
            ) from None
        return _build(found, "", settings, bare)
    raise _unknown(bare)


def split(name: str) -> tuple[str, JsonObject]:
    """The name without its settings, and those: ``a:b?n=3&x=left`` → ``("a:b", {"n": 3, "x": "left"})``."""
    bare, _, query = name.partition("?")
    settings: JsonObject = {}
    for piece in filter(None, query.split("&")):
        key, equals, value = piece.partition("=")
        if not equals or not key:
            raise UsageError(f"`{piece}` in `{name}` is no setting: write name?key=value&key=value.")
        try:
            settings[key] = json.loads(value)
        except ValueError:
            settings[key] = value
    return bare, settings


def _load(name: str, value: str) -> object:
    try:
        return load_value(value)
    except (ImportError, AttributeError) as error:
        raise ClawbackError(f"The plugin {name} ({value}) cannot be loaded: {error}.") from error


def _build(factory: object, rest: str, settings: Mapping[str, object], name: str) -> EnvironmentSet:
    """A set itself, or a class or function that makes one; what stands after the colon is its first argument. A class of Gymnasium's is one,
    too."""
    if "gymnasium" in built_in(GROUP):
        gymnasium = import_module(kind("gymnasium").module)
        if gymnasium.is_environment(factory):
            return cast(EnvironmentSet, gymnasium.of_class(factory, name, settings))
    if inspect.isclass(factory) or not isinstance(factory, EnvironmentSet):
        if not callable(factory):
            raise UsageError(
                f"`{name}` is no environment set: it has no name, tasks and make, and cannot be called."
            )
        arguments = [rest] if rest else []
        try:
            inspect.signature(factory).bind(*arguments, **settings)
        except TypeError as error:
            raise UsageError(f"`{name}` cannot be made with these settings: {error}.") from error
        factory = factory(*arguments, **settings)
    elif rest or settings:
        raise UsageError(f"`{name}` is an environment set as it stands and takes no settings.")
    if not isinstance(factory, EnvironmentSet):
        raise UsageError(f"`{name}` gave a {type(factory).__name__}, which has no name, tasks and make.")
    return factory


def _require_extension(name: str) -> None:
    """Raises ``NotFound`` for a kind that comes with Clawback and is not installed."""
    if name in BUILT_IN[GROUP]:
        require(GROUP, name, f"The environment `{name}`")


def _unknown(name: str) -> NotFound:
    near = get_close_matches(name.lower(), names(), n=1, cutoff=0.6)
    if _GYMNASIUM_ID.fullmatch(name):
        near = [f"gymnasium:{name}"]
    hint = f" Did you mean `{near[0]}`?" if near else ""
    return NotFound(f"There is no environment `{name}`.{hint} `clawback env list` shows what there is.")

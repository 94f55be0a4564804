"""Helpers that adapters share: seeds, telling an environment's faults from a policy's, and parsing an action from a reply."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from clawback import installed
from clawback.environments.core import EnvironmentFailure, EnvironmentSet, Split, Task
from clawback.errors import ClawbackError, MissingExtra, NotFound, UsageError

if TYPE_CHECKING:
    from clawback.records import JsonObject

T = TypeVar("T")
HELD_OUT_FROM = 1_000_000
"""Seeds of held-out tasks begin here, those of training tasks at 0."""
TRAIN_TASKS, TEST_TASKS = 1000, 100
MOST_REPLIES = 64
"""Actions beyond which nothing is drawn at random: they are rather texts than actions."""
_MARKER = re.compile(r"(?:<action>|\baction\b\s*(?:is|=|:))\s*", re.IGNORECASE)


def mixed(*parts: object) -> int:
    """One seed of 32 bits from several things; the same on every machine and in every run."""
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:4])


def seeded_tasks(name: str, split: Split, train: int = TRAIN_TASKS, test: int = TEST_TASKS) -> list[Task]:
    """Tasks that differ in their seed alone; no seed is in both splits."""
    first, count = (0, min(train, HELD_OUT_FROM)) if split == "train" else (HELD_OUT_FROM, test)
    return [Task(f"{name}/{n}", {"seed": n}, split) for n in range(first, first + count)]


def row_id(name: str, row: Mapping[str, object]) -> str:
    """A task's identity where all there is of it is a row of data."""
    text = json.dumps(row, sort_keys=True, ensure_ascii=False, default=str)
    return f"{name}/{hashlib.sha256(text.encode()).hexdigest()[:16]}"


@contextmanager
def faults(of: str) -> Iterator[None]:
    """Whatever somebody else's world raises within is a fault of the world: ``EnvironmentFailure``."""
    try:
        yield
    except ClawbackError:
        raise
    except Exception as error:
        raise EnvironmentFailure(f"{of} broke: {type(error).__name__}: {error}.") from error


def text(message: Mapping[str, object]) -> str:
    """What a reply says, without thoughts."""
    from clawback.records import text_of
    from clawback.thinking import split_thinking

    return split_thinking(text_of(message.get("content")))[1]


def choose(reply: str, options: Mapping[str, T]) -> T | None:
    """The option that a reply names; None where it names none, or several.

    What stands after the last ``Action:`` counts, the first option there; without such a mark the reply must name exactly one.

    >>> choose("I go left first.\\nAction: down", {"left": 0, "down": 1})
    1
    >>> choose("left or down?", {"left": 0, "down": 1}) is None
    True
    """
    by_name = {name.lower(): value for name, value in options.items()}
    names = "|".join(re.escape(name) for name in sorted(by_name, key=len, reverse=True))
    marks = list(_MARKER.finditer(reply))
    pattern = rf"(?<![\w.-])(?:{names})(?!\w|\.\d)"
    said = [
        found[0].lower()
        for found in re.finditer(pattern, reply[marks[-1].end() if marks else 0 :], re.IGNORECASE)
    ]
    if not said or (not marks and len({repr(by_name[name]) for name in said}) > 1):
        return None
    return by_name[said[0]]


def needed(module: str, for_what: str, extra: str = "") -> Any:
    """A package that only this world needs, by itself or by an extra of ours. Raises ``MissingExtra``."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module.partition(".")[0] and error.name != module:
            raise MissingExtra(
                f"{for_what} needs {error.name}, which is not installed: {installed.add_package(error.name or module)}"
            ) from error
        command = installed.add(extra) if extra else installed.add_package(module.replace("_", "-"))
        raise MissingExtra(f"{for_what} needs a package that is not installed: {command}") from error
    except Exception as error:
        raise not_importable(for_what, error) from error


def not_importable(name: str, error: Exception) -> MissingExtra:
    """What to say of a package of somebody else's that is there and does not open."""
    if isinstance(error, ModuleNotFoundError) and error.name:
        missing = error.name.partition(".")[0]
        return MissingExtra(
            f"{name} needs {missing}, which is not installed: {installed.add_package(missing)}"
        )
    return MissingExtra(f"{name} cannot be imported here: {type(error).__name__}: {error}")


def imported(name: str) -> Any:
    """A module by its name, or a file by its path. Your own code: it runs with your rights. Raises ``NotFound``, ``MissingExtra``."""
    return _file(Path(name)) if name.endswith(".py") else _module(name)


def load_object(reference: str) -> Any:
    """What ``module:Name`` or ``path/to/file.py:Name`` names. Your own code: it runs with your rights. Raises ``NotFound``."""
    where, _, name = reference.rpartition(":")
    if not where or not name:
        raise UsageError(f"`{reference}` names no object: write module:Name, or path/to/file.py:Name.")
    found = imported(where)
    for part in name.split("."):
        if not hasattr(found, part):
            raise NotFound(f"There is no {name} in {where}.")
        found = getattr(found, part)
    return found


def _module(name: str) -> object:
    sys.path[:0] = (
        [""] if "" not in sys.path else []
    )  # what lies in the current folder, as `python -m` finds it
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and name.startswith(error.name):
            raise NotFound(f"There is no Python module {name}.") from error
        raise not_importable(name, error) from error
    except Exception as error:
        raise not_importable(name, error) from error


def _file(path: Path) -> object:
    if not path.is_file():
        raise NotFound(f"There is no file {path}.")
    name = f"clawback_user_{hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:12]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look themselves up there
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def rows(path: Path) -> list[JsonObject]:
    """JSON lines, or one JSON list of objects. Raises ``NotFound``, ``UsageError``."""
    if not path.is_file():
        raise NotFound(f"There is no file {path}.")
    written = path.read_text("utf-8")
    try:
        if written.lstrip().startswith("["):
            found = json.loads(written)
        else:
            found = [json.loads(line) for line in written.splitlines() if line.strip()]
    except ValueError as error:
        raise UsageError(f"{path} is neither JSON nor JSON lines: {error}.") from error
    if not all(isinstance(row, dict) for row in found):
        raise UsageError(f"{path}: every row must be an object.")
    return list(found)


def unknown_settings(kind: str, settings: Mapping[str, object], known: Sequence[str]) -> None:
    """Raises ``UsageError`` where a setting is none of the known ones."""
    if extra := sorted(set(settings) - set(known)):
        has = f"It has: {', '.join(sorted(known))}." if known else "It has none."
        raise UsageError(f"{kind} has no setting `{extra[0]}`. {has}")


def full_name(kind: str, rest: str, settings: Mapping[str, object]) -> str:
    """The same name for the same world: settings in order, those that only bound the number of tasks left out."""
    told = [f"{k}={v if isinstance(v, str) else json.dumps(v)}" for k, v in sorted(settings.items())]
    return f"{kind}:{rest}" + (f"?{'&'.join(told)}" if told else "")


def member(kind: str, name: str, known: list[str], advice: str = "") -> str:
    """``name``, where it is known. Raises ``NotFound``, with the nearest that is, and ``advice``."""
    if name in known:
        return name
    near = get_close_matches(name, known, n=1, cutoff=0.6)
    hint = f" Did you mean `{kind}:{near[0]}`?" if near else ""
    wanted = f"There is no `{kind}:{name}`." if name else f"`{kind}:` needs a name after it."
    raise NotFound(
        " ".join(
            filter(None, (f"{wanted}{hint}", f"`clawback env list {kind}` shows what there is.", advice))
        )
    )


def share_out(labels: Mapping[str, object], held_out: float = 0.2) -> dict[Split, list[str]]:
    """The identities of a set's tasks, by split. ``labels``: identity → the split that the task names, if it names one.

    Tasks without a label are shared out by a hash of their identity, which no reordering and no further task changes. Where that
    leaves a split without any task, the nearest one by its hash moves there; a task that is alone is in both. ``held_out`` of 0 or 1
    asks for one split alone.

    >>> share_out({"only": ""})
    {'train': ['only'], 'test': ['only']}
    """
    bound = held_out * 1000
    free = {id: mixed(id) % 1000 for id, label in labels.items() if label not in ("train", "test")}
    split: dict[str, Split] = {id: "test" if label == "test" else "train" for id, label in labels.items()}
    split |= {id: "test" if hashed < bound else "train" for id, hashed in free.items()}
    sides: tuple[Split, Split] = ("train", "test")
    both = 0 < held_out < 1
    for side in sides if both else ():
        if side not in split.values() and len(split) > 1 and free:
            nearest = min(free, key=lambda id: (abs(free[id] - bound), id))
            split[nearest] = side
    shared = {side: [id for id, at in split.items() if at == side] for side in sides}
    if len(split) == 1 and free and both:
        return {side: list(split) for side in sides}
    return shared


def single_task_notice(environments: EnvironmentSet) -> str:
    """A sentence where the only task is in both splits; "" elsewhere."""
    train, test = environments.tasks("train"), environments.tasks("test")
    if len(train) == 1 == len(test) and train[0].id == test[0].id:
        return f"{environments.name} has one task, which is in both splits: what is measured on it is not held out."
    return ""


def split_rows(
    name: str, rows: Sequence[Mapping[str, Any]], held_out: float = 0.1
) -> dict[Split, list[Task]]:
    """Rows as tasks, shared out (``share_out``). The same row twice is one task; a name may be used in each split."""
    by_id: dict[str, list[Mapping[str, Any]]] = {}
    for row in {row_id(name, row): row for row in rows}.values():
        named = str(row["id"]) if row.get("id") not in (None, "") else row_id("", row)[1:]
        label = row.get("split")
        by_id.setdefault(f"{named}\0{label}" if label in ("train", "test") else named, []).append(row)
    shared = share_out({id: same[0].get("split") for id, same in by_id.items()}, held_out)
    return {
        split: [Task(f"{name}/{id.partition(chr(0))[0]}", row, split) for id in ids for row in by_id[id]]
        for split, ids in shared.items()
    }

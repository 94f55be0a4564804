"""The face of a room: the names that it offers to others, each imported from its module when somebody asks for it.

Importing a face is cheap, whatever its names need. The rest of a room is private (import-linter: "protected").
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def face(room: str, modules: Mapping[str, str]) -> tuple[list[str], Callable[[str], Any]]:
    """``__all__`` and ``__getattr__`` of a room.

    Args:
        modules: module within the room → the names that it adds to the face, with blanks between. A module's own name adds the module.
    """
    where = {name: module for module, names in modules.items() for name in names.split()}

    def offered(name: str) -> Any:
        if name not in where:
            raise AttributeError(f"module {room!r} has no attribute {name!r}")
        module = import_module(f"{room}.{where[name]}")
        return module if where[name].rpartition(".")[2] == name else getattr(module, name)

    return sorted(where), offered

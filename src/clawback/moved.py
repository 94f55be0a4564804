"""Old module names: rooms and modules that moved into ``clawback.extensions`` can be imported under both names.

An old name gives the same module, with a ``DeprecationWarning`` that says the new one. Files that an older version
wrote (a Flower project with ``from clawback.jobs.flower import …``) and programs of users go on working.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from importlib.machinery import ModuleSpec
    from types import ModuleType

MOVED: Mapping[str, str] = dict(
    line.split() for line in Path(__file__).with_name("moved_names.txt").read_text("ascii").splitlines()
)
"""Old name → new name, both below ``clawback``. A room's modules move with it. ``engine.recipe`` is a function now: an alias would replace it."""
_ROOT = "clawback."


def new_name(name: str) -> str:
    """The full name that a module has now; "" for one that did not move."""
    if not name.startswith(_ROOT):
        return ""
    head, tail = name[len(_ROOT) :], ""
    while head:
        if head in MOVED:
            return f"{_ROOT}{MOVED[head]}{tail}"
        head, dot, last = head.rpartition(".")
        tail = f"{dot}{last}{tail}"
    return ""


def renamed(module: str, former: Mapping[str, str], name: str) -> object:
    """What a module's attribute of this former name is called now; for its ``__getattr__``. ``former``: former name → present one."""
    if name not in former:
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    import warnings

    warnings.warn(f"{module}.{name} is {former[name]} now.", DeprecationWarning, stacklevel=3)
    return getattr(sys.modules[module], former[name])


class _Alias:
    """A finder and loader: an old name is the module of the new name."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:  # noqa: ARG002
        new = new_name(name)
        if not new:
            return None
        from importlib.machinery import ModuleSpec
        from importlib.util import find_spec

        there = find_spec(new)
        if there is None:
            return None
        package = there.submodule_search_locations is not None
        return ModuleSpec(name, self, origin=there.origin, is_package=package)  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        import warnings
        from importlib import import_module

        new = new_name(spec.name)
        warnings.warn(f"{spec.name} is {new} now.", DeprecationWarning, stacklevel=2)
        module = import_module(new)
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        # The import system has written the old name's spec into the module; its loader_state is the module's own.
        spec = module.__spec__
        if spec is not None and new_name(spec.name):
            module.__spec__ = spec.loader_state

    def get_code(self, name: str) -> object:
        """For ``python -m OLD.NAME``."""
        from importlib.util import find_spec

        spec = find_spec(new_name(name))
        get_code = getattr(spec.loader, "get_code", None) if spec else None
        return get_code(new_name(name)) if get_code else None


def install() -> None:
    """Make the old names importable. Called once, when ``clawback`` is imported."""
    sys.meta_path.insert(0, _Alias())

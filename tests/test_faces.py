"""The rooms that work on weights have a face each: what it offers is there, and costs nothing until somebody asks."""

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

ROOMS = ("learning", "models", "policy", "sampling", "scoring", "sources", "templates", "terminal", "trainer")


@pytest.mark.parametrize("room", ROOMS)
def test_everything_that_a_face_offers_is_there(room):
    face = importlib.import_module(f"clawback.{room}")
    folder = Path(face.__file__).parent
    for name in face.__all__:
        value = getattr(face, name)
        # A module of the room is set on the face when it is imported: no other name may be called like one.
        is_module = (folder / f"{name}.py").exists() or (folder / name).is_dir()
        assert not is_module or value is sys.modules[f"clawback.{room}.{name}"]
    with pytest.raises(AttributeError, match="nothing_of_the_kind"):
        _ = face.nothing_of_the_kind


@pytest.mark.parametrize("room", ROOMS)
def test_type_checkers_read_the_names_that_others_import(room):
    face = importlib.import_module(f"clawback.{room}")
    tree = ast.parse(Path(face.__file__).read_text("utf-8"))
    [checked] = [node for node in tree.body if isinstance(node, ast.If)]
    typed = {alias.name for node in checked.body for alias in node.names}
    here = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)} | {"MLX"}
    modules = {
        name for name in face.__all__ if getattr(face, name) is sys.modules.get(f"clawback.{room}.{name}")
    }
    assert typed - modules == set(face.__all__) - modules - here


def test_a_face_imports_nothing_heavy():
    code = (
        f"import sys; from clawback import engine, {', '.join(ROOMS)}; from clawback.models import ModelInfo; "
        "print(sorted({'torch', 'transformers', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

"""The public face: every exported name is there, and importing it costs nothing heavy."""

import subprocess
import sys

import clawback


def test_every_exported_name_exists() -> None:
    assert all(getattr(clawback, name) is not None for name in clawback.__all__)


def test_importing_clawback_imports_nothing_heavy() -> None:
    code = "import clawback, sys; print(sorted({'torch', 'click', 'rich', 'sqlite3', 'msgspec'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_rating_does_not_import_what_only_training_needs() -> None:
    code = (
        "import sys; from clawback.cli import main; code = main(['good']); "
        "print(code, sorted({'torch', 'rich', 'numpy', 'psutil', 'tomlkit'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "2 []", "nothing to rate yet: wrong usage, said at once"
    assert "no captured turn" in done.stderr

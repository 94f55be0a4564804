"""A virtual environment for each peer, made once and kept in a cache folder.

Those that run models get the versions of torch, transformers and PEFT that Clawback runs with here, so that they are compared and
not the libraries under them. Clawback trains in one of its own too, with what its extra ``train`` brings and no more: transformers imports
what it finds (scipy, scikit-learn), and a developer's environment has all of it.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).parents[2]
PEERS = {
    "clawback": [f"{ROOT}[train]"],
    "reinforceclaw": ["reinforceclaw==0.1.0"],
    "trl": ["trl==1.16.*"],
    "litellm": ["litellm[proxy]"],
    "transformers": ["transformers[serving]", "accelerate"],
    "gepa": ["gepa==0.1.4"],
    "dspy": ["dspy[optuna]==3.4.1", "numpy"],
}
TRAINERS = ("clawback", "reinforceclaw", "trl", "transformers")
SHARED = ("torch", "transformers", "peft", "numpy")


def cache_folder() -> Path:
    """``$XDG_CACHE_HOME/clawback-benchmarks``; venvs of about 2 GB and models of 0.4 GB."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "clawback-benchmarks"


def python_of(peer: str, cache: Path) -> Path:
    """The Python of a peer's venv, which is made now if it is not there or was made for other versions."""
    shared = SHARED if peer in TRAINERS else ()
    key = wanted = [*PEERS[peer], *(f"{name}=={version(name).partition('+')[0]}" for name in shared)]
    if peer == "clawback":
        key = [(ROOT / "pyproject.toml").read_text("utf-8"), *wanted]
    folder = cache / "venvs" / f"{peer}-{hashlib.sha256(' '.join(key).encode()).hexdigest()[:10]}"
    python, done = folder / "bin" / "python", folder / ".installed"
    if not done.exists():
        print(f"Making a venv for {peer} (once): {' '.join(wanted)} …", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, *wanted], check=True, stdout=sys.stderr)
        done.touch()
    return python


def installed(python: Path, *names: str) -> dict[str, str]:
    """Versions of distributions in that venv, as they are and not as they were asked for."""
    code = "import importlib.metadata as m, sys; print(*map(m.version, sys.argv[1:]))"
    out = subprocess.run([str(python), "-c", code, *names], check=True, capture_output=True, text=True)
    return dict(zip(names, out.stdout.split(), strict=True))

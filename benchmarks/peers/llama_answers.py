"""Answers of the real llama.cpp to given prompts, for ``python -m benchmarks merged_gguf``: run by the Python of a venv that has ``llama-cpp-python``.

    PYTHON benchmarks/peers/llama_answers.py MODEL.gguf TOKENS.json

``TOKENS.json``: ``{"prompts": [[id, …], …], "max_tokens", "rows", "temperature", "top_k", "top_p", "seed", "stop": [id, …]}``. Prints JSON: the token ids of
an answer to each prompt, its stop token among them, if it came. With ``"answers": [[id, …], …]`` it prints the sum of each one's log-probs at that temperature in place of them.
"""

from __future__ import annotations

import ctypes
import json
import sys
from pathlib import Path
from typing import Any

import llama_cpp as ll
import numpy as np
from llama_batched import fill

READ_TOKENS = 2048
"""Tokens of a batch, at most: a prompt has fewer."""


def main(path: str, work: str) -> None:
    job: dict[str, Any] = json.loads(Path(work).read_text("utf-8"))
    quiet = ll.llama_log_callback(lambda *_: None)
    ll.llama_log_set(quiet, ctypes.c_void_p(0))
    ll.llama_backend_init()
    model = ll.llama_model_load_from_file(path.encode(), ll.llama_model_default_params())
    if not model:
        raise SystemExit(f"llama.cpp cannot load {path}.")
    context = ll.llama_init_from_model(model, settings_of(job))
    if "answers" in job:
        pairs = zip(job["prompts"], job["answers"], strict=True)
        print(json.dumps([logprob(context, *pair, job["temperature"]) for pair in pairs]))
        return
    sampler = sampler_of(job)
    answers: list[list[int]] = []
    for first in range(0, len(job["prompts"]), job["rows"]):
        answers += draw(context, sampler, job["prompts"][first : first + job["rows"]], job)
    print(json.dumps(answers))


def settings_of(job: dict[str, Any]) -> Any:
    settings = ll.llama_context_default_params()
    longest = max(map(len, job["prompts"])) + job["max_tokens"]
    settings.n_ctx, settings.n_batch, settings.n_ubatch = job["rows"] * longest, READ_TOKENS, 512
    settings.n_seq_max, settings.n_threads, settings.n_threads_batch = job["rows"], 1, 1
    return settings


def sampler_of(job: dict[str, Any]) -> Any:
    """In the order of transformers and of ours: the temperature first, then what cuts the tail off."""
    chain = ll.llama_sampler_chain_init(ll.llama_sampler_chain_default_params())
    ll.llama_sampler_chain_add(chain, ll.llama_sampler_init_temp(job["temperature"]))
    if job["top_k"]:
        ll.llama_sampler_chain_add(chain, ll.llama_sampler_init_top_k(job["top_k"]))
    if job["top_p"] < 1:
        ll.llama_sampler_chain_add(chain, ll.llama_sampler_init_top_p(job["top_p"], 1))
    ll.llama_sampler_chain_add(chain, ll.llama_sampler_init_dist(job["seed"]))
    return chain


def draw(context: Any, sampler: Any, prompts: list[list[int]], job: dict[str, Any]) -> list[list[int]]:
    """An answer to each prompt, all of them at once, each until it stops."""
    ll.llama_memory_clear(ll.llama_get_memory(context), True)
    batch = ll.llama_batch_init(READ_TOKENS, 0, 1)
    answers: list[list[int]] = []
    for row, prompt in enumerate(prompts):
        fill(batch, [(token, place, row, place == len(prompt) - 1) for place, token in enumerate(prompt)])
        decode(context, batch)
        answers.append([ll.llama_sampler_sample(sampler, context, -1)])
    while going := [row for row, answer in enumerate(answers) if goes_on(answer, job)]:
        places = [len(prompts[row]) + len(answers[row]) - 1 for row in going]
        fill(batch, [(answers[row][-1], place, row, True) for row, place in zip(going, places, strict=True)])
        decode(context, batch)
        for output, row in enumerate(going):
            answers[row].append(ll.llama_sampler_sample(sampler, context, output))
    ll.llama_batch_free(batch)
    return answers


def logprob(context: Any, prompt: list[int], answer: list[int], temperature: float) -> float:
    """The sum over the answer's tokens, each after what stands before it."""
    ll.llama_memory_clear(ll.llama_get_memory(context), True)
    ids = [*prompt, *answer[:-1]]
    batch = ll.llama_batch_init(READ_TOKENS, 0, 1)
    fill(batch, [(token, place, 0, place >= len(prompt) - 1) for place, token in enumerate(ids)])
    decode(context, batch)
    words = ll.llama_vocab_n_tokens(ll.llama_model_get_vocab(ll.llama_get_model(context)))
    total = 0.0
    for output, token in enumerate(answer):
        place = len(prompt) - 1 + output
        logits = np.ctypeslib.as_array(ll.llama_get_logits_ith(context, place), (words,)) / temperature
        total += float(logits[token] - logits.max() - np.log(np.exp(logits - logits.max()).sum()))
    ll.llama_batch_free(batch)
    return total


def goes_on(answer: list[int], job: dict[str, Any]) -> bool:
    return len(answer) < job["max_tokens"] and answer[-1] not in job["stop"]


def decode(context: Any, batch: Any) -> None:
    if ll.llama_decode(context, batch):
        raise SystemExit("llama.cpp could not decode.")


if __name__ == "__main__":
    main(*sys.argv[1:])

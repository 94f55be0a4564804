"""llama.cpp's batched decoding, for ``python -m benchmarks drawing --llama-cpp``: run by the Python of a venv that has ``llama-cpp-python``.

    PYTHON benchmarks/peers/llama_batched.py MODEL.gguf TOKENS.json

``TOKENS.json``: ``{"prompts": [[id, …], …], "samples": 4, "max_tokens": 128, "rows": 64, "temperature", "top_k", "top_p"}``. The model is stored at 16 bits
first (float16 and bfloat16). Prints JSON: by format, tokens a CPU second of decoding alone, as llama.cpp's own benchmark counts them, and with sampling.
"""

from __future__ import annotations

import ctypes
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import llama_cpp as ll

FORMATS = {"float16": ll.LLAMA_FTYPE_MOSTLY_F16, "bfloat16": ll.LLAMA_FTYPE_MOSTLY_BF16}


def main(model: str, work: str) -> None:
    job: dict[str, Any] = json.loads(Path(work).read_text("utf-8"))
    quiet = ll.llama_log_callback(lambda *_: None)
    ll.llama_log_set(quiet, ctypes.c_void_p(0))
    ll.llama_backend_init()
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, kind in FORMATS.items():
            stored = f"{folder}/{name}.gguf"
            settings = ll.llama_model_quantize_default_params()
            settings.ftype, settings.allow_requantize, settings.nthread = kind, True, 1
            if ll.llama_model_quantize(model.encode(), stored.encode(), ctypes.byref(settings)):
                raise SystemExit(f"{model} cannot be stored as {name}.")
            loaded = ll.llama_model_load_from_file(stored.encode(), ll.llama_model_default_params())
            for sampled in (False, True):
                found[f"{name}{', sampled' if sampled else ''}"] = rate(loaded, job, sampled)
            ll.llama_model_free(loaded)
    print(json.dumps(found))


def rate(model: Any, job: dict[str, Any], sampled: bool) -> float:
    """Tokens a CPU second, prompts read beforehand included; each prompt once, its cache copied to the other answers."""
    samples, rows = job["samples"], job["rows"]
    settings = ll.llama_context_default_params()
    longest = max(map(len, job["prompts"])) + job["max_tokens"]
    settings.n_ctx, settings.n_batch, settings.n_ubatch = rows * longest, 2048, 512
    settings.n_seq_max, settings.n_threads, settings.n_threads_batch = rows, 1, 1
    context = ll.llama_init_from_model(model, settings)
    sampler = chain(job)
    tokens, started = 0, time.process_time()
    for first in range(0, len(job["prompts"]), rows // samples):
        tokens += draw(
            context, sampler if sampled else None, job["prompts"][first : first + rows // samples], job
        )
    spent = time.process_time() - started
    ll.llama_sampler_free(sampler)
    ll.llama_free(context)
    return round(tokens / spent, 1)


def chain(job: dict[str, Any]) -> Any:
    made = ll.llama_sampler_chain_init(ll.llama_sampler_chain_default_params())
    if job["top_k"]:
        ll.llama_sampler_chain_add(made, ll.llama_sampler_init_top_k(job["top_k"]))
    if job["top_p"] < 1:
        ll.llama_sampler_chain_add(made, ll.llama_sampler_init_top_p(job["top_p"], 1))
    ll.llama_sampler_chain_add(made, ll.llama_sampler_init_temp(job["temperature"]))
    ll.llama_sampler_chain_add(made, ll.llama_sampler_init_dist(0))
    return made


def draw(context: Any, sampler: Any, prompts: list[list[int]], job: dict[str, Any]) -> int:
    """Every row to ``max_tokens``; without a sampler a fixed token is put in, and nothing is chosen."""
    memory = ll.llama_get_memory(context)
    ll.llama_memory_clear(memory, True)
    samples, batch = job["samples"], ll.llama_batch_init(max(2048, job["rows"]), 0, 1)
    places, last, outputs = [], [], []
    for number, prompt in enumerate(prompts):
        fill(
            batch,
            [
                (token, place, number * samples, place == len(prompt) - 1)
                for place, token in enumerate(prompt)
            ],
        )
        if ll.llama_decode(context, batch):
            raise SystemExit("llama.cpp could not read a prompt.")
        chosen = [ll.llama_sampler_sample(sampler, context, -1) if sampler else 100 for _ in range(samples)]
        for i in range(1, samples):
            ll.llama_memory_seq_cp(memory, number * samples, number * samples + i, -1, -1)
        last += chosen
        places += [len(prompt)] * samples
    for step in range(job["max_tokens"] - 1):
        fill(batch, [(last[row], places[row] + step, row, True) for row in range(len(last))])
        if ll.llama_decode(context, batch):
            raise SystemExit("llama.cpp could not decode.")
        outputs = range(len(last))
        last = [ll.llama_sampler_sample(sampler, context, row) if sampler else 100 + step for row in outputs]
    ll.llama_batch_free(batch)
    return len(last) * job["max_tokens"]


def fill(batch: Any, rows: list[tuple[int, int, int, bool]]) -> None:
    batch.n_tokens = len(rows)
    for i, (token, place, sequence, wanted) in enumerate(rows):
        batch.token[i], batch.pos[i], batch.n_seq_id[i] = token, place, 1
        batch.seq_id[i][0], batch.logits[i] = sequence, wanted


if __name__ == "__main__":
    main(*sys.argv[1:])

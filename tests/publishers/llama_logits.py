"""Run by the Python that has llama_cpp: real llama.cpp's log-probs of given tokens, as JSON.

stdin: ``{"model": FILE, "rows": [{"prompt": [ids], "response": [ids]}]}``; stdout, a row each: the log-prob of every response token, and
the most likely one in its place.
"""

import json
import sys

import llama_cpp
import numpy as np


def main() -> None:
    asked = json.load(sys.stdin)
    model = llama_cpp.Llama(
        asked["model"], logits_all=True, n_ctx=256, n_threads=1, n_threads_batch=1, verbose=False
    )
    rows = []
    for row in asked["rows"]:
        model.reset()
        model.eval(row["prompt"] + row["response"])
        first, last = len(row["prompt"]) - 1, len(row["prompt"]) + len(row["response"]) - 1
        logits = np.array(model.scores[first:last], dtype=np.float64)
        top = logits.max(-1, keepdims=True)
        logprobs = logits - top - np.log(np.exp(logits - top).sum(-1, keepdims=True))
        rows.append(
            {
                "logprobs": [float(logprobs[i, token]) for i, token in enumerate(row["response"])],
                "top": [int(token) for token in logits.argmax(-1)],
            }
        )
    json.dump(rows, sys.stdout)


main()

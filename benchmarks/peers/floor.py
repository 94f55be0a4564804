"""The least time that the work can take on this machine: its FLOPs over the rate at which it multiplies matrices.

What a run of LoRA training has to compute, with T tokens of which R are of responses (in all turns), L layers of
hidden size h, key and value width k, feed-forward width f, a vocabulary of V, rank r and one multiply-add as 2 FLOPs:

    weights of a layer       P = 2h² + 2hk + 3hf             (query and output, key and value, gate, up and down)
    forward of the layers    2·T·L·P
    attention, causal        2·h·Σ l(l+1)·L                  over turns of l tokens: scores and their use
    head                     2·R·h·V                         response tokens only
    adapter forward          2·T·L·r·(9h + 2k + 3f)          on every linear map: A reads its input, B writes its output

    reference                layers + attention + head, once a turn
    policy forward           layers + attention + head + adapter, each pass
    policy backward          layers − 2·T·(h² + 2hk) + 2·attention + head + 2·adapter, each pass

The backward of a frozen weight is the gradient of its input alone, as dear as its forward; there is no gradient of the
weight itself, and none of the input of the first layer's query, key and value, since nothing below them is trained.
Softmax, norms, rotations, activations and the optimizer are left out, as is what memory costs: a floor, not a forecast.

Two things could go below it: the last layer needs its query, output and feed-forward at response tokens only (not done
by anybody here, and counted as if needed), and the reference of the very first step equals the policy.

As a script (``floor.py job.json``) it measures the rates, at the shapes of the work.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchmarks.peers.workload import Workload

TILE = 2048
"""Columns of the vocabulary at a time, in the other way to compute the head."""


def flops(work: Workload) -> dict[str, float]:
    """FLOPs of the whole run, by the shape of the multiplication that they are done in."""
    h, layers, r = work.hidden, work.layers, work.rank
    k = h * work.kv_heads // work.heads
    tokens, response = work.tokens, work.response_tokens
    weights = 2 * h * h + 2 * h * k + 3 * h * work.intermediate
    base = 2 * tokens * layers * weights
    attention = 2 * h * layers * sum((a + b) * (a + b + 1) for a, b in work.lengths())
    head = 2 * response * h * work.vocabulary
    adapter = 2 * tokens * layers * r * (9 * h + 2 * k + 3 * work.intermediate)
    backward = base - 2 * tokens * (h * h + 2 * h * k)
    return {
        "layers": base + work.passes * (base + backward),
        "attention": attention + work.passes * 3 * attention,
        "adapter": work.passes * 3 * adapter,
        "head": (1 + work.passes) * head,
        "head_backward": work.passes * head,
    }


def floor_seconds(parts: dict[str, float], rates: dict[str, float]) -> float:
    """Attention and adapter are taken at the rate of the layers, which is more than they reach."""
    return sum(amount / rates.get(part, rates["layers"]) for part, amount in parts.items())


def main() -> None:
    import torch
    from meter import read_job, write_result

    job = read_job()
    shapes: dict[str, tuple[int, int, int]] = {name: tuple(shape) for name, shape in job["shapes"].items()}

    def rate(m: int, k: int, n: int, dtype: torch.dtype, transposed: bool, onednn: bool, tile: int) -> float:
        """FLOP a second of [m, k] × [k, n], the best of several: others use this machine too. By ``tile`` columns of b (rows, if it is not transposed)
        at a time, where there is one: a product of the whole vocabulary is bound by the memory that it is written to."""
        a = torch.randn(m, k, dtype=dtype)
        b = torch.randn(n, k, dtype=dtype).t() if transposed else torch.randn(k, n, dtype=dtype)
        pairs = [(a, b)]
        if tile and transposed:
            pairs = [(a, part) for part in b.split(tile, 1)]
        elif tile:
            pairs = list(zip(a.split(tile, 1), b.split(tile, 0), strict=True))
        outs = [torch.empty(m, right.shape[1], dtype=dtype) for _, right in pairs[:1]] * len(pairs)
        if pairs[-1][1].shape[1] != outs[-1].shape[1]:
            outs[-1] = outs[-1][:, : pairs[-1][1].shape[1]].contiguous()
        clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
        best, began = float("inf"), time.perf_counter()
        while time.perf_counter() - began < job["seconds"]:
            start = clock()
            for (left, right), out in zip(pairs, outs, strict=True):
                if onednn:
                    torch.ops.mkldnn._linear_pointwise(left, right.t(), None, "none", [], "")
                else:
                    torch.mm(left, right, out=out)
            best = min(best, clock() - start)
        return 2 * m * k * n / best

    def rates(dtype: torch.dtype, onednn: bool, tile: int = 0) -> dict[str, float]:
        # A layer and the head read weights as they are stored, [out, in]; the backward of the head does not.
        return {
            part: rate(*shape, dtype, part != "head_backward", onednn, tile * (part != "layers"))
            for part, shape in shapes.items()
        }

    def best(*found: dict[str, float]) -> dict[str, float]:
        return {part: max(rates[part] for rates in found) for part in shapes}

    # float32 goes through MKL by default; oneDNN, in the same torch, may be quicker. The floor takes the better.
    plain = rates(torch.float32, False)
    result: dict[str, Any] = {
        "float32": best(plain, rates(torch.float32, True), rates(torch.float32, True, TILE)),
        "bfloat16": best(rates(torch.bfloat16, False), rates(torch.bfloat16, False, TILE)),
        "float32 by torch.mm": plain,
    }
    write_result(job, result)


if __name__ == "__main__":
    main()

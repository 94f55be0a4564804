"""Clawback's own training run, through its public calls: ``engine.load``, ``engine.recipe``, ``engine.train``.

Run by the Python that has it: ``clawback_engine.py job.json``. The algorithm is MIS-PO, as ReinforceClaw's is. Nothing is
switched off: the time holds tokenization, reference, training, checkpoints and the saving of the adapter.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from meter import Loop, gradients, read_job, same_adapter, write_result


def main() -> None:
    job = read_job()
    from torch.optim.optimizer import register_optimizer_step_pre_hook

    from clawback import engine
    from clawback.models.types import Sampling
    from clawback.records import Sample

    policy = engine.load(job["model"], dtype=job["dtype"])
    policy.sampling = Sampling(1.0)  # as the others, whose log-probs know no temperature
    samples = [
        Sample(
            turn_id=number + 1,
            messages=({"role": "user", "content": row["prompt"]},),
            response=row["response"],
            reward=float(row["rating"]),
        )
        for number, row in enumerate(job["rows"])
    ]
    overrides = {
        "steps": job["steps"],
        "batch": job["batch"],
        "accumulation": 1,
        "rank": job["rank"],
        "alpha": job["rank"],
        "learning_rate": job["learning_rate"],
    }
    seen: dict[str, Any] = {}
    if job["check"]:
        # A baseline that does not move within the batch, and no clipping before the gradient is looked at.
        overrides |= {"ema_decay": 1.0, "grad_clip": 1e9}
        policy.attach(rank=job["rank"], alpha=job["rank"], seed=0)
        same_adapter(policy.model)
        with policy.base():
            found = policy.logprobs([s.messages for s in samples], [s.response for s in samples])
        seen["logprobs"] = {str(s.turn_id): values.tolist() for s, values in zip(samples, found, strict=True)}
        register_optimizer_step_pre_hook(
            lambda *_: seen.setdefault("gradients", gradients(policy.model)) and None
        )
    recipe = engine.recipe(policy.info, "balanced", "mis-po", overrides)

    loop = Loop()
    loop.start()
    result = engine.train(policy, samples, recipe, seed=0, out=Path(job["work"]) / "run")
    loop.stop()
    if result.stopped:
        raise SystemExit(f"The run ended early: {result.stopped}")
    encoded = [policy.encode(sample) for sample in samples]
    response = sum(len(one.response) for one in encoded)
    write_result(
        job,
        {
            "loop": loop.result(),
            "steps": result.steps,
            "samples": result.steps * job["batch"],
            "losses": [row["loss"] for row in result.history],
            "tokens": response + sum(len(one.prompt) for one in encoded),
            "response_tokens": response,
            **seen,
        },
    )


if __name__ == "__main__":
    main()

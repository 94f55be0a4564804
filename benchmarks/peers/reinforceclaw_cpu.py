"""ReinforceClaw's own trainer on a CPU: its loop as installed, patched from outside only where it refuses to start.

Run by the Python of its venv: ``reinforceclaw_cpu.py job.json``. What is patched, and why:

* ``CUDABackend`` is what it trains with on Linux, and it raises without CUDA. A subclass answers its questions about
  the device (name, memory, preferred dtype) for the CPU. Memory is stated as 64 GB, so that the plan is never cut down
  to fewer samples or steps than the other systems do.
* Three of its functions are wrapped to take the time, and do nothing else: the loop begins where it loads the batch
  (the model is loaded by then) and ends where it stages the folder to save in.

Everything else is its configuration. Its run trains ``batch_size`` ratings, a step takes ``grad_accum`` of them one at
a time; both are set to what the other systems do. ``low_priority`` and the background path (which reloads the model
every two steps) are off: it is the loop that is measured.
"""

from __future__ import annotations

import json
import os
import tempfile
from functools import wraps
from pathlib import Path
from typing import Any

from meter import Loop, gradients, read_job, same_adapter, write_result

GB = 2**30


def main() -> None:
    job = read_job()
    home = tempfile.mkdtemp(dir=job["work"])
    os.environ["HOME"] = home  # its state lives in ~/.reinforceclaw, decided at import

    import torch
    from reinforceclaw import db, trainer
    from reinforceclaw.backend_cuda import CUDABackend, CUDAHardware

    class CPUBackend(CUDABackend):
        """The same backend, about another device; ``name`` stays, because the trainer chooses its path by it."""

        def __init__(self) -> None:
            self.torch = torch
            self.device = torch.device("cpu")

        def hardware(self) -> CUDAHardware:
            return CUDAHardware("cpu", 64 * GB, 64 * GB, 64 * GB, 64 * GB)

        def preferred_dtype(self) -> torch.dtype:
            return getattr(torch, job["dtype"])

        def _nothing(self, *_: Any, **__: Any) -> int:
            return 0

        active_memory_bytes = cache_memory_bytes = peak_memory_bytes = current_memory_bytes = _nothing
        apply_limits = reset_peak_memory = clear_cache = synchronize = _nothing

    trainer.CUDABackend = CPUBackend

    loop = Loop()
    seen: dict[str, Any] = {}

    def before(name: str, action: Any) -> None:
        original = getattr(trainer, name)

        @wraps(original)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            action(*args)
            return original(*args, **kwargs)

        setattr(trainer, name, wrapped)

    def note_tokens(model: Any, tokenized: Any, ref_logprobs: Any, *_: Any) -> None:
        seen["tokens"] = sum(len(item["input_ids"]) for item in tokenized)
        seen["response_tokens"] = sum(len(item["input_ids"]) - item["response_start"] for item in tokenized)
        if job["check"]:
            same_adapter(model)
            seen["logprobs"] = {
                str(item["id"]): ref[item["response_start"] - 1 :].tolist()
                for item, ref in zip(tokenized, ref_logprobs, strict=True)
            }
            clip = torch.nn.utils.clip_grad_norm_

            def record(*args: Any, **kwargs: Any) -> Any:
                seen.setdefault("gradients", gradients(model))
                return clip(*args, **kwargs)

            torch.nn.utils.clip_grad_norm_ = record

    before("_load_batch", lambda *_: loop.start())
    before("_make_loss_fn_torch", note_tokens)
    before("_stage_adapter_dir", lambda *_: loop.stop())

    connection = db.connect(Path(home) / ".reinforceclaw" / "reinforceclaw.db")
    for number, row in enumerate(job["rows"]):
        db.add_feedback(
            connection, job["model"], row["prompt"], row["response"], row["rating"], event_id=str(number)
        )
    rows = len(job["rows"])
    result = trainer.train_result(
        {
            "model": job["model"],
            "compute_backend": "cuda",
            "loss_fn": "mis-po",
            "lora_rank": job["rank"],
            "lora_alpha": job["rank"],
            "lora_target": "attention+mlp",  # any name but its three own means both: every linear map of a layer
            "batch_min": rows,
            "batch_size": rows,
            "steps": job["steps"],
            "grad_accum": job["batch"],
            "lr": job["learning_rate"],
            # The documented maths (EMA baseline and positive weight, no z-scoring), with the "balanced" figures.
            "adv_norm": False,
            "kl_coeff": 0.001,
            "traj_clip": [0.994, 1.002],
            "pos_weight": 1.2,
            "low_priority": False,
        },
        connection,
    )
    log = Path(home) / ".reinforceclaw" / "train.log"
    if result.get("status") != "trained" or result["steps"] != job["steps"] or result["batch_size"] != rows:
        raise SystemExit(
            f"It did not do the work that was asked for: {result}\n{log.read_text('utf-8')[-4000:]}"
        )
    events = [json.loads(line) for line in log.read_text("utf-8").splitlines()]
    write_result(
        job,
        {
            "loop": loop.result(),
            "steps": result["steps"],
            "samples": job["steps"] * job["batch"],
            "losses": [event["loss"] for event in events if event["event"] == "opt_step"],
            **seen,
        },
    )


if __name__ == "__main__":
    main()

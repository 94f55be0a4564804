"""GEPA 0.1.4 by its own API, with its defaults. Run by the Python of its venv (``prompt_pipe``)."""

from __future__ import annotations

from typing import Any

from gepa.api import optimize
from gepa.core.adapter import EvaluationBatch
from prompt_pipe import connect


def main() -> None:
    job, ask = connect()

    class Adapter:
        propose_new_texts = None

        def evaluate(self, batch: list[Any], candidate: dict[str, str], capture_traces: bool = False) -> Any:
            made = ask("try", [[candidate["system"], item["id"]] for item in batch])
            scores, outputs = [score for score, _, _ in made], [text for _, _, text in made]
            return EvaluationBatch(outputs, scores, list(zip(batch, made, strict=True)) if capture_traces else None)  # fmt: skip

        def make_reflective_dataset(self, candidate: Any, batch: Any, components: list[str]) -> dict[str, Any]:  # noqa: ARG002  # fmt: skip
            rows = [
                {"Inputs": item["question"], "Generated Outputs": text, "Feedback": words or f"score {score}"}
                for item, (score, words, text) in batch.trajectories
            ]
            return dict.fromkeys(components, rows)

    class Quiet:
        def log(self, message: str) -> None:
            pass

    found = optimize(
        {"system": job["start"]},
        job["train"],
        job["validation"],
        Adapter(),
        reflection_lm=lambda prompt: ask("reflect", prompt if isinstance(prompt, str) else prompt[-1]["content"]),
        max_metric_calls=job["calls"],
        seed=job["seed"],
        logger=Quiet(),
        **job["options"],
    )  # fmt: skip
    rows = zip(found.candidates, found.discovery_eval_counts, found.val_aggregate_scores, strict=True)
    ask("done", [{"text": one["system"], "calls": calls, "score": score} for one, calls, score in rows])


main()

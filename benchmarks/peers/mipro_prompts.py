"""MIPROv2 of dspy 3.4.1, instructions alone, every trial on the whole validation set. Run by the Python of its venv (``prompt_pipe``).

Few-shot examples are left out: a prompt is what is compared here. For the same reason none are made for its proposer to look at, which would cost it half of the
tries. Answers are cached, as dspy does with a real model: a prompt that is looked at again costs nothing. As many instructions are proposed as the budget can try.
The proposer is asked as dspy asks, and the world says what the model would suggest; it never sees what was said about answers, so it cannot
put together what several of them ask for.
"""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import dspy
from prompt_pipe import connect

JOB, ASK = connect()
BY_QUESTION = {one["question"]: one["id"] for one in (*JOB["train"], *JOB["validation"])}
VALIDATION = [one["id"] for one in JOB["validation"]]
TRIED: dict[tuple[str, str], tuple[float, str, str]] = {}
"""(prompt, item) → what came of it; kept here, because dspy copies its models."""
SCORES: dict[tuple[str, str], float] = {}
"""(question, answer) → score."""
FOUND: list[dict[str, Any]] = []
"""Prompts that were tried on all of the validation items, with the tries until then."""
_FIELD = re.compile(r"\[\[ ## (\w+) ## \]\]")


class Model(dspy.BaseLM):  # type: ignore[misc]
    """The world as a language model of dspy's."""

    def __init__(self, task: bool) -> None:
        super().__init__(model="task" if task else "prompt", temperature=1.0, max_tokens=1000, cache=False)
        self.task = task

    def forward(self, prompt: str | None = None, messages: list[dict[str, Any]] | None = None, **_: Any) -> Any:  # fmt: skip
        texts = [str(m["content"]) for m in messages or [{"content": prompt}]]
        said = self.answered(texts) if self.task else self.suggested(texts)
        usage = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
        choice = SimpleNamespace(message=SimpleNamespace(content=said, tool_calls=None), finish_reason="stop")
        return SimpleNamespace(choices=[choice], usage=usage, model=self.model)

    def answered(self, texts: list[str]) -> str:
        question = next(q for q in BY_QUESTION if q in texts[-1])
        instruction = plain(texts[0].partition("your objective is:")[2])
        score, _, said = tried(instruction, BY_QUESTION[question])
        SCORES[question, said.strip()] = score
        return f"[[ ## answer ## ]]\n{said}\n\n[[ ## completed ## ]]"

    def suggested(self, texts: list[str]) -> str:
        """An instruction where one is asked for, a word for all else (what the data is like, what the program does)."""
        wanted = _FIELD.findall(texts[-1].rpartition("Respond with")[2])
        fields = [name for name in wanted if name != "completed"]
        made = {name: ASK("suggest") if "instruction" in name else "As it says." for name in fields}
        return "".join(f"[[ ## {name} ## ]]\n{text}\n\n" for name, text in made.items()) + "[[ ## completed ## ]]"  # fmt: skip


def tried(prompt: str, item: str) -> tuple[float, str, str]:
    """What came of it, paid for once. A prompt that is looked at on validation is looked at on all of it (``minibatch=False``), so all is asked for at once."""
    if (prompt, item) not in TRIED:
        items = VALIDATION if item in VALIDATION else [item]
        for one, made in zip(items, ASK("try", [[prompt, one] for one in items]), strict=True):
            TRIED[prompt, one] = tuple(made)
        scores = [TRIED[prompt, one][0] for one in VALIDATION if (prompt, one) in TRIED]
        if item in VALIDATION and len(scores) == len(VALIDATION):
            FOUND.append({"text": prompt, "calls": len(TRIED), "score": sum(scores) / len(scores)})
    return TRIED[prompt, item]


def plain(text: str) -> str:
    """An instruction without the indentation that dspy gives it."""
    return "\n".join(line.strip() for line in text.strip().split("\n"))


def main() -> None:
    dspy.disable_logging()
    task, proposer = Model(task=True), Model(task=False)
    dspy.configure(lm=task)
    rows = {name: [dspy.Example(question=one["question"]).with_inputs("question") for one in JOB[name]] for name in ("train", "validation")}  # fmt: skip
    student = dspy.Predict(dspy.Signature("question -> answer", JOB["start"]))
    most = JOB["calls"] // len(VALIDATION)
    optimizer = dspy.MIPROv2(
        metric=lambda gold, made, trace=None: SCORES[gold.question, made.answer.strip()],  # noqa: ARG005
        prompt_model=proposer,
        task_model=task,
        auto=None,
        num_candidates=most,
        max_bootstrapped_demos=0,
        max_labeled_demos=0,
        num_threads=1,
        seed=JOB["seed"],
        verbose=False,
    )
    optimizer.compile(
        student,
        trainset=rows["train"],
        valset=rows["validation"],
        num_trials=3 * most,
        minibatch=False,
        fewshot_aware_proposer=False,
    )
    ASK("done", FOUND)


main()

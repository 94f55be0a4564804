"""The simplest loop: refine a prompt repeatedly with a function of yours, and keep every version."""

from __future__ import annotations

from collections.abc import Callable

from clawback.prompts.prompt import Prompt, PromptHistory

Refine = Callable[[Prompt], Prompt]


class RefinementLoop:
    """Calls ``refine_fn`` up to ``max_steps`` times, until it changes nothing or ``stop_fn`` says so. No search: see ``optimize``."""

    def __init__(
        self, refine_fn: Refine, max_steps: int = 10, stop_fn: Callable[[PromptHistory], bool] | None = None
    ) -> None:
        self.refine_fn, self.max_steps, self.stop_fn = refine_fn, max_steps, stop_fn

    def run(self, initial: Prompt) -> PromptHistory:
        """The history, from ``initial`` to the last refinement."""
        history = PromptHistory([initial])
        for _ in range(self.max_steps):
            if self.stop_fn is not None and self.stop_fn(history):
                break
            refined = self.refine_fn(history.current)
            if refined.id == history.current.id:
                break
            history.append(refined)
        return history

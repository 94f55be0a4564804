"""Prompt refinement as a Gymnasium environment: the observation is the prompt, an action is a refinement, and the reward is its value.

With gymnasium installed ``PromptRefinementEnv`` is a ``gymnasium.Env`` with text spaces, so that Clawback's
own ``Agent`` or any other text agent can use it; without it the same class works by itself.
"""

from __future__ import annotations

import random
import string
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from clawback.errors import UsageError
from clawback.extensions.rlprompt.rewards import RewardFn, report
from clawback.prompts.prompt import LONGEST_PROMPT, Prompt, PromptHistory
from clawback.prompts.search_types import Evaluate, Example, mean

if TYPE_CHECKING:
    from clawback.records import JsonObject

    _Env = object
    _Space = object
else:
    try:
        from gymnasium import Env as _Env
        from gymnasium.spaces import Space as _Space
    except ImportError:
        _Env = _Space = object

RefineFn = Callable[[Prompt, str], Prompt]


class Start(NamedTuple):
    """What ``reset`` gives, as Gymnasium has it."""

    observation: str
    info: JsonObject


class EnvStep(NamedTuple):
    """What ``step`` gives, as Gymnasium has it."""

    observation: str
    reward: float
    terminated: bool
    truncated: bool
    info: JsonObject

    @property
    def done(self) -> bool:
        return self.terminated or self.truncated


class TextSpace(_Space):
    """Any text up to a length, in any script. (``gymnasium.spaces.Text`` wants its alphabet listed.)"""

    def __init__(self, max_length: int = LONGEST_PROMPT, seed: int | None = None) -> None:
        self.max_length = max_length
        self._rng = random.Random(seed)
        if _Space is not object:
            super().__init__(shape=None, dtype=None, seed=seed)  # type: ignore[call-arg]

    def sample(self, mask: object = None, probability: object = None) -> str:  # noqa: ARG002
        length = self._rng.randint(1, min(60, self.max_length))
        return "".join(self._rng.choices(string.ascii_letters + "     .,", k=length))

    def seed(self, seed: int | None = None) -> int | None:
        self._rng.seed(seed)
        return seed

    def contains(self, x: object) -> bool:
        return isinstance(x, str) and len(x) <= self.max_length

    def __contains__(self, x: object) -> bool:
        return self.contains(x)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TextSpace) and other.max_length == self.max_length

    def __hash__(self) -> int:
        return hash(self.max_length)

    def __repr__(self) -> str:
        return f"TextSpace({self.max_length})"

    @property
    def is_np_flattenable(self) -> bool:
        return False


class PromptRefinementEnv(_Env):
    """An episode of refinements.

    Args:
        initial_prompt: where every episode begins.
        refine_fn: (prompt, action) → the next prompt. What it raises as ``UsageError`` makes the action void, not the episode.
        reward_fn: ``info`` → reward (``ScalarReward``, ``HybridReward``, any function).
        max_steps: after so many the episode is truncated.
        evaluate, examples: where given, each refinement is tried on the examples and ``info["score"]`` is the mean; the reward
            needs nobody then. Otherwise whoever steps says what it was worth: ``env.step(action, info={"score": 0.8})``.
        target: a score at which the episode ends.
    """

    metadata: JsonObject = {"render_modes": ["ansi"], "render_fps": 1}
    render_mode: str | None = None
    spec: Any = None

    def __init__(
        self,
        initial_prompt: Prompt,
        refine_fn: RefineFn,
        reward_fn: RewardFn,
        max_steps: int = 10,
        *,
        evaluate: Evaluate | None = None,
        examples: tuple[Example, ...] = (),
        target: float | None = None,
        render_mode: str | None = None,
    ) -> None:
        if max_steps < 1:
            raise UsageError("An episode has at least one step.")
        if bool(evaluate) != bool(examples):
            raise UsageError("Give both evaluate and examples, or neither.")
        self.initial_prompt, self.refine_fn, self.reward_fn = initial_prompt, refine_fn, reward_fn
        self.max_steps, self.evaluate, self.examples, self.target = max_steps, evaluate, examples, target
        self.render_mode = render_mode
        self.observation_space = TextSpace()
        self.action_space = TextSpace()
        self.prompt = initial_prompt
        self.steps = 0
        self._open = False

    def reset(self, *, seed: int | None = None, options: Mapping[str, object] | None = None) -> Start:
        """Begin anew, from ``options["prompt"]`` where it is given."""
        if _Env is not object:
            super().reset(seed=seed)  # type: ignore[misc]
        given = (options or {}).get("prompt", self.initial_prompt)
        self.prompt = given if isinstance(given, Prompt) else Prompt(str(given))
        self.steps, self._open = 0, True
        return Start(self.prompt.text, {"prompt_id": self.prompt.id, "version": self.prompt.version})

    def step(self, action: str, info: Mapping[str, object] | None = None) -> EnvStep:
        """Refine once. ``info``: what is known of the refinement, for the reward. Raises ``UsageError`` outside an episode."""
        if not self._open:
            raise UsageError("This episode is over, or was never begun: call reset() first.")
        told: JsonObject = dict(info or {})
        try:
            self.prompt = self.refine_fn(self.prompt, action)
        except UsageError as error:
            told["error"] = str(error)
        self.steps += 1
        if self.evaluate is not None:
            told["score"] = mean([self.evaluate(self.prompt, one).score for one in self.examples])
        made = report(self.reward_fn, told)
        terminated = self.target is not None and told.get("score", float("-inf")) >= self.target
        truncated = not terminated and self.steps >= self.max_steps
        self._open = not (terminated or truncated)
        told |= {"terms": dict(made.terms), "prompt_id": self.prompt.id, "version": self.prompt.version}
        return EnvStep(self.prompt.text, made.value, terminated, truncated, told)

    def render(self) -> str | None:
        return self.prompt.text if self.render_mode == "ansi" else None

    def close(self) -> None:
        self._open = False

    @property
    def unwrapped(self) -> PromptRefinementEnv:
        return self


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

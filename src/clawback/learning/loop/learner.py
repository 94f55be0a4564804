"""The seam of the training loop: what is done with the weights of a run, wherever they are.

``torch_learner.TorchLearner`` has them in this process. ``extensions/hosted/remote_learner.py`` has them at a trainer elsewhere. Schedule, guards,
checkpoints and events are the loop's (``trainer.py``), the same for both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from torch import Tensor

from clawback.learning.examples import TrainingExample
from clawback.learning.loop.checkpoint import State
from clawback.rl.algorithms import Algorithm
from clawback.scoring import Scored

if TYPE_CHECKING:
    from clawback.learning.loop.packing import Shared
    from clawback.policy import Policy


class Learner(Protocol):
    """The weights that one run trains."""

    @property
    def rates(self) -> Sequence[float]:
        """The full learning rate of each group of weights: first the adapter's."""
        ...

    def score(self, examples: Sequence[TrainingExample]) -> Scored:
        """Log-probs of the responses under the weights as they are, without gradients."""
        ...

    def backward(
        self, examples: Sequence[TrainingExample], algorithm: Algorithm, kl_scale: float
    ) -> dict[str, float]:
        """The loss of a step and its gradient, which ``step`` takes or ``restore`` drops.

        Returns the loss's figures, ``loss`` and ``drift`` among them, and ``grad_norm`` where it is known before the step.
        """
        ...

    def step(self, rates: Sequence[float]) -> dict[str, float]:
        """Change the weights by the last gradient, each group at its rate; returns figures of the change."""
        ...

    def remember(self, steps: int) -> None:
        """The weights are in bounds after so many steps: ``restore`` may come back to them."""
        ...

    def restore(self) -> int:
        """Put back weights that were in bounds; returns after how many steps. Raises ``TrainingError`` where there are none."""
        ...

    def save(self, state: State, *, pause: bool = False) -> State:
        """The loop's state with what ``load`` needs to put the weights back. ``pause``: the run ends here for now."""
        ...

    def load(self, state: State) -> State | None:
        """Put back the weights of a saved state.

        Returns the loop's state that belongs to them: an earlier one where the newest weights are lost, None where all are.
        """
        ...


class GradientGroup(Protocol):
    """Further processes that a step's gradient is shared out among (``extensions/scale/process_group.py``)."""

    def gradient(
        self,
        policy: Policy,
        algorithm: Algorithm,
        adapter: Sequence[Tensor],
        examples: Sequence[TrainingExample],
        shared: Shared,
    ) -> dict[str, float]:
        """Gradients of the whole step in ``adapter``'s ``grad``, and the step's figures. Raises ``Interrupted`` where a process has died."""
        ...

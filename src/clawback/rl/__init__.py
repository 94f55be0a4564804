"""Pure reinforcement-learning maths on tensors: advantages, KL estimators, losses. No model loading, no I/O."""

from clawback.rl.batch import Batch

__all__ = ["Batch"]

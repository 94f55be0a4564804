"""Trains the policy inside programs of its own: an agent program in the sandbox (``program``), or a function of yours (``function``)."""

from clawback.extensions.harness.function import FunctionTasks, PolicyEndpoint, rollout
from clawback.extensions.harness.program import ProgramTasks, wrap

__all__ = ["FunctionTasks", "PolicyEndpoint", "ProgramTasks", "rollout", "wrap"]

"""The sandbox in which code that a model wrote is run: several isolation methods behind one interface."""

from clawback.sandbox.box import Extra, Sandbox
from clawback.sandbox.ladder import Rung, choose, open_sandbox, probe
from clawback.sandbox.limits import Limits, Result
from clawback.sandbox.process import Process

__all__ = ["Extra", "Limits", "Process", "Result", "Rung", "Sandbox", "choose", "open_sandbox", "probe"]

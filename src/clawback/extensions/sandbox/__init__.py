"""The sandbox in which code that a model wrote is run: several isolation methods behind one interface."""

from clawback.extensions.sandbox.box import Extra, Sandbox
from clawback.extensions.sandbox.container import find_image
from clawback.extensions.sandbox.ladder import Rung, choose, choose_for_image, engines, open_sandbox, probe
from clawback.extensions.sandbox.limits import Limits, Result
from clawback.extensions.sandbox.process import Process

__all__ = [
    "Extra",
    "Limits",
    "Process",
    "Result",
    "Rung",
    "Sandbox",
    "choose",
    "choose_for_image",
    "engines",
    "find_image",
    "open_sandbox",
    "probe",
]

"""The sandbox in which code that a model wrote is run: several isolation methods behind one interface."""

from clawback.extensions.sandbox.box import Extra, Sandbox
from clawback.extensions.sandbox.box_process import Process
from clawback.extensions.sandbox.container import find_image
from clawback.extensions.sandbox.ladder import Rung, choose, choose_for_image, engines, open_sandbox, probe
from clawback.extensions.sandbox.limits import CommandResult, Limits

__all__ = [
    "CommandResult",
    "Extra",
    "Limits",
    "Process",
    "Rung",
    "Sandbox",
    "choose",
    "choose_for_image",
    "engines",
    "find_image",
    "open_sandbox",
    "probe",
]

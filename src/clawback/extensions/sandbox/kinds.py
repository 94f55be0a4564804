"""The kinds of environments of this extension, as they are registered. Importing it loads none of them."""

from __future__ import annotations

from clawback.environments.registry import Kind

TERMINAL = Kind(
    "clawback.extensions.sandbox.terminal", "Tasks in a shell, in the sandbox", "terminal", reply_tokens=1024
)
REPOSITORY = Kind(
    "clawback.extensions.sandbox.repository",
    "Repairs of programs, in the sandbox",
    "repository",
    reply_tokens=1024,
)

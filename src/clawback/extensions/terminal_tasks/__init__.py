"""Tasks in a shell in the sandbox, judged by tests that the policy cannot reach.

Here is their kind of environments, as it is registered. Importing it loads none of them.
"""

from __future__ import annotations

from clawback.environments.registry import Kind

TERMINAL = Kind(
    "clawback.extensions.terminal_tasks.terminal_environment",
    "Tasks in a shell, in the sandbox",
    "terminal",
    reply_tokens=1024,
)

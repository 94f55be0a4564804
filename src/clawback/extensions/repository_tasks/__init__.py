"""Repairs of programs in the sandbox: rows of SWE-bench on local clones, and a dozen instances of our own.

Here is their kind of environments, as it is registered. Importing it loads none of them.
"""

from __future__ import annotations

from clawback.environments.registry import Kind

REPOSITORY = Kind(
    "clawback.extensions.repository_tasks.repository_environment",
    "Repairs of programs, in the sandbox",
    "repository",
    reply_tokens=1024,
)

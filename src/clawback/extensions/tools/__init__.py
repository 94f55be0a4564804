"""Tasks with tools: a shop, tools of MCP servers, and sets of tasks in a TOML file of the user's."""

from __future__ import annotations

from clawback.environments.registry import Kind

TOOLS = Kind("clawback.extensions.tools.tasks_file", "Tool calls; or a TOML file of yours", "tools:shop")

"""The browser agent: a page in Chromium as text or picture, and the actions on it.

Here are its kinds of environments, as they are registered. Importing it loads none of them.
"""

from __future__ import annotations

from clawback.environments.registry import Kind

MINIWOB = Kind(
    "clawback.extensions.browser.miniwob",
    "MiniWoB++ pages in Chromium",
    "miniwob:click-test",
    "playwright",
    128,
)

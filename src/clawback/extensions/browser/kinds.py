"""The kinds of environments of this extension, as they are registered. Importing it loads none of them."""

from __future__ import annotations

from clawback.environments.registry import Kind

MINIWOB = Kind(
    "clawback.extensions.browser.miniwob",
    "MiniWoB++ pages in Chromium",
    "miniwob:click-test",
    "playwright",
    128,
)

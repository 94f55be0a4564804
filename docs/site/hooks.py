"""What the site needs of pages that are written to be read in the repository as well.

Links out of ``docs/`` (to code, to examples) go to the repository on the web; ``run`` after a fence's language marks blocks for a test and is no language.
"""

from __future__ import annotations

import posixpath
import re
from typing import Any

_LINK = re.compile(r"\]\((?!https?:|#|mailto:)([^)\s#]+)(#[^)\s]*)?\)")
_FENCE = re.compile(r"^(\s*```[a-z]+) (?:run|example|norun)\b.*$", re.MULTILINE)


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    here = posixpath.dirname(page.file.src_uri)

    def led(found: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join("docs", here, found[1]))
        inside = target.removeprefix("docs/")
        if target.startswith("docs/") and (files.get_file_from_path(inside) or not inside.endswith(".py")):
            return found[0]
        kind = "tree" if "." not in posixpath.basename(target) else "blob"
        return f"]({config.repo_url.rstrip('/')}/{kind}/main/{target}{found[2] or ''})"

    return _FENCE.sub(r"\1", _LINK.sub(led, markdown))

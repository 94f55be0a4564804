"""Code of others that ships with the page is what was looked at: a change of it has to come with a new line here."""

from __future__ import annotations

import hashlib
from pathlib import Path

import clawback.serve

FOLDER = Path(clawback.serve.__file__).parent / "web" / "vendor"
HASHES = {
    "diff.js": "b51a9d2885f2c090dc97b981027395f7e7e6558a46c75ae3747db267913a89ab",
    "marked.js": "c622dc6824a1c92c2d10ea9ede2fc872e46128afcc34b298e6ddee6f387ace8e",
    "purify.js": "f1f1ba66e2951e5ca14bc4e71e24cc503d35d49c68f9bcfa4fd97970cb71c76b",
    "uplot.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
    "uplot.js": "5dd9b3281aa64b461b42d9945f6adb2649d346502b12281a9ae0d46599a80eba",
}

HIGHLIGHT = "5d4184c30ceb41698a2f80ed429df6edd0217edf6dbf1faf338682b7d580d386"
"""Of the names and hashes of all files of the highlighter: it is one a language."""


def test_what_others_wrote_is_unchanged() -> None:
    found = {
        p.name: hashlib.sha256(p.read_bytes()).hexdigest()
        for p in FOLDER.iterdir()
        if p.suffix in (".js", ".css")
    }
    assert found == HASHES


def test_the_highlighter_is_unchanged() -> None:
    files = sorted((FOLDER / "highlight").rglob("*.js"))
    parts = [
        p.relative_to(FOLDER).as_posix().encode() + hashlib.sha256(p.read_bytes()).digest() for p in files
    ]
    assert hashlib.sha256(b"".join(parts)).hexdigest() == HIGHLIGHT

"""The pages of a damaged database file: its table of contents, put back from a sound copy."""

from __future__ import annotations

import os
from pathlib import Path

PAGE_TYPES = {2, 5, 10, 13}


def transplant(source: Path, copy: Path) -> bool:
    """Put the pages of a copy's table of contents over the damaged ones: tables keep their first page as long as the schema is the same."""
    good = copy.read_bytes()
    size = int.from_bytes(good[16:18], "big")
    size = 65_536 if size == 1 else size
    pages = _contents_pages(good, size)
    if not pages:
        return False
    with source.open("r+b") as file:
        count = file.seek(0, os.SEEK_END) // size
        for page in pages:
            file.seek((page - 1) * size)
            file.write(good[(page - 1) * size : page * size])
        file.seek(28)
        file.write(count.to_bytes(4, "big"))
        file.seek(92)
        file.write(good[24:28])  # "the size is right", in the header's own words
        file.seek(32)
        file.write(bytes(8))  # no list of free pages: that of the copy is another
    return True


def _contents_pages(data: bytes, size: int) -> list[int]:
    """The pages of ``sqlite_schema``: page 1 and what hangs below it, overflows included. Empty for a file that is none."""
    if not data.startswith(b"SQLite format 3\0") or size < 512:
        return []
    found, waiting = [], [1]
    while waiting:
        page = waiting.pop()
        found.append(page)
        base = (page - 1) * size
        head = base + (100 if page == 1 else 0)
        kind = data[head] if head < len(data) else 0
        if kind not in PAGE_TYPES or len(found) > 1000:
            return []
        cells = int.from_bytes(data[head + 3 : head + 5], "big")
        array = head + (12 if kind == 5 else 8)
        offsets = [int.from_bytes(data[array + 2 * i : array + 2 * i + 2], "big") for i in range(cells)]
        if kind == 5:
            waiting += [int.from_bytes(data[base + at : base + at + 4], "big") for at in offsets]
            waiting.append(int.from_bytes(data[head + 8 : head + 12], "big"))
        else:
            found += [page for at in offsets for page in _overflow(data, size, base + at)]
    return found


def _overflow(data: bytes, size: int, at: int) -> list[int]:
    """The overflow pages of a cell of a table's leaf page."""
    usable = size - data[20]
    length, at = varint(data, at)
    _, at = varint(data, at)
    if length <= usable - 35:
        return []
    least = (usable - 12) * 32 // 255 - 23
    local = least + (length - least) % (usable - 4)
    at += local if local <= usable - 35 else least
    pages: list[int] = []
    page = int.from_bytes(data[at : at + 4], "big")
    while page and len(pages) < 1000:
        pages.append(page)
        page = int.from_bytes(data[(page - 1) * size : (page - 1) * size + 4], "big")
    return pages


def varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for index in range(8):
        value = value << 7 | data[at + index] & 0x7F
        if data[at + index] < 0x80:
            return value, at + index + 1
    return value << 8 | data[at + 8], at + 9

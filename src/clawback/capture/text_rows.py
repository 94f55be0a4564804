"""The one reader of text files that people bring: a line each, JSON lines, or a JSON list, in UTF-8 or UTF-16, with or without a byte order mark.

Every row comes with its number, or with why it cannot be read: nothing is passed over in silence.
"""

from __future__ import annotations

import codecs
import io
import json
import mmap
import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

from clawback.errors import NotFound, UsageError
from clawback.records import JsonObject

LONGEST = 64_000_000
"""Characters of one line; a longer one is no turn."""
LARGEST_LIST = 500_000_000
"""Bytes of a JSON list that is read at once: one in UTF-16, or in a manner that JSON does not allow."""
NO_TEXT = "holds bytes that are no UTF-8 text: save the file as UTF-8"
_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_UNDECODED = re.compile("[\udc80-\udcff]")


class Row(NamedTuple):
    """``text``: a line as it stands, "" for an entry of a JSON list, which is ``value``; ``problem``: why it cannot be read, "" for nothing."""

    number: int
    text: str = ""
    value: Any = None
    problem: str = ""

    def decoded(self) -> Any:
        """The JSON value of the row. Raises ``ValueError`` with why it has none."""
        if self.problem:
            raise ValueError(self.problem)
        if not self.text:
            return self.value
        try:
            return json.loads(self.text)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"not JSON ({error})") from error


def read(path: Path) -> Iterator[Row]:
    """The rows of a file that are not empty.

    Raises ``NotFound`` where there is none, ``UsageError`` for one that begins as a JSON list and is none.
    """
    try:
        with path.open("rb") as raw:
            start = raw.peek(4096)
            encoding = encoding_of(start)
            if start.decode(encoding, "ignore").lstrip("\ufeff \t\r\n").startswith("["):
                yield from _list_or_lines(path, raw, encoding)
            else:
                yield from _lines(_text(raw, encoding))
    except (FileNotFoundError, IsADirectoryError) as error:
        raise NotFound(f"There is no file {path}.") from error
    except OSError as error:
        raise NotFound(f"{path} cannot be read: {error.strerror or error}.") from error


def encoding_of(start: bytes) -> str:
    """By the byte order mark, else by where the zero bytes of the first characters are."""
    for mark, encoding in _MARKS.items():
        if start.startswith(mark):
            return encoding
    # JSON begins with two signs of ASCII, and so do most other texts.
    if len(start) > 3 and start[1] == start[3] == 0 and start[0] and start[2]:
        return "utf-16-le"
    return "utf-16-be" if len(start) > 3 and start[0] == start[2] == 0 and start[1] and start[3] else "utf-8"


def _text(raw: IO[bytes], encoding: str) -> io.TextIOWrapper:
    return io.TextIOWrapper(
        raw, encoding, errors="surrogateescape" if encoding.startswith("utf-8") else "replace"
    )


def _lines(file: io.TextIOWrapper) -> Iterator[Row]:
    number = 0
    while line := file.readline(LONGEST + 1):
        number += 1
        if len(line) > LONGEST:
            yield Row(number, problem=f"longer than {LONGEST:,} characters")
        elif _UNDECODED.search(line):
            yield Row(number, problem=NO_TEXT)
        elif line.strip():
            yield Row(number, line)
        rest = line
        while len(rest) > LONGEST and not rest.endswith("\n"):  # the rest of a line that is too long
            rest = file.readline(LONGEST + 1)
            if "\n" not in rest and rest.strip("\0") == "":
                return  # a device that never ends, or nothing more


def is_undecoded(text: str) -> bool:
    """Whether bytes stand in the text that are no UTF-8."""
    return bool(_UNDECODED.search(text))


def _list_or_lines(path: Path, raw: IO[bytes], encoding: str) -> Iterator[Row]:
    """A JSON list, or lines of which the first begins like one."""
    if encoding.startswith("utf-8") and (entries := _pieces(raw, encoding, list)) is not None:
        yield from (_row(number, bytes(entry)) for number, entry in enumerate(entries, 1))
        return
    data = raw.read(LARGEST_LIST + 1)
    if len(data) > LARGEST_LIST:
        raise UsageError(
            f"{path} is a JSON list of more than {LARGEST_LIST // 10**6} MB that is damaged, or no UTF-8: bring it as JSON lines."
        )
    text = data.decode(encoding, "replace" if "16" in encoding else "surrogateescape").removeprefix("\ufeff")
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        found = list(_lines(_text(io.BytesIO(data), encoding)))
        if len(found) < 2 or not any(row.text.lstrip().startswith("{") for row in found):
            raise UsageError(f"{path} begins like a JSON list and is none: {error}.") from None
        yield from found
        return
    for number, value in enumerate(values, 1):
        bad = isinstance(value, (str, dict)) and is_undecoded(json.dumps(value, ensure_ascii=False))
        yield Row(number, problem="holds bytes that are no UTF-8 text") if bad else Row(number, value=value)


def _pieces(raw: IO[bytes], encoding: str, shape: type) -> Any:
    """The entries of a JSON list or object as they stand in the file, which is not read into memory; None for what JSON does not allow."""
    import msgspec

    try:
        data = memoryview(mmap.mmap(raw.fileno(), 0, access=mmap.ACCESS_READ))
        data = data[len(codecs.BOM_UTF8) if encoding == "utf-8-sig" else 0 :]
        return msgspec.json.decode(data, type=list[msgspec.Raw] if shape is list else dict[str, msgspec.Raw])
    except (OSError, ValueError, msgspec.MsgspecError, RecursionError):
        return None


def _row(number: int, piece: bytes) -> Row:
    try:
        return Row(number, value=json.loads(piece))
    except UnicodeDecodeError:
        return Row(number, problem="holds bytes that are no UTF-8 text")
    except (ValueError, RecursionError) as error:
        return Row(number, problem=f"not JSON ({error})")


_HOLDERS = (
    "conversations", "data", "rows", "records", "examples", "items", "results", "train", "chats", "sessions", "instances", "tasks",
    "samples", "threads",
)  # fmt: skip
"""Fields of a document that hold its records."""


def members(path: Path) -> Iterator[Row] | None:
    """The records of a document, an object in one piece: those of the list that it holds, or itself. None for what is no JSON object."""
    with path.open("rb") as raw:
        encoding = encoding_of(raw.peek(4096))
        fields = _pieces(raw, encoding, dict) if encoding.startswith("utf-8") else None
        if fields is None:
            if path.stat().st_size > LARGEST_LIST:
                raise UsageError(
                    f"{path} is one JSON document of more than {LARGEST_LIST // 10**6} MB: bring it as JSON lines."
                )
            text = raw.read().decode(encoding, "replace" if "16" in encoding else "surrogateescape")
            return _record_of_records(text, path.suffix != ".jsonl")
    import msgspec

    for name in _HOLDERS:
        if (
            name in fields
            and bytes(fields[name][:1] if isinstance(fields[name], bytes) else memoryview(fields[name])[:1])
            == b"["
        ):
            try:
                listed = msgspec.json.decode(fields[name], type=list[msgspec.Raw])
            except msgspec.MsgspecError:
                return None
            if listed and bytes(listed[0])[:1] == b"{" and _holds_records(json.loads(bytes(listed[0])), name):
                return (_row(number, bytes(entry)) for number, entry in enumerate(listed, 1))
    return _of_document(
        {name: json.loads(bytes(value)) for name, value in fields.items()}, path.suffix != ".jsonl"
    )


def _record_of_records(text: str, columns: bool) -> Iterator[Row] | None:
    values: list[Any] = []
    rest = text.removeprefix("\ufeff").strip()
    decoder = json.JSONDecoder()
    while rest:  # one object, or several in a row, each over many lines
        try:
            value, end = decoder.raw_decode(rest)
        except (ValueError, RecursionError):
            return None
        values.append(value)
        rest = rest[end:].lstrip()
    if len(values) > 1:
        return (Row(number, value=one) for number, one in enumerate(values, 1))
    return _of_document(values[0], columns) if values and isinstance(values[0], dict) else None


def _of_document(document: JsonObject, columns: bool) -> Iterator[Row]:
    """The records of a document in one piece: of a list in it, of its columns where it may hold such, or itself."""
    inner = document["data"] if isinstance(document.get("data"), dict) else {}
    for name, listed in ((n, held[n]) for held in (document, inner) for n in _HOLDERS if n in held):
        if (
            isinstance(listed, list)
            and listed
            and isinstance(listed[0], dict)
            and _holds_records(listed[0], name)
        ):
            return (Row(number, value=one) for number, one in enumerate(listed, 1))
    fields = {tuple(value) if isinstance(value, dict) else () for value in document.values()}
    names = next(iter(fields), ())
    if columns and len(document) > 1 and len(fields) == 1 and names and not {"0", "role"} & {*names}:
        return (Row(number, value=one) for number, one in enumerate(document.values(), 1))  # {"id": {…}, …}
    table = [list(c.values()) if isinstance(c, dict) else c for c in document.values()]  # or {"0": …, "1": …}
    even = all(isinstance(c, list) and len(c) == len(table[0]) > 0 for c in table)
    plain = columns and even and not any(isinstance(one, (list, dict)) for column in table for one in column)
    if plain and len(table) > 1:
        listed = zip(*table, strict=True)
        return (Row(n, value=dict(zip(document, one, strict=True))) for n, one in enumerate(listed, 1))
    return iter([Row(1, value=document)])


def _holds_records(entry: JsonObject, name: str) -> bool:
    """Whether a list is one of records and not the messages of one conversation (ShareGPT names that ``conversations``)."""
    return name != "conversations" or not {"role", "from"} & entry.keys()

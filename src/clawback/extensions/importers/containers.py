"""Files as people have them, opened by what they begin with: folders, zip, gzip, SQLite, Parquet, tables, JSON lines, JSON in one piece.

Whatever it is, it becomes sources, each a list of records that can be read again. What is packed is unpacked into a folder of its own, which the
caller deletes.
"""

from __future__ import annotations

import ast
import bz2
import csv
import gzip
import json
import lzma
import os
import shutil
import stat
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from clawback import installed
from clawback.capture import text_rows
from clawback.capture.text_rows import Row
from clawback.errors import MissingExtra, NotFound, UsageError
from clawback.extensions.data_sets import lines, messages, pair_records, verdicts
from clawback.extensions.data_sets.entries import NOTHING
from clawback.extensions.importers import databases

_UNPACKERS: dict[bytes, Callable[..., Any]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ\0": lzma.open,
    b"\x28\xb5\x2f\xfd": lambda path: _pyarrow(path).input_stream(str(path), compression="zstd"),
}
_ZIP, _PARQUET, _ARROW, _ARROW_STREAM = b"PK\x03\x04", b"PAR1", b"ARROW1", b"\xff\xff\xff\xff"
_TAR = b"ustar"
ENDINGS = (
    ".json", ".jsonl", ".ndjson", ".csv", ".tsv", ".parquet", ".arrow", ".feather", ".zip", ".tar", ".tgz", ".gz", ".bz2",
    ".xz", ".zst", ".db", ".sqlite", ".sqlite3",
)  # fmt: skip
"""Files of a folder and of an archive that are looked at."""
ROOM = 1 << 30
"""Bytes that stay free on the disk when something is unpacked."""
_WRAPPERS = ("row", "_source")
_LARGEST_CELL = 64_000_000


@dataclass(frozen=True, slots=True)
class RecordList:
    """A list of records. ``path``: the file that holds them, "" parts of an archive included in ``name``."""

    name: str
    path: Path
    read: Callable[[], Iterator[Row]]
    table: str = ""
    """The table of a database."""


@dataclass(slots=True)
class Opened:
    """The sources of a path, and the files in it that were not looked at."""

    sources: list[RecordList]
    passed_over: list[str]


def open_path(path: Path, workspace: Path) -> Opened:
    """All sources of a file, a folder, or ``-``. Raises ``NotFound``, ``UsageError``, ``MissingExtra``."""
    if str(path) == "-":
        copy = _fresh(workspace) / "stdin"
        with copy.open("wb") as file:
            _copy(sys.stdin.buffer, file, workspace, "standard input")
        return Opened(list(_of_file(copy, "standard input", workspace)), [])
    if path.is_dir():
        return _of_folder(path, workspace)
    if not path.exists():
        raise NotFound(f"There is no file or folder {path}.")
    if stat.S_ISFIFO(path.stat().st_mode):
        copy = _fresh(workspace) / "pipe"
        with path.open("rb") as pipe, copy.open("wb") as file:
            _copy(pipe, file, workspace, str(path))
        return Opened(_of_file(copy, str(path), workspace), [])
    return Opened(_of_file(path, path.name, workspace), [])


def _fresh(workspace: Path) -> Path:
    number = len(list(workspace.iterdir()))
    folder = workspace / str(number)
    folder.mkdir()
    return folder


def _copy(source: IO[bytes], target: IO[bytes], workspace: Path, name: str) -> None:
    """Copy by pieces. Raises ``UsageError`` where the disk would be full, or what is packed is damaged."""
    size = 0
    try:
        while piece := source.read(1 << 20):
            size += len(piece)
            if size % (64 << 20) < len(piece) and shutil.disk_usage(workspace).free < ROOM:
                raise UsageError(f"There is not enough room on the disk to unpack {name}.")
            target.write(piece)
    except (EOFError, OSError, lzma.LZMAError, zipfile.BadZipFile) as error:
        raise UsageError(f"{name} cannot be unpacked: {error}.") from error


def _of_folder(folder: Path, workspace: Path) -> Opened:
    opencode = next(
        (f for f in (folder, folder / "storage") if (f / "message").is_dir() and (f / "part").is_dir()), None
    )
    if opencode is not None:
        return Opened([RecordList("opencode's storage", folder, lambda: _opencode_folder(opencode))], [])
    lists: list[RecordList] = []
    passed_over: list[str] = []
    for file in sorted(folder.rglob("*")):
        if not file.is_file() or file.is_symlink() or "subagents" in file.parts:
            continue
        if file.suffix.lower() in ENDINGS and file.stat().st_size:
            lists += _of_file(file, str(file.relative_to(folder)), workspace)
        elif not file.name.startswith("."):
            passed_over.append(str(file.relative_to(folder)))
    return Opened(lists, passed_over)


def _of_file(path: Path, name: str, workspace: Path) -> list[RecordList]:
    try:
        with path.open("rb") as file:
            start = file.read(4096)
    except OSError as error:
        raise NotFound(f"{path} cannot be read: {error.strerror or error}.") from error
    for magic, unpack in _UNPACKERS.items():
        if start.startswith(magic):
            inner = name.removesuffix(path.suffix) or name
            copy = _fresh(workspace) / (Path(inner).name or "file")
            with unpack(path) as packed, copy.open("wb") as target:
                _copy(packed, target, workspace, name)
            return _of_file(copy, inner, workspace)
    if start.startswith(_ZIP):
        return _of_zip(path, name, workspace)
    if start[257:].startswith(_TAR):
        return _of_tar(path, name, workspace)
    if start.startswith(databases.MAGIC):
        return [RecordList(f"{name}: {table}", path, read, table) for table, read in databases.sources(path)]
    if start.startswith((_PARQUET, _ARROW, _ARROW_STREAM)):
        return [RecordList(name, path, lambda: _of_arrow(path, start))]
    if table := _table_in(start, path):
        return [RecordList(name, path, lambda: _of_table(path, table))]
    return [RecordList(name, path, lambda: json_rows(path))]


def _of_zip(path: Path, name: str, workspace: Path) -> list[RecordList]:
    lists: list[RecordList] = []
    try:
        with zipfile.ZipFile(path) as archive:
            members = [m for m in archive.infolist() if not m.is_dir()]
            if any(m.filename == "xl/workbook.xml" for m in members):
                raise UsageError(f"{name} is an Excel workbook: save the sheet as CSV, and import that.")
            for member in members:
                if _is_looked_at(member.filename):
                    if member.flag_bits & 1:
                        raise UsageError(
                            f"{name} is locked with a password: unpack it, and import what is in it."
                        )
                    with archive.open(member) as packed:
                        lists += _of_member(packed, member.filename, name, workspace)
    except (zipfile.BadZipFile, NotImplementedError) as error:
        raise UsageError(f"{name} is no archive that can be read: {error}.") from error
    return lists


def _of_tar(path: Path, name: str, workspace: Path) -> list[RecordList]:
    lists: list[RecordList] = []
    try:
        with tarfile.open(path) as archive:
            for member in archive:
                if member.isfile() and _is_looked_at(member.name) and (packed := archive.extractfile(member)):
                    lists += _of_member(packed, member.name, name, workspace)
    except tarfile.TarError as error:
        raise UsageError(f"{name} is no archive that can be read: {error}.") from error
    return lists


def _is_looked_at(member: str) -> bool:
    inner = Path(member)
    return inner.suffix.lower() in ENDINGS and not any(p.startswith((".", "__MACOSX")) for p in inner.parts)


def _of_member(packed: IO[bytes], member: str, name: str, workspace: Path) -> list[RecordList]:
    """The sources of a file of an archive, which is unpacked under a name of ours."""
    copy = _fresh(workspace) / f"file{Path(member).suffix.lower()}"
    with copy.open("wb") as target:
        _copy(packed, target, workspace, name)
    return _of_file(copy, f"{name}: {member}", workspace) if copy.stat().st_size else []


# ------------------------------------------------------------------------------------------------------------ JSON


def json_rows(path: Path) -> Iterator[Row]:
    """Records of JSON lines, of a list, or of a document that holds a list."""
    start = b""
    with path.open("rb") as file:
        start = file.readline(text_rows.LONGEST + 1)
        encoding = text_rows.encoding_of(start)
        first_line = start.decode(encoding, "ignore").lstrip("\ufeff").strip()
        rest = bool(file.read(1))
    if not first_line.startswith("{") or (rest and _is_json(first_line)):
        yield from _unwrapped(text_rows.read(path))
        return
    document = text_rows.members(path)
    if document is None:  # damaged, or lines of which the first is broken
        yield from _unwrapped(text_rows.read(path))
        return
    yield from _unwrapped(document)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _unwrapped(listed: Iterator[Row]) -> Iterator[Row]:
    """Records out of what exports of databases put around them: ``{"row": {…}}``."""
    for row in listed:
        value = row.value
        if isinstance(value, dict) and len(value) <= 4:
            inner = next((value[w] for w in _WRAPPERS if isinstance(value.get(w), dict)), None)
            if inner is not None:
                row = row._replace(value=inner)
        yield row


def _opencode_folder(storage: Path) -> Iterator[Row]:
    """Sessions of opencode's folder of files, one file a message and one a part."""
    known = {file.stem: file for file in (storage / "session").rglob("*.json")}
    for number, folder in enumerate(sorted((storage / "message").iterdir()), 1):
        entries = []
        for file in sorted(folder.glob("*.json")):
            parts = [_json_file(p) for p in sorted((storage / "part" / file.stem).glob("*.json"))]
            entries.append({"info": _json_file(file), "parts": parts})
        info = _json_file(known[folder.name]) if folder.name in known else {"id": folder.name}
        yield Row(number, value={"info": info, "messages": entries})


def _json_file(path: Path) -> object:
    try:
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}


# ---------------------------------------------------------------------------------------------------------- tables


@dataclass(frozen=True, slots=True)
class _Table:
    delimiter: str
    encoding: str
    first_line: int = 1


def _table_in(start: bytes, path: Path) -> _Table | None:
    """How a table is written, by its first line; None for what is none."""
    encoding = text_rows.encoding_of(start)
    listed = start.decode(encoding, "ignore").lstrip("\ufeff").lstrip("\r\n").split("\n")
    setting = listed[0].strip().lower().strip('"')
    if len(setting) == 5 and setting.startswith("sep="):  # as Excel writes it
        return _Table(setting[-1], encoding, 2)
    first_line = listed[0].strip()
    if first_line[:1] in ("{", "[", ""):
        return None
    best = max("\t,;|", key=first_line.count)
    names = [name.strip().strip('"').lower() for name in first_line.split(best)]
    if first_line.count(best) and (_names_answers(names) or path.suffix.lower() in (".csv", ".tsv")):
        return _Table(best, encoding)
    return None


def _names_answers(names: list[str]) -> bool:
    record = lines.lowered({name: "x" for name in names if name})
    record |= {name: [{"role": "user", "content": "x"}] for name in record if name in messages.LISTS}
    return (
        lines.fits(record)
        or pair_records.names_of_pair(record) is not None
        or verdicts.names_of_duel(record) is not None
        or ("role" in record and "content" in record)
    )


def _of_table(path: Path, table: _Table) -> Iterator[Row]:
    csv.field_size_limit(_LARGEST_CELL)
    errors = "replace" if "16" in table.encoding else "surrogateescape"
    with path.open(
        encoding="utf-8-sig" if table.encoding == "utf-8" else table.encoding, errors=errors, newline=""
    ) as file:
        number = table.first_line
        for _ in range(1, number):
            file.readline()
        read = csv.reader(file, delimiter=table.delimiter)
        header = [name.strip() for name in next(read, [])]
        try:
            for number, cells in enumerate(read, table.first_line + 1):
                if not any(cell.strip() for cell in cells):
                    continue
                if len(cells) > len(header):
                    yield Row(number, problem=f"has {len(cells)} columns, and the header names {len(header)}")
                    continue
                record = {
                    name: _cell(cell)
                    for name, cell in zip(header, cells, strict=False)
                    if name and cell.strip()
                }
                broken = any(isinstance(cell, str) and text_rows.is_undecoded(cell) for cell in cells)
                yield Row(number, problem=text_rows.NO_TEXT) if broken else Row(number, value=record)
        except csv.Error as error:
            yield Row(number + 1, problem=f"is no row of a table ({error})")


def _cell(text: str) -> object:
    """A cell; lists and objects that are written in it are read."""
    plain = text.strip()
    if plain.lower() in NOTHING:
        return None
    if (plain[:2] in ("[{", '["', "['", "[[") and plain[-1:] == "]") or (
        plain[:2] in ('{"', "{'") and plain[-1:] == "}"
    ):
        for read in (json.loads, ast.literal_eval):
            try:
                return read(plain)
            except (ValueError, SyntaxError, RecursionError, MemoryError):
                continue
    return text


def _pyarrow(path: Path) -> Any:
    """Raises ``MissingExtra``."""
    try:
        import pyarrow
    except ImportError as error:
        raise MissingExtra(
            f"{path.name} is in Parquet, Arrow or zstd, and what reads it is not installed. Run: {installed.add('parquet')}"
        ) from error
    return pyarrow


def _of_arrow(path: Path, start: bytes) -> Iterator[Row]:
    pyarrow = _pyarrow(path)
    from pyarrow import ipc
    from pyarrow import parquet as tables

    number = 0
    try:
        if start.startswith(_PARQUET):
            batches = tables.ParquetFile(path).iter_batches(batch_size=500)
        elif start.startswith(_ARROW_STREAM):  # as the library of the Hugging Face hub keeps a set
            batches = iter(ipc.open_stream(pyarrow.memory_map(str(path))))
        else:
            batches = _arrow_batches(ipc.open_file(path))
        for batch in batches:
            for record in batch.to_pylist():
                number += 1
                yield Row(number, value={k: v for k, v in record.items() if v is not None})
    except (pyarrow.ArrowException, OSError) as error:
        raise UsageError(f"{path.name} is no table that can be read: {error}.") from error


def _arrow_batches(file: Any) -> Iterator[object]:
    return (file.get_batch(index) for index in range(file.num_record_batches))


def remove(folder: Path) -> None:
    """Delete what was unpacked."""
    shutil.rmtree(folder, ignore_errors=True)


def workspace_in(folder: Path) -> Path:
    """A new folder that only its owner can read. Those that killed imports left are deleted."""
    import tempfile

    import psutil

    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for left in folder.glob("import-*"):
        number = left.name.split("-")[1]
        if number.isdecimal() and not psutil.pid_exists(int(number)):
            remove(left)
    return Path(tempfile.mkdtemp(prefix=f"import-{os.getpid()}-", dir=folder))

"""The whole version as one GGUF file, for whatever loads GGUF files and takes no adapters.

It is made of the file that the base came from, or of one that is named: a copy in which only the weights that the
version changes are others. A base of safetensors without such a file is merged and goes through llama.cpp's own
converter.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from clawback.errors import ModelError, NotFound, UsageError
from clawback.models import gguf_file, identity, local_models
from clawback.release.publishers.publisher import Publication, Target, keep_former, restore, settle

CONVERTER = "convert_hf_to_gguf.py"
CONVERT_SECONDS = 3600


class Gguf:
    """``publish gguf``: the file alone, for any program."""

    def __init__(self, target: Target) -> None:
        if target.out is None:
            raise UsageError("A file is needed: --output clawback.gguf.")
        self.target, self.out = target, target.out
        self.note = ""

    def plan(self, publication: Publication) -> Sequence[str]:
        return [
            *plan(publication, self.target.base),
            f"write {self.out} (beside first, then in one rename)",
            f"read {self.out} again (no program is asked: name one, such as llama-cpp or ollama, to have it answer)",
        ]

    def publish(self, publication: Publication) -> None:
        if self.out.exists() and not self.target.renew:
            raise UsageError(f"{self.out} is there already: name a new file.")
        self.out.parent.mkdir(parents=True, exist_ok=True)
        keep_former(self.out)
        try:
            self.note = write(publication, self.target.base, self.out)
        except BaseException:
            settle(self.out)
            raise

    def verify(self, publication: Publication) -> str:  # noqa: ARG002
        if problem := gguf_file.read(self.out).problem:
            raise ModelError(problem)
        settle(self.out)
        return f"{self.note}; no program was asked (llama-server -m {self.out} starts it)"

    def undo(self, publication: Publication) -> str:  # noqa: ARG002
        return restore(self.out)

    def withdraw(self) -> str:
        if not self.out.exists():
            return f"there is no version in {self.out}"
        self.out.unlink()
        return f"{self.out} is removed"


def origin(publication: Publication, named: str) -> Path | None:
    """The GGUF file to merge into: the one that the base came from, else the named one (a file, ``ollama:…``, ``lmstudio:…``).

    None where llama.cpp's converter has to make one. Raises ``ModelError`` where the base's own file is another than it was, and where
    there is neither a file nor a converter.
    """
    own, gone = _source(publication.base)
    if own is not None:
        if gguf_file.read(own).identity() != publication.base_revision:
            raise ModelError(
                f"{own} is not the file that version {publication.version} was made for: it was changed since. "
                "Put the old one back, or train again."
            )
        return own
    other, missing = _source(named) if named else (None, "")
    if other is not None or _converter(publication):
        return other
    if gone or missing:
        raise ModelError(f"A merged file is a copy of the base's own. {gone or missing}")
    raise ModelError(
        f"{publication.base} did not come from a GGUF file, so llama.cpp's {CONVERTER} is needed: put it into PATH, "
        "or name it with `clawback config set publish.converter FILE`. "
        "Or name a GGUF file of the same model with --base FILE.gguf."
    )


def _source(name: str) -> tuple[Path | None, str]:
    """The GGUF file behind a name, or why there is none; neither for a name that means no such file."""
    try:
        found = local_models.source(name)
    except NotFound as error:
        return None, str(error)
    return (found.path, "") if found else (None, "")


def _converter(publication: Publication) -> str:
    found = publication.converter or shutil.which(CONVERTER) or ""
    return found if found and Path(found).expanduser().is_file() else ""


def plan(publication: Publication, named: str) -> list[str]:
    """How it will be made, a sentence a step."""
    file = origin(publication, named)
    if file is not None:
        return [
            f"take {file}, and go on only if its weights are those of {publication.base}",
            f"add version {publication.version} to the weights that it changes, in the types that they have; the rest stays byte for byte",
        ]
    return [
        f"add version {publication.version} to the weights of {publication.base}",
        f"have {_converter(publication)} make a GGUF file of them, in 16 bits",
    ]


def write(publication: Publication, named: str, out: Path) -> str:
    """Write the file, in one rename. What was written, in a sentence.

    Raises:
        ModelError: another base's file, a weight without a place in it, too little disk, no converter.
        MissingExtra: the ``gguf`` package is not installed.
    """
    file = origin(publication, named)
    if file is None:
        return _convert(publication, out)
    from clawback.extensions.publishers import gguf_merge

    commit = publication.base_revision if identity.is_commit(publication.base_revision) else None
    written = gguf_merge.merge(file, publication.base, commit, publication.adapter, out)
    wide = (
        f", {len(written.widened)} of them in 8 bits, which their own type could not hold"
        if written.widened
        else ""
    )
    return f"{out} is {file.name} with {len(written.changed)} changed weights{wide} ({written.size / 1e6:,.0f} MB)"


def _convert(publication: Publication, out: Path) -> str:
    from clawback.extensions.publishers.merged import write_folder

    converter = str(Path(_converter(publication)).expanduser())
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.") as beside:
        folder, made = Path(beside) / "merged", Path(beside) / "model.gguf"
        write_folder(publication, folder)
        done = subprocess.run(
            [sys.executable, converter, str(folder), "--outfile", str(made), "--outtype", "f16"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=CONVERT_SECONDS,
            check=False,
        )
        if done.returncode or not made.is_file():
            last = (done.stderr or done.stdout).strip().splitlines()[-1:]
            raise ModelError(
                f"{converter} could not make a GGUF file of {publication.base}: {' '.join(last)[:300]}"
            )
        made.replace(out)
    return f"{out} is made by {Path(converter).name} ({out.stat().st_size / 1e6:,.0f} MB)"

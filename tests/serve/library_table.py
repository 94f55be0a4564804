"""Client libraries against our server, and the table of docs/clients.md that says what came of it.

    python -m tests.serve.library_table --python libs/bin/python --results clients.json       # what is installed there; may be repeated
    python -m tests.serve.library_table --node libs --results clients.json                    # the AI SDK, from npm
    python -m tests.serve.library_table --results clients.json --write docs/clients.md

Each library asks twice: through the proxy, before a server that answers as the providers do (``model_server.py``), and
Clawback's own engine with the embedded model. Each answer must be right, recorded once, and ratable.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jsonschema

from clawback import config, feedback, paths, store
from clawback.paths import Home
from clawback.records import Turn
from clawback.serve import app as serving

from .conftest import Running
from .library_calls import LIBRARIES, QUESTIONS
from .model_server import ANIMAL, PICTURE, SUNNY, ModelServer

AI_SDK = "AI SDK (openai-compatible)"
CALLS = Path(__file__).with_name("library_calls.py")
WORKS, NOT_OFFERED = "works", "not offered"
APART = "works; each step is a session"
"""Where a library sends a call back in words of its own, the next request does not begin with what was recorded."""
ENGINE_CASES = ("whole", "stream", "forced", "schema", "picture")
"""The embedded model calls no tool of its own accord."""
TITLES = {
    "whole": "whole",
    "stream": "streamed",
    "tools": "tools",
    "forced": "required tool",
    "schema": "JSON schema",
    "picture": "picture",
}
EXPECTED = {
    "whole": "All about the otter.",
    "stream": "All about the fox.",
    "tools": SUNNY,
    "forced": ANIMAL,
    "schema": ANIMAL,
    "picture": PICTURE,
}
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "legs": {"type": "integer"},
        "kind": {"enum": ["mammal", "bird", "fish"]},
    },
    "required": ["name", "legs", "kind"],
}
REFUSALS = ("This model reads text alone",)
"""Beginnings of the sentences with which the embedded model may refuse."""


def distribution_of(library: str) -> str:
    return LIBRARIES[library][0]


def python_with(library: str, pythons: Sequence[str]) -> str:
    """The first of these Pythons that has the library; "" for none. Not all libraries can be installed beside each other."""
    probe = f"import importlib.metadata as m; m.version({distribution_of(library)!r})"
    for python in pythons:
        if subprocess.run([python, "-c", probe], capture_output=True, check=False).returncode == 0:
            return python
    return ""


def command(library: str, python: str) -> list[str]:
    if library == AI_SDK:
        return ["node", str(CALLS.with_suffix(".mjs"))]
    return [python, str(CALLS), library]


def ask(words: Sequence[str], url: str, home: Home, cases: Sequence[str], cwd: Path) -> dict[str, Any]:
    """What the library gave back: its version, and a result or an error for each case."""
    process = subprocess.run(
        [*words, url, paths.secret(home.root / "token"), *cases],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=cwd,
        env={"PATH": os.environ["PATH"], "HOME": str(home.root), "OMP_NUM_THREADS": "1"},
    )
    assert process.returncode == 0, process.stderr[-3000:]
    return dict(json.loads(process.stdout.splitlines()[-1]))


def run(library: str, python: str, folder: Path, cwd: Path) -> dict[str, Any]:
    """``{"version", "proxy": {case: cell}, "engine": {case: cell}}``."""
    cells: dict[str, Any] = {}
    for side in ("proxy", "engine"):
        home = Home(folder / side)
        home.create()
        model = Running(ModelServer()) if side == "proxy" else None
        server = Running(serving.make(home, config.ServeSection(upstream=model.url) if model else None))
        try:
            cases = tuple(QUESTIONS) if model else ENGINE_CASES
            answer = ask(command(library, python), server.url, home, cases, cwd)
        finally:
            server.close()
            if model:
                model.close()
        cells["version"] = answer["version"]
        with store.connect(home.database) as db:
            cells[side] = {name: cell(db, name, answer["cases"].get(name), side) for name in cases}
    return cells


def cell(db: store.Store, case: str, answer: Mapping[str, Any] | None, side: str) -> str:
    """What the table says of a case."""
    if answer is None:
        return NOT_OFFERED
    turns = [turn for turn in reversed(db.turns(limit=100)) if _asks(turn, QUESTIONS[case])]
    if "error" in answer:
        sentence = next((s for s in REFUSALS if s in answer["error"]), "")
        refused = side == "engine" and sentence and not turns
        return f"refused: “{sentence}”" if refused else f"FAILS: {answer['error'][:400]}"
    wrong = _wrong_answer(case, answer["result"], turns, side) or _wrong_record(db, case, turns)
    if wrong:
        return f"FAILS: {wrong}"
    return WORKS if len({turn.session for turn in turns}) == 1 else APART


def _asks(turn: Turn, question: str) -> bool:
    return any(m.get("role") == "user" and question in json.dumps(m.get("content")) for m in turn.messages)


def _wrong_answer(case: str, result: Any, turns: Sequence[Turn], side: str) -> str:
    if side == "proxy":
        return "" if result == EXPECTED[case] else f"the library gives {result!r}"
    if not turns:
        return "nothing was recorded"
    if case in ("whole", "stream"):
        same = result.strip() == turns[-1].response.strip() != ""
        return "" if same else f"the library gives {result!r}, recorded is {turns[-1].response!r}"
    recorded = json.loads(turns[-1].calls[0]["arguments"] if turns[-1].calls else turns[-1].response)
    try:
        jsonschema.validate(result, SCHEMA if case == "schema" else {"type": "object", "minProperties": 1})
    except jsonschema.ValidationError as error:
        return error.message
    return "" if result == recorded else f"the library gives {result!r}, recorded is {recorded!r}"


def _wrong_record(db: store.Store, case: str, turns: Sequence[Turn]) -> str:
    """What is wrong with what was recorded: each answer once, with the question as its prompt; and a rating is kept."""
    if len(turns) != (2 if case == "tools" else 1):
        return f"{len(turns)} turns were recorded"
    if not all(turn.vouched for turn in turns):
        return "it came without the token"
    if turns[0].prompt.replace("[image]", "").strip() != QUESTIONS[case]:
        return f"the prompt is {turns[0].prompt[:100]!r}"
    if turns[0].kind != ("side" if case == "schema" else "main"):
        return f"it is a {turns[0].kind} turn"
    calls = [call["name"] for call in turns[0].calls]
    if bool(calls) != (case in ("tools", "forced")) or (case == "tools" and calls != ["weather"]):
        return f"the calls are {calls}"
    if case == "picture" and not _shows_a_picture(db.turn(turns[0].id)):
        return "the picture is not there"
    rating = feedback.rate(db, turns[-1].id, 1.0)
    return "" if rating in db.feedback(turn_id=turns[-1].id) else "the rating is not there"


def _shows_a_picture(turn: Turn) -> bool:
    return any(
        part.get("type") == "image_url"
        for m in turn.messages
        if isinstance(m.get("content"), (list, tuple))
        for part in m["content"]
    )


# --------------------------------------------------------------------------------------------------------- the table

BEGIN, END = "<!-- table: python -m tests.serve.library_table -->", "<!-- end of the table -->"


def table(results: Mapping[str, Mapping[str, Any]]) -> str:
    titles = " | ".join(TITLES.values())
    lines = [f"| library | version | answered by | {titles} |", "| --- " * (len(TITLES) + 3) + "|"]
    for library in (*LIBRARIES, AI_SDK):
        if library not in results:
            continue
        found = results[library]
        for side, title in (("proxy", "a provider, through the proxy"), ("engine", "your own model")):
            cells = [found[side].get(case, "") for case in TITLES]
            lines.append(f"| {library} | {found['version']} | {title} | {' | '.join(cells)} |")
    return "\n".join(lines)


def write(page: Path, results: Mapping[str, Mapping[str, Any]]) -> None:
    before, _, rest = page.read_text("utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text(f"{before}{BEGIN}\n{table(results)}\n{END}{after}", "utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", action="append", default=[], help="a Python with client libraries")
    parser.add_argument(
        "--node", type=Path, help="a folder with npm packages: ai and @ai-sdk/openai-compatible"
    )
    parser.add_argument("--only", action="append", help="this library alone")
    parser.add_argument("--results", type=Path, required=True, help="where the results are added up")
    parser.add_argument("--write", type=Path, help="the page with the table")
    options = parser.parse_args()
    results = json.loads(options.results.read_text()) if options.results.exists() else {}
    pythons = {name: python_with(name, options.python) for name in LIBRARIES}
    chosen = [name for name in LIBRARIES if pythons[name]] + ([AI_SDK] if options.node else [])
    for library in [name for name in chosen if not options.only or name in options.only]:
        with tempfile.TemporaryDirectory() as folder:
            results[library] = run(
                library, pythons.get(library, ""), Path(folder), options.node or Path(folder)
            )
        print(library, json.dumps(results[library], ensure_ascii=False, indent=1), flush=True)
        options.results.write_text(json.dumps(results, ensure_ascii=False, indent=1))
    if options.write:
        write(options.write, results)


if __name__ == "__main__":
    main()

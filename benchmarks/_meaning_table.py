"""The table of ``benchmarks.meaning``, from its kept lines: what is wanted beside what was reached, with intervals."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks._meaning_rows import ROWS

Line = dict[str, Any]
CONFIDENCE = 0.95
HALF_YEAR = Path(__file__).parent.parent / "bench-results" / "half_year.jsonl"


def interval(values: Sequence[float]) -> str:
    """Mean and Student's interval over people; of one person the value alone."""
    from scipy.stats import t

    known = [value for value in values if value is not None and not math.isnan(value)]
    if not known:
        return "–"
    mean = statistics.mean(known)
    if len(known) < 2:
        return f"{mean:.2f} (1 person)"
    half = float(t.ppf((1 + CONFIDENCE) / 2, len(known) - 1)) * statistics.stdev(known) / math.sqrt(len(known))  # fmt: skip
    return f"{mean:.2f} [{mean - half:.2f}, {mean + half:.2f}] ({len(known)})"


def table(lines: Sequence[Line]) -> str:
    """One line for each row, model and commit of the product."""
    head = ["row", "model", "product", "AUC of what is read", "trusted", "base likes", "gain of a run", "gate accepted", "guards broken", "CPU s", "GB", "wanted"]  # fmt: skip
    made = [f"| {' | '.join(head)} |", "|" + " --- |" * len(head)]
    cells = dict.fromkeys((name, line["model"], line["code"]) for name in ROWS for line in lines if line["row"] == name)  # fmt: skip
    for name, model, code in cells:
        found = [line for line in lines if (line["row"], line["model"], line["code"]) == (name, model, code)]
        made.append(f"| {' | '.join([ROWS[name].title, model, code, *_figures(name, found), ROWS[name].wanted])} |")  # fmt: skip
    missing = [row.title for name, row in ROWS.items() if name not in {line["row"] for line in lines}]
    made += ["", "In square brackets 95 % intervals of Student's t over people, in round ones how many."]
    made += [f"Not run: {'; '.join(missing)}."] if missing else []
    return "\n".join([*made, *_changes(lines), *_edits(lines), *_contented()])


def _figures(name: str, lines: Sequence[Line]) -> list[str]:
    reads = [line for line in lines if line["kind"] == "read"]
    runs = [line for line in lines if line["kind"] == "run"]
    trusted = [line["trusted"] for line in reads if "trusted" in line]
    shown = ROWS[name].shows if ROWS[name].shows != "auc" else "gain"
    broken = sorted({guard for line in runs for guard in line.get("broken", ())})
    return [
        interval([line[ROWS[name].reads] for line in reads]),
        f"{sum(trusted)} of {len(trusted)}" if trusted else "–",
        interval([line["base"] for line in reads if "base" in line]).partition(" ")[0],
        interval([line[shown] for line in runs]),
        f"{sum(bool(line.get('accepted')) for line in runs)} of {len(runs)}" if runs else "–",
        ", ".join(broken) or "none" if runs else "–",
        interval([line["cpu_seconds"] for line in runs]).partition(" ")[0] if runs else "–",
        f"{max(line.get('gigabytes', 0.0) for line in runs):.1f}" if runs else "–",
    ]


def _changes(lines: Sequence[Line]) -> list[str]:
    """How often a change of mind was found, and how often where there was none."""
    made = []
    for code in dict.fromkeys(line["code"] for line in lines if line["row"] == "change"):
        some = [line for line in lines if line["row"] == "change" and line["code"] == code]
        found, alarms = sum(line["found"] > 0 for line in some), sum(line["alarm"] > 0 for line in some)
        made.append(f"A change of mind ({code}): found for {found} of {len(some)}; false alarms {alarms} of {len(some)}.")  # fmt: skip
    return made


def _edits(lines: Sequence[Line]) -> list[str]:
    """What eight edits say to the reader, beside taps of the same people."""
    made = []
    for code in dict.fromkeys(line["code"] for line in lines if line["row"] == "edits"):
        some = [line for line in lines if line["row"] == "edits" and line["code"] == code and line["kind"] == "read"]  # fmt: skip
        if some:
            counts = sorted({int(name[5:]) for line in some for name in line if name.startswith("taps_")})
            beside = ", ".join(f"{n} taps {interval([line.get(f'taps_{n}', math.nan) for line in some])}" for n in counts)  # fmt: skip
            made.append(f"Eight edits ({code}), AUC: {interval([line['auc'] for line in some])}; {beside}.")
    return made


def _contented() -> list[str]:
    """What a contented person is asked, from the lines of ``benchmarks.half_year``."""
    rows = [json.loads(line) for line in HALF_YEAR.read_text("utf-8").splitlines()] if HALF_YEAR.is_file() else []  # fmt: skip
    made = []
    for code in dict.fromkeys(row["code"] for row in rows):
        calm = [row for row in rows if row["code"] == code and row["contented"]]
        if calm:
            runs, asked = sum(row["runs"] for row in calm), sum(row["asked"] for row in calm)
            made.append(f"A contented person ({code}), {sum(r['ratings'] for r in calm)} ratings: {runs} runs, {asked} questions (wanted: 0 and 0).")  # fmt: skip
    return made

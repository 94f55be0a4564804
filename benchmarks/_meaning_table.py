"""The table of ``benchmarks.meaning``, from its kept lines: what is wanted beside what was reached, with intervals."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks._meaning_rows import ROWS

Line = dict[str, Any]
CONFIDENCE = 0.95
UNREAD = 0.6
"""AUC below which a wish counts as not read."""
HEADLINE = ("form-10", "form-20", "content-remarks", "content-alone", "foreign-form", "foreign-quality")
"""The six rows that are shown first."""
BEGIN, END = "<!-- from bench-results/meaning.jsonl -->", "<!-- end -->"
"""What the tables stand between on a page."""
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
    return "\n".join([*made, *_claimed(lines), *_changes(lines), *_edits(lines), *_contented()])


def _products(lines: Sequence[Line], row: str) -> Iterator[tuple[str, list[Line]]]:
    """The lines of a row, by model and commit of the product, with a name for both."""
    every = [line for line in lines if line["row"] == row]
    for model, code in dict.fromkeys((line["model"], line["code"]) for line in every):
        yield f"{model}, {code}", [line for line in every if (line["model"], line["code"]) == (model, code)]


def _claimed(lines: Sequence[Line]) -> list[str]:
    """Of people whose content was not read, how often nothing was claimed."""
    made = []
    for label, of in _products(lines, "content-alone"):
        some = [line for line in of if line["kind"] == "read"]
        unread = [line for line in some if line["auc"] < UNREAD]
        made.append(f"Content alone ({label}): of {len(some)} people {len(unread)} are not read (AUC below {UNREAD}), and of {sum(not line['trusted'] for line in unread)} of these it is said that nothing is.")  # fmt: skip
    return made


def headline(lines: Sequence[Line]) -> str:
    """At most six rows: by the first commit that was measured and by the last, what is read and what a run gains, beside what is wanted."""
    codes = list(dict.fromkeys(line["code"] for line in lines))
    shown = codes[:1] + codes[-1:] if len(codes) > 1 else codes
    head = ["row", "model", *(f"{what}, {code}" for what in ("AUC", "gain") for code in shown), "wanted"]
    made = [f"| {' | '.join(head)} |", "|" + " --- |" * len(head)]
    for name in HEADLINE:
        row, some = ROWS[name], [line for line in lines if line["row"] == name]
        for model in dict.fromkeys(line["model"] for line in some):
            of = [[line for line in some if (line["model"], line["code"]) == (model, code)] for code in shown]
            reads = [interval([line[row.reads] for line in one if line["kind"] == "read"]) for one in of]
            gains = [interval([line[_shown(name)] for line in one if line["kind"] == "run"]) for one in of]
            made.append(f"| {' | '.join([row.title, model, *reads, *gains, row.wanted])} |")
    return "\n".join(made)


def write(page: Path, lines: Sequence[Line]) -> None:
    """Put both tables onto a page, between its marks."""
    text = page.read_text("utf-8")
    before, found, rest = text.partition(BEGIN)
    _, closed, after = rest.partition(END)
    if not found or not closed:
        raise SystemExit(f"{page} has no {BEGIN} … {END}: put these lines where the tables belong.")
    page.write_text(f"{before}{BEGIN}\n\n{headline(lines)}\n\n{table(lines)}\n\n{END}{after}", "utf-8")


def _shown(name: str) -> str:
    """The figure of a run that stands for a row."""
    return ROWS[name].shows if ROWS[name].shows != "auc" else "gain"


def _figures(name: str, lines: Sequence[Line]) -> list[str]:
    reads = [line for line in lines if line["kind"] == "read"]
    runs = [line for line in lines if line["kind"] == "run"]
    trusted = [line["trusted"] for line in reads if "trusted" in line]
    broken = sorted({guard for line in runs for guard in line.get("broken", ())})
    return [
        interval([line[ROWS[name].reads] for line in reads]),
        f"{sum(trusted)} of {len(trusted)}" if trusted else "–",
        interval([line["base"] for line in reads if "base" in line]).partition(" ")[0],
        interval([line[_shown(name)] for line in runs]),
        f"{sum(bool(line.get('accepted')) for line in runs)} of {len(runs)}" if runs else "–",
        ", ".join(broken) or "none" if runs else "–",
        interval([line["cpu_seconds"] for line in runs]).partition(" ")[0] if runs else "–",
        f"{max(line.get('gigabytes', 0.0) for line in runs):.1f}" if runs else "–",
    ]


def _changes(lines: Sequence[Line]) -> list[str]:
    """How often a change of mind was found, and how often where there was none."""
    made = []
    for label, some in _products(lines, "change"):
        found, alarms = sum(line["found"] > 0 for line in some), sum(line["alarm"] > 0 for line in some)
        made.append(f"A change of mind ({label}): found for {found} of {len(some)}; false alarms {alarms} of {len(some)}.")  # fmt: skip
    return made


def _edits(lines: Sequence[Line]) -> list[str]:
    """What eight edits say to the reader, beside taps of the same people."""
    made = []
    for label, of in _products(lines, "edits"):
        some = [line for line in of if line["kind"] == "read"]
        if some:
            counts = sorted({int(name[5:]) for line in some for name in line if name.startswith("taps_")})
            beside = ", ".join(f"{n} taps {interval([line.get(f'taps_{n}', math.nan) for line in some])}" for n in counts)  # fmt: skip
            made.append(f"Eight edits ({label}), AUC: {interval([line['auc'] for line in some])}; {beside}.")
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

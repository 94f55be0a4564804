"""``clawback runs report``: one HTML file with satisfaction over time and by version, and all other figures.

These are the gate's verdicts, surveys, use of answers, A/B tests, win rates by a judge, the reward model's
quality, raters and their disagreements, and biases of the ratings.

No script, nothing loaded from elsewhere; plots are SVG in the file. All text from users is escaped.
"""

from __future__ import annotations

import html
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from clawback.admin import report_figures as figures
from clawback.release import data_card, trial
from clawback.release.data_card import OpinionGroup, StandingRating

if TYPE_CHECKING:
    from clawback.feedback.rater_statistics import Raters
    from clawback.records import JsonObject
    from clawback.store import Store

DAY = 86_400.0
WIDE, HIGH = 640, 180
STYLE = """body{font:15px/1.5 system-ui,sans-serif;max-width:46rem;margin:2rem auto;padding:0 1rem;color:#1c2733;background:#fff}
h1{font-size:1.5rem}h2{font-size:1.1rem;margin-top:2rem}table{border-collapse:collapse;width:100%}
td,th{padding:.25rem .6rem;border-bottom:1px solid #d9e0e6;text-align:left;vertical-align:top}
svg{width:100%;height:auto}.note{color:#5b6b79}.leans{background:#fff2d9}
@media(prefers-color-scheme:dark){body{color:#dde5ec;background:#14191f}td,th{border-color:#33404c}.leans{background:#4a3a14}}"""


@dataclass(frozen=True, slots=True)
class Week:
    """Ratings of seven days, from ``start`` on."""

    start: float
    count: int
    good: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Facts:
    """All figures that the report shows."""

    turns: int
    ratings: int
    good: float
    weeks: tuple[Week, ...]
    versions: tuple[JsonObject, ...]
    skew: dict[str, tuple[OpinionGroup, ...]]
    raters: tuple[JsonObject, ...]
    alpha: float | None
    trial: JsonObject | None
    forgotten: int
    use: tuple[figures.Use, ...]
    ab: tuple[figures.Difference, ...]
    win_rates: tuple[JsonObject, ...]
    surveys: tuple[figures.Month, ...]
    held_out: JsonObject | None
    disagreements: int
    shared: int

    def to_dict(self) -> JsonObject:
        return asdict(self)


def facts(store: Store, now: float | None = None) -> Facts:
    """Read everything once."""
    from clawback.feedback.rater_statistics import disagreements, raters

    now = time.time() if now is None else now
    said, people = data_card.opinions(store), raters(store)
    on = trial.running(store)
    return Facts(
        turns=store.count_turns(),
        ratings=len(said),
        good=sum(one.value > 0 for one in said) / len(said) if said else 0.0,
        weeks=tuple(_weeks(said)),
        versions=tuple(_versions(store, said)),
        skew={title: tuple(data_card.groups(said, key)) for title, key in data_card.BY.items()},
        raters=tuple(_raters(people)),
        alpha=people.alpha,
        trial=asdict(trial.score(store, on, now)) | {"candidate": on.candidate, "live": on.live}
        if on
        else None,
        forgotten=len(store.forgotten()),
        use=tuple(figures.use(store.engagement())),
        ab=tuple(figures.ab(store, on)) if on else (),
        win_rates=tuple(figures.win_rates(store)),
        surveys=tuple(figures.surveys(store.surveys_over_time())),
        held_out=figures.held_out(store),
        disagreements=len(disagreements(store, {}, most=1_000_000)),
        shared=sum(n > 1 for n in Counter(one.turn_id for one in said).values()),
    )


def _weeks(opinions: Sequence[StandingRating]) -> list[Week]:
    by_week: dict[int, list[StandingRating]] = {}
    for one in opinions:
        by_week.setdefault(int(one.at // (7 * DAY)), []).append(one)
    made = []
    for week, of in sorted(by_week.items()):
        good = sum(one.value > 0 for one in of)
        made.append(Week(week * 7 * DAY, len(of), good / len(of), *data_card.wilson(good, len(of))))
    return made


def _versions(store: Store, opinions: Sequence[StandingRating]) -> list[JsonObject]:
    surveys = store.surveys()
    made = []
    for version in store.versions():
        of = [one for one in opinions if one.version == version.number]
        good = sum(one.value > 0 for one in of)
        low, high = data_card.wilson(good, len(of))
        scores = surveys.get(version.number, [])
        reasons = (version.report or {}).get("reasons") or [""]
        made.append(
            {
                "version": version.number,
                "status": version.status,
                "stale": version.stale,
                "ratings": len(of),
                "good": good / len(of) if of else None,
                "low": low,
                "high": high,
                "surveys": len(scores),
                "survey": sum(scores) / len(scores) if scores else None,
                "gate": str(reasons[0]),
            }
        )
    return made


def _raters(people: Raters) -> list[JsonObject]:
    keep = ("source", "judge", "count", "good", "kappa", "common", "weight")
    return [
        {name: getattr(one, name) for name in keep} | {"outliers": len(one.outliers)} for one in people.raters
    ]


# -------------------------------------------------------------------------------------------------------- the page


def page(facts: Facts, title: str = "Clawback") -> str:
    """The complete HTML file."""
    parts = [
        f"<p>{facts.turns} turns, {facts.ratings} ratings, {facts.good:.0%} of them good.</p>",
        "<h2>Satisfaction over time</h2>",
        _curve(facts.weeks) if facts.weeks else "<p class=note>Nothing is rated yet.</p>",
        "<h2>Versions</h2>",
        _bars([(f"v{v['version']}", v["good"], v["low"], v["high"]) for v in facts.versions if v["ratings"]]),
        _table(("version", "status", "ratings", "good", "survey (1 to 5)", "what the gate said"), [
            (_named(v), v["status"], v["ratings"], _share(v["good"]), _survey(v), v["gate"]) for v in facts.versions
        ]),
    ]  # fmt: skip
    if facts.surveys:
        parts += ["<h2>Surveys (1 to 5)</h2>", _surveys(facts.surveys)]
    if facts.trial:
        parts += ["<h2>A/B</h2>", _trial(facts.trial), _ab(facts.ab)]
    if facts.use:
        parts += ["<h2>What was done with answers</h2>", _use(facts.use)]
    if facts.win_rates:
        parts += ["<h2>Win rates by a judge</h2>", _wins(facts.win_rates)]
    if facts.held_out:
        parts += ["<h2>The reward model</h2>", _held_out(facts.held_out)]
    parts += [
        "<h2>Where ratings lean</h2>",
        "<p class=note>A marked group differs from all others by more than chance (95 %, Wilson).</p>",
    ]
    for name, of in facts.skew.items():
        rows = [(g.name, g.count, f"{g.good:.0%}", f"{g.low:.0%} to {g.high:.0%}") for g in of]
        parts.append(_table((name, "ratings", "good", "interval"), rows, [g.leans for g in of]))
    parts += ["<h2>Raters</h2>", _people(facts)]
    if facts.forgotten:
        parts.append(f"<p class=note>{facts.forgotten} deletions on somebody's wish are on record.</p>")
    body = "\n".join(parts)
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{html.escape(title)}</title>'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style><h1>{html.escape(title)}</h1>{body}</html>\n'
    )


def _named(version: JsonObject) -> str:
    return f"{version['version']}{' (learned from what was deleted since)' if version['stale'] else ''}"


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.0%}"


def _survey(version: JsonObject) -> str:
    return "" if version["survey"] is None else f"{version['survey']:.1f} of {version['surveys']}"


def _trial(trial: JsonObject) -> str:
    rows = [
        (name.replace("_", " "), f"{value:.3g}" if isinstance(value, float) else value)
        for name, value in trial.items()
    ]
    return _table(("trial that is on", ""), rows)


def _ab(differences: Sequence[figures.Difference]) -> str:
    if not differences:
        return "<p class=note>Too few conversations on either side to compare how they went.</p>"
    rows = [(d.name, f"{d.candidate:.2f}", f"{d.live:.2f}", f"{d.candidate - d.live:+.2f} ({d.low:+.2f} to {d.high:+.2f})") for d in differences]  # fmt: skip
    return _table(
        ("how conversations went", "candidate", "live", "difference"), rows, [d.differs for d in differences]
    )


def _use(uses: Sequence[figures.Use]) -> str:
    rows = [
        (u.version, u.sessions, f"{u.turns:.1f}", f"{u.minutes:.1f}", _interval(u.clicked), _interval(u.again), _interval(u.went_on))
        for u in uses
    ]  # fmt: skip
    head = ("version", "conversations", "turns", "minutes", "click-through", "asked again", "went on")
    bars = [(f"v{u.version}", u.clicked.share, u.clicked.low, u.clicked.high) for u in uses]
    note = "<p class=note>Click-through: answers of which a link was opened, or that were copied or taken over. The bars are that share.</p>"
    return _bars(bars) + _table(head, rows) + note


def _interval(share: figures.Share) -> str:
    return f"{share.share:.0%} ({share.low:.0%} to {share.high:.0%})"


def _wins(passes: Sequence[JsonObject]) -> str:
    rows = [
        (f"{w['first']} over {w['second']}", w["judge"], w["pairs"], f"{w['rate']:.0%} ({w['low']:.0%} to {w['high']:.0%})",
         f"{w['controlled']:.0%} ({w['controlled_low']:.0%} to {w['controlled_high']:.0%})", f"{w['ties']:.0%}", f"{w['longer']:+.0f}")
        for w in passes
    ]  # fmt: skip
    head = ("versions", "judge", "prompts", "wins", "at equal length", "ties by order", "words longer")
    bars = [(f"{w['first']} v {w['second']}", w["controlled"], w["controlled_low"], w["controlled_high"]) for w in passes[:10]]  # fmt: skip
    return _bars(bars) + _table(head, rows)


def _held_out(fresh: JsonObject) -> str:
    def shown(interval: dict[str, float]) -> str:
        return f"{interval['value']:.2f} ({interval['low']:.2f} to {interval['high']:.2f})"

    rows = [("reward model", shown(fresh["spearman"]), "")]
    rows += [(b["name"], shown(b["spearman"]), shown(b["ahead"])) for b in fresh.get("baselines", ())]
    note = f"<p class=note>Spearman's ρ on {fresh['rows']} answers to {fresh['prompts']} prompts that it had not seen.</p>"
    return _table(("", "Spearman's ρ", "the model is ahead by"), rows) + note


def _surveys(months: Sequence[figures.Month]) -> str:
    bars = [(_day(m.start)[:7], (m.mean - 1) / 4, (m.low - 1) / 4, (m.high - 1) / 4) for m in months]
    rows = [(_day(m.start), m.count, f"{m.mean:.1f} ({m.low:.1f} to {m.high:.1f})") for m in months]
    return _bars(bars) + _table(("thirty days from", "surveys", "mean"), rows)


def _people(facts: Facts) -> str:
    rows = [
        (r["source"], "judge" if r["judge"] else "person", r["count"], f"{r['good']:.0%}",
         "" if r["kappa"] is None else f"{r['kappa']:.2f} ({r['common']})", f"{r['weight']:.2f}", r["outliers"])
        for r in facts.raters
    ]  # fmt: skip
    alpha = f"<p>Krippendorff's α of all persons: {facts.alpha:.2f}</p>" if facts.alpha is not None else ""
    shared = (
        f"<p>{facts.shared} answers were rated by several; of {facts.disagreements} some liked them and others did not. "
        "Training takes the mean of what was said, by weight.</p>"
    )
    head = ("rater", "", "ratings", "good", "κ (turns in common)", "weight", "outliers")
    return _table(head, rows) + alpha + (shared if facts.shared else "")


def _table(head: Sequence[str], rows: Sequence[Sequence[object]], marked: Sequence[bool] = ()) -> str:
    first = "".join(f"<th>{html.escape(str(cell))}</th>" for cell in head)
    made = []
    for number, row in enumerate(rows):
        cells = "".join(f"<td>{html.escape(str(cell))}</td>" for cell in row)
        made.append(f"<tr{' class=leans' if number < len(marked) and marked[number] else ''}>{cells}</tr>")
    return f"<table><tr>{first}</tr>{''.join(made)}</table>"


def _y(share: float) -> float:
    return 10 + (HIGH - 40) * (1 - share)


def _curve(weeks: Sequence[Week]) -> str:
    """Share of good ratings a week, with its interval as a band."""
    first, last = weeks[0].start, weeks[-1].start
    x = [40 + (WIDE - 60) * ((w.start - first) / (last - first) if last > first else 0.5) for w in weeks]
    band = [f"{a:.1f},{_y(w.high):.1f}" for a, w in zip(x, weeks, strict=True)]
    band += [f"{a:.1f},{_y(w.low):.1f}" for a, w in reversed(list(zip(x, weeks, strict=True)))]
    line = " ".join(f"{a:.1f},{_y(w.good):.1f}" for a, w in zip(x, weeks, strict=True))
    dots = "".join(
        f'<circle cx="{a:.1f}" cy="{_y(w.good):.1f}" r="3" fill="#1f77b4"><title>{_day(w.start)}: {w.good:.0%} of {w.count}</title></circle>'
        for a, w in zip(x, weeks, strict=True)
    )
    ends = f'<text x="40" y="{HIGH - 8}">{_day(first)}</text><text x="{WIDE - 20}" y="{HIGH - 8}" text-anchor="end">{_day(last)}</text>'
    return _svg(
        f'<polygon points="{" ".join(band)}" fill="#1f77b4" opacity=".18"/><polyline points="{line}" fill="none" stroke="#1f77b4" stroke-width="2"/>{dots}{ends}'
    )


def _bars(rows: Sequence[tuple[str, float, float, float]]) -> str:
    """A share with its interval for each name."""
    if not rows:
        return ""
    step = (WIDE - 60) / len(rows)
    made = []
    for number, (name, share, low, high) in enumerate(rows):
        left, middle, broad = 40 + number * step + step * 0.2, 40 + (number + 0.5) * step, min(step * 0.6, 60)
        left = middle - broad / 2
        made.append(
            f'<rect x="{left:.1f}" y="{_y(share):.1f}" width="{broad:.1f}" height="{_y(0) - _y(share):.1f}" fill="#1f77b4" opacity=".6"/>'
        )
        made.append(
            f'<line x1="{middle:.1f}" x2="{middle:.1f}" y1="{_y(high):.1f}" y2="{_y(low):.1f}" stroke="currentColor"/>'
        )
        made.append(f'<text x="{middle:.1f}" y="{HIGH - 8}" text-anchor="middle">{html.escape(name)}</text>')
    return _svg("".join(made))


def _svg(inside: str) -> str:
    grid = "".join(
        f'<line x1="40" x2="{WIDE - 20}" y1="{_y(s):.1f}" y2="{_y(s):.1f}" stroke="currentColor" opacity=".15"/><text x="34" y="{_y(s) + 4:.1f}" text-anchor="end">{s:.0%}</text>'
        for s in (0, 0.5, 1)
    )
    return (
        f'<svg viewBox="0 0 {WIDE} {HIGH}" font-size="11" fill="currentColor" role="img">{grid}{inside}</svg>'
    )


def _day(at: float) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(at))

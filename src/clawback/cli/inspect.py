"""``status turns show``: look at what was captured and learned."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

import click

from clawback import config, endings
from clawback.feedback.due import LEAST_OF_EACH_SIGN
from clawback.progress import describe
from clawback.terminal import (
    CommandGroup,
    as_record,
    columns,
    current_home,
    emit,
    fold,
    json_option,
    open_store,
    say,
    when,
)

if TYPE_CHECKING:
    from clawback.feedback.due import Balance, Failure
    from clawback.feedback.news import News
    from clawback.paths import Home
    from clawback.records import Feedback, JsonObject, Rule, Run, Turn, Version
    from clawback.release.following import Standing
    from clawback.store import Store
    from clawback.store.pending import Early


@click.command()
@json_option
def status(as_json: bool) -> None:
    """Ratings, the live version, and what is running.

    \b
    clawback status
    clawback status --json
    """
    state = _state(current_home())
    emit(_state_data(state), _state_text(state), as_json)
    if state.news and not as_json:
        tell_news()


class _State(NamedTuple):
    """What ``status`` shows."""

    home: Home
    settings: config.Config
    live: Version
    run: Run | None
    balance: Balance
    turns: int
    fresh: int
    trial: str
    """The trial that is on, in a line; "" for none."""
    undecided: tuple[int, int] | None
    """The version that the gate has not decided about, and at how many answers it is judged again."""
    missing: int
    """Answers that are still needed for that."""
    missing_sign: str
    """Which ratings there are too few of, "good" or "bad"."""
    skipped: JsonObject | None
    early: list[Early]
    failed: Failure | None
    published: Sequence[Standing]
    news: News | None
    move: str
    scheduled: datetime | None
    rules: list[Rule]
    """Believed rules that wait for the owner's yes."""
    troubles: list[str]
    """Of the agents' hooks, a sentence each."""

    @property
    def threshold(self) -> int:
        """Ratings that the next automatic run takes."""
        from clawback.feedback.due import needed_for_run

        return needed_for_run(self.skipped, self.settings.training.threshold)

    @property
    def lost(self) -> list[Early]:
        return [one for one in self.early if one.lost]


def _state(here: Home) -> _State:
    from clawback import feedback
    from clawback.capture import agent_integration
    from clawback.feedback.due import last_failure, missing_sign, no_gain
    from clawback.feedback.news import news
    from clawback.feedback.rule_consent import waiting_rules
    from clawback.release import following
    from clawback.runs import schedule

    settings = config.load(here.config)
    with open_store() as store:
        undecided = store.waiting()
        return _State(
            home=here,
            settings=settings,
            live=store.live(),
            run=store.current_run(),
            balance=feedback.balance(store),
            turns=store.count_turns(),
            fresh=store.count_fresh(),
            trial=_trial(store),
            undecided=undecided,
            missing=max(undecided[1] - store.count_gate_answers(undecided[0]), 1) if undecided else 0,
            missing_sign=missing_sign(store),
            skipped=no_gain(store),
            early=store.early(),
            failed=last_failure(store),
            published=following.standings(store, settings),
            news=news(store),
            move=_move(here),
            scheduled=schedule.scheduled(store),
            rules=waiting_rules(store),
            troubles=list(agent_integration.troubles(here)),
        )


def _trial(store: Store) -> str:
    from clawback.release import best_of, trial

    if tried := trial.running(store):
        return f"version {tried.candidate} answers {tried.share:.0%} of the sessions"
    chosen = best_of.running(store)
    return f"each answer is the best of {chosen.count} draws" if chosen else ""


def _state_data(state: _State) -> JsonObject:
    undecided, run, current = state.undecided, state.run, state.news
    version = {"version": undecided[0], "at": undecided[1], "answers": state.missing} if undecided else None
    return {
        "home": str(state.home.root),
        "model": state.settings.model.base,
        "live": state.live.number,
        "turns": state.turns,
        "good": state.balance.good,
        "bad": state.balance.bad,
        "fresh": state.fresh,
        "threshold": state.threshold,
        "missing_sign": state.missing_sign,
        "trial": state.trial,
        "undecided": version,
        "nothing_to_gain": state.skipped["why"] if state.skipped else "",
        "run": asdict(run) | {"status": run.state} if run else None,
        "failed": state.failed._asdict() if state.failed else None,
        "warning": state.balance.warning,
        "waiting": len(state.early) - len(state.lost),
        "lost": [one._asdict() for one in state.lost],
        "move": state.move,
        "scheduled": state.scheduled.isoformat(timespec="minutes") if state.scheduled else None,
        "rules": [{"id": rule.id, "text": rule.text} for rule in state.rules],
        "agents": state.troubles,
        "news": current._asdict() | {"sentence": current.sentence} if current else None,
        "published": [
            {
                "where": one.target.where,
                "version": one.version,
                "current": one.current(state.live),
                "error": one.error,
            }
            for one in state.published
        ],
    }


def _state_text(state: _State) -> str:
    from clawback.runs import schedule

    live, base, run = state.live, state.settings.model.base, state.run
    name = "the base model" if live.number == 0 else f"version {live.number}"
    counted = state.fresh - (state.skipped["fresh"] if state.skipped else 0)
    lines = [
        f"Live      {name} of {base}",
        f"Turns     {state.turns} captured",
        f"Ratings   {state.balance.good} good, {state.balance.bad} bad",
        f"Next run  {next_run(counted, state.threshold, state.missing_sign)}",
    ]
    if state.scheduled:
        lines.append(f"Scheduled {schedule.sentence(state.scheduled)}")
    if waiting := len(state.early) - len(state.lost):
        lines.append(f"Waiting   {waiting} for an answer that is still to come")
    lines += [f"Lost      {one.summary}, {when(one.created_at)}: {one.lost}" for one in state.lost]
    if state.trial:
        lines.append(f"Trial     {state.trial} (`clawback versions trial`)")
    if state.undecided:
        lines.append(
            f"Undecided version {state.undecided[0]}: say which of two answers is better, {state.missing} times or more "
            "(`clawback inbox --rate`)"
        )
    if state.skipped:
        lines.append(f"No run    {state.skipped['why']} (`clawback train --anyway`)")
    if run:
        stopped = " (interrupted: `clawback train` goes on with it)" if run.interrupted else ""
        stopped = stopped or (", stops after this step" if run.stop_at else "")
        what = f"Preparing run {run.id}:" if run.status == "preparing" else "Training "
        lines.append(f"{what} {describe(run.progress)}{stopped}")
    elif state.failed:
        lines.append(f"Failed    {when(state.failed.at)}: {state.failed.why}")
    if state.move:
        lines.append(f"Move      {state.move}")
    lines += [
        f"Rule      {rule.text} Your ratings speak for it: `clawback rules keep {rule.id}`, or `drop`"
        for rule in state.rules
    ]
    lines += [f"Published {one.sentence(live)}" for one in state.published]
    lines += [state.balance.warning] if state.balance.warning else []
    if base == config.EMBEDDED:
        lines.append(f"Note      {config.DEMONSTRATION}")
    return "\n".join([*(fold(line, " " * 10) for line in lines), *map(fold, state.troubles)])


def _move(here: Home) -> str:
    """How far a move to another base is, in a line; "" where there is none."""
    if not here.move.exists():
        return ""
    from clawback import plugins

    if "move" not in plugins.built_in(plugins.STATUS):
        return ""
    line: str = plugins.load(plugins.STATUS, "move")(here)
    return line


def next_run(fresh: int, threshold: int, missing_sign: str = "") -> str:
    """How many ratings are missing until an automatic run, and of which kind (``feedback.due.missing_sign``)."""
    missing = threshold - fresh
    if missing <= 0 and missing_sign:
        return f"{threshold} of {threshold} fresh ratings; it starts once {LEAST_OF_EACH_SIGN} answers are rated {missing_sign}"
    if missing <= 0:
        return f"{threshold} of {threshold} fresh ratings: due"
    return f"{fresh} of {threshold} fresh ratings, {missing} more until it starts"


def tell_news() -> None:
    """The news: asked about where a person can press a key, else as a line."""
    from clawback.feedback.news import news

    with open_store() as store:
        if sys.stdin.isatty() and sys.stdout.isatty():
            from clawback.cli.chat import ask_about_news

            say()
            ask_about_news(current_home(), store)
        elif current := news(store):
            say(f"News      {current.sentence}")


@dataclass(frozen=True, slots=True)
class TurnFilter:
    """Which turns are listed."""

    limit: int
    end_id: int | None
    session: str | None
    search: str | None
    rated: bool | None


@click.group(
    cls=CommandGroup, invoke_without_command=True,
    members={"remark": "rate:remark", "sessions": "serve:sessions"}, renamed={"note": "remark"},
)  # fmt: skip
@click.option("--limit", default=20, show_default=True, type=click.IntRange(1, 10_000), help="How many.")
@click.option("--before", "end_id", type=int, metavar="ID", help="Only turns older than this one.")
@click.option("--session", help="Only this session.")
@click.option("--search", metavar="TEXT", help="Only turns whose prompt or response holds this text.")
@click.option("--rated/--unrated", default=None, help="Only rated, or only unrated ones.")
@json_option
@click.pass_context
@as_record(TurnFilter, "which")
def turns(ctx: click.Context, which: TurnFilter, as_json: bool) -> None:
    """List captured turns, newest first; show one, write a remark on one, list conversations.

    \b
    clawback turns --unrated
    clawback turns --search otter --json
    clawback turns show 12
    """
    if ctx.invoked_subcommand:
        return
    with open_store() as store:
        page = store.turns(
            limit=which.limit,
            ids=None if which.end_id is None else range(which.end_id),
            session=which.session,
            text=which.search,
            rated=which.rated,
        )
        opinions = {turn.id: store.feedback(turn_id=turn.id) for turn in page}
        none = (
            "No turn is like that."
            if store.turns(limit=1)
            else "No turns yet. Use your agent, `clawback chat`, or `clawback import FILE`."
        )
    data = [as_data(turn, opinions[turn.id]) for turn in page]
    lines = [
        columns(
            f"{t.id:>6}  {when(t.created_at)}  {marks(opinions[t.id]):<4}{'' if t.kind == 'main' else ' (side)'}{' (cut)' if t.cut else ''}",
            t.prompt,
            t.response,
        )
        for t in page
    ]
    emit(
        data,
        "\n".join(lines) or none,
        as_json,
    )


def marks(opinions: list[Feedback]) -> str:
    """The newest opinion on a turn, in a few characters."""
    from clawback.records import KIND_WORDS

    for opinion in reversed(opinions):
        if opinion.kind == "rating":
            return {1.0: "good", -1.0: "bad"}.get(opinion.value, f"{opinion.value:+.1f}")
        return KIND_WORDS.get(opinion.kind, opinion.kind)[:4]
    return ""


def as_data(turn: Turn, opinions: list[Feedback]) -> JsonObject:
    """What ``--json`` prints of a turn (token ids and log-probs left out)."""
    data = asdict(turn) | {"prompt": turn.prompt, "feedback": [asdict(f) for f in opinions]}
    return {key: value for key, value in data.items() if key not in ("response_ids", "response_logprobs")}


def _in_words(opinion: Feedback) -> str:
    """``rating -1 too long``; where the words are all there is to it, no number."""
    from clawback.records import KIND_WORDS

    if opinion.kind == "preference" and opinion.other_turn_id is not None:
        better, worse = opinion.turn_id, opinion.other_turn_id
        if opinion.value == 0:
            return f"preference: neither of {better} and {worse} is better {opinion.text}".rstrip()
        if opinion.value < 0:
            better, worse = worse, better
        return f"preference: {better} is better than {worse} {opinion.text}".rstrip()
    if opinion.kind == "implicit" and opinion.other_turn_id is not None:
        return f"a guess ({opinion.source}): {opinion.turn_id} is better than {opinion.other_turn_id}"
    if opinion.kind in ("edit", "critique"):
        return f"{KIND_WORDS.get(opinion.kind, opinion.kind)}: {opinion.text}"
    return f"{opinion.kind} {opinion.value:+.2g} {opinion.text}".rstrip()


@turns.command()
@click.argument("turn", type=int)
@json_option
def show(turn: int, as_json: bool) -> None:
    """Show one turn: what was asked and answered, what you said about it, and the reward it adds up to.

    \b
    clawback turns show 12
    """
    from clawback import feedback

    with open_store() as store:
        record, opinions = store.turn(turn), store.feedback(turn_id=turn)
        judges = feedback.judges(store, opinions)
        raters = feedback.rater_weights(store, config.load(current_home().config).training.raters)
        samples = feedback.samples(
            store,
            feedback_ids=[f.id for f in opinions],
            judges=judges,
            raters=raters,
            middles=store.middles(),
        )
        sample = next((s for s in samples if s.turn_id == turn), None)
    data = as_data(record, opinions) | {
        "reward": sample.reward if sample else None,
        "parts": [asdict(p) for p in sample.parts] if sample else [],
    }
    who = f"version {record.version}" if record.version is not None else (record.model or "unknown model")
    lines = [f"Turn {record.id} · {record.agent} · {who} · {when(record.created_at)} · {record.kind}", ""]
    lines += ["> " + line for line in record.prompt.splitlines()] + ["", record.response, ""]
    if cut := endings.notice(record.ending):
        lines += [fold(cut), ""]
    lines += [f"  {_in_words(f)} ({f.source}, {when(f.created_at)})" for f in opinions]
    if sample:
        parts = ", ".join(f"{p.kind} {p.value:+.2g} × {p.weight:g}" for p in sample.parts)
        lines.append(f"  reward {sample.reward:+.2f} = {parts}")
    emit(data, "\n".join(lines), as_json)

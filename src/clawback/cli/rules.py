"""``rules``: what you want of every answer, a sentence each, and how often each was kept (docs/rules.md)."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from clawback.cli import rule_receipts
from clawback.errors import UsageError
from clawback.terminal import (
    CommandGroup,
    as_record,
    confirm,
    current_home,
    emit,
    fold,
    json_option,
    open_store,
    quantity,
    say,
    shorten,
)
from clawback.terminal.progress_bar import waiting

if TYPE_CHECKING:
    from clawback.jobs.rule_learning import LearnPlan
    from clawback.records import Rule
    from clawback.rules.rule_pass import LearnOutcome
    from clawback.store import Store

NONE = 'There are no rules yet. `clawback rules add "Never apologise."` adds one in your words, `clawback rules learn` reads some out of your ratings.'


@click.group(cls=CommandGroup, invoke_without_command=True)
@click.option("--all", "everything", is_flag=True, help="Also rules that were withdrawn.")
@json_option
@click.pass_context
def rules(ctx: click.Context, everything: bool, as_json: bool) -> None:
    """List your rules, and how often each was kept, by model.

    A rule is a sentence that says what you want of every answer. Code, or a judge where code cannot tell, checks each recorded answer.

    \b
    clawback rules
    clawback rules add "Never apologise."
    clawback rules show 1
    """
    if ctx.invoked_subcommand is None:
        list_rules(everything, as_json)


def list_rules(everything: bool, as_json: bool) -> None:
    """The table."""
    from clawback.rules import receipts

    with open_store() as store:
        _bring_up_to_date(store, as_json)
        chosen = [rule for rule in store.rules() if everything or rule.status != "withdrawn"]
        rows = receipts.receipts(store, chosen)
    emit([receipts.as_json(one) for one in rows], rule_receipts.table(rows) if rows else fold(NONE), as_json)


def _bring_up_to_date(store: Store, as_json: bool) -> None:
    """Check what no check has seen. The first time, with many answers, that takes a while, and says so."""
    from clawback.rules import receipts

    most = receipts.FEW
    while receipts.update(store, most) >= most:
        if not as_json and sys.stderr.isatty():
            low = min((first for first, _ in store.checked_ranges().values()), default=0)
            click.echo(f"\rChecking older answers, down to turn {low:,} …", err=True, nl=False)
    if not as_json and sys.stderr.isatty():
        click.echo("\r\033[K", err=True, nl=False)
    refresh(store)


def refresh(store: Store) -> None:
    """Write what agents' hooks read of the rules."""
    from clawback.rules import rule_reminders

    rule_reminders.write(current_home(), store)


# ------------------------------------------------------------------------------------------------------------ one rule


@rules.command()
@click.argument("number", type=int)
@click.option(
    "--limit", default=20, show_default=True, type=click.IntRange(1, 1_000), help="Breaches, how many."
)
@click.option(
    "--before", "end_id", type=int, metavar="ID", help="Only breaches in turns older than this one."
)
@json_option
def show(number: int, limit: int, end_id: int | None, as_json: bool) -> None:
    """Show the receipts of a rule: by model and week, the ratings for and against it, and each breach.

    \b
    clawback rules show 1
    clawback rules show 1 --limit 100 --json
    """
    from clawback import feedback
    from clawback.feedback.rule_consent import accepted_sentences, may_be_said
    from clawback.rules import receipts

    with open_store() as store:
        rule = store.rule(number)
        _bring_up_to_date(store, as_json)
        [receipt] = receipts.receipts(store, [rule])
        by_model = receipts.table(store, rule)
        rated = receipts.ratings(store, rule, feedback.samples(store))
        broken = receipts.breaches(store, rule, limit, end_id)
        waits = rule.status == "believed" and not may_be_said(rule, accepted_sentences(store))
    data = receipts.as_json(receipt) | {
        "by_model_and_week": {m: {w: s.to_dict() for w, s in weeks.items()} for m, weeks in by_model.items()},
        "ratings": asdict(rated),
        "breaches": [one.to_dict() for one in broken],
    }
    parts = [
        rule_receipts.head(receipt, waits),
        rule_receipts.by_week(receipt, by_model),
        rule_receipts.ratings(rated),
        rule_receipts.breaches(broken, receipt.overall.checked - receipt.overall.passes),
    ]
    emit(data, "\n\n".join(filter(None, parts)), as_json)


# ------------------------------------------------------------------------------------------------------------- changes


@rules.command()
@click.argument("text")
@json_option
def add(text: str, as_json: bool) -> None:
    """Add a rule in your own words, and say at once how often it was kept.

    \b
    clawback rules add "Never apologise."
    clawback rules add "Answer in at most 80 words."
    """
    from clawback.jobs import rule_proposals
    from clawback.rules import receipts

    with open_store() as store:
        if _typed_by() != "cli":
            proposed = rule_proposals.propose(store, [text], "shell")
            if proposed.refused:
                raise UsageError(f"The rule was not taken: {proposed.refused[0][1]}.")
            [rule] = proposed.rules
        else:
            rule = rule_proposals.add(store, text)
        _bring_up_to_date(store, as_json)
        [receipt] = receipts.receipts(store, [rule])
    lines = [f"Rule {rule.id}: {rule.text}"]
    if rule.status == "proposed":
        lines.append(
            f"An agent runs this command, so the rule waits for your yes: `clawback rules keep {rule.id}`."
        )
    if receipt.judged:
        lines.append("Code cannot check it; `clawback rules learn` asks a judge, where there is one.")
    else:
        lines.append(f"Code checks it ({rule.check}). Kept so far: {receipt.overall.text()}.")
    lines += _next_steps(rule)
    emit(receipts.as_json(receipt), fold("\n".join(lines), "  "), as_json)


def _next_steps(rule: Rule) -> list[str]:
    from clawback.feedback.rule_consent import may_be_said

    text = "`clawback rules use` puts it into the prompt that your agent's model reads."
    return [text] if may_be_said(rule) else []


def _typed_by() -> str:
    """``cli``, or ``agent`` where an agent runs this command."""
    from clawback.feedback.provenance import of_terminal

    return of_terminal(os.environ)


def _for_the_owner(what: str) -> None:
    """Raises ``UsageError`` where an agent runs the command: a yes is the person's."""
    if _typed_by() != "cli":
        raise UsageError(
            f"An agent runs this command, and {what} is for the person: do it in a terminal of your own."
        )


@rules.command()
@click.argument("number", type=int)
@json_option
def keep(number: int, as_json: bool) -> None:
    """Say yes to a rule that somebody else proposed: it counts, and may go into prompts.

    \b
    clawback rules keep 3
    """
    from clawback.jobs import rule_proposals

    _for_the_owner("saying yes to a rule")
    with open_store() as store:
        rule = rule_proposals.accept(store, number)
        refresh(store)
    text = [f"Rule {rule.id} is yours now: {rule.text}", *_next_steps(rule)]
    emit(asdict(rule), fold("\n".join(text), "  "), as_json)


@rules.command()
@click.argument("number", type=int)
@json_option
def drop(number: int, as_json: bool) -> None:
    """Withdraw a rule. Its receipts stay, and `clawback rules keep` brings it back.

    \b
    clawback rules drop 3
    """
    from clawback.jobs import rule_proposals
    from clawback.prompt_jobs import rule_prompt

    _for_the_owner("withdrawing a rule")
    with open_store() as store:
        rule = rule_proposals.withdraw(store, number)
        refresh(store)
        there = rule.text in store.live().prompt and rule_prompt.pending(store) is not None
    text = f"Rule {rule.id} is withdrawn: {rule.text}"
    if there:
        text += "\nThe live prompt still says it: `clawback rules use` takes it out."
    emit(asdict(rule) | {"in_prompt": there}, fold(text, "  "), as_json)


@rules.command()
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
def use(yes: bool, as_json: bool) -> None:
    """Put your rules into the live prompt, and take withdrawn ones out: for a model whose weights you do not have.

    The result is a version like any other: `clawback prompts show` shows it, `clawback versions rollback` goes back.

    \b
    clawback rules use
    clawback rules use --yes
    """
    import difflib

    from clawback.prompt_jobs import rule_prompt
    from clawback.release import prompted

    _for_the_owner("changing the live prompt")
    here = current_home()
    with open_store() as store:
        text = rule_prompt.pending(store)
        if text and not yes:
            lines = difflib.unified_diff(
                prompted.source(store.live()).splitlines(), text.splitlines(), "the live prompt", "with your rules", lineterm="", n=1,
            )  # fmt: skip
            say("\n".join(lines) + "\n", err=True)
            confirm("Put it live?", abort=True, err=True)
        version = rule_prompt.use(store, here)
    sentence = f"Version {version.number} is live, with your rules in its prompt. `clawback versions rollback` goes back."
    emit(asdict(version), sentence, as_json)


@dataclass(frozen=True, slots=True)
class LearnOptions:
    """What rules are read from, and who checks them."""

    files: tuple[Path, ...]
    by_base: bool
    code_only: bool
    again: bool


@rules.command()
@click.option(
    "--file",
    "files",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Also take rules from a file such as CLAUDE.md; more than once for several.",
)
@click.option(
    "--base", "by_base", is_flag=True,
    help="Let your base model judge what code cannot see, on this machine, if it passes an exam first.",
)  # fmt: skip
@click.option("--code-only", is_flag=True, help="Ask no model, also where [judge] names one.")
@click.option("--again", is_flag=True, help="Also where nothing is new since the last time.")
@click.option("--dry-run", is_flag=True, help="Only show which answers a model would be sent.")
@click.option("--yes", is_flag=True, help="Do not ask before answers are sent to a server.")
@json_option
@as_record(LearnOptions)
def learn(options: LearnOptions, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Read rules out of your ratings, remarks and rules files, and test all of them on the ratings.

    Where [judge] names a server, its model proposes rules and checks what code cannot. It is shown redacted answers, after you have said yes.
    With --base your own model checks, and nothing is sent. Models of under a billion parameters mostly fail its exam; later runs use one that passes.

    \b
    clawback rules learn --dry-run
    clawback rules learn
    clawback rules learn --file CLAUDE.md
    clawback rules learn --base
    """
    from clawback.terminal import needs

    if options.by_base and options.code_only:
        raise UsageError("--base asks a model and --code-only asks none: leave one of them out.")
    if options.by_base:
        needs("torch")
    else:
        needs("numpy", "prompts")
    from clawback.jobs import rule_learning

    here = current_home()
    planned = rule_learning.plan(here, code_only=options.code_only or options.by_base)
    if dry_run:
        emit(asdict(planned), _planned(planned), as_json)
        return
    if planned.sent and not yes:
        _for_the_owner("sending your answers to a server")
        say(_planned(planned), err=True)
        confirm("Send them?", default=False, abort=True, err=True)
    with waiting("testing rules on the ratings", as_json):
        outcome = rule_learning.learn_once(
            here,
            files=options.files,
            again=options.again,
            code_only=options.code_only,
            by_base=options.by_base,
        )
    emit(outcome.to_dict(), fold(_learned(outcome), "  "), as_json)


def _planned(planned: LearnPlan) -> str:
    if not planned.sent:
        where = "No model is asked" if not planned.model else f"{planned.model} has nothing to read yet"
        return f"{planned.ratings} rated answers. {where}: nothing leaves this machine."
    head = f"{planned.model} ({planned.url}) would be sent these answers, and as a judge others of the {planned.ratings} that you rated:"
    return "\n".join([head, *(f"{name}: {shorten(text, 200)}" for name, text in planned.sent)])


def _learned(outcome: LearnOutcome) -> str:
    """What came of a pass, for a person."""
    from clawback.feedback.rule_consent import LIST
    from clawback.rules.rule_pass import FEWEST

    if outcome.unchanged:
        lines = [
            f"Nothing is new since the last time ({outcome.ratings} ratings; --again tests all the same)."
        ]
    elif outcome.ratings < FEWEST:
        lines = [f"Nothing is tested yet: that takes {FEWEST} ratings beside those kept for the gate, and there are {outcome.ratings}. {quantity(outcome.new, 'new rule')} came in."]  # fmt: skip
    else:
        lines = [f"{outcome.tested} rules tested on {outcome.ratings} ratings; {outcome.new} of them new."]
    if outcome.unjudged:
        lines.append(f"{outcome.unjudged} cannot be checked by code, and no judge that is believed has.")
    lines += [f"Believed: {rule.id}. {rule.text}" for rule in outcome.believed]
    lines += [f"Your ratings speak against {rule.id}. {rule.text}" for rule in outcome.against]
    lines += [
        f"Waits for your yes: `clawback rules keep {rule.id}` ({rule.text})" for rule in outcome.waiting
    ]
    others = [rule for rule in outcome.dropped if rule.author != LIST and not outcome.unchanged][-8:]
    lines += [f"Set aside: {rule.id}. {rule.text} ({rule.evidence.get('why')})" for rule in others]
    lines += outcome.notes
    return "\n".join(lines)

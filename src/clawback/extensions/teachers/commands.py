"""``baseline`` and ``prompts corpus``: a corpus of prompts, and a teacher's answers to it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from clawback.errors import UsageError
from clawback.terminal import as_record, confirm, current_home, emit, json_option, open_store, say

if TYPE_CHECKING:
    from clawback.extensions.teachers.teacher_answers import Teacher, TeacherTerms

SHOWN = 5


@dataclass(frozen=True, slots=True)
class CorpusOptions:
    """What goes into a corpus."""

    source: str
    path: Path | None
    limit: int
    hold_out: float
    licence: str
    wiki: str
    question: str
    pause: float


@click.command()
@click.option(
    "--source",
    type=click.Choice(["file", "wikipedia", "turns"]),
    required=True,
    help="Where prompts come from.",
)
@click.option(
    "--input",
    "path",
    type=click.Path(path_type=Path),
    help="For --source file: text (one a line), JSON or JSONL.",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    required=True,
    help=".jsonl (all that is known), .json (texts), else one a line.",
)
@click.option("--limit", type=click.IntRange(min=1), default=1000, show_default=True, help="Prompts at most.")
@click.option(
    "--hold-out",
    type=click.FloatRange(0, 0.9),
    default=0.0,
    show_default=True,
    help="Share marked as `test` (in .jsonl).",
)
@click.option("--licence", default="", metavar="L", help="Of a file's prompts, kept with each.")
@click.option(
    "--wiki", default="https://en.wikipedia.org", show_default=True, metavar="URL", help="Which wiki."
)
@click.option("--question", default="What is {title}? Explain it in a few sentences.", show_default=True, metavar="T",
              help="A wiki's prompt, of {title} and {extract}.")  # fmt: skip
@click.option(
    "--pause",
    type=click.FloatRange(0, 60),
    default=0.5,
    show_default=True,
    help="Seconds between two requests to a wiki.",
)
@json_option
@as_record(CorpusOptions)
def corpus(options: CorpusOptions, output: Path, as_json: bool) -> None:
    """Make a corpus of prompts: without near-duplicates, split, each with its source and licence.

    \b
    clawback prompts corpus --source file --input mine.txt --output p.jsonl
    clawback prompts corpus --source turns --output p.jsonl --hold-out 0.1
    clawback prompts corpus --source wikipedia --output p.jsonl --limit 200
    """
    from clawback.extensions.teachers import corpora
    from clawback.terminal.progress_bar import progress_bar

    with progress_bar(quiet=as_json) as follow:
        if options.source == "file":
            if options.path is None:
                raise UsageError("Name the file with --input.")
            made = corpora.corpus_of(
                corpora.of_file(options.path, options.licence), limit=options.limit, hold_out=options.hold_out
            )
        elif options.source == "turns":
            with open_store() as store:
                made = corpora.corpus_of(
                    corpora.of_turns(store), limit=options.limit, hold_out=options.hold_out
                )
        else:
            cache = output.with_name(output.name + ".fetched.jsonl")
            found = corpora.Wikipedia(options.wiki, question=options.question, pause=options.pause).prompts(
                cache, options.limit, follow
            )
            made = corpora.corpus_of(found, limit=options.limit, hold_out=options.hold_out)
    if not made.prompts:
        raise UsageError("There are no prompts there.")
    corpora.write(made, output)
    test = sum(one.split == "test" for one in made.prompts)
    said = f"{len(made.prompts)} prompts in {output}, {test} of them held out; {made.duplicates} near-duplicates left out."
    data = {"output": str(output), "prompts": len(made.prompts), "test": test, "duplicates": made.duplicates}
    emit(data, said, as_json)


@dataclass(frozen=True, slots=True)
class BaselineOptions:
    """Which prompts are answered, and what becomes of the answers."""

    path: Path
    output: Path
    limit: int | None
    use: Any
    dry_run: bool
    yes: bool


@click.command()
@click.option(
    "--prompts",
    "path",
    type=click.Path(path_type=Path),
    required=True,
    help="Text (one a line), JSON or JSONL.",
)
@click.option("--output", type=click.Path(path_type=Path), required=True, help=".json (by number) or JSONL.")
@click.option("--api", type=click.Choice(["openai", "anthropic", "local"]), default="openai", show_default=True,
              help="What the server speaks; local: your own live version is the teacher.")  # fmt: skip
@click.option("--model", default="", metavar="M", help="The teacher (default: BASELINE_MODEL).")
@click.option(
    "--url", default="", metavar="URL", help="Its server (default: OPENAI_BASE_URL, or the vendor's)."
)
@click.option("--env", "env_file", type=click.Path(path_type=Path), default=Path(".env"), show_default=True,
              help="Holds OPENAI_API_KEY or ANTHROPIC_API_KEY; never stored.")  # fmt: skip
@click.option("--limit", type=click.IntRange(min=1), help="Only the first so many prompts.")
@click.option(
    "--parallel", type=click.IntRange(1, 64), default=4, show_default=True, help="Calls at the same time."
)
@click.option(
    "--per-minute",
    type=click.FloatRange(min=0),
    default=0.0,
    help="Calls a minute at most (default: no limit of ours).",
)
@click.option(
    "--max-tokens", type=click.IntRange(min=16), default=1024, show_default=True, help="Longest answer."
)
@click.option("--price-sent", type=float, default=0.0, metavar="P", help="Of a million tokens sent.")
@click.option("--price-received", type=float, default=0.0, metavar="P", help="Of a million tokens received.")
@click.option("--max-money", type=float, default=0.0, metavar="P", help="Stop when so much is spent.")
@click.option("--own", "use", type=click.Choice(["rate", "prefer", "distil"]),
              help="Also your live version's answers: to rate beside the teacher's, as worse of a pair, or to be trained towards the teacher's.")  # fmt: skip
@click.option("--seed", default=0, show_default=True, help="For --own and --api local.")
@click.option("--licence", default="", metavar="L", help="Of the answers, kept with each.")
@click.option("--dry-run", is_flag=True, help="Only say what it would cost.")
@click.option("--yes", is_flag=True, help="Do not ask before calls are paid for.")
@json_option
@as_record("clawback.extensions.teachers.teacher_answers:TeacherTerms", "terms")
@as_record("clawback.extensions.teachers.teacher_answers:Teacher", "teacher")
@as_record(BaselineOptions)
def baseline(options: BaselineOptions, teacher: Teacher, terms: TeacherTerms, as_json: bool) -> int:
    """Have a teacher model answer a corpus of prompts. The answers go into the store (to be rated) and a file.

    It first prints the most that it can cost. If it is stopped, the same command continues and asks nothing twice. The key is read from a .env
    file or the environment.

    \b
    clawback lab baseline --prompts p.txt --output a.json --model gpt-4o-mini
    clawback lab baseline --prompts p.txt --output answers.json --api anthropic \\
        --model claude-haiku-4-5 --per-minute 50
    clawback lab baseline --prompts p.txt --output answers.json --own distil
    """
    from clawback.extensions.teachers import corpora
    from clawback.extensions.teachers import teacher_answers as job
    from clawback.terminal import needs
    from clawback.terminal.progress_bar import progress_bar

    here = current_home()
    if teacher.api == "local":
        needs("torch")
        terms = replace(terms, parallel=1)
    model = teacher.name
    job.check_use(here, model, options.use)
    asked = [
        one.prompt
        for one in corpora.corpus_of(corpora.of_file(options.path), limit=options.limit or 10**9).prompts
    ]
    with open_store() as store:
        planned = job.plan(store, asked, model, teacher.price, terms.max_tokens)
    if options.dry_run:
        emit(asdict(planned), planned.text(), as_json)
        return 0
    if planned.left and teacher.api != "local" and not options.yes:
        say(planned.text(), err=True)
        confirm("Ask?", default=True, abort=True, err=True)
    with progress_bar(quiet=as_json) as follow:
        backend = job.backend_of(here, teacher)
        done = job.ask(here, asked, backend, model, terms, follow)
        count = job.write(here, asked, model, options.output)
        own = (
            job.live_answers(here, asked, model, options.use, seed=teacher.seed, tell=follow)
            if options.use and count
            else 0
        )
    used = done.usage
    money = f", {used.money:.4f} by the prices given" if used.money else ""
    lines = [
        f"{count} answers in {options.output}; {done.requests} asked for now ({used.sent:,} tokens sent, {used.received:,} received{money})."
    ]
    lines += [f"{own} answers of your own live version beside them."] if own else []
    lines += [f"It stopped: {done.stopped}."] if done.stopped else []
    lines += list(done.problems[:SHOWN])
    emit(done.to_dict() | {"output": str(options.output), "own": own}, "\n".join(lines), as_json)
    return 1 if count < len(asked) else 0

"""``inbox``: what is worth a rating."""

from __future__ import annotations

import click

from clawback.cli.common import current_home, emit, json_option, shorten


@click.command()
@click.option("--limit", default=10, show_default=True, type=click.IntRange(1, 500), help="How many.")
@click.option(
    "--deep/--quick",
    default=None,
    help="Ask the model what it could learn from each (loads it), or take the newest. [default: deep for the embedded model]",
)
@click.option("--rate", "rating", is_flag=True, help="Rate them one by one, with one key each.")
@json_option
def inbox(limit: int, deep: bool | None, rating: bool, as_json: bool) -> None:
    """What is worth a rating, most informative first. What nobody rated fades; it never counts as bad.

    \b
    clawback inbox
    clawback inbox --rate
    """
    from clawback.jobs import inbox as waiting

    here = current_home()
    found = waiting.waiting(here, limit, deep=deep)
    if rating:
        _rate([w.turn.id for w in found])
        return
    data = [
        {
            "turn": w.turn.id,
            "agent": w.turn.agent,
            "prompt": shorten(w.turn.prompt, 500),
            "response": shorten(w.turn.response, 500),
            "gain": w.gain,
            "why": w.why,
        }
        for w in found
    ]
    lines = [
        f"{w.turn.id:>6}  {shorten(w.turn.prompt, 38):<38}  {shorten(w.turn.response, 50)}" for w in found
    ]
    lines += (
        ["", "Rate with `clawback good --turn N`, or all of them with `clawback inbox --rate`."]
        if found
        else []
    )
    emit(data, "\n".join(lines) or "Nothing is waiting for a rating.", as_json)


def _rate(turns: list[int]) -> None:
    """One turn after the other, as in `chat`; each rating is stored at once."""
    from clawback.cli.common import open_store
    from clawback.cli.talk import rate_by_key

    with open_store() as store:
        for place, number in enumerate(turns, 1):
            turn = store.turn(number)
            click.echo(f"\n[{place}/{len(turns)}] {turn.prompt}\n\n{turn.response}\n")
            if not rate_by_key(store, turn):
                return

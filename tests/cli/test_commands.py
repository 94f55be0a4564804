"""Few commands at the top, the rest in groups with one grammar, and every old name as it was."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Iterator

import click
import pytest

from clawback.cli import MOVED, main_group
from clawback.errors import UsageError
from clawback.runs.run_options import RunOptions
from clawback.terminal import as_record, ray_option

from .conftest import Run


def every(command: click.Command, context: click.Context) -> Iterator[tuple[str, click.Command]]:
    """Each command that help shows, with its path."""
    yield context.command_path, command
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            member = command.get_command(context, name)
            assert member is not None, name
            yield from every(member, click.Context(member, info_name=name, parent=context))


ALL = dict(every(main_group, click.Context(main_group, info_name="clawback")))


def test_every_option_says_what_it_does_and_no_line_of_help_is_cut() -> None:
    silent = [
        f"{path} {parameter.opts[0]}"
        for path, command in ALL.items()
        for parameter in command.params
        if isinstance(parameter, click.Option) and not parameter.hidden and not parameter.help
    ]
    cut = [
        path
        for path, command in ALL.items()
        if isinstance(command, click.Group)
        and "..." in command.get_help(click.Context(command)).partition("\nCommands:")[2]
    ]
    assert (silent, cut) == ([], [])


@pytest.mark.parametrize("old", MOVED)
def test_an_old_name_is_the_command_of_the_new_one_and_says_so(run: Run, old: str) -> None:
    code, out, err = run(old, "--help")
    new_code, new_out, new_err = run(*MOVED[old].split(), "--help")
    assert (code, new_code, new_err) == (0, 0, "")
    assert err == f"`clawback {old}` is `clawback {MOVED[old]}` now; the old name goes on working.\n"
    assert out.split("\n", 1)[1] == new_out.split("\n", 1)[1], "all but the line of usage"


def test_old_names_are_in_no_help() -> None:
    assert not set(MOVED) & set(main_group.list_commands(click.Context(main_group)))


def test_no_line_about_names_where_a_program_reads(run: Run) -> None:
    code, out, err = run("sessions", "--json")
    assert (code, json.loads(out), err) == (0, [], "")


@pytest.mark.parametrize(
    "words", [(), ("train",), ("turns", "show"), ("versions",), ("gate",), ("env", "episodes", "list")]
)
def test_help_of_a_command_is_its_own(run: Run, words: tuple[str, ...]) -> None:
    asked, own = run("help", *words), run(*words, "--help")
    assert (asked[0], asked[1]) == (own[0], own[1])


@pytest.mark.parametrize("group", ["turns", "runs", "versions", "rules", "model", "env", "people", "config"])
def test_a_group_lists_with_and_without_the_word(run: Run, group: str) -> None:
    assert run(group, "--json") == run(group, "list", "--json")
    assert run(group)[0] == run(group, "list")[0] == 0


def test_each_group_of_things_shows_one(run: Run) -> None:
    for group in ("turns", "runs", "versions", "rules", "model", "prompts", "env episodes"):
        assert f"clawback {group} show" in ALL, group


def test_start_says_what_is_next_where_nobody_can_be_asked(run: Run) -> None:
    code, out, _ = run("start")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == ["next"] * 4
    steps = json.loads(run("start", "--json")[1])
    assert [step["command"] for step in steps][:2] == ["clawback init", "clawback import FILE"]


LEAVES = """
import atexit, sys, threading
from clawback import cli
atexit.register(print, "closed")
if {torch}:
    sys.modules["torch"] = sys
if {thread}:
    threading.Timer(0.2, print, ("thread ended",)).start()
cli.main = lambda: print("said", end=" ") or 3
cli.console()
"""


@pytest.mark.parametrize(("torch", "thread"), [(True, False), (True, True), (False, False)])
def test_a_command_that_has_loaded_torch_ends_with_its_code_and_closes_what_is_open(
    torch: bool, thread: bool
) -> None:
    program = LEAVES.format(torch=torch, thread=thread)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (3, "")
    assert done.stdout.split() == ["said", *(["thread", "ended"] if thread else []), "closed"]


@dataclasses.dataclass(frozen=True)
class Wishes:
    count: int
    note: str = "none"


def test_options_reach_a_command_as_records_and_the_rest_as_they_are() -> None:
    seen: list[object] = []

    @click.command()
    @click.option("--note")
    @click.option("--count", type=int)
    @click.option("--seed", type=int)
    @click.option("--loud", is_flag=True)
    @as_record(Wishes, "wishes")
    @as_record("clawback.runs.run_options:RunOptions")
    def command(wishes: Wishes, options: RunOptions, loud: bool) -> None:
        """Say it."""
        seen.extend([wishes, options, loud])

    command.main(["--count", "3", "--seed", "7", "--loud"], standalone_mode=False)
    assert seen == [Wishes(3), RunOptions(seed=7), True]
    assert command.help == "Say it."


def test_a_cluster_is_an_address_and_workers_and_workers_alone_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wanted: list[str] = []
    monkeypatch.setattr("clawback.terminal.options.needs", wanted.append)
    seen: list[object] = []

    @click.command()
    @ray_option("Let it draw", "Workers.")
    def command(ray: tuple[str, int] | None) -> None:
        seen.append(ray)

    for words in ([], ["--ray", "auto"], ["--ray", "auto", "--ray-workers", "2"]):
        command.main(words, standalone_mode=False)
    assert seen == [None, ("auto", 0), ("auto", 2)]
    assert wanted == ["ray", "ray"], "what is missing is said before anything begins"
    with pytest.raises(UsageError, match="name it with --ray"):
        command.main(["--ray-workers", "2"], standalone_mode=False)

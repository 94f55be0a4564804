"""Groups whose commands other files hold, ``help``, and ``connect completion``."""

from __future__ import annotations

import click

from clawback.terminal import CommandGroup, extension_commands

CONNECT = {
    **extension_commands("connect"),
    "service": "service:service",
    "completion": "areas:completion",
}
DATA = {
    "backup": "privacy:backup",
    "forget": "privacy:forget",
    "prune": "privacy:prune",
    **extension_commands("data"),
}
LAB = {
    "judge": "clawback.training_commands.judge:judge",
    **extension_commands("lab"),
}


@click.group(cls=CommandGroup, members=CONNECT)
def connect() -> None:
    """Where people already are: chat channels, MCP clients, a service in the background, the Tab key.

    \b
    clawback connect channel telegram --check
    clawback connect service install
    """


@click.group(cls=CommandGroup, members=DATA)
def data() -> None:
    """Your data: copy it, encrypt it, delete parts of it, repair it.

    \b
    clawback data backup clawback-backup.db
    clawback data forget --turn 12
    """


@click.group(cls=CommandGroup, members=LAB)
def lab() -> None:
    """For experiments: judges, reward models, teacher models, training elsewhere or together.

    \b
    clawback lab judge
    clawback lab reward train
    """


@click.command("help", hidden=True)
@click.argument("words", nargs=-1, metavar="[COMMAND]")
@click.pass_context
def help_(ctx: click.Context, words: tuple[str, ...]) -> None:
    """Show the help of a command: `clawback help train` is `clawback train --help`."""
    context = ctx.find_root()
    for word in words:
        group = context.command
        command = group.get_command(context, word) if isinstance(group, click.Group) else None
        if command is None:
            raise click.UsageError(f"No such command '{word}'.", context)
        context = command.context_class(command, info_name=word, parent=context)
    click.echo(context.get_help())


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script that lets the Tab key complete commands and options.

    \b
    echo 'eval "$(clawback connect completion bash)"' >> ~/.bashrc
    echo 'eval "$(clawback connect completion zsh)"' >> ~/.zshrc
    clawback connect completion fish > ~/.config/fish/completions/clawback.fish
    """
    from click.shell_completion import get_completion_class

    from clawback.cli import main_group

    shell_completion = get_completion_class(shell)
    assert shell_completion
    click.echo(shell_completion(main_group, {}, "clawback", "_CLAWBACK_COMPLETE").source())

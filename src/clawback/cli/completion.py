"""``connect completion``: the Tab key."""

from __future__ import annotations

import click


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

    made = get_completion_class(shell)
    assert made
    click.echo(made(main_group, {}, "clawback", "_CLAWBACK_COMPLETE").source())

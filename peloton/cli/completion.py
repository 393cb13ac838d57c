"""`peloton completion`: what a shell evaluates to complete commands and options.

The script goes to stdout; the user's files are not changed.
"""

from __future__ import annotations

import click

from peloton.cli.shared.options import OwnCommand

SHELLS = ("bash", "zsh", "fish")
NAME, VARIABLE = "peloton", "_PELOTON_COMPLETE"


@click.command(cls=OwnCommand)
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print the script that completes commands and options in SHELL.

    \b
    eval "$(peloton completion bash)"               # in ~/.bashrc
    eval "$(peloton completion zsh)"                # in ~/.zshrc
    peloton completion fish | source                # in config.fish
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    root = click.get_current_context().find_root().command
    click.echo(kind(root, {}, NAME, VARIABLE).source())

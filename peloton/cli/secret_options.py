"""The options of commands that give a job a secret.

Turns what was typed into a secret of a request. It must not print a value.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

Giving = TypeVar("Giving", bound=Callable[..., Any])


def secret_options(command: Giving) -> Giving:
    """Add the options to a command."""
    options = (
        click.option("--secret-path", default="", help="Where the tasks find the secret."),
        click.option(
            "--secret-data", default="", help="The secret, as text; others see it in `ps`."
        ),
        click.option(
            "--secret-file",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            help="A file with the secret, in place of --secret-data.",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def secrets_given(
    *, secret_path: str, secret_data: str, secret_file: Path | None
) -> tuple[Any, ...]:
    """The secret, if one was given. Raises click.UsageError."""
    if secret_data and secret_file is not None:
        raise click.UsageError("secret-data and secret-file exclude each other")
    if bool(secret_path) != (bool(secret_data) or secret_file is not None):
        raise click.UsageError("both secret-path and secret-data must be provided")
    if not secret_path:
        return ()
    from peloton.sdk.jobs import secret

    data = secret_data.encode() if secret_file is None else secret_file.read_bytes()
    return (secret(secret_path, data),)

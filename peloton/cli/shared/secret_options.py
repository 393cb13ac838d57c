"""The options of commands that give a job secrets.

What was typed becomes the secrets of a request. A value must never be printed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

Giving = TypeVar("Giving", bound=Callable[..., Any])


def secret_options(command: Giving) -> Giving:
    """Add the options to a command."""
    options = (
        click.option(
            "--secret-path", multiple=True, help="Where the tasks find the secret; repeatable."
        ),
        click.option(
            "--secret-data",
            multiple=True,
            help="The secret, as text, one for each path; others see it in `ps`.",
        ),
        click.option(
            "--secret-file",
            multiple=True,
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            help="A file with the secret, one for each path, in place of --secret-data.",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def secrets_given(
    *, secret_path: Sequence[str], secret_data: Sequence[str], secret_file: Sequence[Path]
) -> tuple[Any, ...]:
    """Return the secrets that were given, each path with its value. Raises click.UsageError."""
    if any(secret_data) and secret_file:
        raise click.UsageError("secret-data and secret-file exclude each other")
    paths, values = [*filter(None, secret_path)], len(secret_file or [*filter(None, secret_data)])
    if bool(paths) != bool(values):
        raise click.UsageError("both secret-path and secret-data must be provided")
    if len(paths) != values:
        raise click.UsageError(
            f"{len(paths)} of --secret-path and {values} values: give one value for each path"
        )
    if not paths:
        return ()
    from peloton.sdk.jobs import secret

    data = [one.read_bytes() for one in secret_file] or [one.encode() for one in secret_data if one]
    return tuple(secret(path, one) for path, one in zip(paths, data, strict=True))

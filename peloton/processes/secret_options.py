"""The option of a minicluster that names the keys of secrets.

Turns what was typed into the setting of a daemon. It must not know what is done with the keys.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from peloton.settings.config import BadSetting
from peloton.settings.secrets import SecretsSetting, read_keys

_OPTION = "--secrets-key"
Taking = TypeVar("Taking", bound=Callable[..., Any])


def secrets_key_option(command: Taking) -> Taking:
    """Add the option to a command."""
    option = click.option(
        _OPTION,
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Keys for secrets of jobs, 32 bytes in base64 a line: `openssl rand -base64 32`. "
        "Without it there are none.",
    )
    return option(command)


def secrets_of(options: Mapping[str, Any], texts: list[str]) -> SecretsSetting:
    """What it says; problems are added to the texts."""
    file = options["secrets_key"]
    if file is not None:
        try:
            read_keys(file, _OPTION)
        except BadSetting as error:
            texts += error.texts
    return SecretsSetting(key_file=file)

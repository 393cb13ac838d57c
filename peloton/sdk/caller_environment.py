"""The variables that a command takes along from its caller, if both are on one machine.

By them programs and libraries are found there as they are here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

FOUND_BY = re.compile(
    r"PATH|VIRTUAL_ENV|CONDA_(?:PREFIX|EXE|PYTHON_EXE|DEFAULT_ENV|SHLVL)|LD_LIBRARY_PATH"
    r"|PYTHONPATH|LANG|LANGUAGE|LC_[A-Z]+",
    re.ASCII,
)
"""By which programs, their libraries and their messages are found: others of conda's may hold a
token."""
OF_THE_SHELL = re.compile(r"PWD|OLDPWD|SHLVL|_|(PELOTON|MESOS)_.*", re.ASCII)
"""What is not the user's but this shell's, or what a task gets from its host."""
LOCALE = re.compile(r"LANG|LANGUAGE|LC_[A-Z]+", re.ASCII)
OF_THE_SYSTEM = frozenset(
    f"{root}{name}" for root in ("/usr/local/", "/usr/", "/") for name in ("bin", "sbin", "games")
) | {"/snap/bin"}


def taken(environment: Mapping[str, str], *, every: bool = False) -> dict[str, str]:
    """Return the variables to take along; `every`: all that are not of the shell alone.

    A variable that is not UTF-8, or is empty and would hide what a host has, is left out.
    """
    return {
        name: value
        for name, value in environment.items()
        if (not OF_THE_SHELL.fullmatch(name) if every else value and FOUND_BY.fullmatch(name))
        and is_text(name + value)
    }


def missed(environment: Mapping[str, str], *, every: bool = False) -> list[str]:
    """Return the names of variables that a command on another machine may miss.

    Without the locale and a PATH that every machine has, unless `every` one was to be taken.
    """
    found = taken(environment, every=every)
    if every:
        return sorted(found)
    if {*found.get("PATH", "").split(":")} <= OF_THE_SYSTEM:
        found.pop("PATH", None)
    return sorted(name for name in found if not LOCALE.fullmatch(name))


def is_text(value: str) -> bool:
    """Return whether a value can be sent: Python keeps bytes that are not UTF-8 as lone
    surrogates."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True

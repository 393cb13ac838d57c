"""What a command gets of the surroundings of its caller, where both are on one machine.

Turns an environment into the variables by which programs and libraries are found there as they are
here. Must not read the environment of the process itself, nor call a cluster.
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
    """The variables to take along; `every`: all that are not of the shell alone.

    One that is not UTF-8, or is empty and would hide what a host has, stays behind.
    """
    return {
        name: value
        for name, value in environment.items()
        if (not OF_THE_SHELL.fullmatch(name) if every else value and FOUND_BY.fullmatch(name))
        and is_text(name + value)
    }


def missed(environment: Mapping[str, str], *, every: bool = False) -> list[str]:
    """The variables that a command on another machine may miss, by name: neither the locale nor a
    PATH that every machine has, unless it was to be `every` one."""
    found = taken(environment, every=every)
    if every:
        return sorted(found)
    if {*found.get("PATH", "").split(":")} <= OF_THE_SYSTEM:
        found.pop("PATH", None)
    return sorted(name for name in found if not LOCALE.fullmatch(name))


def is_text(value: str) -> bool:
    """Whether it can be sent: Python keeps bytes that are not UTF-8 as lone surrogates."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True

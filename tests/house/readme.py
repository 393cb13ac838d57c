"""Reads the commands out of the README's bash blocks, and says which a newcomer could not type.

script/newcomer runs them, on a clean machine.
"""

from __future__ import annotations

import configparser
import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

BLOCK = re.compile(r"^```(?:bash|sh|shell|console)\s*\n(.*?)^```", re.M | re.S)
# What any shell has, and what getting the source takes.
ALWAYS_THERE = ("cd", "export", "git", "sudo", "source", "echo", "cat", "kill")
# Where pip puts what console_scripts names.
VENV = ".venv/bin/"


def commands(readme: str) -> Iterator[str]:
    for block in BLOCK.findall(readme):
        for line in block.replace("\\\n", " ").splitlines():
            line = line.strip().removeprefix("$ ")
            if line and not line.startswith("#"):
                yield line


def unknown(command: str, root: Path) -> str | None:
    """The first word of a command when nothing in the repository answers to it."""
    words = [word for word in shlex.split(command, comments=True) if "=" not in word] or [""]
    first = words[0].removeprefix("./")
    if first in ALWAYS_THERE or os.access(root / first, os.X_OK) and (root / first).is_file():
        return None
    package = configparser.ConfigParser()
    package.read(root / "setup.cfg")
    scripts = package["options.entry_points"]["console_scripts"].split("\n")
    names = [line.partition("=")[0].strip() for line in scripts if "=" in line]
    installed = [name for name in names if first in (name, VENV + name)]
    return None if installed and has_main(root) else first


def has_main(root: Path) -> bool:
    return (root / "peloton" / "__main__.py").is_file()

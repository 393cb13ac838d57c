"""Reads the commands out of the README's bash blocks, and says which a newcomer could not type.

Must not run them: script/newcomer does, on a clean machine.
"""

from __future__ import annotations

import os
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path

BLOCK = re.compile(r"^```(?:bash|sh|shell|console)\s*\n(.*?)^```", re.M | re.S)
# What any shell has, and what getting the source takes.
ALWAYS_THERE = ("cd", "export", "git", "sudo", "source", "echo", "cat", "kill")
# Where pip puts what [project.scripts] names.
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
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    installed = [name for name in project["scripts"] if first in (name, VENV + name)]
    return None if installed and has_main(root) else first


def has_main(root: Path) -> bool:
    return (root / "peloton" / "__main__.py").is_file()

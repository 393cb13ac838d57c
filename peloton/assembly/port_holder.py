"""Finds the Peloton process of this user that listens on a busy port.

Turns an address into the process that holds it and its data folder, from what the kernel shows of
processes of the same user. It does not connect to it, and does not fail: what cannot be read is not
known.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from peloton.runtime.adapters.claimed_folder import JOURNAL
from peloton.settings.config import Address

PROC = Path("/proc")
COMMANDS = ("minicluster", "daemon")
_LISTENING = "0A"


class PortHolder(NamedTuple):
    """A running minicluster or daemon; `folder` is None if it has no journal of its own."""

    pid: int
    command: str
    folder: Path | None

    def __str__(self) -> str:
        data = f", data in {self.folder}" if self.folder is not None else ""
        return f"peloton {self.command} with pid {self.pid}{data}"


def port_holder(address: Address) -> PortHolder | None:
    """Return the Peloton of this user that listens there; None for any other program."""
    wanted = {f"socket:[{inode}]" for inode in _listening(address.port)}
    if not wanted:
        return None
    for process in _processes():
        command = _command(process)
        if not command:
            continue
        opened = [*_opened(process)]
        if wanted.intersection(opened):
            journals = [Path(name) for name in opened if name.endswith(f"/{JOURNAL}")]
            folder = journals[0].parent if journals else None
            return PortHolder(int(process.name), command, folder)
    return None


def command_of(pid: int) -> str:
    """Return `minicluster` or `daemon`, if the process is one of them."""
    return _command(PROC / str(pid))


def _listening(port: int) -> Iterator[str]:
    """Yield the inodes of the sockets that listen on a port."""
    for table in ("net/tcp", "net/tcp6"):
        try:
            lines = (PROC / table).read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if fields[3] == _LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
                yield fields[9]


def _processes() -> Iterator[Path]:
    for name in os.listdir(PROC) if PROC.is_dir() else ():
        if name.isdigit() and int(name) != os.getpid():
            yield PROC / name


def _command(process: Path) -> str:
    """Return `minicluster` or `daemon`, if a process is one of them."""
    try:
        words = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return ""
    at = next((at for at, word in enumerate(words) if word.rpartition("/")[2] == "peloton"), -1)
    return words[at + 1] if words[at + 1 : at + 2] in ([name] for name in COMMANDS) else ""


def _opened(process: Path) -> Iterator[str]:
    """Yield the open files of a process; none of a process of another user."""
    try:
        names = os.listdir(process / "fd")
    except OSError:
        return
    for name in names:
        try:
            yield os.readlink(process / "fd" / name)
        except OSError:
            continue

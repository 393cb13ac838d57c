"""What executors of ours have of secrets on this machine: others may begin and end meanwhile."""

from __future__ import annotations

from pathlib import Path

from peloton.backends.mesos.executor.secret_folders import PARENTS, PREFIX


def held_secrets() -> dict[bytes, Path]:
    """The files, by what they hold."""
    found: dict[bytes, Path] = {}
    for parent in PARENTS:
        for file in Path(parent).glob(f"{PREFIX}*/*/*"):
            try:
                found[file.read_bytes()] = file
            except OSError:  # its run has ended
                continue
    return found

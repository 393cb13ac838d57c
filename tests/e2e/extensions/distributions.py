"""Distributions that bring kinds, for the PYTHONPATH of a daemon."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.conftest import ROOT

LEASE_LOCK = ROOT / "examples" / "extensions" / "lease_lock"


def with_info(folder: Path, name: str, *entries: str, version: str = "1.0") -> Path:
    """Make the modules in a folder a distribution, as an installation of it does."""
    remove_info(folder)
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "entry_points.txt").write_text("\n".join(["[peloton.kinds]", *entries, ""]))
    return folder


def remove_info(folder: Path) -> None:
    """Take the distribution away; its modules stay importable, for the test's own process."""
    for info in folder.glob("*.dist-info"):
        shutil.rmtree(info)


VERSION_2: list[tuple[str, str]] = [
    ("    renewals: int = 0\n", '    renewals: int = 0\n    note: str = ""\n'),
    ("class Lease(", "class Annotate(ActorMessage, frozen=True):\n    note: str\n\n\n"
     "class Annotated(ActorFact, frozen=True):\n    note: str\n\n\nclass Lease("),
    ("@LOCK.deadline\n", "@LOCK.decides(Annotate)\ndef annotate(lock, message, at):\n"
     "    return Decision((Annotated(message.note),))\n\n\n@LOCK.folds(Annotated)\n"
     "def annotated(lock, fact):\n    return replace(lock, note=fact.note)\n\n\n@LOCK.deadline\n"),
]  # fmt: skip
"""The lock with a new field, a new message and a new fact."""


def upgrade(folder: Path) -> None:
    """Install version 2 in place of version 1."""
    file = folder / "lease_lock" / "kind.py"
    text = file.read_text()
    for old, new in VERSION_2:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    file.write_text(text)
    with_info(folder, "peloton-lease-lock", "lock = lease_lock.kind:LOCK", version="2.0")


def lease_lock(folder: Path) -> Path:
    """Return a folder with the example of the lock, installed."""
    shutil.copytree(LEASE_LOCK / "lease_lock", folder / "lease_lock", dirs_exist_ok=True)
    return with_info(folder, "peloton-lease-lock", "lock = lease_lock.kind:LOCK")

"""Goal table of an archive and its periods: to keep what they have until its time has come.

The table is total. It must not take steps: the clock does (`decide.py: due`).
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

from peloton.actors.archive.state import Archive
from peloton.runtime.vocabulary import SETTLED, At, Decision, Rest


class ArchiveGoals(enum.StrEnum):
    """What should be."""

    KEPT = "kept"


class ArchiveStates(enum.StrEnum):
    """What is."""

    KEPT = "kept"


TABLE: Mapping[ArchiveStates, Mapping[ArchiveGoals, Rest]] = {
    ArchiveStates.KEPT: {ArchiveGoals.KEPT: SETTLED}
}


def pursue(archive: Archive, at: At) -> Decision | Rest:
    """The next step towards the goal."""
    return TABLE[ArchiveStates.KEPT][ArchiveGoals.KEPT]

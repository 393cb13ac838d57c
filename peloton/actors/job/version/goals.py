"""Goal table of an earlier spec: it is kept, until its job says otherwise. It must not take steps.

The table is total.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

from peloton.actors.job.version.state import Version
from peloton.runtime.vocabulary import SETTLED, At, Decision, Rest


class VersionGoals(enum.StrEnum):
    """What should be."""

    KEPT = "kept"


class VersionStates(enum.StrEnum):
    """What is."""

    KEPT = "kept"


TABLE: Mapping[VersionStates, Mapping[VersionGoals, Rest]] = {
    VersionStates.KEPT: {VersionGoals.KEPT: SETTLED}
}


def pursue(version: Version, at: At) -> Decision | Rest:
    """There is no next step."""
    return TABLE[VersionStates.KEPT][VersionGoals.KEPT]

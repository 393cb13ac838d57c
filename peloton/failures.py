"""Why a process cannot start, or could not go on: errors whose texts are for people.

Must not import anything: commands catch these before they load what is heavy.
"""

from __future__ import annotations


class CannotStart(Exception):
    """Why the cluster cannot run; for a person."""


class JournalBehind(CannotStart):
    """The journal lacks what it had acknowledged; a person has to decide."""


class ClusterFailed(Exception):
    """Why a running cluster could not go on."""

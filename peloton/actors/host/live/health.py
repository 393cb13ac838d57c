"""The health of a host's runs: what its backend is to check, and what it tells of that.

Must not decide what becomes of a run that is not well; its task does.
"""

from __future__ import annotations

from peloton.actors.host.ledger import RunPhase
from peloton.actors.host.live.health_messages import (
    CheckedSet,
    HealthNoted,
    HealthReported,
    HealthSeen,
    RunHealth,
)
from peloton.actors.host.live.run_news import RunNews
from peloton.actors.host.state import Host
from peloton.actors.task.health_messages import HealthChanged
from peloton.runtime.vocabulary import At, Decision

_CHECKED = frozenset((RunPhase.ACCEPTED, RunPhase.STARTED))


def checked_sets(host: Host) -> tuple[CheckedSet, ...]:
    """The runs that are to be checked while they run; not those that are to end."""
    return tuple(
        CheckedSet(crowd, some.run, some.members, some.spec.check, some.since)
        for crowd, some in host.runs.sets()
        if some.phase in _CHECKED and some.spec is not None and some.spec.check is not None
    )


def _told(change: RunHealth, run: int) -> HealthChanged:
    return HealthChanged(
        run,
        change.number,
        change.healthy,
        change.text,
        change.over,
        change.unknown,
        change.ready,
        change.unready_text,
        change.unchecked,
        change.ungated,
    )


_NEWS = RunNews(
    _told,
    HealthNoted,
    known=_CHECKED,
    passed=frozenset((RunPhase.STARTED,)),  # of others the start is reported first
)


def health_reported(host: Host, message: HealthReported, at: At) -> Decision:
    """Runs are well or not, or ready or not."""
    return _NEWS.reported(host, message.runs, at)


def health_seen(host: Host, message: HealthSeen, at: At) -> Decision:
    """Tasks know of it."""
    return _NEWS.seen(host, message, at)

"""The kind "archive", as registered with the runtime: one per jobmgr shard, and its periods."""

from __future__ import annotations

from functools import partial

from peloton.actors.archive import messages as m
from peloton.actors.archive.decide import ABSENT, deadline, decide_of, get_period, get_periods
from peloton.actors.archive.facts import FACTS
from peloton.actors.archive.state import EVOLVE, Archive
from peloton.runtime.kinds import Kind, Retention
from peloton.runtime.vocabulary import OWN_STATE, Key

FORGET_AFTER_S = 30 * 24 * 3600.0
"""How long after its end a job is deleted, unless a setting says otherwise."""
PERIODS_KEPT_MAX = 16
"""Periods a shard keeps in memory: those that take in jobs, or give them up."""
PERIODS_KEPT_BYTES_MAX = 4 * 1024 * 1024
PERIODS_KEPT_S = 600.0


def _partition(key: Key) -> int:
    return int(key.split("/")[1])


def kind(forget_after_s: float = FORGET_AFTER_S) -> Kind:
    """Return the kind.

    Jobs are deleted so many seconds after their end, or never with `math.inf`.
    """
    return Kind(
        name="archive",
        group="jobmgr",
        state=Archive,
        decide=decide_of(forget_after_s),
        absent=ABSENT,
        evolve=EVOLVE,
        messages=m.MESSAGES,
        facts=FACTS,
        answers=m.ANSWERS,
        queries=m.QUERIES,
        partition=_partition,
        deadline=lambda archive: deadline(archive, forget_after_s),
        ended=lambda archive, index: bool(archive.jobs),  # a period owes nothing to anybody
        retention=Retention(
            count=PERIODS_KEPT_MAX, size=PERIODS_KEPT_BYTES_MAX, seconds=PERIODS_KEPT_S
        ),
        inspect={
            m.GetPeriods: partial(get_periods, forget_after_s=forget_after_s),
            m.GetPeriod: get_period,
        },
        depends=lambda query: OWN_STATE,  # but for `late_s`, for which whoever asks has `due_at`
        lookup=frozenset((m.ArchiveJob, m.DropJob, m.JobGoing, m.DeleteEnded)),
    )

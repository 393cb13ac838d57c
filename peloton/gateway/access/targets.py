"""What a call is about: the object of which its caller needs a permission."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from peloton.actors.respool.messages import GetPool
from peloton.gateway.translate.actor_keys import own_schedule
from peloton.runtime.core.principal import Principal
from peloton.runtime.vocabulary import Key


class JobTarget(NamedTuple):
    """A job; what belongs to a job is named by the job."""

    job: Key


class PoolTarget(NamedTuple):
    """An existing pool, by its key or its path."""

    query: GetPool


class NewPoolTarget(NamedTuple):
    """A pool that is to have this name, below this parent."""

    parent: Key
    name: str


class RenamedPoolTarget(NamedTuple):
    """An existing pool that is to have this name."""

    pool: Key
    name: str


class ScheduleTarget(NamedTuple):
    """A schedule, of the same pool and creator as its jobs.

    A caller may have an own schedule of this name, which precedes the common one; `exact`: the
    common one.
    """

    schedule: Key
    exact: bool = False

    def meant_by(self, who: Principal) -> tuple[Key, ...]:
        """Return the schedules that may be meant, the likelier one first."""
        named = self.schedule.partition("/")[2]
        own = () if self.exact else (own_schedule(named, who),)
        return (*own, self.schedule)


class ClusterTarget(NamedTuple):
    """The cluster as a whole: its hosts, and calls of operators."""


class KindTarget(NamedTuple):
    """The actors of an extension's kind."""

    kind: str


AccessTarget: TypeAlias = (
    JobTarget
    | ScheduleTarget
    | PoolTarget
    | NewPoolTarget
    | RenamedPoolTarget
    | KindTarget
    | ClusterTarget
)

"""The kind "slice", as registered with the runtime."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from peloton.actors.job.slice import messages as m
from peloton.actors.job.slice.availability import asked
from peloton.actors.job.slice.counts import is_final, phase
from peloton.actors.job.slice.decide import ABSENT, DECIDE
from peloton.actors.job.slice.facts import (
    FACTS,
)
from peloton.actors.job.slice.finding import find_instances
from peloton.actors.job.slice.folds import EVOLVE
from peloton.actors.job.slice.following import asked_of_inventory
from peloton.actors.job.slice.goals import SliceStates, slice_state_of
from peloton.actors.job.slice.messages import (
    ListVolumeHomes,
    VolumeHomesListed,
    VolumeLeft,
)
from peloton.actors.job.slice.parking import ParkingPolicy, pursue_with, recall_with
from peloton.actors.job.slice.renewing import steady_in
from peloton.actors.job.slice.rollout_messages import GetRollout, MemberRestarted, RolloutView
from peloton.actors.job.slice.state import Slice
from peloton.actors.job.slice.tally import get_rollout, list_instances, report
from peloton.actors.job.slice.volume_homes import list_homes
from peloton.actors.task.messages import (
    TaskGoals,
)
from peloton.runtime.kinds import Kind, Reporting
from peloton.runtime.vocabulary import KEYS_KEPT_MAX, WAITING, Key, Send

TALLY_INTERVAL_S = 0.2
"""Between two tallies, while none of the changes is one that somebody waits for (`tally.phase`)."""
INSPECT: Mapping[type, Callable[..., Any]] = {
    m.ListInstances: list_instances,
    m.FindInstances: find_instances,
    GetRollout: get_rollout,
    ListVolumeHomes: list_homes,
}
QUERIES = {501: m.ListInstances, 502: m.FindInstances, 513: GetRollout, 583: ListVolumeHomes}
ANSWERS: Mapping[int, type] = {
    501: m.InstanceView,
    502: m.InstancesFound,
    503: m.InstanceEventsDropped,
    504: MemberRestarted,
    514: RolloutView,
    585: VolumeHomesListed,
    586: VolumeLeft,
}
LOOKUP = frozenset((m.SetSliceGoal, m.DropInstanceEvents, m.LeaveVolume))


def _partition(key: Key) -> str:
    return key.partition("/")[2]


def _owed(slice_: Slice) -> tuple[Send, ...]:
    return asked_of_inventory(slice_) if slice_.homes is not None else asked(slice_)


def _ended(slice_: Slice, crowd: object) -> bool:
    return slice_.goal != TaskGoals.DELETED and slice_state_of(slice_, crowd) is SliceStates.ENDED


@functools.lru_cache(maxsize=KEYS_KEPT_MAX)  # each turn of a slice asks for it several times
def _follows(key: Key) -> Key:
    return Key("task" + key[len("slice") :])


def _fresh(message: object) -> bool:
    # Slice 0 commits with its job, so at the job's first goal it cannot have ended before.
    return isinstance(message, m.SetSliceGoal) and message.number == 0 and message.version == 1


def kind(policy: ParkingPolicy = ParkingPolicy()) -> Kind:  # noqa: B008
    """Return the kind, for members that keep an allocation without a host by this policy."""
    return Kind(
        name="slice",
        group="jobmgr",
        state=Slice,
        decide=DECIDE,
        absent=ABSENT,
        pursue=pursue_with(policy),
        at_rest=WAITING,
        evolve=EVOLVE,
        messages=m.MESSAGES,
        facts=FACTS,
        partition=_partition,
        owed=_owed,
        deadline=steady_in,
        ended=_ended,
        follows=_follows,
        reporting=Reporting(make=report, interval_s=TALLY_INTERVAL_S, phase=phase, final=is_final),
        recall_s=recall_with(policy),
        inspect=INSPECT,
        queries=QUERIES,
        answers=ANSWERS,
        lookup=LOOKUP,
        fresh=_fresh,
    )

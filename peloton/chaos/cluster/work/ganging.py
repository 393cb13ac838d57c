"""R29: no member of a gang starts before hosts have granted room to all, or once it is to end.

Turns a scenario's action into a job with a gang, and committed facts of slices, tasks and hosts
into a `Contradiction` or nothing. That every gang runs in the end is R7. The code by which slices
decide is not used.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from peloton.actors.host import facts as hf
from peloton.actors.job.messages import CreateJob
from peloton.actors.job.slice import facts as sf
from peloton.actors.job.slice.task_config import Command, TaskConfig
from peloton.actors.job.spec import JobSpec
from peloton.actors.task import facts as tf
from peloton.actors.task.messages import TaskGoals, slice_of_crowd
from peloton.chaos.cluster.work.drawing import ActionDraw
from peloton.chaos.cluster.work.workload import CLIENTS, cluster_of
from peloton.chaos.cluster.world.cluster import NEED, STORM_POOL
from peloton.runtime.core.entities.codec import Entry
from peloton.runtime.simulation.scan import Contradiction
from peloton.runtime.simulation.scenario import StormAction
from peloton.runtime.simulation.storms import Storm
from peloton.runtime.vocabulary import Bits, Key

SHARE = 0.2
ACTIONS = (1, 3)
SIZES = (2, 3, 4)
"""Small enough for one host: pools shrink to that, and may stay so."""
ENDING = (TaskGoals.KILLED, TaskGoals.DELETED)


class _GangSlice:
    """The first slice of a job with a gang."""

    def __init__(self, gang: int) -> None:
        self.forming: int | None = (1 << gang) - 1  # None once it is complete
        self.stopped = 0
        self.prepared = 0  # by hosts, and not given back since
        self.told = 0  # members whose tasks have said go to their hosts
        self.ending = 0  # members whose tasks are to end

    @property
    def waiting(self) -> int:
        """The members that may not start yet."""
        return self.forming & ~self.stopped if self.forming is not None else 0


class GangCheck:
    """The gangs of all jobs, by their slices."""

    def __init__(self) -> None:
        self.checked = 0
        self._slices: dict[Key, _GangSlice] = {}
        self._complete: list[tuple[Key, int]] = []  # in this round
        self._begun: list[tuple[Key, int]] = []
        self.noted: dict[type, Callable[[Entry, Any], None]] = {
            sf.SliceOpened: self._opens,
            sf.SliceGoalSet: self._goal,
            sf.GangComplete: self._completes,
            sf.GangFormed: self._forms,
            sf.SliceForgotten: self._vanishes,
            tf.TaskLaunching: self._launches,
            tf.TaskGoalSet: self._aims,
            hf.RunsAccepted: self._prepares,
            hf.PreparedReleased: self._gives_back,
            hf.PreparedStarted: self._begins,
        }

    def settle(self) -> None:
        """Check after all frames of a round were noted. Raises `Contradiction`."""
        for key, members in self._complete:
            of = self._slices.get(key)
            missing = members & ~of.prepared if of is not None else 0
            if missing:
                text = f"starts as complete, and no host has prepared {[*Bits(missing)][:5]}"
                raise Contradiction(f"R29 the gang of {key} {text}")
            self.checked += 1
        for key, members in self._begun:
            of = self._slices.get(key)
            early = members & ~of.told if of is not None else 0
            if early:
                text = f"members {[*Bits(early)][:5]} are started by their hosts"
                raise Contradiction(f"R29 {key}: {text}, and their gang has not said go")
        self._complete.clear()
        self._begun.clear()

    def _opens(self, entry: Entry, fact: sf.SliceOpened) -> None:
        self._slices.pop(entry.key, None)
        if fact.opening.gang:
            self._slices[entry.key] = _GangSlice(fact.opening.gang)

    def _goal(self, entry: Entry, fact: sf.SliceGoalSet) -> None:
        of = self._slices.get(entry.key)
        if of is not None:
            of.stopped = fact.stopped.raw

    def _completes(self, entry: Entry, fact: sf.GangComplete) -> None:  # noqa: ARG002
        of = self._slices[entry.key]
        self._complete.append((entry.key, of.waiting))
        of.forming = None

    def _forms(self, entry: Entry, fact: sf.GangFormed) -> None:
        self._slices[entry.key].forming = fact.members.raw

    def _vanishes(self, entry: Entry, fact: sf.SliceForgotten) -> None:  # noqa: ARG002
        self._slices.pop(entry.key, None)

    def _launches(self, entry: Entry, fact: tf.TaskLaunching) -> None:
        of = self._slices.get(slice_of_crowd(entry.key))
        if of is None:
            return
        if fact.prepare:
            of.told &= ~entry.members
            return
        ending = entry.members & of.ending
        if ending:
            text = f"members {[*Bits(ending)][:5]} launch, and are to end"
            raise Contradiction(f"R29 {entry.key}: {text}")
        early = entry.members & of.waiting
        if early:
            text = f"members {[*Bits(early)][:5]} launch before the gang is complete"
            raise Contradiction(f"R29 {entry.key}: {text}")
        of.told |= entry.members

    def _aims(self, entry: Entry, fact: tf.TaskGoalSet) -> None:
        of = self._slices.get(slice_of_crowd(entry.key))
        if of is not None:
            of.ending &= ~entry.members
            of.ending |= entry.members if fact.goal in ENDING else 0

    def _prepares(self, entry: Entry, fact: hf.RunsAccepted) -> None:  # noqa: ARG002
        of = self._slices.get(slice_of_crowd(fact.crowd))
        if fact.prepared and of is not None:
            of.prepared |= fact.members.raw

    def _gives_back(self, entry: Entry, fact: hf.PreparedReleased) -> None:  # noqa: ARG002
        of = self._slices.get(slice_of_crowd(fact.crowd))
        if of is not None and not fact.reason:  # what is refused, its tasks hear of
            of.prepared &= ~fact.members.raw

    def _begins(self, entry: Entry, fact: hf.PreparedStarted) -> None:  # noqa: ARG002
        self._begun.append((slice_of_crowd(fact.crowd), fact.members.raw))


def create_gang(storm: Storm, action: StormAction) -> None:
    """Create a job whose first instances are a gang."""
    cluster = cluster_of(storm)
    together = bool(action.other % 2)
    default = TaskConfig(command=Command("x"), resources=NEED, max_failures=2 * together)
    gang = max(action.count, 2)
    spec = JobSpec(
        "gang",
        "me",
        STORM_POOL,
        gang + action.which % 3,
        default,
        minimum_running=gang,
        gang_together=together,
        priority=action.which % 2,
    )
    storm.strike(action.name)
    client = CLIENTS[action.other % len(CLIENTS)]
    cluster.clients.create(client, cluster.draw_job(), message=CreateJob(spec))


WORK: dict[str, Callable[[Storm, StormAction], None]] = {"create gang": create_gang}
DRAWN = ActionDraw(
    "gangs drawn",
    SHARE,
    ACTIONS,
    lambda chance: chance.choice([*WORK]),
    lambda chance: chance.choice(SIZES),
)

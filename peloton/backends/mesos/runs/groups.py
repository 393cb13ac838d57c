"""A pod of several containers at Mesos: a task for each, and their updates combined.

The ids alone say what belongs together, so that a daemon that has just begun finds it again by
updates. The task of the first container has the name of the run, so a question for the run is
answered; the others have number and count behind it, and so has the executor of all. No name of a
run has a dot.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from msgspec.structs import replace

from peloton.actors.task.messages import End, RunOutcome
from peloton.actors.task.run_messages import ContainerEnd
from peloton.backends.mesos.runs.statuses import mesos_outcome, tells_start

_ID = re.compile(r"([^.]+)\.(\d+)\.(\d+)")
_RANKS = {End.FAILED: 0, End.LOST: 1, End.KILLED: 2, End.SUCCEEDED: 3}
"""Which end of a container is that of the pod: the lowest there is."""


class ContainerTaskId(NamedTuple):
    """The run of a task, and the number of its containers; 0: it is no pod of several."""

    run: str
    of: int = 0


def task_id(run: str, at: int, *, of: int) -> str:
    """Return the task of the container at this place."""
    return f"{run}.{at}.{of}" if at else run


def executor_id(run: str, *, of: int) -> str:
    return f"{run}.0.{of}"


def run_of_executor(id_: str) -> str:
    """Return the run whose containers an executor has; empty if it is another executor."""
    found = _ID.fullmatch(id_)
    return found[1] if found is not None else ""


def container_task_id(status: Mapping[str, Any]) -> ContainerTaskId:
    """Return the run of an update's task; of a first task by its executor, if that is named."""
    task = status["task_id"]["value"]
    own = _ID.fullmatch(task)
    if own is not None:
        return ContainerTaskId(own[1], int(own[3]))
    shared = _ID.fullmatch((status.get("executor_id") or {}).get("value", ""))
    return ContainerTaskId(task, int(shared[3]) if shared is not None and shared[1] == task else 0)


@dataclass(slots=True)
class Part:
    """A container. `name` is empty if only updates are known of it."""

    name: str = ""
    started_at: float | None = None
    runs: bool = False
    knows_start: bool = False
    outcome: RunOutcome | None = None
    ended_at: float | None = None

    def container_end(self) -> ContainerEnd:
        """Return the container's end as a part of the run's end."""
        started, ended = self.started_at or 0.0, self.ended_at or 0.0
        outcome = self.outcome
        if outcome is None:
            return ContainerEnd(self.name, started_at=started)
        if outcome.exit_code is not None or outcome.signal:
            started = started or ended  # it has run, whether we have heard of that or not
        code, signal = outcome.exit_code, outcome.signal
        return ContainerEnd(
            self.name, started_at=started, ended_at=ended, exit_code=code, signal=signal
        )


class Group:
    """The containers of one run, by task, in order."""

    def __init__(self, run: str, of: int, *, names: Sequence[str] = ()) -> None:
        known = [*names, *[""] * (of - len(names))]
        self.parts = {task_id(run, at, of=of): Part(name) for at, name in enumerate(known)}

    @property
    def open(self) -> tuple[str, ...]:
        """The tasks that have not ended, as far as is known."""
        return tuple(task for task, part in self.parts.items() if part.outcome is None)

    @property
    def has_begun(self) -> bool:
        """Whether all containers are running, or have run."""
        return all(part.runs or part.outcome is not None for part in self.parts.values())

    @property
    def started_at(self) -> float | None:
        """Since when all are running, as far as that was reported."""
        times = (part.started_at for part in self.parts.values())
        return max((at for at in times if at is not None), default=None)

    @property
    def knows_start(self) -> bool:
        """Whether that is when they began: else they may have begun earlier."""
        return all(part.knows_start for part in self.parts.values())

    @property
    def is_over(self) -> bool:
        """Whether the run has ended.

        If a container has failed, the run waits for the others, which its executor ends; if one is
        lost, nobody reports the ends of the others.
        """
        outcomes = [part.outcome for part in self.parts.values()]
        lost = any(one is not None and one.end is End.LOST for one in outcomes)
        return lost or None not in outcomes

    @property
    def ended_at(self) -> float | None:
        """When the last one ended."""
        times = (part.ended_at for part in self.parts.values())
        return max((at for at in times if at is not None), default=None)

    def runs(self, task: str) -> bool:
        """Return whether it is known that this task is running, or has run."""
        return self._part(task).runs

    def has_ended(self, task: str) -> bool:
        return self._part(task).outcome is not None

    def begin(self, task: str, status: Mapping[str, Any]) -> None:
        """Note that this task is running."""
        part = self._part(task)
        part.runs, part.started_at = True, status.get("timestamp")
        part.knows_start = tells_start(status)

    def end(self, task: str, status: Mapping[str, Any]) -> None:
        """Note the end of this task; a second end changes nothing."""
        part = self._part(task)
        if part.outcome is None:
            part.outcome = mesos_outcome(status, began=part.runs)
            part.ended_at = status.get("timestamp")

    def outcome(self) -> RunOutcome:
        """Return the outcome of the run: that of the first container that failed, or was lost."""
        ended = [
            (_RANKS[part.outcome.end], part.ended_at or 0.0, at, part.name, part.outcome)
            for at, part in enumerate(self.parts.values())
            if part.outcome is not None
        ]
        *_, at, name, found = min(ended, key=lambda one: one[:3])
        containers = tuple(part.container_end() for part in self.parts.values())
        if found.end is End.SUCCEEDED:
            return replace(found, containers=containers)
        message = f"container {name or at + 1}: {found.message}"
        return replace(found, message=message, containers=containers)

    def _part(self, task: str) -> Part:
        return self.parts.setdefault(task, Part())

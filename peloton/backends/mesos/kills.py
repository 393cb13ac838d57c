"""Kills, repeated until the end of each task was reported.

Neither a master nor an agent keeps a kill: one that is lost on the way to an executor is lost for
good, and the host that ordered it may have nothing more to ask for. An executor of a task's own may
also not obey. So a task that has not ended some time after its grace is killed again, at a pace
that slows down; its own executor, if it has one, is shut down, which the agent sees to. If its
agent has left by then, the kill is dropped: if the agent comes back, its host compares, and orders
anew what is to end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from peloton.backends.due_times import DueTimes
from peloton.backends.mesos.masters import calls
from peloton.pauses import Pauses

OVERDUE_S = 15.0
"""How long after its grace a task may take until it is killed again."""
AGAIN = Pauses(2 * OVERDUE_S, 300.0)
"""Between two kills."""


@dataclass(slots=True, eq=False)
class Kill:
    """The kill of one task. `executor`: the task's own, or empty."""

    agent: str
    grace_s: float
    executor: str
    due_at: float
    repeats: int = 0


class Kills:
    """The kills of one framework, by task.

    `send` takes calls to the master, `knows` returns whether an agent is a host or beside one.
    """

    def __init__(
        self,
        times: DueTimes,
        *,
        send: Callable[[Iterable[calls.Call]], None],
        knows: Callable[[str], bool],
    ) -> None:
        self._times, self._send, self._knows = times, send, knows
        self._open: dict[str, Kill] = {}

    def order(
        self, tasks: Iterable[str], agent: str, *, grace_s: float, now: float, executor: str = ""
    ) -> None:
        """Kill these tasks at once.

        A second order neither puts off what follows the first, nor gives the tasks longer.
        """
        for task in tasks:
            self._send([calls.kill(task, agent, grace_s=grace_s)])
            due_at, known = now + grace_s + OVERDUE_S, self._open.get(task)
            if known is None or known.agent != agent or due_at < known.due_at:
                kill = self._open[task] = Kill(agent, grace_s, executor, due_at)
                self._times.at(due_at, partial(self._overdue, task, kill))

    def over(self, task: str) -> None:
        """Drop the kill of a task whose end was reported."""
        self._open.pop(task, None)

    def clear(self) -> None:
        """Drop all: the connection is lost, hosts compare, and order anew what is to end."""
        self._open.clear()

    def _overdue(self, task: str, kill: Kill, now: float) -> None:
        if self._open.get(task) is not kill:
            return
        if not self._knows(kill.agent):
            del self._open[task]
            return
        self._send([calls.kill(task, kill.agent, grace_s=kill.grace_s)])
        if kill.executor:
            self._send([calls.shutdown(kill.executor, kill.agent)])
        kill.repeats += 1
        kill.due_at = now + AGAIN.after(kill.repeats)
        self._times.at(kill.due_at, partial(self._overdue, task, kill))

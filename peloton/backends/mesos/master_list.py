"""The master's lists of its agents and of our executors, and the times of asking for them.

The link asks, under its lock where times are concerned.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from peloton.backends.mesos.masters.calls import CallFailed
from peloton.backends.mesos.unreadable import unread
from peloton.backends.port import POISON

AGAIN_S = 10.0
"""How often the master is asked, beside what it tells by itself."""
PAUSE_S = 1.0
"""Between two questions because of an event: of an agent that we do not know, or that has left."""


class MasterList(NamedTuple):
    """The lists of the master: agents, and executors of this framework.

    `number` is that of the question; two threads may ask, and the answer that comes last may have
    been asked for first.
    """

    agents: Sequence[Mapping[str, Any]] = ()
    executors: Sequence[Mapping[str, Any]] = ()
    number: int = 0


def master_list(
    ask: Callable[[Mapping[str, Any]], Any], framework: str, *, executors: bool
) -> MasterList:
    """Ask for the lists; with the executors, or without. Raises `CallFailed`."""
    agents = _asked(ask, "GET_AGENTS", of="agents")
    if not executors:
        return MasterList(agents)
    every = _asked(ask, "GET_EXECUTORS", of="executors")
    ours = {"value": framework}
    return MasterList(agents, [one for one in every if _framework_of(one) in (ours, None)])


def _asked(ask: Callable[[Mapping[str, Any]], Any], question: str, *, of: str) -> list[Any]:
    answer = ask({"type": question})
    try:
        return [*answer.get(question.lower(), {}).get(of, ())]
    except POISON as why:
        raise CallFailed(unread(question, why)) from why


def _framework_of(executor: Any) -> Any:
    """Return the framework of an executor; None if it cannot be read."""
    try:
        return executor["executor_info"].get("framework_id", {})
    except POISON:
        return None


class AskTimes:
    """The times of the questions. A question that a pause prevents is asked after it."""

    def __init__(self) -> None:
        self._asked_at = float("-inf")
        self._number = 0
        self.next_at = float("-inf")
        """The time of the next question that nothing else brings about."""

    def again(self, now: float) -> None:
        """Set the next question to the usual time."""
        self.next_at = now + AGAIN_S

    def asked(self, now: float) -> int:
        """Record a question; return its number."""
        self._asked_at = now
        self._number += 1
        return self._number

    def may_ask(self, now: float) -> bool:
        """Return whether the pause is over; if not, the question is asked after it."""
        if now >= self._asked_at + PAUSE_S:
            return True
        self.soon(now)
        return False

    def soon(self, now: float) -> None:
        """Ask after the pause, because an agent has left, or come during the pause.

        Many leave together, and one list says it of all.
        """
        self.next_at = min(self.next_at, max(now, self._asked_at + PAUSE_S))

    def is_due(self, now: float) -> bool:
        """Return whether it is time; then the next time is set."""
        due = now >= self.next_at
        if due:
            self.again(now)
        return due

"""Problems of a cluster beside the connection to it: each is reported once, and so is its end."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from peloton.backends.mesos.conversation import Conversation
from peloton.backends.port import ReportProblem

_LOG = logging.getLogger("peloton.mesos")


class ClusterNews:
    """The problems of one cluster. `lock` is that of the conversation."""

    def __init__(
        self,
        cluster: str,
        talk: Conversation,
        *,
        lock: threading.Lock,
        clock: Callable[[], float],
    ) -> None:
        self._cluster, self._talk, self._lock, self._clock = cluster, talk, lock, clock
        self._last: dict[str, str] = {}
        """What was told last."""

    def executors(self, tell: ReportProblem, *, known: bool = True) -> None:
        """Report where our own executor does not start; without a subscription nobody knows."""
        with self._lock:
            problem = self._talk.agents.keeper_problem if known else ""
        self._say(tell, what="executors", problem=problem)

    def words(self, tell: ReportProblem, *, known: bool = True) -> None:
        """Report the messages of this subscription that could not be read."""
        with self._lock:
            unreadable = self._talk.unreadable
            problem, count = unreadable.problem(self._clock()) if known else "", unreadable.count
        if self._say(tell, what="words", problem=problem) and problem:
            text = "mesos %s: %s (%d skipped since the start)"
            _LOG.warning(text, self._cluster, problem, count)

    def _say(self, tell: ReportProblem, *, what: str, problem: str) -> bool:
        """Report this problem, or its end, if that is new; return whether it was."""
        is_new = self._last.get(what, "") != problem
        if is_new:
            self._last[what] = problem
            tell(f"cluster {self._cluster} {what}", problem)
        return is_new

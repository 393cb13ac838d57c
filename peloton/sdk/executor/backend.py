"""The seam between an executor and whoever runs its calls.

A backend starts workers and has them take calls from the queue. There are `local.LocalThreads` and
`cluster.ClusterWorkers`; a further one is passed to the executor as an object.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from peloton.sdk.executor.calls import CallQueue, ExecutorCall
from peloton.sdk.executor.futures import CallTeller, PelotonFuture

Packer = Callable[[tuple[Any, ...], dict[str, Any]], Any]
"""Turns the arguments of one call into the `work` of it."""


class CallBackend(CallTeller, Protocol):
    """Workers that take calls from a queue until `take` answers None."""

    def open(self, calls: CallQueue) -> tuple[PelotonFuture[Any], ...]:
        """Begin: workers take from this queue. Called once, before all else.

        Returns the futures of the calls of a process before, if there was one of the same name.
        """

    def packer(self, function: Callable[..., Any]) -> Packer:
        """Return what packs calls of this function. Raises NotSendable, TooLarge."""

    def schedule(self, calls: Sequence[ExecutorCall]) -> None:
        """Add calls to the queue and begin the workers that they need, without waiting for these.

        Where no worker can begin, the calls that wait fail with the reason (`CallQueue.fail`).
        """

    def close(self, *, wait: bool) -> None:
        """Let go of all workers, once the queue that is closed has no unfinished call; `wait` for
        that."""

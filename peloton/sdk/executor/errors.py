"""What can go wrong with a call of an executor, beside what the called function raises itself.

This module must not import gRPC: workers and their clients on threads have none.
"""

from __future__ import annotations

from concurrent.futures import BrokenExecutor

from peloton.sdk.errors import PelotonError


class WorkerLost(PelotonError, BrokenExecutor):
    """The worker that had the call ended before it had answered, more often than `retries` allows.

    Or no worker could begin at all. The message says what the cluster knows of its end.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message, kind="WORKER_LOST")


class TooLarge(PelotonError):
    """A function, its arguments or its result have more bytes than the limit that is named."""

    def __init__(self, message: str) -> None:
        super().__init__(message, kind="TOO_LARGE")


class NotSendable(PelotonError):
    """A function, its arguments, its result or its exception cannot be pickled or unpickled."""

    def __init__(self, message: str) -> None:
        super().__init__(message, kind="NOT_SENDABLE")


class RemoteTraceback(Exception):  # noqa: N818 - the name that the standard library's pool uses
    """The cause of an exception of a worker: its traceback there, as text."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f'\n"""\n{self.text}"""'

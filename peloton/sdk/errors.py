"""What can go wrong between a client and the cluster, as one tree of exceptions.

This module must not import gRPC or protobuf: the command line catches these before it loads either.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

WORDS = re.compile(r"(?<=[a-z])(?=[A-Z])")
"""Where the words of the name of a class meet."""


class PelotonError(Exception):
    """Any refusal or failure of the cluster, or of the way to it.

    `kind` is the stable short name of the cause: the field of the error a v0 answer carries
    (`alreadyExists`), or the gRPC code (`NOT_FOUND`). `reasons` are the codes of the cause, for
    programs, the most exact one first: that of the refusal if it has one (`NAME_TAKEN`), then
    `kind`; without either the name of the class (`BAD_SPEC`).
    """

    def __init__(self, message: str, *, kind: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.kind = kind
        self.reasons: tuple[str, ...] = (kind or WORDS.sub("_", type(self).__name__).upper(),)


class PelotonWarning(UserWarning):
    """The cluster accepted what was sent, but it will not have the wanted effect."""


class BadSpec(PelotonError):
    """What was sent is invalid: an unknown key, a wrong type, a broken rule.

    `field` is the path of the value that is wrong, empty if that is the spec as a whole; `reason`
    is the message without it; `more` are further mistakes of the same spec, if they are known.
    """

    def __init__(self, message: str, *, field: str = "", kind: str = "") -> None:
        super().__init__(f"{field}: {message}" if field else message, kind=kind)
        self.field = field
        self.reason = message
        self.more: tuple[BadSpec, ...] = ()


class NotFound(PelotonError):
    """No such job, instance, pool, host or file."""


class OutOfRange(NotFound):
    """The job exists, the instance does not; `instance_count` is how many it has."""

    def __init__(self, message: str, *, instance_count: int, kind: str = "outOfRange") -> None:
        super().__init__(message, kind=kind)
        self.instance_count = instance_count


class Conflict(PelotonError):
    """The object, as it is now, does not allow the call: a pool in use, a job that still runs."""


class StaleVersion(Conflict):
    """The object has changed since the version that the call was made for: read it again."""


class AlreadyExists(Conflict):
    """Something of that name exists already."""


class Denied(PelotonError):
    """The caller is not logged in, or not allowed."""


NO_CONNECTION = "NO_CONNECTION"
"""Kind of a `ServiceUnavailable`: no connection was made, so nothing was sent."""
NO_ANSWER = "NO_ANSWER"
"""Kind of a `ServiceUnavailable`: the health check before the call was not answered in time."""


class ServiceUnavailable(PelotonError):
    """No server answered; whether the call had an effect is unknown. A later call may succeed.

    A call that ended CANCELLED counts as well: the client cancels none, so a server that stops did.
    `retry_s` is the delay that a server proposed, or 0.
    """

    def __init__(self, message: str, *, kind: str = "", retry_s: float = 0.0) -> None:
        super().__init__(message, kind=kind)
        self.retry_s = retry_s


class TimedOut(ServiceUnavailable):
    """The deadline passed first. A change may have happened: check before repeating."""


class TryLater(PelotonError):
    """The cluster refused because of a limit or a lock; a later call may succeed."""


class CanNeverRun(PelotonError):
    """The job needs more than any host, or the limit of its pool, has now: waiting is in vain.

    `reasons` are the codes that `ops.why` gives for it.
    """

    def __init__(self, message: str, *, reasons: Iterable[str]) -> None:
        super().__init__(message)
        self.reasons = (*reasons,)


class Unsupported(PelotonError):
    """This server, or this client, does not have that call."""


class ServerError(PelotonError):
    """Any other failure of the server, not caused by the caller."""

"""Health checks: what is checked of a run, and what is known of it.

A check belongs to the config of an instance, and a backend carries it out. What a task is told of
it is in `live_messages.py`. Must not say what follows from that.
"""

from __future__ import annotations

import enum

import msgspec

from peloton.runtime.vocabulary import Value

INITIAL_S, INTERVAL_S, TIMEOUT_S = 15.0, 10.0, 20.0
MAX_FAILURES = 3
"""What holds where a check does not say it."""
UNHEALTHY = "health check failed"
"""The reason of a run that was ended because its check failed too often in a row."""


def over_text(text: str) -> str:
    """Why a run is ended whose last check found this."""
    return f"{UNHEALTHY} too often in a row, at last: {text}" if text else UNHEALTHY


class TaskHealth(enum.IntEnum):
    """What is known of the health of a run; the numbers are those of the original's clients."""

    INVALID = 0  # the run has ended
    DISABLED = 1  # nobody checks it
    UNKNOWN = 2  # no check has ended yet
    HEALTHY = 3
    UNHEALTHY = 4


class HttpProbe(Value, frozen=True, gc=False, array_like=True):
    """A request to a port of the run's own machine; well is any answer from 200 to 399."""

    port: int
    path: str = "/"
    scheme: str = "http"


class HealthCheck(Value, frozen=True, gc=False, array_like=True):
    """How a run is checked: by a request, or by a command in its sandbox.

    The first check begins `initial_s` after the process has started, each further one `interval_s`
    after the one before has ended. The run is ended after `max_failures` failures in a row.
    `unshared`: the command does not get the variables of the run's own environment. `container`:
    whose variables a command gets, of a run with several.

    `readiness`: how it is found out beside whether the run can do its work. Its failures end
    nothing: after `max_failures` in a row the run is not ready, until one passes. A check that has
    this alone, neither command nor request, says nothing of the health.
    """

    command: str = ""
    http: HttpProbe | None = None
    initial_s: float = INITIAL_S
    interval_s: float = INTERVAL_S
    timeout_s: float = TIMEOUT_S
    max_failures: int = MAX_FAILURES
    unshared: bool = False
    container: str = ""
    readiness: HealthCheck | None = None

    @property
    def of_health(self) -> bool:
        """Whether it says anything of the health of the run."""
        return bool(self.command) or self.http is not None or self.readiness is None

    def beside(self, readiness: HealthCheck) -> HealthCheck:
        """The same with this check of the readiness."""
        return msgspec.structs.replace(self, readiness=readiness)

    @property
    def by_command(self) -> bool:
        """Whether a command is needed for any of it."""
        other = self.readiness
        return bool(self.command) or (other is not None and bool(other.command))

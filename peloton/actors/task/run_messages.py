"""How a run is checked, what a task is told of it while it goes on, and when the next one follows.

A check of the health belongs to the config of an instance, and a backend carries it out. Only
changes of what is known are told, never each result of a check; how a run ended, and with it what
became of its containers, is told with its end. A message must not concern more than one run.

Rules and an end give the seconds before the next attempt, or that there is none. Who
counts the attempts and reads the clock passes both in.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable

import msgspec

from peloton.pauses import Pauses
from peloton.runtime.vocabulary import Message, Value

INITIAL_S, INTERVAL_S, TIMEOUT_S = 15.0, 10.0, 20.0
MAX_FAILURES = 3
"""What holds where a check does not say it."""
UNHEALTHY = "health check failed"
"""The reason of a run that was ended because its check failed too often in a row."""


def over_text(text: str) -> str:
    """Return why a run is ended whose last check found this."""
    return f"{UNHEALTHY} too often in a row, at last: {text}" if text else UNHEALTHY


class TaskHealth(enum.IntEnum):
    """The health of a run; the numbers are those of the original's clients."""

    INVALID = 0  # the run has ended
    DISABLED = 1  # nobody checks it
    UNKNOWN = 2  # no check has ended yet
    HEALTHY = 3
    UNHEALTHY = 4


class HttpProbe(Value, frozen=True, gc=False, array_like=True):
    """A request to a port of the run's own machine; any answer from 200 to 399 is well."""

    port: int
    path: str = "/"
    scheme: str = "http"


class HealthCheck(Value, frozen=True, gc=False, array_like=True):
    """How a run is checked: by a request, or by a command in its sandbox.

    The first check begins `initial_s` after the process has started, each further one `interval_s`
    after the one before has ended. The run is ended after `max_failures` failures in a row.
    `unshared`: the command does not get the variables of the run's own environment. `container`:
    whose variables a command gets, of a run with several.

    `readiness`: another check, of whether the run can do its work. Its failures end nothing: after
    `max_failures` in a row the run is not ready, until one passes. A check that has only this,
    neither command nor request, says nothing of the health.
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
        """Return whether the check says anything of the health of the run."""
        return bool(self.command) or self.http is not None or self.readiness is None

    def beside(self, readiness: HealthCheck) -> HealthCheck:
        """Return the check with this check of the readiness."""
        return msgspec.structs.replace(self, readiness=readiness)

    @property
    def by_command(self) -> bool:
        """Return whether a command is needed for any of it."""
        other = self.readiness
        return bool(self.command) or (other is not None and bool(other.command))


class RetryRules(Value, frozen=True, gc=False, array_like=True):
    """How a batch task is run again after a failure of its program.

    `on` and `never` hold exit codes as texts and names of signals: "2", "SIGKILL". With `on`, only
    runs that end in one of these ways are run again.
    """

    pause_s: float = 1.0  # after the first failure; twice as long after each further one
    pause_max_s: float = 60.0
    on: tuple[str, ...] = ()
    never: tuple[str, ...] = ()

    def pause_after(self, failures: int) -> float:
        """Return the seconds before the next attempt after so many failures."""
        return Pauses(self.pause_s, self.pause_max_s).after(failures)

    def rule_out(self, exit_code: int | None, signal: str) -> bool:
        """Return whether there is no further attempt after such an end.

        An end without exit code and signal, as of a program that could not be started, is never
        ruled out.
        """
        ways = {signal} if signal else set()
        if exit_code is not None:
            ways.add(str(exit_code))
        if not ways:
            return False
        return not ways.isdisjoint(self.never) or (bool(self.on) and ways.isdisjoint(self.on))


class ContainerEnd(Value, frozen=True, gc=False, array_like=True):
    """One of several containers of a run, as far as it came: 0 for what it has not reached.

    Without exit code and signal it goes on; if its run has ended, nobody knows how it ended. If its
    host does not know the name, that is empty: all are told then, in the spec's order.
    """

    name: str
    init: bool = False
    started_at: float = 0.0
    ended_at: float = 0.0
    exit_code: int | None = None
    signal: str = ""


def steps_of(containers: Iterable[ContainerEnd]) -> int:
    """Return how many starts and ends these containers have behind them: the more, the newer."""
    return sum((one.started_at > 0) + (one.ended_at > 0) for one in containers)


class LiveRun(Value, frozen=True, gc=False, array_like=True):
    """All that is known of a run that goes on.

    `healthy`: since its last check; None: no check of the health has ended yet, nor of the
    readiness if `ready` is not one of the two last; a text then says why the check could not be
    carried out so far. `over`: it has failed too often in a row. `unchecked`: no backend carries
    out the check of its health, and `ungated`: that of its readiness; the texts say why.
    `containers`: of a pod that has several, all of them, in order.
    """

    healthy: bool | None = None
    text: str = ""  # what the last check found
    over: bool = False
    ready: TaskHealth = TaskHealth.DISABLED
    unready_text: str = ""  # what the readiness check found, of one that is not ready
    unchecked: bool = False
    ungated: bool = False
    containers: tuple[ContainerEnd, ...] = ()

    @property
    def unjudged(self) -> LiveRun:
        """Return what is known of the containers alone."""
        return LiveRun(containers=self.containers)

    @property
    def is_judged(self) -> bool:
        """Return whether anything is said of the health or the readiness."""
        return self != self.unjudged


class RunChanged(Message, frozen=True, gc=False, array_like=True):
    """Host to tasks: what is known of this run has changed.

    Repeated by the backend until the tasks have answered with the number, `ChangeSeen`.
    """

    run: int
    number: int
    live: LiveRun


class LiveContainers(Value, frozen=True, gc=False, array_like=True):
    """The last containers that a task was told of, and their run."""

    run: int
    containers: tuple[ContainerEnd, ...]


TASK_LIVE_MESSAGES: dict[int, type] = {43: RunChanged}
"""Those of the task, beyond `messages.MESSAGES`."""

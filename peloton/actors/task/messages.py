"""Messages a task receives. All are sent to sets: one message to many members of a crowd.

A task knows neither its own name nor its host; `run` and `ticket` are the natural keys that
distinguish a repeated or late message from a new one.
"""

from __future__ import annotations

import enum
import re
from typing import ClassVar

from peloton.actors.task.run_messages import ContainerEnd, RetryRules
from peloton.placement.messages import HostSummary
from peloton.runtime.vocabulary import Bits, Delivery, Goal, Key, Message, Value, key

SLICE_SIZE = 1000
"""Instances a slice holds: slice k has the instances SLICE_SIZE·k and following."""
DEADLINE_EXCEEDED = "Deadline exceeded"
"""The reason of a run that was killed because it ran longer than it may: the original's text."""


class TaskGoals(enum.IntEnum):
    """What should become of an instance."""

    SUCCEEDED = 1
    RUNNING = 2
    KILLED = 3
    DELETED = 4


WANTED = (TaskGoals.SUCCEEDED, TaskGoals.RUNNING)
"""The goals of an instance that is to run."""


class End(enum.IntEnum):
    """How a run ended."""

    SUCCEEDED = 1
    FAILED = 2
    KILLED = 3
    LOST = 4


class KillCause(enum.IntEnum):
    """Why a run is killed though its instance has not been stopped."""

    NONE = 0  # it was stopped; or, where its goal is to run, it did not start in time
    RUN_LIMIT = 1  # it ran longer than it may: the instance ends
    PREEMPTED = 2  # its resources were taken: a new run is free
    PREEMPTED_FOR_GOOD = 3  # the same, and its config says that it is not run again
    PREPARATION_DROPPED = 4  # it was never started: its gang found no room for all
    GANG_RESTART = 5  # its gang is restarted as one: a new run is free
    MAINTENANCE = 6  # its host goes down: a new run is free, elsewhere
    SPARED_RESTART = 7  # a new run was ordered, and its job could spare the instance
    UNHEALTHY = 26  # its health check failed too often: a failure of the program


PREEMPTED = "preempted"
"""The reason of a run that was killed for a pool that is entitled to what it used."""
HOST_MAINTENANCE = "host maintenance"
"""The reason of a run that was ended because its host goes down for maintenance."""
SLACK_TAKEN = "slack taken back"
"""The reason of a run on slack that was ended because its host has less of it."""
SECRETS_UNAVAILABLE, SECRET_NOT_FOUND = "secrets cannot be read", "REASON_SECRET_NOT_FOUND"
"""Reasons of a run that was not started: the store of secrets did not answer; one is not there."""


class RunOutcome(Value, frozen=True, gc=False, array_like=True):
    """How a run ended on its host. `reason` is a short name, `message` is for people.

    `containers` are told of runs with several."""

    end: End
    exit_code: int | None = None
    signal: str = ""
    reason: str = ""
    message: str = ""
    system: bool = False  # not the program's fault: it uses up no attempt
    containers: tuple[ContainerEnd, ...] = ()


class PastRun(Value, frozen=True, gc=False, array_like=True):
    """A run that ended before the current one."""

    run: int
    host: str | None
    started_at: float | None
    ended_at: float | None
    outcome: RunOutcome | None
    begun_at: float | None = None  # when it began to wait for its pool; None of the first run
    launched_at: float | None = None
    config_version: int = 0  # by which it ran; 0: that of its instance


class Policy(Value, frozen=True, gc=False, array_like=True):
    """The limits a task decides by, shared by all members with the same config."""

    max_failures: int = 0
    start_timeout_s: float = 180 * 60.0
    kill_grace_s: float = 30.0
    max_running_s: float | None = None  # of one run
    together: bool = False  # it is retried only with its gang
    ends_with_slack: bool = False  # one whose slack is taken back is not run again
    stays: bool = False  # it has one host for good: a run that is lost with it is no failure
    checked: bool = False  # its health is checked while it runs
    awaits_ready: bool = False  # and its readiness
    healthy_after_s: float | None = None  # a run that lasts so long clears the failures before it
    retry: RetryRules | None = None  # of a batch task; None, as before there were rules: at once


class SetTaskGoal(Goal, frozen=True, gc=False, array_like=True):
    """Slice to tasks: the goal; the other fields create those that do not exist yet.

    `restart` numbers an order to begin a new run with fresh attempts, obeyed once by tasks that are
    to run at all; 0 is no order. `fresh`: a task that was to end, and is to run, has fresh
    attempts. `past`: the highest number of a run or ticket of removed members: none is used again.
    """

    goal: TaskGoals
    policy: Policy
    spec: int  # index into the slice's table of configs
    lot: Key
    reason: str = ""
    restart: int = 0
    fresh: bool = False
    past: int = 0
    config_version: int = 0  # of that config, where it may change


class Renewal(Value, frozen=True, gc=False, array_like=True):
    """The config that an instance is to have, by the workflow of this number."""

    number: int
    policy: Policy
    spec: int  # index into the slice's table of configs
    lot: Key
    because: str
    config_version: int = 0


class Renew(Message, frozen=True, gc=False, array_like=True):
    """Slice to tasks: have this config.

    `runs`: the config differs, or a run of its own is wanted: the present run ends first. Else the
    run goes on, as nothing of it changes. Obeyed once, by the renewal's number.
    """

    renewal: Renewal
    runs: bool = True


class Queued(Message, frozen=True, gc=False, array_like=True):
    """Lot to tasks: the ticket of this number is in the queue."""

    ticket: int


class Admitted(Message, frozen=True, gc=False, array_like=True):
    """Lot to tasks: the pool admitted this ticket."""

    delivery: ClassVar[Delivery] = Delivery.OWED

    ticket: int

    def replaced(self) -> Message:
        """Return the message that this one makes unnecessary: a task admitted at once needs no
        `Queued`."""
        return Queued(self.ticket)


class TicketReleased(Message, frozen=True, gc=False, array_like=True):
    """Lot to tasks: the lot holds neither this ticket nor a lower one."""

    ticket: int


class PlaceTasks(Message, frozen=True, gc=False, array_like=True):
    """Slice to tasks: launch; the values are the hosts, one for each member.

    `shares`: as in `Placed`. `prepare`: only have the hosts grant the room. Without values: the
    whole gang is prepared, launch where that is.
    """

    shares: int = 0
    prepare: bool = False


class JoinGang(Message, frozen=True, gc=False, array_like=True):
    """Slice to tasks: the gang forms anew, request admission with a new ticket.

    Obeyed once: by tasks that have seen neither this round nor a later one.
    """

    round: int


class MarkUnschedulable(Message, frozen=True, gc=False, array_like=True):
    """Slice to tasks: no host could run you, so release your ticket; or one could now.

    `parked`: why there is no host, though one could; the place in the queue is kept.
    """

    unschedulable: bool
    parked: str = ""


class TicketParked(Message, frozen=True, gc=False, array_like=True):
    """Lot to tasks: the pool has the allocation back, and you have your place in its queue."""

    ticket: int


class SetRunLimit(Message, frozen=True, gc=False, array_like=True):
    """Slice to tasks: how long one run may take from now on; None for no limit."""

    max_running_s: float | None


class DropEvents(Message, frozen=True, gc=False, array_like=True):
    """Slice to tasks: what happened to runs up to this one, or to it `alone`, is not to be shown
    any more."""

    run: int
    alone: bool = False


class GiveWay(Message, frozen=True, gc=False, array_like=True):
    """Slice to tasks: give up what you have; a run is ended with its grace.

    `cause`: what for, and so in which states that is anything. One that is preempted and waits for
    a host queues anew; one that is restarted and waits out a pause does not wait any longer.
    `run`, where it is not 0: that alone, and only if nothing else ends it for the next one.
    """

    cause: KillCause
    reason: str
    run: int = 0


class Accepted(Message, frozen=True, gc=False, array_like=True):
    """Host to tasks, in answer to a repeated launch: this run waits for its start."""

    run: int


class Prepared(Message, frozen=True, gc=False, array_like=True):
    """Host to tasks: the host has granted the room for this run, and asks so until they start or
    cancel it."""

    delivery: ClassVar[Delivery] = Delivery.OWED

    run: int


class RunRefused(Message, frozen=True, gc=False, array_like=True):
    """Host to tasks, and these to their slice: this run will never start here.

    `host`: which one, for the slice.
    """

    delivery: ClassVar[Delivery] = Delivery.OWED
    of_sender: ClassVar[bool] = True

    run: int
    reason: str
    summary: HostSummary | None = None  # what the host has free as of the refusal
    volumes: Bits | None = None  # the tasks that have one on this host; None: it does not say
    host: Key = Key("")


class Started(Message, frozen=True, gc=False, array_like=True):
    """Host to tasks: this run's process has started. `at` is when, if that is long ago."""

    run: int
    at: float | None = None


class Ended(Message, frozen=True, gc=False, array_like=True):
    """Host to tasks: this run ended. `at` is when, if that is long ago.

    `started_at` is when it had started, if the task was not told, and that is long ago.
    """

    delivery: ClassVar[Delivery] = Delivery.OWED

    run: int
    outcome: RunOutcome
    at: float | None = None
    started_at: float | None = None


class RunGone(Message, frozen=True, gc=False, array_like=True):
    """Host to tasks: this run is unknown here, and will never start."""

    run: int


MESSAGES: dict[int, type] = {
    1: SetTaskGoal,
    2: Queued,
    3: Admitted,
    4: TicketReleased,
    5: PlaceTasks,
    6: Accepted,
    7: RunRefused,
    8: Started,
    9: Ended,
    10: RunGone,
    11: MarkUnschedulable,
    12: SetRunLimit,
    13: DropEvents,
    17: Prepared,
    19: JoinGang,
    21: TicketParked,
    22: Renew,
    23: GiveWay,
}


def crowd_key(job: str, slice_number: int) -> Key:
    """Return the key of the crowd of one slice's tasks."""
    return key("task", job, slice_number)


def slice_of_crowd(crowd: Key) -> Key:
    """Return the slice whose tasks a crowd holds."""
    return Key("slice" + crowd[len("task") :])


def pod_id(crowd: Key, member: int, *, run: int) -> str:
    """Return the name of one run, `<job>-<instance>-<run>`, as the original's clients know it."""
    _, job, number = crowd.split("/")
    return f"{job}-{int(number) * SLICE_SIZE + member}-{run}"


def parse_pod(pod: str) -> tuple[Key, int, int] | None:
    """Return crowd, member and run number, the inverse of `pod_id`; None if it is no name of a
    run."""
    if (found := _POD.fullmatch(pod)) is None:
        return None
    job, instance, run = found.groups()
    number, member = divmod(int(instance), SLICE_SIZE)
    return Key(f"task/{job}/{number}"), member, int(run)


_NUMBER = "(0|[1-9][0-9]{0,11})"  # without leading zeros: a run must not have two names
_POD = re.compile(f"([^/]+)-{_NUMBER}-{_NUMBER}")

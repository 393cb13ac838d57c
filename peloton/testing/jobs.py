"""Specs of jobs in few words, and a job of a test with what the cluster says of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypedDict

from peloton.sdk.client import Client
from peloton.sdk.jobs import TERMINAL_STATES, state_name_of

DEFAULT_POOL_PATH = "/default"


class JobShape(TypedDict, total=False):
    """What jobs of tests mostly differ in; each may be left out."""

    name: str
    instances: int
    cpu: float
    memory_mb: float
    disk_mb: float
    gpu: float
    priority: int
    preemptible: bool
    retries: int
    command: str


DEFAULT_SHAPE: JobShape = {
    "name": "test",
    "instances": 1,
    "cpu": 1.0,
    "memory_mb": 64.0,
    "disk_mb": 10.0,
    "gpu": 0.0,
    "priority": 0,
    "preemptible": True,
    "retries": 0,
    "command": "true",
}


def shaped_spec(shape: JobShape | None = None) -> dict[str, Any]:
    """Return the spec of a batch job of this shape, as `Client.jobs.create` takes it.

    Raises TypeError for a word that is none of `JobShape`.
    """
    strangers = sorted(set(shape or {}) - set(DEFAULT_SHAPE))
    if strangers:
        known = ", ".join(DEFAULT_SHAPE)
        raise TypeError(f"a job has no {', '.join(strangers)}; there is {known}")
    wanted = DEFAULT_SHAPE | (shape or {})
    resource = {
        "cpuLimit": wanted["cpu"],
        "memLimitMb": wanted["memory_mb"],
        "diskLimitMb": wanted["disk_mb"],
        "gpuLimit": wanted["gpu"],
    }
    return {
        "name": wanted["name"],
        "type": "BATCH",
        "owningTeam": "tests",
        "instanceCount": wanted["instances"],
        "sla": {"priority": wanted["priority"], "preemptible": wanted["preemptible"]},
        "defaultConfig": {
            "name": wanted["name"],
            "resource": resource,
            "restartPolicy": {"maxFailures": wanted["retries"] and wanted["retries"] + 1},
            "command": {"shell": True, "value": wanted["command"]},
        },
    }


def spec_for(spec: Mapping[str, Any] | None, shape: JobShape) -> dict[str, Any]:
    """Return the spec, or one of the shape if there is none. Raises TypeError for both."""
    if spec is not None and shape:
        raise TypeError("a job has either a spec or a shape, got both")
    return dict(spec) if spec is not None else shaped_spec(shape)


class Place(Protocol):
    """Where a job is: a cluster or a fleet of a test."""

    @property
    def client(self) -> Client:
        """Return a client of it."""

    def run_until(self, reached: Callable[[], object], *, within_s: float = 600.0) -> object:
        """Let time pass until the condition is true; raise AssertionError if it never is."""


class JobHandle:
    """A job of a test."""

    def __init__(self, place: Place, job_id: str, *, name: str = "") -> None:
        self.place = place
        self.id = job_id
        self.name = name

    def __repr__(self) -> str:
        return f"job {self.name!r} ({self.id})"

    @property
    def state(self) -> str:
        """Return its state, such as "RUNNING"."""
        return state_name_of(self.place.client.jobs.get(self.id).jobInfo)

    @property
    def has_ended(self) -> bool:
        """Return whether nothing of it runs any more, nor will."""
        return self.state in TERMINAL_STATES

    def counts(self) -> Counter[str]:
        """Return how many of its instances are in each state."""
        stats = self.place.client.jobs.get(self.id).jobInfo.runtime.taskStats
        return Counter({name: count for name, count in stats.items() if count})

    def instance_state(self, instance: int) -> str:
        """Return the state of one instance."""
        from peloton.api.v0.task import task_pb2

        found = self.place.client.tasks.get(self.id, instance).result.runtime.state
        return str(task_pb2.TaskState.Name(found))

    def host_of(self, instance: int) -> str:
        """Return the name of the host of an instance; "" while it has none."""
        return str(self.place.client.tasks.get(self.id, instance).result.runtime.host)

    def reasons(self, instance: int | None = None) -> list[Any]:
        """Return why it, or one instance, is in its state, as `Client.ops.why` has it."""
        return list(self.place.client.ops.why(self.id, instance).reasons)

    def why(self, instance: int | None = None) -> str:
        """Return the same as `peloton why` prints it, one line each."""
        from peloton.cli.jobs.ops import in_the_way, who_and_text

        lines = []
        for reason in self.reasons(instance):
            who, text = who_and_text(reason)
            lines.append(f"{who or 'the job'}: {reason.state} {reason.code}: {text}")
            lines += [line for line in in_the_way(reason) if line]
        return "\n".join(lines) or "nothing holds it up"

    def until(self, state: str, *, within_s: float = 600.0) -> None:
        """Let time pass until the job is in this state, or has ended in another one.

        Raises AssertionError, with what the cluster says, if it does not come to it.
        """
        self.place.run_until(
            lambda: (now := self.state) == state or now in TERMINAL_STATES, within_s=within_s
        )
        if self.state != state:
            raise AssertionError(f"{self} is {self.state}, not {state}\n{self.said()}")

    def said(self, instance: int | None = None) -> str:
        """Return counts and reasons, for a failure."""
        counts = ", ".join(f"{count} {state}" for state, count in sorted(self.counts().items()))
        lines = [f"instances: {counts or 'none'}", *self.why(instance).splitlines()]
        return "\n".join(f"  {line}" for line in lines)

    def stop(self) -> None:
        """Order that nothing of it runs any more."""
        self.place.client.jobs.stop(self.id)

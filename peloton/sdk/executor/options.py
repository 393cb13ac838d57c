"""What the workers of an executor are to be like, as keywords and as checked values."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypedDict, cast

from peloton.sdk.errors import BadSpec

POOL = "/default"
WORKERS_MAX = 1000
"""Of one executor: each has a thread of the client."""
IDLE_S, KEEP_S = 60.0, 3600.0
RETRIES = 2


class WorkerOptions(TypedDict, total=False):
    """The keywords of an executor; each is a field of `WorkerSettings`."""

    cpu: float
    gpu: float
    memory_mb: float
    disk_mb: float
    pool: str
    preemptible: bool
    retries: int
    idle_s: float
    keep_s: float
    python: Sequence[str]
    env: Mapping[str, str]
    listen: str
    wait_for_hosts: bool
    elsewhere: bool


@dataclass(frozen=True)
class WorkerSettings:
    """What each worker requests, and how long it lives.

    `cpu`, `gpu`, `memory_mb` and `disk_mb` are requested of `pool` for each worker; without `cpu`
    or `memory_mb`, the share of the smallest host. `preemptible` workers may be ended for others
    and run again later. `retries`: how many more workers a call gets that was lost with its own.
    A worker without a call ends after `idle_s`; a named executor's, whose client is gone, after
    `keep_s`. `python` starts a worker's interpreter, by default that of this process. `env`: more
    variables of workers. `listen`: HOST or HOST:PORT at which workers reach this process, by
    default the address of the way to the cluster and a free port. Calls fail with CanNeverRun where
    no host and no pool could ever have a worker, unless they `wait_for_hosts`.
    `elsewhere`: hosts are other machines, though the cluster is reached at an address of this one.
    """

    cpu: float | None = None
    gpu: float = 0.0
    memory_mb: float | None = None
    disk_mb: float = 0.0
    pool: str = POOL
    preemptible: bool = False
    retries: int = RETRIES
    idle_s: float = IDLE_S
    keep_s: float = KEEP_S
    python: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    listen: str = ""
    wait_for_hosts: bool = False
    elsewhere: bool = False

    @classmethod
    def of(cls, options: WorkerOptions) -> WorkerSettings:
        """Return the settings of keywords. Raises BadSpec with the name of the first that is
        wrong."""
        known = {field.name for field in fields(cls)}
        given: dict[str, Any] = dict(options)
        for name in given:
            if name not in known:
                raise BadSpec(f"no such option, there is {', '.join(sorted(known))}", field=name)
        if isinstance(given.get("python"), str):
            raise BadSpec("must be a list of words, not one text", field="python")
        if "python" in given:
            given["python"] = tuple(given["python"])
        if "env" in given:
            given["env"] = tuple(sorted(given["env"].items()))
        settings = cls(**given)
        settings._check()
        return settings

    def _check(self) -> None:
        for name in ("cpu", "gpu", "memory_mb", "disk_mb", "retries", "idle_s", "keep_s"):
            value = getattr(self, name)
            if value is None and name in ("cpu", "memory_mb"):
                continue
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise BadSpec(f"must be a number, got {value!r}", field=name)
            if value < 0 or not math.isfinite(value):
                raise BadSpec(f"must be ≥ 0, got {value}", field=name)
        if not isinstance(self.retries, int):
            raise BadSpec(f"must be a whole number, got {self.retries}", field="retries")
        if not isinstance(self.pool, str) or not self.pool.startswith("/"):
            raise BadSpec(f"must be a path such as {POOL}, got {self.pool!r}", field="pool")

    def as_options(self) -> WorkerOptions:
        """Return the settings as keywords again."""
        found: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(self)}
        found["env"] = dict(self.env)
        return cast(WorkerOptions, found)

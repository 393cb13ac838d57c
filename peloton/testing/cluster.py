"""A whole control plane in the test's process, in virtual time.

Real shards, pools, placers and the real gateway run over a simulated store, network and machines,
on the test's thread. Nothing happens but in a call of the client or of the cluster; a second of the
cluster takes what its work takes. A seed and the same calls of `submit` give the same history.

    cluster.add_host(cpu=8, gpu=2)
    job = cluster.submit(instances=200, cpu=0.1, does=succeeds(after=30))
    cluster.advance(60)
    assert_state(job, "SUCCEEDED")
"""

from __future__ import annotations

import math
import random
import uuid
from collections.abc import Callable, Mapping
from functools import partial
from types import TracebackType
from typing import Any, TypedDict, Unpack

from peloton.actors.host.messages import ConfigureHost
from peloton.actors.resources import UNIT, Resources
from peloton.chaos.cluster.world.machines import Fate
from peloton.placement.messages import Label
from peloton.runtime.core.turning.envelope import Envelope
from peloton.runtime.simulation.world import NotReached
from peloton.runtime.vocabulary import Key, key
from peloton.sdk.client import Client
from peloton.sdk.errors import BadSpec, NotFound, PelotonError
from peloton.testing.behaviour import Attempt, Behaviour, Does, behaviour_of, succeeds
from peloton.testing.in_process import InProcessClient, InProcessTransport
from peloton.testing.jobs import DEFAULT_POOL_PATH, JobHandle, JobShape, spec_for
from peloton.testing.outcomes import called_outcome, scripted_outcome
from peloton.testing.served_world import ClusterShape, ServedWorld

START_S_MAX = 120.0
"""Virtual seconds in which a daemon is back, or a new host is known."""
KINDS_OF_RESOURCE = ("cpu", "memory", "disk", "gpu")


class HostSize(TypedDict, total=False):
    """What a host has; the sizes of a minicluster's hosts where nothing is said."""

    cpu: float
    memory_mb: float
    disk_mb: float
    gpu: float


DEFAULT_SIZE: HostSize = {"cpu": 4.0, "memory_mb": 2048.0, "disk_mb": 20000.0, "gpu": 0.0}


class Cluster:
    """One cluster of a test; `close` ends it."""

    def __init__(self, shape: ClusterShape = ClusterShape()) -> None:  # noqa: B008
        self._chance = random.Random(f"{shape.seed} test")
        self._scripts: dict[str, Does] = {}
        self._daemons = tuple(f"d{number}" for number in range(1, shape.daemons + 1))
        self.inside = ServedWorld(shape, self._fate)
        """The simulated world, for tests of what no client can ask."""
        self.default_behaviour: Does = succeeds()
        """What tasks do whose job has no script."""
        self.hosts: dict[str, None] = {}
        """The names of all hosts that were added, those that are lost included."""
        time = self.inside.time
        transport = InProcessTransport(time, self.inside.server_at)
        self.client: Client = InProcessClient(transport, self._daemons)
        self.inside.start(self._daemons)
        self._settle(self.inside.ready)
        self._has_default_pool = False

    def __enter__(self) -> Cluster:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the daemons and drop all they have."""
        self.client.close()
        self.inside.close()

    # ---- time ----

    @property
    def now(self) -> float:
        """Return the virtual seconds since the cluster began."""
        return self.inside.world.elapsed_s

    def advance(self, seconds: float) -> None:
        """Let so many virtual seconds pass, with all that is due by then."""
        if not 0 <= seconds < math.inf:
            raise ValueError(f"seconds: must be ≥ 0 and finite, got {seconds}")
        self.inside.time.run_for(seconds)

    def run_until(self, reached: Callable[[], object], *, within_s: float = 600.0) -> float:
        """Let time pass until the condition is true; return the virtual seconds that took.

        The condition may call the cluster; it is asked at every moment at which something happens.
        Raises AssertionError after `within_s`.
        """
        begun = self.now
        if not self.inside.time.reaches(reached, within_s):
            text = f"not reached within {within_s:g} virtual seconds, at {self.now:.1f} s"
            raise NotReached(f"{text}\n{self._said()}")
        return self.now - begun

    # ---- hosts ----

    def add_host(
        self,
        name: str = "",
        *,
        labels: Mapping[str, str] | None = None,
        **size: Unpack[HostSize],
    ) -> str:
        """Add a host and return its name, once it is up; resources may then be given there.

        Raises BadSpec for what no host can have.
        """
        name = name or f"host-{len(self.hosts) + 1}"
        self._add([name], _capacity(size), labels=labels or {})
        return name

    def add_hosts(self, count: int, **size: Unpack[HostSize]) -> list[str]:
        """Add so many equal hosts; return their names."""
        first = len(self.hosts) + 1
        names = [f"host-{number}" for number in range(first, first + count)]
        self._add(names, _capacity(size), labels={})
        return names

    def lose_host(self, name: str) -> None:
        """Switch a machine off, with all that runs there; the cluster is not told.

        It notices as with a real one: the host is unreachable, and after 60 s what ran there is
        lost.
        """
        with self.inside.time.lock:
            self.inside.backend.switch_off(self._host(name))

    def return_host(self, name: str) -> None:
        """Switch a machine that was lost on again; it comes back empty."""
        with self.inside.time.lock:
            self.inside.backend.mend(self._host(name))

    # ---- daemons ----

    def crash(self, daemon: str = "") -> None:
        """Kill one daemon, such as "d1", or all, as by `kill -9`; `restart` begins them again.

        Tasks go on. Calls raise ServiceUnavailable while no daemon is there.
        """
        if daemon and daemon not in self._daemons:
            raise ValueError(f"daemon: there is {', '.join(self._daemons)}, got {daemon!r}")
        with self.inside.time.lock:
            self.inside.kill((daemon,) if daemon else self._daemons)

    def restart(self) -> None:
        """Begin all daemons that were killed, and return when they own their shards again."""
        with self.inside.time.lock:
            self.inside.start(self._daemons)
        self._settle(self.inside.ready)

    # ---- jobs ----

    def add_pool(self, path: str, **limits: float) -> str:
        """Add a pool with limits, such as cpu=4; of other kinds it may use all. Return its path.

        Reservations and shares: `client.pools.create`.
        """
        strangers = sorted(set(limits) - set(KINDS_OF_RESOURCE))
        if strangers:
            raise BadSpec(f"must be one of {', '.join(KINDS_OF_RESOURCE)}", field=strangers[0])
        rooted = {one.kind: one.limit for one in self.client.pools.limits("root")}
        resources = [
            {"kind": kind, "limit": limits.get(kind, most)} for kind, most in rooted.items()
        ]
        spec = {"name": path.rpartition("/")[2], "resources": resources}
        self.client.pools.create(path, spec, request_key=self._drawn_id())
        return path

    def submit(
        self,
        spec: Mapping[str, Any] | None = None,
        *,
        does: Does | None = None,
        pool: str = DEFAULT_POOL_PATH,
        **shape: Unpack[JobShape],
    ) -> JobHandle:
        """Submit a job: a whole spec of v0, or one of this shape; `does` scripts its tasks."""
        wanted = spec_for(spec, shape)
        job = self._drawn_id()
        if does is not None:
            self._scripts[job] = does
        self.client.jobs.create(pool, wanted, wanted_id=job, request_key=job)
        return JobHandle(self, job, name=str(wanted.get("name", "")))

    def script(self, job: str, does: Does) -> None:
        """Script the tasks of a job, by its id or its name, from their next start on."""
        self._scripts[job] = does

    # ---- inside ----

    def _drawn_id(self) -> str:
        return str(uuid.UUID(int=self._chance.getrandbits(128), version=4))

    def _add(self, names: list[str], capacity: Resources, *, labels: Mapping[str, str]) -> None:
        known = [name for name in names if name in self.hosts]
        if known:
            raise BadSpec(f"there is a host {known[0]!r} already", field="name")
        self.hosts.update(dict.fromkeys(names))
        labelled = tuple(Label(*pair) for pair in sorted(labels.items()))
        found = [key("host", name) for name in names]
        address = self.inside.backend.address
        configured = ConfigureHost(capacity, labelled, address)
        with self.inside.time.lock:
            self.inside.tell([Envelope(host, configured) for host in found])
            self.inside.tell([self.inside.up(host) for host in found])
        self._settle(lambda: self.inside.are_up(found))
        self._fit_default_pool()

    def _fit_default_pool(self) -> None:
        """Give `/default` the limits of the root, which are what all hosts have."""
        pools, spec = self.client.pools, {"name": DEFAULT_POOL_PATH[1:]}
        if self._has_default_pool:
            pools.update(DEFAULT_POOL_PATH, spec)
        else:
            pools.create(DEFAULT_POOL_PATH, spec, request_key=self._drawn_id())
            self._has_default_pool = True

    def _host(self, name: str) -> Key:
        if name not in self.hosts:
            raise NotFound(f"there is no host {name!r}; there is {', '.join(self.hosts) or 'none'}")
        return key("host", name)

    def _settle(self, reached: Callable[[], bool]) -> None:
        time = self.inside.time
        if not time.await_call(reached, time.now() + START_S_MAX):
            raise NotReached(f"the cluster is not ready after {START_S_MAX:g} virtual seconds")

    def _said(self) -> str:
        """Return the jobs that have not ended, and why, for a failure."""
        try:
            found = [each.value for each in self.client.jobs.active().ids]
            said = [f"{JobHandle(self, job)}: {JobHandle(self, job).why()}" for job in found[:3]]
        except PelotonError as error:
            return f"  (the cluster does not answer: {error})"
        return "\n".join(f"  {line}" for text in said for line in text.splitlines())

    def _fate(self, run: str) -> Fate:
        """Return what a run does that starts now."""
        job, instance, number = run.rsplit("-", 2)
        attempt = Attempt(job, int(instance), int(number))
        found = behaviour_of(self._script_of(job), attempt)
        if found.called is not None:
            self.inside.time.chores.append(partial(self._call, run, attempt, found=found))
            return Fate(None)
        return Fate(found.after, scripted_outcome(found))

    def _script_of(self, job: str) -> Does:
        script = self._scripts.get(job)
        if script is None:
            script = self._scripts.get(self.inside.name_of(job))
        return self.default_behaviour if script is None else script

    def _call(self, run: str, attempt: Attempt, *, found: Behaviour) -> None:
        outcome = called_outcome(found, attempt)
        self.inside.end_run(run, outcome, after_s=found.after)


def _capacity(size: HostSize) -> Resources:
    """Return the resources of a host. Raises BadSpec with the wrong word."""
    strangers = sorted(set(size) - set(DEFAULT_SIZE))
    if strangers:
        raise BadSpec(f"no such word, there is {', '.join(DEFAULT_SIZE)}", field=strangers[0])
    wanted = DEFAULT_SIZE | size
    for field, amount in wanted.items():
        if not isinstance(amount, int | float) or not 0 <= amount < math.inf:
            raise BadSpec(f"must be a number ≥ 0, got {amount!r}", field=field)
    gpu = wanted["gpu"]
    if gpu != int(gpu):
        raise BadSpec(f"must be a whole number, got {gpu}", field="gpu")
    amounts = (wanted["cpu"], wanted["memory_mb"], wanted["disk_mb"], gpu)
    return Resources(*(round(amount * UNIT) for amount in amounts))

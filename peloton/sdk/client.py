"""The client: one object over one cluster, and everything one can ask of it.

    with Client("127.0.0.1:5397") as peloton:
        answer = peloton.jobs.create("/research", spec)
        ended = peloton.ops.wait(answer.jobId.value)

Wherever a call takes the id of a job, its name will do as well (`job_id`). Answers are the messages
of the contract; refusals are exceptions of `errors`, including those inside of v0 answers.
`aio.AsyncClient` has the same calls for asyncio.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Self

from peloton.ops.v1.actors_pb2 import Kind
from peloton.sdk.actors import ActorCalls, extension_kinds
from peloton.sdk.addresses import Addresses, Written, ZooKeeperAddresses, addresses_of
from peloton.sdk.calls import Blocking, Calls, M, call, make_block
from peloton.sdk.credentials import Credentials, Login, from_environment
from peloton.sdk.hosts import HostCalls
from peloton.sdk.internals import InternalCalls
from peloton.sdk.jobs import Jobs
from peloton.sdk.names import JobNaming, fill, resolved
from peloton.sdk.ops import OpsCalls
from peloton.sdk.outputs import OutputCalls
from peloton.sdk.plans import PlanCalls
from peloton.sdk.pods import PodCalls
from peloton.sdk.pools import PoolCalls
from peloton.sdk.schedules import ScheduleCalls
from peloton.sdk.services import ServiceCalls
from peloton.sdk.stateless import StatelessCalls
from peloton.sdk.tasks import TaskCalls
from peloton.sdk.transports import BlockingTransport, Transport
from peloton.sdk.updates import UpdateCalls
from peloton.sdk.volumes import VolumeCalls
from peloton.sdk.wire import SERVICES, USER, Wire
from peloton.sdk.zookeeper import DEFAULT_ZK_ROOT, LOOKUP_S_MAX, leaders

API = "127.0.0.1:5397"
API_VARIABLE = "PELOTON_API"
TIMEOUT_S = 20.0


class ClusterCalls(Calls[M]):
    """All calls, by subject. Every call has a deadline of `timeout_s`.

    Without `api` the address is the variable PELOTON_API, or else 127.0.0.1:5397. It may be several
    addresses (`a:5397,b:5397`): if one does not answer, the next one is called. `roles` sends the
    calls of single roles (`jobmgr`, `resmgr`, `hostmgr`) to addresses of their own, for clusters
    without an API server. `found` looks the addresses up instead.

    `credentials` are those of the environment (`credentials.from_environment`) if none are given;
    `login` is a user's name and password. The token of a daemon that the same user runs on this
    machine is found without either.
    """

    _transport: Transport

    def __init__(
        self,
        api: str | Sequence[str] | Addresses | None = None,
        *,
        roles: Mapping[str, str] | None = None,
        timeout_s: float = TIMEOUT_S,
        login: Login | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        if api is None:
            api = os.environ.get(API_VARIABLE) or API
        addresses = Written(api, _known(roles)) if isinstance(api, str | Sequence) else api
        known = from_environment() if credentials is None else credentials
        known = known._replace(login=login) if login is not None else known
        wire = Wire(addresses, timeout_s=timeout_s, credentials=known, transport=self._transport)
        super().__init__(wire)
        self.user = known.login.username if known.login else USER
        """Who calls: what a job says of its owner where its spec does not. Empty: nobody known."""
        self.pools: PoolCalls[M] = PoolCalls(wire)
        self.jobs: Jobs[M] = Jobs(wire, self.pools)
        self.tasks: TaskCalls[M] = TaskCalls(wire)
        self.outputs: OutputCalls[M] = OutputCalls(wire)
        self.hosts: HostCalls[M] = HostCalls(wire)
        self.ops: OpsCalls[M] = OpsCalls(wire)
        self.schedules: ScheduleCalls[M] = ScheduleCalls(wire)
        self.plans: PlanCalls[M] = PlanCalls(wire, self.pools)
        self.stateless: StatelessCalls[M] = StatelessCalls(wire, self.pools)
        self.pods: PodCalls[M] = PodCalls(wire)
        self.updates: UpdateCalls[M] = UpdateCalls(wire, self.pools)
        self.internals: InternalCalls[M] = InternalCalls(wire)
        self.services: ServiceCalls[M] = ServiceCalls(wire)
        self.volumes: VolumeCalls[M] = VolumeCalls(wire)
        self._naming = JobNaming(Jobs(wire, PoolCalls(wire)), self.user)
        wire.job_id = partial(resolved, self._naming)
        wire.fill = partial(fill, self._naming)
        if self._transport.blocks:
            make_block(self)

    @classmethod
    def found(
        cls,
        zookeeper: str | Sequence[str],
        *,
        root: str = DEFAULT_ZK_ROOT,
        roles: Mapping[str, str] | None = None,
        timeout_s: float = TIMEOUT_S,
        credentials: Credentials | None = None,
    ) -> Self:
        """Return a client of the daemons that are leaders in ZooKeeper at the time of each call."""
        servers, lookup_s = addresses_of(zookeeper), min(timeout_s, LOOKUP_S_MAX)
        addresses = ZooKeeperAddresses(
            lambda: leaders(servers, root=root, timeout_s=lookup_s), roles=_known(roles)
        )
        return cls(addresses, timeout_s=timeout_s, credentials=credentials)

    @call
    async def addresses(self) -> tuple[str, ...]:
        """Return the addresses of the API, the best first. Raises ServiceUnavailable."""
        return await self._wire.addresses("api")

    @call
    async def job_id(
        self,
        typed: str,
        *,
        changes: bool = False,
        latest: bool = False,
        note: Callable[[str], object] = lambda text: None,
    ) -> str:
        """Return the id of the job with this name, or `NAME~K`, or beginning of the id.

        If several have the name, the newest of the caller's own that is active, or the newest; it
        raises AmbiguousName for a call that `changes` something, unless `latest`. `note` is told
        which one it is.
        """
        naming = self._naming._replace(note=note)
        return await resolved(naming, typed, changes=changes, latest=latest)

    def actors(self, kind: str) -> ActorCalls[M]:
        """Return the calls on the actors of an extension's kind."""
        found: ActorCalls[M] = ActorCalls(self._wire, kind)
        if self._transport.blocks:
            make_block(found)
        return found

    @call
    async def kinds(self) -> list[Kind]:
        """Return the kinds of extensions that the cluster serves."""
        return await extension_kinds(self._wire)

    def on_warning(self, warned: Callable[[str], None]) -> None:
        """Call `warned` with each warning of the cluster, such as of a job that its pool can never
        admit.

        Without it a warning is an `errors.PelotonWarning` of Python's `warnings`.
        """
        self._wire.warned = warned

    @call
    async def close(self) -> None:
        """Close all connections. Calls that are under way end with an error."""
        await self._wire.close()


class Client(ClusterCalls[Blocking]):
    """A client whose calls return their results, safe to share between threads."""

    _transport = BlockingTransport()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _known(roles: Mapping[str, str] | None) -> Mapping[str, str]:
    strangers = sorted(set(roles or {}) - set(SERVICES))
    if strangers:
        raise ValueError(f"no such role: {', '.join(strangers)}")
    return roles or {}

"""The client: one object over one cluster, and everything one can ask of it.

    with Client("127.0.0.1:5397") as peloton:
        answer = peloton.jobs.create("/research", spec)
        ended = peloton.ops.wait(answer.jobId.value)

Wherever a call takes the id of a job, its name will do as well (`job_id`). Answers are the messages
of the contract; refusals are exceptions of `errors`, including those inside of v0 answers.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any

from peloton.ops.v1.actors_pb2 import Kind
from peloton.sdk.actors import ActorCalls, extension_kinds
from peloton.sdk.addresses import Addresses, Written, ZooKeeperAddresses, addresses_of
from peloton.sdk.credentials import ClientTlsFiles, Credentials, Login, from_environment
from peloton.sdk.hosts import HostCalls
from peloton.sdk.internals import InternalCalls
from peloton.sdk.jobs import JobQuery, Jobs
from peloton.sdk.names import JobNaming, fill, resolved
from peloton.sdk.ops import OpsCalls, WaitResult
from peloton.sdk.outputs import OutputCalls
from peloton.sdk.plans import PlanCalls
from peloton.sdk.pods import PodCalls
from peloton.sdk.pools import PoolCalls
from peloton.sdk.schedules import ScheduleCalls
from peloton.sdk.services import ServiceCalls
from peloton.sdk.stateless import BatchOptions, StatelessCalls
from peloton.sdk.tasks import TaskCalls, TaskQuery
from peloton.sdk.updates import UpdateCalls
from peloton.sdk.volumes import VolumeCalls
from peloton.sdk.wire import SERVICES, USER, Wire
from peloton.sdk.zookeeper import DEFAULT_ZK_ROOT, LOOKUP_S_MAX, leaders

__all__ = [
    "Client", "ClientTlsFiles", "Credentials", "JobQuery", "Login", "BatchOptions", "TaskQuery",
    "WaitResult",
]  # fmt: skip

API = "127.0.0.1:5397"
API_VARIABLE = "PELOTON_API"
TIMEOUT_S = 20.0


class Client:
    """A sync client, safe to share between threads. Every call has a deadline of `timeout_s`.

    Without `api` the address is the variable PELOTON_API, or else 127.0.0.1:5397. It may be several
    addresses (`a:5397,b:5397`): if one does not answer, the next one is called. `roles` sends the
    calls of single roles (`jobmgr`, `resmgr`, `hostmgr`) to addresses of their own, for clusters
    without an API server. `Client.found` looks the addresses up instead.

    `credentials` are those of the environment (`credentials.from_environment`) if none are given;
    `login` is a user's name and password. The token of a daemon that the same user runs on this
    machine is found without either.
    """

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
        self._wire = Wire(addresses, timeout_s=timeout_s, credentials=known)
        self._wire.fill = self._fill
        self._wire.job_id = lambda typed, changes: self.job_id(typed, changes=changes)
        self.user = known.login.username if known.login else USER
        """Who calls: what a job says of its owner where its spec does not. Empty: nobody known."""
        self.pools = PoolCalls(self._wire)
        self.jobs = Jobs(self._wire, self.pools)
        self.tasks = TaskCalls(self._wire)
        self.outputs = OutputCalls(self._wire)
        self.hosts = HostCalls(self._wire)
        self.ops = OpsCalls(self._wire)
        self.schedules = ScheduleCalls(self._wire)
        self.plans = PlanCalls(self._wire, self.pools)
        self.stateless = StatelessCalls(self._wire, self.pools)
        self.pods = PodCalls(self._wire)
        self.updates = UpdateCalls(self._wire, self.pools)
        self.internals = InternalCalls(self._wire)
        self.services = ServiceCalls(self._wire)
        self.volumes = VolumeCalls(self._wire)

    @classmethod
    def found(
        cls,
        zookeeper: str | Sequence[str],
        *,
        root: str = DEFAULT_ZK_ROOT,
        roles: Mapping[str, str] | None = None,
        timeout_s: float = TIMEOUT_S,
        credentials: Credentials | None = None,
    ) -> Client:
        """Return a client of the daemons that are leaders in ZooKeeper at the time of each call."""
        servers, lookup_s = addresses_of(zookeeper), min(timeout_s, LOOKUP_S_MAX)
        addresses = ZooKeeperAddresses(
            lambda: leaders(servers, root=root, timeout_s=lookup_s), roles=_known(roles)
        )
        return cls(addresses, timeout_s=timeout_s, credentials=credentials)

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def job_id(
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
        return resolved(
            JobNaming(self.jobs, self.user, note), typed, changes=changes, latest=latest
        )

    def _fill(self, request: Any, changes: bool) -> None:
        fill(request, lambda typed: self.job_id(typed, changes=changes))

    def actors(self, kind: str) -> ActorCalls:
        """Return the calls on the actors of an extension's kind."""
        return ActorCalls(self._wire, kind)

    def kinds(self) -> list[Kind]:
        """Return the kinds of extensions that the cluster serves."""
        return extension_kinds(self._wire)

    def on_warning(self, warned: Callable[[str], None]) -> None:
        """Call `warned` with each warning of the cluster, such as of a job that its pool can never
        admit.

        Without it a warning is an `errors.PelotonWarning` of Python's `warnings`.
        """
        self._wire.warned = warned

    def close(self) -> None:
        self._wire.close()


def _known(roles: Mapping[str, str] | None) -> Mapping[str, str]:
    strangers = sorted(set(roles or {}) - set(SERVICES))
    if strangers:
        raise ValueError(f"no such role: {', '.join(strangers)}")
    return roles or {}

"""The client: one object over one cluster, and everything one can ask of it.

    with Client("127.0.0.1:5397") as peloton:
        answer = peloton.jobs.create("/research", spec)
        ended = peloton.ops.wait(answer.jobId.value)

Answers are the messages of the contract; refusals are exceptions of `errors`, those too that v0
answers carry inside. Must not hold state of its own: two clients see the same cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType

from peloton.sdk.jobs import JobQuery, Jobs
from peloton.sdk.ops import Ended, Ops
from peloton.sdk.pools import Pools
from peloton.sdk.tasks import TaskQuery, Tasks
from peloton.sdk.wire import Login, Wire

__all__ = ["Client", "Ended", "JobQuery", "Login", "TaskQuery"]

API = "127.0.0.1:5397"
TIMEOUT_S = 20.0


class Client:
    """A sync client, safe to share between threads. Every call has a deadline of `timeout_s`.

    `roles` sends the calls of single roles (`jobmgr`, `resmgr`, `hostmgr`) to addresses of their
    own, for clusters without an API server.
    """

    def __init__(
        self,
        api: str = API,
        *,
        roles: Mapping[str, str] | None = None,
        timeout_s: float = TIMEOUT_S,
        login: Login | None = None,
    ) -> None:
        self._wire = Wire(api, roles=roles, timeout_s=timeout_s, login=login)
        self.pools = Pools(self._wire)
        self.jobs = Jobs(self._wire, self.pools)
        self.tasks = Tasks(self._wire)
        self.ops = Ops(self._wire)

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._wire.close()

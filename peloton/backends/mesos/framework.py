"""The identity of the framework at the master of one cluster."""

from __future__ import annotations

import ssl
from typing import Any, NamedTuple

from peloton.backends.mesos.runs.keeper_tasks import KeeperProgram

CAPABILITIES = ("PARTITION_AWARE", "TASK_KILLING_STATE", "MULTI_ROLE", "RESERVATION_REFINEMENT")


class Framework(NamedTuple):
    """The identity of the framework, and the master's address: `host:port`, or `zk://…`."""

    cluster: str
    master: str
    framework_id: str
    role: str = "peloton"
    user: str = "root"
    principal: str = ""
    secret: str = ""
    tls: ssl.SSLContext | None = None
    revocable: bool = False
    keeper: KeeperProgram | None = None
    failover_timeout_s: float = 7 * 86_400.0

    @property
    def info(self) -> dict[str, Any]:
        """The framework's info for the master."""
        names = (*CAPABILITIES, *(("REVOCABLE_RESOURCES",) if self.revocable else ()))
        found: dict[str, Any] = {
            "user": self.user,
            "name": "peloton",
            "id": {"value": self.framework_id},
            "roles": [self.role],
            "checkpoint": True,
            "failover_timeout": self.failover_timeout_s,
            "capabilities": [{"type": name} for name in names],
        }
        return {**found, "principal": self.principal} if self.principal else found

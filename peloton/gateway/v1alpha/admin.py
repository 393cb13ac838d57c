"""AdminService of v1alpha: lockdowns of the whole cluster.

Components become an order for the lockdown, which is answered once this daemon obeys it.
"""

from __future__ import annotations

from typing import Any

from peloton.actors.lockdown.messages import LOCKDOWN, LocksSet, SetLocks
from peloton.api.v1alpha.admin.svc import admin_svc_pb2 as svc
from peloton.gateway.access.lockdowns import FollowedLocks
from peloton.gateway.cluster.cluster_client import ClusterClient, Code, Context, end
from peloton.gateway.cluster.requests import request_of
from peloton.runtime.vocabulary import Refused

OBEYED_S_MAX = 5.0
NOT_OBEYED = "it is recorded, but this daemon does not obey it yet: repeat the call"


class AdminService:
    """The calls of the service; one method for each, named as on the wire."""

    def __init__(self, cluster_client: ClusterClient, locks: FollowedLocks) -> None:
        self._cluster_client, self._locks = cluster_client, locks

    def Lockdown(self, sent: svc.LockdownRequest, context: Context) -> Any:
        """Stop these components."""
        found = svc.LockdownResponse()
        self._order(sent, context, locked=True, found=found)
        return found

    def RemoveLockdown(self, sent: svc.RemoveLockdownRequest, context: Context) -> Any:
        """Let these components go on."""
        found = svc.RemoveLockdownResponse()
        self._order(sent, context, locked=False, found=found)
        return found

    def _order(self, sent: Any, context: Context, *, locked: bool, found: Any) -> None:
        names = svc.Component.DESCRIPTOR.values_by_number
        for at, number in enumerate(sent.components):
            if number not in names:
                text = f"unknown component {number}"
                end(context, Code.INVALID_ARGUMENT, text=text, field=f"components[{at}]")
        numbers = [*dict.fromkeys(sent.components)]
        failure = self._set(
            sent, [names[number].name for number in numbers], locked=locked, context=context
        )
        for number in numbers:
            if failure:
                found.failures.add(component=number, FailureMessage=failure)
            else:
                found.successes.append(number)

    def _set(self, sent: Any, components: list[str], *, locked: bool, context: Context) -> str:
        """Return why none of these could be set; "" if all are."""
        if not components:
            return ""
        order = SetLocks(tuple(components), locked)
        request = request_of(sent, context)
        answer = self._cluster_client.ask(LOCKDOWN, order, context=context, request=request)
        if isinstance(answer, Refused):
            return answer.text
        assert isinstance(answer, LocksSet), answer
        obeyed = self._locks.reached(answer.version, within_s=OBEYED_S_MAX)
        return "" if obeyed else NOT_OBEYED

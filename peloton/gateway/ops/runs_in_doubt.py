"""Runs of which nothing is known for now: their hosts are out of reach, or lost.

A task has only the last state that it was told. Views of instances and of troubled hosts give a
reason that says so. What becomes of the runs is not predicted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property

from peloton.actors.host.inventory.messages import OUT_OF_REACH, HostView
from peloton.actors.job.slice.messages import InstanceView
from peloton.gateway.translate.reasons import Reason
from peloton.gateway.translate.texts import client_name
from peloton.runtime.vocabulary import Key

UNREACHABLE = "host-unreachable"
AS_FAR_AS_KNOWN = {
    "RUNNING": "runs as far as is known",
    "LAUNCHED": "is being launched",
    "STARTING": "is starting as far as is known",
    "KILLING": "is being stopped",
    "PREEMPTING": "is being stopped",
}
"""What is believed of an instance, by the states in which a host has a run of it."""


class RunsInDoubt:
    """The runs in doubt of one answer.

    `hosts` returns the troubled hosts of the cluster, and is called only if anything runs. `named`:
    the caller may see hosts.
    """

    def __init__(self, hosts: Callable[[], Iterable[HostView]], *, named: bool) -> None:
        self._named, self._asked = named, hosts

    @cached_property
    def _hosts(self) -> Mapping[Key, HostView]:
        return {view.summary.host: view for view in self._asked() if view.state in OUT_OF_REACH}

    def reasons(self, views: Iterable[InstanceView], *, alone: bool) -> dict[int, Reason]:
        """Return a reason for each instance of whose run nothing is known; `alone` adds its
        host."""
        found = ((view.instance, self._reason(view, alone=alone)) for view in views)
        return {instance: reason for instance, reason in found if reason is not None}

    def _reason(self, view: InstanceView, *, alone: bool) -> Reason | None:
        host = self._hosts.get(Key(view.host)) if view.state in AS_FAR_AS_KNOWN else None
        if host is None:
            return None
        name = f" {client_name(host.summary.host)}" if alone or self._named else ""
        why = f": {host.because}" if host.because and self._named else ""
        text = f"{AS_FAR_AS_KNOWN[view.state]}, but its host{name} is {host.state.name}{why}"
        return Reason(UNREACHABLE, text)

"""A host as others read it: its state, and the line of one that waits for a person."""

from __future__ import annotations

from peloton.actors.host.inventory.messages import HostView
from peloton.actors.host.messages import GetHost
from peloton.actors.host.stages import HostStates
from peloton.actors.host.state import Host
from peloton.runtime.vocabulary import At, Key


def waiting(key: Key, host: Host) -> HostView | None:
    """Return a host that stays reconciling until a person acts, with the reason; None for any
    other.

    Only these have a summary: of a million hosts that are well nothing is kept.
    """
    if host.removed or host.state != HostStates.RECONCILING or not host.because:
        return None
    return HostView(host.summary(key, tasks=False), host.state, len(host.runs), host.because)


def get_host(host: Host, query: GetHost, at: At) -> Host:
    """Return the state itself: its encoding is permanent as that of an answer has to be."""
    return host

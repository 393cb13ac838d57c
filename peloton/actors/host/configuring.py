"""How a host decides what it is: its configuration, and which backend it belongs to.

While the host holds runs its backend must not change. What goes wrong otherwise:

1. the process backend runs R on this host; its daemon is started again with the simulated one
2. the simulated backend gets R in the list of known runs, adopts it, and ends it by its seed
3. R counts as succeeded, its resources are granted again, and its process still runs

For the same reason a report of another backend than the host's own is ignored.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from peloton.actors.host import facts as f
from peloton.actors.host import messages as m
from peloton.actors.host.folds import folded
from peloton.actors.host.inventory.messages import (
    HostPoolChanged,
    HostPoolSeen,
)
from peloton.actors.host.moving import arrived
from peloton.actors.host.orders import list_runs
from peloton.actors.host.stages import HostStates
from peloton.actors.host.state import Host, configuration, occupying_runs
from peloton.runtime.vocabulary import (
    SENDER,
    At,
    Decision,
    Fact,
    Key,
    Refused,
    Send,
    kind_of,
)


def configure(host: Host, message: m.ConfigureHost, at: At) -> Decision:
    """Set what the machine has; an unchanged configuration does nothing."""
    fact = _configured(message)
    if host.removed:
        return Decision(facts=(fact,), because="added to the cluster again")
    if fact == configuration(host):
        return Decision()
    if _must_keep_backend(host, message.backend):
        return _other_backend(host, message.backend, at)
    return Decision(facts=(fact,), because="configuration changed")


def appear(message: m.ConfigureHost, at: At) -> Decision:
    """Begin to exist; the host is up once its ledger was compared with its backend."""
    return Decision(facts=(_configured(message),), because="configured")


def host_appeared(host: Host, message: m.HostAppeared, at: At) -> Decision:
    """Request the list of runs of a machine that is present.

    A repeat is answered, and changes nothing.
    """
    if _must_keep_backend(host, message.backend):
        return _other_backend(host, message.backend, at)
    facts: tuple[Fact, ...] = ()
    configured = f.HostConfigured(
        message.capacity,
        message.labels,
        message.backend,
        message.ports,
        host.unreachable_timeout_s,
    )
    if host.removed or configured != configuration(host):
        facts = (configured,)
    if host.state in (HostStates.UNREACHABLE, HostStates.LOST):
        facts = (*facts, f.HostReachable(at=at.now))
    sends = (list_runs(folded(host, facts), at),)
    return Decision(facts=facts, sends=sends, because="the host is present")


def new_host_appeared(message: m.HostAppeared, at: At) -> Decision:
    """Make a host of a machine that was not configured.

    It is up once its runs were compared.
    """
    configured = f.HostConfigured(
        message.capacity, message.labels, message.backend, message.ports, m.UNREACHABLE_TIMEOUT_S
    )
    request = Send(message.backend, m.ListRuns(at.key, at.epoch, at.now))
    reached = f.HostReachable(at=at.now)
    return Decision((configured, reached), (request,), because="the host appeared")


def set_pool(host: Host, message: m.SetHostPool, at: At) -> Decision:
    """Join another host pool; runs that are here stay.

    The operator's client may repeat its order to the first inventory here, to wait for it.
    """
    sends = _pool_seen(message, at)
    reply = HostPoolChanged(message.version)
    if message.version <= host.pool_version:
        back = arrived(host, host.pool)
        return Decision(facts=back, sends=sends, reply=reply, because="the order is known")
    facts = (f.HostPoolSet(message.pool, message.version), *arrived(host, message.pool))
    return Decision(facts=facts, sends=sends, reply=reply, because="another pool of hosts")


def no_host_for_pool(message: m.SetHostPool, at: At) -> Decision:
    """Answer an order to a host that does not exist."""
    reply = HostPoolChanged(message.version)
    return Decision(sends=_pool_seen(message, at), reply=reply, because="no such host")


def _pool_seen(message: m.SetHostPool, at: At) -> tuple[Send, ...]:
    return (Send(SENDER, HostPoolSeen(message.version)),) if at.sender is not None else ()


def from_backend(
    decide: Callable[[Host, Any, At], Decision],
) -> Callable[[Host, Any, At], Decision]:
    """Wrap a decision so that reports of another backend than the host's own are ignored.

    The sender of a report is its backend.
    """

    def checked(host: Host, message: Any, at: At) -> Decision:
        sender = at.sender if at.sender != host.backend else None
        if sender is not None and kind_of(sender) in ("backend", "engine"):
            return Decision(because=f"a report of {sender}; the backend is {host.backend}")
        return decide(host, message, at)

    return checked


def _configured(message: m.ConfigureHost) -> f.HostConfigured:
    return f.HostConfigured(
        message.capacity,
        message.labels,
        message.backend,
        message.ports,
        message.unreachable_timeout_s,
    )


def _must_keep_backend(host: Host, backend: Key) -> bool:
    return backend != host.backend and bool(occupying_runs(host))


def _other_backend(host: Host, backend: Key, at: At) -> Decision:
    """Become reconciling: nothing is launched, lost or killed until the own backend has answered.

    Like a host that meets another keeper it stays so without a deadline: only a person can know
    whether the own backend comes back.
    """
    name = at.key.partition("/")[2]
    text = (
        f"a daemon brings {backend} for this host, which holds runs of {host.backend}. Start the "
        f"daemon with {host.backend} until they are over (stop or delete their jobs there); or "
        f"give them up with `peloton host forget {name} --lose-runs`, and restart the daemon"
    )
    refused = Refused(m.HAS_RUNS, text, again=True)
    if host.state == HostStates.RECONCILING and host.because == text:
        return Decision(reply=refused, because=text)
    return Decision(facts=(f.HostReachable(text),), reply=refused, because=text)

"""How the backend of a host learns whether the host is in use.

The wanted use is journaled with the step of a maintenance that changes it, and the order leaves
with it. The order is repeated with each poll of the backend, until it is answered and as long as
the host is not in use: so the backend compares after each outage. A host that changes its pool
drains as well, but stays in use: nobody is to touch its machine.
"""

from __future__ import annotations

from peloton.actors.host import facts as f
from peloton.actors.host.machine_messages import HostUse, SetUse, UseSet
from peloton.actors.host.stages import HostStates, Maintenance
from peloton.actors.host.state import Host
from peloton.runtime.vocabulary import At, Decision, Fact, Send

_OF = {
    Maintenance.NONE: HostUse.IN_USE,
    Maintenance.DRAINING: HostUse.DRAINING,
    Maintenance.DRAINED: HostUse.OUT_OF_USE,
    Maintenance.DOWN: HostUse.OUT_OF_USE,
}


def use_changed(
    host: Host, phase: Maintenance, at: At
) -> tuple[tuple[Fact, ...], tuple[Send, ...]]:
    """Return the facts and orders as the host enters this phase of a maintenance."""
    use = _OF[phase]
    if host.use.wanted == use:
        return (), ()
    order = SetUse(at.key, at.epoch, use, host.use.number + 1)
    return (f.UseWanted(use),), (Send(host.backend, order),)


def awaits_backend(host: Host) -> bool:
    """Return whether the host is not down before its backend has answered.

    A lost machine cannot be put out of use, so its backend is not waited for.
    """
    return host.use.open and host.state == HostStates.UP


def use_again(host: Host, at: At) -> tuple[Send, ...]:
    """Return the order once more, if the backend has not answered, or has to compare."""
    use = host.use
    if not use.open and use.wanted == HostUse.IN_USE:
        return ()
    return (Send(host.backend, SetUse(at.key, at.epoch, use.wanted, use.number)),)


def use_set(host: Host, message: UseSet, at: At) -> Decision:
    """Record the backend's answer, unless it is about an earlier use."""
    use = host.use
    known = (use.told, use.text) == (message.number, message.text)
    if message.number != use.number or known:
        return Decision(because="known already" if known else "the answer to an earlier order")
    because = message.text or "the backend knows of its use"
    return Decision(facts=(f.UseTold(message.number, message.text),), because=because)

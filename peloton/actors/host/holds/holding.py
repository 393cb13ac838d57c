"""How a host is held for a client: all that its runs leave free, for a time.

While there is a hold nothing is granted to tasks, and what runs leave is added to it. It ends by
its holder's order, by its first launch, by its time, and when the host is no longer ready for work.
"""

from __future__ import annotations

from peloton.actors.host import facts as f
from peloton.actors.host.folds import folded
from peloton.actors.host.holds import hold_messages as hm
from peloton.actors.host.holds.task_holds import alive
from peloton.actors.host.maintenance import no_host
from peloton.actors.host.state import Host
from peloton.placement.filters import SUITS, suits
from peloton.runtime.vocabulary import At, Decision, Fact, Refused

RELEASED, EXPIRED = "released", "expired"


def hold(host: Host, message: hm.HoldHost, at: At) -> Decision:
    """Hold the host for a client that it suits."""
    if host.removed:
        return no_host(message, at)
    # One whose time is over is no obstacle: its deadline may come behind this message.
    ended: tuple[Fact, ...] = ()
    if host.hold is not None and hm.is_over(host.hold, at.now):
        ended = expired(host.hold).facts
        host = folded(host, ended)
    if host.hold is not None and host.hold.name == message.name:
        return Decision(reply=_answer(host, host.hold, at), because="held already")
    summary = host.summary(at.key)
    ready = host.grants and host.hold is None and _awaited(host, message, at)
    room, ports = host.unused, host.free_ports
    result = suits(summary, message.want, ready=ready, room=room, ports=ports)
    if result != SUITS:
        text = f"{at.key.partition('/')[2]} does not suit: {result}"
        return Decision(reply=Refused(result, text, again=True), because=text)
    until = at.now + message.seconds
    taken = hm.HostHold(message.name, message.holder, host.unused, until, message.seconds)
    facts = (*ended, f.HoldTaken(taken))
    return Decision(facts=facts, reply=_answer(host, taken, at), because="held")


def _awaited(host: Host, message: hm.HoldHost, at: At) -> bool:
    """Return whether no task has a right to the host, or the client comes for one that has."""
    names = [one.task for one in alive(host, at.now)]
    return not names or hm.comes_for(message.hint, names)


def _answer(host: Host, taken: hm.HostHold, at: At) -> hm.HostHeld:
    return hm.HostHeld(taken.name, host.unused, taken.until, host.summary(at.key))


def release(host: Host, message: hm.ReleaseHold, at: At) -> Decision:
    """End the hold; without such a hold there is nothing to do."""
    if host.hold is None or host.hold.name != message.name:
        return Decision(reply=hm.HoldReleased(known=False), because="no such hold")
    return Decision(facts=(f.HoldEnded(message.name, RELEASED),), reply=hm.HoldReleased(known=True))


def not_held(message: hm.ReleaseHold, at: At) -> Decision:
    """Answer a release at a host that does not exist: nothing is held."""
    return Decision(reply=hm.HoldReleased(known=False), because="no such host")


def end_hold(host: Host, at: At) -> Decision | None:
    """End the hold, once its time is over."""
    taken = host.hold
    return expired(taken) if taken is not None and hm.is_over(taken, at.now) else None


def expired(taken: hm.HostHold) -> Decision:
    """End a hold that was neither used nor released in time."""
    return Decision(facts=(f.HoldEnded(taken.name, EXPIRED),), because="the hold expired")


def hold_deadline(taken: hm.HostHold) -> tuple[str, float]:
    """Return the deadline of a hold. Each hold has its own name, so that its time begins anew."""
    return f"hold {taken.name}", taken.seconds

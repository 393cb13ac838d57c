"""Runs that clients launch on their holds: in the ledger as any other, but of no task.

Only followers of the host are told of their starts and ends, and an end takes them out of the
ledger. Nothing may start without a hold: a late repeat of a launch would start what has ended. A
hold is used up by its first launch: a repeat is refused, as in the original.
"""

from __future__ import annotations

from peloton.actors.host import facts as f
from peloton.actors.host import messages as m
from peloton.actors.host.devices import (
    NO_DEVICE,
    Devices,
    devices_told,
    devices_wanted,
    free_devices,
    with_devices,
)
from peloton.actors.host.granting import NO_PORT
from peloton.actors.host.holds import hold_messages as hm
from peloton.actors.host.holds.foreign_names import foreign_crowd, foreign_number, held_task
from peloton.actors.host.holds.task_holds import TASK_LAUNCHED, alive, ended_holds, room_beside
from peloton.actors.host.ledger import NO_SETS, RunEvent, RunStep, names_of, pick_ports, step
from peloton.actors.host.maintenance import no_host
from peloton.actors.host.orders import start_order, stop_order
from peloton.actors.host.state import Host, ports_given
from peloton.actors.resources import Resources
from peloton.runtime.vocabulary import At, Bits, Decision, Fact, Refused

LAUNCHED = "launched"
_ONE = Bits.of(0)


def launch_foreign(host: Host, message: hm.LaunchForeign, at: At) -> Decision:
    """Start all of these runs on the room that is held, or none."""
    if host.removed:
        return no_host(message, at)
    if host.hold is None or host.hold.name != message.hold:
        text = f"host offer {message.hold} is not held, or was used already"
        return Decision(reply=Refused(hm.NO_HOLD, text), because=text)
    if hm.is_over(host.hold, at.now):  # its deadline comes behind this
        text = f"host offer {message.hold} has expired"
        return Decision(reply=Refused(hm.NO_HOLD, text), because=text)
    problem = _problem(host, message, at)
    if problem:
        return _cannot(problem)
    taken = ports_given(host)
    free = free_devices(host)
    run, facts, starts = foreign_number(message.hold), list[Fact](), list[m.StartRun]()
    facts.append(f.HoldEnded(message.hold, LAUNCHED))
    came = {held_task(each.task) for each in message.runs}
    names = (one.task for one in host.task_holds if one.task in came)
    facts += ended_holds(names, TASK_LAUNCHED)
    for each in message.runs:
        crowd, spec = foreign_crowd(each.task), each.spec
        ports = pick_ports(spec.ports, taken, span=host.ports) if spec.ports else ()
        if len(ports) < len(spec.ports):
            return _cannot(f"{each.task}: {NO_PORT}, or one is taken")
        (name,) = names_of(crowd, _ONE.raw, run=run)
        own, told = _devices(host, each.spec.resources, free=free)
        if own is None:
            return _cannot(f"{each.task}: {NO_DEVICE}")
        accepted = f.RunsAccepted(crowd, _ONE, run, spec, at.now, (ports,) if ports else ())
        facts.append(accepted)
        facts += [f.DevicesGiven(crowd, _ONE, run, own)] if own else []
        starts.append(m.StartRun(name, spec, ports, told))
    reply = hm.ForeignLaunched(tuple(each.run for each in starts))
    sends = start_order(host, tuple(starts), at)
    return Decision(facts=tuple(facts), sends=sends, reply=reply, because="launched on a hold")


def _devices(
    host: Host, need: Resources, *, free: list[int]
) -> tuple[Devices | None, tuple[int, ...] | None]:
    """Return the devices of one run, as journaled (None: there are not enough) and as the
    backend is told."""
    if not devices_wanted(need):
        return (), devices_told(host, need)
    some, devices = with_devices(free, _ONE, need=need)
    return (devices, devices[0]) if some else (None, None)


def _problem(host: Host, message: hm.LaunchForeign, at: At) -> str:
    """Return why these runs cannot be launched, ports not considered; empty if nothing is wrong."""
    if not host.grants:
        return "the host is not ready"
    tasks: dict[str, None] = {}
    for each in message.runs:
        if each.task in tasks or host.runs.grouped.get(foreign_crowd(each.task)):
            return f"{each.task} is on the host already"
        tasks[each.task] = None
    need = sum((each.spec.resources for each in message.runs), Resources())
    came = {held_task(task) for task in tasks}
    room = room_beside(host, (one for one in alive(host, at.now) if one.task not in came))
    if not need.within(room):
        return f"insufficient resources on the host: {', '.join(need.short_of(room))}"
    return ""


def _cannot(text: str) -> Decision:
    return Decision(reply=Refused(hm.CANNOT_LAUNCH, text, again=True), because=text)


def kill_foreign(host: Host, message: hm.KillForeign, at: At) -> Decision:
    """End the runs on this host that have these ids."""
    known, orders, stops = list[str](), list[str](), list[str]()
    for task in dict.fromkeys(message.tasks):
        crowd = foreign_crowd(task)
        for some in host.runs.grouped.get(crowd, NO_SETS):
            known.append(task)
            names = names_of(crowd, some.members.raw, run=some.run)
            stops += names
            orders += names if step(some, RunEvent.KILL) == RunStep.KILL else []
    return Decision(
        facts=(f.KillOrdered(tuple(orders)),) if orders else (),
        sends=stop_order(host, stops, at, grace_s=message.grace_s),
        reply=hm.ForeignKilled(tuple(known)),
    )


def none_there(message: hm.KillForeign, at: At) -> Decision:
    """Answer a kill at a host that does not exist: no run has been found."""
    return Decision(reply=hm.ForeignKilled(()), because="no such host")

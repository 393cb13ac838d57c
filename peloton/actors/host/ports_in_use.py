"""Ports of the machine that other programs use, and what becomes of runs that were given one.

A host cannot bind a port: its backend tries before it starts a run, and reports the ports that are
in use. These are not given any more, and the runs that could not start get others; they keep their
number, as no attempt was made. A run whose ports are fixed, or for which none is left, is refused,
so that its task looks for another host. A run that has started keeps its ports.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from peloton.actors.host import facts as f
from peloton.actors.host.ends import all_ended, end_reports, ended_facts
from peloton.actors.host.folds import folded
from peloton.actors.host.granting import NO_PORT
from peloton.actors.host.holds.foreign_names import is_foreign
from peloton.actors.host.ledger import Found, RunSet, pick_ports
from peloton.actors.host.machine_messages import PortsInUse
from peloton.actors.host.orders import start_order, starts_of
from peloton.actors.host.run_spec import RunSpec
from peloton.actors.host.stages import RunPhase
from peloton.actors.host.state import Host, lost_outcome, ports_given
from peloton.actors.task.messages import RunRefused
from peloton.runtime.vocabulary import At, Bits, Decision, Fact, Key, Send

IN_USE = "is in use on the machine by another program"
_BEGUN = (RunPhase.STARTED, RunPhase.KILLING)


def ports_in_use(host: Host, message: PortsInUse, at: At) -> Decision:
    """Record the ports, and give other ports to the runs that were ordered with one of them."""
    others = _of_others(host, message.ports)
    facts: list[Fact] = [f.PortsNoted(others)] if others != host.ports_in_use else []
    there = replace(host, ports_in_use=others)
    taken = ports_given(there)
    starts, over = list[tuple[Key, RunSet]](), list[tuple[Key, RunSet]]()
    refused: dict[tuple[Key, int, str], int] = {}
    for found in _not_begun(host, message):
        spec, alone = found.of.spec, replace(found.of, members=Bits.of(found.member))
        assert spec is not None
        taken.difference_update(set(found.of.ports) - set(message.ports))
        ports = pick_ports(spec.ports, taken, span=host.ports)
        if not ports:
            taken.update(found.of.ports)
            if is_foreign(found.crowd):  # there is no task that could look for another host
                over.append((found.crowd, alone))
                continue
            why = (found.crowd, found.of.run, _reason(spec, message.ports))
            refused[why] = refused.get(why, 0) | 1 << found.member
            continue
        facts.append(f.PortsGiven(found.crowd, Bits.of(found.member), found.of.run, ports))
        starts.append((found.crowd, replace(alone, ports=ports)))
    facts += [
        f.PreparedReleased(who, Bits(raw), run, why) for (who, run, why), raw in refused.items()
    ]
    ends = all_ended(over, lost_outcome("a port of the run " + IN_USE))
    facts += ended_facts(ends)
    summary = folded(host, facts).summary(at.key) if refused else None
    sends = [
        Send(crowd, RunRefused(run, why, summary), Bits(raw))
        for (crowd, run, why), raw in refused.items()
    ]
    orders = start_order(host, starts_of(host, starts), at)
    because = "others use ports of the machine" if message.ports else "no port is used by others"
    return Decision((*facts,), (*sends, *end_reports(ends), *orders), because=because)


def _of_others(host: Host, used: tuple[int, ...]) -> tuple[int, ...]:
    """Return the ports that no run of this host has bound.

    Of the ports of runs that it did not start itself, a backend knows only that they are in use.
    """
    if not used:
        return used
    begun = (one for _, one in host.runs.sets() if one.phase in _BEGUN)
    ours = {port for one in begun for port in one.ports}
    return tuple(port for port in used if port not in ours)


def _not_begun(host: Host, message: PortsInUse) -> Iterator[Found]:
    """Yield the runs that are to start with one of the ports, as far as the host knows."""
    used = set(message.ports)
    for name in dict.fromkeys(message.runs):
        found = host.runs.find(name)
        if found is None or found.of.phase != RunPhase.ACCEPTED:
            continue
        if not used.isdisjoint(found.of.ports):  # else it has others by now
            yield found


def _reason(spec: RunSpec, used: tuple[int, ...]) -> str:
    fixed = [port.number for port in spec.ports if port.number in used]
    return f"port {fixed[0]} {IN_USE}" if fixed else NO_PORT

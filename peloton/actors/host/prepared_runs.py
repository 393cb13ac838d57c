"""Prepared runs: their room is granted, and nothing is started before their tasks confirm.

Members of a gang are launched so: each host grants or refuses as for any other launch, and counts
what it granted in its ledger. The tasks then confirm, and the runs are started, or they cancel.
There is no timeout: the host repeats that the room is granted, which asks the tasks, and gives it
to others only when they cancel. A host that goes down for maintenance refuses them.
"""

from __future__ import annotations

from peloton.actors.host import facts as f
from peloton.actors.host.ledger import RunSet
from peloton.actors.host.messages import Launch
from peloton.actors.host.stages import RunPhase
from peloton.actors.host.state import Host
from peloton.actors.task.messages import Prepared, RunRefused
from peloton.runtime.vocabulary import SENDER, At, Bits, Fact, Key, Send


def prepared(host: Host) -> list[tuple[Key, RunSet]]:
    """Return the prepared runs, with their crowds."""
    return [(crowd, one) for crowd, one in host.runs.sets() if one.phase == RunPhase.PREPARED]


def asked_again(host: Host) -> tuple[Send, ...]:
    """Return the messages that ask tasks whether they still want their prepared runs."""
    return tuple(Send(crowd, Prepared(some.run), some.members) for crowd, some in prepared(host))


def prepared_now(
    message: Launch, members: Bits, *, at: At, ports: tuple[tuple[int, ...], ...]
) -> tuple[f.RunsAccepted, Send]:
    """These members are granted: the fact, and the answer to their tasks."""
    assert at.sender is not None and message.spec is not None
    who, run, spec = at.sender, message.run, message.spec
    fact = f.RunsAccepted(who, members, run, spec, at.now, ports, message.shares, prepared=True)
    return fact, Send(SENDER, Prepared(message.run), members)


def refused_at_maintenance(host: Host, reason: str) -> tuple[tuple[Fact, ...], tuple[Send, ...]]:
    """Refuse all prepared runs of a host that goes down."""
    some = prepared(host)
    facts = tuple(f.PreparedReleased(crowd, one.members, one.run, reason) for crowd, one in some)
    sends = tuple(Send(crowd, RunRefused(one.run, reason), one.members) for crowd, one in some)
    return facts, sends

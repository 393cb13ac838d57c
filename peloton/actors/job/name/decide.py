"""How the owner of a name decides who holds it: the first job that asks, until that job has ended.

The gateway reserves a name before it creates the job, so that a creation can be refused at once.
The claim of the job itself decides: a reservation that its job does not claim in time, as its
creation failed, is forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from peloton.actors.job.name import facts as f
from peloton.actors.job.name import messages as m
from peloton.actors.job.name.state import Name
from peloton.runtime.vocabulary import SENDER, At, Decision, Due, Refused, Send

RESERVATION, RESERVATION_S = "reservation", 60.0
"""How long a name is kept for a job that does not claim it."""


def reserve_first(message: m.ReserveName, at: At) -> Decision:
    """Reserve the name for a job."""
    return Decision(facts=(f.NameKept(message.job, at.now),), reply=m.NameReserved())


def reserve(name: Name, message: m.ReserveName, at: At) -> Decision:
    """Refuse the reservation, unless the name is reserved for the same job."""
    if name.job == message.job:
        return Decision(reply=m.NameReserved(), because="reserved already")
    if not name.claimed and at.now >= name.kept_at + RESERVATION_S:
        return reserve_first(message, at)
    text = "another job of the pool that has not ended has the name, and wants it for itself"
    return Decision(reply=Refused(m.NAME_TAKEN, text, "name", again=True), because=text)


def cancel(name: Name, message: m.CancelReservation, at: At) -> Decision:
    """Forget a reservation of this job."""
    mine = name.job == message.job and not name.claimed
    facts = (f.NameForgotten(),) if mine else ()
    return Decision(facts=facts, reply=m.NameReserved(), because="its job was not created")


def claim_first(message: m.ClaimName, at: At) -> Decision:
    """Give the free name to the job."""
    granted = Send(SENDER, m.NameGranted())
    return Decision(facts=(f.NameClaimed(message.job),), sends=(granted,))


def claim(name: Name, message: m.ClaimName, at: At) -> Decision:
    """Give the name to the job that it is reserved for; a repeat is answered again."""
    if name.job != message.job:
        return Decision(sends=(Send(SENDER, m.NameRefused(name.job)),), because="it is taken")
    facts = () if name.claimed else (f.NameClaimed(message.job),)
    return Decision(facts=facts, sends=(Send(SENDER, m.NameGranted()),))


def free(name: Name, message: m.FreeName, at: At) -> Decision:
    """Free the name, because its job has ended.

    A job that does not hold it is answered as well.
    """
    facts = (f.NameForgotten(),) if name.job == message.job else ()
    return Decision(facts=facts, sends=(Send(SENDER, m.NameFreed()),), because="its job has ended")


def due(name: Name, message: Due, at: At) -> Decision:
    """Forget the reservation, because the job was not created in time."""
    text = f"its job did not claim it within {RESERVATION_S:g} s"
    return Decision(facts=(f.NameForgotten(),), because=text)


def deadline(name: Name) -> tuple[str, float] | None:
    """Return the deadline of a reservation; a claimed name stays until the job gives it up."""
    # The runtime counts on while the deadline's name stays, and a reservation may follow another.
    return None if name.claimed else (f"{RESERVATION} of {name.kept_at}", RESERVATION_S)


DECIDE: Mapping[type, Callable[[Any, Any, At], Decision]] = {
    m.ReserveName: reserve,
    m.CancelReservation: cancel,
    m.ClaimName: claim,
    m.FreeName: free,
    Due: due,
}

ABSENT: Mapping[type, Callable[[Any, At], Decision]] = {
    m.ReserveName: reserve_first,
    m.CancelReservation: lambda message, at: Decision(reply=m.NameReserved()),
    m.ClaimName: claim_first,
    m.FreeName: lambda message, at: Decision(sends=(Send(SENDER, m.NameFreed()),)),
}

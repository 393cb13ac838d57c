"""What a task decides about its ticket: what its lot says of it, and when it gives it back.

A late or repeated message is recognised by its ticket.
"""

from __future__ import annotations

from peloton.actors.respool.lot.messages import ParkTicket, ReleaseTicket
from peloton.actors.task import facts as f
from peloton.actors.task import messages as m
from peloton.actors.task.goals import LOT
from peloton.actors.task.state import PARKS, Admission, Task, ready_for_host
from peloton.runtime.vocabulary import SENDER, At, Decision, Send

_HAD_IT = PARKS | {Admission.ADMITTED}


def queued(task: Task, message: m.Queued, at: At) -> Decision:
    """Record that the lot has queued the ticket."""
    if task.admission == Admission.REQUESTED and message.ticket == task.ticket:
        return Decision(facts=(f.AdmissionQueued(),))
    return Decision()


def admitted(task: Task, message: m.Admitted, at: At) -> Decision:
    """Record that the pool admitted the ticket; one that is no longer wanted is released at
    once."""
    if message.ticket == task.ticket and task.admission in (Admission.REQUESTED, Admission.QUEUED):
        return Decision(facts=(f.AdmissionGranted(),))
    if message.ticket == task.ticket and task.admission in _HAD_IT:
        return Decision()
    return Decision(
        sends=(Send(SENDER, ReleaseTicket(message.ticket)),), because="admission no longer wanted"
    )


def released(task: Task, message: m.TicketReleased, at: At) -> Decision:
    """Record that the lot released the ticket."""
    if task.admission == Admission.RELEASING and message.ticket >= task.ticket:
        return Decision(facts=(f.AdmissionReleased(),))
    return Decision()


def mark_unschedulable(task: Task, message: m.MarkUnschedulable, at: At) -> Decision:
    """Release or park the ticket of a task for which there is no host, so that others are admitted.

    The task requests admission again when its slice learns of a host that could run it.
    """
    if message.unschedulable == task.unschedulable:
        return Decision()
    if not message.unschedulable:
        return Decision(facts=(f.TaskUnschedulable(False),), because="a host could run it now")
    if not ready_for_host(task):
        return Decision(because="marked unschedulable when no host was awaited")
    if message.parked:
        park = Send(LOT, ParkTicket(task.ticket))
        return Decision(facts=(f.AdmissionParking(),), sends=(park,), because=message.parked)
    return Decision(
        facts=(f.TaskUnschedulable(True), f.AdmissionReleasing()),
        sends=(Send(LOT, ReleaseTicket(task.ticket)),),
        because="unschedulable: no host could run it, so its ticket is released",
    )


def parked(task: Task, message: m.TicketParked, at: At) -> Decision:
    """Record that the lot has parked the ticket."""
    if task.admission == Admission.PARKING and message.ticket == task.ticket:
        return Decision(facts=(f.AdmissionParked(),))
    return Decision()

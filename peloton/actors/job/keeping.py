"""How a job decides confirmations of the owners of its earlier specs.

Which specs are kept follows from what changed the job (`spec_versions.py`).
"""

from __future__ import annotations

from peloton.actors.job import facts as f
from peloton.actors.job import messages as m
from peloton.actors.job.orders import evolve
from peloton.actors.job.spec_versions import newly_owed
from peloton.actors.job.state import Job
from peloton.actors.job.version.messages import DropSpec
from peloton.runtime.vocabulary import SENDER, At, Decision, Send


def stored(job: Job, message: m.SpecStored, at: At) -> Decision:
    """Record that an owner has a spec; one that is not wanted any more is deleted."""
    versions = job.versions
    if any(one.number == message.number for one in versions.keeping):
        return Decision(facts=(f.SpecConfirmed(message.number),))
    if message.number in versions.leaving or message.number in versions.numbers:
        return Decision()
    return stored_for_nobody(message, at)


def stored_for_nobody(message: m.SpecStored, at: At) -> Decision:
    """Order the owner to delete the spec: the job does not want it any more, or is deleted."""
    return Decision(sends=(Send(SENDER, DropSpec(message.number)),), because="nobody wants it")


def dropped(job: Job, message: m.SpecDropped, at: At) -> Decision:
    """Record that an owner has deleted a spec, and delete the next one."""
    if message.number not in job.versions.leaving:
        return Decision()
    fact = f.SpecGone(message.number)
    after = evolve(job, fact).versions
    sends = newly_owed(at.key, before=job.versions, after=after)
    return Decision(facts=(fact,), sends=sends)

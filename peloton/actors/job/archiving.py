"""How a job that has ended moves into the archive of its shard, and is deleted by the policy.

Before the job leaves memory, it is stored in the period in which it ended. The job journals where
it is, so that its deletion, or a new run, removes it there. The archive compares times; a job does
not look at the clock.
"""

from __future__ import annotations

from peloton.actors.archive.messages import ArchiveJob, DropJob, JobGoing, period_key
from peloton.actors.job import facts as f
from peloton.actors.job import messages as m
from peloton.actors.job.orders import evolve, goals_of
from peloton.actors.job.spec_versions import newly_owed
from peloton.actors.job.stages import TERMINAL_JOB_STATES, JobGoals
from peloton.actors.job.state import Job
from peloton.actors.job.view import summary
from peloton.runtime.vocabulary import At, Bits, Decision, Send


def leave(job: Job, message: m.LeaveMemory, at: At) -> Decision:
    """Store the job in its period, because the runtime asks it to leave memory."""
    line = summary(at.key, job)
    if line is None or not _has_ended(job):
        return Decision(because="it has not ended any more")
    period = period_key(message.archive, job.completed_at)
    return Decision(sends=(Send(period, ArchiveJob(line)),))


def archived(job: Job, message: m.Archived, at: At) -> Decision:
    """Record that a period has the job, which may now leave memory, and remove it from an older
    period."""
    period = at.sender
    if period is None:
        return Decision()
    if not _has_ended(job) or job.completed_at != message.completed_at:
        return Decision(sends=(Send(period, DropJob()),), because="it has run again meanwhile")
    if job.period == period and job.archived_end == message.completed_at:
        return Decision()
    older = (Send(job.period, DropJob()),) if job.period and job.period != period else ()
    return Decision(facts=(f.ArchivedIn(period, message.completed_at),), sends=older)


def forget(job: Job, message: m.ForgetJob, at: At) -> Decision:
    """Delete the job by the policy, if it ended before that moment.

    A job that runs again, or ended later, is in another period once it leaves memory.
    """
    if at.sender is None:
        return Decision()
    if not _has_ended(job) or job.completed_at > message.before:
        return Decision(sends=(Send(at.sender, DropJob()),), because="it has run again since")
    fact = f.DeletionOrdered(at.now)
    folded = evolve(job, fact)
    return Decision(
        facts=(fact,),
        sends=(
            *goals_of(folded, Bits.span(0, folded.slices)),
            *newly_owed(at.key, before=job.versions, after=folded.versions),
            Send(at.sender, JobGoing()),
        ),
        because="it ended so long ago that the policy deletes it",
    )


def unknown(message: m.ForgetJob, at: At) -> Decision:
    """Answer that the job was deleted, so that the period drops it."""
    return Decision(sends=(Send(at.sender, DropJob()),) if at.sender is not None else ())


def dropped(job: Job) -> tuple[Send, ...]:
    """Return what a job that is being deleted tells its period."""
    return (Send(job.period, DropJob()),) if job.period else ()


def _has_ended(job: Job) -> bool:
    is_kept = job.spec is not None and job.goal != JobGoals.DELETED
    return is_kept and job.state in TERMINAL_JOB_STATES

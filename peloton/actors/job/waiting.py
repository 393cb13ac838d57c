"""How a job decides what concerns others: jobs it waits for or that wait for it, its name, a URL.

No job asks another more than once: the other job journals the question, and tells its end when it
comes. All messages are repeated until they are answered.
"""

from __future__ import annotations

from peloton.actors.job import facts as f
from peloton.actors.job import messages as m
from peloton.actors.job.grants import metered
from peloton.actors.job.messages import moment_of
from peloton.actors.job.name.messages import (
    FreeName,
    NameFreed,
    NameGranted,
    NameRefused,
)
from peloton.actors.job.notice_messages import NoticeHandled
from peloton.actors.job.orders import asked_first, evolved_by, goals_of, raise_grants, said_at_end
from peloton.actors.job.spec import After, Deadline
from peloton.actors.job.stages import TERMINAL_JOB_STATES, JobGoals, JobStates
from peloton.actors.job.state import Job
from peloton.actors.job.throttle import next_release
from peloton.actors.job.waits import NameStates
from peloton.actors.mentions import job_mention
from peloton.runtime.vocabulary import SENDER, At, Bits, Decision, Fact, Send

WAITERS_MAX = 1000
"""Jobs that may await the end of one job."""
ANY_END = "ENDED"
DEADLINE, THROTTLE, PROGRESS = "deadline", "throttle", "progress"
STARTS_AFTER_S = 0.001
"""The runtime counts whole milliseconds: so much later a period is over in any case."""


def await_end(job: Job, message: m.AwaitEnd, at: At) -> Decision:
    """Tell the end, or record the job that wants to know it."""
    waiter = at.sender
    if waiter is None:
        return Decision()
    if job.spec is None or job.goal == JobGoals.DELETED:
        return await_absent(message, at)
    if job.state in TERMINAL_JOB_STATES:
        return Decision(sends=(Send(SENDER, m.EndTold(at.key, job.state)),))
    noted = Send(SENDER, m.AwaitNoted(at.key))
    if waiter in job.waits.waiters:
        return Decision(sends=(noted,))
    if len(job.waits.waiters) >= WAITERS_MAX:
        text = f"{WAITERS_MAX} jobs wait for it already, the limit"
        end = m.EndTold(at.key, JobStates.DELETED, text)
        return Decision(sends=(Send(SENDER, end),), because=text)
    return Decision(facts=(f.WaiterNoted(waiter),), sends=(noted,))


def await_absent(message: m.AwaitEnd, at: At) -> Decision:
    """Answer that the end of a job that does not exist will never be known."""
    end = m.EndTold(at.key, JobStates.DELETED, "it does not exist")
    return Decision(sends=(Send(SENDER, end),), because="no such job")


def noted(job: Job, message: m.AwaitNoted, at: At) -> Decision:
    """Record that the other job will tell its end."""
    if job.waits.others.get(message.other, True):
        return Decision()
    return Decision(facts=(f.OtherNoted(message.other),))


def told(job: Job, message: m.EndTold, at: At) -> Decision:
    """Record the end of another job: begin once all have ended, or end if one ended in a wrong
    state."""
    heard = Send(SENDER, m.EndHeard(at.key))
    if message.other not in job.waits.others:
        return Decision(sends=(heard,))
    facts = (f.OtherEnded(message.other),)
    after = _after(job, message.other)
    if message.state.name in _ends(after) or not job.blocked:
        return _released(job, facts, at=at, also=(heard,))
    other = job_mention(message.other.partition("/")[2])
    how = message.text or f"it ended as {message.state.name}"
    reason = f"{other} did not end as {after.state} ({how}), and this one was to begin after it"
    return ended_by_itself(job, at, reason=reason, facts=facts, also=(heard,))


def told_absent(message: m.EndTold, at: At) -> Decision:
    """Answer that the waiting job does not exist any more."""
    return Decision(sends=(Send(SENDER, m.EndHeard(at.key)),), because="no such job")


def heard(job: Job, message: m.EndHeard, at: At) -> Decision:
    """Record that a job that awaited the end knows it."""
    if message.waiter not in job.waits.waiters:
        return Decision()
    return Decision(facts=(f.WaiterTold(message.waiter),))


def granted(job: Job, message: NameGranted, at: At) -> Decision:
    """Record that the job has the name."""
    if job.waits.name == NameStates.GRANTED:
        return Decision()
    if job.waits.name != NameStates.ASKED:
        return granted_absent(message, at)
    return _released(job, (f.NameSettled(True),), at=at)


def granted_absent(message: NameGranted, at: At) -> Decision:
    """Answer a late grant: the name is not wanted any more."""
    return Decision(sends=(Send(SENDER, FreeName(at.key)),), because="not wanted any more")


def refused(job: Job, message: NameRefused, at: At) -> Decision:
    """End the job, because another job has its name: the reservation was not claimed in time."""
    if job.waits.name != NameStates.ASKED:
        return Decision()
    facts = (f.NameSettled(False),)
    if not job.blocked:
        return Decision(facts=facts)
    reason = f"its name is that of {job_mention(message.job.partition('/')[2])}"
    return ended_by_itself(job, at, reason=reason, facts=facts)


def freed(job: Job, message: NameFreed, at: At) -> Decision:
    """Record that the job no longer has the name."""
    return Decision(facts=(f.NameSettled(False),) if job.waits.has_name else ())


def told_outside(job: Job, message: NoticeHandled, at: At) -> Decision:
    """Record that the notifier has told the end, or given it up."""
    notice = job.waits.notice
    if notice is None or notice.number != message.number:
        return Decision()
    how = "was told" if message.posted else "could not be told, and will not be"
    because = f"its end {how}: {message.text}"
    return Decision(facts=(f.NoticeSettled(message.number, message.posted),), because=because)


def deadline_passed(job: Job, at: At) -> Decision:
    """Stop all of the job that runs or waits, because it has not ended in time."""
    spec = job.spec
    if spec is None or spec.deadline is None:
        return Decision()
    return ended_by_itself(
        job, at, reason=f"it had not ended by its deadline ({spec.deadline.text})"
    )


def deadline_of(job: Job) -> tuple[str, float] | None:
    """Return the deadline of a job that has not ended, in seconds from when the runtime set it.

    A deadline with a date comes by the wall clock.
    """
    found = _open_deadline(job)
    if found is None or found.at:
        return None
    return _timed(DEADLINE, job, moment=moment_of(found, job.created_at))


def dated_deadline_of(job: Job) -> tuple[str, float] | None:
    """Return the date by which a job has to end, if it has one and has not ended."""
    if job.spec is None or job.spec.deadline is None or not job.spec.deadline.at:
        return None
    return None if _open_deadline(job) is None else (DEADLINE, job.spec.deadline.at)


def _open_deadline(job: Job) -> Deadline | None:
    if job.spec is None or job.spec.deadline is None or job.waits.deadline_over:
        return None
    return job.spec.deadline if job.is_wanted and job.state not in TERMINAL_JOB_STATES else None


def throttle_of(job: Job) -> tuple[str, float] | None:
    """Return when further instances may begin, if some wait for it."""
    moment = next_start_of(job)
    return None if moment is None else _timed(THROTTLE, job, moment=moment + STARTS_AFTER_S)


def progress_end_of(job: Job) -> tuple[str, float] | None:
    """Return when the workflow fails, unless an instance is through by then."""
    workflow, spec = job.workflow, job.spec
    if workflow is None or spec is None or not spec.progress_s or not workflow.is_rolling:
        return None
    if job.goal == JobGoals.DELETED:
        return None  # nobody goes back, and no spec is kept any more
    # To see at the end whether all stay well is no lack of progress.
    most_s = spec.progress_s + workflow.options.healthy_s
    return _timed(PROGRESS, job, moment=workflow.progressed_at + most_s)


def next_start_of(job: Job) -> float | None:
    """Return when the next instance may begin by the throttle; None if none waits for it."""
    if job.throttled is None or job.spec is None or job.spec.throttle is None or job.blocked:
        return None
    if not job.is_wanted:
        return None
    return next_release(job.throttled, job.spec.throttle)


def throttle_passed(job: Job, at: At) -> Decision:
    """Let further instances begin."""
    raised, folded, touched = raise_grants(job, now=at.now)
    sends = goals_of(folded, touched)
    return Decision(facts=raised, sends=sends, because="the throttle allows more starts")


def _timed(name: str, job: Job, *, moment: float | None) -> tuple[str, float] | None:
    """Return a deadline at this moment. The runtime counts it anew once it has another name."""
    if moment is None:
        return None
    since = job.waits.timed_from
    return f"{name} {since!r}", max(moment - since, 0.0)


def ended_by_itself(
    job: Job, at: At, *, reason: str, facts: tuple[Fact, ...] = (), also: tuple[Send, ...] = ()
) -> Decision:
    """Stop all instances of the job, for a reason that clients see."""
    assert job.spec is not None
    facts = (*facts, f.StopOrdered(at.now, "", metered(job.spec), reason))
    folded = evolved_by(job, facts)
    goals = goals_of(folded, Bits.span(0, folded.slices))
    return Decision(facts=facts, sends=(*also, *goals), because=reason)


def owed_to_others(job: Job) -> tuple[Send, ...]:
    """Return what other jobs and the owner of the name have not answered yet."""
    return (*asked_first(job), *said_at_end(job))


def what_blocks(job: Job) -> str:
    """Return why the job may not begin yet; empty if it may."""
    if not job.blocked:
        return ""
    others = [
        f"{job_mention(after.job.partition('/')[2])} to be {after.state}"
        for after in (job.spec.after if job.spec is not None else ())
        if after.job in job.waits.others
    ]
    if not others:
        return "waits for its name, which no other job of the pool may have"
    return "waits for " + " and for ".join(others)


def _released(
    job: Job, facts: tuple[Fact, ...], *, at: At, also: tuple[Send, ...] = ()
) -> Decision:
    """Return the decision with these facts: if nothing blocks the job any more, it begins."""
    folded = evolved_by(job, facts)
    goals: tuple[Send, ...] = ()
    if job.blocked and not folded.blocked:
        raised, folded, _ = raise_grants(folded, now=at.now)
        facts = (*facts, *raised)
        goals = goals_of(folded, Bits.span(0, folded.slices))
    return Decision(facts=facts, sends=(*also, *goals), because="it may begin" if goals else "")


def _after(job: Job, other: str) -> After:
    assert job.spec is not None
    return next(after for after in job.spec.after if after.job == other)


def _ends(after: After) -> tuple[str, ...]:
    """Return the states in which the other job may have ended."""
    return ("SUCCEEDED", "FAILED", "KILLED") if after.state == ANY_END else (after.state,)

"""How a schedule decides commands of clients, its moments, and answers of its jobs.

Each moment makes one job: its id follows from schedule and moment, so a repeat finds it there.
After a time without an owner only the last moment counts. Before anything of a moment is journaled,
the daemon says whether the creator of the schedule may still create such a job: an answer that is
lost leaves nothing behind. Moments are those of the zones that `kind.py` is given. Of a job it
knows what its answers say.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any

from msgspec.structs import replace

from peloton.actors.job.messages import (
    AwaitEnd,
    AwaitNoted,
    EndHeard,
    EndTold,
    MakeHandled,
    MakeJob,
    StopJob,
    job_key,
)
from peloton.actors.mentions import job_mention
from peloton.actors.schedule import facts as f
from peloton.actors.schedule import messages as m
from peloton.actors.schedule.cron import Moments, Zones
from peloton.actors.schedule.messages import EXISTS, INVALID, NOT_FOUND
from peloton.actors.schedule.rights import ask, question
from peloton.actors.schedule.state import EVOLVE, NO_JOB_YET, RightsPending, Schedule
from peloton.runtime.vocabulary import SENDER, At, Decision, Due, Fact, Key, Refused, Send

SCHEDULED_TIME = "PELOTON_SCHEDULED_TIME"
"""The variable that says to a job's tasks which moment it was made for, however late it runs."""


def create_first(message: m.CreateSchedule, at: At, *, zones: Zones) -> Decision:
    """Create the schedule, if it has a moment at all."""
    spec = message.spec
    try:
        next_at = _next(spec, at.wall, zones=zones)
    except ValueError as error:
        return _invalid(error)
    made = f.ScheduleMade(at.key, spec, message.paused, at.now, at.who, next_at)
    return Decision(facts=(made,), reply=m.ScheduleChanged())


def create(schedule: Schedule, message: m.CreateSchedule, at: At) -> Decision:
    """Refuse, because the name is taken."""
    text = f"schedule {at.key.partition('/')[2]} already exists"
    return Decision(reply=Refused(EXISTS, text, "name"), because=text)


def _next(spec: m.ScheduleSpec, last: float, *, zones: Zones) -> float:
    """The first moment after this. Raises ValueError where there is none, or no such zone: the
    owner may have other time zones than who checked the spec, or had them before."""
    found = Moments(spec.cron, zones(spec.zone)).after(last)
    if found is None:
        raise ValueError(f"{spec.cron!r} never comes")
    return found


def _invalid(error: ValueError) -> Decision:
    return Decision(reply=Refused(INVALID, str(error), "cron"), because=str(error))


def pause(schedule: Schedule, message: m.PauseSchedule, at: At, *, zones: Zones) -> Decision:
    """Make no more jobs, or go on with the next moment from now."""
    if schedule.paused == message.paused:
        return Decision(reply=m.ScheduleChanged(), because="it is so already")
    # A clock that was set back must not bring a moment again that has come.
    skipped = schedule.skip.moment if schedule.skip is not None else 0.0
    made = schedule.runs[-1].moment if schedule.runs else 0.0
    last = max(at.wall, schedule.moment, made, skipped)
    try:
        next_at = 0.0 if message.paused else _next(schedule.spec, last, zones=zones)
    except ValueError as error:
        return _invalid(error)
    return Decision(
        facts=(f.SchedulePaused(message.paused, at.now, next_at),),
        reply=m.ScheduleChanged(),
        because="paused" if message.paused else "resumed",
    )


def delete(schedule: Schedule, message: m.DeleteSchedule, at: At) -> Decision:
    """Delete the schedule; its jobs go on."""
    return Decision(facts=(f.ScheduleDeleted(),), reply=m.ScheduleChanged())


def due(schedule: Schedule, message: Due, at: At, *, zones: Zones) -> Decision:
    """Let the last moment that has come make a job, if it and the owner may."""
    come = _come(schedule, "", at=at, zones=zones)
    return ask(schedule, at) if come.job else _decided(schedule, (come,), because=come.why)


def told_rights(schedule: Schedule, message: m.RightsTold, at: At, *, zones: Zones) -> Decision:
    """Let the moment make its job, or none if the owner may not."""
    if schedule.paused or message.asked != question(schedule):
        return Decision()
    come = _come(schedule, message.why, at=at, zones=zones)
    return replace(_decided(schedule, (come,), because=come.why), notes=RightsPending())


def _come(schedule: Schedule, why: str, *, at: At, zones: Zones) -> f.MomentCome:
    """The last of the moments that have come; it makes its job, or none where it says why.

    It is at least the next one, though the clock be set back meanwhile. Where the zone is not known
    any more there is no job, and no further moment before somebody resumes the schedule."""
    spec = schedule.spec
    moment, next_at = schedule.next_at, 0.0
    try:
        moments = Moments(spec.cron, zones(spec.zone))
        moment = max(moments.last(at.wall) or 0.0, moment)
        next_at = moments.after(max(moment, at.wall)) or 0.0
    except ValueError as error:
        why = why or str(error)
    why = why or _why_not(schedule, at.wall - moment)
    job = NO_JOB_YET if why else _job_of(schedule, moment)
    return f.MomentCome(moment, job, why, at.now, next_at)


def _why_not(schedule: Schedule, late_s: float) -> str:
    """Return why a moment makes no job; empty if it does."""
    spec = schedule.spec
    if 0 < spec.starting_deadline_s < late_s:
        return f"it came {late_s:.0f} s late, the limit is {spec.starting_deadline_s:g} s"
    if schedule.making:
        return f"{job_mention(_id(schedule.making))} of the moment before is not made yet"
    if schedule.active and spec.overlap == m.Overlaps.SKIP:
        return f"{job_mention(_id(schedule.active))} of the moment before has not ended"
    return ""


def _job_of(schedule: Schedule, moment: float) -> Key:
    """Return the key of the one job of this moment, as a UUID.

    A later schedule of the name has others.
    """
    text = f"{schedule.key}\n{schedule.created_at!r}\n{moment!r}"
    found = hashlib.sha256(text.encode()).hexdigest()
    # The digits of version and variant are those of an id made from a name.
    return job_key(f"{found[:8]}-{found[8:12]}-5{found[13:16]}-8{found[17:20]}-{found[20:32]}")


def made(schedule: Schedule, message: MakeHandled, at: At) -> Decision:
    """Record that the job of the moment exists, or cannot, and nothing else is tried for it."""
    if schedule.making != message.job:
        return Decision()
    fact = f.JobSettled(message.job, not message.text, message.text, at.now)
    return _decided(schedule, (fact,), because=message.text)


def noted(schedule: Schedule, message: AwaitNoted, at: At) -> Decision:
    """Record that the last job will tell its end."""
    if schedule.active != message.other or schedule.awaited:
        return Decision()
    return Decision(facts=(f.EndAwaited(message.other),))


def told(schedule: Schedule, message: EndTold, at: At) -> Decision:
    """Record that a job has ended."""
    if schedule.active != message.other:
        return Decision(sends=(Send(SENDER, EndHeard(at.key)),))
    heard = Send(SENDER, EndHeard(at.key))
    return _decided(schedule, (f.EndKnown(message.other),), also=(heard,))


def told_absent(message: EndTold, at: At) -> Decision:
    """Answer that the schedule does not exist any more."""
    return Decision(sends=(Send(SENDER, EndHeard(at.key)),), because="no such schedule")


def owed(schedule: Schedule) -> tuple[Send, ...]:
    """Return what the jobs have not answered yet."""
    sends: list[Send] = []
    if schedule.stops:
        sends.append(Send(schedule.active, StopJob()))
    if schedule.active and not schedule.awaited:
        sends.append(Send(schedule.active, AwaitEnd()))
    if schedule.making and not schedule.stops:
        spec = schedule.spec
        time = _time_text(schedule.moment)
        job = replace(spec.job, default=spec.job.default.with_variable(SCHEDULED_TIME, time))
        overrides = tuple(
            (
                number,
                tuple(
                    replace(one, config=one.config.with_variable(SCHEDULED_TIME, time))
                    for one in some
                ),
            )
            for number, some in spec.overrides
        )
        make = MakeJob(job, overrides, spec.pool_path, schedule.created_by)
        sends.append(Send(schedule.making, make))
    return tuple(sends)


def _time_text(moment: float) -> str:
    """Return a moment as RFC 3339 writes it, in UTC: moments are whole seconds."""
    return f"{datetime.fromtimestamp(moment, UTC):%Y-%m-%dT%H:%M:%SZ}"


def next_moment(schedule: Schedule) -> tuple[str, float] | None:
    """Return the deadline of the next moment, by the wall clock."""
    if schedule.paused or not schedule.next_at:
        return None
    return f"moment {schedule.next_at}", schedule.next_at


def schedule_line(name: Key, schedule: Schedule) -> m.ScheduleSummary:
    """Return the schedule as in a listing."""
    spec = schedule.spec
    return m.ScheduleSummary(
        schedule=name,
        cron=spec.cron,
        zone=spec.zone,
        pool_path=spec.pool_path,
        overlap=spec.overlap,
        starting_deadline_s=spec.starting_deadline_s,
        paused=schedule.paused,
        next_at=0.0 if schedule.paused else schedule.next_at,
        created_at=schedule.created_at,
        created_by=schedule.created_by,
        made=schedule.made,
        skipped=schedule.skipped,
        last=schedule.runs[-1] if schedule.runs else None,
    )


def get_schedule(schedule: Schedule, query: m.GetSchedule, at: At) -> m.ScheduleView:
    """Return the details."""
    line, raw = schedule_line(at.key, schedule), schedule.spec.raw
    return m.ScheduleView(line, raw, schedule.runs, schedule.skip, schedule.making)


def _decided(
    schedule: Schedule,
    facts: tuple[Fact, ...],
    *,
    also: tuple[Send, ...] = (),
    because: str = "",
) -> Decision:
    """Return the decision with these facts, and what is owed after them."""
    folded: Any = schedule
    for fact in facts:
        folded = EVOLVE[type(fact)](folded, fact)
    return Decision(facts=facts, sends=(*also, *owed(folded)), because=because)


def _id(job: Key) -> str:
    return job.partition("/")[2]


def _missing(message: Any, at: At) -> Decision:
    return Decision(reply=Refused(NOT_FOUND, "schedule not found", "name"))


def decide_with(zones: Zones) -> Mapping[type, Callable[[Any, Any, At], Decision]]:
    """Return the decision on each message, with moments in the time zones that `zones` knows."""
    return {
        m.CreateSchedule: create,
        m.PauseSchedule: partial(pause, zones=zones),
        m.DeleteSchedule: delete,
        m.RightsTold: partial(told_rights, zones=zones),
        MakeHandled: made,
        AwaitNoted: noted,
        EndTold: told,
        Due: partial(due, zones=zones),
    }


def absent_with(zones: Zones) -> Mapping[type, Callable[[Any, At], Decision]]:
    """Return the decision on each message where there is no such schedule."""
    return {
        m.CreateSchedule: partial(create_first, zones=zones),
        m.PauseSchedule: _missing,
        m.DeleteSchedule: _missing,
        EndTold: told_absent,
    }

"""How a schedule asks whether its owner may still create the job of a moment.

The clock and the answers of jobs take the steps of a schedule (`decide.py`), so it has no table of
goals: to pursue is only to ask again what was not answered.
"""

from __future__ import annotations

from peloton.actors.schedule.messages import RIGHTS, AskRights
from peloton.actors.schedule.state import RightsPending, Schedule
from peloton.runtime.vocabulary import SETTLED, WAITING, At, Decision, Rest, Send

ASK_AGAIN_S = 5.0
"""After which an answer counts as lost; it comes within the same round."""


def pursue(schedule: Schedule, at: At) -> Decision | Rest:
    """Ask again, once an answer counts as lost; else wait for the next moment, or rest."""
    notes = at.notes
    if notes is not None and notes.again_at is not None and notes.again_at <= at.now:
        waits = not schedule.paused and 0 < schedule.next_at <= at.wall
        return ask(schedule, at) if waits else Decision(notes=RightsPending())
    return SETTLED if schedule.paused and not schedule.making else WAITING


def ask(schedule: Schedule, at: At) -> Decision:
    """Ask the daemon about the rights of the owner again, for the moment that waits."""
    again = RightsPending(at.now + ASK_AGAIN_S)
    return Decision(sends=(Send(RIGHTS, question(schedule)),), notes=again)


def question(schedule: Schedule) -> AskRights:
    """Return the question about the next moment."""
    path, by = schedule.spec.pool_path, schedule.created_by
    return AskRights(schedule.key, schedule.created_at, schedule.next_at, by, path)


def recall_s(notes: RightsPending) -> float | None:
    """Return when to ask again."""
    return notes.again_at

"""The instances of a slice: counted for its job, listed for people.

The crowd becomes counts by the state that clients see, and one view per instance with the reason
why it has not reached its goal.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from peloton.actors.job.slice.availability import why_kept
from peloton.actors.job.slice.configs import SpecRow
from peloton.actors.job.slice.counts import INITIALIZED, client_state, tally
from peloton.actors.job.slice.goals import active_of
from peloton.actors.job.slice.messages import (
    InstanceView,
    ListInstances,
    SliceTally,
)
from peloton.actors.job.slice.placing import why_unplaced
from peloton.actors.job.slice.rollout_messages import GetRollout, RolloutView
from peloton.actors.job.slice.state import GangNotes, Slice, WishNotes
from peloton.actors.job.slice.usage import ran_s
from peloton.actors.task.messages import SLICE_SIZE, KillCause
from peloton.actors.task.run_messages import ContainerEnd, LiveContainers, TaskHealth
from peloton.actors.task.state import (
    ENDED,
    IN_PREPARATION,
    ON_HOST,
    PARKS,
    Admission,
    Task,
    TaskStates,
    dropped_runs,
    is_let_pass,
    is_well,
    pause_s,
    waits_for_gang,
)
from peloton.runtime.vocabulary import At, Bits, Key, Send

GIVEN_BACK = "its pool has the allocation back until there is one"
POOL, HOST, NEVER, RETRY = "POOL", "HOST", "NEVER", "RETRY"
LAUNCH, NEW, LIMIT, THROTTLE = "LAUNCH", "NEW", "LIMIT", "THROTTLE"
GANG, SPARE, HEALTH, READY = "GANG", "SPARE", "HEALTH", "READY"
LIMIT_TEXT = "waits for others of its job to end: as many are active as may run at once"
THROTTLE_TEXT = "waits for the throttle of its job"
GANG_TEXT = "waits for hosts for its whole gang"
UNHEALTHY_TEXT = "runs, but its last health check failed"
UNCHECKED_TEXT = "runs, and its health has not been checked yet"
UNREADY_TEXT = "runs, but is not ready"
NOT_READY_YET_TEXT = "runs, and its readiness has not been checked yet"
UNSCHEDULABLE_TEXT = "no host could run it at the last check, and it holds no resources of its pool"


def report(slice_: Slice, at: At) -> tuple[Send, ...]:
    """Return the tally, for the job."""
    counts = tally(slice_, at)
    return (Send(slice_.job, SliceTally(at.position, slice_.number, counts, slice_.version)),)


def get_rollout(slice_: Slice, query: GetRollout, at: At) -> RolloutView:
    """Return what the last rollout does with which members, and did before; nothing without one."""
    if slice_.rollout is None:
        return RolloutView()
    return slice_.rollout.view(slice_.steps)


def list_instances(slice_: Slice, query: ListInstances, at: At) -> tuple[InstanceView, ...]:
    """Return the requested instances that this slice has, ascending."""
    first = slice_.number * SLICE_SIZE
    wanted = Bits.span(max(query.start - first, 0), min(query.stop - first, slice_.count))
    return views_of(slice_, wanted if query.unadded else wanted - slice_.unadded, at)


def views_of(slice_: Slice, wanted: Bits, at: At) -> tuple[InstanceView, ...]:
    """Return the views of those of these members that exist, ascending."""
    found: dict[int, InstanceView] = {}
    kept = why_kept(slice_, at.index) if slice_.budget is not None else {}
    not_begun = _why_not_begun(slice_, at)
    if slice_.homes is not None:
        wanted = wanted & slice_.homes.placed  # the others are free numbers
    for state, raw in at.index.split(wanted.raw & at.index.present):
        for member in Bits(raw):
            view = _view(slice_, member, task=state, at=at)
            if member in slice_.awaiting_restart:
                view = _to_restart(slice_, view, why=not_begun)
            elif member in kept:
                view = msgspec.structs.replace(view, code=SPARE, because=kept[member])
            found[member] = view
    closed = slice_.closed if slice_.homes is None else ()
    for row, members in zip(slice_.specs, closed, strict=False):
        for member in members & wanted:
            found[member] = _not_begun(slice_, member, row=row, why=not_begun)
    return tuple(found[member] for member in sorted(found))


def _view(slice_: Slice, member: int, *, task: Task, at: At) -> InstanceView:
    def read(name: str) -> Any:
        return at.index.columns.read(name, member)

    notes = at.notes if at.notes is not None else WishNotes()
    if member in slice_.forming or waits_for_gang(task):
        (code, because), notes = gang_why(task, notes, at)
    else:
        code, because = why(task, at)
    if slice_.homes is not None and code in (HOST, NEVER):
        code, because = _why_at_home(task, member, because=because, notes=notes)
    checked = _checked(task, read)
    if code in (HEALTH, READY) and checked and checked[0]:
        because = f"{because}: {checked[0]}"
    since = read("since") or at.now
    row = slice_.specs[read("spec") or 0]
    waits = task.state == TaskStates.THROTTLED
    return InstanceView(
        instance=slice_.number * SLICE_SIZE + member,
        state=client_state(task),
        goal=task.goal,
        run=task.run,
        failures=task.failures,
        host=read("host") or _home(slice_, member),
        created_at=read("created_at"),
        launched_at=read("launched_at"),
        started_at=read("started_at"),
        ended_at=read("ended_at"),
        outcome=read("outcome"),
        runs=read("runs") or (),
        config=row.config,
        code=code,
        because=because,
        lot=Key(read("lot") or ""),
        retry_at=since + pause_s(task) if waits else None,
        counts=notes.reasons if code in (HOST, NEVER) else (),
        counted_at=notes.reasons_at if code in (HOST, NEVER) and notes.reasons else None,
        ran_s=ran_s(read("started_at"), read("ended_at"), before=read("ran_s")),
        begun_at=read("begun_at"),
        config_version=row.config_version,
        dropped=read("dropped"),
        dropped_runs=dropped_runs(read),
        health=task.health,
        checked=checked,
        ready=task.ready,
        ran_by=read("ran_by") or 0,
        coming=task.renewal.config_version if task.renewal is not None else 0,
        containers=_containers(task, read("containers")),
    )


def _checked(task: Task, read: Callable[[str], Any]) -> tuple[str, float] | None:
    """Return what was told last of the checks of the present run: the column may have an earlier
    run's."""
    told: tuple[str, float] | None = read("health")
    if max(task.health, task.ready) > TaskHealth.UNKNOWN or is_let_pass(task):
        return told
    of_this_run = told is not None and told[1] >= (read("started_at") or told[1] + 1.0)
    return told if task.state == TaskStates.RUNNING and of_this_run else None


def _containers(task: Task, told: LiveContainers | None) -> tuple[ContainerEnd, ...]:
    """Return the containers of the present run, while it is on a host."""
    known = told is not None and told.run == task.run and task.state in ON_HOST
    return told.containers if told is not None and known else ()


def _why_at_home(task: Task, member: int, *, because: str, notes: WishNotes) -> tuple[str, str]:
    """Return code and text of a member that waits for its only host."""
    text = notes.at_home.get(member, because)
    if task.admission in PARKS:
        return HOST, f"{text}; {GIVEN_BACK}"
    return (NEVER if task.unschedulable else HOST), text


def _home(slice_: Slice, member: int) -> str:
    """Return where a member of a daemon job is to run."""
    return slice_.homes.hosts[member] if slice_.homes is not None else ""


def _why_not_begun(slice_: Slice, at: At) -> tuple[str, str]:
    """Return code and text of members that have not begun, or not again."""
    starts = slice_.starts
    if starts is None or not starts.waiting:
        return LIMIT, LIMIT_TEXT
    grant = slice_.grant if slice_.grant is not None else slice_.count
    reached = grant <= active_of(slice_, at.index)
    return (LIMIT, LIMIT_TEXT) if reached else (THROTTLE, THROTTLE_TEXT)


def _to_restart(slice_: Slice, view: InstanceView, *, why: tuple[str, str]) -> InstanceView:
    """Return the view of an ended member that is restarted once its job allows it."""
    return msgspec.structs.replace(
        view,
        state=INITIALIZED,
        goal=slice_.goal,
        ended_at=None,
        outcome=None,
        code=why[0],
        because=why[1],
    )


def _not_begun(slice_: Slice, member: int, *, row: SpecRow, why: tuple[str, str]) -> InstanceView:
    return InstanceView(
        instance=slice_.number * SLICE_SIZE + member,
        state=INITIALIZED,
        goal=slice_.goal,
        run=slice_.past + 1,
        failures=0,
        host="",
        created_at=None,
        launched_at=None,
        started_at=None,
        ended_at=None,
        outcome=None,
        runs=(),
        config=row.config,
        code=why[0],
        because=why[1],
        config_version=row.config_version,
    )


def gang_why(task: Task, notes: WishNotes, at: At) -> tuple[tuple[str, str], WishNotes]:
    """Return what `why` does for a member of a gang that forms, and the notes with what placers
    said of it."""
    gang = notes.gang if notes.gang is not None else GangNotes()
    noted = msgspec.structs.replace(notes, reasons=gang.reasons, reasons_at=gang.reasons_at)
    if waits_for_gang(task):
        return (GANG, "waits for the others of its gang to end, to run again with them"), noted
    if task.state in IN_PREPARATION:
        return (GANG, "a host has granted its room, it waits for those of its whole gang"), noted
    if task.state == TaskStates.KILLING and task.cause == KillCause.PREPARATION_DROPPED:
        return (GANG, f"its host has to give back the room that it granted: {task.because}"), noted
    if gang.never and (task.unschedulable or task.admission == Admission.ADMITTED):
        return (NEVER, gang.because), noted
    if task.admission in PARKS:
        return (HOST, f"{gang.because or GANG_TEXT}; {GIVEN_BACK}"), noted
    if task.state == TaskStates.WAITING and task.admission == Admission.ADMITTED:
        return (HOST if gang.reasons else GANG, gang.because or GANG_TEXT), noted
    return why(task, at), noted


def _not_well(task: Task) -> tuple[str, str]:
    if task.health == TaskHealth.UNHEALTHY:
        return HEALTH, UNHEALTHY_TEXT
    if task.ready == TaskHealth.UNHEALTHY:
        return READY, UNREADY_TEXT
    if task.health == TaskHealth.UNKNOWN:
        return HEALTH, UNCHECKED_TEXT
    return READY, NOT_READY_YET_TEXT


def why(task: Task, at: At) -> tuple[str, str]:
    """Return why an instance has not reached its goal: a code and a text, "" if it runs or has
    ended.

    Why it waits in its pool is not known here: its lot answers that (`GetLot`).
    """
    notes: WishNotes = at.notes if at.notes is not None else WishNotes()
    if task.state in ENDED or is_well(task):
        return "", ""
    if task.state == TaskStates.RUNNING:
        return _not_well(task)
    if task.state == TaskStates.THROTTLED:
        return RETRY, f"waits after failure {task.failures}"
    if task.state == TaskStates.KILLING:
        return LAUNCH, f"being stopped: {task.because}"
    if task.state != TaskStates.WAITING:
        return LAUNCH, "waits for its host to start it"
    if task.admission in PARKS:
        return NEVER if notes.never else HOST, f"{why_unplaced(notes)}; {GIVEN_BACK}"
    if task.unschedulable:
        return NEVER, why_unplaced(notes) if notes.never else UNSCHEDULABLE_TEXT
    if task.admission == Admission.ADMITTED:
        if notes.reasons and (notes.kept or notes.resting):
            return NEVER if notes.never else HOST, why_unplaced(notes)
        if task.because or notes.refusal:
            return HOST, f"waits for a host; the last one refused: {task.because or notes.refusal}"
        return HOST, "admitted, waits for the placer's answer"
    if task.admission in (Admission.REQUESTED, Admission.QUEUED):
        return POOL, "waits for admission by its pool"
    return NEW, "admission not requested yet"

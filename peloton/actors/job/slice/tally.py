"""The instances of a slice: counted for its job, listed for people.

Turns the crowd into counts by the state that clients see, and into one view per instance with the
reason why it has not reached its goal. Must not decide anything.
"""

from __future__ import annotations

from typing import Any

from peloton.actors.delays import throttle_s
from peloton.actors.job.slice.decide import why_unplaced
from peloton.actors.job.slice.messages import (
    InstanceView,
    ListInstances,
    SliceTally,
    Tally,
    TaskConfig,
)
from peloton.actors.job.slice.state import Slice, WishNotes
from peloton.actors.task.messages import SLICE_SIZE
from peloton.actors.task.state import ENDED, Admission, Task, TaskStates
from peloton.runtime.vocabulary import At, Bits, Key, Send

_NAMES = {
    TaskStates.LAUNCHING: "LAUNCHED",
    TaskStates.THROTTLED: "PENDING",
}
POOL, HOST, NEVER, RETRY = "POOL", "HOST", "NEVER", "RETRY"
LAUNCH, NEW, LIMIT = "LAUNCH", "NEW", "LIMIT"
UNSCHEDULABLE_TEXT = "no host could run it at the last check, and it holds no resources of its pool"


def client_state(task: Task) -> str:
    """The state's name as clients know it: a waiting task is INITIALIZED, then PENDING."""
    if task.state == TaskStates.WAITING:
        return (
            "INITIALIZED"
            if task.admission == Admission.NONE and not task.unschedulable
            else "PENDING"
        )
    return _NAMES.get(task.state, task.state.name)


def tally(slice_: Slice, at: At) -> Tally:
    """Instances by state."""
    found = dict(at.index.count(client_state))
    waiting = len(slice_.waiting)
    if waiting:
        found["INITIALIZED"] = found.get("INITIALIZED", 0) + waiting
    counts = sorted(found.items())
    controller = ""
    if slice_.number == 0 and slice_.specs[at.index.columns.read("spec", 0) or 0].config.controller:
        state = at.index.state_of(0)
        controller = client_state(state) if state is not None else ""
    return Tally(tuple(counts), controller)


Phase = tuple[bool, int, tuple[tuple[str, int], ...]]


def phase(slice_: Slice, index: Any) -> Phase | None:
    """None before any instance runs; then whether all have ended, how many are active where each
    end frees a grant for other slices, and how those ended that will not act any more.

    A slice that has begun all its instances uses no more of its grant than it has active ones: what
    it frees is granted to other slices by its tally, so each end is reported at once.
    """
    begun, active = False, 0
    for task, raw in index.classes.items() if index is not None else ():
        if task.state in ENDED:
            begun = True
        else:
            begun = begun or task.state == TaskStates.RUNNING
            active += raw.bit_count()
    if not begun:
        return None
    waiting = bool(slice_.closed and slice_.waiting)
    if not (active or waiting):
        return True, 0, tuple(sorted(index.count(client_state).items()))
    ends_free_grants = slice_.grant is not None and not waiting
    return False, active if ends_free_grants else 0, ()


def is_final(phase: Phase | None) -> bool:
    """Whether all have ended: how is part of the phase, and a tally tells no more than that."""
    return phase is not None and phase[0]


def report(slice_: Slice, at: At) -> tuple[Send, ...]:
    """The tally, for the job."""
    return (Send(slice_.job, SliceTally(at.position, slice_.number, tally(slice_, at))),)


def list_instances(slice_: Slice, query: ListInstances, at: At) -> tuple[InstanceView, ...]:
    """The requested instances that this slice has, ascending."""
    first = slice_.number * SLICE_SIZE
    wanted = Bits.span(max(query.start - first, 0), min(query.stop - first, slice_.count))
    found: dict[int, InstanceView] = {}
    for state, raw in at.index.split(wanted.raw & at.index.present):
        for member in Bits(raw):
            found[member] = _view(slice_, member, task=state, at=at)
    for row, members in zip(slice_.specs, slice_.closed, strict=False):
        for member in members & wanted:
            found[member] = _not_begun(slice_, member, config=row.config)
    return tuple(found[member] for member in sorted(found))


def _view(slice_: Slice, member: int, *, task: Task, at: At) -> InstanceView:
    def read(name: str) -> Any:
        return at.index.columns.read(name, member)

    code, because = why(task, at)
    notes = at.notes if at.notes is not None else WishNotes()
    since = read("since") or at.now
    waits = task.state == TaskStates.THROTTLED
    return InstanceView(
        instance=slice_.number * SLICE_SIZE + member,
        state=client_state(task),
        goal=task.goal,
        run=task.run,
        failures=task.failures,
        host=read("host") or "",
        created_at=read("created_at"),
        launched_at=read("launched_at"),
        started_at=read("started_at"),
        ended_at=read("ended_at"),
        outcome=read("outcome"),
        runs=read("runs") or (),
        config=slice_.specs[read("spec") or 0].config,
        code=code,
        because=because,
        lot=Key(read("lot") or ""),
        retry_at=since + throttle_s(task.failures) if waits else None,
        counts=notes.reasons if code in (HOST, NEVER) else (),
        counted_at=notes.reasons_at if code in (HOST, NEVER) and notes.reasons else None,
    )


def _not_begun(slice_: Slice, member: int, *, config: TaskConfig) -> InstanceView:
    return InstanceView(
        instance=slice_.number * SLICE_SIZE + member,
        state="INITIALIZED",
        goal=slice_.goal,
        run=1,
        failures=0,
        host="",
        created_at=None,
        launched_at=None,
        started_at=None,
        ended_at=None,
        outcome=None,
        runs=(),
        config=config,
        code=LIMIT,
        because="waits for others of its job to end: as many are active as may run at once",
    )


def why(task: Task, at: At) -> tuple[str, str]:
    """Why an instance has not reached its goal: a code and a text, "" if it runs or has ended.

    Why it waits in its pool is not known here: its lot answers that (`GetLot`).
    """
    notes: WishNotes = at.notes if at.notes is not None else WishNotes()
    if task.state in ENDED or task.state == TaskStates.RUNNING:
        return "", ""
    if task.state == TaskStates.THROTTLED:
        return RETRY, f"waits after failure {task.failures}"
    if task.state == TaskStates.KILLING:
        return LAUNCH, f"being stopped: {task.because}"
    if task.state != TaskStates.WAITING:
        return LAUNCH, "waits for its host to start it"
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

"""The history checker: each contradiction is named, and what is merely unknown is none.

Histories are written by hand, a line per operation. A checker that takes "unknown" for "did not
happen" would find faults in the second half of this file.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from peloton.actors.job.messages import (
    InstancesOrdered,
    JobCreated,
    JobDeleted,
    JobStopped,
    JobSummary,
    JobUpdated,
    JobView,
    StopRecord,
    job_key,
)
from peloton.actors.job.slice.task_config import TaskConfig
from peloton.actors.job.spec import JobSpec
from peloton.actors.job.stages import JobGoals, JobStates
from peloton.actors.respool.messages import pool_key
from peloton.chaos.cluster.world.history import (
    DELETED_S_MAX,
    ENDS_ITSELF,
    TIMED,
    Asked,
    Operation,
    faults,
)
from peloton.runtime.vocabulary import Absent, Refused

JOB, POOL = job_key("j"), pool_key("p")
NO = Refused("NO", "no")
MADE, STOPPED, GONE, ABSENT = JobCreated(JOB), JobStopped(((0, 2),)), JobDeleted(), Absent(JOB)
PART, ORDERED = JobStopped(((0, 1),)), InstancesOrdered(((0, 2),))
S = JobStates


def op(
    what: Asked, begun_s: float, ended_s: float | None = None, *, answer: Any = None
) -> Operation:
    """One operation; without an end it is unknown."""
    operation = Operation("c1", what, job=JOB, begun_s=begun_s)
    if ended_s is not None:
        operation.end(answer, ended_s)
    return operation


def summary(state: JobStates = S.RUNNING, **counts: int) -> JobSummary:
    """A line of a listing."""
    return JobSummary(
        job=JOB, name="j", owner="me", state=state, instances=2, pool=POOL, pool_path="/p",
        created_at=1.0, started_at=0.0, completed_at=0.0, updated_at=1.0, labels=(),
        job_type="batch", counts=tuple(counts.items()),
    )  # fmt: skip


def view(
    state: JobStates = S.RUNNING, *, version: int = 1, parts: tuple[int, ...] = (), **counts: int
) -> JobView:
    """A job as it was seen."""
    goal = JobGoals.KILLED if state in (S.KILLED, S.KILLING) else JobGoals.SUCCEEDED
    spec = JobSpec("j", "me", POOL, 2, TaskConfig())
    words = tuple((number, StopRecord(1.0)) for number in parts)
    line = summary(state, **counts)
    return JobView(line, spec, goal, version, slices=1, because="", part_stops=words)


def made(begun_s: float = 0, ended_s: float | None = 1, *, answer: Any = MADE) -> Operation:
    return op(Asked.CREATE, begun_s, ended_s, answer=answer)


def stop(begun_s: float, ended_s: float | None = None, *, answer: Any = STOPPED) -> Operation:
    return op(Asked.STOP, begun_s, ended_s, answer=answer)


def some(begun_s: float, ended_s: float | None = None, *, answer: Any = PART) -> Operation:
    return op(Asked.STOP_SOME, begun_s, ended_s, answer=answer)


def again(begun_s: float, ended_s: float, *, answer: Any = ORDERED) -> Operation:
    return op(Asked.AGAIN, begun_s, ended_s, answer=answer)


def update(begun_s: float, ended_s: float) -> Operation:
    return op(Asked.UPDATE, begun_s, ended_s, answer=JobUpdated(1, 2))


def labelled(seen: JobView, *, reason: str = "") -> JobView:
    """A job that may stop itself; with a reason, it did."""
    line = msgspec.structs.replace(seen.summary, labels=((ENDS_ITSELF[0], "x"),))
    record = StopRecord(1.0, "", reason) if reason else None
    return msgspec.structs.replace(seen, summary=line, stop=record)


def timed(state: JobStates) -> JobView:
    """A job whose runs are limited in time."""
    seen = view(state)
    line = msgspec.structs.replace(seen.summary, name=TIMED)
    return msgspec.structs.replace(seen, summary=line)


def service(seen: JobView) -> JobView:
    """A service."""
    return msgspec.structs.replace(
        seen, summary=msgspec.structs.replace(seen.summary, job_type="SERVICE")
    )


def delete(begun_s: float, ended_s: float | None = None, *, answer: Any = GONE) -> Operation:
    return op(Asked.DELETE, begun_s, ended_s, answer=answer)


def look(begun_s: float, answer: Any, *, ended_s: float | None = None) -> Operation:
    return op(Asked.GET, begun_s, begun_s + 0.5 if ended_s is None else ended_s, answer=answer)


def listed(begun_s: float, *lines: JobSummary) -> Operation:
    return op(Asked.LIST, begun_s, begun_s + 0.5, answer=lines)


WRONG: dict[str, tuple[str, list[Operation]]] = {
    "acknowledged, then absent": ("R1", [made(), look(2, ABSENT)]),
    "acknowledged, then not listed": ("R1", [made(), listed(2)]),
    "refused, yet there": ("R2", [made(answer=NO), look(2, view())]),
    "refused, yet listed": ("R2", [made(answer=NO), listed(2, summary())]),
    "there before it was asked for": ("R2", [look(0, view()), made(5, 6)]),
    "listed, and nobody knows it": ("R2", [listed(2, summary())]),
    "deleted, yet there": (
        "R1", [made(), delete(2, 3), look(4 + DELETED_S_MAX, view())]),
    "a version falls": (
        "R6", [made(), some(1, 2), look(3, view(version=2, parts=(0,))),
        look(4, view(parts=(0,)))]),
    "what has ended runs": ("R13", [made(), look(2, view(S.SUCCEEDED)), look(3, view())]),
    "what has ended is listed as another": (
        "R13", [made(), look(2, view(S.SUCCEEDED)), listed(3, summary(S.FAILED))]),
    "successes vanish": (
        "R6", [made(), look(2, view(SUCCEEDED=2)), look(3, view(SUCCEEDED=1))]),
    "stopped, yet it runs": ("R1", [made(), stop(2, 3), look(4, view())]),
    "stopped, yet it is listed as running": ("R1", [made(), stop(2, 3), listed(4, summary())]),
    "a part is stopped, and nobody knows": ("R1", [made(), some(2, 3), look(4, view())]),
    "killed by nobody": ("R2", [made(), look(2, view(S.KILLED))]),
    "killing before the stop": ("R2", [made(), look(2, view(S.KILLING)), stop(3, 4)]),
    "a refused stop stops": (
        "R2", [made(), stop(2, 3, answer=NO), look(4, view(S.KILLED))]),
    "one stop, two effects": (
        "R6", [made(), stop(2, 3), look(4, view(S.KILLING, version=3))]),
    "a part that nobody stopped": ("R2", [made(), look(2, view(parts=(0,)))]),
    "what has ended runs after an update": (
        "R13", [made(), update(1, 2), look(2, view(S.SUCCEEDED)), look(3, view())]),
    "stopped, and an update makes it run": (
        "R1", [made(), stop(2, 3), update(3, 4), look(5, view())]),
    "a refused start starts": (
        "R1", [made(), stop(2, 3), again(3, 4, answer=NO), look(5, view())]),
    "a version falls by a start": (
        "R6", [made(), stop(1, 2), look(3, view(S.KILLING, version=2)), again(4, 5),
        look(6, view(version=1))]),
    "it gives no reason why it stopped itself": (
        "R2", [made(), look(2, labelled(view(S.KILLED)))]),
    "a service has succeeded": ("R33", [made(), look(2, service(view(S.SUCCEEDED)))]),
    "an instance of a service has ended": (
        "R33", [made(), look(2, service(view(SUCCEEDED=1)))]),
    "one start, two effects": (
        "R6", [made(), again(2, 3), look(4, service(view(version=3)))]),
    "refused once and for all, yet there": (
        "R2", [made(answer=NO), look(2, service(view()))]),
    "a job with a limit is stopped as a whole": ("R2", [made(), look(2, timed(S.KILLING))]),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_contradiction_is_found(name: str) -> None:
    rule, history = WRONG[name]
    found = faults(history)
    assert found and all(f": {rule} " in line or line.startswith(rule) for line in found), found


RIGHT: dict[str, list[Operation]] = {
    "an unknown creation happened": [made(ended_s=None), look(2, view())],
    "an unknown creation did not": [made(ended_s=None), look(2, ABSENT), look(3, view())],
    "an unknown stop happened": [made(), stop(2), look(9, view(S.KILLED, version=2))],
    "a service is stopped and started": [
        made(), stop(2, 3), again(4, 5), look(6, service(view(version=3)))],
    "a stopped service keeps what its instances had ended as": [
        made(), stop(2, 3), look(4, service(view(S.KILLED, version=2, SUCCEEDED=1)))],
    "an instance of a service had ended, and runs again": [
        made(), look(2, service(view(SUCCEEDED=1))), look(3, service(view())), stop(4, 5)],
    "refused, and another copy of the request is not": [
        made(answer=msgspec.structs.replace(NO, again=True)), look(2, view())],
    "an unknown stop did not": [made(), stop(2), look(9, view())],
    "an unknown deletion happened": [made(), delete(2), look(3, ABSENT), listed(4)],
    "an unknown deletion did not": [made(), delete(2), look(3000, view())],
    "an unknown stop of a part": [made(), some(2), look(9, view(parts=(0,)))],
    "looks that overlap see either": [
        made(), look(2, view(S.SUCCEEDED), ended_s=4), look(3, view(), ended_s=5)],
    "a look beside the creation": [made(0, 3), look(1, ABSENT), look(1, view())],
    "a look beside the stop": [made(), stop(2, 5), look(3, view()), look(4, view(S.KILLING))],
    "it had ended before the stop": [made(), stop(2, 3), look(4, view(S.SUCCEEDED))],
    "deleted, and made again by a late try": [
        made(0, 20), look(2, view(S.SUCCEEDED, SUCCEEDED=2)), delete(3, 4), look(5, ABSENT),
        look(21, view()), look(22 + DELETED_S_MAX, view())],
    "a part and then the whole": [
        made(), some(2, 3), stop(4, 5), look(6, view(S.KILLING, version=2))],
    "two stops, one of them too late": [
        made(), stop(2, 3), stop(2, 4), look(6, view(S.KILLING, version=2))],
    "started after the stop": [made(), stop(2, 3), again(4, 5), look(6, view(version=2))],
    "a refused start may have happened": [
        made(), stop(2, 3), again(4, 5, answer=Refused("NO", "no", again=True)),
        look(6, view(version=2))],
    "it says why it stopped itself": [
        made(), look(2, labelled(view(S.KILLED, version=2), reason="late"))],
    "runs were killed for their time": [made(), look(2, timed(S.KILLED))],
    "listed and seen": [made(), listed(2, summary()), look(3, view(S.SUCCEEDED)), listed(4,
        summary(S.SUCCEEDED))],
}  # fmt: skip


@pytest.mark.parametrize("name", RIGHT)
def test_what_may_be_is_no_fault(name: str) -> None:
    assert faults(RIGHT[name]) == []


def test_what_has_ended_may_leave_the_listings_and_what_goes_on_may_not() -> None:
    ended = [made(), listed(2), look(3, view(S.SUCCEEDED))]
    assert faults(ended, may_leave=True) == [] != faults(ended)
    goes_on = [made(), listed(2), look(3, view())]
    assert [line for line in faults(goes_on, may_leave=True) if "R1" in line]
    looked = [made(), look(2, ABSENT), look(3, view(S.SUCCEEDED))]
    assert faults(looked, may_leave=True), "who asks for it by name finds it, ended or not"


def test_who_looks_late_is_compared_with_all_who_heard_before() -> None:
    """The order is that of the answers, not that in which they were noted."""
    seen = [look(2, view(SUCCEEDED=1)), look(3, view(SUCCEEDED=2)), look(1, view(SUCCEEDED=0))]
    history = [made(0, 0.5), *seen, look(9, view(SUCCEEDED=1))]
    assert len(faults(history)) == 1
    other = job_key("k")
    line = msgspec.structs.replace(summary(), job=other)
    assert len(faults([*history, listed(10, line, summary(SUCCEEDED=2))])) == 2

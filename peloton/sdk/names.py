"""Jobs as people name them: by id, by name, or by the beginning of an id.

A text for which nothing is found stays as it is, so that the server's own answer is given. Of
several jobs of a name those of the caller are meant, if there are any; of these the newest that is
active, else the newest, and `NAME~1` is the one before it. For a call that changes something,
several active jobs are refused, whoever owns them, and listed. A beginning of an id has to be one
job's alone.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message

from peloton.sdk.calls import Awaited
from peloton.sdk.errors import BadSpec, NotFound, Unsupported
from peloton.sdk.jobs import JOBS_MAX, TERMINAL_STATES, JobQuery, Jobs, state_name_of

ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII | re.IGNORECASE)
PREFIX = re.compile(r"[0-9a-f-]{4,35}", re.ASCII | re.IGNORECASE)
CHANGES_MIN = 8
"""As much of an id as tables show is what a call that changes a job needs: a name that is not there
any more may look like less of another job's."""
SHOWN_MAX = 10
BEFORE = re.compile(r"(.+)~(\d{1,4})", re.ASCII)
"""`NAME~K`: the job so many before the newest of the name."""


class AmbiguousName(BadSpec):
    """Several jobs are meant by what was typed."""


class TooFarBack(NotFound):
    """There are fewer jobs of a name than the typed name counts back."""


class JobNaming(NamedTuple):
    """How a client names jobs.

    `user` is empty if not known. `note` is told which of several jobs was meant.
    """

    jobs: Jobs[Awaited]
    user: str = ""
    note: Callable[[str], object] = lambda text: None


def is_id(text: str) -> bool:
    """Return whether the text is a whole id, for which the cluster need not be asked."""
    return ID.fullmatch(text) is not None


async def resolved(caller: JobNaming, typed: str, *, changes: bool, latest: bool = False) -> str:
    """Return the id of the job with this id, name, or beginning of the id.

    `latest`: the newest is meant. Raises AmbiguousName, TooFarBack.
    """
    if not typed or is_id(typed):
        return typed
    try:
        found: Sequence[Any] = await named(caller.jobs, typed)
        if found:
            return _meant(caller, typed, found=found, changes=changes, latest=latest)
        found = await _before(caller, typed)
        if not found and (not changes or len(typed) >= CHANGES_MIN):
            found = await _beginning(caller.jobs, typed)
    except TooFarBack:
        raise
    except (NotFound, Unsupported):
        return typed
    if len(found) > 1:
        raise AmbiguousName(_several(typed, found))
    return str(found[0].id.value) if found else typed


def _own(caller: JobNaming, found: Sequence[Any]) -> Sequence[Any]:
    """Return the jobs of the caller, or all if none is."""
    return [
        one for one in found if caller.user in (one.owner, one.owningTeam) and caller.user
    ] or found


def _is_active(job: Any) -> bool:
    return state_name_of(job) not in TERMINAL_STATES


def _meant(
    caller: JobNaming, typed: str, *, found: Sequence[Any], changes: bool, latest: bool
) -> str:
    """Return which of the jobs of a name is meant; a note says so if there are several."""
    own = _own(caller, found)
    active = [one for one in own if _is_active(one)]
    if latest:
        active = [*own[:1]]
    elif changes and sum(map(_is_active, found)) > 1:
        text = _several(typed, found)
        raise AmbiguousName(f"{text}; --latest is the newest, {typed}~1 the one before")
    one = (active or own)[0]
    if len(found) > 1:
        which = "the newest that is active" if active and not latest else "the newest"
        whose = " of yours" if len(own) < len(found) else ""
        caller.note(
            f"{len(found)} jobs are called {typed}: {one.id.value} is meant, {which}{whose}"
        )
    return str(one.id.value)


async def _before(caller: JobNaming, typed: str) -> Sequence[Any]:
    """Return the job that `NAME~K` means; nothing for any other text."""
    parts = BEFORE.fullmatch(typed)
    if parts is None:
        return []
    found = _own(caller, await named(caller.jobs, parts[1]))
    if found and int(parts[2]) >= len(found):
        raise TooFarBack(f"{typed}: {len(found)} jobs are called {parts[1]}")
    return found[int(parts[2]) :][:1]


async def named(jobs: Jobs[Awaited], typed: str) -> list[Any]:
    """Return the jobs of exactly this name, the newest first."""
    found = [one for one in await jobs.with_name_like(typed) if one.name == typed]
    return sorted(found, key=lambda one: one.runtime.creationTime, reverse=True)


async def _beginning(jobs: Jobs[Awaited], typed: str) -> list[Any]:
    if PREFIX.fullmatch(typed) is None:
        return []
    found = (await jobs.query(JobQuery(limit=JOBS_MAX, total_max=JOBS_MAX))).results
    return [one for one in found if one.id.value.startswith(typed.lower())]


def _several(typed: str, found: Sequence[Any]) -> str:
    jobs = [
        f"{one.id.value} ({state_name_of(one)}, {one.runtime.creationTime.split('.')[0]}Z)"
        for one in found[:SHOWN_MAX]
    ]
    more = len(found) - SHOWN_MAX
    jobs += [f"and {more} more"] if more > 0 else []
    return f"{len(found)} jobs are meant by {typed!r}, name one by its id: {', '.join(jobs)}"


# ---- in requests ----


async def fill(caller: JobNaming, request: Any, *, changes: bool) -> None:
    """Put ids where a request names existing jobs otherwise."""
    for holder, field in _places(request.DESCRIPTOR):
        part = getattr(request, holder) if holder else request
        if not isinstance(part, Message):
            continue  # several, as in filters: those say it themselves
        typed = getattr(part, field)
        if typed and not is_id(typed):
            setattr(part, field, await resolved(caller, typed, changes=changes))


@functools.cache
def _places(request: Descriptor) -> tuple[tuple[str, str], ...]:
    """Return where a request has the id of a job: a field with its part, or alone.

    The id of a job to be created is left out.
    """
    return () if request.name in ("CreateRequest", "CreateJobRequest") else tuple(_found(request))


def _found(request: Descriptor) -> Iterator[tuple[str, str]]:
    for field in request.fields:
        if field.message_type is not None and field.message_type.name == "JobID":
            yield field.name, "value"
        elif field.name == "job_id" and field.type == field.TYPE_STRING:
            yield "", field.name

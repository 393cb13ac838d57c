"""Jobs as people name them: by id, by name, or by the beginning of an id.

Turns what was typed where an id stands into an id. What nothing is found for stays as it is, so
that the server's own answer is given. Of several jobs of a name the newest that is active is meant,
else the newest, and `NAME~1` is the one before it. Must not choose for a command that changes
something where several are active: it lists them. A beginning of an id has to be one job's alone.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from peloton.cli.job_rows import time_of
from peloton.cli.output import hint
from peloton.cli.session import connected
from peloton.sdk.errors import BadSpec, NotFound, Unsupported

if TYPE_CHECKING:
    from peloton.sdk.client import Client

ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII | re.IGNORECASE)
PREFIX = re.compile(r"[0-9a-f-]{4,35}", re.ASCII | re.IGNORECASE)
JOBS_MAX = 10_000
"""The newest jobs, among which the beginning of an id is searched."""
SHOWN_MAX = 10
BEFORE = re.compile(r"(.+)~(\d{1,4})", re.ASCII)
"""`NAME~K`: the job so many before the newest of the name."""
JOB_KINDS = ("job", "task", "slice", "lot")
"""Actors whose keys begin with a job."""


JobIds = tuple[str, ...]


class AmbiguousName(BadSpec):
    """Several jobs are meant by what was typed."""


class TooFarBack(NotFound):
    """There are fewer jobs of a name than what was typed counts back."""


def is_id(text: str) -> bool:
    """Whether it is a whole id, for which nobody needs to be asked."""
    return ID.fullmatch(text) is not None


def job_ids(typed: Sequence[str], *, changes: bool, latest: bool) -> JobIds:
    """The ids of jobs that were typed by id, name or beginning of the id, for a command that
    `changes` them; `latest`: the newest of each name is meant."""
    if all(is_id(one) for one in typed):
        return tuple(typed)  # without a connection
    with connected() as peloton:
        return tuple(id_of(peloton, one, changes=changes, latest=latest) for one in typed)


def id_of(peloton: Client, typed: str, *, changes: bool = True, latest: bool = False) -> str:
    """The id of the job with this id, name, or beginning of the id."""
    if not typed or is_id(typed):
        return typed
    try:
        found = named(peloton, typed)
        if found:
            return _meant(typed, found, changes=changes, latest=latest)
        found = _before(peloton, typed) or beginning(peloton, typed)
    except TooFarBack:
        raise
    except (NotFound, Unsupported):
        return typed
    if len(found) > 1:
        raise AmbiguousName(several(typed, found))
    return str(found[0].id.value) if found else typed


def _meant(typed: str, found: Sequence[Any], *, changes: bool, latest: bool) -> str:
    """Which of the jobs of a name; a note says so where there are several."""
    from peloton.sdk.jobs import TERMINAL_STATES, state_name_of

    active = [one for one in found if state_name_of(one) not in TERMINAL_STATES]
    if latest:
        active = [*found[:1]]
    elif changes and len(active) > 1:
        text = several(typed, found)
        raise AmbiguousName(f"{text}; --latest is the newest, {typed}~1 the one before")
    one = (active or found)[0]
    if len(found) > 1:
        which = "the newest that is active" if active and not latest else "the newest"
        hint(f"{len(found)} jobs are called {typed}: {one.id.value} is meant, {which}")
    return str(one.id.value)


def _before(peloton: Client, typed: str) -> list[Any]:
    """The job that `NAME~K` means; none where it is something else."""
    parts = BEFORE.fullmatch(typed)
    if parts is None:
        return []
    found = named(peloton, parts[1])
    if found and int(parts[2]) >= len(found):
        raise TooFarBack(f"{typed}: {len(found)} jobs are called {parts[1]}")
    return found[int(parts[2]) :][:1]


def key_of(peloton: Client, typed: str) -> str:
    """The key of an actor, with the id of the job that it names; a key without a kind is a job."""
    kind, slash, rest = typed.partition("/")
    if not slash:
        return f"job/{id_of(peloton, typed, changes=False)}"
    if kind not in JOB_KINDS:
        return typed
    if kind == "job":
        return f"job/{id_of(peloton, rest, changes=False)}"
    job, slash, rest = rest.partition("/")
    return f"{kind}/{id_of(peloton, job, changes=False)}{slash}{rest}"


def named(peloton: Client, typed: str) -> list[Any]:
    """The jobs of exactly this name, the newest first."""
    found = [one for one in with_name_like(peloton, typed) if one.name == typed]
    return sorted(found, key=lambda one: one.runtime.creationTime, reverse=True)


def with_name_like(peloton: Client, part: str) -> Sequence[Any]:
    """The newest jobs whose names contain this, as the server finds them."""
    from peloton.sdk.client import JobQuery

    found: Sequence[Any] = peloton.jobs.query(
        JobQuery(name=part, limit=JOBS_MAX, total_max=JOBS_MAX)
    ).results
    return found


def beginning(peloton: Client, typed: str) -> list[Any]:
    from peloton.sdk.client import JobQuery

    if PREFIX.fullmatch(typed) is None:
        return []
    wanted = JobQuery(limit=JOBS_MAX, total_max=JOBS_MAX)
    found = peloton.jobs.query(wanted).results
    return [one for one in found if one.id.value.startswith(typed.lower())]


def several(typed: str, found: Sequence[Any]) -> str:
    from peloton.sdk.render import enum_name

    jobs = [
        f"{one.id.value} ({enum_name(one.runtime, 'state')}, {time_of(one.runtime.creationTime)})"
        for one in found[:SHOWN_MAX]
    ]
    more = len(found) - SHOWN_MAX
    jobs += [f"and {more} more"] if more > 0 else []
    return f"{len(found)} jobs are meant by {typed!r}, name one by its id: {', '.join(jobs)}"

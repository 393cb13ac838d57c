"""Jobs as people name them: by id, by name, or by the beginning of an id.

Turns what was typed where an id stands into an id. What nothing is found for stays as it is, so
that the server's own answer is given. Must not choose among several: it lists them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from peloton.cli.job_rows import time_of
from peloton.cli.session import connected
from peloton.sdk.errors import BadSpec, NotFound, Unsupported

if TYPE_CHECKING:
    from peloton.sdk.client import Client

ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII | re.IGNORECASE)
PREFIX = re.compile(r"[0-9a-f-]{4,35}", re.ASCII | re.IGNORECASE)
JOBS_MAX = 10_000
"""The newest jobs, among which the beginning of an id is searched."""
SHOWN_MAX = 10
JOB_KINDS = ("job", "task", "slice", "lot")
"""Actors whose keys begin with a job."""


class AmbiguousName(BadSpec):
    """Several jobs are meant by what was typed."""


def is_id(text: str) -> bool:
    """Whether it is a whole id, for which nobody needs to be asked."""
    return ID.fullmatch(text) is not None


def job_ids(typed: Sequence[str]) -> tuple[str, ...]:
    """The ids of jobs that were typed by id, name or beginning of the id."""
    if all(is_id(one) for one in typed):
        return tuple(typed)  # without a connection
    with connected() as peloton:
        return tuple(id_of(peloton, one) for one in typed)


def id_of(peloton: Client, typed: str) -> str:
    """The id of the job with this id, name, or beginning of the id."""
    if not typed or is_id(typed):
        return typed
    try:
        found = named(peloton, typed) or beginning(peloton, typed)
    except (NotFound, Unsupported):
        return typed
    if len(found) > 1:
        raise AmbiguousName(several(typed, found))
    return str(found[0].id.value) if found else typed


def key_of(peloton: Client, typed: str) -> str:
    """The key of an actor, with the id of the job that it names; a key without a kind is a job."""
    kind, slash, rest = typed.partition("/")
    if not slash:
        return f"job/{id_of(peloton, typed)}"
    if kind not in JOB_KINDS:
        return typed
    if kind == "job":
        return f"job/{id_of(peloton, rest)}"
    job, slash, rest = rest.partition("/")
    return f"{kind}/{id_of(peloton, job)}{slash}{rest}"


def named(peloton: Client, typed: str) -> list[Any]:
    """The jobs of exactly this name."""
    return [one for one in with_name_like(peloton, typed) if one.name == typed]


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

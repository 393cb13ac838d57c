"""Jobs as people type them, where an argument is a job.

What was typed becomes an id, as `sdk.names` finds it; if several jobs match, the chosen one is
printed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from peloton.cli.shared.options import CliSettings
from peloton.cli.shared.output import hint
from peloton.cli.shared.session import connected
from peloton.cli.shared.table import SHORT_ID

if TYPE_CHECKING:
    from peloton.sdk.client import Client

ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII | re.IGNORECASE)
WORD = re.compile(r"[\w.,+@%=/-]{1,200}")
"""What no shell takes apart."""
STATE_WORD = re.compile(r"succeeded|failed|killed|ended", re.ASCII | re.IGNORECASE)
COMPLETION_S, COMPLETED_MAX = 2.0, 1000
JOB_KINDS = ("job", "task", "slice", "lot")
"""Actors whose keys begin with a job."""


JobIds = tuple[str, ...]


def is_id(text: str) -> bool:
    """Return whether the text is a whole id, for which the cluster need not be asked."""
    return ID.fullmatch(text) is not None


def job_ids(typed: Sequence[str], *, changes: bool, latest: bool) -> JobIds:
    """Return the ids of jobs that were typed by id, name or beginning of the id.

    For a command that `changes` them; `latest`: the newest of each name is meant.
    """
    if all(is_id(one) for one in typed):
        return tuple(typed)  # without a connection
    with connected() as peloton:
        return tuple(id_of(peloton, one, changes=changes, latest=latest) for one in typed)


def id_of(peloton: Client, typed: str, *, changes: bool = True, latest: bool = False) -> str:
    """Return the id of the job with this id, name, or beginning of the id."""
    if not typed or is_id(typed):
        return typed
    return peloton.job_id(typed, changes=changes, latest=latest, note=hint)


def after_parts(typed: str) -> tuple[str, str, str]:
    """Return the job, the colon and the state; of a name with colons only a known word is the
    state."""
    job, colon, end = typed.rpartition(":")
    has_state = is_id(job) or (job and STATE_WORD.fullmatch(end))
    return (job, colon, end) if has_state else (typed, "", "")


def active_names(beginning: str) -> list[str]:
    """Return names of active jobs with this beginning, for a shell.

    For a name that a shell would take apart, the beginning of the id. Nothing if the cluster does
    not answer soon: a shell shows no error.
    """
    from peloton.sdk.errors import PelotonError
    from peloton.sdk.jobs import ACTIVE_STATES, JobQuery

    settings = click.get_current_context().ensure_object(CliSettings)
    settings.values["timeout_s"] = COMPLETION_S
    wanted = JobQuery(states=ACTIVE_STATES, limit=COMPLETED_MAX, total_max=COMPLETED_MAX)
    try:
        with connected() as peloton:
            found = peloton.jobs.query(wanted).results
    except (PelotonError, click.ClickException, OSError):
        return []
    names = (one.name if WORD.fullmatch(one.name) else one.id.value[:SHORT_ID] for one in found)
    return sorted({name for name in names if name.startswith(beginning)})


def key_of(peloton: Client, typed: str) -> str:
    """Return the key of an actor, with the id of the job that it names; a key without a kind is
    a job."""
    kind, slash, rest = typed.partition("/")
    if not slash:
        return f"job/{id_of(peloton, typed, changes=False)}"
    if kind not in JOB_KINDS:
        return typed
    if kind == "job":
        return f"job/{id_of(peloton, rest, changes=False)}"
    job, slash, rest = rest.partition("/")
    return f"{kind}/{id_of(peloton, job, changes=False)}{slash}{rest}"

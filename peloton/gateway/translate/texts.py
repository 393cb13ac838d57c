"""Times, names and ids as texts. Pure."""

from __future__ import annotations

import functools
import re
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import zip_longest

from peloton.actors.job.messages import job_key
from peloton.actors.job.slice.usage import USAGE_KINDS
from peloton.runtime.vocabulary import Key

ID_NAMESPACE = uuid.UUID("6f1f0a1e-7d0b-5b3e-9f0e-0c8d1d9b7c11")
"""Of ids that are derived; it can never change."""
TIMES_KEPT_MAX = 8192
"""Times whose texts are kept: the same jobs and tasks are read again and again."""
_CANONICAL = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII | re.IGNORECASE)


@functools.lru_cache(TIMES_KEPT_MAX)
def rfc3339(at_s: float | None) -> str:
    """Return a time as RFC 3339 in UTC with nine digits; empty for None."""
    if not at_s:
        return ""
    moment = datetime.fromtimestamp(at_s, UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond:06d}000Z"


def nanoseconds(at_s: float | None) -> int:
    """Return nanoseconds since the epoch."""
    return round((at_s or 0.0) * 1_000_000) * 1000


def wire_usage(usage: Sequence[float]) -> dict[str, float]:
    """Return the usage of runs by the names that clients know; empty if nothing was used."""
    return dict(zip_longest(USAGE_KINDS, usage, fillvalue=0.0)) if usage else {}


def client_name(key: Key) -> str:
    """Return the name of an entity for clients: the key without its kind."""
    return key.partition("/")[2]


def pod_name(job_id: str, instance: int, *, run: int | None = None) -> str:
    """Return `JOB-INSTANCE`, or `JOB-INSTANCE-RUN`."""
    return f"{job_id}-{instance}" if run is None else f"{job_id}-{instance}-{run}"


def canonical(text: str) -> str | None:
    """Return a client's id in its canonical form; None if it is no UUID.

    Two spellings of one id would be two jobs, so braces and missing dashes are no UUID here.
    """
    return text.lower() if _CANONICAL.fullmatch(text) else None


def known_job(text: str) -> Key | None:
    """Return the key of a job that a client names; None if no job can have that id."""
    found = canonical(text)
    return job_key(found) if found is not None else None


def derived(request_key: str, kind: str) -> str:
    """Return the id of what a request key creates: the same key always gives the same id."""
    return str(uuid.uuid5(ID_NAMESPACE, f"{kind}/{request_key}"))


def job_of_update(update_id: str) -> str:
    """Return the id of the job of an update; "" if no update has this id."""
    job_id, _, number = update_id.rpartition("-")
    return job_id if number.isascii() and number.isdigit() and canonical(job_id) else ""


def pod_parts(name: str) -> tuple[str, str]:
    """Return the id of the job of a pod, and the number of its instance as text; "" for what is
    neither.

    The id is "" if no job has it; then the number says nothing.
    """
    job_id, _, number = name.rpartition("-")
    return canonical(job_id) or "", number


def job_of_volume(volume: str) -> str:
    """Return the id of the job of a volume; "" if no volume has this name."""
    return job_of_update(volume.partition("@")[0])  # both are named by their job and a number

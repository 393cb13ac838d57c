"""Labels of a job by which clients say what the wire has no field for.

The labels `peloton.after`, `peloton.deadline`, `peloton.throttle`, `peloton.name_unique`,
`peloton.notify`, `peloton.gang`, `peloton.daemon.first`, `peloton.strategy`,
`peloton.healthy_after` and `peloton.workflow.progress_deadline` become fields of the spec; all
others are the client's own. Whether other jobs exist, which URLs the operator allows, and which
strategies are installed is checked elsewhere.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from peloton.actors.job.name.messages import NAME_LENGTH_MAX
from peloton.actors.job.spec import (
    DAEMON_FIRST_LABEL,
    GANG_LABEL,
    HEALTHY_LABEL,
    INSTANCES_MAX,
    PROGRESS_LABEL,
    After,
    Deadline,
    Notify,
    Throttle,
)
from peloton.gateway.translate.bad_field import BadField
from peloton.gateway.translate.strategy_choice import STRATEGY_LABEL
from peloton.gateway.translate.texts import known_job
from peloton.settings.notify import url_parts

AFTER, DEADLINE, UNIQUE = "peloton.after", "peloton.deadline", "peloton.name_unique"
THROTTLE = "peloton.throttle"
NOTIFY = "peloton.notify"
GANG_RESTARTS = {"restart-together": True, "retry-alone": False}
"""Values of the label of gangs, and whether they restart as one."""
AFTER_MAX = 100
"""Jobs that one job may wait for."""
ANY_END = "ENDED"
AFTER_STATES = ("SUCCEEDED", "FAILED", "KILLED", ANY_END)
DEADLINE_S_MAX = 10 * 366 * 86_400.0
"""Ten years: whatever is longer is meant to be none."""
_PIECE = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)", re.ASCII)
_RATE = re.compile(r"(\d{1,9})/([smh])", re.ASCII)
_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


def fields_of(labels: Iterable[Any], *, name: str) -> dict[str, Any]:
    """Return fields of the spec of a job with these labels and this name; raises BadField."""
    found: dict[str, Any] = {}
    for at, label in enumerate(labels):
        parser = _PARSERS.get(label.key)
        if parser is None:
            continue
        field, parse = parser
        try:
            if field in found:
                raise ValueError("is given twice")
            found[field] = parse(label.value)
            if field == "unique" and found[field]:
                _check_name(name)
        except ValueError as error:
            raise BadField(f"config.labels[{at}]", f"{label.key}: {error}") from None
    return found


def _after(text: str) -> tuple[After, ...]:
    """Parse `JOB[:STATE]`, several separated by commas."""
    found: dict[str, After] = {}
    for part in text.split(","):
        job_id, _, state = part.strip().partition(":")
        job = known_job(job_id)
        if job is None:
            raise ValueError(f"{job_id!r} is not the id of a job, which is a UUID")
        state = state.upper() or AFTER_STATES[0]
        if state not in AFTER_STATES:
            raise ValueError(f"{state!r} is not one of {', '.join(AFTER_STATES)}")
        if job in found:
            raise ValueError(f"job {job_id} is named twice")
        found[job] = After(job, state)
    if len(found) > AFTER_MAX:
        raise ValueError(f"{len(found)} jobs, the limit is {AFTER_MAX}")
    return tuple(found.values())


def _deadline(text: str) -> Deadline:
    """Parse a length of time from the creation (`2h`, `1h30m`), or a moment of RFC 3339."""
    after_s = _seconds(text)
    if after_s is not None:
        return Deadline(text, after_s=after_s)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or "T" not in text.upper() or moment.tzinfo is None:
        form = "a length of time such as 90s or 2h30m, or a moment such as 2030-01-31T18:00:00Z"
        raise ValueError(f"{text!r} is not {form}")
    return Deadline(text, at=max(moment.timestamp(), math.ulp(0.0)))


def _seconds(text: str) -> float | None:
    """Return a length of time in seconds; None if the text is none."""
    pieces = _PIECE.findall(text)
    if not pieces or "".join(number + unit for number, unit in pieces) != text:
        return None
    length_s = math.fsum(float(number) * _UNITS_S[unit] for number, unit in pieces)
    if not 0 < length_s <= DEADLINE_S_MAX:
        raise ValueError(f"{text!r} is not above 0 and at most {DEADLINE_S_MAX:g} s")
    return length_s


def _length_s(text: str) -> float:
    found = _seconds(text)
    if found is None:
        raise ValueError(f"{text!r} is not a length of time such as 90s or 10m")
    return found


def _throttle(text: str) -> Throttle:
    """Parse a number of starts per second, minute or hour."""
    found = _RATE.fullmatch(text)
    count = int(found[1]) if found else 0
    if found is None or not 1 <= count <= INSTANCES_MAX:
        form = f"N/s, N/m or N/h with a whole N from 1 to {INSTANCES_MAX}, such as 10/s"
        raise ValueError(f"{text!r} is not {form}")
    return Throttle(text, count, _UNITS_S[found[2]])


def _true(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError(f"{text!r} is neither true nor false")
    return text == "true"


def _notify(text: str) -> Notify:
    """Parse `URL`, or `URL STATE,STATE`."""
    url, _, wanted = text.partition(" ")
    url_parts(url)
    states = [state.upper() for state in wanted.replace(" ", "").split(",")] if wanted else []
    for state in states:
        if state not in AFTER_STATES:
            raise ValueError(f"{state!r} is not one of {', '.join(AFTER_STATES)}")
    if ANY_END in states:
        return Notify(url)
    return Notify(url, tuple(dict.fromkeys(states)))


def _gang(text: str) -> bool:
    if text not in GANG_RESTARTS:
        raise ValueError(f"{text!r} is not one of {', '.join(GANG_RESTARTS)}")
    return GANG_RESTARTS[text]


def _strategy(text: str) -> str:
    """Return the name of a strategy; case does not count."""
    if not text.strip():
        raise ValueError("names no strategy")
    return text.strip().lower()


def _check_name(name: str) -> None:
    if not name or len(name) > NAME_LENGTH_MAX or not name.isprintable():
        text = f"the job needs a name of 1 to {NAME_LENGTH_MAX} printable characters"
        raise ValueError(text)


_PARSERS: dict[str, tuple[str, Callable[[str], Any]]] = {
    AFTER: ("after", _after),
    DEADLINE: ("deadline", _deadline),
    THROTTLE: ("throttle", _throttle),
    UNIQUE: ("unique", _true),
    NOTIFY: ("notify", _notify),
    GANG_LABEL: ("gang_together", _gang),
    DAEMON_FIRST_LABEL: ("room_first", _true),
    STRATEGY_LABEL: ("strategy", _strategy),
    PROGRESS_LABEL: ("progress_s", _length_s),
    HEALTHY_LABEL: ("healthy_after_s", _length_s),
}

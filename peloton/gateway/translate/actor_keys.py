"""The keys of actors as clients name them: `job/JOB`, `task/JOB/INSTANCE`, `host/NAME`.

The text of a client becomes the key under which the actor is stored: ids in their canonical form, a
task as a member of its crowd. Whether there is such an actor is checked elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import NamedTuple
from urllib.parse import quote

from peloton.actors.host.inventory.messages import inventory_key
from peloton.actors.job.messages import job_key
from peloton.actors.job.slice.messages import slice_key
from peloton.actors.respool.lot.messages import lot_key
from peloton.actors.respool.messages import pool_key
from peloton.actors.schedule.messages import schedule_key
from peloton.actors.task.messages import SLICE_SIZE, crowd_key
from peloton.gateway.translate.texts import canonical
from peloton.runtime.core.principal import Principal
from peloton.runtime.vocabulary import Key, key

KEY_LENGTH_MAX = 300
NAME_LENGTH_MAX = 200
EXTENSION_NAME = re.compile(rf"[^/\s\x00-\x1f\x7f]{{1,{NAME_LENGTH_MAX}}}")
SCHEDULE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", re.ASCII)
_OWNED_NAME = re.compile(rf"(?:[^/:]+:)?{SCHEDULE_NAME.pattern}", re.ASCII)
DIGITS_MAX = 10
"""As the greatest uint32, of which all numbers in keys are."""
NUMBER_MAX = (1 << 32) - 1


class BadKey(ValueError):
    """A text that can be the key of no actor."""


class ActorKey(NamedTuple):
    """The key of an entity, and of a crowd also which member."""

    key: Key
    member: int | None = None


def parse_key(text: str, *, extensions: Collection[str] = ()) -> ActorKey:
    """Return the key that a client names; raises `BadKey`. `extensions`: kinds beside ours."""
    if len(text) > KEY_LENGTH_MAX:
        raise BadKey(f"{len(text)} characters, the limit is {KEY_LENGTH_MAX}")
    kind, _, rest = text.partition("/")
    if kind in extensions and rest:
        return ActorKey(extension_key(kind, rest))
    form = FORMS.get(kind)
    if form is None or not rest:
        raise BadKey(f"{text!r} is not KIND/NAME; kinds: {', '.join((*FORMS, *extensions))}")
    parts = rest.split("/")
    found = form.parse(*parts) if len(parts) == form.names.count("/") + 1 else None
    if found is None:
        raise BadKey(f"{text!r} is not {kind}/{form.names}")
    return found


def extension_key(kind: str, name: str) -> Key:
    """Return the key of an actor of an extension's kind. Raises BadKey."""
    if EXTENSION_NAME.fullmatch(name) is None:
        raise BadKey(f"{name!r} is not 1 to {NAME_LENGTH_MAX} printable characters without /")
    return key(kind, name)


def named_schedule(name: str) -> Key:
    """Return the key of the schedule of this name, NAME or OWNER:NAME."""
    # A text that cannot be a name is that of no schedule.
    return schedule_key(name if _OWNED_NAME.fullmatch(name) else "-")


def own_schedule(name: str, who: Principal) -> Key:
    """Return the key of the schedule of this name that belongs to a caller alone.

    Callers who prove nothing share theirs.
    """
    owner = quote(who.owner, safe="") if who.authenticated else "*"
    return named_schedule(name if ":" in name else f"{owner}:{name}")


def parse_number(text: str) -> int | None:
    """Return a number of up to 32 bits in decimal digits; None for any other text."""
    if not (text.isascii() and text.isdigit()) or len(text) > DIGITS_MAX:
        return None
    found = int(text)
    return found if found <= NUMBER_MAX else None


def _job(job: str) -> ActorKey | None:
    job_id = canonical(job)
    return None if job_id is None else ActorKey(job_key(job_id))


def _slice(job: str, number: str) -> ActorKey | None:
    job_id, at = canonical(job), parse_number(number)
    return None if job_id is None or at is None else ActorKey(slice_key(job_id, at))


def _task(job: str, instance: str) -> ActorKey | None:
    job_id, at = canonical(job), parse_number(instance)
    if job_id is None or at is None:
        return None
    number, member = divmod(at, SLICE_SIZE)
    return ActorKey(crowd_key(job_id, number), member)


def _lot(*parts: str) -> ActorKey | None:
    job_id, at, shape = canonical(parts[0]), parse_number(parts[1]), parse_number(parts[2])
    if job_id is None or at is None or shape is None:
        return None
    return ActorKey(lot_key(job_id, at, shape_number=shape))


def _inventory(number: str) -> ActorKey | None:
    at = parse_number(number)
    return None if at is None else ActorKey(inventory_key(at))


class _Form(NamedTuple):
    """The form of a key of one kind: what is behind the kind."""

    names: str
    parse: Callable[..., ActorKey | None]


FORMS: dict[str, _Form] = {
    "job": _Form("JOB", _job),
    "slice": _Form("JOB/NUMBER", _slice),
    "task": _Form("JOB/INSTANCE", _task),
    "respool": _Form("ID", lambda pool: ActorKey(pool_key(pool))),
    "lot": _Form("JOB/NUMBER/SHAPE", _lot),
    "host": _Form("NAME", lambda name: ActorKey(key("host", name))),
    "schedule": _Form("NAME", lambda name: ActorKey(key("schedule", name))),
    "inventory": _Form("NUMBER", _inventory),
}
"""The kinds that people can name: to read a story, to follow changes, to redrive dead letters."""

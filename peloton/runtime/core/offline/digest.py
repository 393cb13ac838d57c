"""A digest of all that a shard has committed, to compare it with its replay.

Hashes states, columns, remembered answers and dead letters. Ended entities are left out, since they
may be evicted at any time; so is all that is derived. The digest does not depend on the order in
which anything was created.
"""

from __future__ import annotations

import hashlib
from typing import Any

from peloton.runtime.core.entities.crowd import Crowd
from peloton.runtime.core.entities.encoding import encode
from peloton.runtime.core.shard import Shard
from peloton.runtime.core.turning.replies import KEEP_S
from peloton.runtime.vocabulary import Bits, Key, kind_of, members_of


def alike(one: Shard, other: Shard) -> bool:
    """Return whether two shards have committed the same.

    An owner forgets remembered answers from time to time, which is in no frame: those that are old
    enough for it are left out.
    """
    now = max(one.turns.now, other.turns.now)
    return digest(one, now=now) == digest(other, now=now)


def digest(shard: Shard, *, now: float = 0.0) -> str:
    """Return the hex sha256 over the sorted encodings of everything that recovery must bring back.

    Answers that are not kept any more at `now`, in seconds since 1970, are left out.
    """
    gone = _ended(shard)
    rows: list[bytes] = []
    for key, state in shard.population.cells.items():
        if key not in gone:
            rows.append(encode(("cell", key, state, shard.population.since.get(key))))
    for key, crowd in shard.population.crowds.items():
        if crowd.classes and crowd.parent not in gone:
            rows.append(encode(("crowd", key, *_crowd(crowd))))
    for key, kept in shard.request_log.by_cell.items():
        if key not in gone:
            answers = (fact for fact in kept.values() if fact.at + KEEP_S >= now)
            rows += [encode(("answered", key, fact)) for fact in answers]
    for key, facts in shard.deferred.dump().items():
        rows += [encode(("held", key, fact)) for fact in facts]
    rows += [encode(("heard", fact)) for fact in shard.epoch_filter.dump()]
    total = hashlib.sha256()
    for row in sorted(rows):
        total.update(len(row).to_bytes(4, "little"))
        total.update(row)
    return total.hexdigest()


def _ended(shard: Shard) -> dict[Key, None]:
    population = shard.population
    gone: dict[Key, None] = {}
    for key, state in population.cells.items():
        kind = shard.kinds[kind_of(key)]
        if kind.ended(state, population.index_for(kind, key)):
            gone[key] = None
    return gone


def _crowd(crowd: Crowd) -> tuple[Any, ...]:
    classes = sorted((encode(state), Bits(raw).pack()) for state, raw in crowd.classes.items())
    same, each, _ = crowd.columns.dump()
    columns = []
    for name in sorted({**same, **each}):
        values = [crowd.columns.read(name, at) for at in members_of(crowd.present)]
        if any(value is not None for value in values):
            columns.append((name, values))
    return classes, columns

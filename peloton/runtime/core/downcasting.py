"""Downcasting: writes values in the older schema that every version of the fleet reads.

The inverse of `upcasting`, for the time between the first new daemon and the raised feature level:
a schema above 1 has a level from which it is written, and a step (downcaster) to the schema before
it. A step is a pure function of the decoded but untyped value. Nothing may be lost on the way: the
codec reads the older form again and compares. What goes wrong otherwise:

1. A daemon of the later version takes over a shard, and writes a state in the new schema.
2. It leaves, or is replaced by the earlier version again.
3. No daemon that is left can read the state, and the shard has no owner.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from peloton.runtime.vocabulary import Downcast, Kind


class AboveLevel(Exception):
    """What belongs to a later feature level than the cluster's must not be written."""


def known_level(kinds: Mapping[str, Kind]) -> int:
    """The highest feature level that these kinds know."""
    classes = [level for kind in kinds.values() for level in kind.since.values()]
    schemas = [
        level
        for kind in kinds.values()
        for levels in kind.schemas_since.values()
        for level in levels.values()
    ]
    decided = [kind.level for kind in kinds.values()]
    return max([*classes, *schemas, *decided], default=0)


def check_schemas(kind: Kind) -> None:
    """Raise ValueError unless each schema above 1 has a level and a step to the schema before."""
    for cls, today in {**kind.schemas, kind.state: kind.schema}.items():
        levels, steps = kind.schemas_since.get(cls, {}), kind.downcasters.get(cls, {})
        wanted = [*range(2, today + 1)]
        name = f"{kind.name}: {cls.__name__}"
        if sorted(levels) != wanted or sorted(steps) != wanted:
            raise ValueError(f"{name}: every schema from 2 to {today} needs a level and a step")
        rising = [levels[schema] for schema in wanted]
        if rising != sorted(rising) or any(level < 1 for level in rising):
            raise ValueError(f"{name}: levels of schemas are at least 1 and do not fall: {rising}")


def written_schema(today: int, levels: Mapping[int, int], *, level: int) -> int:
    """The newest schema that may be written at the feature level."""
    schema = today
    while schema > 1 and levels[schema] > level:
        schema -= 1
    return schema


def downcast(raw: Any, steps: Mapping[int, Downcast], *, forms: tuple[int, int]) -> Any:
    """The untyped value in an older schema; `forms` is its own and the wanted one."""
    for schema in range(forms[0], forms[1], -1):
        raw = steps[schema](raw)
    return raw


def downcast_columns(
    kind: Kind, same: Mapping[str, Any], *, each: Mapping[str, list[Any]], schema: int
) -> tuple[dict[str, Any], dict[str, list[Any]]]:
    """Untyped columns of a crowd in an older schema. Those that it does not have are skipped."""
    crowd = kind.crowd
    assert crowd is not None

    def older(name: str, value: Any) -> Any:
        steps = crowd.downcasters.get(name, {})
        for form in range(kind.schema, schema, -1):
            if form in steps and value is not None:
                value = steps[form](value)
        return value

    return (
        {name: older(name, value) for name, value in same.items()},
        {name: [older(name, value) for value in values] for name, values in each.items()},
    )

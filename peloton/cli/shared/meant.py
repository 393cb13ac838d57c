"""Which instances of a job ranges mean: the server accepts ranges without any, and does nothing.

Instances are read only for a daemon job, whose numbers have gaps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from peloton.cli.shared.values import ALL_INSTANCES, within
from peloton.sdk.errors import OutOfRange

if TYPE_CHECKING:
    from peloton.sdk.client import Client


class Meant(NamedTuple):
    """How many instances are meant, and how many there are."""

    some: int
    all_: int


def meant(peloton: Client, job: str, *, ranges: Sequence[tuple[int, int]]) -> Meant:
    """Return how many instances lie in these ranges, without any in all. Raises OutOfRange for
    none."""
    from peloton.sdk.render import enum_name

    config = peloton.jobs.get(job).jobInfo.config
    count, known = config.instanceCount, f"0 to {config.instanceCount - 1}"
    wanted = ranges or (ALL_INSTANCES,)
    if enum_name(config, "type") == "DAEMON":
        numbers = sorted(peloton.tasks.list(job).result.value)
        count, known = len(numbers), ", ".join(map(str, numbers[:10])) or "none yet"
        known += f" and {count - 10} more" if count > 10 else ""
        some = sum(any(low <= one < high for low, high in wanted) for one in numbers)
    else:
        some = within(wanted, count)
    if ranges and not some:
        raise OutOfRange(f"the job has instances {known}", instance_count=count)
    return Meant(some, count)

"""`--dry-run`: says what a command would do, and does nothing.

What is said is read from the cluster, and may have changed a moment later.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from peloton.cli.shared.meant import meant
from peloton.cli.shared.output import OutputForms, show
from peloton.cli.shared.values import range_text
from peloton.sdk.errors import NotFound

if TYPE_CHECKING:
    from peloton.sdk.client import Client

dry_run_option = click.option(
    "--dry-run", is_flag=True, help="Say what would be done, and change nothing."
)


def would(*lines: str, names: Sequence[str] = (), **about: Any) -> None:
    """Print what would be done; as data, the lines with what they are about."""
    answer = {"dryRun": True, "would": list(lines), **about}
    show(OutputForms(answer, lines=lines, names=lambda: names))


def states_text(counts: Mapping[str, int]) -> str:
    """Return instances by state, as people read it: `1 PENDING, 2 RUNNING`."""
    return ", ".join(f"{counts[name]} {name}" for name in sorted(counts) if counts[name])


def host_named(peloton: Client, name: str) -> Any:
    """Return the host of this name, as the cluster has it; raises NotFound."""
    found = next((one for one in peloton.ops.hosts().hosts if one.name == name), None)
    if found is None:
        raise NotFound(f"no such host: {name}")
    return found


def check_ranges(peloton: Client, job: str, *, ranges: Sequence[tuple[int, int]]) -> None:
    """Raise OutOfRange if given ranges select nothing.

    Calls of the original take that for all instances, which a user who has typed a range does not
    mean.
    """
    if ranges:
        meant(peloton, job, ranges=ranges)


def instances_text(peloton: Client, job: str, *, ranges: Sequence[tuple[int, int]]) -> str:
    """Return which instances of a job are meant, with their states if these are all."""
    info = peloton.jobs.get(job).jobInfo
    count = info.config.instanceCount
    if not ranges:
        return f"all {count} instances of job {job} ({states_text(info.runtime.taskStats)})"
    some = " ".join(map(range_text, ranges))
    found = meant(peloton, job, ranges=ranges)
    return f"{found.some} of the {found.all_} instances of job {job} ({some})"

"""`peloton diff`: what a spec would change of a service, before anything is changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from peloton.cli.jobs import job_checks
from peloton.cli.services.stateless import JOB_TEXTS
from peloton.cli.shared import exits
from peloton.cli.shared.options import OwnCommand
from peloton.cli.shared.output import OutputForms, show
from peloton.cli.shared.session import connected, refusal_texts, spec_in
from peloton.cli.shared.values import SPEC_FILE

if TYPE_CHECKING:
    from peloton.sdk.client import Client
    from peloton.sdk.spec_diff import FieldChange, InstanceChanges

SPANS_MAX = 10
NOT_GIVEN = "(not given)"


@click.command(cls=OwnCommand)
@click.argument("job")
@click.argument("spec", type=SPEC_FILE)
def diff(job: str, spec: str) -> int:
    """Say which instances of JOB the YAML file SPEC would change, and which fields differ.

    SPEC is a spec of v1alpha or a config of v0; `job stateless replace` or `update create` would
    carry it out. Exits with 83 if there are differences, and with 0 if there are none.

    \b
    peloton diff web service.yaml
    peloton diff web service.yaml -o json
    """
    from peloton.sdk.spec_diff import is_of_v1alpha

    with spec_in(spec) as given, connected() as peloton, refusal_texts(JOB_TEXTS, job=job):
        found = of_pods if is_of_v1alpha(given) else of_instances
        instances, fields = found(peloton, job, given=given)
    show(
        OutputForms(
            as_data(job, instances, fields=fields),
            lines=[*lines(job, instances, fields=fields)],
            names=lambda: [change.field for change in fields],
        )
    )
    return exits.OK if instances.is_none and not fields else exits.DIFFERS


def of_pods(
    peloton: Client, job: str, *, given: Any
) -> tuple[InstanceChanges, Sequence[FieldChange]]:
    """Return the changes by a spec of v1alpha: the server says which pods would get new runs."""
    from peloton.sdk.spec_diff import InstanceChanges, field_changes
    from peloton.sdk.stateless import built_spec

    answer = peloton.stateless.diff(job, given)
    changes = InstanceChanges(
        updated=closed(answer.instances_updated),
        added=closed(answer.instances_added),
        removed=closed(answer.instances_removed),
        unchanged=closed(answer.instances_unchanged),
    )
    known = peloton.stateless.get(job).job_info.spec
    return changes, field_changes(known, built_spec(given))


def of_instances(
    peloton: Client, job: str, *, given: Any
) -> tuple[InstanceChanges, Sequence[FieldChange]]:
    """Return the changes by a config of v0, compared here with the newest one of the job."""
    from peloton.sdk.jobs import built
    from peloton.sdk.spec_diff import field_changes, instance_changes

    known = peloton.jobs.get(job).jobInfo.config
    wanted = built(job_checks.with_resource_of(lambda: known, spec=given))
    return instance_changes(known, wanted), field_changes(known, wanted)


def closed(ranges: Any) -> tuple[tuple[int, int], ...]:
    return tuple((getattr(one, "from"), one.to) for one in ranges)


def count(ranges: Sequence[tuple[int, int]]) -> int:
    return sum(last - first + 1 for first, last in ranges)


def lines(job: str, instances: InstanceChanges, *, fields: Sequence[FieldChange]) -> Iterator[str]:
    """Yield the changes for people."""
    if instances.is_none and not fields:
        yield f"Job {job}: no difference"
        return
    total = count(instances.updated) + count(instances.removed) + count(instances.unchanged)
    yield f"Job {job}: {count(instances.updated)} of {total} instances would get a new run"
    for name, ranges in instances._asdict().items():
        if ranges:
            yield f"  {name}: {spans_text(ranges)}"
    for change in fields:
        yield f"{change.field}: {change.old or NOT_GIVEN} -> {change.new or NOT_GIVEN}"


def spans_text(ranges: Sequence[tuple[int, int]]) -> str:
    """Return ranges as people read them, of very many the first ones."""
    some = [str(low) if low == high else f"{low}-{high}" for low, high in ranges[:SPANS_MAX]]
    left = count(ranges[SPANS_MAX:])
    return ", ".join([*some, *([f"and {left} more"] if left else [])])


def as_data(
    job: str, instances: InstanceChanges, *, fields: Sequence[FieldChange]
) -> dict[str, Any]:
    """Return the changes for programs; both ends of each range are instances."""
    return {
        "job_id": job,
        "instances": {
            name: [{"from": first, "to": last} for first, last in ranges]
            for name, ranges in instances._asdict().items()
        },
        "fields": [change._asdict() for change in fields],
    }

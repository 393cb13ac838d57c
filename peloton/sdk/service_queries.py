"""Queries of services and their pods, as v1alpha has them."""

from __future__ import annotations

from collections.abc import Sequence

from peloton.api.v1alpha.job.stateless import stateless_pb2 as stateless
from peloton.api.v1alpha.query import query_pb2 as query
from peloton.sdk.jobs import JobQuery, number_of, spec_of

JOB_STATE, POD_STATE = "JOB_STATE_", "POD_STATE_"


def prefixed(prefix: str, name: str) -> str:
    """Return the name of a state as the contract has it: people leave the prefix out."""
    name = name.upper()
    return name if name.startswith(prefix) else prefix + name


def query_spec_of(wanted: JobQuery) -> stateless.QuerySpec:
    """Return the query in v1alpha, where a pool is named by its path and states have a prefix."""
    spec = stateless.QuerySpec(
        pagination=query.PaginationSpec(
            offset=wanted.offset,
            limit=wanted.limit,
            order_by=order_by(wanted.sort, wanted.order),
            max_limit=wanted.considered,
        ),
        keywords=wanted.keywords,
        job_states=[
            number_of(stateless.JobState, prefixed(JOB_STATE, name), what="job state")
            for name in wanted.states
        ],
        respool={"value": wanted.pool},
        owner=wanted.owner,
        name=wanted.name,
    )
    for key, value in wanted.labels:
        spec.labels.add(key=key, value=value)
    times = spec_of(JobQuery(days=wanted.days, archived=wanted.archived)).creationTimeRange
    if times.HasField("min"):
        spec.creation_time_range.min.CopyFrom(times.min)
    if times.HasField("max"):
        spec.creation_time_range.max.CopyFrom(times.max)
    return spec


def order_by(sort: Sequence[str], order: str) -> Sequence[query.OrderBy]:
    """Return the order of a page in v1alpha, by these properties."""
    number = number_of(query.OrderBy.Order, f"ORDER_BY_{order.upper()}", what="order")
    return [query.OrderBy(order=number, property={"value": name}) for name in sort]

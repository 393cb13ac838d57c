"""Translates a resource pool between the wire and the actors.

A ResourcePoolConfig becomes a PoolConfig, with an invalid value recorded as its `problem` (the pool
reports it itself, so that errors come in the original's order), and views become ResourcePoolInfo.
The pool checks itself against the tree.
"""

from __future__ import annotations

import math
from collections.abc import Container, Mapping
from typing import TypeVar

from peloton.actors.resources import SLACK, BadAmount, Resources, amount, millionths
from peloton.actors.respool.messages import ROOT, PoolConfig, PoolView, Queueing, Within, pool_key
from peloton.api.v0 import peloton_pb2
from peloton.api.v0.respool import respool_pb2 as respool
from peloton.gateway.translate.bad_field import BadField
from peloton.gateway.translate.texts import client_name
from peloton.ops.v1 import ops_pb2 as ops
from peloton.runtime.vocabulary import Key

Named = TypeVar("Named")

POOL_KINDS = Resources.KINDS[:SLACK]
"""Those of which clients know; slack is no kind, but a part of the use of each."""
SLACK_PERCENT = 20.0
WITHIN = {"" if each == Within.CLUSTER else each.name.lower(): each for each in Within}
QUEUES = {"": Queueing.BEST_EFFORT, "best-effort": Queueing.BEST_EFFORT, "strict": Queueing.STRICT}


def to_pool(sent: respool.ResourcePoolConfig) -> PoolConfig:
    """Return the config; an invalid one has a `problem` and no amounts."""
    nothing = Resources()
    kept = respool.ResourcePoolConfig()
    kept.CopyFrom(sent)
    if kept.policy == respool.UNKNOWN:
        kept.policy = respool.PriorityFIFO
    parent = pool_key(sent.parent.value)
    try:
        return _checked(kept)
    except (BadField, BadAmount) as error:
        return PoolConfig(sent.name, parent, nothing, nothing, problem=str(error))


def _checked(sent: respool.ResourcePoolConfig) -> PoolConfig:
    if sent.policy != respool.PriorityFIFO:
        raise BadField("config.policy", f"unknown scheduling policy {sent.policy}")
    seen: dict[str, respool.ResourceConfig] = {}
    for at, one in enumerate(sent.resources):
        where = f"config.resources[{at}].kind"
        if one.kind not in POOL_KINDS:
            raise BadField(
                where, f"resource kind {one.kind!r} must be one of {', '.join(POOL_KINDS)}"
            )
        if one.kind in seen:
            raise BadField(where, f"duplicate resource kind {one.kind}")
        seen[one.kind] = one
    reservation, limit, share, static = {}, {}, [], []
    for kind in POOL_KINDS:
        one = seen.get(kind) or respool.ResourceConfig(kind=kind, share=1.0)
        where = f"config.resources[{kind}]"
        reservation[kind] = millionths(one.reservation, f"{where}.reservation")
        limit[kind] = millionths(one.limit, f"{where}.limit")
        millionths(one.share, f"{where}.share")
        share.append(one.share)
        static.append(one.type == respool.STATIC)
    return PoolConfig(
        name=sent.name,
        parent=pool_key(sent.parent.value),
        reservation=Resources(**reservation),
        limit=Resources(**limit),
        share=tuple(share),  # type: ignore[arg-type]
        static=tuple(static),  # type: ignore[arg-type]
        controller_percent=_percent(sent, "controllerLimit"),
        slack_percent=SLACK_PERCENT if (p := _percent(sent, "slackLimit")) is None else p,
        raw=sent.SerializeToString(deterministic=True),
        within=_one_of(WITHIN, "withinReservation", text=sent.withinReservation),
        queueing=_one_of(QUEUES, "queue", text=sent.queue),
    )


def _one_of(names: Mapping[str, Named], field: str, *, text: str) -> Named:
    found = names.get(text)
    if found is None:
        known = ", ".join(repr(name) for name in names if name)
        raise BadField(f"config.{field}", f"must be one of {known}, got {text!r}")
    return found


def _percent(sent: respool.ResourcePoolConfig, field: str) -> float | None:
    if not sent.HasField(field):
        return None
    percent: float = getattr(sent, field).maxPercent
    if not math.isfinite(percent) or percent < 0:
        raise BadField(f"config.{field}.maxPercent", f"must be ≥ 0, got {percent}")
    return percent


def pool_config_of(view: PoolView) -> respool.ResourcePoolConfig:
    """Return the config as its client wrote it, with every kind.

    That of a pool without a client (the root, the default pool) is made of what the pool has.
    """
    config = view.config
    found = respool.ResourcePoolConfig.FromString(config.raw)
    if not config.raw:
        found.name = config.name
        found.policy = respool.PriorityFIFO
        found.slackLimit.maxPercent = config.slack_percent
        if view.pool != ROOT:
            found.parent.value = client_name(config.parent)
    for one in found.resources:
        if one.type == respool.UNKNOWN_TYPE:
            one.type = respool.ELASTIC  # what it is where its client did not say
    listed = {one.kind for one in found.resources}
    for at, kind in enumerate(POOL_KINDS):
        if kind not in listed:
            found.resources.add(
                kind=kind,
                reservation=amount(config.reservation.amounts()[at]),
                limit=amount(config.limit.amounts()[at]),
                share=config.share[at],
                type=respool.ELASTIC,
            )
    return found


def pool_info_of(
    view: PoolView, *, among: Container[Key] | None = None
) -> respool.ResourcePoolInfo:
    """Return a pool as clients see it, with those of its children that are `among` the visible
    pools."""
    on_slack = view.on_slack
    held = (view.allocation - on_slack).amounts()
    slack = (on_slack.slack, *on_slack.amounts()[1:4])
    return respool.ResourcePoolInfo(
        id=pool_id(client_name(view.pool)),
        config=pool_config_of(view),
        parent=None if view.pool == ROOT else pool_id(client_name(view.config.parent)),
        children=[
            pool_id(client_name(child))
            for child in view.children
            if among is None or child in among
        ],
        usage=[
            respool.ResourceUsage(kind=kind, allocation=amount(held[at]), slack=amount(slack[at]))
            for at, kind in enumerate(POOL_KINDS)
        ],
        path=respool.ResourcePoolPath(value=view.path),
    )


def standing_of(view: PoolView) -> ops.PoolStanding:
    """Return reservation, entitlement, use and demand of a pool, by kind."""
    config, entitled, on_slack = view.config, view.entitlement, view.on_slack
    slack = (on_slack.slack, *on_slack.amounts()[1:4])
    found = ops.PoolStanding(id=client_name(view.pool), path=view.path)
    for at, kind in enumerate(POOL_KINDS):
        one = found.kinds.add(
            kind=kind,
            reservation=amount(config.reservation.amounts()[at]),
            limit=amount(config.limit.amounts()[at]),
            share=config.share[at],
            type="STATIC" if config.static[at] else "ELASTIC",
            demand=amount(view.demand.amounts()[at]),
            allocation=amount((view.allocation - on_slack).amounts()[at]),
            slack=amount(slack[at]),
        )
        if entitled is not None:
            one.entitlement = amount(entitled.amounts()[at])
    return found


def pool_id(value: str) -> peloton_pb2.ResourcePoolID:
    """Return the message that holds an id."""
    return peloton_pb2.ResourcePoolID(value=value)
